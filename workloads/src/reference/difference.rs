//! Difference between an output and its reference.

use super::Reference;
use super::line::{Point, at, points, step};
use super::lines::Lines;
use autotune_ir::layout::{LayoutError, physical_shape};
use autotune_ir::program::Layout;

/// Number of elements that are compared at a time.
const PART: usize = 1 << 14;

/// Memory positions of an output's elements.
struct OutputStrides {
    /// For each dimension, the number of indices in a block, and the distance to the next block.
    dims: Vec<(usize, usize)>,
    /// Increment of each index from one channel to the next.
    by_channel: Vec<i64>,
    /// Distance between adjacent elements of a line.
    stride: usize,
}

impl OutputStrides {
    fn of(lines: &Lines, layout: Layout) -> Result<Self, LayoutError> {
        let shape = physical_shape(&lines.shape, layout)?;
        let strides = (0..shape.len()).map(|dim| shape[dim + 1..].iter().product());
        let mut dims: Vec<(usize, usize)> = strides.map(|stride| (1, stride)).collect();
        if let Layout::ChannelBlocked(block) = layout {
            dims.pop();
            dims[1].0 = block;
        }

        let by_channel = step(&lines.index, lines.channel.0).collect();
        let steps = step(&lines.index, lines.width.0).zip(&dims);
        let stride = steps.map(|(step, (_, stride))| step as usize * stride).sum::<usize>().max(1);
        Ok(Self { dims, by_channel, stride })
    }

    /// Returns the position of a channel's first element, in the line whose index begins with
    /// `first`.
    fn place(&self, first: &[i64], channel: usize) -> usize {
        let index = first.iter().zip(&self.by_channel).map(|(first, step)| (first + channel as i64 * step) as usize);
        let place = |(at, &(block, stride))| if block == 1 { at * stride } else { at / block * stride + at % block };
        index.zip(&self.dims).map(place).sum()
    }
}

impl Reference {
    /// Returns the number of parts into which the comparison is divided.
    pub fn parts(&self) -> usize {
        points(&self.selection.lines.shape).div_ceil(PART).clamp(1, self.selection.chosen_lines())
    }

    /// Returns the largest difference between a part of an output, as stored in memory, and the
    /// reference.
    ///
    /// It is infinite if an element is not finite where the reference is, or if elements are
    /// missing. The parts together cover the whole output.
    pub fn difference(&self, output: &[f32], layout: Layout, part: usize) -> Result<f64, LayoutError> {
        let (selection, lines) = (&self.selection, &self.selection.lines);
        if output.len() != points(&lines.shape) {
            return Err(LayoutError::Len { shape: lines.shape.clone(), found: output.len() });
        }
        let (places, known_places) = (OutputStrides::of(lines, layout)?, OutputStrides::of(lines, Layout::Plain)?);
        let end = |len: usize, part: usize| (len as u128 * part as u128 / self.parts() as u128) as usize;
        let of_part = |len: usize| end(len, part)..end(len, part + 1);
        let can_be_right = |x: &f32| x.is_finite() || (self.has_infinities && x.is_infinite());
        if !output[of_part(output.len())].iter().all(can_be_right) {
            return Ok(f64::INFINITY);
        }

        let mut sums = vec![0.0; lines.width.1];
        let differences = of_part(selection.chosen_lines())
            .map(|index| self.line_difference(output, [&places, &known_places], index, &mut sums));
        Ok(differences.fold(0.0, f64::max))
    }

