//! Two-dimensional transform of a tile as loop nests: all columns first, then the rows of the
//! result.
//!
//! ```text
//! unrolled x { half[.., x] = down(column x of the tile) }
//! unrolled i { row i of the result = across(half[i, ..]) }
//! ```

use std::ops::Range;

use super::matrices::{Sum, SumTerm, Transform};
use crate::lower::nest::StageBuilder;
use crate::lower::{add, assign, load};
use autotune_ir::affine::Affine;
use autotune_ir::program::{BufferId, Expr, Index, LoopKind, Node};

/// A one-dimensional transform, reduced to nonzero inputs and wanted outputs.
#[derive(Clone, Debug)]
pub(crate) struct PartialTransform {
    /// Inputs that are not zero.
    inputs: Range<usize>,
    /// Terms that are used, with their positions.
    terms: Vec<(usize, Sum)>,
    outputs: Vec<Sum>,
}

impl PartialTransform {
    /// Reduces a transform to the first `outputs` outputs, for a vector that is zero outside
    /// `inputs`.
    pub(crate) fn new(transform: &Transform, inputs: Range<usize>, outputs: usize) -> Self {
        let (outputs, is_live) = (&transform.outputs[..outputs], transform.live(&inputs));
        // Operands with factor 1 come first, so that all later ones are fused multiply-adds.
        let live = |sum: &Sum| -> Sum {
            let of = |is_plain: bool| sum.iter().filter(move |part| (part.1 == 1.0) == is_plain);
            of(true).chain(of(false)).filter(|part| is_live(part.0)).copied().collect()
        };

        let is_used = |k: usize| is_live(SumTerm::Term(k)) && outputs.iter().flatten().any(|p| p.0 == SumTerm::Term(k));
        let terms = transform.terms.iter().enumerate().filter(|(k, _)| is_used(*k));
        let terms = terms.map(|(k, sum)| (k, live(sum))).collect();
        let outputs = outputs.iter().map(live).collect();
        Self { inputs: inputs.clone(), terms, outputs }
    }

    /// Keeps all of a transform with `inputs` inputs.
    pub(crate) fn whole(transform: &Transform, inputs: usize) -> Self {
        Self::new(transform, 0..inputs, transform.outputs.len())
    }
}

/// The two passes of a tile's transform.
pub(crate) struct Passes<'t> {
    /// Transforms down the columns and across the rows.
    pub(crate) cuts: [&'t PartialTransform; 2],
    /// Number of elements in a vector: tiles or channels that are transformed at once.
    pub(crate) lanes: usize,
    /// Result of the first pass, `[row, column, lane]`.
    pub(crate) half: BufferId,
    /// Shared terms, `[term, lane]`.
    pub(crate) terms: BufferId,
}

impl Passes<'_> {
    /// Returns the nests. `read` gets column and lane, and returns the nodes to run first and the
    /// column's elements by row. `write` gets row and lane, and returns the store of the row's
    /// elements by column and the nodes to run last.
    pub(crate) fn nests<B: StageBuilder, I: Fn(usize) -> Expr, O: Fn(usize, Expr) -> Node>(
        &self,
        builder: &mut B,
        read: impl FnOnce(&mut B, [Affine; 2]) -> (Vec<Node>, I),
        write: impl FnOnce(&mut B, [Affine; 2]) -> (O, Vec<Node>),
    ) -> Vec<Node> {
        let [down, across] = self.cuts;

        // Columns that are zero need no transform.
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

    /// Returns the stores of a one-dimensional transform: shared terms into registers, then the
    /// outputs.
    fn pass(
        &self,
        cut: &PartialTransform,
        lane: &Affine,
        input: impl Fn(usize) -> Expr,
        output: impl Fn(usize, Expr) -> Node,
    ) -> Vec<Node> {
        // Each input is read several times; the loads share one index.
        let inputs: Vec<Expr> = cut.inputs.clone().map(input).collect();
        let terms: Vec<Index> =
            (0..cut.terms.last().map_or(0, |(k, _)| k + 1)).map(|k| [constant(k), lane.clone()].into()).collect();
        let value = |source| match source {
            SumTerm::Input(k) => inputs[k - cut.inputs.start].clone(),
            SumTerm::Term(k) => load(self.terms, terms[k].clone()),
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

/// Returns the sum as an expression.
fn total(sum: &Sum, value: impl Fn(SumTerm) -> Expr) -> Expr {
    let product = |c: f64, x: Expr| if c == 1.0 { x } else { Expr::product(Expr::Const(c as f32), x) };
    let values = sum.iter().map(|&(source, c)| product(c, value(source)));
    values.reduce(add).unwrap_or(Expr::Const(0.0))
}
