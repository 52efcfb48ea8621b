//! Pooling.

use autotune_ir::program::UnaryOp;
use autotune_workloads::{PadMode, Pool2d, PoolKind, ReduceOp, Workload};

use super::binary::Binary;
use super::pad::Pad;
use super::prelude::*;
use super::unpool::places_of_maxima;
use super::window::{
    Sliding, check_spatial, exported, kernel_shape, padded as with_pads, reach, scaled, spatial, windows,
};
use crate::memory::is_of_bytes;
use crate::onnx::error;

pub(super) static IMPORTS: &[OnnxOperator] = &[
    OnnxOperator::many("MaxPool", max_pool).keeps_bytes(),
    OnnxOperator::one("AveragePool", average_pool),
    OnnxOperator::one("GlobalAveragePool", |call| global(call, ReduceOp::Mean)),
    OnnxOperator::one("GlobalMaxPool", |call| global(call, ReduceOp::Max)),
    OnnxOperator::one("LpPool", lp_pool),
    OnnxOperator::one("GlobalLpPool", global_lp),
];

/// Pooling of `[n, c, ..]`: one element for each window.
#[derive(Clone, Debug, PartialEq)]
pub struct Pool {
    /// Window of each spatial axis.
    pub window: Vec<Sliding>,
    /// True if windows count that start inside the image but end after the padding.
    pub ceil: bool,
    /// Reduction of a window.
    pub kind: PoolKind,
}

impl Operator for Pool {
    fn output(&self, operands: &[Facts]) -> Result<(Vec<usize>, DType), OpError> {
        check_count(operands, 1..=1)?;
        let (shape, dtype) = operands[0];
        if self.kind != PoolKind::Max || !is_of_bytes(dtype) {
            check_dtype(operands, 0, DType::F32)?;
        }
        Ok((output(&self.window, self.ceil, shape)?, dtype))
    }

    /// A mean that includes padding divides by the window's elements within image and padding;
    /// elements past the padding (`ceil`) do not count. The maximum of an empty window is -inf, its
    /// mean NaN.
    fn compute(&self, operands: &[&Tensor], shape: &[usize]) -> Result<Tensor, OpError> {
        let (window, kind) = (&self.window, self.kind);
        let (x, x_shape) = (operands[0].to_numbers(), operands[0].shape());
        let outside = if kind == PoolKind::Max { f32::NEG_INFINITY } else { 0.0 };

        // The image is padded until all windows are inside.
        let around = |(axis, window): (usize, &Sliding)| {
            let reach = (window.kernel - 1) * window.dilation + 1;
            let end = (shape[axis + 2] - 1) * window.stride + reach;
            [window.pad[0], window.pad[1].max(end.saturating_sub(x_shape[axis + 2] + window.pad[0]))]
        };
        let around: Vec<[usize; 2]> = [[0, 0]; 2].into_iter().chain(window.iter().enumerate().map(around)).collect();
        let room: Vec<usize> = x_shape.iter().zip(&around).map(|(extent, pad)| extent + pad[0] + pad[1]).collect();
        elements(&room)?;
        let places: Vec<_> = x_shape.iter().zip(&around).map(|(&extent, &pad)| padded(extent, pad)).collect();
        let image = picked(&x, x_shape, &places, outside);

        let steps = strides(&room);
        let kernels: Vec<usize> = window.iter().map(|window| window.kernel).collect();
        let positions = offsets(&shape[2..], &scaled(window, &steps, |window| window.stride));
        let taps = offsets(&kernels, &scaled(window, &steps, |window| window.dilation));
        let counts = counts(window, kind, &x_shape[2..], &shape[2..]);

        let planes = offsets(&shape[..2], &steps[..2]);
        let windows = planes.iter().flat_map(|plane| positions.iter().zip(&counts).map(move |at| (plane, at)));
        let made = windows.map(|(plane, (position, count))| {
            let all = taps.iter().map(|tap| f64::from(image[plane + position + tap]));
            match kind {
                PoolKind::Max => all.fold(f64::NEG_INFINITY, larger) as f32,
                PoolKind::Average | PoolKind::InnerAverage => (all.sum::<f64>() / count) as f32,
            }
        });
        Tensor::of_numbers(shape, operands[0].dtype(), &made.collect::<Vec<_>>())
    }

    fn workload(&self, node: &NodeView) -> Option<Anchor> {
        let workload = workload(&self.window, self.ceil, self.kind, node.shape(0))?;
        Some(Anchor::new(workload.with_dtype(node.dtype(0)).ok()?, node))
    }

