//! The tensors a workload reads, and how a logical tensor lies in memory.
//!
//! ```
//! use autotune_ir::program::Layout;
//! use autotune_ir::tensor::{from_layout, to_layout};
//! use ndarray::ArrayD;
//!
//! let logical = ArrayD::from_shape_fn(vec![1, 4, 1, 2], |i| (10 * i[1] + i[3]) as f32);
//! let physical = to_layout(&logical, Layout::ChannelBlocked(2)).unwrap();
//! assert_eq!(physical, [0.0, 10.0, 1.0, 11.0, 20.0, 30.0, 21.0, 31.0]);
//! assert_eq!(from_layout(&physical, &[1, 4, 1, 2], Layout::ChannelBlocked(2)).unwrap(), logical);
//! ```

use std::borrow::Cow;

use ndarray::{ArrayD, ArrayViewD, IxDyn, s};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;
use thiserror::Error;

use crate::program::Layout;
use crate::workload::{DType, Workload};

/// The operands of one run, in their logical shapes.
#[derive(Clone, Debug, PartialEq)]
pub struct Operands {
    /// The data operand, [`Workload::input_shape`].
    pub input: ArrayD<f32>,
    /// The weight operand, [`Workload::weight_shape`].
    pub weight: ArrayD<f32>,
    /// `[Workload::bias_len]`; there exactly if the epilogue adds a bias.
    pub bias: Option<ArrayD<f32>>,
    /// [`Workload::output_shape`]; there exactly if the epilogue adds a residual.
    pub residual: Option<ArrayD<f32>>,
}

/// Operands that do not belong to a workload.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("operand '{operand}' has shape {found:?}, the workload wants {wanted:?}")]
pub struct OperandError {
    /// Which operand.
    pub operand: &'static str,
    /// Its shape; `None` if it is absent.
    pub found: Option<Vec<usize>>,
    /// The workload's shape; `None` if the operand should be absent.
    pub wanted: Option<Vec<usize>>,
}

impl Operands {
    /// Random operands that let no wrong kernel pass: every value is of either sign and between 0.1 and 1 in
    /// magnitude, so that no term vanishes, and bias and residual are scaled by half the square root of the reduction's
    /// length, so that they weigh as much as the sums they are added to.
    ///
    /// The values are those that the workload's type can hold and multiply. The same seed gives the same values on every
    /// machine and any number of cores.
    ///
    /// # Panics
    ///
    /// If there is no memory for them.
    pub fn random(workload: &Workload, seed: u64) -> Self {
        match Self::try_random(workload, seed) {
            Ok(operands) => operands,
            Err(error) => panic!("{error}"),
        }
    }

    /// The same for operands of any size.
    pub fn try_random(workload: &Workload, seed: u64) -> Result<Self, OutOfMemory> {
        let dtype = workload.dtype;
        let sum_scale = 0.5 * (workload.reduction_len() as f32).sqrt();
        let multiplied = |x: f32| dtype.multiplied(x);
        let stored = |x: f32| dtype.stored(sum_scale * x);
        let bias = || random_tensor(vec![workload.bias_len()], [seed, 2], stored);
        let residual = || random_tensor(workload.output_shape(), [seed, 3], stored);
        Ok(Self {
            input: random_tensor(workload.input_shape(), [seed, 0], multiplied)?,
            weight: random_tensor(workload.weight_shape(), [seed, 1], multiplied)?,
            bias: workload.epilogue.bias.then(bias).transpose()?,
            residual: workload.epilogue.residual.then(residual).transpose()?,
        })
    }

    /// The same with data and weights as they are multiplied ([`DType::multiplied`]), bias and residual as they are stored.
    pub fn rounded(&self, dtype: DType) -> Cow<'_, Self> {
        if dtype == DType::F32 {
            return Cow::Borrowed(self);
        }
        Cow::Owned(Self {
            input: self.input.mapv(|x| dtype.multiplied(x)),
            weight: self.weight.mapv(|x| dtype.multiplied(x)),
            bias: self.bias.as_ref().map(|tensor| tensor.mapv(|x| dtype.stored(x))),
            residual: self.residual.as_ref().map(|tensor| tensor.mapv(|x| dtype.stored(x))),
        })
    }

    /// Whether every operand has the workload's shape and none is missing or too many.
    pub fn check(&self, workload: &Workload) -> Result<(), OperandError> {
        let check = |operand, tensor: Option<&ArrayD<f32>>, wanted: Option<Vec<usize>>| {
            let found = tensor.map(|t| t.shape().to_vec());
            if found == wanted { Ok(()) } else { Err(OperandError { operand, found, wanted }) }
        };
        let epilogue = workload.epilogue;
        check("input", Some(&self.input), Some(workload.input_shape()))?;
        check("weight", Some(&self.weight), Some(workload.weight_shape()))?;
        check("bias", self.bias.as_ref(), epilogue.bias.then(|| vec![workload.bias_len()]))?;
        check("residual", self.residual.as_ref(), epilogue.residual.then(|| workload.output_shape()))
    }
}

