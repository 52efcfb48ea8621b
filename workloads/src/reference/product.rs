//! Sums of products, and the outputs made of them.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use autotune_ir::spec::{AxisId, Spec};

use super::line::{Line, Point, ReferenceTensor, at, points, position, step};
use super::lines::output;
use super::operand::ReferenceOperand;
use super::selection::{LineSelection, Stand};
use super::tile::ReductionTile;
use crate::operands::OutOfMemory;
use crate::parallel::for_each;

/// Number of sums that are computed together, so that one operand is read once.
const SUMS: usize = 1 << 16;
/// Maximum number of lines computed together, so that other cores get some, too.
const LINES: usize = 1024;
/// Maximum number of blocks computed together.
const BLOCKS: usize = 64;
/// Number of multiply-adds below which lines are computed together even if each reads rows of its
/// own.
const WORK: usize = 1 << 16;
/// Number of channels that are read together if sums go along channels.
const CHANNELS: usize = 512;
/// Minimum number of blocks computed together in that case.
const LEAST_BLOCKS: usize = 8;

/// Sums along an axis.
struct SumRun<'a> {
    first: Point,
    columns: Cow<'a, [usize]>,
    sums: Vec<f64>,
}

/// An output made of sums of products, with a selection of its lines.
pub(super) struct Product<'a> {
    spec: &'a Spec,
    selection: &'a LineSelection,
    tensors: Vec<ReferenceTensor<'a>>,
    /// Axis along which sums go.
    axis: AxisId,
    /// Operand that this axis indexes.
    rows: ReferenceOperand<'a>,
    /// Operand without this axis, whose elements are the factors.
    factors: ReferenceOperand<'a>,
    tile: ReductionTile,
    /// Number of lines whose sums are computed together.
    lines_at_a_time: usize,
    /// Number of blocks whose sums are computed together.
    blocks_at_a_time: usize,
    /// Element numbers of a line.
    columns: Vec<usize>,
}

impl<'a> Product<'a> {
    pub(super) fn new(
        spec: &'a Spec,
        selection: &'a LineSelection,
        axis: AxisId,
        tensors: Vec<ReferenceTensor<'a>>,
    ) -> Result<Self, OutOfMemory> {
        let (main, lines, blocks) = (spec.main(), &selection.lines, selection.blocks());
        let [data, mut weight] = [0, 1].map(|load| ReferenceOperand::new(&tensors, main.loads()[load]));
        if selection.stand == Stand::Weighted {
            weight = weight.weighted(main, selection)?;
        }
        let channels = selection.reach(&(0..1)).len();
        let (rows, factors, blocks_at_a_time, span) = if axis == lines.channel.0 {
            let blocks_at_a_time = (CHANNELS / channels).max(LEAST_BLOCKS).min(blocks);
            (weight, data, blocks_at_a_time, channels * blocks_at_a_time)
        } else {
            (data, weight, BLOCKS.min(blocks), lines.width.1)
        };
        let is_scattered = axis == lines.channel.0 && channels > 1;
        let tile = ReductionTile::new(main, [&rows, &factors], axis, span, is_scattered);

        // Lines that read the same rows are adjacent.
        let own = (0..lines.extents.len()).rfind(|&axis| lines.extents[axis] > 1 && rows.uses(axis));
        let alike = points(&lines.extents[own.map_or(0, |axis| axis + 1)..]);
        let sums = blocks_at_a_time * lines.width.1;
        let least_lines = WORK / (sums * spec.reduction_len());
        let lines_at_a_time = (SUMS / sums).clamp(1, alike.min(LINES)).max(least_lines);
        let columns = (0..lines.width.1).collect();
        Ok(Self { spec, selection, tensors, axis, rows, factors, tile, lines_at_a_time, blocks_at_a_time, columns })
    }

    /// Returns the values of the selection, each converted by `of`: in the selection's order, or
    /// the output's if exact.
    pub(super) fn values<T: Clone + Default + Send>(&self, of: fn(f64) -> T) -> Result<Vec<T>, OutOfMemory> {
        let (selection, lines, width) = (self.selection, &self.selection.lines, self.columns.len());
        let (chosen, blocks) = (selection.chosen_lines(), selection.blocks());
        let parts = blocks.div_ceil(self.blocks_at_a_time);
        let stride = position(&lines.shape, step(&lines.index, self.axis)) as usize;
        let mut values = OutOfMemory::zeros(selection.len())?;
        let shared = Mutex::new(&mut values);

        for_each(chosen.div_ceil(self.lines_at_a_time) * parts, |task| {
            let part = |number: usize, len: usize, of: usize| number * len..of.min((number + 1) * len);
            let indices = part(task / parts, self.lines_at_a_time, chosen);
            let of_blocks = part(task % parts, self.blocks_at_a_time, blocks);
            let numbers: Vec<usize> = indices.clone().map(|index| selection.line(index)).collect();
            let runs = self.sums(&numbers, &of_blocks);

            let mut values = shared.lock().unwrap_or_else(PoisonError::into_inner);
            let mut put = |first: usize, stride: usize, sums: &[f64]| {
                let values = values[first..].iter_mut().step_by(stride);
                values.zip(sums).for_each(|(value, &sum)| *value = of(sum));
            };
            for (index, runs) in indices.zip(runs.chunks(runs.len() / numbers.len())) {
                let mut next = (index * blocks + of_blocks.start) * width;
                for SumRun { first, sums, .. } in runs {
                    match selection.is_exact() {
                        true => put(position(&lines.shape, at(&lines.index, first)) as usize, stride, sums),
                        false => put(next, 1, sums),
                    }
                    next += sums.len();
                }
            }
        });
        Ok(values)
    }

