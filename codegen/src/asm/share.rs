//! Common subexpressions of reductions: values that several accumulators combine, such as those of
//! overlapping windows, are combined once.
//!
//! ```text
//! a0 = max(x0, a0); a0 = max(x1, a0); a0 = max(x2, a0); a1 = max(x1, a1); a1 = max(x2, a1); a1 = max(x3, a1)
//!   →  t = max(x1, x2); a0 = max(x0, a0); a0 = max(t, a0); a1 = max(t, a1); a1 = max(x3, a1)
//! ```
//!
//! Repeatedly, the two values that most accumulators combine are replaced by one (Breuer,
//! "Generation of optimal code for expressions via factorization", 1969). The order of accumulators
//! keeps few shared values live at a time.

use std::cmp::Reverse;
use std::ops::Range;

use super::block::WANTED;
use super::fold::combined_by;
use super::leaf::{Block, BlockOp, Item, Leaf, LeafInput, LeafSource};
use super::nest::{LeafNest, ValueKind, ValueTree};
use autotune_ir::program::StoreMode;
use autotune_ir::spec::Reduction;

/// Maximum number of accumulators in a run: the bits of a mask.
const MOST_ACCUMULATORS: usize = 32;

/// Number of registers to leave for operands if no value is computed in steps.
const SPARE: usize = 3;

/// Rewrites the blocks of a leaf where sharing saves instructions.
///
/// `registers` is the number of vector registers, and `to_fold` the number that horizontal
/// reductions need. Maxima and minima that are not shared become [`BlockOp::Combine`], too.
pub(super) fn share(leaf: &mut Leaf, nest: &LeafNest, (registers, to_fold): (usize, usize)) {
    let all = leaf.block(nest, &(0..leaf.ops.len()), &(0..leaf.sources.len()));
    let combines = |op: &BlockOp| combination(all, op).is_some();
    if !all.ops.iter().any(combines) {
        return;
    }
    let (first, mut taken) = (leaf.accumulators.len(), 0);
    let available = registers.saturating_sub(first + spare(all, to_fold));

    let (mut rewritten, mut ranges) = (Vec::with_capacity(leaf.ops.len()), Vec::new());
    for item in &leaf.items {
        let Item::Block { ops, sources } = item else { continue };
        let (code, begin) = (leaf.block(nest, ops, sources), rewritten.len());
        let mut rest = code.ops;
        while !rest.is_empty() {
            let run = CombineRun::of(code, rest);
            let (of_run, behind) = rest.split_at(run.as_ref().map_or(1, |(_, len, _)| *len));
            match run.and_then(|(run, _, kept)| Some((kept, run.shared(first, available)?))) {
                Some((kept, (shared, registers))) => {
                    // The run's own accumulators need not be cleared: their first combination
                    // assigns them.
                    rewritten.extend(kept.into_iter().chain(shared));
                    taken = taken.max(registers);
                }
                None => rewritten.extend(of_run.iter().map(|op| bounded(code, op).unwrap_or(*op))),
            }
            rest = behind;
        }
        ranges.push(begin..rewritten.len());
    }

    let blocks = leaf.items.iter_mut().filter_map(|item| match item {
        Item::Block { ops, .. } => Some(ops),
        Item::Begin { .. } | Item::End { .. } => None,
    });

    blocks.zip(ranges).for_each(|(ops, range)| *ops = range);
    (leaf.ops, leaf.shared) = (rewritten, taken);
}

/// Returns the number of registers to leave for the operands of a leaf's operations; horizontal
/// reductions take `to_fold`.
pub(super) fn spare(all: Block, to_fold: usize) -> usize {
    let has_steps = |op: &BlockOp| matches!(op, BlockOp::Store { value: ValueTree { steps: Some(_), .. }, .. });
    let computes = all.ops.iter().any(|op| has_steps(op) && combination(all, op).is_none());
    let folds = all.ops.iter().any(|op| matches!(op, BlockOp::Fold { .. }));
    let to_compute = if computes { WANTED.into() } else { SPARE };
    if folds { to_fold.max(to_compute) } else { to_compute }
}

/// Returns a maximum or minimum of an accumulator and a source as [`BlockOp::Combine`]. That needs
/// a single temporary, for the NaN check, instead of the [`WANTED`] registers of steps.
fn bounded(code: Block, op: &BlockOp) -> Option<BlockOp> {
    let (by, acc, source) = combination(code, op).filter(|(by, ..)| *by != Reduction::Sum)?;
    Some(BlockOp::Combine { acc, by, of: (LeafInput::Accumulator(acc), Some(LeafInput::Source(source))) })
}

