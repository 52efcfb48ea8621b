//! Workload with operands and its expected output.

use std::borrow::Cow;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, OnceLock};

use autotune_ir::DType;
use autotune_ir::layout::{physical_shape, put_in_layout};
use autotune_ir::program::{Layout, Role};
use autotune_ir::spec::TensorSpec;
use autotune_measurement::CandidateError;
use autotune_runtime::bytes_of;
use autotune_workloads::{Operands, OutOfMemory, Reference, ReferenceError, Workload};
use ndarray::ArrayD;

use crate::expected::Expected;

/// Seed of the operands: every measurement of a workload uses the same operands.
const SEED: u64 = 0x0a07_07e5;

/// Random operands of a workload and the expected output for them. The operands are chosen so that
/// no wrong kernel passes. Large outputs are compared by samples, which each process draws for
/// itself.
pub(crate) struct TestProblem {
    workload: Workload,
    operands: Operands,
    reference: Arc<Reference>,
}

impl TestProblem {
    /// Draws the operands and computes the reference, on all cores.
    pub(crate) fn new(workload: &Workload) -> Result<Self, OutOfMemory> {
        let operands = Operands::try_random(workload.spec(), SEED)?;
        let reference = match Reference::new(workload, &operands, drawing_seed()) {
            Ok(reference) => Arc::new(reference),
            Err(ReferenceError::Memory(error)) => return Err(error),
            Err(ReferenceError::Operands(error)) => unreachable!("the workload's own operands are invalid: {error}"),
        };
        Ok(Self { workload: workload.clone(), operands, reference })
    }

    pub(crate) fn workload(&self) -> &Workload {
        &self.workload
    }

    /// Returns the bytes of operands and reference.
    pub(crate) fn bytes(&self) -> usize {
        let known = self.reference.exact().into_iter().chain(self.reference.integer_residuals());
        size_of::<f32>() * self.operands.iter().chain(known).map(|tensor| tensor.len()).sum::<usize>()
    }

    /// Returns the elements of an operand in the order in which `layout` stores them; `None` if the
    /// workload has no operand of that role.
    pub(crate) fn operand(&self, role: Role, layout: Layout) -> Result<Option<Cow<'_, [f32]>>, CandidateError> {
        self.operands.find(role).map(|tensor| arranged(tensor, role, layout)).transpose()
    }

    /// Returns the expected output, in memory order of `layout` and converted to `dtype`; `None` if
    /// only samples of it are known.
    pub(crate) fn output(&self, layout: Layout, dtype: DType) -> Result<Option<RawElements<'_>>, CandidateError> {
        let of = |tensor| arranged(tensor, Role::Output, layout);
        let Some(values) = self.reference.exact().map(of).transpose()? else { return Ok(None) };
        Ok(Some(match self.reference.integer_residuals().filter(|_| dtype.is_integer()).map(of).transpose()? {
            Some(rests) => {
                let exact = values.iter().zip(&*rests).map(|(&value, &rest)| f64::from(value) + f64::from(rest));
                RawElements::Converted(dtype.exact_words(exact))
            }
            None => words(values, dtype),
        }))
    }

    /// Returns the expected output for comparison with outputs in `layout`.
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

/// Elements of a tensor in their representation in memory.
#[derive(Debug, PartialEq)]
pub(crate) enum RawElements<'a> {
    /// Elements of type f32.
    Values(Cow<'a, [f32]>),
    /// Elements of another type, packed into 32-bit words.
    Converted(Vec<u32>),
}

impl RawElements<'_> {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            RawElements::Values(values) => bytes_of(values),
            RawElements::Converted(words) => bytes_of(words),
        }
    }
}

