//! Maxima of what is taken for numbers, with a check behind them.
//!
//! A maximum that passes on what is not a number takes two or three instructions, one of numbers a single one. So a leaf that does nothing but
//! find maxima is there twice. In the first form, products of all that is loaded, two values each, are added up beside: a sum is not a number if
//! one of them is not (nor, sometimes, if one is infinite), and then the second form, which is the leaf as it was, computes everything once more.
//!
//! ```text
//! a0 = max(x0, x1); a0 = max(a0, x2); a1 = max(x2, x3)
//!   →  s0 = 1; s1 = 1; s0 += x0 * x1; a0 = max_number(x0, x1); s1 += x2 * x3; a0 = max_number(a0, x2); a1 = max_number(x2, x3);
//!      if s0 + s1 is not a number { a0 = max(x0, x1); a0 = max(a0, x2); a1 = max(x2, x3) }
//! ```
//!
//! Multiply-adds are done by other units of a CPU than maxima, or by as many as the instructions that they replace. They begin with one, so that
//! sums are hardly ever subnormal, which takes some CPUs long.

use std::ops::Range;

use super::instruction_set::{Vector, Vectors};
use super::leaf::{Block, Input, Item, Leaf, Op, Source};
use super::nest::Nest;
use super::share::{combination, share, spare};
use autotune_ir::spec::Reduction;

/// Maxima that make up for what the check takes.
const FEWEST: usize = 16;

/// Registers of sums: with one, each addition would wait for the one before.
const SUMS: Range<usize> = 2..5;

/// The first form of a leaf.
pub(super) struct OfNumbers {
    pub(super) leaf: Leaf,
    /// The registers of sums.
    pub(super) sums: Range<Vector>,
}

impl OfNumbers {
    /// That of a leaf in which nothing is shared yet, which finds maxima, and has the registers for it; `None` where computing it again could
    /// find something else, or nothing would be gained.
    pub(super) fn of(leaf: &Leaf, nest: &Nest, isa: &impl Vectors) -> Option<Self> {
        let all = leaf.block(nest, &(0..leaf.ops.len()), &(0..leaf.sources.len()));
        let is_maximum = |op: &Op| matches!(combination(all, op), Some((Reduction::Max, ..)));
        if !all.ops.iter().any(is_maximum) {
            return None;
        }
        let (registers, to_fold) = (isa.registers(), isa.fold_registers());
        let spare = spare(all, to_fold);
        let mut leaf = leaf.clone();
        share(&mut leaf, nest, (registers.saturating_sub(SUMS.start), to_fold));
        let count = registers.saturating_sub(leaf.held() + spare).min(SUMS.end - 1);
        if !SUMS.contains(&count) || !is_repeatable(&leaf, nest) || !is_worth_it(&leaf, nest, isa) {
            return None;
        }

        let first = leaf.held() as Vector;
        let mut rewritten = Rewritten { sums: first..first + count as Vector, next: 0, half: None, ops: Vec::new() };
        let mut items = vec![rewritten.begun(leaf.sources.len())];
        for (item, block) in blocks(&leaf, nest) {
            items.push(match (item, block) {
                (Item::Block { sources, .. }, Some(block)) => rewritten.block(block, sources),
                _ => item.clone(),
            });
        }
        leaf.sources.push(Source::Constant(f32::to_bits(1.0)));
        leaf.shared += count;
        (leaf.items, leaf.ops) = (items, rewritten.ops);
        Some(Self { leaf, sums: rewritten.sums })
    }
}

/// The items of a leaf, each with its block if it is one.
fn blocks<'l>(leaf: &'l Leaf, nest: &'l Nest) -> impl Iterator<Item = (&'l Item, Option<Block<'l>>)> {
    leaf.items.iter().map(|item| match item {
        Item::Block { ops, sources } => (item, Some(leaf.block(nest, ops, sources))),
        Item::Begin { .. } | Item::End { .. } => (item, None),
    })
}

