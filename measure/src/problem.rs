//! A workload with operands and the right answer.

use std::borrow::Cow;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, OnceLock};

use autotune_ir::DType;
use autotune_ir::layout::{physical_shape, put_in_layout};
use autotune_ir::program::{Layout, Role};
use autotune_ir::spec::Tensor;
use autotune_measurement::CandidateError;
use autotune_runtime::bytes_of;
use autotune_workloads::{Operands, OutOfMemory, Reference, ReferenceError, Workload};
use ndarray::ArrayD;

use crate::expected::Expected;

/// The operands' seed: every measurement of a workload uses the same.
const SEED: u64 = 0x0a07_07e5;

/// Random operands of a workload, none of which lets a wrong kernel pass, and the output for them.
/// What of the output of a large workload is compared, each process draws for itself.
pub(crate) struct Problem {
    workload: Workload,
    operands: Operands,
    reference: Arc<Reference>,
}

impl Problem {
    /// Draws the operands and computes the reference, on every core.
    pub(crate) fn new(workload: &Workload) -> Result<Self, OutOfMemory> {
        let operands = Operands::try_random(workload.spec(), SEED)?;
        let reference = match Reference::new(workload, &operands, drawing_seed()) {
            Ok(reference) => Arc::new(reference),
            Err(ReferenceError::Memory(error)) => return Err(error),
            Err(ReferenceError::Operands(error)) => unreachable!("the workload's own operands: {error}"),
        };
        Ok(Self { workload: workload.clone(), operands, reference })
    }

    pub(crate) fn workload(&self) -> &Workload {
        &self.workload
    }

    /// Bytes of the tensors.
    pub(crate) fn bytes(&self) -> usize {
        let known = self.reference.exact().into_iter().chain(self.reference.rests());
        size_of::<f32>() * self.operands.iter().chain(known).map(|tensor| tensor.len()).sum::<usize>()
    }

    /// The elements of the operand of a role in the order in which `layout` puts them into memory;
    /// `None` if the workload has none.
    pub(crate) fn operand(&self, role: Role, layout: Layout) -> Result<Option<Cow<'_, [f32]>>, CandidateError> {
        self.operands.find(role).map(|tensor| arranged(tensor, role, layout)).transpose()
    }

    /// The output that is right, in the same way, as a memory holds it in elements of a type;
    /// `None` if only samples of it are known.
    pub(crate) fn output(&self, layout: Layout, dtype: DType) -> Result<Option<Words<'_>>, CandidateError> {
        let of = |tensor| arranged(tensor, Role::Output, layout);
        let Some(values) = self.reference.exact().map(of).transpose()? else { return Ok(None) };
        Ok(Some(match self.reference.rests().filter(|_| dtype.is_integer()).map(of).transpose()? {
            Some(rests) => {
                let exact = values.iter().zip(&*rests).map(|(&value, &rest)| f64::from(value) + f64::from(rest));
                Words::Converted(dtype.exact_words(exact))
            }
            None => words(values, dtype),
        }))
    }

    /// What outputs in a layout are compared with.
    pub(crate) fn expected(&self, layout: Layout) -> Result<Expected, CandidateError> {
        let shape =
            physical_shape(&self.reference.shape(), layout).map_err(|e| misfit(Role::Output, &e.to_string()))?;
        Ok(Expected::new(Arc::clone(&self.reference), layout, shape.iter().product()))
    }
}

fn arranged(tensor: &ArrayD<f32>, role: Role, layout: Layout) -> Result<Cow<'_, [f32]>, CandidateError> {
    if let (Layout::Plain, Some(elements)) = (layout, tensor.as_slice()) {
        return Ok(Cow::Borrowed(elements));
    }
    let mut elements = zeros(tensor.len())?;
    put_in_layout(tensor, layout, &mut elements).map_err(|e| misfit(role, &e.to_string()))?;
    Ok(Cow::Owned(elements))
}

/// Elements of a tensor as a memory holds them.
#[derive(Debug, PartialEq)]
pub(crate) enum Words<'a> {
    /// As f32.
    Values(Cow<'a, [f32]>),
    /// Of another type.
    Converted(Vec<u32>),
}

impl Words<'_> {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Words::Values(values) => bytes_of(values),
            Words::Converted(words) => bytes_of(words),
        }
    }
}

