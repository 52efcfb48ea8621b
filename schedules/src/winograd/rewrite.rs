//! Winograd's algorithm as a rewrite of a convolution's spec.
//!
//! ```text
//! sum[n, o, oh, ow] = Σ input[n, c, oh + kh - p, ow + kw - p] * weight[o, c, kh, kw]
//!   →  U[xi, o, c] = Σ G[i, kh] * G[j, kw] * weight[o, c, kh, kw]                            xi = a*i + j
//!      V[n, xi, t, c] = Σ Bt[i, y] * Bt[j, x] * input[n, c, m*th + y - p, m*tw + x - p]      t = tiles of a row * th + tw
//!      M[n, xi, t, o] = Σ V[n, xi, t, c] * U[xi, o, c]                                       the main equation
//!      sum[n, o, m*th + i, m*tw + j] = Σ At[i, y] * At[j, x] * M[n, a*y + x, t, o]
//! ```
//!
//! What follows, the epilogue, stays.

use std::sync::Arc;

use autotune_ir::program::{Access, BufferId, Expr};
use autotune_ir::spec::{Axis, Equation, Source, Spec, Tensor, axis_vars};
use autotune_ir::{Affine, DType, VarId};

use super::TAPS;
use super::matrices::{Matrices, Matrix};
use crate::workload::Conv2d;

/// Which tiles the products of one `xi` are over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tiles {
    /// Those of an image; images are an axis of their own.
    OfImage,
    /// Those of all images, and so many of zeros behind them that their number is a multiple of this.
    OfAll(usize),
}

/// Appends tensors and equations to a spec.
struct Writer {
    tensors: Vec<Tensor>,
    equations: Vec<Equation>,
}

impl Writer {
    fn tensor(&mut self, name: &'static str, shape: Vec<usize>, dtype: DType, source: Source) -> BufferId {
        self.tensors.push(Tensor { name: name.into(), shape, dtype, source });
        BufferId(self.tensors.len() as u32 - 1)
    }

    fn matrix(&mut self, name: &'static str, matrix: &Matrix) -> BufferId {
        let shape = vec![matrix.len(), matrix.first().map_or(0, Vec::len)];
        let elements = matrix.iter().flatten().map(|&x| x as f32).collect();
        self.tensor(name, shape, DType::F32, Source::Known(elements))
    }

