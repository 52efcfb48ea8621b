//! Winograd's algorithm as a rewritten spec of a convolution.
//!
//! ```text
//! sum[n, o, oh, ow] = Σ input[n, c, s*oh + kh - p, s*ow + kw - p] * weight[o, c, kh, kw]
//!   →  U[xi, c, o] = Σ G[i, kh] * G[j, kw] * weight[o, c, kh, kw]
//!      V[xi, c, t] = Σ Bt[i, y] * Bt[j, x] * input[n, c, s*m*th + y - p, s*m*tw + x - p]
//!      M[xi, o, t] = Σ V[xi, c, t] * U[xi, c, o]                           the main equation
//!      sum[n, o, m*th + i, m*tw + j] = Σ At[i, y] * At[j, x] * M[a*y + x, o, t]
//! ```
//!
//! Here `xi = a*i + j` and `t = (rows*n + th)*columns + tw`. If phases are channels
//! ([`WinogradConv`]), the channel axis `c` of `U`, `V` and `M` is `(c, fh, fw)`. Rows of phase `f`
//! of `G` multiply the taps `f, f + s, ..`, and the inputs are `s*(m*th + y) + fh - p`. The
//! epilogue's equations stay as they are.

use std::sync::Arc;

use autotune_ir::program::{Access, BufferId, Expr};
use autotune_ir::spec::{Axis, Equation, Reduction, Spec, TensorSource, TensorSpec, axis_vars};
use autotune_ir::{Affine, DType};
use autotune_workloads::Workload;

use super::conv::WinogradConv;
use super::matrices::{Matrices, Matrix};

/// Appends tensors and equations to a spec.
struct SpecWriter {
    tensors: Vec<TensorSpec>,
    equations: Vec<Equation>,
}

impl SpecWriter {
    fn tensor(&mut self, name: &'static str, shape: Vec<usize>, dtype: DType, source: TensorSource) -> BufferId {
        self.tensors.push(TensorSpec { name: name.into(), shape, dtype, source });
        BufferId(self.tensors.len() as u32 - 1)
    }

    fn matrix(&mut self, name: &'static str, matrix: &Matrix) -> BufferId {
        let shape = vec![matrix.len(), matrix.first().map_or(0, Vec::len)];
        let elements = matrix.iter().flatten().map(|&x| x as f32).collect();
        self.tensor(name, shape, DType::F32, TensorSource::Known(elements))
    }

