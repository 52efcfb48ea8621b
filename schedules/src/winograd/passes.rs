//! A tile transformed along both axes, as nests: its columns first, then the rows of what that gives.
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
use autotune_ir::program::{BufferId, Expr, LoopKind, Node};

/// What transforms a tile along one axis, and how much of the tile there is.
#[derive(Clone, Debug)]
pub(crate) struct Cut<'t> {
    pub(crate) transform: &'t Transform,
    /// Inputs that are not zero.
    pub(crate) inputs: Range<usize>,
    /// Outputs that are wanted.
    pub(crate) outputs: usize,
}

impl<'t> Cut<'t> {
    /// All of a transform of so many inputs.
    pub(crate) fn whole(transform: &'t Transform, inputs: usize) -> Self {
        Self { transform, inputs: 0..inputs, outputs: transform.outputs.len() }
    }
}

/// The two passes over a tile.
pub(crate) struct Passes<'t> {
    /// Down its columns, then across the rows.
    pub(crate) cuts: [Cut<'t>; 2],
    /// Tiles side by side, as a vector.
    pub(crate) lanes: usize,
    /// What is between the passes, `[row, column, lane]`.
    pub(crate) half: BufferId,
    /// Terms that sums share, `[term, lane]`.
    pub(crate) terms: BufferId,
}

impl Passes<'_> {
    /// The nests. `read` gets column and lane: what is done first, and the elements of the column by their rows; `write` gets row and
    /// lane: what stores the elements of the row by their columns, and what is done behind that.
    pub(crate) fn nests<B: Builder, I: Fn(usize) -> Expr, O: Fn(usize, Expr) -> Node>(
        &self,
        builder: &mut B,
        read: impl FnOnce(&mut B, [Affine; 2]) -> (Vec<Node>, I),
        write: impl FnOnce(&mut B, [Affine; 2]) -> (O, Vec<Node>),
    ) -> Vec<Node> {
        let [down, across] = &self.cuts;

        let columns = across.inputs.clone();
        let mut nodes = builder.repeat("x", columns.len(), LoopKind::Unrolled, |builder, x| {
            let x = x + columns.start as i64;
            builder.repeat("lane", self.lanes, LoopKind::Vectorized, |builder, lane| {
                let (mut nodes, input) = read(builder, [x.clone(), lane.clone()]);
                let at = |i| vec![constant(i), x.clone(), lane.clone()];
                nodes.extend(self.pass(down, &lane, input, |i, value| assign(self.half, at(i), value)));
                nodes
            })
        });
        nodes.extend(builder.repeat("i", down.outputs, LoopKind::Unrolled, |builder, i| {
            builder.repeat("lane", self.lanes, LoopKind::Vectorized, |builder, lane| {
                let (output, behind) = write(builder, [i.clone(), lane.clone()]);
                let input = |x| load(self.half, vec![i.clone(), constant(x), lane.clone()]);
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
        let Cut { transform, inputs, outputs } = cut;
        let outputs = &transform.outputs[..*outputs];
        let term = |k: usize| vec![constant(k), lane.clone()];
        let value = |source| match source {
            Source::Input(k) => input(k),
            Source::Term(k) => load(self.terms, term(k)),
        };
        let is_live = transform.live(inputs);
        let total = |sum: &Sum| total(sum.iter().filter(|part| is_live(part.0)), value);
        let is_used = |k: usize| is_live(Source::Term(k)) && outputs.iter().flatten().any(|p| p.0 == Source::Term(k));

        let shared = transform.terms.iter().enumerate().filter(|(k, _)| is_used(*k));
        let mut nodes = Vec::with_capacity(transform.terms.len() + outputs.len());
        nodes.extend(shared.map(|(k, sum)| assign(self.terms, term(k), total(sum))));
        nodes.extend(outputs.iter().enumerate().map(|(k, sum)| output(k, total(sum))));
        nodes
    }
}

pub(crate) fn constant(value: usize) -> Affine {
    Affine::constant(value as i64)
}

/// The sum as an expression: parts with factor 1 first, so that what follows are fused multiply-adds.
fn total<'s>(parts: impl Iterator<Item = &'s (Source, f64)> + Clone, value: impl Fn(Source) -> Expr) -> Expr {
    let product = |c: f64, x: Expr| if c == 1.0 { x } else { Expr::product(Expr::Const(c as f32), x) };
    let (plain, scaled) = (parts.clone().filter(|part| part.1 == 1.0), parts.filter(|part| part.1 != 1.0));
    let values = plain.chain(scaled).map(|&(source, c)| product(c, value(source)));
    values.reduce(add).unwrap_or(Expr::Const(0.0))
}
