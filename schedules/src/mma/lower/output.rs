//! The end of the compute stage: sums from registers to the output.

use super::Lowering;
use crate::lower::partial::fused;
use crate::lower::{assign, load, nest};
use autotune_ir::affine::Affine;
use autotune_ir::program::{LoopKind, Node};

impl Lowering<'_> {
    /// `output = act(acc + bias + residual)` or `partial[part] = acc` where the tile does not stick out:
    ///
    /// ```text
    /// unrolled i, h { (n, y, x) = row { unrolled j { vectorized c in 0..2*run { if inside { output[.., column] = .. } } } } }
    /// ```
    pub(super) fn write_output(&mut self) -> Vec<Node> {
        let gemm = &self.mma.gemm;
        let ([rows, columns], run) = (self.mma.instructions(), gemm.run);
        let (mut outer, mut inner) = (Vec::new(), Vec::new());
        let i = self.open("i", rows, LoopKind::Unrolled, &mut outer);
        let h = self.open("h", 2, LoopKind::Unrolled, &mut outer);
        let j = self.open("j", columns / run, LoopKind::Unrolled, &mut inner);
        let c = self.open("c", 2 * run, LoopKind::Vectorized, &mut inner);
        let mut at = self.block.clone();
        at.row = at.row + self.row(i.clone(), h.clone());
        at.column =
            at.column + self.columns([j.clone(), Affine::default(), self.lane[1].clone(), c.clone()])[0].clone();
        let acc = load(self.acc, vec![i, j, h, c]);
        let store = |this: &Self, at: &super::Place| {
            let (index, channel) = gemm.output(at);
            let store = match this.partial {
                Some(partial) => assign(partial, [std::slice::from_ref(&this.part), &index[..]].concat(), acc),
                None => {
                    let value = fused(this.workload, &this.operands, acc, channel, &index);
                    assign(this.operands.output, index, value)
                }
            };
            let column = (at.column.clone(), gemm.columns.extent);
            let row = at.pixel.is_empty().then(|| (at.row.clone(), gemm.rows.extent));
            let when = this.guards(row.into_iter().chain([column]));
            let body = if when.is_empty() { vec![store] } else { vec![Node::Guard { when, body: vec![store] }] };
            nest(inner, body)
        };
        let names = gemm.pixels();
        let body = match names.is_empty() {
            true => store(self, &at),
            false => self.unflatten(at.row.clone(), &names, |this, pixel| store(this, &super::Place { pixel, ..at })),
        };
        nest(outer, body)
    }
}
