//! Reference outputs that the outputs of kernels are compared with.
//!
//! [`reference()`] evaluates every output element plainly in f64. Its cost grows with the kernel's
//! own work. Large workloads have a [`Reference`] instead, whose cost is bounded by
//! [`EXACT_MULTIPLY_ADDS`], a fraction of a second on two cores. An output is divided into
//! channels, and each *channel* into *lines*. A line is a row of pixels of a convolution. In a
//! matrix product, columns are the channels, and a line is one element. The channels are divided
//! into blocks of `s`, such that the multiply-adds divided by `s` are within the bound.
//!
//! | workload | compared | a kernel with `w` wrong lines passes with probability |
//! |---|---|---|
//! | up to the bound | every element | 0 |
//! | larger, linear | the weighted sums of blocks | about `2 sqrt(s) / e` at most |
//! | larger, other | a line of each block | `exp(-w / (s r))` at most |
//!
//! *Linear* workloads have no epilogue but bias and residual. For each block, the sum of its `s`
//! channels with random weights is compared pixel by pixel, so that every element counts
//! (Freivalds, *Probabilistic machines can use less running time*, 1977). `e` is the error in
//! tolerances; an error that is the only one in its block is always found if it is above
//! `2 sqrt(s)`.
//!
//! *Other* workloads have a function or a scale, or `s` exceeds a group's channels. The line of one
//! channel is compared, drawn at random for each block and line, for one of every `r` lines.
//!
//! `r` is 1 unless the bound requires blocks larger than a group of channels. A block has fewer
//! than `s` channels only at the end of a group. Lines at the borders count like any other. So
//! every element may be compared. The weights of a block have unit norm, and their magnitudes
//! differ by a factor of two at most. So a weighted sum has rounding errors like those of an
//! element, and the tolerance is the same. Random choices depend on a seed, which every process may
//! choose.
//!
//! In every case, each element of an output must be finite. Outputs are NaN before a kernel runs.
//! So elements that it never writes, or computes from uninitialised memory, are always detected.

use ndarray::ArrayD;

use autotune_ir::DType;
use autotune_ir::Spec;
use autotune_ir::interp::OperandError;
use autotune_ir::program::Role;
use autotune_ir::spec::{TensorSource, TensorSpec};

use crate::axes::is_pair;
use crate::operands::{Operands, OutOfMemory, is_nonlinear, is_nonlinear_in_sums, sum_size};
use crate::workload::Workload;

mod difference;
mod line;
mod lines;
mod operand;
mod plain;
mod product;
mod selection;
mod tile;

use line::points;
use product::Product;
pub use selection::EXACT_MULTIPLY_ADDS;
use selection::LineSelection;

/// Returns the output of a workload, summed in f64 and rounded once. The operands are first rounded
/// to their types.
///
/// ```
/// use autotune_workloads::{Operands, Workload, max_rel_error, reference};
/// let workload: Workload = "matmul:m=2,n=3,k=4,act=relu".parse().unwrap();
/// let output = reference(&workload, &Operands::random(workload.spec(), 0));
/// assert_eq!(output.shape(), [1, 2, 3]);
/// assert_eq!(max_rel_error(&output, &output), 0.0);
/// ```
///
/// # Panics
///
/// If the operands do not match the workload ([`Operands::check`]), or memory is lacking.
pub fn reference(workload: &Workload, operands: &Operands) -> ArrayD<f32> {
    match Reference::with_bound(workload.spec(), operands, u64::MAX, 0) {
        Ok(made) => made.values,
        Err(error) => panic!("{error}"),
    }
}

/// Lower bound of the magnitude that errors are relative to, as a fraction of `sqrt(k)` for sums of
/// `k` products.
///
/// Such sums of random operands have a magnitude of about `0.3 sqrt(k)`. If products cancel, or
/// ReLU leaves only small outputs, rounding errors are still those of sums of that size. One lost
/// product, at least 0.01, still exceeds every tolerance by far.
const LEAST_SUM: f32 = 0.1;
/// Like [`LEAST_SUM`], for functions with bounded values, such as sigmoid, whose outputs stay small
/// even if the sums are large.
const LEAST_BENT_SUM: f32 = 0.5;
/// Lower bound of the magnitude as a fraction of the largest function argument.
///
/// A function's result has an error like that of its argument, however small it is: GELU of -6 adds
/// 1 and nearly -1.
const LEAST_BENT: f32 = 1.0 / 64.0;

