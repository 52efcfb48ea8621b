//! The sums of a product's output.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use ndarray::{ArrayD, s};
use rayon::prelude::*;

use super::convolution::{add_four, output};
use super::selection::{Selection, Stand};
use crate::operands::{Operands, OutOfMemory};
use crate::workload::{Matmul, Workload};
use autotune_ir::DType;

/// Values that are summed together, for which the right matrix is read once.
const VALUES: usize = 1 << 16;
/// Lines of these, at most: other cores need some, too.
const LINES: usize = 512;
/// Columns of the right matrix that are held at a time, unless so few blocks have more, and most of its rows and elements.
const COLUMNS: usize = 512;
const LEAST_BLOCKS: usize = 8;
const ROWS: usize = 64;
const HELD: usize = 1 << 17;

/// A product of which some outputs are wanted.
struct Product<'a> {
    workload: &'a Workload,
    matmul: &'a Matmul,
    operands: &'a Operands,
    selection: &'a Selection,
    /// The right matrices with one column for each block, where the sum of its channels is wanted.
    weighted: Vec<f64>,
}

/// The values of a selection, in its order.
///
/// `out[b,m,n] = sum over k of a[b,m,k] * w[b,k,n]`.
pub(super) fn fill(
    workload: &Workload,
    matmul: &Matmul,
    operands: &Operands,
    selection: &Selection,
    values: &mut [f32],
) -> Result<(), OutOfMemory> {
    let weighted = weighted_columns(workload.dtype(), &operands[1], selection)?;
    let product = Product { workload, matmul, operands, selection, weighted };
    let blocks = selection.blocks();
    let blocks_at_a_time = match selection.stand {
        Stand::Drawn => (COLUMNS / selection.block).max(LEAST_BLOCKS),
        Stand::Weighted => COLUMNS,
    };
    let blocks_at_a_time = blocks_at_a_time.min(blocks);
    let lines_at_a_time = (VALUES / blocks_at_a_time).clamp(1, LINES);
    let line_parts = selection.chosen_lines().div_ceil(lines_at_a_time);
    let block_parts = blocks.div_ceil(blocks_at_a_time);
    let values = Mutex::new(values);

    (0..line_parts * block_parts).into_par_iter().for_each(|task| {
        let (lines, part) = (task / block_parts * lines_at_a_time, task % block_parts);
        let lines = lines..selection.chosen_lines().min(lines + lines_at_a_time);
        let part = part * blocks_at_a_time..blocks.min((part + 1) * blocks_at_a_time);
        let sums = product.sums(lines.clone(), part.clone());

        let mut values = values.lock().unwrap_or_else(PoisonError::into_inner);
        for (index, sums) in lines.zip(sums.chunks_exact(part.len())) {
            let values = &mut values[index * blocks..][part.clone()];
            values.iter_mut().zip(sums).for_each(|(value, &sum)| *value = sum as f32);
        }
    });
    Ok(())
}

/// For each row of the right matrices and each block the weighted sum of the block's columns; nothing where columns are drawn.
fn weighted_columns(dtype: DType, weight: &ArrayD<f32>, selection: &Selection) -> Result<Vec<f64>, OutOfMemory> {
    if selection.stand == Stand::Drawn {
        return Ok(Vec::new());
    }
    let (blocks, rows) = (selection.blocks(), weight.shape()[0] * weight.shape()[1]);
    let mut columns = OutOfMemory::zeros(rows.saturating_mul(blocks))?;
    columns.par_chunks_mut(blocks).enumerate().for_each(|(row, sums): (usize, &mut [f64])| {
        let row = weight.slice(s![row / weight.shape()[1], row % weight.shape()[1], ..]);
        for (channel, (&x, scale)) in row.iter().zip(selection.weights()).enumerate() {
            sums[channel / selection.block] += scale * f64::from(dtype.multiplied(x));
        }
    });
    Ok(columns)
}

