//! Which lines of an output a reference has.

use crate::workload::{Activation, Known, Workload};

/// Multiply-adds up to which every element of an output is computed, and which larger workloads are reduced to.
pub const EXACT_MULTIPLY_ADDS: u64 = 1 << 30;

/// An output as lines of channels: the rows of a convolution's image, the elements of a product.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extents {
    /// Rows of all images, or of all matrices.
    pub(super) lines: usize,
    /// Channels of a group; blocks do not cross groups.
    pub(super) group_channels: usize,
    pub(super) groups: usize,
    /// Elements of a line.
    pub(super) width: usize,
}

impl Extents {
    fn of(workload: &Workload) -> Self {
        match workload.known() {
            Known::Conv2d(conv) => {
                let [oh, ow] = conv.output_hw();
                Self { lines: conv.n * oh, group_channels: conv.o / conv.groups, groups: conv.groups, width: ow }
            }
            Known::Matmul(mm) => Self { lines: mm.b * mm.m, group_channels: mm.n, groups: 1, width: 1 },
        }
    }
}

/// What stands for the channels of a block in a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stand {
    /// One of them, drawn for the line.
    Drawn,
    /// Their sum with weights.
    Weighted,
}

/// Blocks of channels, lines of which one stands for several, and how the drawing goes.
#[derive(Clone, Debug)]
pub(super) struct Selection {
    pub(super) extents: Extents,
    /// Channels of a block but perhaps the last of a group.
    pub(super) block: usize,
    /// Lines of which one is compared.
    line_step: usize,
    pub(super) stand: Stand,
    /// One for each channel where sums are weighted.
    weights: Vec<f64>,
    seed: u64,
}

impl Selection {
    /// Every element.
    pub(super) fn exact(workload: &Workload) -> Self {
        Self {
            extents: Extents::of(workload),
            block: 1,
            line_step: 1,
            stand: Stand::Drawn,
            weights: Vec::new(),
            seed: 0,
        }
    }

    /// What can be computed with about `bound` multiply-adds.
    pub(super) fn of(workload: &Workload, bound: u64, seed: u64) -> Self {
        let exact = Self::exact(workload);
        let Extents { lines, group_channels, groups, width } = exact.extents;
        let outputs =
            [lines, group_channels, groups, width].iter().fold(1u128, |len, &n| len.saturating_mul(n as u128));
        let times_too_many =
            |work: u128| usize::try_from(work.div_ceil(u128::from(bound.max(1)))).unwrap_or(usize::MAX);
        let work = outputs.saturating_mul(workload.spec().reduction_len() as u128);

        let block = times_too_many(work).clamp(1, group_channels);
        let line_step = times_too_many(work / block as u128).clamp(1, lines);
        let is_linear = workload.epilogue().activation == Activation::None;
        let stand = if block > 1 && line_step == 1 && is_linear { Stand::Weighted } else { Stand::Drawn };
        let selection = Self { block, line_step, stand, seed, ..exact };
        match stand {
            Stand::Drawn => selection,
            Stand::Weighted => selection.with_weights(),
        }
    }

    /// Draws the weights of every block: of unit norm together, and of magnitudes that differ by two at most.
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

    /// Number of lines that are compared.
    pub(super) fn chosen_lines(&self) -> usize {
        self.extents.lines.div_ceil(self.line_step)
    }

    /// Blocks of a group.
    pub(super) fn group_blocks(&self) -> usize {
        self.extents.group_channels.div_ceil(self.block)
    }

    /// Blocks of all groups.
    pub(super) fn blocks(&self) -> usize {
        self.group_blocks() * self.extents.groups
    }

    /// Number of values.
    pub(super) fn len(&self) -> usize {
        self.chosen_lines().saturating_mul(self.blocks()).saturating_mul(self.extents.width)
    }

    /// The line that is the `index`-th of those compared.
    pub(super) fn line(&self, index: usize) -> usize {
        let first = index * self.line_step;
        first + self.draw(self.line_step.min(self.extents.lines - first), [0, index])
    }