/// True if a leaf finds the largest of what it reads from memory and of nothing else, reads nothing besides, and stores to other buffers.
fn is_repeatable(leaf: &Leaf, nest: &Nest) -> bool {
    let (mut read, mut written) = (0u32, 0u32);
    for code in blocks(leaf, nest).filter_map(|(_, block)| block) {
        let pointer = |id: u32| match code.sources[id as usize] {
            Source::Memory(memory) => 1 << memory.at.pointer,
            Source::Constant(_) => 0,
        };
        let pointers = |inputs: &[Input]| inputs.iter().filter_map(source).fold(0, |all, id| all | pointer(id));
        for op in code.ops {
            match *op {
                Op::Store { value, .. } if pointers(code.inputs_of(value)) != 0 => return false,
                Op::Store { dst, .. } => written |= pointers(&[dst]),
                Op::Combine { by: Reduction::Max, of: (a, b), .. } => {
                    let of = [a, b.unwrap_or(a)];
                    if of.iter().filter_map(source).any(|id| pointer(id) == 0) {
                        return false;
                    }
                    read |= pointers(&of);
                }
                Op::Fold { .. } | Op::Prefetch { .. } => {}
                Op::MulAdd { .. } | Op::Combine { .. } => return false,
            }
        }
    }
    let buffers = |pointers: u32| (0..nest.pointers.len()).filter(move |it| pointers & 1 << it != 0);
    buffers(read).all(|a| buffers(written).all(|b| nest.pointers[a] != nest.pointers[b]))
}

/// True if the first form is faster, as measured on Zen 4: where a bound takes two instructions, with more maxima than values that are loaded, where
/// it takes three, with more than three quarters as many.
fn is_worth_it(leaf: &Leaf, nest: &Nest, isa: &impl Vectors) -> bool {
    let (mut maxima, mut loads) = (0, 0);
    for code in blocks(leaf, nest).filter_map(|(_, block)| block) {
        let of_maxima = code.ops.iter().filter_map(|op| match *op {
            Op::Combine { of: (a, b), .. } => Some([a, b.unwrap_or(a)]),
            _ => None,
        });
        let of_maxima: Vec<[Input; 2]> = of_maxima.collect();
        let mut loaded: Vec<u32> = of_maxima.iter().flatten().filter_map(source).collect();
        loaded.sort_unstable();
        loaded.dedup();
        maxima += of_maxima.len();
        loads += loaded.len();
    }
    maxima >= FEWEST && maxima * (isa.bound_instructions() + 1) > 3 * loads
}

fn source(input: &Input) -> Option<u32> {
    match *input {
        Input::Source(id) => Some(id),
        Input::Accumulator(_) | Input::Part { .. } => None,
    }
}

/// Operations of the first form.
struct Rewritten {
    sums: Range<Vector>,
    /// The sum whose turn it is, from the first.
    next: usize,
    /// A source that is to be multiplied by the next.
    half: Option<u32>,
    ops: Vec<Op>,
}

impl Rewritten {
    /// A block that sets the sums to a constant, which is this source of the leaf.
    fn begun(&mut self, one: usize) -> Item {
        let set = |acc: Vector| Op::Combine { acc: acc.into(), by: Reduction::Sum, of: (Input::Source(0), None) };
        self.ops.extend(self.sums.clone().map(set));
        Item::Block { ops: 0..self.ops.len(), sources: one..one + 1 }
    }

    fn block(&mut self, code: Block, sources: &Range<usize>) -> Item {
        let begin = self.ops.len();
        let mut is_added = vec![false; code.sources.len()];
        for op in code.ops {
            let mut op = *op;
            if let Op::Combine { of: (a, b), .. } = op {
                for id in [Some(a), b].iter().flatten().filter_map(source) {
                    if !std::mem::replace(&mut is_added[id as usize], true) {
                        self.add(id);
                    }
                }
            }
            if let Op::Combine { by: by @ Reduction::Max, .. } | Op::Fold { by: Some(by @ Reduction::Max), .. } =
                &mut op
            {
                *by = Reduction::MaxNumber;
            }
            self.ops.push(op);
        }
        if let Some(half) = self.half {
            self.add(half);
        }
        Item::Block { ops: begin..self.ops.len(), sources: sources.clone() }
    }

    /// Adds the product of a source and the one before it to the sum whose turn it is, if there is one before it.
    fn add(&mut self, id: u32) {
        let Some(half) = self.half.take() else {
            self.half = Some(id);
            return;
        };
        let acc = u16::from(self.sums.start) + self.next as u16;
        self.next = (self.next + 1) % self.sums.len();
        self.ops.push(Op::MulAdd { acc, part: 0, factors: [half, id] });
    }
}