/// Returns the operator, accumulator and source, if an operation combines an accumulator with a
/// source.
pub(super) fn combination(code: Block, op: &BlockOp) -> Option<(Reduction, u16, u32)> {
    let BlockOp::Store { dst: LeafInput::Accumulator(acc), mode, value } = *op else { return None };
    let kind = |value: u32| code.values[value as usize].kind;
    let root = kind(value.root);
    // Operands that are computed themselves are no sources.
    let is_plain = root.operands().iter().all(|&value| matches!(kind(value), ValueKind::Input(_)));
    match (combined_by(mode, root).filter(|_| is_plain)?, code.inputs_of(value)) {
        (by @ Reduction::Sum, &[LeafInput::Source(source)]) => Some((by, acc, source)),
        (
            by @ (Reduction::Max | Reduction::Min),
            &[LeafInput::Source(source), LeafInput::Accumulator(other)]
            | &[LeafInput::Accumulator(other), LeafInput::Source(source)],
        ) => (other == acc).then_some((by, acc, source)),
        _ => None,
    }
}

/// Returns the accumulator that an operation sets to a constant, and the constant's bits.
fn cleared(code: Block, op: &BlockOp) -> Option<(u16, u32)> {
    let BlockOp::Store { dst: LeafInput::Accumulator(acc), mode: StoreMode::Assign, value } = *op else { return None };
    let (ValueKind::Input(_), &[LeafInput::Source(source)]) =
        (code.values[value.root as usize].kind, code.inputs_of(value))
    else {
        return None;
    };
    match code.sources[source as usize] {
        LeafSource::Constant(bits) => Some((acc, bits)),
        LeafSource::Memory(_) => None,
    }
}

/// Consecutive operations that combine sources into accumulators with one operator.
struct CombineRun {
    by: Reduction,
    accumulators: Vec<Combined>,
    /// Sources, each with a bit mask of the accumulators that combine it.
    terms: Vec<(u32, u32)>,
}

/// An accumulator of a run.
#[derive(Clone, Copy)]
struct Combined {
    acc: u16,
    /// True if the accumulator's initial value is combined too, false if it was just cleared.
    holds: bool,
}

impl CombineRun {
    /// Returns the run at the beginning of some operations, after operations that clear
    /// accumulators.
    ///
    /// Also returns the total number of these operations, and those that clear an accumulator whose
    /// value is not redundant.
    fn of(code: Block, ops: &[BlockOp]) -> Option<(Self, usize, Vec<BlockOp>)> {
        let clears = ops.iter().map_while(|op| cleared(code, op)).take(MOST_ACCUMULATORS);
        let clears: Vec<(u16, u32)> = clears.collect();
        let (by, ..) = combination(code, ops.get(clears.len())?)?;
        let mut run = Self { by, accumulators: Vec::new(), terms: Vec::new() };
        for op in &ops[clears.len()..] {
            let Some((_, acc, source)) = combination(code, op).filter(|combination| combination.0 == by) else { break };
            let is_cleared = || clears.contains(&(acc, by.neutral().to_bits()));
            if !run.add(acc, source, is_cleared) {
                break;
            }
        }

        let is_kept = |(acc, _): &(u16, u32)| run.accumulators.iter().all(|known| known.acc != *acc || known.holds);
        let kept = clears.iter().zip(ops).filter(|(clear, _)| is_kept(clear)).map(|(_, op)| *op).collect();
        let len = clears.len() + run.count();
        Some((run, len, kept))
    }

    /// Returns the number of operations in the run.
    fn count(&self) -> usize {
        self.terms.iter().map(|term| term.1.count_ones() as usize).sum()
    }

    /// Adds a combination. Returns false if there are too many accumulators, or if the accumulator
    /// combines the source already.
    fn add(&mut self, acc: u16, source: u32, is_cleared: impl Fn() -> bool) -> bool {
        let known = self.accumulators.iter().position(|known| known.acc == acc);
        let number = known.unwrap_or(self.accumulators.len());
        if number == MOST_ACCUMULATORS {
            return false;
        }
        match self.terms.iter_mut().find(|term| term.0 == source) {
            // A sum may contain a source twice, which a mask cannot express.
            Some((_, mask)) if *mask & 1 << number != 0 => return false,
            Some((_, mask)) => *mask |= 1 << number,
            None => self.terms.push((source, 1 << number)),
        }
        if known.is_none() {
            self.accumulators.push(Combined { acc, holds: !is_cleared() });
        }
        true
    }

