//! Kernels that reach a GPU's peak rates.

use std::time::Instant;

use autotune_ir::DType;
use autotune_ir::machine::gpu::WARP_THREADS;
use autotune_ir::plan::{Binding, PlanBuffer, PlanStage};
use autotune_ir::program::{Layout, Role, When};
use autotune_ir::{Artifact, Code, GpuApi, GpuTarget, KernelPlan, Launch, Target};
use autotune_measurement::CandidateError;
use autotune_runtime::{Bound, Device, bytes_of};

use crate::ceilings::Ceilings;
use crate::nvrtc;
use crate::replays::Replays;

/// Threads per block: fewer than any GPU allows, and enough to hide all latencies if many blocks
/// run.
const THREADS: usize = 256;
/// Blocks of the multiply-add kernel per multiprocessor.
const BLOCKS_PER_MULTIPROCESSOR: usize = 16;
/// Independent accumulators per thread.
const ACCUMULATORS: usize = 16;
/// Multiply-adds of each accumulator per launch.
const ROUNDS: usize = 512;
/// Compute capability, times ten, from which on tensor cores are used.
const TENSOR_CORES_SM: u32 = 80;
/// Independent matrix products per warp on tensor cores; `PRODUCT_ROUNDS` is how often a launch
/// repeats each.
const PRODUCTS: usize = 8;
const PRODUCT_ROUNDS: usize = 512;
/// Compute capability, times ten, with matrix instructions of warp groups. No other version has
/// these instructions.
const WARP_GROUPS_SM: u32 = 90;
/// Warp groups: threads per group, rows and columns of the largest instruction, bytes per operand
/// row, instructions per row (each reads 32 bytes of every row), and rounds per launch.
const WARP_GROUP: usize = 128;
const GROUP_TILE: [usize; 2] = [64, 256];
const GROUP_ROW_BYTES: usize = 128;
const GROUP_STEPS: usize = GROUP_ROW_BYTES / 32;
const GROUP_ROUNDS: usize = 256;
/// Elements of a vector in memory.
const LANES: usize = 4;
/// Number of different operand words; larger buffers repeat them.
const PATTERN_WORDS: usize = 1 << 20;
/// Short repeats of each figure, of which the best counts, and the seconds after which there are no
/// more: drivers for CPUs may take a second for one.
const REPEATS: usize = 5;
const REPEATS_SECS: f64 = 0.3;
/// Bytes copied or read from memory per launch: `CACHES` times the second-level cache, within the
/// bounds `COPY_BYTES`.
const CACHES: usize = 4;
const COPY_BYTES: [usize; 2] = [32 << 20, 256 << 20];
/// Most bytes read from the second-level cache, and the number of times that they are read per
/// launch.
const CACHED_BYTES: usize = 64 << 20;
const CACHE_ROUNDS: usize = 8;
/// Threads by which each round is shifted, so that no thread finds its data in its own
/// multiprocessor's first-level cache.
const SHIFT: usize = 37 * THREADS;
/// Consecutive launches from which the cost of one is computed.
const LAUNCHES: usize = 200;

/// Kernel that reaches a peak rate. Its buffers are operands and results, in vectors of four
/// numbers.
#[derive(Clone, Copy)]
enum CeilingKernel {
    /// Every thread does independent multiply-adds on vectors of `lanes` numbers.
    MultiplyAdd { lanes: usize },
    /// Every warp does independent products of 16 rows, 8 columns and `steps` reduction steps on
    /// tensor cores, from registers. CUDA only.
    Product { dtype: DType, steps: usize },
    /// Every warp group does products of size [`GROUP_TILE`] with `steps` reduction steps on
    /// operands in shared memory. CUDA only.
    GroupProduct { dtype: DType, steps: usize },
    /// Copies the operands to the results.
    Copy,
    /// Every thread reads `vectors` vectors of the operands, `rounds` times, each time others, and
    /// stores their sum.
    Read { vectors: usize, rounds: usize },
}

