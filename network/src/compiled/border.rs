//! Conversion between f32 numbers, as callers and the interpreter have them, and the element types
//! of slots.

use std::borrow::Cow;

use autotune_ir::DType;
use autotune_runtime::{Cpu, Device, bytes_of, bytes_of_mut};

/// True if elements of a type have the same representation in memory and at the caller, so that
/// kernels can read the caller's memory.
pub(super) fn has_caller_representation(dtype: DType) -> bool {
    dtype.is_word()
}

/// Writes numbers as elements of a type, rounded to nearest.
pub(crate) fn encode(dtype: DType, numbers: &[f32], elements: &mut [u8]) {
    if has_caller_representation(dtype) {
        return elements.copy_from_slice(bytes_of(numbers));
    }
    let size = dtype.bytes();
    for (element, &number) in elements.chunks_exact_mut(size).zip(numbers) {
        element.copy_from_slice(&dtype.encode(number.into()).to_le_bytes()[..size]);
    }
}

/// Reads elements of a type as numbers; integers above 2^24 are rounded to f32.
pub(crate) fn decode(dtype: DType, elements: &[u8], numbers: &mut [f32]) {
    if has_caller_representation(dtype) {
        return bytes_of_mut(numbers).copy_from_slice(elements);
    }
    let size = dtype.bytes();
    for (number, element) in numbers.iter_mut().zip(elements.chunks_exact(size)) {
        // Elements are little-endian, so the missing high bytes are zero.
        let mut bits = [0; size_of::<u64>()];
        bits[..size].copy_from_slice(element);
        *number = dtype.decode(u64::from_le_bytes(bits)) as f32;
    }
}

/// Typed memory of a tensor that the interpreter reads or writes.
pub(crate) struct TypedMemory<D: Device = Cpu> {
    pub(super) memory: D::Memory,
    pub(super) dtype: DType,
}