    /// Returns a shorter equivalent of the run, and the number of registers from `first` on that it
    /// needs; `None` if `available` registers do not suffice.
    fn shared(&self, first: usize, available: usize) -> Option<(Vec<BlockOp>, usize)> {
        let (ops, taken) = Factored::of(self, true).scheduled(first);
        if taken <= available {
            return (ops.len() < self.count()).then_some((ops, taken));
        }

        // Too many values are live: share within each half of the accumulators only.
        let half = self.accumulators.len() / 2;
        let parts = [0..half, half..self.accumulators.len()].map(|range| self.part(range));
        let of_part =
            |part: &Self| part.shared(first, available).unwrap_or_else(|| Factored::of(part, false).scheduled(first));
        let [(mut ops, taken), (others, taken_by_others)] = parts.each_ref().map(of_part);
        ops.extend(others);
        (half > 0 && ops.len() < self.count()).then_some((ops, taken.max(taken_by_others)))
    }

    /// Returns the part of the run for some of its accumulators.
    fn part(&self, range: Range<usize>) -> Self {
        // Computed in 64 bits, since the range may end at bit 32.
        let mask = ((1u64 << range.end) - (1u64 << range.start)) as u32;
        let of_part = |&(source, of): &(u32, u32)| (of & mask != 0).then_some((source, (of & mask) >> range.start));
        let terms = self.terms.iter().filter_map(of_part).collect();
        Self { by: self.by, accumulators: self.accumulators[range].to_vec(), terms }
    }
}

/// A run with shared values: combinations used several times, and the values left for each
/// accumulator. Values are numbered: first the run's sources, then the nodes.
struct Factored<'r> {
    run: &'r CombineRun,
    /// Shared combinations, each by the numbers of its two operands; nodes come after their
    /// operands.
    nodes: Vec<[usize; 2]>,
    /// Numbers of the values that each accumulator combines.
    values: Vec<Vec<usize>>,
}

impl<'r> Factored<'r> {
    /// Factors a run. Without `shares`, nothing is shared: each accumulator combines its sources.
    ///
    /// The pair that most accumulators combine is shared first. Of several such pairs, it is the
    /// one with the fewest accumulators that combine only one of the two.
    fn of(run: &'r CombineRun, shares: bool) -> Self {
        let mut masks: Vec<u32> = run.terms.iter().map(|term| term.1).collect();
        let mut nodes = Vec::new();
        while let Some(([a, b], both)) = most_shared(&masks).filter(|_| shares) {
            nodes.push([a, b]);
            masks[a] &= !both;
            masks[b] &= !both;
            masks.push(both);
        }
        let of = |number: usize| (0..masks.len()).filter(|&value| masks[value] & 1 << number != 0).collect();
        let values = (0..run.accumulators.len()).map(of).collect();
        Self { run, nodes, values }
    }

    /// Returns the position in `nodes` of a value; `None` if the value is a source.
    fn node(&self, value: usize) -> Option<usize> {
        value.checked_sub(self.run.terms.len())
    }

    /// Returns the number of uses of each node.
    fn uses(&self) -> Vec<usize> {
        let mut uses = vec![0; self.nodes.len()];
        for &value in self.nodes.iter().flatten().chain(self.values.iter().flatten()) {
            if let Some(node) = self.node(value) {
                uses[node] += 1;
            }
        }
        uses
    }

    /// Returns the operations in the order of emission, and the number of registers from `first` on
    /// that they need.
    ///
    /// Greedily chooses the accumulator that leaves the fewest values live. If nothing is shared,
    /// the accumulators are interleaved.
    fn scheduled(&self, first: usize) -> (Vec<BlockOp>, usize) {
        let mut state = CombineState {
            made: vec![None; self.nodes.len()],
            uses: self.uses(),
            free: Vec::new(),
            next: first as u16,
        };
        let mut left: Vec<usize> = (0..self.run.accumulators.len()).collect();
        if self.nodes.is_empty() {
            let most = self.values.iter().map(Vec::len).max().unwrap_or(0);
            let turns = (0..most).flat_map(|place| left.iter().map(move |&number| (number, place)));
            let has_one = |&(number, place): &(usize, usize)| place < self.values[number].len();
            let ops = turns.filter(has_one).filter_map(|(number, place)| state.combined(self, number, place));
            return (ops.collect(), 0);
        }

        let mut ops = Vec::new();
        // Simulates a choice and counts the values that stay live after it.
        let values_behind = |state: &CombineState, number: usize| {
            let mut trial = state.clone();
            trial.finish(self, number, &mut Vec::new());
            trial.made.iter().zip(&trial.uses).filter(|(place, uses)| place.is_some() && **uses > 0).count()
        };
        while let Some(at) = (0..left.len()).min_by_key(|&at| values_behind(&state, left[at])) {
            state.finish(self, left.remove(at), &mut ops);
        }
        (ops, usize::from(state.next) - first)
    }
}

