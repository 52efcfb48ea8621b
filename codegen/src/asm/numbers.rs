//! Fast maximum that ignores NaN, with a NaN check and a fallback.
//!
//! A NaN-propagating maximum takes two or three instructions, one that ignores NaN takes one. So a
//! leaf that only computes maxima is emitted in two forms. The first uses the fast maximum. It also
//! sums up products of the loaded values, two values each. A sum is NaN if a value is NaN, or
//! sometimes if one is infinite. Then the second form, the original leaf, computes everything
//! again.
//!
//! ```text
//! a0 = max(x0, x1); a0 = max(a0, x2); a1 = max(x2, x3)
//!   →  s0 = 1; s1 = 1; s0 += x0 * x1; a0 = max_number(x0, x1); s1 += x2 * x3; a0 = max_number(a0, x2); a1 = max_number(x2, x3);
//!      if s0 + s1 is NaN { a0 = max(x0, x1); a0 = max(a0, x2); a1 = max(x2, x3) }
//! ```
//!
//! Multiply-adds use other execution units than maxima, or take as many slots as the instructions
//! that they replace. The sums start at one, so that they are hardly ever subnormal, which is slow
//! on some CPUs.

use std::ops::Range;

use super::instruction_set::{Arithmetic, Vector, Vectors};
use super::leaf::{Block, BlockOp, Item, Leaf, LeafInput, LeafSource};
use super::nest::LeafNest;
use super::share::{combination, share, spare};
use autotune_ir::program::BufferId;
use autotune_ir::spec::Reduction;

/// Minimum number of maxima that outweighs the cost of the check.
const FEWEST: usize = 16;

/// Number of registers for the sums. With one, each addition would wait for the previous one.
const SUMS: Range<usize> = 2..5;

/// The fast form of a leaf, which ignores NaN.
pub(super) struct OfNumbers {
    pub(super) leaf: Leaf,
    /// Register of a sum that is NaN if any value is.
    pub(super) sum: Vector,
}

impl OfNumbers {
    /// Returns the fast form of a leaf that computes maxima, before common subexpressions are
    /// shared.
    ///
    /// Returns `None` if registers are lacking, if the fallback could compute something else, or if
    /// the form is not faster.
    pub(super) fn of(leaf: &Leaf, nest: &LeafNest, isa: &impl Vectors) -> Option<Self> {
        let all = leaf.block(nest, &(0..leaf.ops.len()), &(0..leaf.sources.len()));
        let is_maximum = |op: &BlockOp| matches!(combination(all, op), Some((Reduction::Max, ..)));
        if !all.ops.iter().any(is_maximum) {
            return None;
        }
        let (registers, to_fold) = (isa.registers(), isa.fold_registers());
        let spare = spare(all, to_fold);
        let mut leaf = leaf.clone();
        // Leave registers for the minimum number of sums.
        share(&mut leaf, nest, (registers.saturating_sub(SUMS.start), to_fold));
        let count = registers.saturating_sub(leaf.reserved_registers() + spare).min(SUMS.end - 1);
        if !SUMS.contains(&count) || !is_repeatable(&leaf, nest) {
            return None;
        }

        let first = leaf.reserved_registers() as u16;
        let mut rewritten = Rewritten::new(first..first + count as u16);
        let mut items = vec![rewritten.initial_block(leaf.sources.len())];
        for item in &leaf.items {
            items.push(match item {
                Item::Block { ops, sources } => rewritten.block(leaf.block(nest, ops, sources), sources),
                Item::Begin { .. } | Item::End { .. } => item.clone(),
            });
        }
        items.push(rewritten.final_block());
        if !rewritten.is_faster(isa) {
            return None;
        }
        // The initial value of the sums is a source after those of all blocks.
        leaf.sources.push(LeafSource::Constant(f32::to_bits(1.0)));
        leaf.shared += count;
        (leaf.items, leaf.ops) = (items, rewritten.ops);
        Some(Self { leaf, sum: first as Vector })
    }
}

