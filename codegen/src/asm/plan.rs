//! The order of a block's operations, and where its sources are used.

use super::leaf::{Block, Input, Op};

/// No position, source or register.
pub(super) const NONE: u32 = u32::MAX;

/// Operations of a run, at most: one to each accumulator.
const RUN: u32 = 32;

/// The order in which operations are emitted, and the uses of each source in that order.
#[derive(Default)]
pub(super) struct Plan {
    /// Numbers of operations.
    pub(super) order: Vec<u32>,
    /// By source.
    pub(super) uses: Vec<Uses>,
    /// A position where a source is used, and the number of the next entry of the same source.
    list: Vec<(u32, u32)>,
    /// By source, the first operation of the present run that has it as its first factor, and as
    /// its second.
    first: Vec<[u32; 2]>,
}

/// What is to come for a source.
#[derive(Clone, Copy)]
pub(super) struct Uses {
    /// Number of its entry in the list; entries before it are past.
    next: u32,
    /// The register that holds it, if there is one.
    pub(super) temp: u32,
}

impl Plan {
    /// Plans a block.
    pub(super) fn make(&mut self, block: Block) {
        self.make_order(block.ops, block.sources.len());
        self.uses.clear();
        self.uses.resize(block.sources.len(), Uses { next: NONE, temp: NONE });
        self.list.clear();
        for at in (0..self.order.len() as u32).rev() {
            match block.ops[self.order[at as usize] as usize] {
                Op::MulAdd { factors, .. } => factors.into_iter().for_each(|id| self.add_use(id, at)),
                Op::Store { value, .. } => {
                    block.inputs_of(value).iter().filter_map(|it| it.source()).for_each(|id| self.add_use(id, at));
                }
                Op::Combine { of: (a, b), .. } => {
                    b.into_iter().chain([a]).filter_map(Input::source).for_each(|id| self.add_use(id, at));
                }
                Op::Prefetch { .. } | Op::Fold { .. } => {}
            }
        }
    }

    fn add_use(&mut self, id: u32, at: u32) {
        let next = &mut self.uses[id as usize].next;
        self.list.push((at, *next));
        *next = self.list.len() as u32 - 1;
    }

    /// Position of the first use of a source behind `at`, which must not go back.
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

    /// Within each run of multiply-adds to distinct accumulators, those that share a factor of the
    /// kind with more distinct values follow one another, so that the fewer stay in registers.
    fn make_order(&mut self, ops: &[Op], sources: usize) {
        self.order.clear();
        self.first.clear();
        self.first.resize(sources, [NONE; 2]);

        let mut start = 0;
        while start < ops.len() {
            // A run: multiply-adds to accumulators that are all different, and how many factors
            // there are of either kind.
            let (mut written, mut end) = (0u32, start);
            let mut distinct = [0, 0];
            while let Some(&Op::MulAdd { acc, factors, .. }) = ops.get(end) {
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

            // Sorted by the first operation with the same factor, then by their own places in the
            // run.
            let side = usize::from(distinct[0] <= distinct[1]);
            let run = start as u32;
            for (place, op) in (0..).zip(&ops[start..end]) {
                if let Op::MulAdd { factors, .. } = op {
                    self.order.push((self.first[factors[side] as usize][side] - run) * RUN + place);
                }
            }
            let order = &mut self.order[start..];
            order.sort_unstable();
            order.iter_mut().for_each(|place| *place = run + *place % RUN);

            // What is no multiply-add stays where it is.
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
    use crate::asm::nest::Tree;
    use autotune_ir::program::StoreMode;

    #[test]
    fn multiply_adds_are_grouped_by_the_factor_of_more_values() {
        let grid = |step: u16, rows: u32, columns: u32| {
            let at = move |(i, (r, c))| Op::MulAdd {
                acc: step + i as u16,
                part: 0,
                factors: [r, rows + c],
                by: Arithmetic::MulAdd,
            };
            (0..rows).flat_map(move |r| (0..columns).map(move |c| (r, c))).enumerate().map(at)
        };
        let mut ops = Vec::new();
        // Two steps over the same 2 x 3 accumulators, between them another kind of operation.
        for _ in 0..2 {
            ops.extend(grid(0, 2, 3));
            ops.push(Op::Store { dst: Input::Accumulator(9), mode: StoreMode::Assign, value: Tree::default() });
        }
        let mut plan = Plan::default();
        plan.make_order(&ops, 5);
        assert_eq!(plan.order, [0, 3, 1, 4, 2, 5, 6, 7, 10, 8, 11, 9, 12, 13]);
    }
}