/// Measures the ceilings of an open device.
pub(crate) fn measure<D: Device>(device: &D, target: &GpuTarget) -> Result<Ceilings, CandidateError> {
    let blocks = BLOCKS_PER_MULTIPROCESSOR * target.multiprocessors;
    let threads = blocks * THREADS;

    // OpenCL devices that are CPUs vectorise only kernels that use vector types.
    let lanes: &[usize] = if target.api == GpuApi::OpenCl { &[1, 8] } else { &[1] };
    let mut flops_per_sec = 0.0f64;
    for &lanes in lanes {
        let secs = LoadedLoop::new(device, target, CeilingKernel::MultiplyAdd { lanes }, blocks, threads)?.secs(1)?;
        flops_per_sec = flops_per_sec.max((2 * lanes * ACCUMULATORS * ROUNDS * threads) as f64 / secs);
    }
    let by_tensor_cores = |dtype, steps| tensor_flops_per_sec(device, target, dtype, steps);
    let [half, tf32] = [by_tensor_cores(DType::F16, 16)?, by_tensor_cores(DType::Tf32, 8)?];

    let vectors = |bytes: usize| (bytes / 4 / LANES).next_multiple_of(threads);
    let memory = vectors((CACHES * target.l2_bytes).clamp(COPY_BYTES[0], COPY_BYTES[1]));
    let bytes = |vectors: usize| (4 * LANES * vectors) as f64;
    let copy = LoadedLoop::new(device, target, CeilingKernel::Copy, memory / THREADS, memory)?.secs(1)?;
    let read = |vectors: usize, rounds: usize| -> Result<f64, CandidateError> {
        let read = CeilingKernel::Read { vectors: vectors / threads, rounds };
        Ok(rounds as f64 * bytes(vectors) / LoadedLoop::new(device, target, read, blocks, vectors)?.secs(1)?)
    };

    let bytes_per_sec = 2.0 * bytes(memory) / copy;
    let from_memory = read(memory, 1)?.max(bytes_per_sec);
    let from_cache = read(vectors((target.l2_bytes / 2).min(CACHED_BYTES)), CACHE_ROUNDS)?.max(from_memory);

    let mut launch = LoadedLoop::new(device, target, CeilingKernel::Copy, 1, THREADS)?;
    Ok(Ceilings {
        core_flops_per_sec: flops_per_sec / target.multiprocessors as f64,
        flops_per_sec,
        half_flops_per_sec: flops_per_sec.max(half),
        byte_flops_per_sec: flops_per_sec,
        tf32_flops_per_sec: flops_per_sec.max(tf32),
        bytes_per_sec,
        read_bytes_per_sec: [from_cache, from_cache, from_memory],
        cache_bytes: [target.l2_bytes as f64; 2],
        fork_join_secs: launch.secs(LAUNCHES)?,
    })
}

/// Returns the tensor cores' FLOP per second (two per multiply-add) with `steps` reduction steps
/// per instruction, by warp or warp-group instructions, whichever are faster. 0 without tensor
/// cores.
fn tensor_flops_per_sec<D: Device>(
    device: &D,
    target: &GpuTarget,
    dtype: DType,
    steps: usize,
) -> Result<f64, CandidateError> {
    let GpuApi::Cuda { sm: TENSOR_CORES_SM.. } = target.api else { return Ok(0.0) };
    let blocks = BLOCKS_PER_MULTIPROCESSOR * target.multiprocessors;
    let threads = blocks * THREADS;
    let secs = |of: CeilingKernel| LoadedLoop::new(device, target, of, blocks, threads)?.secs(1);
    let flops = 2 * 16 * 8 * steps * PRODUCTS * PRODUCT_ROUNDS * (threads / WARP_THREADS);
    let by_warps = flops as f64 / secs(CeilingKernel::Product { dtype, steps })?;
    if target.api != (GpuApi::Cuda { sm: WARP_GROUPS_SM }) {
        return Ok(by_warps);
    }

    let [rows, columns] = GROUP_TILE;
    let flops = 2 * rows * columns * steps * GROUP_STEPS * GROUP_ROUNDS * (threads / WARP_GROUP);
    Ok(by_warps.max(flops as f64 / secs(CeilingKernel::GroupProduct { dtype, steps })?))
}

/// Returns words of two random halves each. Constants would give too high rates, because they
/// switch fewer transistors and so allow higher clock rates. The values are 1 to 1.75 as f16 and
/// less than 0.5 as bf16 and f32, so that sums of products stay finite and normal.
fn operands(words: usize) -> Vec<u32> {
    let mut state = 1u64;
    let mut half = || {
        // Linear congruential generator with Knuth's MMIX constants. Only the upper bits are random
        // enough.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        0x3c00 + ((state >> 33) % 0x300) as u32
    };
    (0..words).map(|_| half() << 16 | half()).collect()
}