    /// Returns the largest difference in the compared line number `index`.
    fn line_difference(
        &self,
        output: &[f32],
        [places, known_places]: [&OutputStrides; 2],
        index: usize,
        sums: &mut [f64],
    ) -> f64 {
        let (selection, lines) = (&self.selection, &self.selection.lines);
        let line = selection.line(index);
        let first: Point = at(&lines.index, &lines.point(line)).collect();
        let values = self.values.as_slice().unwrap_or_default();

        let mut worst = 0.0f64;
        for block in 0..selection.blocks() {
            sums.fill(0.0);
            for (channel, scale) in selection.terms(line, block) {
                let (line, sums) = (&output[places.place(&first, channel)..], sums.iter_mut());
                let add = |(sum, &x): (&mut f64, &f32)| *sum += scale * f64::from(x);
                match places.stride {
                    1 => sums.zip(line).for_each(add),
                    stride => sums.zip(line.iter().step_by(stride)).for_each(add),
                }
            }

            // NaN compares as no difference here. It is detected by the check of another part, if
            // not of this one.
            let (known, stride) = match selection.is_exact() {
                true => (known_places.place(&first, block), known_places.stride),
                false => ((index * selection.blocks() + block) * sums.len(), 1),
            };
            let known = values[known..].iter().step_by(stride);
            let difference = |(&sum, &value): (&f64, &f32)| match f64::from(value) {
                value if sum == value => 0.0,
                value => (sum - value).abs(),
            };
            worst = sums.iter().zip(known).map(difference).fold(worst, f64::max);
        }
        worst
    }
}

#[cfg(test)]
mod tests {
    use ndarray::ArrayD;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;
    use crate::operands::Operands;
    use crate::reference::reference;
    use crate::workload::{Matmul, Workload};
    use autotune_ir::layout::to_layout;

    /// Workloads with a bound on the multiply-adds: weighted, sampled, sampled with lines left out,
    /// exact.
    const CASES: &[(&str, u64)] = &[
        ("matmul:b=2,m=37,n=50,k=19,bias,add", 6000),
        ("matmul:b=2,m=37,n=50,k=19,bias,add,act=relu", 6000),
        ("matmul:m=64,n=3,k=30,bias", 700),
        ("matmul:m=9,n=8,k=7,add", 1 << 30),
        ("conv2d:n=2,c=6,h=9,w=8,o=20,k=3,p=1,g=2,bias,add", 9000),
        ("conv2d:n=2,c=6,h=9,w=8,o=20,k=3,s=2,p=1,g=2,bias,add,act=relu", 3000),
        ("conv2d:c=8,h=12,w=9,o=8,k=3,p=1,d=2,g=8", 3000),
        ("conv2d:n=2,c=4,h=7,w=5,o=12,k=2,bias,dtype=bf16", 4000),
        ("conv2d:n=2,c=4,h=7,w=5,o=12,k=2,bias,act=relu,dtype=f16", 1 << 30),
    ];

    fn with_bound(workload: &Workload, operands: &Operands, bound: u64, seed: u64) -> Reference {
        Reference::with_bound(workload.spec(), operands, bound, seed).unwrap()
    }

    fn error(reference: &Reference, output: &ArrayD<f32>, layout: Layout) -> f64 {
        let physical = to_layout(output, layout).unwrap();
        let part = |part| reference.difference(&physical, layout, part).unwrap();
        (0..reference.parts()).map(part).fold(0.0, f64::max) / f64::from(reference.largest())
    }

    fn layouts(workload: &Workload) -> Vec<Layout> {
        match workload.sizes::<Matmul>() {
            Some(_) => vec![Layout::Plain],
            None => vec![Layout::Plain, Layout::ChannelBlocked(4), Layout::ChannelBlocked(2)],
        }
    }

    #[test]
    fn right_outputs_pass_in_every_layout() {
        for (seed, (text, bound)) in CASES.iter().enumerate() {
            let workload: Workload = text.parse().unwrap();
            let operands = Operands::random(workload.spec(), seed as u64);
            let output = reference(&workload, &operands);
            let reference = with_bound(&workload, &operands, *bound, seed as u64);
            // Weighted sums are of outputs rounded to the workload's type.
            let allowed = 2.0 * workload.dtype().unit_roundoff() + 1e-7;
            for layout in layouts(&workload) {
                let error = error(&reference, &output, layout);
                assert!(error <= allowed, "{text}, {layout:?}: {error}");
            }
        }
    }