/// True if a leaf can be computed twice: it only computes maxima of values from memory, and stores
/// to other buffers than it reads.
fn is_repeatable(leaf: &Leaf, nest: &LeafNest) -> bool {
    let (mut read, mut written) = (Vec::new(), Vec::new());
    for item in &leaf.items {
        let Item::Block { ops, sources } = item else { continue };
        let code = leaf.block(nest, ops, sources);
        let buffers = |inputs: &[LeafInput]| -> Vec<Option<BufferId>> {
            inputs.iter().filter_map(|it| it.source()).map(|id| code.buffer_of(id)).collect()
        };

        for op in code.ops {
            match *op {
                // Only maxima may read memory, since only their operands are checked.
                BlockOp::Store { value, .. } if buffers(code.inputs_of(value)).iter().any(Option::is_some) => {
                    return false;
                }
                BlockOp::Store { dst, .. } => written.extend(buffers(&[dst])),
                BlockOp::Combine { by: Reduction::Max, of: (a, b), .. } => read.extend(buffers(&[a, b.unwrap_or(a)])),
                BlockOp::Fold { .. } | BlockOp::Prefetch { .. } => {}
                BlockOp::MulAdd { .. } | BlockOp::Combine { .. } => return false,
            }
        }
    }
    read.iter().all(|buffer| buffer.is_some() && !written.contains(buffer))
}

/// Builder of the fast form's operations.
struct Rewritten {
    sums: Range<u16>,
    /// Position of the sum to add to next.
    next: usize,
    /// Source that waits for a second factor.
    half: Option<u32>,
    ops: Vec<BlockOp>,
    /// Number of maxima in the leaf.
    maxima: usize,
    /// Number of loaded values that go into maxima.
    loads: usize,
}

impl Rewritten {
    fn new(sums: Range<u16>) -> Self {
        Self { sums, next: 0, half: None, ops: Vec::new(), maxima: 0, loads: 0 }
    }

    /// Returns a block that sets the sums to a constant, the leaf's source number `one`.
    fn initial_block(&mut self, one: usize) -> Item {
        let set = |acc: u16| BlockOp::Combine { acc, by: Reduction::Sum, of: (LeafInput::Source(0), None) };
        self.ops.extend(self.sums.clone().map(set));
        Item::Block { ops: 0..self.ops.len(), sources: one..one + 1 }
    }

    fn block(&mut self, code: Block, sources: &Range<usize>) -> Item {
        let begin = self.ops.len();
        let mut is_added = vec![false; code.sources.len()];
        for op in code.ops {
            let mut op = *op;
            if let BlockOp::Combine { of: (a, b), .. } = op {
                self.maxima += 1;
                for id in [Some(a), b].into_iter().flatten().filter_map(LeafInput::source) {
                    // Each loaded value is checked once per block.
                    if !std::mem::replace(&mut is_added[id as usize], true) {
                        self.loads += 1;
                        self.add(id);
                    }
                }
            }

            if let BlockOp::Combine { by: by @ Reduction::Max, .. }
            | BlockOp::Fold { by: Some(by @ Reduction::Max), .. } = &mut op
            {
                *by = Reduction::MaxNumber;
            }
            self.ops.push(op);
        }
        // A source without a second factor is multiplied by itself.
        if let Some(half) = self.half {
            self.add(half);
        }
        Item::Block { ops: begin..self.ops.len(), sources: sources.clone() }
    }

    /// Returns a block that adds the other sums to the first.
    fn final_block(&mut self) -> Item {
        let (begin, acc) = (self.ops.len(), self.sums.start);
        let of = |sum: u16| (LeafInput::Accumulator(acc), Some(LeafInput::Accumulator(sum)));
        self.ops.extend(self.sums.clone().skip(1).map(|sum| BlockOp::Combine { acc, by: Reduction::Sum, of: of(sum) }));
        Item::Block { ops: begin..self.ops.len(), sources: 0..0 }
    }

    /// True if the fast form is faster, as measured on Zen 4.
    ///
    /// If the NaN-propagating maximum takes two instructions, there must be more maxima than loaded
    /// values. If it takes three, more than three quarters as many.
    fn is_faster(&self, isa: &impl Vectors) -> bool {
        self.maxima >= FEWEST && self.maxima * (isa.bound_instructions() + 1) > 3 * self.loads
    }

    /// Adds the product of a source and the previous one to the next sum. Without a previous one,
    /// the source waits.
    fn add(&mut self, id: u32) {
        let Some(half) = self.half.take() else {
            self.half = Some(id);
            return;
        };
        let acc = self.sums.start + self.next as u16;
        self.next = (self.next + 1) % self.sums.len();
        self.ops.push(BlockOp::MulAdd { acc, part: 0, factors: [half, id], by: Arithmetic::MulAdd });
    }
}