    fn equation(&mut self, axes: &[(&'static str, usize, bool)], output: (BufferId, Vec<Affine>), value: Expr) {
        let axes = axes.iter().map(|&(name, extent, reduce)| Axis { name, extent, reduce }).collect();
        self.equations.push(Equation {
            axes,
            output: Access { buffer: output.0, index: output.1.into() },
            value,
            reduction: Reduction::Sum,
        });
    }
}

/// Returns the rows of `G` for the taps of each phase. The phases follow each other.
fn of_phases(weight: &Matrix, conv: &WinogradConv) -> Matrix {
    let spread = |phase: usize, row: &Vec<f64>| {
        (0..conv.taps).map(|k| if k % conv.phases() == phase { row[k / conv.phases()] } else { 0.0 }).collect()
    };
    (0..conv.phases()).flat_map(|phase| weight.iter().map(move |row| spread(phase, row))).collect()
}

fn load<const N: usize>(buffer: BufferId, index: [&Affine; N]) -> Expr {
    Expr::Load(Access { buffer, index: index.map(Affine::clone).into() })
}

/// Returns the rewritten spec of a workload, see [`rewrite`]; cached per workload.
pub(crate) fn rewritten(workload: &Workload, conv: &WinogradConv, m: usize, multiples: Multiples) -> Arc<Spec> {
    workload.once((m, multiples), || rewrite(workload.spec(), conv, m, multiples))
}

/// Multiples to which products are padded by zeros.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Multiples {
    /// Divisor of the number of tiles.
    pub(crate) tiles: usize,
    /// Divisor of the number of output channels.
    pub(crate) channels: usize,
}

/// Rewrites a spec of a convolution to products over tiles of `m x m` outputs, with padded extents.
fn rewrite(spec: &Spec, conv: &WinogradConv, m: usize, multiples: Multiples) -> Spec {
    let (a, phases) = (conv.filtering(m).inputs(), conv.phases());
    let [rows, columns] = conv.grid(m);
    let (xis, tiles) = (a * a, (conv.n * rows * columns).next_multiple_of(multiples.tiles));
    let channels = conv.o.next_multiple_of(multiples.channels);
    let transformed = conv.transformed;
    let (main, tail) = (spec.main(), &spec.equations[spec.main + 1..]);
    let sum = main.output.buffer;
    let [input, weight] = [0, 1].map(|which| main.loads()[which].buffer);

    let mut to = SpecWriter { tensors: spec.tensors.clone(), equations: Vec::new() };
    let pair = |i: &Affine, j: &Affine| i.clone() * a as i64 + j;
    let number = |n: &Affine, th: &Affine, tw: &Affine| (n.clone() * rows as i64 + th) * columns as i64 + tw;
    let phased = |c: &Affine, fh: &Affine, fw: &Affine| (c.clone() * phases as i64 + fh) * phases as i64 + fw;
    let depth = [("c", conv.c, false), ("fh", phases, false), ("fw", phases, false)];

    // U: transformed filters.
    let matrices = Matrices::new(conv.filtering(m));
    let g = to.matrix("G", &of_phases(&matrices.weight, conv));
    let filters = to.tensor("U", vec![xis, conv.depth(), channels], transformed, TensorSource::Computed);
    let [i, j, o, c, fh, fw, kh, kw] = axis_vars();
    let row = |i: &Affine, phase: &Affine| phase.clone() * a as i64 + i;
    let [down, across] = [load(g, [&row(&i, &fh), &kh]), load(g, [&row(&j, &fw), &kw])];
    let value = Expr::product(Expr::product(down, across), load(weight, [&o, &c, &kh, &kw]));
    let axes = [("i", a, false), ("j", a, false), ("o", conv.o, false)];
    let taps = [("kh", conv.taps, true), ("kw", conv.taps, true)];
    let element = vec![pair(&i, &j), phased(&c, &fh, &fw), o];
    to.equation(&[&axes[..], &depth, &taps].concat(), (filters, element), value);

    // V: transformed input.
    let bt = to.matrix("Bt", &matrices.input);
    let inputs = to.tensor("V", vec![xis, conv.depth(), tiles], transformed, TensorSource::Computed);
    let [n, th, tw, i, j, c, fh, fw, y, x] = axis_vars();
    let at = |tile: &Affine, offset: &Affine, phase: &Affine, pad: usize| {
        tile.clone() * (m * conv.stride) as i64 + &(offset.clone() * phases as i64) + phase + -(pad as i64)
    };
    let pixel = load(input, [&n, &c, &at(&th, &y, &fh, conv.pad[0]), &at(&tw, &x, &fw, conv.pad[1])]);
    let value = Expr::product(Expr::product(load(bt, [&i, &y]), load(bt, [&j, &x])), pixel);
    let grid = [("n", conv.n, false), ("th", rows, false), ("tw", columns, false)];
    let tile = [("i", a, false), ("j", a, false)];
    let inner = [("y", a, true), ("x", a, true)];
    let element = vec![pair(&i, &j), phased(&c, &fh, &fw), number(&n, &th, &tw)];
    to.equation(&[&grid[..], &tile, &depth, &inner].concat(), (inputs, element), value);

    // M: products, summed over the channels.
    let products = to.tensor("M", vec![xis, channels, tiles], DType::F32, TensorSource::Computed);
    let axes = [("xi", xis, false), ("t", tiles, false), ("o", channels, false), ("c", conv.depth(), true)];
    let [xi, t, o, c] = axis_vars();
    let value = Expr::product(load(inputs, [&xi, &c, &t]), load(filters, [&xi, &c, &o]));
    to.equation(&axes, (products, vec![xi, o, t]), value);

    // The sum: products transformed back.
    let matrix = to.matrix("At", &matrices.output);
    let [n, th, tw, i, j, o, y, x] = axis_vars();
    let product = load(products, [&pair(&y, &x), &o, &number(&n, &th, &tw)]);
    let value = Expr::product(Expr::product(load(matrix, [&i, &y]), load(matrix, [&j, &x])), product);
    let (h, w) = (th * m as i64 + &i, tw * m as i64 + &j);
    let tile = [("i", m, false), ("j", m, false), ("o", conv.o, false), ("y", a, true), ("x", a, true)];
    to.equation(&[&grid[..], &tile].concat(), (sum, vec![n, o, h, w]), value);

    to.equations.extend_from_slice(tail);
    Spec { name: spec.name.clone(), tensors: to.tensors, equations: to.equations, main: 2 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use autotune_workloads::operands::Operands;
    use autotune_workloads::reference::{Reference, max_rel_error, reference};
    use rayon::prelude::*;

    #[test]
    fn the_rewritten_spec_computes_the_same() {
        let texts = [
            "conv2d:c=2,h=5,w=7,o=3,k=3,p=1,bias,add,act=relu",
            "conv2d:n=3,c=1,h=6,w=4,o=2,kh=3,kw=3,ph=0,pw=2",
            "conv2d:n=2,c=3,h=3,w=3,o=1,k=3,p=2,bias",
            "conv2d:c=3,h=9,w=8,o=2,k=3,s=2,p=1,bias,act=relu",
            "conv2d:c=2,h=7,w=6,o=2,k=2,p=1",
            "conv2d:c=1,h=8,w=5,o=2,k=5,ph=2,pw=4",
            "conv2d:c=1,h=14,w=13,o=2,k=7,s=2,p=3",
            "conv2d:c=2,h=14,w=11,o=1,k=5,s=3,p=1",
            "conv2d:c=5,h=9,w=8,o=2,k=3,s=2,p=1",
            "conv2d:c=6,h=14,w=13,o=2,k=7,s=2,p=3",
            "conv2d:c=3,h=21,w=23,o=2,k=11,s=4,p=2",
        ];
        texts.into_par_iter().for_each(|text| {
            let workload: Workload = text.parse().unwrap();
            let conv = WinogradConv::of(&workload).unwrap();

            let spec = workload.spec();
            let operands = Operands::random(spec, 3);
            let wanted = reference(&workload, &operands);
            let padded = |m| [(m, [1, 1]), (m, [4, 1]), (m, [1, 8])];
            for (m, [tiles, channels]) in conv.tile_sizes().flat_map(padded) {
                let rewritten = rewrite(spec, &conv, m, Multiples { tiles, channels });
                let found = Reference::with_bound(&rewritten, &operands, u64::MAX, 0).unwrap();
                let error = max_rel_error(found.exact().unwrap(), &wanted);
                assert!(error < 1e-4, "{text}, m {m}, tiles {tiles}, channels {channels}: {error}");
            }
        });
    }
}