/// Memory that cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("no memory for {bytes} bytes")]
pub struct OutOfMemory {
    /// What was asked for (`usize::MAX` if it overflows).
    pub bytes: usize,
}

impl OutOfMemory {
    /// So many zeros.
    pub fn zeros<T: Clone + Default>(len: usize) -> Result<Vec<T>, Self> {
        let mut values = Vec::new();
        let bytes = len.saturating_mul(size_of::<T>());
        values.try_reserve_exact(len).map_err(|_| Self { bytes })?;
        values.resize(len, T::default());
        Ok(values)
    }
}

/// Elements that are drawn in a row: other cores draw the next ones.
const DRAWN_IN_A_ROW: usize = 1 << 14;

/// Values in ±[0.1, 1) as `rounded` makes them. The seed is that of all tensors and the number of this one.
fn random_tensor(
    shape: Vec<usize>,
    [seed, tensor]: [u64; 2],
    rounded: impl Fn(f32) -> f32 + Sync,
) -> Result<ArrayD<f32>, OutOfMemory> {
    let len = shape.iter().try_fold(1usize, |len, &extent| len.checked_mul(extent));
    let mut values = OutOfMemory::zeros(len.unwrap_or(usize::MAX))?;
    values.par_chunks_mut(DRAWN_IN_A_ROW).enumerate().for_each(|(chunk, values)| {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(4 * chunk as u64 + tensor);
        values.iter_mut().for_each(|x| *x = rounded(value(&mut rng)));
    });
    let bytes = usize::MAX;
    ArrayD::from_shape_vec(IxDyn(&shape), values).map_err(|_| OutOfMemory { bytes })
}

/// Uniform in ±[0.1, 1): a sign and 24 bits of the magnitude.
fn value(rng: &mut impl Rng) -> f32 {
    let bits = rng.next_u32();
    let magnitude = 0.1 + 0.9 * ((bits >> 8) as f32 / (1u32 << 24) as f32);
    // The largest of all would be rounded up to 1.
    let magnitude = magnitude.min(1.0f32.next_down());
    if bits & 1 == 0 { magnitude } else { -magnitude }
}

/// A layout that does not fit a tensor.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LayoutError {
    /// A channel-blocked layout of a tensor that is not `[n, c, h, w]`.
    #[error("a channel-blocked layout needs a tensor [n, c, h, w], not {shape:?}")]
    Rank {
        /// The logical shape.
        shape: Vec<usize>,
    },
    /// The block does not divide the channels.
    #[error("a block of {block} does not divide {channels} channels")]
    Block {
        /// Channels of the tensor.
        channels: usize,
        /// Channels of a block.
        block: usize,
    },
    /// The physical data has not as many elements as the shape.
    #[error("{found} elements for a tensor of shape {shape:?}")]
    Len {
        /// The logical shape.
        shape: Vec<usize>,
        /// Elements given.
        found: usize,
    },
}

/// The shape, outermost first, of a tensor of shape `logical` in `layout`.
pub fn physical_shape(logical: &[usize], layout: Layout) -> Result<Vec<usize>, LayoutError> {
    let Layout::ChannelBlocked(block) = layout else {
        return Ok(logical.to_vec());
    };
    let &[n, c, h, w] = logical else {
        return Err(LayoutError::Rank { shape: logical.to_vec() });
    };
    if block == 0 || !c.is_multiple_of(block) {
        return Err(LayoutError::Block { channels: c, block });
    }
    Ok(vec![n, c / block, h, w, block])
}

/// The elements of a logical tensor in the order in which `layout` puts them into memory.
pub fn to_layout(logical: &ArrayD<f32>, layout: Layout) -> Result<Vec<f32>, LayoutError> {
    let mut physical = vec![0.0; logical.len()];
    put_in_layout(logical, layout, &mut physical)?;
    Ok(physical)
}

/// The same into memory that is there.
pub fn put_in_layout(logical: &ArrayD<f32>, layout: Layout, physical: &mut [f32]) -> Result<(), LayoutError> {
    let shape = physical_shape(logical.shape(), layout)?;
    if physical.len() != logical.len() {
        return Err(LayoutError::Len { shape, found: physical.len() });
    }
    let (&[images, blocks, h, w, block], Layout::ChannelBlocked(_)) = (shape.as_slice(), layout) else {
        physical.iter_mut().zip(logical).for_each(|(to, &x)| *to = x);
        return Ok(());
    };
    // A layout of no elements has no blocks to be cut into.
    let of_blocks = physical.chunks_exact_mut((h * w * block).max(1));
    for (index, physical) in of_blocks.enumerate().take(images * blocks) {
        let (image, first) = (index / blocks, index % blocks * block);
        let channels = logical.slice(s![image, first..first + block, .., ..]);
        let pixels = channels.permuted_axes([1, 2, 0]);
        physical.iter_mut().zip(&pixels).for_each(|(to, &x)| *to = x);
    }
    Ok(())
}

