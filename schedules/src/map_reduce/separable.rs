//! Reductions over windows of two axes, along one after the other: a sketch for CPUs, by a rewrite
//! of the spec.
//!
//! ```text
//! output[n, c, y, x] = max input[n, c, 2*y + kh - 1, 2*x + kw - 1]
//!   →  columns[n, c, y, w] = max input[n, c, 2*y + kh - 1, w];  output[n, c, y, x] = max columns[n, c, y, 2*x + kw - 1]
//! ```
//!
//! Both are passes over rows `n, c, y`. Of a plain image, the first reads whole vectors side by
//! side, and each window of `3 x 3` takes three elements with a stride where it took nine.

use std::sync::Arc;

use autotune_ir::program::{Access, BufferId, Expr};
use autotune_ir::spec::{Axis, AxisId, Equation, Source, Spec, Tensor};
use autotune_ir::target::Target;
use autotune_ir::{Affine, DType, VarId};
use autotune_workloads::{Work, Workload};

use super::default::point_of_rows;
use super::sketch::Planned;
use super::{Chain, MapReduce, chain_for, knobs, laid};
use crate::config::{Config, KnobValues};
use crate::direct::block_size;
use crate::error::LowerError;
use crate::knob_space::{Knob, KnobSpace};
use crate::point::Point;
use crate::sketch::{Plan, Sketch};

/// Name of the sketch in configs.
const SKETCH: &str = "separable";

/// The name of the axis along which columns lie.
const COLUMN: &str = "w";

/// Channels and rows of a tile that nobody has measured, and registers of a vector.
const DEFAULT: ([usize; 2], usize) = ([4, 2], 2);

/// The sketch.
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
        Ok(Box::new(Planned { spec: Arc::clone(workload.spec()), plan }))
    }

    fn default(&self, workload: &Workload, target: &Target, space: &Arc<KnobSpace>) -> Option<(f64, Point)> {
        let (separated, cpu) = (rewritten(workload).filter(|_| is_plain(workload, target))?, target.cpu()?);
        Some((0.0, point_of_rows(&separated, cpu, space, DEFAULT)?))
    }

    fn work(&self, workload: &Workload, _config: &Config) -> Work {
        work(workload)
    }

    fn works(&self, workload: &Workload, _knobs: &KnobSpace) -> Vec<Work> {
        works(workload)
    }

    /// Of plain images: windows of three by three elements and more that share most of them with
    /// their neighbours. In windows of two rows there is nothing to be saved, and long strides cost
    /// as much where the rows of a window were combined.
    fn outdoes_later_tiers(&self, workload: &Workload, target: &Target) -> bool {
        let windows = workload.spec().equations.first().and_then(Windows::of);
        is_plain(workload, target) && windows.is_some_and(|windows| windows.taps >= 3 && windows.stride <= 2)
    }
}

/// True if no blocks of channels divide an image: where they do, one pass over blocks reads what
/// two would store between them.
fn is_plain(workload: &Workload, target: &Target) -> bool {
    let block = target.cpu().map(block_size);
    let chain = Chain::of(workload.spec());
    block.zip(chain).is_some_and(|(block, chain)| laid::blockable(&chain, block).is_none())
}

/// [`separated`] for a workload, made once.
fn rewritten(workload: &Workload) -> Option<Arc<Spec>> {
    let made = workload.once(SKETCH, || separated(workload.spec()).map(Arc::new));
    Option::clone(&made)
}

/// Of a reduction over windows of two axes: how many rows it has, the last two of which windows
/// move along, and where the windows are.
struct Windows<'a> {
    rows: usize,
    input: &'a Access,
    across: &'a Affine,
    /// Elements along the shorter side.
    taps: usize,
    /// Elements from one window to the next, along the side where these are more.
    stride: usize,
}

impl<'a> Windows<'a> {
    /// `None` unless the pass combines windows that overlap in either direction, along the last two
    /// dimensions of all that it reads and along its last two rows, behind which its other two axes
    /// are the taps.
    fn of(pass: &'a Equation) -> Option<Self> {
        let rows = pass.axes.len().checked_sub(2).filter(|&rows| rows >= 2)?;
        let (own, tap_axes) = pass.axes.split_at(rows);
        let Expr::Load(input) = &pass.value else { return None };
        let [others @ .., down, across] = &input.index[..] else { return None };
        let uses =
            |index: &Affine, axes: &[AxisId]| index.terms.iter().all(|(axis, _)| axes.contains(&(axis.0 as usize)));
        let outer: Vec<AxisId> = (0..rows - 2).collect();
        let is_separate = uses(down, &[rows - 2, rows]) && uses(across, &[rows - 1, rows + 1]);
        let is_apart = others.iter().all(|index| uses(index, &outer));
        let reduces = own.iter().all(|axis| !axis.reduce) && tap_axes.iter().all(|axis| axis.reduce);
        if !(is_separate && is_apart && reduces) {
            return None;
        }

        let stride = |index: &Affine, row: AxisId| usize::try_from(index.coefficient(VarId(row as u32))).ok();
        let strides = [stride(down, rows - 2)?, stride(across, rows - 1)?];
        let overlap = tap_axes.iter().zip(strides).all(|(taps, stride)| taps.extent > stride.max(1));
        let has_neighbours = own[rows - 2..].iter().all(|axis| axis.extent > 1);
        let taps = tap_axes.iter().map(|axis| axis.extent).min()?;
        (overlap && has_neighbours).then_some(Self { rows, input, across, taps, stride: strides.into_iter().max()? })
    }
}

/// What is to be done for windows that share what they combine: no more than to combine them down
/// the columns, and then across them.
pub(super) fn work(workload: &Workload) -> Work {
    let direct = workload.work();
    let flops = rewritten(workload).map_or(direct.flops, |separated| separated.flops().min(direct.flops));
    Work { flops, ..direct }
}

/// The same if that is less than each window by itself takes.
pub(super) fn works(workload: &Workload) -> Vec<Work> {
    let work = work(workload);
    (work.flops < workload.flops()).then_some(work).into_iter().collect()
}

/// The same result down the columns of an image, and then across them; `None` if the only pass
/// combines no [`Windows`].
fn separated(spec: &Spec) -> Option<Spec> {
    let [pass, tail] = &spec.equations[..] else { return None };
    let Windows { rows, input, across, .. } = Windows::of(pass)?;
    let [x, tap, tap_across] = [rows - 1, rows, rows + 1];
    let given = Some(spec.tensor(input)).filter(|tensor| tensor.is_given())?;
    let own = Axis { name: COLUMN, extent: *given.shape.last()?, reduce: false };

    // The axis over columns stands where the row across them stood, and one of the taps where both
    // stood: all others keep their numbers.
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
    let tensor = Tensor { name: "columns".into(), shape, dtype: DType::F32, source: Source::Computed };
    let tensors = spec.tensors.iter().cloned().chain([tensor]).collect();
    Some(Spec { name: spec.name.clone(), tensors, equations: vec![first, second, tail.clone()], main: 0 })
}