/// Returns the two values that most accumulators combine, at least two, and the mask of these
/// accumulators.
fn most_shared(masks: &[u32]) -> Option<([usize; 2], u32)> {
    // A value that a single accumulator combines is not shared.
    let of_several: Vec<usize> = (0..masks.len()).filter(|&value| masks[value].count_ones() > 1).collect();
    let pairs = of_several.iter().enumerate().flat_map(|(at, &b)| of_several[..at].iter().map(move |&a| [a, b]));
    let shared = pairs.map(|pair| (pair, masks[pair[0]] & masks[pair[1]]));
    let most = shared.filter(|(_, both)| both.count_ones() > 1);
    // Ties are broken by number, so that the code is deterministic.
    most.max_by_key(|&([a, b], both)| {
        let either = (masks[a] | masks[b]).count_ones();
        (both.count_ones(), Reverse(either), Reverse([a, b]))
    })
}

/// State while operations are ordered.
#[derive(Clone)]
struct CombineState {
    /// Register that holds each node.
    made: Vec<Option<u16>>,
    /// Number of remaining uses of each node.
    uses: Vec<usize>,
    free: Vec<u16>,
    /// First register that has not been used yet.
    next: u16,
}

impl CombineState {
    /// Emits all combinations of an accumulator.
    fn finish(&mut self, factored: &Factored, number: usize, ops: &mut Vec<BlockOp>) {
        let values = &factored.values[number];
        for (place, &value) in values.iter().enumerate() {
            self.make(factored, value, ops);
            ops.extend(self.combined(factored, number, place));
        }
        // Registers are freed only now, since the first operation may combine two of these values.
        values.iter().for_each(|&value| self.end_use(factored, value));
    }

    /// Returns the operation that combines an accumulator's value number `place`, if there is one.
    /// A cleared accumulator starts with the combination of its first two values.
    fn combined(&self, factored: &Factored, number: usize, place: usize) -> Option<BlockOp> {
        let (values, Combined { acc, holds }) = (&factored.values[number], factored.run.accumulators[number]);
        let input = |place: usize| self.input(factored, values[place]);
        let of = match (holds, place) {
            (false, 0) if values.len() > 1 => return None,
            (false, 0) => (input(0), None),
            (false, 1) => (input(0), Some(input(1))),
            _ => (LeafInput::Accumulator(acc), Some(input(place))),
        };
        Some(BlockOp::Combine { acc, by: factored.run.by, of })
    }

