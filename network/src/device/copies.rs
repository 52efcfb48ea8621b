//! Copies of strided elements on GPUs, by one kernel for each size of an element.
//!
//! The kernels read the loops of a copy from device memory, so that they are compiled once for all
//! copies. They take any address that is a multiple of the element size.

use autotune::measure::gpu;
use autotune::{BuildError, Device};
use autotune_ir::{GpuApi, GpuTarget, KernelPlan};
use autotune_runtime::{Bound, DeviceError};

use crate::error::CompileError;
use crate::strided::{CopyEnd, StridedLoop};

const BLOCKS_PER_MULTIPROCESSOR: usize = 8;

/// Sizes of elements in bytes, in the order of the kernels.
const SIZES: [usize; 4] = [1, 2, 4, 8];

/// Number of words before the loops: elements, loops, first elements that are read and written.
const HEAD_WORDS: usize = 4;

const CUDA: &str = r#"
#define GLOBAL
#define FIRST (blockIdx.x * blockDim.x + threadIdx.x)
#define STEP (gridDim.x * blockDim.x)
typedef unsigned char element1;
typedef unsigned short element2;
typedef unsigned int element4;
typedef unsigned long long element8;
"#;
const OPENCL: &str = r#"
#define GLOBAL __global
#define FIRST ((unsigned int)get_global_id(0))
#define STEP ((unsigned int)get_global_size(0))
typedef uchar element1;
typedef ushort element2;
typedef uint element4;
typedef ulong element8;
"#;

/// Source of a kernel for elements of `SIZE` bytes. `copy` has the words of [`words`]. A thread
/// takes the number of an element apart into the iterations of the loops, from the innermost.
const SOURCE: &str = r#"
KERNEL copy_SIZE(GLOBAL const elementSIZE *from, GLOBAL const int *copy, GLOBAL elementSIZE *to) {
  const unsigned int count = copy[0];
  for (unsigned int i = FIRST; i < count; i += STEP) {
    unsigned int rest = i;
    int read = copy[2], written = copy[3];
    for (int loop = copy[1] - 1; loop >= 0; --loop) {
      GLOBAL const int *each = copy + HEAD + 3 * loop;
      const unsigned int outer = rest / (unsigned int)each[0];
      const int at = (int)(rest - outer * (unsigned int)each[0]);
      read += at * each[1];
      written += at * each[2];
      rest = outer;
    }
    to[written] = from[read];
  }
}
"#;

/// Kernels that copy elements, loaded on a device.
pub(super) struct CopyKernels<D: Device> {
    module: D::Module,
}

impl<D: Device> CopyKernels<D> {
    /// Builds and loads the kernels.
    pub(super) fn new(device: &D, target: &GpuTarget) -> Result<Self, CompileError> {
        let artifact = gpu::artifact_of_source(source(target.api), plan(target), target).map_err(BuildError::from)?;
        // SAFETY: the kernels access only the elements that `bind` has checked.
        Ok(Self { module: unsafe { device.load(&artifact) }? })
    }

    /// Creates a call that copies elements of `bytes` bytes by loops that stay within both ends.
    ///
    /// # Safety
    ///
    /// Whenever the call is started, the kernels are loaded, and no other call uses the destination
    /// or writes the source. The loops stay within both ends.
    pub(super) unsafe fn bind(
        &self,
        device: &D,
        loops: &[StridedLoop],
        bytes: usize,
        from: CopyEnd<D>,
        to: CopyEnd<D>,
    ) -> Result<D::Call, CompileError> {
        let stage = SIZES.iter().position(|&size| size == bytes);
        let stage = stage.ok_or_else(|| DeviceError::fault("no kernel copies elements of this size"))?;
        let reaches = |end: &CopyEnd<D>| device.extent(&end.memory).bytes / bytes <= i32::MAX as usize;
        if !reaches(&from) || !reaches(&to) {
            return Err(CompileError::TooLarge);
        }
        let words = words(loops, from.first, to.first).ok_or(CompileError::TooLarge)?;
        let buffers = vec![from.memory, device.upload(&words)?, to.memory];
        // SAFETY: guaranteed by the caller; these are the plan's buffers.
        Ok(unsafe { device.bind(&self.module, &[stage], Bound { buffers, private: vec![] }) }?)
    }
}

/// Returns the words that describe a copy to the kernels; `None` if one exceeds 31 bits.
fn words(loops: &[StridedLoop], read: usize, written: usize) -> Option<Vec<i32>> {
    let count = loops.iter().try_fold(1usize, |product, each| product.checked_mul(each.count))?;
    let mut words = Vec::with_capacity(HEAD_WORDS + 3 * loops.len());
    for word in [count, loops.len(), read, written] {
        words.push(i32::try_from(word).ok()?);
    }
    for StridedLoop { count, read, write } in loops {
        words.extend([i32::try_from(*count).ok()?, i32::try_from(*read).ok()?, i32::try_from(*write).ok()?]);
    }
    Some(words)
}

fn source(api: GpuApi) -> String {
    let head = match api {
        GpuApi::Cuda { .. } => CUDA,
        GpuApi::OpenCl => OPENCL,
    };
    let source = SOURCE.replace("HEAD", &HEAD_WORDS.to_string());
    let kernels = SIZES.map(|size| source.replace("SIZE", &size.to_string()));
    gpu::with_kernel_words(&format!("{head}{}", kernels.concat()), api)
}

fn plan(target: &GpuTarget) -> KernelPlan {
    let symbols = SIZES.map(|size| format!("copy_{size}"));
    gpu::plan_of_source(["from", "copy", "to"], symbols, BLOCKS_PER_MULTIPROCESSOR, target)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use autotune::measure::nvrtc;

    use super::*;

    #[test]
    fn the_kernels_are_cuda() {
        if let Err(reason) = nvrtc::compiler_for(90) {
            let required = std::env::var("AUTOTUNE_REQUIRE").unwrap_or_default();
            assert!(required.split(',').all(|name| name != "nvrtc"), "nvrtc is required: {reason}");
            return eprintln!("skipped, nvrtc is missing: {reason}");
        }
        let compiled = nvrtc::compile(&source(GpuApi::Cuda { sm: 90 }), 90).unwrap();
        assert!(SIZES.iter().all(|size| compiled.log.contains(&format!("copy_{size}"))), "{}", compiled.log);
        assert_eq!(compiled.resources().spill_bytes, 0);
    }

    #[test]
    fn copies_beyond_31_bits_are_refused() {
        let loops = |count| [StridedLoop { count, read: -1, write: 1 }];
        assert_eq!(words(&loops(3), 2, 7), Some(vec![3, 1, 2, 7, 3, -1, 1]));
        assert_eq!(words(&loops(1 << 31), 0, 0), None);
        assert_eq!(words(&loops(3), 1 << 31, 0), None);
        let both = [loops(1 << 40), loops(1 << 40)].concat();
        assert_eq!(words(&both, 0, 0), None);
    }
}
