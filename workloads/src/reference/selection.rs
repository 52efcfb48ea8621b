//! Choice of what a reference computes of a large output.
//!
//! Computing every element would take as long as the kernel itself, so work is bounded in two ways
//! (terms and probabilities: [`super`]). First, the channels are divided into blocks, and a block
//! is represented by one value per position: an element of a randomly drawn channel, or a weighted
//! sum of all its channels ([`Stand`]). If that does not suffice, only one of several lines is
//! compared.

use std::ops::Range;

use autotune_ir::program::{Access, BinaryOp, Expr};
use autotune_ir::spec::Spec;

use super::line::points;
use super::lines::Lines;

/// Maximum number of multiply-adds for which every output element is computed. References of larger
/// workloads are sampled to need about as many.
pub const EXACT_MULTIPLY_ADDS: u64 = 1 << 30;

/// True if an expression is the element that an access reads, plus terms that do not depend on it.
fn is_summand(expr: &Expr, access: &Access) -> bool {
    let mut loads = 0;
    expr.for_each_load(&mut |load| loads += usize::from(load == access));
    match expr {
        Expr::Load(load) => load == access,
        Expr::Binary(BinaryOp::Add, of) => loads == 1 && of.iter().any(|of| is_summand(of, access)),
        _ => false,
    }
}

/// Kind of value that represents the channels of a block at a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stand {
    /// One of the channels, chosen at random for each line.
    Drawn,
    /// The weighted sum of the channels.
    Weighted,
}

/// Division of an output's channels into blocks and of its lines into groups, and the random
/// choices. One line of each group is compared.
#[derive(Clone, Debug)]
pub(super) struct LineSelection {
    pub(super) lines: Lines,
    /// Channels per block, except perhaps in the last one.
    pub(super) block: usize,
    /// Number of lines in a group.
    line_step: usize,
    pub(super) stand: Stand,
    /// Weight of each channel, if sums are weighted.
    weights: Vec<f64>,
    seed: u64,
}

impl LineSelection {
    /// Returns the selection whose reference takes about `bound` multiply-adds. If the output is
    /// not made of sums of products, every element is selected.
    pub(super) fn of(spec: &Spec, bound: u64, seed: u64) -> Self {
        let lines = Lines::of(spec);
        let bound = if lines.vector.is_some() { u128::from(bound.max(1)) } else { u128::MAX };
        let times_too_many = |work: u128| usize::try_from(work.div_ceil(bound)).unwrap_or(usize::MAX);
        let extents = spec.main().axes.iter().map(|axis| axis.extent as u128);
        let work = extents.fold(1, u128::saturating_mul);

        let block = times_too_many(work).clamp(1, lines.channel.1);
        let line_step = times_too_many(work / block as u128).clamp(1, points(&lines.extents));
        let tail = &spec.equations[spec.equations.len() - 1];
        let is_linear = is_summand(&tail.value, &spec.main().output);
        let stand = if block > 1 && line_step == 1 && is_linear { Stand::Weighted } else { Stand::Drawn };
        let selection = Self { lines, block, line_step, stand, weights: Vec::new(), seed };
        match stand {
            Stand::Drawn => selection,
            Stand::Weighted => selection.with_weights(),
        }
    }

    /// Draws the weights of every block, with unit norm and magnitudes that differ by a factor of
    /// two at most.
    fn with_weights(self) -> Self {
        let drawn = |channel: usize| {
            let bits = self.hash([usize::MAX, channel]);
            let magnitude = 0.5 + 0.5 * (bits >> 12) as f64 / (1u64 << 52) as f64;
            if bits & 1 == 0 { magnitude } else { -magnitude }
        };
        let of_block = |block: usize| {
            let norm = self.channels(block).map(|channel| drawn(channel).powi(2)).sum::<f64>().sqrt();
            self.channels(block).map(move |channel| drawn(channel) / norm)
        };
        let weights = (0..self.blocks()).flat_map(of_block).collect();
        Self { weights, ..self }
    }

    pub(super) fn is_exact(&self) -> bool {
        self.block == 1 && self.line_step == 1
    }

    /// Returns the number of lines that are compared.
    pub(super) fn chosen_lines(&self) -> usize {
        points(&self.lines.extents).div_ceil(self.line_step)
    }

    pub(super) fn blocks(&self) -> usize {
        self.lines.channel.1.div_ceil(self.block)
    }

    /// Returns the number of values in the reference.
    pub(super) fn len(&self) -> usize {
        self.chosen_lines().saturating_mul(self.blocks()).saturating_mul(self.lines.width.1)
    }

    /// Returns the line that is drawn from group number `index`.
    pub(super) fn line(&self, index: usize) -> usize {
        let first = index * self.line_step;
        first + self.draw(self.line_step.min(points(&self.lines.extents) - first), [0, index])
    }

    /// Returns the channels of a block.
    pub(super) fn channels(&self, block: usize) -> Range<usize> {
        block * self.block..self.lines.channel.1.min((block + 1) * self.block)
    }

    /// Returns the channel that represents a block in a line.
    pub(super) fn channel(&self, line: usize, block: usize) -> usize {
        let channels = self.channels(block);
        channels.start + self.draw(channels.len(), [1 + line, block])
    }

