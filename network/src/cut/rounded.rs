//! Tensors and workloads in a reduced precision.
//!
//! Tensors between kernels are rounded, and so are factors of products. Inputs and outputs of the
//! network, integers, biases and scales keep their type. Where a tensor's type differs from the one
//! that a step reads, the plan inserts a conversion.

use autotune_ir::{CpuTarget, DType};
use autotune_schedules::direct::has_tile_instruction;
use autotune_schedules::winograd::{self, conv::WinogradConv};
use autotune_workloads::{Epilogue, Types, Workload};

use super::{Cut, Step, StepWork, ValueId};
use autotune_graph::Graph;

/// Largest fraction of multiplications that Winograd's algorithm may leave for a convolution to be
/// faster in f32 than direct convolution in bf16 by `vdpbf16ps`, with two products for each lane.
///
/// Measured on one thread of an AMD EPYC (family 25, model 17), untuned: 3x3 convolutions of
/// ResNet-18 with a fraction of 0.23 take 0.56 times the time of `vdpbf16ps`; with 0.33 they take
/// 0.85 times with many tiles, and 1.7 times where weights are read more often than caches hold
/// them.
const MOST_SHARE: f64 = 0.3;

/// Largest fraction of multiplications that Winograd's algorithm in f32 may leave to be faster than
/// the algorithm in bf16, as a share of what that leaves. Products of bf16 take half the time, but
/// the transforms of smaller tiles take more.
///
/// Measured on one thread of an AMD EPYC (family 26, model 2), 150 trials each: 3x3 convolutions
/// with 64 and 128 channels (56x56 and 28x28) take the same time in f32 and in bf16, with fractions
/// of 0.227 and 0.444. With 64 channels of 224x224 (0.205 and 0.444), f32 takes 0.90 times the time
/// of bf16; with 256 channels of 56x56 (0.227 and 0.444) 1.13 times.
const MOST_SHARE_OF_ROUNDED: f64 = 0.475;

/// Minimum number of operations for each data element that makes a conversion to bf16 worthwhile.
/// In a nanosecond a core converts a few elements, or executes some hundred operations, at least
/// half of which bf16 saves.
const FLOPS_OF_CONVERSION: f64 = 256.0;

/// True if a tensor of a workload holds integers.
pub(super) fn has_integers(workload: &Workload) -> bool {
    workload.spec().tensors.iter().any(|tensor| tensor.dtype.is_integer())
}

impl Cut {
    /// Stores intermediate tensors in a type where rounding is permitted, and makes steps compute
    /// on them as stored. `cpu` is the target, if it is a CPU with known instructions.
    pub(super) fn round_to(&mut self, graph: &Graph, dtype: DType, cpu: Option<&CpuTarget>) {
        let is_exact = |step: &Step| graph.exact().contains(&self.value(step.output).node);
        let rounded = |step: &Step| if is_exact(step) { None } else { step.rounded_to(dtype) };
        let rounded: Vec<Option<Workload>> = self.steps.iter().map(rounded).collect();
        self.store_rounded(graph, &rounded, dtype);

        for number in 0..self.steps.len() {
            let step = &self.steps[number];
            let (StepWork::Kernel(workload), Some(rounded)) = (&step.work, &rounded[number]) else { continue };
            let (out, memory_types) = (self.value(step.output).dtype, self.memory_types(graph, step));
            let operands =
                RoundableOperands { workload, memory_types, weights: workload.weights(), rounded, dtype, cpu };
            if let Ok(rounded) = workload.with_types(operands.types(out)) {
                self.set_constant_types(graph, number, &rounded);
                self.steps[number].work = StepWork::Kernel(rounded);
            }
        }
    }

    /// Stores values in a type where rounding is permitted. `rounded` has each step's workload with
    /// all possible tensors in the type.
    pub(super) fn store_rounded(&mut self, graph: &Graph, rounded: &[Option<Workload>], dtype: DType) {
        let is_kept = self.kept(graph, rounded, dtype);
        // Parts share the memory of their root, and so its type.
        for number in 0..self.values.len() {
            let root = self.root(ValueId(number as u32)).0;
            if !is_kept[root.0 as usize] {
                self.values[number].dtype = dtype;
            }
        }
    }

    /// Returns for each value whether its memory must not be rounded. `rounded` has each step's
    /// workload with all possible tensors in the type.
    fn kept(&self, graph: &Graph, rounded: &[Option<Workload>], dtype: DType) -> Vec<bool> {
        let mut is_kept = vec![false; self.values.len()];
        let mut keep = |value: ValueId| is_kept[self.root(value).0.0 as usize] = true;

        // Inputs, constants and integers are never rounded.
        for (number, value) in self.values.iter().enumerate() {
            if graph.is_given(value.node) || graph.node(value.node).dtype != DType::F32 {
                keep(ValueId(number as u32));
            }
        }
        self.outputs.iter().for_each(|&output| keep(output));
        for (step, rounded) in self.steps.iter().zip(rounded) {
            match &step.work {
                StepWork::Kernel(_) => {
                    if rounded.as_ref().map(Workload::result_dtype) != Some(dtype) {
                        keep(step.output);
                    }
                    let operands = rounded.iter().flat_map(|rounded| rounded.spec().operands());
                    let whole = step.operands.iter().zip(operands).filter(|(_, tensor)| tensor.dtype != dtype);
                    whole.for_each(|(&operand, _)| keep(operand));
                }
                StepWork::Interpret(_) => keep(step.output),
                StepWork::Copy(_) => {}
            }
        }
        is_kept
    }