/// Converts values to their representation in memory as elements of `dtype`.
pub(crate) fn words(values: Cow<'_, [f32]>, dtype: DType) -> RawElements<'_> {
    if dtype.is_word() { RawElements::Values(values) } else { RawElements::Converted(dtype.words(&values)) }
}

/// Returns the seed by which this process samples large outputs, random per process.
fn drawing_seed() -> u64 {
    static DRAWN: OnceLock<u64> = OnceLock::new();
    *DRAWN.get_or_init(|| RandomState::new().hash_one(SEED))
}

/// Returns a lower bound of the bytes that measuring a workload takes: operands, each also in
/// another layout, the reference, one output, and packed weights. `usize::MAX` on overflow.
pub(crate) fn needed_bytes(workload: &Workload) -> usize {
    let len = |shape: &[usize]| shape.iter().fold(1usize, |len, &extent| len.saturating_mul(extent));
    let given = |tensor: &TensorSpec| len(&tensor.shape).saturating_mul(if tensor.is_constant() { 3 } else { 2 });
    let operands = workload.spec().operands().map(given).fold(0usize, usize::saturating_add);
    let elements = operands.saturating_add(len(workload.output_shape()));
    let reference_bytes = Reference::bytes(workload).saturating_mul(2);
    elements.saturating_mul(4).saturating_add(reference_bytes)
}

/// Returns `len` zeros, or an error if memory is short.
fn zeros(len: usize) -> Result<Vec<f32>, CandidateError> {
    let mut elements = Vec::new();
    let no_memory =
        |_| CandidateError::OutOfMemory { message: format!("cannot allocate {} bytes", len.saturating_mul(4)) };
    elements.try_reserve_exact(len).map_err(no_memory)?;
    elements.resize(len, 0.0);
    Ok(elements)
}

/// Returns the error for a plan that does not fit the workload: lowering made a kernel that cannot
/// run.
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
        let problem = TestProblem::new(&workload).unwrap();
        let input = problem.operands[0].clone();
        let output = reference(&workload, &problem.operands);
        for layout in [Layout::Plain, Layout::ChannelBlocked(2), Layout::ChannelBlocked(4), Layout::Plain] {
            let arranged = problem.operand(Role::Operand(0), layout).unwrap().unwrap();
            assert_eq!(*arranged, to_layout(&input, layout).unwrap());
            let right = to_layout(&output, layout).unwrap();
            assert_eq!(problem.expected(layout).unwrap().len(), right.len());
            assert_eq!(problem.output(layout, DType::F32), Ok(Some(RawElements::Values(right.into()))));
        }
        assert_eq!(problem.operand(Role::Operand(3), Layout::Plain), Ok(None));
        assert!(problem.operand(Role::Operand(2), Layout::Plain).unwrap().is_some());
        assert!(problem.operand(Role::Operand(0), Layout::ChannelBlocked(3)).is_err());
        assert!(problem.expected(Layout::ChannelBlocked(3)).is_err());
    }

    #[test]
    fn tensors_of_integers_are_words_of_their_types() {
        let workload: Workload = "matmul:m=3,n=4,k=5,data=u8,weights=i8,bias".parse().unwrap();
        let problem = TestProblem::new(&workload).unwrap();
        let wanted: Vec<u32> = reference(&workload, &problem.operands).iter().map(|&x| x as i32 as u32).collect();
        assert!(wanted.iter().any(|&word| (word as i32) < 0));
        assert_eq!(problem.output(Layout::Plain, DType::I32), Ok(Some(RawElements::Converted(wanted))));
        let bias = problem.operand(Role::Operand(2), Layout::Plain).unwrap().unwrap();
        let as_integers = bias.iter().map(|&x| x as i32 as u32).collect();
        assert_eq!(words(bias, DType::I32), RawElements::Converted(as_integers));
    }

    /// Checks that a wrong tile of a large product is found, whatever samples are drawn.
    #[test]
    fn a_wrong_tile_of_a_large_output_is_found() {
        let error = |expected: &Expected, output: &[f32]| expected.error(output, &divide);
        for text in ["matmul:m=2048,n=2048,k=512,bias", "matmul:m=2048,n=2048,k=512,act=relu"] {
            let workload: Workload = text.parse().unwrap();
            let problem = TestProblem::new(&workload).unwrap();
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

    /// Computes the product by an implementation independent of the reference.
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
    fn memory_needs_of_a_workload_are_estimated() {
        let needed = |text: &str| needed_bytes(&text.parse().unwrap());
        let product = "matmul:m=1000,n=1000,k=1000";
        assert_eq!(needed(product), 4 * 1_000_000 * (4 + 1 + 1 + 2));
        assert!(needed(&format!("{product},add")) > needed(product));
        let large = needed("conv2d:c=4096,h=512,w=512,o=64,k=3,p=1");
        assert!((8usize << 30..10 << 30).contains(&large), "{large}");
        // A large output is compared by samples, so that its reference takes little memory.
        assert!(needed("matmul:m=16384,n=16384,k=16384") < 7 << 30);
    }
}
