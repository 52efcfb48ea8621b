//! Order of a block's operations, and the positions where its sources are used.

use super::leaf::{Block, BlockOp, LeafInput};

/// Stands for no position, no source or no register.
pub(super) const NONE: u32 = u32::MAX;

/// Maximum number of operations in a run: one per accumulator.
const RUN: u32 = 32;

/// Order in which operations are emitted, and the uses of each source in that order.
#[derive(Default)]
pub(super) struct EmitOrder {
    /// Numbers of operations in the order of emission.
    pub(super) order: Vec<u32>,
    /// Next use and register of each source.
    pub(super) uses: Vec<SourceUses>,
    /// Linked lists of uses: a position, and the number of the next entry for the same source.
    list: Vec<(u32, u32)>,
    /// For each source, the first operation of the current run that has it as its first factor, and
    /// as its second.
    first: Vec<[u32; 2]>,
}

/// Remaining uses of a source, and its register.
#[derive(Clone, Copy)]
pub(super) struct SourceUses {
    /// Number of its current entry in the list; earlier entries are past.
    next: u32,
    /// Register that holds the source, or [`NONE`].
    pub(super) temp: u32,
}

impl EmitOrder {
    /// Plans a block: orders its operations and collects the uses of sources.
    pub(super) fn make(&mut self, block: Block) {
        self.make_order(block.ops, block.sources.len());
        self.uses.clear();
        self.uses.resize(block.sources.len(), SourceUses { next: NONE, temp: NONE });
        self.list.clear();
        // Backwards, so that each entry is put in front of the later uses.
        for at in (0..self.order.len() as u32).rev() {
            match block.ops[self.order[at as usize] as usize] {
                BlockOp::MulAdd { factors, .. } => factors.into_iter().for_each(|id| self.add_use(id, at)),
                BlockOp::Store { value, .. } => {
                    block.inputs_of(value).iter().filter_map(|it| it.source()).for_each(|id| self.add_use(id, at));
                }
                BlockOp::Combine { of: (a, b), .. } => {
                    b.into_iter().chain([a]).filter_map(LeafInput::source).for_each(|id| self.add_use(id, at));
                }
                BlockOp::Prefetch { .. } | BlockOp::Fold { .. } => {}
            }
        }
    }

    fn add_use(&mut self, id: u32, at: u32) {
        let next = &mut self.uses[id as usize].next;
        self.list.push((at, *next));
        *next = self.list.len() as u32 - 1;
    }

    /// Returns the position of the first use of a source after `at`. Calls must have increasing
    /// `at`.
    pub(super) fn next_use(&mut self, id: u32, at: u32) -> u32 {
        let next = &mut self.uses[id as usize].next;
        while let Some(&(used_at, following)) = self.list.get(*next as usize) {
            if used_at > at {
                return used_at;
            }
            *next = following;
        }
        NONE
    }

    /// Orders operations so that fewer sources must stay in registers.
    ///
    /// Within each run of multiply-adds to distinct accumulators, those that share a factor are
    /// adjacent. The factor is of the side with more distinct values; the values of the other side
    /// stay in registers.
    fn make_order(&mut self, ops: &[BlockOp], sources: usize) {
        self.order.clear();
        self.first.clear();
        self.first.resize(sources, [NONE; 2]);

        let mut start = 0;
        while start < ops.len() {
            // A run: multiply-adds to different accumulators. Counts the distinct factors on either
            // side.
            let (mut written, mut end) = (0u32, start);
            let mut distinct = [0, 0];
            while let Some(&BlockOp::MulAdd { acc, factors, .. }) = ops.get(end) {
                if written & 1 << acc != 0 {
                    break;
                }
                written |= 1 << acc;
                for side in 0..2 {
                    let first = &mut self.first[factors[side] as usize][side];
                    if *first == NONE || (*first as usize) < start {
                        *first = end as u32;
                        distinct[side] += 1;
                    }
                }
                end += 1;
            }

            // Sort by the first operation with the same factor, then by position in the run.
            let side = usize::from(distinct[0] <= distinct[1]);
            let run = start as u32;
            for (place, op) in (0..).zip(&ops[start..end]) {
                if let BlockOp::MulAdd { factors, .. } = op {
                    self.order.push((self.first[factors[side] as usize][side] - run) * RUN + place);
                }
            }
            let order = &mut self.order[start..];
            order.sort_unstable();
            order.iter_mut().for_each(|place| *place = run + *place % RUN);

            // Other operations keep their position.
            if end == start {
                self.order.push(run);
                end += 1;
            }
            start = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asm::instruction_set::Arithmetic;
    use crate::asm::nest::ValueTree;
    use autotune_ir::program::StoreMode;

    #[test]
    fn multiply_adds_are_grouped_by_the_factor_of_more_values() {
        let grid = |step: u16, rows: u32, columns: u32| {
            let at = move |(i, (r, c))| BlockOp::MulAdd {
                acc: step + i as u16,
                part: 0,
                factors: [r, rows + c],
                by: Arithmetic::MulAdd,
            };
            (0..rows).flat_map(move |r| (0..columns).map(move |c| (r, c))).enumerate().map(at)
        };
        let mut ops = Vec::new();
        // Two steps over the same 2 x 3 accumulators, separated by another kind of operation.
        for _ in 0..2 {
            ops.extend(grid(0, 2, 3));
            ops.push(BlockOp::Store {
                dst: LeafInput::Accumulator(9),
                mode: StoreMode::Assign,
                value: ValueTree::default(),
            });
        }
        let mut plan = EmitOrder::default();
        plan.make_order(&ops, 5);
        assert_eq!(plan.order, [0, 3, 1, 4, 2, 5, 6, 7, 10, 8, 11, 9, 12, 13]);
    }
}