    fn export(&self, to: &mut NodeWriter) -> Result<(), ExportError> {
        let all = [exported(&self.window), vec![int("ceil_mode", self.ceil.into())]].concat();
        match self.kind {
            PoolKind::Max => to.operator("MaxPool", all),
            kind => {
                let counts = int("count_include_pad", (kind == PoolKind::Average).into());
                to.operator("AveragePool", [all, vec![counts]].concat())
            }
        }
    }

    fn steps(&self, _: &[Facts], output: &[usize]) -> Option<usize> {
        self.window.iter().try_fold(product(output)?, |steps, window| steps.checked_mul(window.kernel))
    }
}

fn output(window: &[Sliding], ceil: bool, shape: &[usize]) -> Result<Vec<usize>, OpError> {
    let &[n, c, ref extents @ ..] = shape else { return unfit(format!("cannot pool images of shape {shape:?}")) };
    let kernels: Vec<usize> = window.iter().map(|window| window.kernel).collect();
    check_spatial(window, extents, &kernels)?;
    let spatial = window.iter().zip(extents).map(|(window, &extent)| window.outputs(extent, ceil));
    [Ok(n), Ok(c)].into_iter().chain(spatial).collect()
}

/// Returns the number of elements that the mean of each window divides by.
fn counts(window: &[Sliding], kind: PoolKind, extents: &[usize], outputs: &[usize]) -> Vec<f64> {
    let mut counts = vec![1.0];
    for ((window, extent), &outputs) in window.iter().zip(extents).zip(outputs) {
        let [before, behind] = window.pad;
        let counted = match kind {
            PoolKind::InnerAverage => before..before + extent,
            PoolKind::Max | PoolKind::Average => 0..before + extent + behind,
        };
        let count = |y: usize| {
            let taps = (0..window.kernel).map(|tap| y * window.stride + tap * window.dilation);
            taps.filter(|at| counted.contains(at)).count() as f64
        };
        // A window's count is the product of its counts along the axes.
        counts = counts
            .iter()
            .flat_map(|others| (0..outputs).map(move |y| (others, y)))
            .map(|(others, y)| others * count(y))
            .collect();
    }
    counts
}

fn workload(window: &[Sliding], ceil: bool, kind: PoolKind, shape: &[usize]) -> Option<Workload> {
    let whole = [Sliding::new(1)];
    let (image, windows) = match (shape, window) {
        (&[n, c, w], [a]) => ([n, c, 1, w], [&whole[0], a]),
        (&[n, c, h, w], [a, b]) => ([n, c, h, w], [a, b]),
        _ => return None,
    };
    let [n, c, h, w] = image;
    let pad = [windows[0].even()?, windows[1].even()?];
    let of = |get: fn(&Sliding) -> usize| windows.map(get);
    let (kernel, stride, dilation) = (of(|a| a.kernel), of(|a| a.stride), of(|a| a.dilation));
    Workload::new(Pool2d { n, c, h, w, kernel, stride, pad, dilation, ceil, kind }).ok()
}

/// Returns the operand and the windows of a pooling node.
fn pool_windows(call: &Call) -> call::Result<(ImportValue, Vec<Sliding>)> {
    call.check_most(1)?;
    let x = call.operand(0)?;
    let extents = spatial(call, x)?;
    let kernel = kernel_shape(call, extents.len())?.ok_or_else(|| attribute("kernel_shape", "is missing"))?;
    Ok((x, with_pads(call, windows(call, &kernel)?, &extents)?))
}

/// Returns the number of elements that all windows within image and padding cover, and whether one
/// more window starts in the image or in the padding before it.
fn covered(window: &Sliding, extent: usize) -> call::Result<(usize, bool)> {
    let reach = reach(window)?;
    let padded = window.pad.iter().fold(extent, |sum, &pad| sum.saturating_add(pad));
    let Some(room) = padded.checked_sub(reach) else { return error::unfit("the window is larger than the image") };
    // Start of the first window that does not fit completely.
    let next = (room / window.stride + 1).saturating_mul(window.stride);
    Ok((room - room % window.stride + reach, room % window.stride > 0 && next < extent + window.pad[0]))
}

/// True if windows that end after the padding count and at least one exists.
fn has_more(call: &Call, x: ImportValue, window: &[Sliding]) -> call::Result<bool> {
    let more: call::Result<Vec<bool>> =
        window.iter().zip(spatial(call, x)?).map(|(window, extent)| Ok(covered(window, extent)?.1)).collect();
    Ok(call.flag("ceil_mode", false)? && more?.contains(&true))
}