/// Values as a memory holds them in elements of a type.
pub(crate) fn words(values: Cow<'_, [f32]>, dtype: DType) -> Words<'_> {
    if dtype.is_word() { Words::Values(values) } else { Words::Converted(dtype.words(&values)) }
}

/// Decides what of large outputs this process compares.
fn drawing_seed() -> u64 {
    static DRAWN: OnceLock<u64> = OnceLock::new();
    *DRAWN.get_or_init(|| RandomState::new().hash_one(SEED))
}

/// Bytes that measuring a workload takes at least: operands, each also in a layout, the reference,
/// one output, and packed weights. `usize::MAX` if there is no such number.
pub(crate) fn needed_bytes(workload: &Workload) -> usize {
    let len = |shape: &[usize]| shape.iter().fold(1usize, |len, &extent| len.saturating_mul(extent));
    let given = |tensor: &Tensor| len(&tensor.shape).saturating_mul(if tensor.is_constant() { 3 } else { 2 });
    let operands = workload.spec().operands().map(given).fold(0usize, usize::saturating_add);
    let elements = operands.saturating_add(len(workload.output_shape()));
    let reference_bytes = Reference::bytes(workload).saturating_mul(2);
    elements.saturating_mul(4).saturating_add(reference_bytes)
}

/// `len` zeros.
fn zeros(len: usize) -> Result<Vec<f32>, CandidateError> {
    let mut elements = Vec::new();
    let no_memory =
        |_| CandidateError::OutOfMemory { message: format!("{} bytes cannot be had", len.saturating_mul(4)) };
    elements.try_reserve_exact(len).map_err(no_memory)?;
    elements.resize(len, 0.0);
    Ok(elements)
}

/// A plan that is not one of the workload: what lowering made cannot be run.
pub(crate) fn misfit(role: Role, what: &str) -> CandidateError {
    CandidateError::Lower { message: format!("the plan's buffer for {role}: {what}").to_lowercase() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expected::divide;
    use autotune_ir::layout::to_layout;
    use autotune_workloads::reference;

    #[test]
    fn arranged_tensors_are_those_of_the_layout_asked_for() {
        let workload: Workload = "conv2d:c=4,h=3,w=2,o=8,k=1,add".parse().unwrap();
        let problem = Problem::new(&workload).unwrap();
        let input = problem.operands[0].clone();
        let output = reference(&workload, &problem.operands);
        for layout in [Layout::Plain, Layout::ChannelBlocked(2), Layout::ChannelBlocked(4), Layout::Plain] {
            let arranged = problem.operand(Role::Operand(0), layout).unwrap().unwrap();
            assert_eq!(*arranged, to_layout(&input, layout).unwrap());
            let right = to_layout(&output, layout).unwrap();
            assert_eq!(problem.expected(layout).unwrap().len(), right.len());
            assert_eq!(problem.output(layout, DType::F32), Ok(Some(Words::Values(right.into()))));
        }
        assert_eq!(problem.operand(Role::Operand(3), Layout::Plain), Ok(None));
        assert!(problem.operand(Role::Operand(2), Layout::Plain).unwrap().is_some());
        assert!(problem.operand(Role::Operand(0), Layout::ChannelBlocked(3)).is_err());
        assert!(problem.expected(Layout::ChannelBlocked(3)).is_err());
    }

    #[test]
    fn tensors_of_integers_are_words_of_their_types() {
        let workload: Workload = "matmul:m=3,n=4,k=5,data=u8,weights=i8,bias".parse().unwrap();
        let problem = Problem::new(&workload).unwrap();
        let wanted: Vec<u32> = reference(&workload, &problem.operands).iter().map(|&x| x as i32 as u32).collect();
        assert!(wanted.iter().any(|&word| (word as i32) < 0));
        assert_eq!(problem.output(Layout::Plain, DType::I32), Ok(Some(Words::Converted(wanted))));
        let bias = problem.operand(Role::Operand(2), Layout::Plain).unwrap().unwrap();
        let as_integers = bias.iter().map(|&x| x as i32 as u32).collect();
        assert_eq!(words(bias, DType::I32), Words::Converted(as_integers));
    }

    /// A tile of a large product that is wrong, whatever of it is compared.
    #[test]
    fn a_wrong_tile_of_a_large_output_is_found() {
        let error = |expected: &Expected, output: &[f32]| expected.error(output, &divide);
        for text in ["matmul:m=2048,n=2048,k=512,bias", "matmul:m=2048,n=2048,k=512,act=relu"] {
            let workload: Workload = text.parse().unwrap();
            let problem = Problem::new(&workload).unwrap();
            assert_eq!(problem.output(Layout::Plain, DType::F32), Ok(None), "it is large");
            let right = right_product(&problem.operands, !text.contains("relu"));
            let expected = problem.expected(Layout::Plain).unwrap();
            assert!(error(&expected, &right) < 1e-5);
            for (row, column) in [(0, 0), (2042, 2032), (1000, 234)] {
                let mut wrong = right.clone();
                for row in row..row + 6 {
                    wrong[row * 2048 + column..][..16].iter_mut().for_each(|x| *x += 1.0);
                }
                assert!(error(&expected, &wrong) > 1e-3, "{text}: tile at {row}, {column}");
                wrong = right.clone();
                wrong[row * 2048 + column] = f32::NAN;
                assert_eq!(error(&expected, &wrong), f64::INFINITY);
            }
        }
    }

    /// A product by another way than the reference's.
    fn right_product(operands: &Operands, is_linear: bool) -> Vec<f32> {
        let matrix = |tensor: &ArrayD<f32>| tensor.index_axis(ndarray::Axis(0), 0).to_owned();
        let [left, right] =
            [&operands[0], &operands[1]].map(|tensor| matrix(tensor).into_dimensionality::<ndarray::Ix2>().unwrap());
        let mut product = left.dot(&right);
        if let Some(bias) = operands.named("bias") {
            product += bias;
        }
        if !is_linear {
            product.mapv_inplace(|x| x.max(0.0));
        }
        product.into_raw_vec_and_offset().0
    }

    #[test]
    fn what_a_workload_needs_is_foreseen() {
        let needed = |text: &str| needed_bytes(&text.parse().unwrap());
        let product = "matmul:m=1000,n=1000,k=1000";
        assert_eq!(needed(product), 4 * 1_000_000 * (4 + 1 + 1 + 2));
        assert!(needed(&format!("{product},add")) > needed(product));
        let large = needed("conv2d:c=4096,h=512,w=512,o=64,k=3,p=1");
        assert!((8usize << 30..10 << 30).contains(&large), "{large}");
        // Of a large output, little is kept.
        assert!(needed("matmul:m=16384,n=16384,k=16384") < 7 << 30);
    }
}
