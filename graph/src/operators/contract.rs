//! Matrix products in double precision, summed in the order of the reduction axis.

use rayon::prelude::*;

use crate::error::OpError;
use crate::tensor::Tensor;
use crate::typed::{tensor, values};

/// Number of columns that are summed together.
pub(super) const COLUMNS: usize = 8;

/// Number of products from which threads share them; starting threads takes about as long as fewer.
const SHARED_PRODUCTS: usize = 1 << 16;

/// Computes `Σ_k rows[i, k] * column(j)[k]` for all `m` rows and `n` columns; the result is
/// row-major. `fill(first, columns)` writes [`COLUMNS`] neighbouring columns from `first` on, one
/// array for each `k`; entries past the last column are ignored.
pub(super) fn contract<T: Copy + Into<f64> + Sync>(
    rows: &[T],
    [m, k, n]: [usize; 3],
    fill: impl Fn(usize, &mut [[f64; COLUMNS]]) + Sync,
) -> Vec<f64> {
    let row = |i: usize| &rows[i * k..(i + 1) * k];
    let panel = |number: usize| {
        let mut columns = vec![[0.0; COLUMNS]; k];
        fill(number * COLUMNS, &mut columns);

        // Two rows share each load of the columns.
        let mut sums = Vec::with_capacity(m + 1);
        for i in (0..m).step_by(2) {
            let (mut first, mut second) = ([0.0; COLUMNS], [0.0; COLUMNS]);
            for ((&a, &b), column) in row(i).iter().zip(row((i + 1).min(m - 1))).zip(&columns) {
                let (a, b): (f64, f64) = (a.into(), b.into());
                for j in 0..COLUMNS {
                    first[j] += a * column[j];
                    second[j] += b * column[j];
                }
            }
            sums.extend([first, second]);
        }
        sums
    };
    // Threads share the panels; the result is interleaved to row-major order.
    let numbers = 0..n.div_ceil(COLUMNS);
    let panels: Vec<_> = match m * k * n < SHARED_PRODUCTS {
        true => numbers.map(panel).collect(),
        false => numbers.into_par_iter().map(panel).collect(),
    };

    let mut all = Vec::with_capacity(m * n);
    for i in 0..m {
        for (number, panel) in panels.iter().enumerate() {
            all.extend(&panel[i][..COLUMNS.min(n - number * COLUMNS)]);
        }
    }
    all
}

/// Copies neighbouring columns, from `first` on, of a row-major matrix with `n` columns.
pub(super) fn columns_of<T: Copy + Into<f64>>(matrix: &[T], n: usize, first: usize, columns: &mut [[f64; COLUMNS]]) {
    for (k, column) in columns.iter_mut().enumerate() {
        let row = &matrix[k * n + first..(k + 1) * n];
        column.iter_mut().zip(row).for_each(|(column, &x)| *column = x.into());
    }
}

/// Rounds sums of shape `[n, o, ..]` to f32 after adding the third operand, a bias for each of `o`,
/// if present.
pub(super) fn with_bias(sums: Vec<f64>, operands: &[&Tensor], shape: &[usize]) -> Result<Tensor, OpError> {
    let bias = if operands.len() > 2 { values::<f32>(operands, 2)? } else { vec![0.0; shape[1]].into() };
    let pixels: usize = shape[2..].iter().product();
    let channels = sums.chunks_exact(pixels).zip(bias.iter().cycle());
    let sums = channels.flat_map(|(sums, &bias)| sums.iter().map(move |sum| (sum + f64::from(bias)) as f32));
    tensor(shape, sums.collect())
}

/// Returns the last two extents of a shape with at least two axes.
pub(super) fn last_two(shape: &[usize]) -> [usize; 2] {
    [shape[shape.len() - 2], shape[shape.len() - 1]]
}