/// Loaded loop with its buffers.
struct LoadedLoop<'a, D: Device> {
    device: &'a D,
    call: D::Call,
    replays: Replays<D>,
    /// Keeps the module loaded as long as the call.
    _module: D::Module,
}

impl<'a, D: Device> LoadedLoop<'a, D> {
    /// Loads a loop with operands and results of `vectors` vectors each.
    fn new(
        device: &'a D,
        target: &GpuTarget,
        name: CeilingKernel,
        blocks: usize,
        vectors: usize,
    ) -> Result<Self, CandidateError> {
        let source = name.source(target.api);
        let code = match target.api {
            GpuApi::Cuda { sm } => Code::Cubin(nvrtc::cubin_of(&source, sm)?),
            GpuApi::OpenCl => Code::OpenCl(source),
        };
        let artifact = Artifact { target: Target::Gpu(target.clone()), plan: plan(blocks, vectors), code };
        // SAFETY: the source accesses only the buffers of this plan.
        let module = unsafe { device.load(&artifact) }?;

        let words = LANES * vectors;
        let pattern = operands(words.min(PATTERN_WORDS));
        let buffer = || -> Result<D::Memory, CandidateError> {
            let mut memory = device.allocate(4 * words)?;
            for first in (0..words).step_by(PATTERN_WORDS) {
                let count = pattern.len().min(words - first);
                device.write(&mut memory, 4 * first, bytes_of(&pattern[..count]))?;
            }
            Ok(memory)
        };

        let memory = Bound { buffers: vec![buffer()?, buffer()?], private: vec![] };
        // SAFETY: only this call uses the memory, and the module lives as long as the call.
        let call = unsafe { device.bind(&module, &[0], memory) }?;
        Ok(Self { device, call, replays: Replays::new(), _module: module })
    }

    /// Returns the seconds per launch, from the fastest of several repeats of `launches` launches.
    fn secs(&mut self, launches: usize) -> Result<f64, CandidateError> {
        let Self { device, call, replays, .. } = self;
        let mut repeat = || -> Result<f64, CandidateError> {
            let timed = replays.time(device, launches, &mut || device.start(call))?;
            Ok(timed.secs / timed.runs as f64)
        };
        repeat()?;
        let (start, mut least) = (Instant::now(), f64::INFINITY);
        for _ in 0..REPEATS {
            least = least.min(repeat()?);
            if start.elapsed().as_secs_f64() > REPEATS_SECS {
                break;
            }
        }
        Ok(least)
    }
}

fn plan(blocks: usize, vectors: usize) -> KernelPlan {
    let buffer = |name: &str, role, binding| PlanBuffer {
        name: name.into(),
        role,
        binding,
        shape: vec![LANES * vectors],
        layout: Layout::Plain,
        dtype: Default::default(),
    };
    let launch = Launch { blocks, threads: THREADS, shared_bytes: 0 };
    let stage = PlanStage {
        symbol: "ceiling".into(),
        when: When::EveryRun,
        tasks: blocks,
        launch: Some(launch),
        boxes: vec![],
    };

    KernelPlan {
        buffers: vec![
            buffer("operands", Role::Operand(0), Binding::Data),
            buffer("results", Role::Output, Binding::Output),
        ],
        stages: vec![stage],
        local_bytes: 0,
        uses_tiles: false,
    }
}

impl CeilingKernel {
    fn source(self, api: GpuApi) -> String {
        let (signature, thread) = match api {
            GpuApi::Cuda { .. } => (
                format!(
                    "extern \"C\" __global__ void __launch_bounds__({THREADS}) ceiling(const float4 *from, float4 *to)"
                ),
                format!("blockIdx.x * {THREADS} + threadIdx.x"),
            ),
            GpuApi::OpenCl => (
                format!(
                    "__kernel __attribute__((reqd_work_group_size({THREADS}, 1, 1)))\n\
                     void ceiling(__global const float4 *from, __global float4 *to)"
                ),
                format!("get_group_id(0) * {THREADS} + get_local_id(0)"),
            ),
        };
        format!("{signature} {{\n  const int t = {thread};\n{}}}\n", self.body(api))
    }

