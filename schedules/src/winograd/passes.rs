//! A tile transformed along both axes, as nests: its columns first, then the rows of what that
//! gives.
//!
//! ```text
//! unrolled x { half[.., x] = down(column x of the tile) }
//! unrolled i { row i of the result = across(half[i, ..]) }
//! ```

use std::ops::Range;

use super::matrices::{Source, Sum, Transform};
use crate::lower::nest::Builder;
use crate::lower::{add, assign, load};
use autotune_ir::affine::Affine;
use autotune_ir::program::{BufferId, Expr, Index, LoopKind, Node};

/// What transforms a tile along one axis, as far as there is something of it and it is wanted.
#[derive(Clone, Debug)]
pub(crate) struct Cut {
    /// Inputs that are not zero.
    inputs: Range<usize>,
    /// Terms that are used, with their numbers.
    terms: Vec<(usize, Sum)>,
    outputs: Vec<Sum>,
}

impl Cut {
    /// The first `outputs` of a transform of a vector that is zero outside `inputs`.
    pub(crate) fn new(transform: &Transform, inputs: Range<usize>, outputs: usize) -> Self {
        let (outputs, is_live) = (&transform.outputs[..outputs], transform.live(&inputs));
        // What is added as it is first, so that what follows are fused multiply-adds.
        let live = |sum: &Sum| -> Sum {
            let of = |is_plain: bool| sum.iter().filter(move |part| (part.1 == 1.0) == is_plain);
            of(true).chain(of(false)).filter(|part| is_live(part.0)).copied().collect()
        };

        let is_used = |k: usize| is_live(Source::Term(k)) && outputs.iter().flatten().any(|p| p.0 == Source::Term(k));
        let terms = transform.terms.iter().enumerate().filter(|(k, _)| is_used(*k));
        let terms = terms.map(|(k, sum)| (k, live(sum))).collect();
        let outputs = outputs.iter().map(live).collect();
        Self { inputs: inputs.clone(), terms, outputs }
    }

    /// All of a transform of a number of inputs.
    pub(crate) fn whole(transform: &Transform, inputs: usize) -> Self {
        Self::new(transform, 0..inputs, transform.outputs.len())
    }
}

/// The two passes over a tile.
pub(crate) struct Passes<'t> {
    /// Down its columns, then across the rows.
    pub(crate) cuts: [&'t Cut; 2],
    /// Tiles side by side, as a vector.
    pub(crate) lanes: usize,
    /// What is between the passes, `[row, column, lane]`.
    pub(crate) half: BufferId,
    /// Terms that sums share, `[term, lane]`.
    pub(crate) terms: BufferId,
}

impl Passes<'_> {
    /// The nests. `read` gets column and lane: what is done first, and the elements of the column
    /// by their rows; `write` gets row and lane: what stores the elements of the row by their
    /// columns, and what is done behind that.
    pub(crate) fn nests<B: Builder, I: Fn(usize) -> Expr, O: Fn(usize, Expr) -> Node>(
        &self,
        builder: &mut B,
        read: impl FnOnce(&mut B, [Affine; 2]) -> (Vec<Node>, I),
        write: impl FnOnce(&mut B, [Affine; 2]) -> (O, Vec<Node>),
    ) -> Vec<Node> {
        let [down, across] = self.cuts;

        let columns = across.inputs.clone();
        let mut nodes = builder.repeat("x", columns.len(), LoopKind::Unrolled, |builder, x| {
            let x = x + columns.start as i64;
            builder.repeat("lane", self.lanes, LoopKind::Vectorized, |builder, lane| {
                let (mut nodes, input) = read(builder, [x.clone(), lane.clone()]);
                let at = |i| [constant(i), x.clone(), lane.clone()];
                nodes.extend(self.pass(down, &lane, input, |i, value| assign(self.half, at(i), value)));
                nodes
            })
        });
        nodes.extend(builder.repeat("i", down.outputs.len(), LoopKind::Unrolled, |builder, i| {
            builder.repeat("lane", self.lanes, LoopKind::Vectorized, |builder, lane| {
                let (output, behind) = write(builder, [i.clone(), lane.clone()]);
                let input = |x| load(self.half, [i.clone(), constant(x), lane.clone()]);
                let mut nodes = self.pass(across, &lane, input, output);
                nodes.extend(behind);
                nodes
            })
        }));
        nodes
    }

    /// The stores of a one-dimensional transform: shared terms into registers, then the outputs.
    fn pass(
        &self,
        cut: &Cut,
        lane: &Affine,
        input: impl Fn(usize) -> Expr,
        output: impl Fn(usize, Expr) -> Node,
    ) -> Vec<Node> {
        // Each is read several times: the reads share an index.
        let inputs: Vec<Expr> = cut.inputs.clone().map(input).collect();
        let terms: Vec<Index> =
            (0..cut.terms.last().map_or(0, |(k, _)| k + 1)).map(|k| [constant(k), lane.clone()].into()).collect();
        let value = |source| match source {
            Source::Input(k) => inputs[k - cut.inputs.start].clone(),
            Source::Term(k) => load(self.terms, terms[k].clone()),
        };
        let mut nodes = Vec::with_capacity(cut.terms.len() + cut.outputs.len());
        nodes.extend(cut.terms.iter().map(|(k, sum)| assign(self.terms, terms[*k].clone(), total(sum, value))));
        nodes.extend(cut.outputs.iter().enumerate().map(|(k, sum)| output(k, total(sum, value))));
        nodes
    }
}

pub(crate) fn constant(value: usize) -> Affine {
    Affine::constant(value as i64)
}

/// The sum as an expression.
fn total(sum: &Sum, value: impl Fn(Source) -> Expr) -> Expr {
    let product = |c: f64, x: Expr| if c == 1.0 { x } else { Expr::product(Expr::Const(c as f32), x) };
    let values = sum.iter().map(|&(source, c)| product(c, value(source)));
    values.reduce(add).unwrap_or(Expr::Const(0.0))
}
