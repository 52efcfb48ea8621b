//! CPU sketch of reductions over two-dimensional windows, by a rewrite of the spec: the window is
//! reduced down the columns first, then across them.
//!
//! ```text
//! output[n, c, y, x] = max input[n, c, 2*y + kh - 1, 2*x + kw - 1]
//!   →  columns[n, c, y, w] = max input[n, c, 2*y + kh - 1, w];
//!      output[n, c, y, x] = max columns[n, c, y, 2*x + kw - 1]
//! ```
//!
//! Both equations are passes over rows `n, c, y`. In a plain image, the first pass reads contiguous
//! vectors. A window of `3 x 3` then needs three strided elements instead of nine.

use std::sync::Arc;

use autotune_ir::program::{Access, BufferId, Expr};
use autotune_ir::spec::{Axis, AxisId, Equation, Spec, TensorSource, TensorSpec};
use autotune_ir::target::Target;
use autotune_ir::{Affine, DType, VarId};
use autotune_workloads::{Work, Workload};

use super::default::point_of_rows;
use super::sketch::MapReducePlan;
use super::{Chain, MapReduce, chain_for, knobs, layouts};
use crate::config::{Config, KnobValues};
use crate::direct::block_size;
use crate::error::LowerError;
use crate::knob_space::{Knob, KnobSpace};
use crate::point::KnobIndices;
use crate::sketch::{Plan, Sketch};

/// Name of the sketch in configs.
const SKETCH: &str = "separable";

/// Name of the axis over the columns of the intermediate tensor.
const COLUMN: &str = "w";

/// Default schedule: channels and rows of a tile, and registers of a vector.
const DEFAULT: ([usize; 2], usize) = ([4, 2], 2);

/// Sketch of windows that are reduced in two one-dimensional passes.
pub(crate) struct SeparableSketch;

impl Sketch for SeparableSketch {
    fn name(&self) -> &'static str {
        SKETCH
    }

    fn knobs(&self, workload: &Workload, target: &Target) -> Option<Vec<Knob>> {
        let (chain, cpu) = (chain_for(&rewritten(workload)?)?, target.cpu()?);
        Some(knobs::knobs(&chain, cpu))
    }

    fn plan(&self, workload: &Workload, target: &Target, knobs: &dyn KnobValues) -> Result<Box<dyn Plan>, LowerError> {
        let unfit = || LowerError::unfit(SKETCH, workload);
        let (separated, cpu) = (rewritten(workload).ok_or_else(unfit)?, target.cpu().ok_or_else(unfit)?);
        let plan = MapReduce::new(&separated, cpu, knobs)?.ok_or_else(unfit)?;
        Ok(Box::new(MapReducePlan { spec: Arc::clone(workload.spec()), plan }))
    }

    fn default(&self, workload: &Workload, target: &Target, space: &Arc<KnobSpace>) -> Option<(f64, KnobIndices)> {
        let (separated, cpu) = (rewritten(workload).filter(|_| is_plain(workload, target))?, target.cpu()?);
        Some((0.0, point_of_rows(&separated, cpu, space, DEFAULT)?))
    }

    fn work(&self, workload: &Workload, _config: &Config) -> Work {
        work(workload)
    }

    fn works(&self, workload: &Workload, _knobs: &KnobSpace) -> Vec<Work> {
        works(workload)
    }

    /// True for windows of at least 3 x 3 elements in plain images with a stride of at most two,
    /// which share most elements with their neighbours. Windows of two rows save nothing. With long
    /// strides, combining whole rows of columns costs as much as it saves.
    fn outdoes_later_tiers(&self, workload: &Workload, target: &Target) -> bool {
        let windows = workload.spec().equations.first().and_then(Windows::of);
        is_plain(workload, target) && windows.is_some_and(|windows| windows.taps >= 3 && windows.stride <= 2)
    }
}

/// True if the image's channels are not a multiple of a block. Blocked images need one pass only,
/// which reads what two passes would store and load again.
fn is_plain(workload: &Workload, target: &Target) -> bool {
    let block = target.cpu().map(block_size);
    let chain = Chain::of(workload.spec());
    block.zip(chain).is_some_and(|(block, chain)| layouts::blockable(&chain, block).is_none())
}

/// Returns [`separated`] of a workload's spec, computed once.
fn rewritten(workload: &Workload) -> Option<Arc<Spec>> {
    let made = workload.once(SKETCH, || separated(workload.spec()).map(Arc::new));
    Option::clone(&made)
}

/// Windows of a reduction over two axes: the number of rows, the last two of which the windows move
/// along, and the windows' indices.
struct Windows<'a> {
    rows: usize,
    input: &'a Access,
    across: &'a Affine,
    /// Taps along the shorter side of the window.
    taps: usize,
    /// Distance between windows in elements, along the axis where it is larger.
    stride: usize,
}