impl Product<'_> {
    /// The outputs of blocks in lines, given by their numbers among those wanted, line by line.
    fn sums(&self, lines: Range<usize>, blocks: Range<usize>) -> Vec<f64> {
        let (selection, k) = (self.selection, self.matmul.k);
        let columns = match selection.stand {
            Stand::Drawn => selection.channels(blocks.start).start..selection.channels(blocks.end - 1).end,
            Stand::Weighted => blocks.clone(),
        };
        let drawn = |line: usize| blocks.clone().map(move |block| selection.channel(line, block) - columns.start);
        let lines: Vec<usize> = lines.map(|index| selection.line(index)).collect();
        let drawn: Vec<usize> = match selection.block {
            1 => Vec::new(),
            _ => lines.iter().copied().flat_map(drawn).collect(),
        };
        let rows_at_a_time = (HELD / columns.len()).clamp(1, ROWS).min(k);
        let mut held = vec![0.0; rows_at_a_time * columns.len()];
        let mut sums = vec![0.0; lines.len() * blocks.len()];
        let mut left = Vec::with_capacity(rows_at_a_time);

        // Lines of several left matrices have a right matrix each.
        let matrix_of = |index: usize| lines[index] / self.matmul.m;
        for of_matrix in (0..lines.len()).collect::<Vec<_>>().chunk_by(|&a, &b| matrix_of(a) == matrix_of(b)) {
            let matrix = matrix_of(of_matrix[0]);
            for start in (0..k).step_by(rows_at_a_time) {
                let rows = start..k.min(start + rows_at_a_time);
                self.read_rows(matrix, rows.clone(), columns.clone(), &mut held);
                for &index in of_matrix {
                    self.read_left(lines[index], rows.clone(), &mut left);
                    let sums = &mut sums[index * blocks.len()..][..blocks.len()];
                    match selection.stand {
                        Stand::Drawn if selection.block > 1 => {
                            add_drawn(sums, &left, &held, &drawn[index * blocks.len()..]);
                        }
                        _ => add_rows(sums, &left, &held),
                    }
                }
            }
        }

        for (&line, sums) in lines.iter().zip(sums.chunks_exact_mut(blocks.len())) {
            blocks.clone().zip(sums).for_each(|(block, sum)| *sum = self.finished(line, block, *sum));
        }
        sums
    }

    /// Rows of a right matrix, of these columns or blocks; column by column if columns are drawn from blocks.
    fn read_rows(&self, matrix: usize, rows: Range<usize>, columns: Range<usize>, held: &mut [f64]) {
        let height = rows.len();
        for (index, row) in rows.enumerate() {
            if self.selection.stand == Stand::Weighted {
                let at = (matrix * self.matmul.k + row) * self.selection.blocks();
                held[index * columns.len()..][..columns.len()].copy_from_slice(&self.weighted[at..][columns.clone()]);
                continue;
            }
            let row = self.operands[1].slice(s![matrix, row, columns.clone()]);
            let row = row.iter().map(|&x| f64::from(self.workload.dtype().multiplied(x)));
            if self.selection.block > 1 {
                held[index..].iter_mut().step_by(height).zip(row).for_each(|(to, x)| *to = x);
            } else {
                held[index * columns.len()..].iter_mut().zip(row).for_each(|(to, x)| *to = x);
            }
        }
    }

    /// Elements of a row of the left matrix.
    fn read_left(&self, line: usize, columns: Range<usize>, left: &mut Vec<f64>) {
        let Matmul { m, .. } = *self.matmul;
        let row = self.operands[0].slice(s![line / m, line % m, columns]);
        left.clear();
        left.extend(row.iter().map(|&x| f64::from(self.workload.dtype().multiplied(x))));
    }

    /// The sum with bias and residual, and the activation and the rounding of the output if the channel was drawn.
    fn finished(&self, line: usize, block: usize, sum: f64) -> f64 {
        let Matmul { m, .. } = *self.matmul;
        let dtype = self.workload.dtype();
        let added = |channel: usize| {
            let bias = self.operands.named("bias").map_or(0.0, |bias| f64::from(dtype.stored(bias[channel])));
            let residual = self.operands.named("residual");
            bias + residual.map_or(0.0, |residual| f64::from(dtype.stored(residual[[line / m, line % m, channel]])))
        };
        let is_plain = !self.workload.epilogue().bias && !self.workload.epilogue().residual;
        let terms = self.selection.terms(line, block).take(if is_plain { 0 } else { usize::MAX });
        let sum = sum + terms.map(|(channel, scale)| scale * added(channel)).sum::<f64>();
        match self.selection.stand {
            Stand::Drawn => output(self.workload, sum),
            Stand::Weighted => sum,
        }
    }
}

/// `sums[x] += left[j] * held[j][x]` for every row `j`.
fn add_rows(sums: &mut [f64], left: &[f64], held: &[f64]) {
    let width = sums.len();
    let (fours, rest) = left.as_chunks::<4>();
    let mut rows = held.chunks_exact(width);
    for scales in fours {
        if let [Some(a), Some(b), Some(c), Some(d)] = [rows.next(), rows.next(), rows.next(), rows.next()] {
            add_four(sums, scales, [a, b, c, d], 1);
        }
    }
    for (scale, row) in rest.iter().zip(rows) {
        sums.iter_mut().zip(row).for_each(|(sum, value)| *sum += scale * value);
    }
}

/// `sums[x] += left[j] * held[drawn[x]][j]` for every row `j`.
fn add_drawn(sums: &mut [f64], left: &[f64], held: &[f64], drawn: &[usize]) {
    let (fours, rest) = left.as_chunks::<4>();
    for (sum, &column) in sums.iter_mut().zip(drawn) {
        let (of_fours, of_rest) = held[column * left.len()..][..left.len()].as_chunks::<4>();
        let mut lanes = [0.0; 4];
        for (a, b) in fours.iter().zip(of_fours) {
            (0..4).for_each(|lane| lanes[lane] += a[lane] * b[lane]);
        }
        *sum += lanes.iter().sum::<f64>() + rest.iter().zip(of_rest).map(|(a, b)| a * b).sum::<f64>();
    }
}
