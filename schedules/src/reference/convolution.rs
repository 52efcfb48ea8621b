//! The sums of a convolution's output.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use ndarray::{ArrayD, s};
use rayon::prelude::*;

use super::selection::{Selection, Stand};
use crate::operands::{Operands, OutOfMemory};
use crate::workload::{Activation, Conv2d, Workload};
use autotune_ir::DType;

/// Blocks that are summed together, for which input rows are read once.
const BLOCKS: usize = 64;
/// Elements of the input rows that are held at a time: a megabyte in f64.
const HELD: usize = 1 << 17;

/// A convolution of which some lines are wanted.
struct Lines<'a> {
    workload: &'a Workload,
    conv: &'a Conv2d,
    operands: &'a Operands,
    weight: &'a [f32],
    selection: &'a Selection,
    /// The kernels of every block, where the sum of its channels is wanted.
    weighted: Vec<f64>,
}

/// The values of a selection, in its order.
///
/// `out[n,o,y,x] = sum over c, kh, kw of padded[n, g*C + c, y*sh + kh*dh, x*sw + kw*dw] * weight[o,c,kh,kw]`
/// with `C = c/groups` and `g` the group of `o`.
pub(super) fn fill(
    workload: &Workload,
    conv: &Conv2d,
    operands: &Operands,
    selection: &Selection,
    values: &mut [f32],
) -> Result<(), OutOfMemory> {
    let weighted = weighted_kernels(workload.dtype(), &operands[1], selection)?;
    let weight = operands[1].as_standard_layout();
    let weight = weight.as_slice().unwrap_or_default();
    let lines = Lines { workload, conv, operands, weight, selection, weighted };
    let (blocks, group_blocks, width) = (selection.blocks(), selection.group_blocks(), selection.extents.width);
    let parts = group_blocks.div_ceil(BLOCKS);
    let [oh, _] = conv.output_hw();
    let is_exact = selection.is_exact();
    let values = Mutex::new(values);

    (0..selection.chosen_lines() * conv.groups * parts).into_par_iter().for_each(|task| {
        let (index, group, part) = (task / parts / conv.groups, task / parts % conv.groups, task % parts);
        let first = group * group_blocks;
        let of_group = first + part * BLOCKS..first + group_blocks.min((part + 1) * BLOCKS);
        let sums = lines.sums(selection.line(index), group, of_group.clone());

        let mut values = values.lock().unwrap_or_else(PoisonError::into_inner);
        for (block, sums) in of_group.zip(sums.chunks_exact(width)) {
            let at = if is_exact { (index / oh * blocks + block) * oh + index % oh } else { index * blocks + block };
            values[at * width..][..width].iter_mut().zip(sums).for_each(|(value, &sum)| *value = sum as f32);
        }
    });
    Ok(())
}

/// For each block the weighted sum of its channels' kernels; nothing where channels are drawn.
fn weighted_kernels(dtype: DType, weight: &ArrayD<f32>, selection: &Selection) -> Result<Vec<f64>, OutOfMemory> {
    if selection.stand == Stand::Drawn {
        return Ok(Vec::new());
    }
    let taps = weight.len() / weight.shape()[0];
    let mut kernels = OutOfMemory::zeros(selection.blocks().saturating_mul(taps))?;
    kernels.par_chunks_mut(taps).enumerate().for_each(|(block, sums): (usize, &mut [f64])| {
        for (channel, scale) in selection.terms(0, block) {
            let taps = weight.slice(s![channel, .., .., ..]);
            sums.iter_mut().zip(taps).for_each(|(sum, &tap)| *sum += scale * f64::from(dtype.multiplied(tap)));
        }
    });
    Ok(kernels)
}

