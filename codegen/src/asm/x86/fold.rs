//! Horizontal reductions: the lanes of several vectors are combined into one vector.

use super::X86;
use super::encode::{Opcode, RegisterOrMemory};
use super::moves::{UNPACK_HIGH, UNPACK_LOW, UNPACK_LOW_PAIRS, WIDE};
use super::vectors::{COPY, SHUFFLE_QUARTERS, UNPACK_HIGH_PAIRS, VECTOR, opcode};
use crate::asm::instruction_set::{ArithmeticOperand, Combination, Vector, Vectors};
use autotune_ir::spec::Reduction;
use autotune_ir::target::Isa;

/// `vperm2f128`: two 128-bit halves of two vectors, selected by an immediate.
const PERMUTE_HALVES: Opcode = opcode(3, 1, 0x06);

/// Two shuffles of two vectors, each an opcode and an immediate. One result has half of the lanes
/// of either vector, the other result the other half.
type Merge = [(Opcode, Option<i64>); 2];

impl X86 {
    /// Returns the shuffles that merge two vectors of partial results, one row each: four levels
    /// with 512 bits, three with 256. Each level merges pairs of the previous level's results:
    ///
    /// ```text
    /// a0 a1 a2 a3 | ..   b0 b1 b2 b3 | ..   →  a0 b0 a1 b1 | ..  and  a2 b2 a3 b3 | ..       in each quarter
    /// a b a b | ..       c d c d | ..       →  a b c d | ..      and  a b c d | ..
    /// abcd | abcd | ..   efgh | efgh | ..   →  the lower quarters, and the upper ones, of both; and once more
    /// ```
    pub(super) fn merges(&self) -> Vec<Merge> {
        // Each merge halves the number of lanes per row: three merges for 8 lanes, four for 16.
        if self.isa != Isa::Avx512 {
            return vec![
                [(UNPACK_LOW, None), (UNPACK_HIGH, None)],
                [(UNPACK_LOW_PAIRS, None), (UNPACK_HIGH_PAIRS, None)],
                [(PERMUTE_HALVES, Some(0x20)), (PERMUTE_HALVES, Some(0x31))],
            ];
        }
        let [low, high] = [UNPACK_LOW_PAIRS, UNPACK_HIGH_PAIRS].map(|op| Opcode { prefix: op.prefix | WIDE, ..op });
        let quarters = |order: [i64; 2]| order.map(|order| (SHUFFLE_QUARTERS, Some(order)));
        vec![
            [(UNPACK_LOW, None), (UNPACK_HIGH, None)],
            [(low, None), (high, None)],
            quarters([0b01_00_01_00, 0b11_10_11_10]),
            quarters([0b10_00_10_00, 0b11_01_11_01]),
        ]
    }

    /// Returns the number of registers that [`X86::fold_rows`] overwrites: one pending result per
    /// level, two operands and a temporary.
    pub(super) fn folding_registers(&self) -> usize {
        self.merges().len() + 3
    }

    /// Reduces rows horizontally into the lanes of `to`. If there are fewer rows than lanes, the
    /// last one is repeated by merging it with itself.
    pub(super) fn fold_rows(&mut self, by: Reduction, to: Vector, rows: &[Vector], first: Vector) {
        let merges = self.merges();
        let mut free: Vec<Vector> = (first..).take(self.folding_registers()).collect();
        let folded = self.folded(by, &merges, rows, &mut free);
        self.whole(COPY, [to, 0], RegisterOrMemory::Register(folded), VECTOR);
    }

    /// Emits the two shuffles of a merge. The second register of `to` may be one of the operands.
    pub(super) fn merge_two(&mut self, merge: &Merge, to: [Vector; 2], [a, b]: [Vector; 2]) {
        for (v, (op, order)) in to.into_iter().zip(*merge) {
            self.whole(op, [v, a], RegisterOrMemory::Register(b), VECTOR);
            if let Some(order) = order {
                self.code.immediate(order, 1);
            }
        }
    }

    /// Reduces rows recursively; returns the register of the result, taken from `free`.
    fn folded(&mut self, by: Reduction, merges: &[Merge], rows: &[Vector], free: &mut Vec<Vector>) -> Vector {
        let (Some((merge, before)), Some(&first)) = (merges.split_last(), rows.first()) else { return 0 };
        let half = 1 << before.len();
        let is_row = before.is_empty();
        let (lower, upper) = rows.split_at(rows.len().min(half));
        let part = |code: &mut Self, rows: &[Vector], free: &mut Vec<Vector>| match is_row {
            true => rows.first().copied().unwrap_or(first),
            false => code.folded(by, before, rows, free),
        };

        let a = part(self, lower, free);
        // With fewer rows than lanes, the lanes without a row repeat another one and are ignored.
        let b = if upper.is_empty() { a } else { part(self, upper, free) };
        let mut taken = || free.pop().unwrap_or_default();
        let [one, other, spare] = [taken(), taken(), taken()];
        self.merge_two(merge, [one, other], [a, b]);
        let to_combine = ArithmeticOperand::Register(other);
        match Combination::of(by) {
            Combination::Arithmetic(op) => self.arithmetic(op, one, one, to_combine),
            Combination::Bound(bound) => self.bound(bound, one, to_combine, spare),
        }
        // Registers are returned at once: the recursion needs only one for each level.
        free.extend([other, spare]);
        if !is_row {
            free.push(a);
            free.extend((b != a).then_some(b));
        }
        one
    }
}
