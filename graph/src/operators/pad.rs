//! Padding of tensors.

use autotune_workloads::{self as workload, PadMode, Workload};

use super::prelude::*;
use super::slice::Range;
use crate::onnx::error::unfit;
use crate::op;

pub(super) static IMPORTS: &[OnnxOperator] =
    &[OnnxOperator::one("Pad", import), OnnxOperator::one("CenterCropPad", center)];

/// Padding around a tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct Pad {
    /// Elements added before and after, for each axis.
    pub pad: Vec<[usize; 2]>,
    /// Source of the added elements.
    pub mode: PadMode,
    /// Value of the added elements in [`PadMode::Constant`].
    pub value: f32,
}

impl Operator for Pad {
    fn output(&self, operands: &[Facts]) -> Result<(Vec<usize>, DType), OpError> {
        let shape = shapes_of(operands, 1..=1, DType::F32)?[0];
        Ok((output(&self.pad, self.mode, shape)?, DType::F32))
    }

    fn compute(&self, operands: &[&Tensor], shape: &[usize]) -> Result<Tensor, OpError> {
        let (pad, mode, value) = (&self.pad, self.mode, self.value);
        let (x, from) = (values::<f32>(operands, 0)?, operands[0].shape());
        let mut places = Vec::new();
        for (&extent, &[before, behind]) in from.iter().zip(pad) {
            // Output positions are compared with `before`, so that no intermediate number is
            // negative.
            let last = extent.saturating_sub(1);
            places.push(match mode {
                PadMode::Constant => padded(extent, [before, behind]),
                PadMode::Edge => {
                    (0..before + extent + behind).map(|y| Some(y.saturating_sub(before).min(last))).collect()
                }
                PadMode::Reflect => {
                    let mirrored = |y: usize| {
                        let inside = y.abs_diff(before);
                        inside.min(2 * last - inside.min(2 * last))
                    };
                    (0..before + extent + behind).map(|y| Some(mirrored(y))).collect()
                }
            });
        }
        tensor(shape, picked(&x, from, &places, value))
    }

    fn workload(&self, node: &NodeView) -> Option<Anchor> {
        Some(Anchor::new(workload_of(&self.pad, self.mode, self.value, node.shape(0))?, node))
    }

    fn export(&self, to: &mut NodeWriter) -> Result<(), ExportError> {
        let ends = [0, 1].into_iter().flat_map(|end| self.pad.iter().map(move |pad| pad[end] as i64));
        let (ends, value) = (to.integers(ends)?, to.number(self.value));
        let mode = match self.mode {
            PadMode::Constant => "constant",
            PadMode::Reflect => "reflect",
            PadMode::Edge => "edge",
        };
        to.node("Pad", &[&to.input(0), &ends, &value], vec![word("mode", mode)])
    }
}

fn output(pad: &[[usize; 2]], mode: PadMode, shape: &[usize]) -> Result<Vec<usize>, OpError> {
    if pad.len() != shape.len() {
        return op::unfit(format!("padding of {} axes does not match shape {shape:?}", pad.len()));
    }
    // Repeated elements have to exist.
    let most = |extent: usize| match mode {
        PadMode::Constant => usize::MAX,
        PadMode::Reflect => extent.saturating_sub(1),
        PadMode::Edge => {
            if extent > 0 {
                usize::MAX
            } else {
                0
            }
        }
    };
    if pad.iter().zip(shape).any(|(pad, &extent)| pad.iter().any(|&pad| pad > most(extent))) {
        return op::unfit(format!("cannot repeat the edge {:?} times in a tensor of shape {shape:?}", listed(pad)));
    }
    let extent = |(&[before, behind], &extent): (&[usize; 2], &usize)| extent.checked_add(before)?.checked_add(behind);
    let extents: Option<Vec<usize>> = pad.iter().zip(shape).map(extent).collect();
    extents.ok_or_else(|| OpError::TooLarge { shape: shape.to_vec() })
}