    /// The channels of a block.
    pub(super) fn channels(&self, block: usize) -> std::ops::Range<usize> {
        let (group, within) = (block / self.group_blocks(), block % self.group_blocks());
        let first = group * self.extents.group_channels;
        let start = within * self.block;
        first + start..first + (start + self.block).min(self.extents.group_channels)
    }

    /// The channel that stands for a block in a line.
    pub(super) fn channel(&self, line: usize, block: usize) -> usize {
        let channels = self.channels(block);
        channels.start + self.draw(channels.len(), [1 + line, block])
    }

    /// The weights of every channel.
    pub(super) fn weights(&self) -> &[f64] {
        &self.weights
    }

    /// The channels that count in a block of a line, and their weights.
    pub(super) fn terms(&self, line: usize, block: usize) -> impl Iterator<Item = (usize, f64)> {
        let (channels, weights) = match self.stand {
            Stand::Weighted => (self.channels(block), &self.weights[self.channels(block)]),
            Stand::Drawn => {
                let channel = self.channel(line, block);
                (channel..channel + 1, &[1.0][..])
            }
        };
        channels.zip(weights.iter().copied())
    }

    /// One of `0..len`.
    fn draw(&self, len: usize, place: [usize; 2]) -> usize {
        if len == 1 { 0 } else { ((u128::from(self.hash(place)) * len as u128) >> 64) as usize }
    }

    /// Bits that look random, by the finaliser of SplitMix64 (Steele, Lea and Flood, *Fast splittable pseudorandom number
    /// generators*, 2014).
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

    fn selection(text: &str, bound: u64) -> Selection {
        Selection::of(&text.parse().unwrap(), bound, 7)
    }

    #[test]
    fn the_bound_decides_what_is_compared() {
        let cube = "matmul:m=64,n=64,k=64";
        assert!(selection(cube, 64 * 64 * 64).is_exact());
        let eighth = selection(cube, 32 * 1024);
        assert_eq!((eighth.block, eighth.line_step, eighth.stand), (8, 1, Stand::Weighted));
        assert_eq!(selection(&format!("{cube},act=relu"), 32 * 1024).stand, Stand::Drawn);
        let few = selection(cube, 1024);
        assert_eq!((few.block, few.line_step, few.stand), (64, 4, Stand::Drawn));
        let depthwise = selection("conv2d:c=6,h=10,w=10,o=6,k=3,p=1,g=6", 1000);
        assert_eq!((depthwise.block, depthwise.line_step, depthwise.len()), (1, 6, 2 * 6 * 10));
        let huge = selection("matmul:m=100000,n=100000,k=100000", EXACT_MULTIPLY_ADDS);
        assert!(huge.len() <= 1 << 14, "{}", huge.len());
    }

    #[test]
    fn blocks_cover_every_channel_once_and_every_channel_and_line_is_drawn() {
        for (text, bound) in [("conv2d:c=6,h=9,w=9,o=21,k=3,g=3", 700), ("matmul:b=2,m=9,n=13,k=50,act=relu", 3000)] {
            let selection = selection(text, bound);
            let channels: Vec<usize> = (0..selection.blocks()).flat_map(|block| selection.channels(block)).collect();
            let Extents { lines, group_channels, groups, .. } = selection.extents;
            assert_eq!(channels, (0..group_channels * groups).collect::<Vec<_>>());
            let mut seen = vec![0; channels.len() * lines];
            for seed in 0..2000 {
                let drawing = Selection::of(&text.parse().unwrap(), bound, seed);
                for line in (0..drawing.chosen_lines()).map(|index| drawing.line(index)) {
                    for block in 0..drawing.blocks() {
                        seen[line * channels.len() + drawing.channel(line, block)] += 1;
                    }
                }
            }
            let expected = 2000.0 / (selection.block * selection.line_step) as f64;
            let odd = seen.iter().filter(|&&n| f64::from(n) < 0.5 * expected);
            assert_eq!(odd.count(), 0, "{text}: {expected}");
        }
    }

    #[test]
    fn weights_have_unit_norm_and_differ_by_two_at_most() {
        let selection = selection("matmul:m=30,n=70,k=10", 2000);
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
