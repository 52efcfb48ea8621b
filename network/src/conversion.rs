//! Conversions of a tensor between layouts, element types or addresses.

use autotune_ir::program::Layout;
use autotune_ir::{DType, GpuApi, Target};
use autotune_workloads::{Pointwise, TransposeWorkload, Types, Workload};

use crate::error::CompileError;
use crate::strided::Strided;
use autotune_graph::operators::rows_and_columns;

/// Cost model of unmeasured conversions: seconds of overhead, and bytes read and written per
/// second. Within networks on one and two cores of an AMD EPYC (family 25, model 17), transposes of
/// 16 channels, 100 kB to 1.8 MB, were measured at 22 to 45 GB/s where the second-level cache held
/// a good part, and at 7 GB/s or more otherwise.
const SECS: f64 = 3e-6;
const BYTES_PER_SEC: f64 = 20e9;

/// Bytes that kernels for CUDA access at once.
const CUDA_ALIGNMENT: usize = 16;
/// Alignment that suffices for buffers within a buffer on common OpenCL devices, which ask for 128
/// to 512 bytes.
const OPENCL_ALIGNMENT: usize = 512;

/// Returns the alignment in bytes that operands of kernels need on a target.
pub(crate) fn operand_alignment(target: &Target) -> usize {
    match target.gpu().map(|gpu| gpu.api) {
        None => 1,
        Some(GpuApi::Cuda { .. }) => CUDA_ALIGNMENT,
        Some(GpuApi::OpenCl) => OPENCL_ALIGNMENT,
    }
}

/// Layout and element type of a tensor in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Form {
    pub(crate) layout: Layout,
    pub(crate) dtype: DType,
}

/// True if a target converts one element type to the other.
pub(crate) fn is_between(from: DType, to: DType, target: &Target) -> bool {
    let rounded: &[DType] = match target.cpu() {
        Some(_) => &[DType::F32, DType::Bf16],
        None => &[DType::F32, DType::F16, DType::Bf16],
    };
    from == to || rounded.contains(&from) && rounded.contains(&to)
}

/// Returns the workload of a conversion: a transpose of blocks between layouts, else a copy, which
/// on GPUs is a cast.
///
/// `[n, c, ..pixels]` → `[n, c/block, ..pixels, block]` transposes `n*c/block` matrices of `block`
/// rows and `pixels` columns; the inverse transposes them back.
pub(crate) fn workload(shape: &[usize], from: Form, to: Form, target: &Target) -> Result<Workload, CompileError> {
    if target.gpu().is_some() && from.layout == to.layout && from.dtype != to.dtype {
        let cast = Pointwise { to: Some(to.dtype), ..Pointwise::copy(rows_and_columns(shape)) };
        let cast = Workload::new(cast).and_then(|cast| cast.with_dtype(from.dtype));
        return cast.map_err(CompileError::Workload);
    }
    let workload = if from.layout == to.layout {
        // Two axes suffice for an elementwise copy, and tensors of equal products share a kernel.
        Workload::new(Pointwise::copy(rows_and_columns(shape)))
    } else {
        Workload::new(transpose(shape, from.layout, to.layout)?)
    };
    let types = Types { out: to.dtype, ..Types::of(from.dtype) };
    let workload = workload.and_then(|workload| workload.with_types(types));
    workload.map_err(CompileError::Workload)
}

/// Returns the copy of elements between forms of one element type, if no kernel of a workload
/// converts between them: equal forms, and blocks of channels of which one divides the other.
///
/// `[n, c/small, area, small]` ↔ `[n, c/big, area, big]`, where blocks of `big` channels have
/// `big/small` blocks of `small`.
pub(crate) fn copy(shape: &[usize], from: Form, to: Form) -> Option<Strided> {
    if from == to {
        return Some(Strided::contiguous(shape.iter().product()));
    }
    let (Layout::ChannelBlocked(read), Layout::ChannelBlocked(written)) = (from.layout, to.layout) else { return None };
    let [n, c, pixels @ ..] = shape else { return None };
    let (small, big) = (read.min(written), read.max(written));
    if from.dtype != to.dtype || small == 0 || big % small != 0 || c % big != 0 {
        return None;
    }

    let area: usize = pixels.iter().product();
    // Strides of images, blocks, pixels, small blocks and channels.
    let in_small = [c * area, big * area, small, small * area, 1];
    let in_big = [c * area, big * area, big, small, 1];
    let (read, write) = if read == small { (in_small, in_big) } else { (in_big, in_small) };
    let extents = vec![*n, c / big, area, big / small, small];
    Some(Strided { extents, from: 0, read: read.map(|stride| stride as isize).to_vec(), write: write.to_vec() })
}

fn transpose(shape: &[usize], from: Layout, to: Layout) -> Result<TransposeWorkload, CompileError> {
    let none = || CompileError::Layouts { from, to };
    let [n, c, pixels @ ..] = shape else { return Err(none()) };
    let area: usize = pixels.iter().product();
    // Each block of channels is a matrix of lanes by pixels, which is transposed on its own.
    match (from, to) {
        (Layout::Plain, Layout::ChannelBlocked(block)) => Ok(TransposeWorkload::matrices(n * c / block, block, area)),
        (Layout::ChannelBlocked(block), Layout::Plain) => Ok(TransposeWorkload::matrices(n * c / block, area, block)),
        _ => Err(none()),
    }
}

/// Estimates the seconds of an unmeasured conversion.
pub(crate) fn estimated_secs(shape: &[usize], dtype: DType) -> f64 {
    let bytes = 2.0 * dtype.bytes() as f64 * shape.iter().map(|&extent| extent as f64).product::<f64>();
    SECS + bytes / BYTES_PER_SEC
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use autotune_ir::layout::to_layout;
    use ndarray::{ArrayD, IxDyn};

    use super::*;

    #[test]
    fn blocks_are_copied_to_blocks_that_they_divide() {
        let (shape, count) = ([2, 24, 3, 5], 2 * 24 * 3 * 5);
        let tensor = ArrayD::from_shape_vec(IxDyn(&shape), (0..count).map(|i| i as f32).collect()).unwrap();
        let stored =
            |block| to_layout(&tensor, Layout::ChannelBlocked(block)).unwrap().into_iter().collect::<Vec<f32>>();
        let form = |block| Form { layout: Layout::ChannelBlocked(block), dtype: DType::F32 };
        for (from, to) in [(4, 8), (8, 4), (8, 24), (24, 8), (1, 12), (12, 1)] {
            let Strided { extents, from: first, read, write } = copy(&shape, form(from), form(to)).unwrap();
            let (own, mut found) = (stored(from), vec![f32::NAN; count]);
            for number in 0..count {
                let (mut rest, mut source, mut target) = (number, first as isize, 0);
                for axis in (0..extents.len()).rev() {
                    let at = rest % extents[axis];
                    rest /= extents[axis];
                    source += at as isize * read[axis];
                    target += at * write[axis];
                }
                found[target] = own[source as usize];
            }
            assert_eq!(found, stored(to), "{from} to {to}");
        }
        assert_eq!(copy(&shape, form(8), form(12)), None);
        assert_eq!(copy(&shape, form(8), Form { layout: Layout::Plain, ..form(8) }), None);
    }
}