/// Returns the workload for padded images, or for padding along one axis or the last two.
fn workload_of(pad: &[[usize; 2]], mode: PadMode, value: f32, shape: &[usize]) -> Option<Workload> {
    let padded: Vec<usize> = (0..pad.len()).filter(|&axis| pad[axis] != [0, 0]).collect();
    let (image, [rows, columns]) = match (shape, pad, &padded[..]) {
        (&[n, c, h, w], &[[0, 0], [0, 0], rows, columns], _) if c > 1 || w > 1 => ([n, c, h, w], [rows, columns]),
        // Along a single axis, the axes before it merge, and so do those after it.
        (_, _, &[axis]) => {
            match [&shape[..axis], &shape[axis + 1..]].map(|part| part.iter().product()) {
                // Elements in a row are copied together.
                [before, 1] => ([1, before, 1, shape[axis]], [[0, 0], pad[axis]]),
                [before, behind] => ([1, before, shape[axis], behind], [pad[axis], [0, 0]]),
            }
        }
        // Along the last two axes, all axes before them merge.
        (_, _, &[row, column]) if column + 1 == shape.len() && row + 1 == column => {
            ([1, shape[..row].iter().product(), shape[row], shape[column]], [pad[row], pad[column]])
        }
        _ => return None,
    };
    let [n, c, h, w] = image;
    let pad = [rows[0], rows[1], columns[0], columns[1]];
    Workload::new(workload::PadWorkload { n, c, h, w, pad, mode, value: value + 0.0 }).ok()
}

/// Imports padding. Amounts and value are attributes before opset 11; negative amounts crop.
fn import(call: &mut Call) -> call::Result<ImportValue> {
    call.check_most(if call.version < 11 { 1 } else { 4 })?;
    let x = call.operand(0)?;
    let shape = call.shape(x);
    let mode = match call.word_or("mode", "constant")? {
        "constant" => PadMode::Constant,
        "reflect" => PadMode::Reflect,
        "edge" => PadMode::Edge,
        _ => return Err(attribute("mode", "expected constant, reflect or edge")),
    };
    let amounts = call.integers("pads", 1, 11)?.ok_or_else(|| missing(1))?;
    let value = if call.version < 11 { call.float("value")? } else { call.known_number(2)? }.unwrap_or(0.0);
    // Since opset 18 the amounts may be for some axes only.
    let axes = match call.known_integers(3)? {
        Some(numbers) => {
            numbers.iter().map(|&number| axis(number, shape.len())).collect::<call::Result<Vec<usize>>>()?
        }
        None => (0..shape.len()).collect(),
    };
    if amounts.len() != 2 * axes.len() {
        return unfit(format!("{} amounts of padding do not match {} axes", amounts.len(), axes.len()));
    }

    let mut all = vec![[0, 0]; shape.len()];
    for (index, &axis) in axes.iter().enumerate() {
        all[axis] = [amounts[index], amounts[index + axes.len()]];
    }
    padded_or_cropped(call, x, &all, mode, value)
}

/// Adds padding before and after each axis. Negative amounts crop: a slice applies them, the
/// padding the positive ones.
fn padded_or_cropped(
    call: &mut Call,
    x: ImportValue,
    amounts: &[[i64; 2]],
    mode: PadMode,
    value: f32,
) -> call::Result<ImportValue> {
    let mut ranges = Range::all(&call.shape(x));
    for (range, ends) in ranges.iter_mut().zip(amounts) {
        let cut = ends.map(|amount| amount.min(0).unsigned_abs() as usize);
        let left = cut.iter().try_fold(range.count, |left, &cut| left.checked_sub(cut));
        let Some(count) = left else { return unfit("negative padding exceeds the tensor") };
        *range = Range { start: if count == 0 { 0 } else { cut[0] }, step: 1, count };
    }
    let x = call.slice(ranges, x)?;
    let pad: Vec<[usize; 2]> = amounts.iter().map(|ends| ends.map(|amount| amount.max(0) as usize)).collect();
    match pad.iter().all(|pad| *pad == [0, 0]) {
        true => Ok(x),
        false => call.add(Pad { pad, mode, value }, &[x]),
    }
}

/// Imports the middle of a tensor, or a tensor with zeros around it. An odd element is cut or added
/// at the end.
fn center(call: &mut Call) -> call::Result<ImportValue> {
    call.check_most(2)?;
    let x = call.operand(0)?;
    let shape = call.shape(x);
    let wanted = call.known_integers(1)?.ok_or_else(|| missing(1))?;
    let axes = match call.ints("axes")? {
        Some(numbers) => {
            numbers.iter().map(|&number| axis(number, shape.len())).collect::<call::Result<Vec<usize>>>()?
        }
        None => (0..shape.len()).collect(),
    };
    if wanted.len() != axes.len() || wanted.iter().any(|&extent| extent < 0) {
        return unfit(format!("extents {:?} of {} axes", listed(&wanted), axes.len()));
    }

    let mut amounts = vec![[0, 0]; shape.len()];
    for (&axis, &wanted) in axes.iter().zip(&wanted) {
        let more = wanted - shape[axis] as i64;
        // Division towards zero, of negative numbers too.
        let before = more / 2;
        amounts[axis] = [before, more - before];
    }
    padded_or_cropped(call, x, &amounts, PadMode::Constant, 0.0)
}