    /// Returns the element type in memory of each operand of a step; `None` for constants, which
    /// may be stored in any type.
    fn memory_types(&self, graph: &Graph, step: &Step) -> Vec<Option<DType>> {
        let values = step.operands.iter().map(|&operand| self.value(operand));
        values.map(|value| graph.constant_of(value.node).is_none().then_some(value.dtype)).collect()
    }

    /// Stores a step's constants in the types that its workload reads.
    pub(super) fn set_constant_types(&mut self, graph: &Graph, step: usize, workload: &Workload) {
        let dtypes: Vec<DType> = workload.spec().operands().map(|tensor| tensor.dtype).collect();
        for (&operand, dtype) in self.steps[step].operands.iter().zip(dtypes) {
            let value = &mut self.values[operand.0 as usize];
            if value.within.is_none() && graph.constant_of(value.node).is_some() {
                value.dtype = dtype;
            }
        }
    }
}

impl Step {
    /// Returns the step's workload with all possible tensors in a type, if it has one.
    fn rounded_to(&self, dtype: DType) -> Option<Workload> {
        match &self.work {
            // Integers are never rounded.
            StepWork::Kernel(workload) if has_integers(workload) => None,
            StepWork::Kernel(workload) => workload.with_dtype(dtype).ok(),
            StepWork::Copy(_) | StepWork::Interpret(_) => None,
        }
    }
}

/// Operands of a workload that may be rounded.
struct RoundableOperands<'a> {
    workload: &'a Workload,
    /// Element type of each operand in memory; `None` for constants.
    memory_types: Vec<Option<DType>>,
    /// Positions of the weights.
    weights: Vec<usize>,
    /// The workload with all possible tensors in the type.
    rounded: &'a Workload,
    dtype: DType,
    /// CPU that the network runs on, if known.
    cpu: Option<&'a CpuTarget>,
}

impl RoundableOperands<'_> {
    /// Returns which epilogue operands exist: scale, bias, residual, slopes, scale and bias after
    /// the activation, scale and tensor of a residual, then table. They follow the operator's own
    /// operands in this order.
    fn parts(&self) -> [bool; 9] {
        let Epilogue { scale, bias, residual, activation, post_scale, post_bias, post_residual, table } =
            self.workload.epilogue();
        let slope = activation.has_slopes();
        [scale, bias, residual, slope, post_scale, post_bias, post_residual, post_residual, table]
    }

    /// Returns the number of the operator's own operands, which come first.
    fn own_operands(&self) -> usize {
        self.memory_types.len().saturating_sub(self.parts().into_iter().filter(|is_there| *is_there).count())
    }

    /// Returns the types of the workload with output type `out`.
    fn types(&self, out: DType) -> Types {
        let data = self.data();
        let mut memory_type = self.memory_types[self.own_operands()..].iter().copied();
        let parts = self.parts().map(|is_there| if is_there { memory_type.next().flatten() } else { None });

        let [scale, bias, residual, slope, post_scale, post_bias, residual_scale, post_residual, _] = parts;
        Types {
            data,
            weights: self.weights(data),
            out: self.workload.operator().result_dtype().unwrap_or(out),
            scale: scale.or(post_scale).or(slope).or(residual_scale).unwrap_or(DType::F32),
            bias: bias.or(post_bias).unwrap_or(DType::F32),
            residual: residual.or(post_residual).unwrap_or(out),
        }
    }

    /// Returns the type of data operands. Constant tables are not converted, since a run reads few
    /// of their rows; neither are indices, which are integers.
    fn data(&self) -> DType {
        let tensors = self.rounded.spec().operands().enumerate().take(self.own_operands());
        let data = tensors.filter(|(place, tensor)| !self.weights.contains(place) && tensor.dtype == self.dtype);
        let (mut memory_type, mut elements) = (DType::F32, 0);
        for (place, tensor) in data {
            elements += tensor.shape.iter().product::<usize>();
            if self.memory_types[place] == Some(self.dtype) {
                memory_type = self.dtype;
            }
        }

        // A conversion must save more multiplications than it costs.
        let multiplies = self.workload.spec().is_contraction() && self.has_constant_matrix();
        let saves_time = self.workload.flops() >= FLOPS_OF_CONVERSION * elements as f64;
        if multiplies && saves_time && !self.is_faster_exact() { self.dtype } else { memory_type }
    }

    /// Returns the type of weights, given that of data.
    fn weights(&self, data: DType) -> DType {
        match self.weights.iter().find_map(|&place| self.memory_types.get(place).copied().flatten()) {
            Some(memory_type) => memory_type,
            None if self.has_constant_matrix() && !self.is_faster_exact() => data,
            None => DType::F32,
        }
    }

    /// True for a convolution that is faster by Winograd's algorithm in f32. Tile instructions
    /// multiply faster than that algorithm saves products.
    fn is_faster_exact(&self) -> bool {
        let has_tiles = self.cpu.is_some_and(|cpu| has_tile_instruction(self.rounded, cpu));
        let rounded = self.cpu.and_then(|cpu| winograd::conv_on(self.rounded, cpu));
        let of_rounded = rounded.map_or(1.0, |conv| MOST_SHARE_OF_ROUNDED * conv.least_work_share());
        let saves_products = |conv: WinogradConv| conv.least_work_share() < MOST_SHARE.min(of_rounded);
        !has_tiles && WinogradConv::of(self.workload).is_some_and(saves_products)
    }

    /// True if all weights are constant, and at least one is a matrix rather than a vector such as
    /// a normalisation's scale.
    fn has_constant_matrix(&self) -> bool {
        let mut tensors = self.rounded.spec().operands().enumerate();
        let is_constant = |place: &usize| self.memory_types.get(*place) == Some(&None);
        self.weights.iter().all(is_constant)
            && tensors.any(|(place, tensor)| self.weights.contains(&place) && tensor.shape.len() > 1)
    }
}