impl TypedMemory {
    /// Returns the first `count` numbers, without a copy where the representation is the same.
    pub(super) fn numbers(&self, count: usize) -> Cow<'_, [f32]> {
        if has_caller_representation(self.dtype) {
            return Cow::Borrowed(&self.memory.elements()[..count]);
        }
        let mut numbers = vec![0.0; count];
        decode(self.dtype, &self.memory.elements::<u8>()[..count * self.dtype.bytes()], &mut numbers);
        Cow::Owned(numbers)
    }

    /// Writes the first numbers.
    pub(super) fn put(&mut self, numbers: &[f32]) {
        let bytes = numbers.len() * self.dtype.bytes();
        encode(self.dtype, numbers, &mut self.memory.elements_mut()[..bytes]);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use autotune_ir::Target;
    use autotune_ir::plan::Binding;

    use super::*;
    use crate::compiled::Compiled;
    use crate::cut::{Cut, StepWork};
    use crate::error::CompileError;
    use crate::plan::{SlotContent, given};
    use crate::testing::{compiled_as, moves, numbers};
    use crate::{Graph, Tensor};
    use autotune_graph::operators::{CumSum, MatMul};

    #[test]
    fn numbers_come_back_as_their_type_has_them() {
        let given = [0.0, -0.0, 0.3, -2.5, 127.5, -1e9, 3e38, f32::INFINITY, f32::NAN, f32::from_bits(0x7f80_0123)];
        for dtype in DType::ALL {
            let mut elements = vec![0xaa; given.len() * dtype.bytes()];
            encode(dtype, &given, &mut elements);
            let mut found = [0.0; 10];
            decode(dtype, &elements, &mut found);
            let wanted = given.map(|x| if dtype.is_integer() && x.is_nan() { 0.0 } else { dtype.stored(x) });
            assert!((0..8).all(|at| found[at] == wanted[at]), "{dtype}: {found:?}, {wanted:?}");
            assert!(found[8..].iter().all(|x| x.is_nan() != dtype.is_integer()), "{dtype}: {found:?}");
            if dtype.is_word() {
                assert_eq!(found.map(f32::to_bits), given.map(f32::to_bits));
            }
        }
    }

    /// Copies, slices and constants of every type, in slots that do not overlap.
    #[test]
    fn tensors_of_every_type_are_laid_out_and_moved() {
        let graph = moves();
        let x = Tensor::f32(&[30, 11, 7], numbers(30 * 11 * 7)).unwrap();
        let wanted = graph.evaluate(std::slice::from_ref(&x)).unwrap();
        let mut bytes = Vec::new();
        for dtype in DType::ALL {
            let network = compiled_as(&graph, dtype).unwrap();
            let found = network.workspace().unwrap().run_tensors(std::slice::from_ref(&x)).unwrap();
            for (found, wanted) in found.iter().zip(&wanted) {
                let wanted: Vec<f32> = wanted.to_numbers().into_iter().map(|x| dtype.stored(x)).collect();
                assert_eq!(found.to_numbers(), wanted, "{dtype}");
            }

            let slots =
                network.plan.slots.iter().zip(&network.places).filter(|(slot, _)| slot.content == SlotContent::Run);
            let mut places: Vec<_> = slots.map(|(slot, &place)| place..place + slot.bytes().unwrap()).collect();
            places.sort_by_key(|place| place.start);
            assert!(places.windows(2).all(|pair| pair[0].end <= pair[1].start), "{dtype}: {places:?}");
            assert!(places.len() == 4 && places[3].end <= network.workspace_bytes(), "{dtype}: {places:?}");
            bytes.push((dtype.bytes(), places.iter().map(|place| place.len()).sum::<usize>()));
        }
        let elements = (1 + 3) * 30 * 11 * 7 + 30 * 12 * 7 + 15 * 9 * 3;
        assert!(bytes.iter().all(|&(size, all)| all == size * elements), "{bytes:?}");
    }

    /// The interpreter reads and writes elements of the slots' type.
    #[test]
    fn interpreted_nodes_have_elements_of_every_type() {
        let mut graph = Graph::new("sums");
        let x = graph.input("x", DType::F32, &[3, 5]).unwrap();
        let sums = graph.add("sums", CumSum { axis: 1, exclusive: false, reverse: false }, &[x]).unwrap();
        graph.output("sums", sums);
        assert!(matches!(Cut::of(&graph).steps[0].work, StepWork::Interpret(_)));
        let x = Tensor::f32(&[3, 5], numbers(15)).unwrap();
        for dtype in DType::ALL {
            let stored = |tensor: &Tensor| {
                let numbers = tensor.to_numbers().into_iter().map(|x| dtype.stored(x)).collect();
                Tensor::f32(tensor.shape(), numbers).unwrap()
            };
            let wanted = stored(&graph.evaluate(&[stored(&x)]).unwrap()[0]);
            let network = compiled_as(&graph, dtype).unwrap();
            assert_eq!(
                network.workspace().unwrap().run_tensors(std::slice::from_ref(&x)).unwrap(),
                [wanted],
                "{dtype}"
            );
        }
    }

    fn product() -> Graph {
        let mut graph = Graph::new("product");
        let x = graph.input("x", DType::F32, &[24, 64]).unwrap();
        let weights = graph.constant("weights", Tensor::f32(&[64, 48], numbers(64 * 48)).unwrap());
        let product = graph.add("product", MatMul, &[x, weights]).unwrap();
        graph.output("product", product);
        graph
    }

    /// Buffers of kernels, including packed weights, have the slots' type.
    #[test]
    fn kernels_of_bf16_run_on_slots_of_bf16() {
        let (graph, target) = (product(), Target::detect("cpu", Some(1)).unwrap());
        let mut cut = Cut::of(&graph);
        cut.values.iter_mut().for_each(|value| value.dtype = DType::Bf16);
        let StepWork::Kernel(workload) = &mut cut.steps[0].work else { panic!("no kernel") };
        *workload = workload.with_dtype(DType::Bf16).unwrap();
        let network = Compiled::<Cpu>::of_cut(&graph, cut, None, &target).unwrap();
        let buffers = &network.kernels[0].plan().buffers;
        let is_global = |binding: Binding| matches!(binding, Binding::Data | Binding::Output);
        assert!(buffers.iter().filter(|b| is_global(b.binding)).all(|buffer| buffer.dtype == DType::Bf16));
        assert!(given(network.kernels[0].plan()).count() == 2 && network.in_place.is_empty());

        let round = |numbers: Vec<f32>| numbers.into_iter().map(|x| DType::Bf16.stored(x)).collect::<Vec<_>>();
        let x = numbers(24 * 64);
        let (a, b) = (round(x.clone()), round(numbers(64 * 48)));
        let mut found = vec![0.0; 24 * 48];
        network.workspace().unwrap().run(&[&x], &mut [&mut found]).unwrap();
        for (at, found) in found.into_iter().enumerate() {
            let (row, column) = (at / 48, at % 48);
            let products = (0..64).map(|k| f64::from(a[64 * row + k]) * f64::from(b[48 * k + column]));
            let (sum, most) = products.fold((0.0, 0.0), |(sum, most), x| (sum + x, most + x.abs()));
            let allowed = 1e-6 * most + f64::abs(sum) / 256.0;
            assert!((f64::from(found) - sum).abs() <= allowed, "{at}: {found}, {sum}");
        }
    }

    #[test]
    fn kernels_of_another_type_than_their_memory_are_refused() {
        let refused = compiled_as(&product(), DType::F16).map(drop).unwrap_err();
        assert!(matches!(refused, CompileError::Types { found: DType::F16, wanted: DType::F32, .. }), "{refused}");
        assert_eq!(refused.to_string(), "x: the tensor is f32, but its memory is f16");

        let mut cut = Cut::of(&moves());
        cut.values[0].dtype = DType::I8;
        let refused = Compiled::<Cpu>::of_cut(&moves(), cut, None, &Target::detect("cpu", Some(1)).unwrap());
        assert!(matches!(refused.map(drop), Err(CompileError::Types { .. })));
    }
}