    /// Emits a node and the nodes that it needs, unless that has been done.
    fn make(&mut self, factored: &Factored, value: usize, ops: &mut Vec<BlockOp>) {
        let Some(node) = factored.node(value).filter(|&node| self.made[node].is_none()) else {
            return;
        };
        let [a, b] = factored.nodes[node];
        self.make(factored, a, ops);
        self.make(factored, b, ops);
        let [mut of, mut other] = [a, b].map(|value| self.input(factored, value));

        // Reuse the register of an operand without further uses. A source is loaded to the
        // destination.
        self.end_use(factored, a);
        self.end_use(factored, b);
        let acc = self.free.pop().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        });
        if matches!(other, LeafInput::Accumulator(register) if register == acc) {
            std::mem::swap(&mut of, &mut other);
        }
        self.made[node] = Some(acc);
        ops.push(BlockOp::Combine { acc, by: factored.run.by, of: (of, Some(other)) });
    }

    fn input(&self, factored: &Factored, value: usize) -> LeafInput {
        match factored.node(value) {
            Some(node) => LeafInput::Accumulator(self.made[node].unwrap_or(self.next)),
            None => LeafInput::Source(factored.run.terms[value].0),
        }
    }

    fn end_use(&mut self, factored: &Factored, value: usize) {
        let Some(node) = factored.node(value) else { return };
        self.uses[node] -= 1;
        if let (0, Some(register)) = (self.uses[node], self.made[node]) {
            self.free.push(register);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    /// Returns the sources that each register combines after some operations, sorted, with
    /// repetitions. An accumulator with an initial value has that as an extra source.
    fn combined_sources(run: &CombineRun, ops: &[BlockOp]) -> HashMap<u16, Vec<u32>> {
        let own = |known: &&Combined| known.holds;
        let mut held: HashMap<u16, Vec<u32>> =
            run.accumulators.iter().filter(own).map(|known| (known.acc, vec![1000 + u32::from(known.acc)])).collect();
        for op in ops {
            let BlockOp::Combine { acc, of: (first, second), .. } = *op else { panic!("another operation") };
            let of = |input: LeafInput| match input {
                LeafInput::Source(source) => vec![source],
                LeafInput::Accumulator(acc) => held[&acc].clone(),
                LeafInput::Part { .. } => panic!("a part"),
            };
            let mut combined: Vec<u32> = [Some(first), second].into_iter().flatten().flat_map(of).collect();
            combined.sort_unstable();
            held.insert(acc, combined);
        }
        held
    }

    fn check(run: &CombineRun, first: usize, available: usize) -> Option<(usize, usize)> {
        let (ops, taken) = run.shared(first, available)?;
        assert!(taken <= available && ops.len() < run.count(), "{taken} registers, {} operations", ops.len());
        let held = combined_sources(run, &ops);
        for (number, known) in run.accumulators.iter().enumerate() {
            let of = run.terms.iter().filter(|term| term.1 & 1 << number != 0).map(|term| term.0);
            let own = known.holds.then_some(1000 + u32::from(known.acc));
            assert_eq!(held[&known.acc], of.chain(own).collect::<Vec<_>>(), "accumulator {number}");
        }
        Some((ops.len(), taken))
    }

    /// Returns a reduction over windows of `taps` by `taps` with a stride, for `rows` by `columns`
    /// accumulators.
    fn windows([rows, columns]: [usize; 2], taps: usize, stride: usize) -> CombineRun {
        let width = (columns - 1) * stride + taps;
        let mut terms: Vec<(u32, u32)> = Vec::new();
        for source in 0..((rows - 1) * stride + taps) * width {
            let (y, x) = (source / width, source % width);
            let is_inside = |at: usize, of: usize| (at * stride..at * stride + taps).contains(&of);
            let reads = |number: &usize| is_inside(number / columns, y) && is_inside(number % columns, x);
            let mask = (0..rows * columns).filter(reads).fold(0, |mask, number| mask | 1 << number);
            terms.push((source as u32, mask));
        }
        let accumulators = (0..(rows * columns) as u16).map(|acc| Combined { acc, holds: false }).collect();
        CombineRun { by: Reduction::Sum, accumulators, terms }
    }

    #[test]
    fn windows_that_overlap_share_what_they_combine() {
        // Without sharing: 8 x 9 operations, 4 x 9, 4 x 9.
        assert_eq!(check(&windows([2, 4], 3, 1), 8, 20), Some((32, 5)));
        assert_eq!(check(&windows([1, 4], 3, 1), 4, 20), Some((18, 3)));
        assert_eq!(check(&windows([2, 2], 3, 2), 4, 20), Some((26, 3)));
        // With few registers, half of the accumulators at a time. Without overlap, each accumulator
        // begins with the combination of its first two elements.
        assert_eq!(check(&windows([2, 4], 3, 1), 8, 4).map(|known| known.1), Some(3));
        assert_eq!(check(&windows([2, 2], 2, 2), 4, 20), Some((12, 0)));
    }

    #[test]
    fn sharing_combines_every_value_once() {
        for seed in 0..400 {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let accumulators: Vec<Combined> = (0..rng.random_range(1..=MOST_ACCUMULATORS as u16))
                .map(|acc| Combined { acc, holds: rng.random() })
                .collect();
            let masks = (1u64 << accumulators.len()) - 1;
            let density = rng.random_range(1..4);
            let mask = |rng: &mut ChaCha8Rng| (0..density).fold(masks as u32, |mask, _| mask & rng.random::<u32>());
            let terms: Vec<(u32, u32)> = (0..rng.random_range(2..40)).map(|source| (source, mask(&mut rng))).collect();
            let terms: Vec<(u32, u32)> = terms.into_iter().filter(|term| term.1 != 0).collect();
            // Skip runs in which some accumulator combines nothing.
            let all = terms.iter().fold(0, |all, term| all | term.1);
            if u64::from(all) != masks {
                continue;
            }
            let run = CombineRun { by: Reduction::Sum, accumulators, terms };
            let count = run.count();
            println!("seed {seed}: {count} operations become {:?}", check(&run, 40, rng.random_range(0..16)));
        }
    }
}
