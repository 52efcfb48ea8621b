//! Checks by kernels on the device, so that nothing has to be copied to the host.

use std::cell::RefCell;

use autotune_ir::{DType, GpuApi, GpuTarget, KernelPlan};
use autotune_measurement::CandidateError;
use autotune_runtime::{Bound, Device, bytes_of, bytes_of_mut};

use super::{Checks, HostChecks};
use crate::gpu;

const BLOCKS_PER_MULTIPROCESSOR: usize = 2;

/// Most 32-bit words that the kernels process: they count in 32 bits.
const MAX_WORDS: usize = 1 << 31;

/// Words of the state memory: one for the number of elements, two for the result.
const STATE_WORDS: usize = 3;

/// Preamble of the kernels' source, for CUDA and for OpenCL.
const CUDA: &str = r#"
#define GLOBAL
typedef unsigned int uint;
#define FIRST (blockIdx.x * blockDim.x + threadIdx.x)
#define STEP (gridDim.x * blockDim.x)
#define as_float(word) __uint_as_float(word)
#define as_uint(number) __float_as_uint(number)
#define fabs(number) fabsf(number)
#define add(to, word) atomicAdd(to, word)
#define most(to, word) atomicMax(to, word)
#define INLINE static __device__ __forceinline__
"#;
const OPENCL: &str = r#"
#define GLOBAL __global
#define FIRST ((uint)get_global_id(0))
#define STEP ((uint)get_global_size(0))
#define add(to, word) atomic_add(to, word)
#define most(to, word) atomic_max(to, word)
#define INLINE static inline
"#;

/// Source of the kernels. The state has the number of elements and two result words. Floats that
/// are not negative order like their bit patterns, so an integer maximum finds the largest.
const SOURCE: &str = r#"
INLINE float from_f32(GLOBAL const uint *words, uint i) { return as_float(words[i]); }

INLINE uint half_of(GLOBAL const uint *words, uint i) { return words[i / 2] >> 16 * (i % 2) & 0xffff; }

INLINE float from_bf16(GLOBAL const uint *words, uint i) { return as_float(half_of(words, i) << 16); }

INLINE float from_f16(GLOBAL const uint *words, uint i) {
  const uint bits = half_of(words, i), magnitude = bits & 0x7fff;
  float number = as_float((magnitude << 13) + (112u << 23));
  if (magnitude >= 0x7c00) number = as_float(0x7f800000u);
  if (magnitude < 0x400) number = (float)magnitude * as_float(0x33800000u);
  return bits >> 15 ? -number : number;
}

INLINE uint mixed(uint x) {
  x = (x ^ x >> 16) * 0x85ebca6bu;
  x = (x ^ x >> 13) * 0xc2b2ae35u;
  return x ^ x >> 16;
}

KERNEL checksum(GLOBAL const uint *words, GLOBAL const uint *unused, GLOBAL uint *state) {
  const uint count = state[0];
  uint low = 0, high = 0;
  for (uint i = FIRST; i < count; i += STEP) {
    low += mixed(words[i] ^ i * 0x9e3779b1u);
    high += mixed(words[i] + i * 0x7feb352du + 0x165667b1u);
  }
  add(&state[1], low);
  add(&state[2], high);
}
"#;

/// Source of a kernel that finds the largest difference between elements of one type.
const DIFFERENCE: &str = r#"
KERNEL difference_TYPE(GLOBAL const uint *actual, GLOBAL const uint *expected, GLOBAL uint *state) {
  const uint count = state[0];
  uint worst = 0;
  for (uint i = FIRST; i < count; i += STEP) {
    const float own = from_TYPE(actual, i), right = from_TYPE(expected, i);
    const uint bits = own == right ? 0u : as_uint(fabs(own - right));
    const uint found = bits < 0x7f800000u ? bits : 0x7f800000u;
    worst = found > worst ? found : worst;
  }
  if (worst) most(&state[1], worst);
}
"#;

/// Names of the kernels, in the order of their stages.
const SYMBOLS: [&str; 4] = ["difference_f32", "difference_f16", "difference_bf16", "checksum"];
const CHECKSUM: usize = 3;