/// The logical tensor of shape `logical` whose elements lie in `physical` as `layout` says.
pub fn from_layout(physical: &[f32], logical: &[usize], layout: Layout) -> Result<ArrayD<f32>, LayoutError> {
    let shape = physical_shape(logical, layout)?;
    let found = physical.len();
    let view = ArrayViewD::from_shape(IxDyn(&shape), physical)
        .map_err(|_| LayoutError::Len { shape: logical.to_vec(), found })?;
    if layout == Layout::Plain {
        return Ok(view.to_owned());
    }
    let merged = view.permuted_axes(IxDyn(&[0, 1, 4, 2, 3]));
    let merged = merged.as_standard_layout();
    reshape(merged.view(), logical).map(|tensor| tensor.to_owned())
}

/// A view of a row-major tensor under another shape of the same length.
fn reshape<'a>(tensor: ArrayViewD<'a, f32>, shape: &[usize]) -> Result<ArrayViewD<'a, f32>, LayoutError> {
    let found = tensor.len();
    tensor.into_shape_with_order(IxDyn(shape)).map_err(|_| LayoutError::Len { shape: shape.to_vec(), found })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_operands_have_the_workloads_shapes_and_no_easy_values() {
        let workload: Workload = "conv2d:c=8,h=5,w=6,o=4,k=3,p=1,g=2,bias,add".parse().unwrap();
        let operands = Operands::random(&workload, 7);
        assert_eq!(operands.check(&workload), Ok(()));
        assert_eq!(operands, Operands::random(&workload, 7));
        assert_ne!(operands, Operands::random(&workload, 8));
        assert!(operands.input.iter().chain(&operands.weight).all(|x| (0.1..1.0).contains(&x.abs())));
        assert!(operands.input.iter().any(|&x| x > 0.0) && operands.input.iter().any(|&x| x < 0.0));
        let (bias, residual) = (operands.bias.unwrap(), operands.residual.unwrap());
        assert!(bias.iter().chain(&residual).all(|x| (0.3..3.0).contains(&x.abs())));
    }

    #[test]
    fn operands_of_another_workload_are_named() {
        let plain: Workload = "matmul:m=3,n=4,k=5".parse().unwrap();
        let biased: Workload = "matmul:m=3,n=4,k=5,bias".parse().unwrap();
        let wider: Workload = "matmul:m=3,n=6,k=5".parse().unwrap();
        let operands = Operands::random(&plain, 0);
        assert_eq!(operands.check(&biased).unwrap_err().operand, "bias");
        assert_eq!(operands.check(&wider).unwrap_err().operand, "weight");
        assert_eq!(Operands::random(&biased, 0).check(&plain).unwrap_err().operand, "bias");
    }

    #[test]
    fn blocked_layout_puts_the_channels_of_a_block_side_by_side() {
        let shape = [2, 6, 3, 5];
        let logical = ArrayD::from_shape_fn(shape.to_vec(), |i| (i[0] * 1000 + i[1] * 100 + i[2] * 10 + i[3]) as f32);
        let layout = Layout::ChannelBlocked(3);
        let physical = to_layout(&logical, layout).unwrap();
        let view = ArrayViewD::from_shape(vec![2, 2, 3, 5, 3], &physical).unwrap();
        assert_eq!(physical_shape(&shape, layout).unwrap(), view.shape());
        for (i, &x) in logical.indexed_iter() {
            assert_eq!(view[[i[0], i[1] / 3, i[2], i[3], i[1] % 3]], x);
        }
        assert_eq!(from_layout(&physical, &shape, layout).unwrap(), logical);
        let plain = to_layout(&logical, Layout::Plain).unwrap();
        assert_eq!(plain, logical.as_slice().unwrap());
        assert_eq!(from_layout(&plain, &shape, Layout::Plain).unwrap(), logical);
    }

    #[test]
    fn a_transposed_view_is_read_in_logical_order() {
        let logical = ArrayD::from_shape_fn(vec![2, 3], |i| (i[0] * 3 + i[1]) as f32);
        let transposed = logical.t().to_owned();
        assert_eq!(to_layout(&transposed, Layout::Plain).unwrap(), [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
    }

    #[test]
    fn misfits_are_errors() {
        let blocked = Layout::ChannelBlocked;
        let channels = 6;
        assert_eq!(physical_shape(&[1, 6, 2, 2], blocked(4)), Err(LayoutError::Block { channels, block: 4 }));
        assert_eq!(physical_shape(&[1, 6, 2, 2], blocked(0)), Err(LayoutError::Block { channels, block: 0 }));
        assert!(matches!(physical_shape(&[6, 2], blocked(2)), Err(LayoutError::Rank { .. })));
        assert!(matches!(from_layout(&[0.0; 5], &[6], Layout::Plain), Err(LayoutError::Len { .. })));
    }
}