    #[test]
    fn an_element_that_is_no_number_is_found_wherever_it_is() {
        let mut rng = ChaCha8Rng::seed_from_u64(31);
        for (text, bound) in CASES {
            let workload: Workload = text.parse().unwrap();
            let operands = Operands::random(workload.spec(), 5);
            let reference_of = with_bound(&workload, &operands, *bound, 5);
            let right = reference(&workload, &operands);
            for odd in [f32::NAN, f32::INFINITY] {
                for layout in layouts(&workload) {
                    let mut output = right.clone();
                    let at = rng.random_range(0..output.len());
                    output.as_slice_mut().unwrap()[at] = odd;
                    assert_eq!(error(&reference_of, &output, layout), f64::INFINITY, "{text}: element {at}");
                }
            }
        }
    }

    #[test]
    fn an_output_of_another_size_is_an_error() {
        let workload: Workload = "matmul:m=4,n=4,k=4".parse().unwrap();
        let reference = Reference::new(&workload, &Operands::random(workload.spec(), 0), 0).unwrap();
        assert!(reference.difference(&[0.0; 15], Layout::Plain, 0).is_err());
        assert!(reference.difference(&[0.0; 16], Layout::ChannelBlocked(3), 0).is_err());
    }

    /// Detects any single wrong element of a linear workload, and permuted channels, which a sum
    /// without weights would not show.
    #[test]
    fn one_wrong_element_of_a_linear_workload_is_found() {
        let mut rng = ChaCha8Rng::seed_from_u64(33);
        for (text, bound) in [CASES[0], CASES[4]] {
            let workload: Workload = text.parse().unwrap();
            let operands = Operands::random(workload.spec(), 6);
            let reference_of = with_bound(&workload, &operands, bound, 6);
            assert!(reference_of.exact().is_none());
            let right = reference(&workload, &operands);
            for _ in 0..100 {
                let mut output = right.clone();
                let at = rng.random_range(0..output.len());
                output.as_slice_mut().unwrap()[at] += 0.01 * reference_of.largest();
                let found = error(&reference_of, &output, Layout::Plain);
                assert!(found > 1e-3, "{text}: element {at}: {found}");
            }
            let channels = if text.starts_with("conv") { 1 } else { 2 };
            for _ in 0..20 {
                let (mut output, first) = (right.clone(), rng.random_range(0..10));
                for (to, from) in [(first, first + 1), (first + 1, first)] {
                    let channel = right.index_axis(ndarray::Axis(channels), from);
                    output.index_axis_mut(ndarray::Axis(channels), to).assign(&channel);
                }
                assert!(error(&reference_of, &output, Layout::Plain) > 1e-3, "{text}: channels {first} and next");
            }
        }
    }

    /// Wrong tiles of a product with ReLU are missed no more often than the module documentation
    /// states.
    #[test]
    fn a_wrong_tile_is_missed_no_more_often_than_stated() {
        let workload: Workload = "matmul:m=96,n=96,k=16,act=relu".parse().unwrap();
        let operands = Operands::random(workload.spec(), 8);
        let right = reference(&workload, &operands);
        let block = 16;
        for (rows, columns) in [(1, 1), (3, 4), (6, 16), (5, 31)] {
            let (mut missed, tries) = (0, 400);
            for seed in 0..tries {
                let reference = with_bound(&workload, &operands, 96 * 96, seed);
                let mut rng = ChaCha8Rng::seed_from_u64(seed);
                let (row, column) = (rng.random_range(0..=96 - rows), rng.random_range(0..=96 - columns));
                let mut output = right.clone();
                let mut tile = output.slice_mut(ndarray::s![0, row..row + rows, column..column + columns]);
                tile.mapv_inplace(|x| x + 1.0);
                missed += u32::from(error(&reference, &output, Layout::Plain) < 0.01);
            }
            let stated = (-((rows * columns) as f64) / f64::from(block)).exp() * tries as f64;
            // Allow six standard deviations of a count.
            assert!(f64::from(missed) <= stated + 6.0 * stated.sqrt() + 1.0, "{rows}x{columns}: {missed}, {stated}");
        }
    }
}