    /// Returns the values of blocks in lines, line by line.
    fn sums(&self, lines: &[usize], blocks: &Range<usize>) -> Vec<SumRun<'_>> {
        let (selection, tail) = (self.selection, &self.spec.equations[self.spec.main + 1]);
        let reach = selection.reach(blocks);
        let of_line = |&line: &usize| {
            let channels = blocks.clone().map(|block| selection.representative(line, block));
            self.runs(line, reach.start, channels.collect())
        };
        let mut runs: Vec<SumRun> = lines.iter().flat_map(of_line).collect();
        self.add_products(&mut runs);

        if selection.stand == Stand::Drawn {
            let dtype = output(self.spec).dtype;
            for run in &mut runs {
                run.sums = self.tail(run);
                run.sums.iter_mut().for_each(|sum| *sum = dtype.rounded(*sum));
            }
        } else if tail.loads().len() > 1 {
            let of_line = runs.len() / lines.len();
            lines.iter().zip(runs.chunks_mut(of_line)).for_each(|(&line, runs)| self.add_weighted(line, blocks, runs));
        }
        runs
    }

    /// Adds the weighted sum of the channels' biases and residuals for the blocks of a line.
    fn add_weighted(&self, line: usize, blocks: &Range<usize>, runs: &mut [SumRun]) {
        let (selection, width) = (self.selection, self.columns.len());
        let channels = selection.channels(blocks.start).start..selection.channels(blocks.end - 1).end;
        let without_sums = self.runs(line, channels.start, channels.clone().collect());
        let added: Vec<f64> = without_sums.iter().flat_map(|run| self.tail(run)).collect();
        let sums = runs.iter_mut().flat_map(|run| run.sums.chunks_exact_mut(width));
        for (block, sums) in blocks.clone().zip(sums) {
            for (channel, weight) in selection.terms(line, block) {
                let added = &added[(channel - channels.start) * width..][..width];
                sums.iter_mut().zip(added).for_each(|(sum, added)| *sum += weight * added);
            }
        }
    }

    /// Returns the runs of a line through some channels, which are ascending. Sums along channels
    /// begin at the first one.
    fn runs<'s>(&'s self, line: usize, first_channel: usize, channels: Vec<usize>) -> Vec<SumRun<'s>> {
        let (channel, mut first) = (self.selection.lines.channel.0, self.selection.lines.point(line));
        let run = |first, columns: Cow<'s, [usize]>| SumRun { sums: vec![0.0; columns.len()], first, columns };
        if self.axis == channel {
            first[channel] = first_channel as i64;
            return vec![run(first, channels.into_iter().map(|channel| channel - first_channel).collect())];
        }
        let of_channel = |at: usize| {
            first[channel] = at as i64;
            run(first.clone(), Cow::Borrowed(&self.columns))
        };
        channels.into_iter().map(of_channel).collect()
    }

    /// Adds all products to the sums.
    fn add_products(&self, runs: &mut [SumRun]) {
        let (mut scales, mut elements) = (Vec::new(), Vec::new());
        for alike in runs.chunk_by_mut(|a, b| at(&self.rows.index, &a.first).eq(at(&self.rows.index, &b.first))) {
            let positions: Vec<i64> = alike.iter().map(|run| self.factors.position(&run.first)).collect();
            for number in 0..self.tile.count() {
                let (by, products) = self.tile.begin(self.spec.main(), number);
                let first: Point = alike[0].first.iter().zip(&by).map(|(first, by)| first + by).collect();
                self.tile.read(&self.rows, &first, &mut elements);
                let offset = self.factors.offset(&by);
                scales.resize(products, 0.0);
                for (run, position) in alike.iter_mut().zip(&positions) {
                    self.tile.read_factors(&self.factors, offset + position, &mut scales);
                    self.tile.add(&mut run.sums, &scales, &elements, &run.columns);
                }
            }
        }
    }

    /// Returns the last equation's values for some sums.
    fn tail(&self, run: &SumRun) -> Vec<f64> {
        let line = Line { first: &run.first, axis: self.axis, columns: &run.columns };
        let sum = self.spec.main().output.buffer;
        line.values(&self.spec.equations[self.spec.main + 1].value, &|access, values| {
            let tensor = &self.tensors[access.buffer.0 as usize];
            match (access.buffer == sum, values) {
                (true, _) => run.sums.clone(),
                (false, []) => line.read(tensor, &access.index),
                (false, values) => line.gather(tensor, &access.index, values),
            }
        })
    }
}
