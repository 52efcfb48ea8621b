//! Keys that do not count: those past the last key, and keys that a causal mask hides.
//!
//! ```text
//! for chunks of keys
//!   if the block's last query sees the first key                           (else left out)
//!     first_acc = Σ data * weight
//!     if the chunk has keys past the last one { where key >= n { first_acc = -infinity } }
//!     if the first query does not see the last key { where later { first_acc = -infinity } }
//!     ..
//! ```
//!
//! Conditions of whole chunks are equal for all threads of a block, so that the block may skip the
//! barriers of a chunk.

use super::PairLowering;
use crate::lower::nest::guarded;
use crate::lower::{assign, at, nest};
use autotune_ir::affine::{Affine, VarId};
use autotune_ir::program::{Expr, InBounds, Node};

impl PairLowering<'_> {
    /// Builds `first_acc = -infinity` for the thread's scores whose keys do not count. Their
    /// weights are then `exp(-infinity) = 0`, so that no later step needs a condition.
    pub(super) fn hide(&mut self) -> Vec<Node> {
        let mut nodes = Vec::new();
        for distance in [self.past_the_end(), self.later()].into_iter().flatten() {
            let (loops, index, _, point) = self.open_scores();
            let Some(hidden) = self.not_negative(at(&distance, &point)) else { continue };
            let value = assign(self.first.acc, index, Expr::Const(f32::NEG_INFINITY));
            let scores = nest(loops, guarded(hidden, vec![value]));
            // Most chunks have no such key.
            let most = self.in_chunk(&distance, i64::max);
            nodes.extend(self.not_negative(most).map(|any| guarded(any, scores)).unwrap_or_default());
        }
        nodes
    }

    /// Returns the condition that some query of the block sees a key of the chunk whose first key
    /// is `chunk`; none if no chunk is hidden.
    pub(super) fn is_seen(&self, chunk: &Affine) -> Vec<InBounds> {
        let (Some(later), Some([channel, _])) = (self.later(), self.fused.pair.channel) else { return Vec::new() };
        let mut distance = self.in_chunk(&later, i64::min);
        // The position is that of the given chunk instead of the present one.
        let step = later.coefficient(VarId(channel as u32));
        distance.add_scaled(&self.first.block_base[channel], -step);
        distance.add_scaled(chunk, step);
        self.not_negative(distance * -1 + -1).unwrap_or_default()
    }

    /// Returns the distance of a key from the last one plus one, in the axes of the first
    /// contraction: not negative past the last key.
    fn past_the_end(&self) -> Option<Affine> {
        let channel = self.fused.pair.channel?[0];
        Some(Affine::var(VarId(channel as u32)) + -(self.first.tiling.roles.extent(channel) as i64))
    }

    /// Returns an index in the axes of the first contraction that is not negative for keys which a
    /// causal mask hides.
    fn later(&self) -> Option<Affine> {
        let later = self.online.as_ref()?.softmax.later.as_ref()?;
        Some(later.distance.clone() + -1)
    }

    /// Returns the smallest or the largest value of an index in the block's tile and chunk.
    fn in_chunk(&self, index: &Affine, pick: fn(i64, i64) -> i64) -> Affine {
        let first = at(index, &self.first.block_base);
        let reach = |&(VarId(axis), c): &(VarId, i64)| pick(c * (self.first.tiling.tile(axis as usize) as i64 - 1), 0);
        first + index.terms.iter().map(reach).sum::<i64>()
    }

    /// Returns the condition that an index is not negative, which is empty if it always holds;
    /// `None` if it never does.
    fn not_negative(&self, index: Affine) -> Option<Vec<InBounds>> {
        let most = self.first.all.range(&index).1;
        let extent = usize::try_from(most + 1).ok().filter(|&extent| extent > 0)?;
        Some(self.first.all.guards([(index, extent)]))
    }
}
