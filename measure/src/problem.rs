//! A workload with operands and the right answer.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, OnceLock};

use autotune_ir::layout::{physical_shape, put_in_layout};
use autotune_ir::program::{Layout, Role};
use autotune_schedules::{Operands, OutOfMemory, Reference, ReferenceError, Workload};

use crate::buffers::NoMemory;
use crate::fixed::Fixed;
use crate::measurement::CandidateError;
use crate::reference_check::Expected;
use crate::team::Team;

/// The operands' seed: every measurement of a workload uses the same.
const SEED: u64 = 0x0a07_07e5;

/// Random operands of a workload, none of which lets a wrong kernel pass, and the output for them. What of the output of a large
/// workload is compared, each process draws for itself.
pub(crate) struct Problem {
    workload: Workload,
    operands: Operands,
    reference: Arc<Reference>,
    /// Tensors as they lie in memory, made when first asked for: most candidates of a workload want the same.
    arranged: HashMap<(Role, Layout), Arc<Vec<f32>>>,
    /// The same in the place in which kernels on the CPU find them.
    fixed: HashMap<(Role, Layout), Arc<Fixed>>,
    /// Outputs in each layout.
    expected: HashMap<Layout, Expected>,
}

impl Problem {
    /// Draws the operands and computes the reference, on every core.
    pub(crate) fn new(workload: &Workload) -> Result<Self, OutOfMemory> {
        let operands = Operands::try_random(&workload.spec(), SEED)?;
        let reference = match Reference::new(workload, &operands, drawing_seed()) {
            Ok(reference) => Arc::new(reference),
            Err(ReferenceError::Memory(error)) => return Err(error),
            Err(ReferenceError::Operands(error)) => unreachable!("the workload's own operands: {error}"),
        };
        let (arranged, fixed, expected) = (HashMap::new(), HashMap::new(), HashMap::new());
        Ok(Self { workload: *workload, operands, reference, arranged, fixed, expected })
    }

    pub(crate) fn workload(&self) -> &Workload {
        &self.workload
    }

    /// Bytes of the tensors, in every layout that was asked for.
    pub(crate) fn bytes(&self) -> usize {
        let plain: usize = self.operands.iter().map(|tensor| tensor.len()).sum();
        let arranged: usize = self.arranged.values().map(|elements| elements.len()).sum();
        let is_exact = self.reference.exact().is_some();
        let expected: usize = self.expected.values().filter(|_| is_exact).map(Expected::len).sum();
        let fixed: usize = self.fixed.values().map(|fixed| fixed.bytes()).sum();
        4 * (plain + arranged + expected) + fixed
    }

    /// Drops what can be made again from operands and reference.
    pub(crate) fn forget_layouts(&mut self) {
        self.arranged.clear();
        self.fixed.clear();
        self.expected.clear();
    }

    /// The elements of the operand of a role in the order in which `layout` puts them into memory; `None` if the workload has none.
    pub(crate) fn arranged(&mut self, role: Role, layout: Layout) -> Result<Option<Arc<Vec<f32>>>, CandidateError> {
        if let Some(known) = self.arranged.get(&(role, layout)) {
            return Ok(Some(Arc::clone(known)));
        }
        let Some(tensor) = self.operands.find(role) else { return Ok(None) };
        let mut elements = zeros(tensor.len())?;
        put_in_layout(tensor, layout, &mut elements).map_err(|e| misfit(role, &e.to_string()))?;
        let elements = Arc::new(elements);
        self.arranged.insert((role, layout), Arc::clone(&elements));
        Ok(Some(elements))
    }

    /// The same in memory that kernels get.
    pub(crate) fn fixed(
        &mut self,
        role: Role,
        layout: Layout,
        team: &mut Team,
    ) -> Result<Option<Arc<Fixed>>, CandidateError> {
        if let Some(known) = self.fixed.get(&(role, layout)) {
            return Ok(Some(Arc::clone(known)));
        }
        let Some(tensor) = self.operands.find(role) else { return Ok(None) };
        let mut put = Ok(());
        let fixed = Fixed::made(tensor.len(), |to| put = put_in_layout(tensor, layout, to), team);
        let fixed = Arc::new(fixed.map_err(NoMemory::candidate_error)?);
        put.map_err(|e| misfit(role, &e.to_string()))?;
        self.fixed.insert((role, layout), Arc::clone(&fixed));
        Ok(Some(fixed))
    }

    /// What the output must be in a layout.
    pub(crate) fn expected(&mut self, layout: Layout) -> Result<Expected, CandidateError> {
        if let Some(known) = self.expected.get(&layout) {
            return Ok(known.clone());
        }
        let shape = self.reference.shape();
        let misfit = |message: String| misfit(Role::Output, &message);
        let physical = physical_shape(&shape, layout).map_err(|e| misfit(e.to_string()))?;
        let len: usize = physical.iter().product();
        let reference = &self.reference;

        let expected = match reference.exact() {
            None => Expected::Sampled { reference: Arc::clone(reference), layout, elements: len },
            Some(tensor) => {
                let mut elements = zeros(len)?;
                put_in_layout(tensor, layout, &mut elements).map_err(|e| misfit(e.to_string()))?;
                Expected::Exact { elements: Arc::new(elements), largest: reference.largest() }
            }
        };
        self.expected.insert(layout, expected.clone());
        Ok(expected)
    }
}