/// The values that an output is compared with: all elements, or for large workloads those that the
/// [module](self) describes.
pub struct Reference {
    selection: LineSelection,
    /// Values by line, block and element: `[lines, blocks, width]`. If exact, the output in its own
    /// shape.
    values: ArrayD<f32>,
    /// Differences between exact integers and `values`, in the same order, since f32 rounds
    /// integers above 2^24. `None` if the reference is not exact, or for other types.
    residuals: Option<ArrayD<f32>>,
    /// The magnitude that errors are relative to.
    largest: f32,
    /// True if all elements are compared and some are infinite, such as the padding of a maximum.
    has_infinities: bool,
}

/// The reason why a reference cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReferenceError {
    /// The operands do not match the workload.
    #[error(transparent)]
    Operands(#[from] OperandError),
    /// There is not enough memory.
    #[error(transparent)]
    Memory(#[from] OutOfMemory),
}

impl Reference {
    /// Computes the reference for some operands, using all cores. The seed determines what is
    /// sampled of a large output.
    pub fn new(workload: &Workload, operands: &Operands, seed: u64) -> Result<Self, ReferenceError> {
        Self::with_bound(workload.spec(), operands, EXACT_MULTIPLY_ADDS, seed)
    }

    /// Computes the reference of any spec, exact up to `bound` multiply-adds.
    pub fn with_bound(spec: &Spec, operands: &Operands, bound: u64, seed: u64) -> Result<Self, ReferenceError> {
        operands.check(spec)?;
        let selection = LineSelection::of(spec, bound, seed);
        let given: Vec<_> = operands.iter().map(|operand| operand.as_standard_layout()).collect();
        let tensors = line::ReferenceTensor::all(spec, &given);
        let (values, residuals, mapped) = if has_residuals(spec, &selection) {
            let (exact, mapped) = evaluated(spec, &selection, tensors, |x| x)?;
            let values: Vec<f32> = exact.iter().map(|&x| x as f32).collect();
            let residuals = exact.iter().zip(&values).map(|(x, &value)| (x - f64::from(value)) as f32).collect();
            (values, Some(residuals), mapped)
        } else {
            let (values, mapped) = evaluated(spec, &selection, tensors, |x| x as f32)?;
            (values, None, mapped)
        };

        let least = match (spec.is_chain(), is_nonlinear_in_sums(spec)) {
            (true, _) if is_pair(spec) => {
                let last = &spec.equations[spec.equations.len() - 2];
                LEAST_SUM * (last.reduction_len() as f32).sqrt()
            }
            (true, _) => f32::MIN_POSITIVE,
            (_, true) => LEAST_BENT_SUM * sum_size(spec),
            (_, false) => LEAST_SUM * sum_size(spec),
        };
        let is_bent = is_nonlinear(spec) && mapped.is_finite();
        let least = if is_bent { least.max(LEAST_BENT * mapped) } else { least };
        let least = least.max(range_of_bytes(spec));
        let finite = values.iter().filter(|x| x.is_finite());
        let largest = finite.fold(least, |largest: f32, x| largest.max(x.abs()));
        let has_infinities = selection.is_exact() && values.iter().any(|x| x.is_infinite());
        let shape = match selection.is_exact() {
            true => selection.lines.shape.clone(),
            false => vec![selection.chosen_lines(), selection.blocks(), selection.lines.width.1],
        };
        let tensor = |values: Vec<f32>| {
            ArrayD::from_shape_vec(shape.clone(), values).map_err(|_| OutOfMemory { bytes: usize::MAX })
        };
        let (values, residuals) = (tensor(values)?, residuals.map(tensor).transpose()?);
        Ok(Self { selection, values, residuals, largest, has_infinities })
    }

    /// Returns the number of bytes of a workload's reference, including intermediate tensors, which
    /// are needed unless the output is a sum of products.
    pub fn bytes(workload: &Workload) -> usize {
        let selection = LineSelection::of(workload.spec(), EXACT_MULTIPLY_ADDS, 0);
        let is_made =
            |tensor: &&TensorSpec| selection.lines.vector.is_none() && tensor.source == TensorSource::Computed;
        let made = workload.spec().tensors.iter().filter(is_made).map(|tensor| points(&tensor.shape).saturating_mul(8));
        let mapped =
            workload.spec().prologue().map(|map| points(&workload.spec().tensor(&map.output).shape).saturating_mul(8));
        // With `residuals`, there are also the elements in f64 for a while.
        let of_element = if has_residuals(workload.spec(), &selection) { 16 } else { 4 };
        made.chain(mapped).fold(selection.len().saturating_mul(of_element), usize::saturating_add)
    }

    /// Returns the magnitude that errors are relative to: the largest finite one in the reference,
    /// or a typical sum if the values are smaller.
    pub fn largest(&self) -> f32 {
        self.largest
    }

    /// Returns the output, if all of it is compared.
    pub fn exact(&self) -> Option<&ArrayD<f32>> {
        self.selection.is_exact().then_some(&self.values)
    }

    /// Returns the differences between the exact integers of the output and [`exact`](Self::exact),
    /// since f32 rounds integers above 2^24.
    ///
    /// `None` for other types, and if not all of the output is compared.
    pub fn integer_residuals(&self) -> Option<&ArrayD<f32>> {
        self.residuals.as_ref()
    }

    /// Returns the shape of the output.
    pub fn shape(&self) -> Vec<usize> {
        self.selection.lines.shape.clone()
    }
}

/// True if all elements are compared, and are integers that f32 may round.
fn has_residuals(spec: &Spec, selection: &LineSelection) -> bool {
    let dtype = lines::output(spec).dtype;
    selection.is_exact() && dtype.is_integer() && dtype.bytes() >= 4
}

/// Returns the largest integer of an 8-bit output, whose errors are whole steps of its range; 0 for
/// other types.
fn range_of_bytes(spec: &Spec) -> f32 {
    let dtype = spec.find(Role::Output).map_or(DType::F32, |tensor| tensor.dtype);
    if dtype.is_integer() && dtype.bytes() == 1 { dtype.range()[1] as f32 } else { 0.0 }
}

/// Returns the values of a selection, each converted by `of`, and the largest finite magnitude that
/// the last equation maps; 0 if unknown.
fn evaluated<T: Clone + Default + Send>(
    spec: &Spec,
    selection: &LineSelection,
    mut tensors: Vec<line::ReferenceTensor>,
    of: fn(f64) -> T,
) -> Result<(Vec<T>, f32), OutOfMemory> {
    let Some(axis) = selection.lines.vector else { return plain::evaluate(spec, tensors, of) };
    spec.prologue().map_or(Ok(()), |map| plain::make(spec, map, &mut tensors))?;
    Ok((Product::new(spec, selection, axis, tensors)?.values(of)?, 0.0))
}

/// Returns the largest difference between two tensors, relative to the largest magnitude in
/// `reference`.
///
/// It is infinite if the shapes differ, or if an element of either is not finite, unless both are
/// the same infinity.
pub fn max_rel_error(actual: &ArrayD<f32>, reference: &ArrayD<f32>) -> f64 {
    if actual.shape() != reference.shape() {
        return f64::INFINITY;
    }
    let (mut largest, mut worst) = (0.0f64, 0.0f64);
    for (&a, &r) in actual.iter().zip(reference).filter(|(a, r)| a != r || a.is_finite()) {
        if !a.is_finite() || !r.is_finite() {
            return f64::INFINITY;
        }
        largest = largest.max(f64::from(r).abs());
        worst = worst.max((f64::from(a) - f64::from(r)).abs());
    }
    if worst == 0.0 { 0.0 } else { worst / largest }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Conv2d, Matmul, Sides};
    use ndarray::{Array2, Axis, Dimension, Ix2, indices};
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    /// Computes a convolution with seven loops, explicit indices, and a bounds test at every tap.
    fn seven_loops(conv: &Conv2d, t: &Operands) -> ArrayD<f64> {
        let [oh, ow] = conv.output_hw();
        let per_group = conv.c / conv.groups;
        ArrayD::from_shape_fn(vec![conv.n, conv.o, oh, ow], |i| {
            let group = i[1] * conv.groups / conv.o;
            let mut sum = 0.0;
            for c in 0..per_group {
                for kh in 0..conv.kh {
                    for kw in 0..conv.kw {
                        let y = (i[2] * conv.stride[0] + kh * conv.dilation[0]) as i64 - conv.pad[0] as i64;
                        let x = (i[3] * conv.stride[1] + kw * conv.dilation[1]) as i64 - conv.pad[1] as i64;
                        if y >= 0 && x >= 0 && y < conv.h as i64 && x < conv.w as i64 {
                            let data = t[0][[i[0], group * per_group + c, y as usize, x as usize]];
                            sum += f64::from(data) * f64::from(t[1][[i[1], c, kh, kw]]);
                        }
                    }
                }
            }
            sum
        })
    }

    fn random_conv(rng: &mut ChaCha8Rng) -> Option<Workload> {
        let mut pick = |low: usize, high: usize| rng.random_range(low..=high);
        let groups = pick(1, 3);
        let conv = Conv2d {
            n: pick(1, 2),
            c: groups * pick(1, 3),
            h: pick(1, 9),
            w: pick(1, 9),
            o: groups * pick(1, 3),
            kh: pick(1, 4),
            kw: pick(1, 4),
            stride: [pick(1, 3), pick(1, 3)],
            pad: [pick(0, 2), pick(0, 2)],
            dilation: [pick(1, 2), pick(1, 2)],
            groups,
        };
        Workload::new(conv).ok()
    }

    #[test]
    fn convolutions_agree_with_seven_loops() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let mut tried = 0;
        while tried < 200 {
            let Some(workload) = random_conv(&mut rng) else {
                continue;
            };
            let conv = *workload.sizes::<Conv2d>().unwrap();
            let operands = Operands::random(workload.spec(), tried);
            let wanted = seven_loops(&conv, &operands).mapv(|x| x as f32);
            let error = max_rel_error(&reference(&workload, &operands), &wanted);
            assert!(error < 1e-6, "{workload}, seed {tried}: {error}");
            tried += 1;
        }
    }

    #[test]
    fn products_agree_with_ndarray() {
        for text in [
            "matmul:m=7,n=5,k=9",
            "matmul:b=3,m=4,n=6,k=2",
            "matmul:m=1,n=1,k=1",
            "matmul:m=7,n=5,k=9,ta",
            "matmul:b=2,m=7,n=5,k=3,tb",
            "matmul:b=3,m=4,n=6,k=2,ta,tb",
            "matmul:b=3,lhs=shared,m=4,n=6,k=2,ta",
            "matmul:b=3,rhs=shared,m=4,n=6,k=2",
            "matmul:b=2x3,lhs=0,rhs=1,m=4,n=6,k=2",
            "matmul:b=2x3x2,lhs=02,m=4,n=1,k=5,tb",
        ] {
            let workload: Workload = text.parse().unwrap();
            let operands = Operands::random(workload.spec(), 3);
            let output = reference(&workload, &operands);
            let Matmul { b, ta, tb, .. } = *workload.sizes().unwrap();

            for at in indices(&output.shape()[..b.axes().len()]) {
                // The batch axes that a tensor has come first.
                let matrix = |t: &ArrayD<f32>, without| {
                    let of_batch = b.axes().iter().enumerate().filter(|(_, axis)| Some(axis.1) != without);
                    let matrix = of_batch.fold(t.view(), |t, (axis, _)| t.index_axis_move(Axis(0), at[axis]));
                    matrix.mapv(f64::from).into_dimensionality::<Ix2>().unwrap()
                };
                let as_multiplied =
                    |matrix: Array2<f64>, is_transposed| if is_transposed { matrix.reversed_axes() } else { matrix };
                let [left, right] = [(0, Sides::Right, ta), (1, Sides::Left, tb)].map(|(number, other, transposed)| {
                    as_multiplied(matrix(&operands[number], Some(other)), transposed)
                });

                let wanted = left.dot(&right).mapv(|x| x as f32).into_dyn();
                let found = matrix(&output, None).mapv(|x| x as f32).into_dyn();
                let error = max_rel_error(&found, &wanted);
                assert!(error < 1e-6, "{text}, batch {at:?}: {error}");
            }
        }
    }

    /// Sums of 600 products of 255 and 127, plus one product of 1 and 1: f32 cannot represent them
    /// exactly.
    #[test]
    fn integers_are_exact() {
        let workload: Workload = "matmul:m=1,n=2,k=601,data=u8,weights=i8".parse().unwrap();
        let mut operands = Operands::random(workload.spec(), 0);
        operands[0].fill(255.0);
        operands[1].fill(-127.0);
        operands[0][[0, 0, 600]] = 1.0;
        operands[1][[0, 600, 0]] = -1.0;
        operands[1][[0, 600, 1]] = -2.0;
        let made = Reference::new(&workload, &operands, 0).unwrap();
        let exact = made.exact().unwrap().iter().zip(made.integer_residuals().unwrap());
        let exact: Vec<f64> = exact.map(|(&value, &rest)| f64::from(value) + f64::from(rest)).collect();
        assert_eq!(exact, [-19_431_001.0, -19_431_002.0]);

        let as_f32: Workload = "matmul:m=1,n=2,k=601,data=u8,weights=i8,out=f32".parse().unwrap();
        assert!(Reference::new(&as_f32, &operands, 0).unwrap().integer_residuals().is_none());
    }

    #[test]
    fn epilogue_adds_bias_and_residual_before_the_activation() {
        for (plain, fused) in [
            ("conv2d:c=2,h=4,w=3,o=5,k=1", "conv2d:c=2,h=4,w=3,o=5,k=1,bias,add,act=relu"),
            ("matmul:b=2,m=3,n=4,k=5", "matmul:b=2,m=3,n=4,k=5,bias,add,act=relu"),
        ] {
            let (plain, fused): (Workload, Workload) = (plain.parse().unwrap(), fused.parse().unwrap());
            let (bare, operands) = (Operands::random(plain.spec(), 5), Operands::random(fused.spec(), 5));
            assert!(bare[..] == operands[..2]);
            let sums = reference(&plain, &bare);
            let output = reference(&fused, &operands);
            let [bias, residual] = ["bias", "residual"].map(|name| operands.named(name).unwrap());
            let mut clipped = 0;
            for (i, &sum) in sums.indexed_iter() {
                let channel = if i.ndim() == 4 { i[1] } else { i[2] };
                let whole = sum + bias[channel] + residual[&i];
                assert!((output[&i] - whole.max(0.0)).abs() < 1e-5, "{fused} at {i:?}");
                clipped += usize::from(whole < 0.0);
            }
            assert!(clipped > 0 && clipped < sums.len());
        }
    }

    #[test]
    fn errors_are_relative_to_the_largest_value_and_never_hide() {
        let tensor = |values: &[f32]| ArrayD::from_shape_vec(vec![values.len()], values.to_vec()).unwrap();
        let wanted = tensor(&[1.0, -4.0]);
        assert_eq!(max_rel_error(&tensor(&[1.5, -4.0]), &wanted), 0.125);
        assert_eq!(max_rel_error(&tensor(&[f32::NAN, -4.0]), &wanted), f64::INFINITY);
        assert_eq!(max_rel_error(&tensor(&[f32::INFINITY, -4.0]), &wanted), f64::INFINITY);
        assert_eq!(max_rel_error(&wanted, &tensor(&[1.0, f32::NAN])), f64::INFINITY);
        assert_eq!(max_rel_error(&tensor(&[1.0]), &wanted), f64::INFINITY);
        assert_eq!(max_rel_error(&tensor(&[0.0]), &tensor(&[0.0])), 0.0);
        assert_eq!(max_rel_error(&tensor(&[1.0]), &tensor(&[0.0])), f64::INFINITY);
    }
}