impl Lines<'_> {
    /// The outputs of blocks of a group in a line, block by block.
    fn sums(&self, line: usize, group: usize, blocks: Range<usize>) -> Vec<f64> {
        let (conv, width) = (self.conv, self.selection.extents.width);
        let row = conv.w + 2 * conv.pad[1];
        let group_inputs = conv.c / conv.groups;
        let at_a_time = (HELD / (conv.kh * row)).clamp(1, group_inputs);
        let mut sums = vec![0.0; blocks.len() * width];

        let mut rows = vec![0.0; at_a_time * conv.kh * row];
        for start in (0..group_inputs).step_by(at_a_time) {
            let channels = start..group_inputs.min(start + at_a_time);
            self.read_rows(line, group * group_inputs, channels.clone(), &mut rows);
            // Where each tap finds its first input.
            let taps = (0..channels.len() * conv.kh * conv.kw)
                .map(|tap| tap / conv.kw * row + tap % conv.kw * conv.dilation[1]);
            let places: Vec<usize> = taps.collect();
            let first_tap = channels.start * conv.kh * conv.kw;
            for (block, sums) in blocks.clone().zip(sums.chunks_exact_mut(width)) {
                let scales = self.kernel(line, block, first_tap..first_tap + places.len());
                add_taps(sums, &scales, &places, &rows, conv.stride[1]);
            }
        }

        for (block, sums) in blocks.zip(sums.chunks_exact_mut(width)) {
            self.finish(line, block, sums);
        }
        sums
    }

    /// Some taps of the kernel that stands for a block in a line.
    fn kernel(&self, line: usize, block: usize, taps: Range<usize>) -> Cow<'_, [f64]> {
        let of_a_channel = self.conv.c / self.conv.groups * self.conv.kh * self.conv.kw;
        if self.selection.stand == Stand::Weighted {
            return Cow::Borrowed(&self.weighted[block * of_a_channel..][taps]);
        }
        let channel = self.selection.channel(line, block);
        let dtype = self.workload.dtype();
        self.weight[channel * of_a_channel..][taps].iter().map(|&tap| f64::from(dtype.multiplied(tap))).collect()
    }

    /// The rows of the padded input under a line's kernels, of channels of a group whose first is `first`.
    fn read_rows(&self, line: usize, first: usize, channels: Range<usize>, rows: &mut [f64]) {
        let (conv, dtype) = (self.conv, self.workload.dtype());
        let [oh, _] = conv.output_hw();
        let (image, y) = (line / oh, line % oh);
        let [pad_top, pad_left] = conv.pad;
        let row_len = conv.w + 2 * pad_left;

        rows.fill(0.0);
        for (index, row) in rows.chunks_exact_mut(row_len).take(channels.len() * conv.kh).enumerate() {
            let (channel, kh) = (first + channels.start + index / conv.kh, index % conv.kh);
            let from = y * conv.stride[0] + kh * conv.dilation[0];
            if let Some(from) = from.checked_sub(pad_top).filter(|&from| from < conv.h) {
                let input = self.operands[0].slice(s![image, channel, from, ..]);
                let inside = row[pad_left..].iter_mut().zip(input);
                inside.for_each(|(to, &x)| *to = f64::from(dtype.multiplied(x)));
            }
        }
    }

    /// Adds bias and residual, and applies the activation and the rounding of the output to channels that were drawn.
    fn finish(&self, line: usize, block: usize, sums: &mut [f64]) {
        let [oh, _] = self.conv.output_hw();
        let (image, y) = (line / oh, line % oh);
        let dtype = self.workload.dtype();
        for (channel, scale) in self.selection.terms(line, block) {
            if let Some(bias) = self.operands.named("bias") {
                let bias = scale * f64::from(dtype.stored(bias[channel]));
                sums.iter_mut().for_each(|sum| *sum += bias);
            }
            if let Some(residual) = self.operands.named("residual") {
                let line = residual.slice(s![image, channel, y, ..]);
                sums.iter_mut().zip(line).for_each(|(sum, &x)| *sum += scale * f64::from(dtype.stored(x)));
            }
        }
        if self.selection.stand == Stand::Drawn {
            sums.iter_mut().for_each(|sum| *sum = output(self.workload, *sum));
        }
    }
}

/// An output whose sum is complete.
pub(super) fn output(workload: &Workload, sum: f64) -> f64 {
    let activated = match workload.epilogue().activation {
        Activation::None => sum,
        Activation::Relu => sum.max(0.0),
    };
    f64::from(workload.dtype().stored(activated as f32))
}

/// `sums[x] += scales[t] * values[places[t] + x * step]` for every `t`.
fn add_taps(sums: &mut [f64], scales: &[f64], places: &[usize], values: &[f64], step: usize) {
    let len = (sums.len() - 1) * step + 1;
    let line = |place: usize| &values[place..place + len];
    let (fours, rest) = scales.as_chunks::<4>();
    let (four_places, rest_places) = places.as_chunks::<4>();
    for (scales, places) in fours.iter().zip(four_places) {
        add_four(sums, scales, places.map(line), step);
    }
    for (scale, &place) in rest.iter().zip(rest_places) {
        sums.iter_mut().zip(line(place).iter().step_by(step)).for_each(|(sum, value)| *sum += scale * value);
    }
}

/// `sums[x] += scales[0] * lines[0][x * step] + ...`: four at once, which reads and writes the sums less often.
pub(super) fn add_four(sums: &mut [f64], scales: &[f64; 4], lines: [&[f64]; 4], step: usize) {
    let [a, b, c, d] = lines;
    if step == 1 {
        let (a, b, c, d) = (&a[..sums.len()], &b[..sums.len()], &c[..sums.len()], &d[..sums.len()]);
        for (x, sum) in sums.iter_mut().enumerate() {
            *sum += (scales[0] * a[x] + scales[1] * b[x]) + (scales[2] * c[x] + scales[3] * d[x]);
        }
    } else {
        for (x, sum) in sums.iter_mut().enumerate() {
            let x = x * step;
            *sum += (scales[0] * a[x] + scales[1] * b[x]) + (scales[2] * c[x] + scales[3] * d[x]);
        }
    }
}