/// Loaded kernels with their state memory.
pub(crate) struct KernelChecks<D: Device> {
    module: D::Module,
    state: RefCell<D::Memory>,
}

impl<D: Device> KernelChecks<D> {
    /// Builds and loads the kernels.
    pub(crate) fn new(device: &D, target: &GpuTarget) -> Result<Self, CandidateError> {
        let artifact = gpu::artifact_of_source(source(target.api), plan(target), target)?;
        // SAFETY: the kernels access only the memory that `run` binds, within the count that it
        // passes.
        let module = unsafe { device.load(&artifact) }?;
        Ok(Self { module, state: RefCell::new(device.allocate(4 * STATE_WORDS)?) })
    }

    fn run(
        &self,
        device: &D,
        stage: usize,
        operands: [&D::Memory; 2],
        bytes: usize,
        count: usize,
    ) -> Result<[u32; 2], CandidateError> {
        let count = u32::try_from(count)
            .map_err(|_| CandidateError::OutOfMemory { message: "too many elements to check".into() })?;
        let mut state = self.state.borrow_mut();
        device.write(&mut state, 0, bytes_of(&[count, 0, 0]))?;

        // SAFETY: the kernels read the operands and write the state; nothing else writes to these
        // until the state is read below.
        let buffers = unsafe {
            let [first, second] = operands.map(|operand| device.part(operand, 0..bytes));
            vec![first?, second?, device.part(&state, 0..4 * STATE_WORDS)?]
        };
        // SAFETY: as above; these are the plan's three buffers.
        let call = unsafe { device.bind(&self.module, &[stage], Bound { buffers, private: vec![] }) }?;
        device.start(&call)?;

        let mut found = [0; 2];
        device.read(&state, 4, bytes_of_mut(&mut found))?;
        Ok(found)
    }
}

impl<D: Device> Checks<D> for KernelChecks<D> {
    fn difference(
        &self,
        device: &D,
        actual: &D::Memory,
        expected: &D::Memory,
        dtype: DType,
        len: usize,
    ) -> Result<f32, CandidateError> {
        // No GPU kernel has integer outputs so far, so there is no kernel to compare them.
        if dtype.is_integer() {
            return HostChecks.difference(device, actual, expected, dtype, len);
        }
        let stage = match dtype {
            DType::F16 => 1,
            DType::Bf16 => 2,
            _ => 0,
        };
        let bytes = (len * dtype.bytes()).next_multiple_of(4);
        let [worst, _] = self.run(device, stage, [actual, expected], bytes, len)?;
        Ok(f32::from_bits(worst))
    }

    fn checksum(&self, device: &D, memory: &D::Memory, words: usize) -> Result<Option<u64>, CandidateError> {
        if words > MAX_WORDS {
            return Ok(None);
        }
        let [low, high] = self.run(device, CHECKSUM, [memory, memory], 4 * words, words)?;
        Ok(Some(u64::from(high) << 32 | u64::from(low)))
    }
}

fn source(api: GpuApi) -> String {
    let head = match api {
        GpuApi::Cuda { .. } => CUDA,
        GpuApi::OpenCl => OPENCL,
    };
    let differences = ["f32", "f16", "bf16"].map(|dtype| DIFFERENCE.replace("TYPE", dtype));
    gpu::with_kernel_words(&format!("{head}{SOURCE}{}", differences.concat()), api)
}

fn plan(target: &GpuTarget) -> KernelPlan {
    let symbols = SYMBOLS.map(String::from);
    gpu::plan_of_source(["actual", "expected", "state"], symbols, BLOCKS_PER_MULTIPROCESSOR, target)
}