/// Imports maxima and their positions. Integers that are no quantised tensor become floating-point
/// numbers meanwhile.
fn max_pool(call: &mut Call, outputs: usize) -> call::Result<Vec<ImportValue>> {
    let (given, window) = pool_windows(call)?;
    let ceil = has_more(call, given, &window)?;
    let dtype = call.dtype(given);
    let x = if dtype == DType::I64 { call.cast(DType::F32, given)? } else { given };
    let found = call.add(Pool { window: window.clone(), ceil, kind: PoolKind::Max }, &[x])?;
    let mut all = vec![call.cast(dtype, found)?];

    if outputs > 1 {
        let shape = call.shape(found);
        all.push(places_of_maxima(call, x, &window, &shape)?);
    }
    // The order concerns positions.
    call.ignore(&["storage_order"]);
    Ok(all)
}

fn average_pool(call: &mut Call) -> call::Result<ImportValue> {
    let with_padding = call.flag("count_include_pad", false)?;
    let (mut x, mut window) = pool_windows(call)?;
    let ceil = has_more(call, x, &window)?;

    // The mean counts padding, but nothing past it. So padding becomes part of the image, as far as
    // windows extend.
    if with_padding && ceil {
        let mut pad = vec![[0, 0]; 2];
        for (window, extent) in window.iter_mut().zip(spatial(call, x)?) {
            let (covered, more) = covered(window, extent)?;
            let [before, behind] = std::mem::take(&mut window.pad);
            pad.push([before, if more { behind } else { covered.saturating_sub(extent + before) }]);
        }
        x = call.add(Pad { pad, mode: PadMode::Constant, value: 0.0 }, &[x])?;
    }
    // Without padding both kinds of mean agree.
    let is_padded = window.iter().any(|window| window.pad != [0, 0]);
    let counts_all = !ceil && (with_padding || !is_padded);
    let kind = if counts_all { PoolKind::Average } else { PoolKind::InnerAverage };
    call.add(Pool { window, ceil, kind }, &[x])
}

/// Imports a reduction over all spatial axes.
fn global(call: &mut Call, op: ReduceOp) -> call::Result<ImportValue> {
    call.check_most(1)?;
    let x = call.operand(0)?;
    whole(call, op, x)
}

fn whole(call: &mut Call, op: ReduceOp, x: ImportValue) -> call::Result<ImportValue> {
    let axes: Vec<usize> = (2..2 + spatial(call, x)?.len()).collect();
    call.reduce(op, &axes, true, x)
}

/// Imports the norm of each window, `sum(|x|^p)^(1 / p)`. The sum is a mean that counts padding,
/// times the size of the window.
fn lp_pool(call: &mut Call) -> call::Result<ImportValue> {
    let (x, window) = pool_windows(call)?;
    if has_more(call, x, &window)? {
        return error::unfit("windows that end after the padding are not supported");
    }
    let size: f32 = window.iter().map(|window| window.kernel as f32).product();
    let p = order(call)?;
    let powers = powers(call, x, p)?;
    let means = call.add(Pool { window, ceil: false, kind: PoolKind::Average }, &[powers])?;
    let sums = call.with(Binary::Mul, means, size)?;
    roots(call, sums, p)
}

fn global_lp(call: &mut Call) -> call::Result<ImportValue> {
    let x = call.only()?;
    let p = order(call)?;
    let powers = powers(call, x, p)?;
    let sums = whole(call, ReduceOp::Sum, powers)?;
    roots(call, sums, p)
}

/// Returns the order of a norm.
fn order(call: &Call) -> call::Result<f32> {
    match call.int_or("p", 2)? {
        p @ 1.. => Ok(p as f32),
        _ => Err(attribute("p", "is not positive")),
    }
}

fn powers(call: &mut Call, x: ImportValue, p: f32) -> call::Result<ImportValue> {
    if p == 2.0 {
        return call.binary(Binary::Mul, x, x);
    }
    let sizes = call.unary(UnaryOp::Abs, x)?;
    if p == 1.0 { Ok(sizes) } else { call.with(Binary::Pow, sizes, p) }
}

fn roots(call: &mut Call, x: ImportValue, p: f32) -> call::Result<ImportValue> {
    match p {
        1.0 => Ok(x),
        2.0 => call.unary(UnaryOp::Sqrt, x),
        p => call.with(Binary::Pow, x, 1.0 / p),
    }
}