/// Decides what of large outputs this process compares.
fn drawing_seed() -> u64 {
    static DRAWN: OnceLock<u64> = OnceLock::new();
    *DRAWN.get_or_init(|| RandomState::new().hash_one(SEED))
}

/// Bytes that measuring a workload takes at least: operands, each also in a layout, the reference, one output, and packed weights.
/// `usize::MAX` if there is no such number.
pub(crate) fn needed_bytes(workload: &Workload) -> usize {
    let len = |shape: Vec<usize>| shape.iter().fold(1usize, |len, &extent| len.saturating_mul(extent));
    let (input, weight, output) =
        (len(workload.input_shape()), len(workload.weight_shape()), len(workload.output_shape()));
    let residual = if workload.epilogue.residual { output } else { 0 };
    let operands = [input, weight, residual].iter().fold(0usize, |sum, &len| sum.saturating_add(len));
    let elements = operands.saturating_mul(2).saturating_add(weight).saturating_add(output);
    let reference_bytes = Reference::bytes(workload).saturating_mul(2);
    elements.saturating_mul(4).saturating_add(reference_bytes)
}

/// So many zeros.
fn zeros(len: usize) -> Result<Vec<f32>, CandidateError> {
    let mut elements = Vec::new();
    let no_memory = NoMemory { bytes: len.saturating_mul(4) };
    elements.try_reserve_exact(len).map_err(|_| no_memory.candidate_error())?;
    elements.resize(len, 0.0);
    Ok(elements)
}

/// A plan that is not one of the workload: what lowering made cannot be run.
pub(crate) fn misfit(role: Role, what: &str) -> CandidateError {
    CandidateError::Lower { message: format!("the plan's {role:?} buffer: {what}").to_lowercase() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use autotune_ir::layout::to_layout;
    use autotune_schedules::reference;

    #[test]
    fn arranged_tensors_are_those_of_the_layout_asked_for() {
        let workload: Workload = "conv2d:c=4,h=3,w=2,o=8,k=1,add".parse().unwrap();
        let mut problem = Problem::new(&workload).unwrap();
        let input = problem.operands[0].clone();
        let output = reference(&workload, &problem.operands);
        let mut team = Team::new(2);
        for layout in [Layout::Plain, Layout::ChannelBlocked(2), Layout::ChannelBlocked(4), Layout::Plain] {
            let arranged = problem.arranged(Role::Input, layout).unwrap().unwrap();
            let fixed = problem.fixed(Role::Input, layout, &mut team).unwrap().unwrap();
            assert_eq!(*arranged, to_layout(&input, layout).unwrap());
            assert_eq!(fixed.elements(), *arranged);
            let Expected::Exact { elements, .. } = problem.expected(layout).unwrap() else { panic!("it is small") };
            assert_eq!(*elements, to_layout(&output, layout).unwrap());
        }
        assert_eq!(problem.arranged(Role::Bias, Layout::Plain), Ok(None));
        assert!(problem.arranged(Role::Residual, Layout::Plain).unwrap().is_some());
        assert!(problem.arranged(Role::Input, Layout::ChannelBlocked(3)).is_err());
        assert!(problem.expected(Layout::ChannelBlocked(3)).is_err());
        let all = problem.bytes();
        problem.forget_layouts();
        assert!(problem.bytes() < all);
    }

    /// A tile of a large product that is wrong, whatever of it is compared.
    #[test]
    fn a_wrong_tile_of_a_large_output_is_found() {
        for text in ["matmul:m=2048,n=2048,k=512,bias", "matmul:m=2048,n=2048,k=512,act=relu"] {
            let workload: Workload = text.parse().unwrap();
            let mut problem = Problem::new(&workload).unwrap();
            let Expected::Sampled { .. } = problem.expected(Layout::Plain).unwrap() else { panic!("it is large") };
            let right = right_product(&problem.operands, !text.contains("relu"));
            let expected = problem.expected(Layout::Plain).unwrap();
            assert!(expected.error_here(&right) < 1e-5);
            for (row, column) in [(0, 0), (2042, 2032), (1000, 234)] {
                let mut wrong = right.clone();
                for row in row..row + 6 {
                    wrong[row * 2048 + column..][..16].iter_mut().for_each(|x| *x += 1.0);
                }
                assert!(expected.error_here(&wrong) > 1e-3, "{text}: tile at {row}, {column}");
                wrong = right.clone();
                wrong[row * 2048 + column] = f32::NAN;
                assert_eq!(expected.error_here(&wrong), f64::INFINITY);
            }
        }
    }

    /// A product by another way than the reference's.
    fn right_product(operands: &Operands, is_linear: bool) -> Vec<f32> {
        let matrix = |tensor: &ndarray::ArrayD<f32>| tensor.index_axis(ndarray::Axis(0), 0).to_owned();
        let [left, right] =
            [&operands[0], &operands[1]].map(|tensor| matrix(tensor).into_dimensionality::<ndarray::Ix2>().unwrap());
        let mut product = left.dot(&right);
        if let Some(bias) = operands.find(Role::Bias) {
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