#[cfg(test)]
mod tests {
    use rand::{Rng, RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;
    use crate::gpu::missing;
    use crate::nvrtc;
    use autotune_runtime::{OpenClDevice, opencl};

    type Memory = <OpenClDevice as Device>::Memory;

    #[test]
    fn the_kernels_are_cuda() {
        if let Err(reason) = nvrtc::compiler_for(90) {
            return missing("nvrtc", &reason);
        }
        let compiled = nvrtc::compile(&source(GpuApi::Cuda { sm: 90 }), 90).unwrap();
        assert!(SYMBOLS.iter().all(|symbol| compiled.log.contains(symbol)), "{}", compiled.log);
        assert_eq!(compiled.resources().spill_bytes, 0);
    }

    /// Returns the kernels on an OpenCL device, if there is one.
    fn checks() -> Option<(OpenClDevice, KernelChecks<OpenClDevice>)> {
        let found = opencl::devices().map_err(|reason| missing("opencl", &reason)).ok()?;
        let device = OpenClDevice::open(&found[0].target).unwrap();
        let checks = KernelChecks::new(&device, &found[0].target).unwrap();
        Some((device, checks))
    }

    fn put(device: &OpenClDevice, words: &[u32]) -> Memory {
        device.upload(words).unwrap()
    }

    /// Returns random words: any bit patterns, NaN and subnormal numbers included, or ordinary
    /// numbers.
    fn random_words(rng: &mut impl Rng, dtype: DType, len: usize, are_any: bool) -> Vec<u32> {
        match are_any {
            true => (0..(len * dtype.bytes()).div_ceil(4)).map(|_| rng.random()).collect(),
            false => dtype.words(&(0..len).map(|_| rng.random_range(-2.0..2.0)).collect::<Vec<f32>>()),
        }
    }

    #[test]
    fn differences_are_those_that_the_host_finds() {
        let Some((device, checks)) = checks() else { return };
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        for dtype in [DType::F32, DType::Tf32, DType::F16, DType::Bf16] {
            for len in [1, 2, 3, 255, 1025, 40_001] {
                let words = random_words(&mut rng, dtype, len, false);
                let other = random_words(&mut rng, dtype, len, false);
                let [actual, expected] = [&words, &other].map(|words| put(&device, words));
                assert_eq!(checks.difference(&device, &actual, &actual, dtype, len).unwrap(), 0.0);

                let pairs = dtype.values(&words, len).into_iter().zip(dtype.values(&other, len));
                let wanted = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                assert_eq!(
                    checks.difference(&device, &actual, &expected, dtype, len).unwrap(),
                    wanted,
                    "{dtype:?}, {len}"
                );
            }
        }
    }

    /// Compares one element with zero at a time: f16 numbers in steps of 61 and at boundaries, some
    /// bf16 numbers, and f32 numbers of every exponent.
    #[test]
    fn every_number_is_read_right_and_what_is_none_differs_infinitely() {
        let Some((device, checks)) = checks() else { return };
        let zero = put(&device, &[0]);
        let of = |dtype: DType, word: u32| {
            let value = dtype.values(&[word], 1)[0].abs();
            let found = checks.difference(&device, &put(&device, &[word]), &zero, dtype, 1).unwrap();
            assert_eq!(found, if value.is_finite() { value } else { f32::INFINITY }, "{dtype:?} {word:#x}");
        };
        (0..0x10000).step_by(61).for_each(|word| of(DType::F16, word));
        [1, 0x3ff, 0x400, 0x7bff, 0x7c00, 0x7c01, 0xffff].into_iter().for_each(|word| of(DType::F16, word));
        [0x3f80, 0x7f7f, 0x7f80, 0x7f81, 0xff80, 0xffff].into_iter().for_each(|word| of(DType::Bf16, word));
        (1..256).for_each(|exponent| of(DType::F32, exponent << 23 | 0x8000_0001));
    }

    #[test]
    fn a_word_that_changed_or_moved_shows_in_the_checksum() {
        let Some((device, checks)) = checks() else { return };
        let mut rng = ChaCha8Rng::seed_from_u64(6);
        for len in [2, 257, 5000] {
            let mut words = random_words(&mut rng, DType::F32, len, true);
            let sum = |words: &[u32]| checks.checksum(&device, &put(&device, words), words.len()).unwrap().unwrap();
            let whole = sum(&words);
            assert_eq!(whole, sum(&words));
            for _ in 0..20 {
                let (at, bit) = (rng.random_range(0..len), rng.random_range(0..32));
                words[at] ^= 1 << bit;
                assert_ne!(sum(&words), whole, "bit {bit} of word {at} of {len}");
                words[at] ^= 1 << bit;
            }
            words.swap(0, len - 1);
            assert_ne!(sum(&words), whole);
        }
    }
}