    /// Returns the index that represents a block in a line: of a channel, or of the weighted sum
    /// that replaces the block's channels.
    pub(super) fn representative(&self, line: usize, block: usize) -> usize {
        if self.stand == Stand::Drawn { self.channel(line, block) } else { block }
    }

    /// Returns the range of [`representative`](Self::representative) indices of some blocks, for
    /// any line.
    pub(super) fn reach(&self, blocks: &Range<usize>) -> Range<usize> {
        match self.stand {
            Stand::Drawn => self.channels(blocks.start).start..self.channels(blocks.end - 1).end,
            Stand::Weighted => blocks.clone(),
        }
    }

    /// Returns the weights of a block's channels.
    pub(super) fn weights(&self, block: usize) -> &[f64] {
        &self.weights[self.channels(block)]
    }

    /// Returns the channels of a block that are added up in a line, with their weights.
    pub(super) fn terms(&self, line: usize, block: usize) -> impl Iterator<Item = (usize, f64)> {
        let (channels, weights) = match self.stand {
            Stand::Weighted => (self.channels(block), self.weights(block)),
            Stand::Drawn => {
                let channel = self.channel(line, block);
                (channel..channel + 1, &[1.0][..])
            }
        };
        channels.zip(weights.iter().copied())
    }

    /// Returns a pseudo-random number below `len`.
    fn draw(&self, len: usize, place: [usize; 2]) -> usize {
        if len == 1 { 0 } else { ((u128::from(self.hash(place)) * len as u128) >> 64) as usize }
    }

    /// Returns pseudo-random bits, by the finaliser of SplitMix64 (Steele, Lea and Flood, *Fast
    /// splittable pseudorandom number generators*, 2014).
    fn hash(&self, place: [usize; 2]) -> u64 {
        place.iter().fold(self.seed, |state, &part| {
            let mixed = (state ^ part as u64).wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ mixed >> 31
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Workload;

    fn selection(text: &str, bound: u64, seed: u64) -> LineSelection {
        LineSelection::of(text.parse::<Workload>().unwrap().spec(), bound, seed)
    }

    #[test]
    fn the_bound_decides_what_is_compared() {
        let cube = "matmul:m=64,n=64,k=64";
        assert!(selection(cube, 64 * 64 * 64, 7).is_exact());
        let eighth = selection(cube, 32 * 1024, 7);
        assert_eq!((eighth.block, eighth.line_step, eighth.stand), (8, 1, Stand::Weighted));
        assert_eq!(selection(&format!("{cube},act=relu"), 32 * 1024, 7).stand, Stand::Drawn);
        let few = selection(cube, 1024, 7);
        assert_eq!((few.block, few.line_step, few.stand), (64, 4, Stand::Drawn));
        let depthwise = selection("conv2d:c=6,h=10,w=10,o=6,k=3,p=1,g=6", 1000, 7);
        assert_eq!((depthwise.block, depthwise.line_step, depthwise.len()), (1, 6, 10 * 10));
        let huge = selection("matmul:m=100000,n=100000,k=100000", EXACT_MULTIPLY_ADDS, 7);
        assert!(huge.len() <= 1 << 14, "{}", huge.len());
    }

    #[test]
    fn blocks_cover_every_channel_once_and_every_channel_and_line_is_drawn() {
        for (text, bound) in [("conv2d:c=6,h=9,w=9,o=21,k=3,g=3", 700), ("matmul:b=2,m=9,n=13,k=50,act=relu", 3000)] {
            let drawn = selection(text, bound, 7);
            let channels: Vec<usize> = (0..drawn.blocks()).flat_map(|block| drawn.channels(block)).collect();
            let (lines, channels_of_line) = (points(&drawn.lines.extents), drawn.lines.channel.1);
            assert_eq!(channels, (0..channels_of_line).collect::<Vec<_>>());
            let mut seen = vec![0; channels.len() * lines];
            for seed in 0..2000 {
                let drawing = selection(text, bound, seed);
                for line in (0..drawing.chosen_lines()).map(|index| drawing.line(index)) {
                    for block in 0..drawing.blocks() {
                        seen[line * channels.len() + drawing.channel(line, block)] += 1;
                    }
                }
            }
            let expected = 2000.0 / (drawn.block * drawn.line_step) as f64;
            let odd = seen.iter().filter(|&&n| f64::from(n) < 0.5 * expected);
            assert_eq!(odd.count(), 0, "{text}: {expected}");
        }
    }

    #[test]
    fn weights_have_unit_norm_and_differ_by_two_at_most() {
        let selection = selection("matmul:m=30,n=70,k=10", 2000, 7);
        assert_eq!(selection.stand, Stand::Weighted);
        for block in 0..selection.blocks() {
            let weights: Vec<f64> = selection.terms(0, block).map(|(_, weight)| weight).collect();
            let norm: f64 = weights.iter().map(|weight| weight * weight).sum();
            assert!((norm - 1.0).abs() < 1e-12);
            let least = weights.iter().fold(f64::INFINITY, |least, weight| weight.abs().min(least));
            assert!(weights.iter().all(|weight| weight.abs() <= 2.0 * least));
        }
    }
}