    fn equation(&mut self, axes: &[(&'static str, usize, bool)], output: (BufferId, Vec<Affine>), value: Expr) {
        let axes = axes.iter().map(|&(name, extent, reduce)| Axis { name, extent, reduce }).collect();
        self.equations.push(Equation { axes, output: Access { buffer: output.0, index: output.1 }, value });
    }
}

fn load<const N: usize>(buffer: BufferId, index: [&Affine; N]) -> Expr {
    Expr::Load(Access { buffer, index: index.map(Affine::clone).to_vec() })
}

/// The same result by products of tiles of `m x m` outputs. The spec is that of the convolution, which Winograd's algorithm is for.
pub(crate) fn rewrite(spec: &Spec, conv: &Conv2d, m: usize, tiles: Tiles) -> Arc<Spec> {
    let a = m + TAPS - 1;
    let [rows, columns] = conv.output_hw().map(|extent| extent.div_ceil(m));
    let per_image = rows * columns;
    let dtype = spec.tensors[0].dtype;
    let (main, tail) = (spec.main(), &spec.equations[spec.main + 1..]);
    let sum = main.output.buffer;
    let [input, weight] = [0, 1].map(|which| main.loads()[which].buffer);
    let mut to = Writer { tensors: spec.tensors.clone(), equations: Vec::new() };

    // With tiles of all images there is one row of products for each `xi`, and images are further tiles.
    let (images, count) = match tiles {
        Tiles::OfImage => (Some(conv.n), per_image),
        Tiles::OfAll(multiple) => (None, (conv.n * per_image).next_multiple_of(multiple)),
    };
    let (xis, lead) = (a * a, images.map_or(Vec::new(), |n| vec![n]));
    let shape = |last: usize| [&lead[..], &[xis, count, last]].concat();
    let place = |n: &Affine, xi: Affine, th: &Affine, tw: &Affine, last: &Affine| {
        let t = th.clone() * columns as i64 + tw;
        match images {
            Some(_) => vec![n.clone(), xi, t, last.clone()],
            None => vec![xi, n.clone() * per_image as i64 + t, last.clone()],
        }
    };
    let pair = |i: &Affine, j: &Affine| i.clone() * a as i64 + j;

    let matrices = Matrices::new(m);
    let g = to.matrix("G", &matrices.weight);
    let filters = to.tensor("U", vec![xis, conv.o, conv.c], dtype, Source::Computed);
    let [i, j, o, c, kh, kw] = axis_vars();
    let value = Expr::product(Expr::product(load(g, [&i, &kh]), load(g, [&j, &kw])), load(weight, [&o, &c, &kh, &kw]));
    let axes = [("i", a, false), ("j", a, false), ("o", conv.o, false), ("c", conv.c, false)];
    let taps = [("kh", TAPS, true), ("kw", TAPS, true)];
    to.equation(&[&axes[..], &taps].concat(), (filters, vec![pair(&i, &j), o, c]), value);

    let bt = to.matrix("Bt", &matrices.input);
    let inputs = to.tensor("V", shape(conv.c), dtype, Source::Computed);
    let [n, th, tw, i, j, c, y, x] = axis_vars();
    let at = |tile: &Affine, offset: &Affine, pad: usize| tile.clone() * m as i64 + offset + -(pad as i64);
    let pixel = load(input, [&n, &c, &at(&th, &y, conv.pad[0]), &at(&tw, &x, conv.pad[1])]);
    let value = Expr::product(Expr::product(load(bt, [&i, &y]), load(bt, [&j, &x])), pixel);
    let grid = [("n", conv.n, false), ("th", rows, false), ("tw", columns, false)];
    let tile = [("i", a, false), ("j", a, false), ("c", conv.c, false), ("y", a, true), ("x", a, true)];
    to.equation(&[&grid[..], &tile].concat(), (inputs, place(&n, pair(&i, &j), &th, &tw, &c)), value);

    let products = to.tensor("M", shape(conv.o), dtype, Source::Computed);
    let spatial = [("xi", xis, false), ("t", count, false), ("o", conv.o, false), ("c", conv.c, true)];
    let axes: Vec<_> = images.map(|n| ("n", n, false)).into_iter().chain(spatial).collect();
    let own: Vec<Affine> = (0..axes.len()).map(|axis| Affine::var(VarId(axis as u32))).collect();
    let [lead @ .., xi, t, o, c] = &own[..] else { unreachable!("there are four axes at least") };
    let index = |last: &Affine| [lead, &[xi.clone(), t.clone(), last.clone()]].concat();
    let data = Expr::Load(Access { buffer: inputs, index: index(c) });
    to.equation(&axes, (products, index(o)), Expr::product(data, load(filters, [xi, o, c])));

    let matrix = to.matrix("At", &matrices.output);
    let [n, th, tw, i, j, o, y, x] = axis_vars();
    let product = Expr::Load(Access { buffer: products, index: place(&n, pair(&y, &x), &th, &tw, &o) });
    let value = Expr::product(Expr::product(load(matrix, [&i, &y]), load(matrix, [&j, &x])), product);
    let (h, w) = (th * m as i64 + &i, tw * m as i64 + &j);
    let tile = [("i", m, false), ("j", m, false), ("o", conv.o, false), ("y", a, true), ("x", a, true)];
    to.equation(&[&grid[..], &tile].concat(), (sum, vec![n, o, h, w]), value);

    to.equations.extend_from_slice(tail);
    Arc::new(Spec { name: spec.name.clone(), tensors: to.tensors, equations: to.equations, main: 2 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operands::Operands;
    use crate::workload::Workload;

    #[test]
    fn the_rewritten_spec_computes_the_same() {
        for text in [
            "conv2d:c=2,h=5,w=7,o=3,k=3,p=1,bias,add,act=relu",
            "conv2d:n=3,c=1,h=6,w=4,o=2,kh=3,kw=3,ph=0,pw=2",
            "conv2d:n=2,c=3,h=3,w=3,o=1,k=3,p=2,bias",
        ] {
            let workload: Workload = text.parse().unwrap();
            let conv = *workload.sizes::<Conv2d>().unwrap();
            let spec = workload.spec();
            let operands: Vec<Vec<f64>> =
                Operands::random(spec, 3).iter().map(|t| t.iter().map(|&x| f64::from(x)).collect()).collect();
            let operands: Vec<&[f64]> = operands.iter().map(Vec::as_slice).collect();
            let wanted = spec.evaluate(&operands);
            for (m, tiles) in [2, 3, 4, 6].into_iter().flat_map(|m| [(m, Tiles::OfImage), (m, Tiles::OfAll(4))]) {
                let found = rewrite(spec, &conv, m, tiles).evaluate(&operands);
                let error = found.iter().zip(&wanted).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
                assert!(found.len() == wanted.len() && error < 1e-4, "{text}, m {m}, {tiles:?}: {error}");
            }
        }
    }
}