    fn body(self, api: GpuApi) -> String {
        match self {
            CeilingKernel::Copy => "  to[t] = from[t];\n".into(),
            CeilingKernel::Read { vectors, rounds } => read(api, vectors, rounds),
            CeilingKernel::Product { dtype, steps } => product(dtype, steps),
            CeilingKernel::GroupProduct { dtype, steps } => group_product(dtype, steps),
            CeilingKernel::MultiplyAdd { lanes } => multiply_add(api, lanes),
        }
    }
}

fn read(api: GpuApi, vectors: usize, rounds: usize) -> String {
    let threads = match api {
        GpuApi::Cuda { .. } => format!("gridDim.x * {THREADS}"),
        GpuApi::OpenCl => format!("get_num_groups(0) * {THREADS}"),
    };
    format!(
        "  const int threads = {threads};\n  float4 sum = from[t];\n  for (int round = 0; round < {rounds}; round++) {{\n    \
         const int first = (t + round * {SHIFT}) % threads;\n    for (int i = 0; i < {vectors}; i++) {{\n      \
         const float4 x = from[first + i * threads];\n      \
         sum.x += x.x; sum.y += x.y; sum.z += x.z; sum.w += x.w;\n    }}\n  }}\n  to[t] = sum;\n"
    )
}

/// Returns the kernel body of warp-level matrix products: enough independent ones to hide their
/// latency.
fn product(dtype: DType, steps: usize) -> String {
    let word = dtype.word();
    format!(
        "  const float4 x = from[t];\n  float sums[{PRODUCTS}][4] = {{}}, sum = 0.0f;\n  \
         const unsigned a = __float_as_uint(x.x), b = __float_as_uint(x.y), c = __float_as_uint(x.z), d = __float_as_uint(x.w);\n  \
         for (int i = 0; i < {PRODUCT_ROUNDS}; i++)\n    #pragma unroll\n    for (int j = 0; j < {PRODUCTS}; j++)\n      \
         asm volatile(\"mma.sync.aligned.m16n8k{steps}.row.col.f32.{word}.{word}.f32 \"\n        \
         \"{{%0, %1, %2, %3}}, {{%4, %5, %6, %7}}, {{%4, %5}}, {{%0, %1, %2, %3}};\"\n        \
         : \"+f\"(sums[j][0]), \"+f\"(sums[j][1]), \"+f\"(sums[j][2]), \"+f\"(sums[j][3])\n        \
         : \"r\"(a), \"r\"(b), \"r\"(c), \"r\"(d));\n  \
         #pragma unroll\n  for (int j = 0; j < {PRODUCTS}; j++) sum += sums[j][0] + sums[j][1] + sums[j][2] + sums[j][3];\n  \
         to[t].x = sum;\n"
    )
}

fn multiply_add(api: GpuApi, lanes: usize) -> String {
    let (number, add, first) = match (api, lanes) {
        (GpuApi::Cuda { .. }, _) => ("float".into(), "fmaf", "a0"),
        (GpuApi::OpenCl, 1) => ("float".into(), "fma", "a0"),
        (GpuApi::OpenCl, _) => (format!("float{lanes}"), "fma", "a0.s0"),
    };
    let accumulators = || 0..ACCUMULATORS;
    let start: String = accumulators().map(|i| format!("  {number} a{i} = x + {i}.0f;\n")).collect();
    let step: String = accumulators().map(|i| format!("    a{i} = {add}(a{i}, x, y);\n")).collect();
    let sum: String = accumulators().skip(1).map(|i| format!("  a0 += a{i};\n")).collect();
    format!(
        "  const {number} x = from[t].x, y = from[t].y;\n{start}  for (int i = 0; i < {ROUNDS}; i++) {{\n{step}  }}\n{sum}  \
         to[t].x = {first};\n"
    )
}