impl<'a> Windows<'a> {
    /// Returns the windows of a pass that reduces nothing else. `None` unless windows overlap in
    /// both directions, move along the last two rows, and index the last two dimensions of the
    /// input; the two reduced axes must follow the rows.
    fn of(pass: &'a Equation) -> Option<Self> {
        let rows = pass.axes.len().checked_sub(2).filter(|&rows| rows >= 2)?;
        let (own, tap_axes) = pass.axes.split_at(rows);
        let Expr::Load(input) = &pass.value else { return None };
        let [others @ .., down, across] = &input.index[..] else { return None };
        let uses =
            |index: &Affine, axes: &[AxisId]| index.terms.iter().all(|(axis, _)| axes.contains(&(axis.0 as usize)));
        let outer: Vec<AxisId> = (0..rows - 2).collect();
        // Each dimension must depend on one row and one tap axis only: then the reduction splits
        // into two passes.
        let is_separate = uses(down, &[rows - 2, rows]) && uses(across, &[rows - 1, rows + 1]);
        let is_outer = others.iter().all(|index| uses(index, &outer));
        let reduces = own.iter().all(|axis| !axis.reduce) && tap_axes.iter().all(|axis| axis.reduce);
        if !(is_separate && is_outer && reduces) {
            return None;
        }

        let stride = |index: &Affine, row: AxisId| usize::try_from(index.coefficient(VarId(row as u32))).ok();
        let strides = [stride(down, rows - 2)?, stride(across, rows - 1)?];
        // Without overlap, two passes would combine as many elements and store more.
        let overlap = tap_axes.iter().zip(strides).all(|(taps, stride)| taps.extent > stride.max(1));
        let has_neighbours = own[rows - 2..].iter().all(|axis| axis.extent > 1);
        let taps = tap_axes.iter().map(|axis| axis.extent).min()?;
        (overlap && has_neighbours).then_some(Self { rows, input, across, taps, stride: strides.into_iter().max()? })
    }
}

/// Returns the work of a workload with windows reduced down the columns first, if that is less than
/// the direct algorithm's.
pub(super) fn work(workload: &Workload) -> Work {
    let direct = workload.work();
    let flops = rewritten(workload).map_or(direct.flops, |separated| separated.flops().min(direct.flops));
    Work { flops, ..direct }
}

/// Returns [`work`] if it is less than the work of reducing every window separately.
pub(super) fn works(workload: &Workload) -> Vec<Work> {
    let work = work(workload);
    (work.flops < workload.flops()).then_some(work).into_iter().collect()
}

/// Rewrites the spec into a reduction down the columns of an image and one across them; `None` if
/// its only pass has no [`Windows`].
fn separated(spec: &Spec) -> Option<Spec> {
    let [pass, tail] = &spec.equations[..] else { return None };
    let Windows { rows, input, across, .. } = Windows::of(pass)?;
    let [x, tap, tap_across] = [rows - 1, rows, rows + 1];
    let given = Some(spec.tensor(input)).filter(|tensor| tensor.is_given())?;
    let own = Axis { name: COLUMN, extent: *given.shape.last()?, reduce: false };

    // The column axis takes the position of the row across columns, and one tap axis that of both,
    // so that all other axes keep their positions.
    let columns = BufferId(spec.tensors.len() as u32);
    let column = Affine::var(VarId(x as u32));
    let at = |last: &Affine| Access {
        buffer: columns,
        index: (0..x).map(|axis| Affine::var(VarId(axis as u32))).chain([last.clone()]).collect(),
    };
    let mut read = input.clone();
    *read.index.last_mut()? = column.clone();
    let first = Equation {
        axes: pass.axes[..x].iter().chain([&own, &pass.axes[tap]]).cloned().collect(),
        output: at(&column),
        value: Expr::Load(read),
        reduction: pass.reduction,
    };
    let across = across.substitute(VarId(tap_across as u32), &Affine::var(VarId(tap as u32)));
    let second = Equation {
        axes: pass.axes[..rows].iter().chain([&pass.axes[tap_across]]).cloned().collect(),
        output: pass.output.clone(),
        value: Expr::Load(at(&across)),
        reduction: pass.reduction,
    };

    let shape = pass.axes[..x].iter().chain([&own]).map(|axis| axis.extent).collect();
    let tensor = TensorSpec { name: "columns".into(), shape, dtype: DType::F32, source: TensorSource::Computed };
    let tensors = spec.tensors.iter().cloned().chain([tensor]).collect();
    Some(Spec { name: spec.name.clone(), tensors, equations: vec![first, second, tail.clone()], main: 0 })
}