/// Returns the kernel body of warp-group matrix products. The operand rows have 128 bytes and are
/// swizzled. The instruction reads them through a matrix descriptor: eight rows are 1024 bytes, and
/// the next reduction step is 32 bytes further. All warp groups of a block read the same operands.
fn group_product(dtype: DType, steps: usize) -> String {
    let ([rows, columns], word) = (GROUP_TILE, dtype.word());
    let sums = rows * columns / WARP_GROUP;
    let vectors = (rows + columns) * GROUP_ROW_BYTES / 16;
    let list = |text: &dyn Fn(usize) -> String| (0..sums).map(text).collect::<Vec<_>>().join(", ");
    let (registers, operands) = (list(&|i| format!("%{i}")), list(&|i| format!("\"+f\"(sums[{i}])")));
    let transposed = if dtype.bytes() == 2 { ", 0, 0" } else { "" };

    let (at_rows, at_columns) = (sums, sums + 1);

    format!(
        "  __shared__ __align__(1024) float4 operands[{vectors}];\n  \
         for (int i = threadIdx.x; i < {vectors}; i += {THREADS}) operands[i] = from[t];\n  \
         asm volatile(\"fence.proxy.async.shared::cta;\" ::: \"memory\");\n  __syncthreads();\n  \
         float sums[{sums}] = {{}}, sum = 0.0f;\n  \
         const unsigned long long layout = 1ull << 16 | 64ull << 32 | 1ull << 62;\n  \
         const unsigned long long rows = layout | (unsigned)__cvta_generic_to_shared(operands) >> 4;\n  \
         const unsigned long long columns = rows + {rows_bytes} / 16;\n  \
         asm volatile(\"wgmma.fence.sync.aligned;\" ::: \"memory\");\n  \
         #pragma unroll 1\n  for (int i = 0; i < {GROUP_ROUNDS}; i++) {{\n    \
         #pragma unroll\n    for (int s = 0; s < {GROUP_STEPS}; s++)\n      \
         asm volatile(\"wgmma.mma_async.sync.aligned.m{rows}n{columns}k{steps}.f32.{word}.{word} \"\n        \
         \"{{{registers}}}, %{at_rows}, %{at_columns}, 1, 1, 1{transposed};\"\n        \
         : {operands}\n        : \"l\"(rows + 2 * s), \"l\"(columns + 2 * s));\n    \
         asm volatile(\"wgmma.commit_group.sync.aligned;\" ::: \"memory\");\n    \
         asm volatile(\"wgmma.wait_group.sync.aligned 1;\" ::: \"memory\");\n  }}\n  \
         asm volatile(\"wgmma.wait_group.sync.aligned 0;\" ::: \"memory\");\n  \
         #pragma unroll\n  for (int j = 0; j < {sums}; j++) sum += sums[j];\n  to[t].x = sum;\n",
        rows_bytes = rows * GROUP_ROW_BYTES,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::missing;

    #[test]
    fn the_loops_are_cuda() {
        if let Err(reason) = nvrtc::compiler_for(90) {
            return missing("nvrtc", &reason);
        }

        let read = CeilingKernel::Read { vectors: 7, rounds: 2 };
        let half = CeilingKernel::Product { dtype: DType::F16, steps: 16 };
        let tf32 = CeilingKernel::Product { dtype: DType::Tf32, steps: 8 };
        let group = |dtype, steps| CeilingKernel::GroupProduct { dtype, steps };
        // The last column is the limit of registers per thread: two blocks must fit a
        // multiprocessor, or one block of warp groups, which use half of their registers for sums.
        for (name, word, architectures, registers) in [
            (CeilingKernel::MultiplyAdd { lanes: 1 }, "fmaf(", &[80, 90][..], 128),
            (CeilingKernel::Copy, "to[t]", &[80, 90], 128),
            (read, "round", &[80, 90], 128),
            (half, "m16n8k16.row.col.f32.f16.f16.f32", &[80, 90], 128),
            (tf32, "m16n8k8.row.col.f32.tf32.tf32.f32", &[80, 90], 128),
            (group(DType::F16, 16), "m64n256k16.f32.f16.f16", &[WARP_GROUPS_SM], 168),
            (group(DType::Tf32, 8), "m64n256k8.f32.tf32.tf32", &[WARP_GROUPS_SM], 168),
        ] {
            for &sm in architectures {
                let source = name.source(GpuApi::Cuda { sm });
                let compiled = nvrtc::compile(&source, sm).unwrap_or_else(|e| panic!("{source}\n{e}"));
                let resources = compiled.resources();
                // No register is spilled, nothing is in local memory, and no instruction waits for
                // the previous one.
                assert_eq!((resources.spill_bytes, resources.stack_bytes), (0, 0), "{source}\n{}", compiled.log);
                assert!((1..=registers).contains(&resources.registers), "{source}\n{}", compiled.log);
                assert!(!compiled.log.contains("serialized"), "{source}\n{}", compiled.log);
                assert!(source.contains(word), "{source}");
            }
        }
    }
}
