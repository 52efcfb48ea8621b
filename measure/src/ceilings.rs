//! What this machine can do at best: the roofline's two lines.

use std::collections::HashMap;
use std::ffi::{c_char, c_long};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use autotune_schedules::plan::{PlanBuffer, PlanStage};
use autotune_schedules::program::{Layout, Role, When};
use autotune_schedules::workload::{DType, Work};
use autotune_schedules::{Isa, KernelPlan, Target};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use crate::affinity::{allowed_cores, pin_to_core};
use crate::buffers::Buffers;
use crate::compiler::Compiler;
use crate::kernel::Kernel;
use crate::measurement::MeasureError;
use crate::scratch::scratch_dir;
use crate::team::{StageFn, Team};

mod compiled;
#[cfg(target_arch = "x86_64")]
mod native;

/// Independent accumulators: more than any core needs to hide the latency of a multiply-add.
const ACCUMULATORS: usize = 12;

/// Independent sums of the reading loop.
const READ_ACCUMULATORS: usize = 8;

/// f32 elements between the operands of two tasks: no two share a cache line, and the widest vector fits.
const LINE: usize = 16;

/// Rounds of the multiply-add loop in one task, about half a millisecond.
const ROUNDS: usize = 300_000;

/// Stages of next to no work that are run in a row.
const FORKS: usize = 1000;

/// Short repeats of each figure, of which the best counts.
const REPEATS: usize = 20;

/// Bytes copied in one go, at least.
const MIN_COPY_BYTES: usize = 64 << 20;

/// Bytes copied in one go, at most.
const MAX_COPY_BYTES: usize = 256 << 20;

/// Longest wait for the compiler.
const BUILD_LIMIT: Duration = Duration::from_secs(20);

/// Measured ceilings of a target.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ceilings {
    /// f32 multiply-adds on one core, two FLOP each, per second; on a GPU, a multiprocessor's share of all.
    pub core_flops_per_sec: f64,
    /// The same on the target's threads; on a GPU, on all of it, without tensor cores.
    pub flops_per_sec: f64,
    /// The same with f16 or bf16 operands and f32 sums: tensor cores, by the matrix instructions of warps (CUDA from compute
    /// capability 8.0 on) or, where those are faster, of warp groups (9.0), else `flops_per_sec`.
    pub half_flops_per_sec: f64,
    /// The same with tf32 operands.
    pub tf32_flops_per_sec: f64,
    /// Bytes read plus bytes written per second by a copy in memory, larger than any cache, on the target's threads.
    pub bytes_per_sec: f64,
    /// Bytes read per second from the second-level caches, from the last-level cache and from memory, on the target's threads. A
    /// GPU's second-level cache is its last.
    pub read_bytes_per_sec: [f64; 3],
    /// Sizes of the second-level caches of the target's threads together and of the last-level cache.
    pub cache_bytes: [f64; 2],
    /// Seconds that a stage of next to no work takes on the target's threads, run after run: what a fork and join costs;
    /// on a GPU, a launch.
    pub fork_join_secs: f64,
}

impl Ceilings {
    /// Measures a CPU's ceilings, which takes under a second; the second time it is asked, it remembers. Those of a GPU are for
    /// a worker to measure: [`crate::WorkerMeasurer::ceilings`].
    ///
    /// It needs a C compiler where there is no assembler for the target's instruction set.
    pub fn measure(target: &Target) -> Result<Self, MeasureError> {
        static KNOWN: Mutex<Option<HashMap<Target, Ceilings>>> = Mutex::new(None);
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let known = known.get_or_insert_with(HashMap::new);
        if let Some(&ceilings) = known.get(target) {
            return Ok(ceilings);
        }
        let ceilings = measure(target)?;
        known.insert(target.clone(), ceilings);
        Ok(ceilings)
    }

    /// Multiply-adds of a type, two FLOP each, per second on the target's threads or on all of the GPU.
    pub fn dtype_flops_per_sec(&self, dtype: DType) -> f64 {
        match dtype {
            DType::F32 => self.flops_per_sec,
            DType::Tf32 => self.tf32_flops_per_sec,
            DType::F16 | DType::Bf16 => self.half_flops_per_sec,
        }
    }

    /// The least seconds in which an algorithm can be run over and over on operands of a type: all operations at full speed, or
    /// every byte moved once, from the cache that all of them fit, whichever takes longer.
    pub fn min_secs(&self, work: Work, dtype: DType) -> f64 {
        let Work { flops, bytes } = work;
        let level = self.cache_bytes.iter().position(|&size| bytes <= size).unwrap_or(self.cache_bytes.len());
        (flops / self.dtype_flops_per_sec(dtype)).max(bytes / self.read_bytes_per_sec[level])
    }
}

/// A loop that reaches a ceiling, as a stage with three buffers: operands, results, and the number of elements of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loop {
    /// Task `t` runs independent multiply-adds on line `t` of the operands, vectors of so many f32, and leaves their sum in
    /// line `t` of the results.
    MultiplyAdd { lanes: usize },
    /// Task `t` copies the `t`-th chunk of the operands to the results.
    Copy,
    /// Task `t` reads the `t`-th chunk of the operands and leaves its sum in line `t` of the results.
    Read,
}

impl Loop {
    /// Name of its C function.
    fn symbol(self) -> String {
        match self {
            Loop::MultiplyAdd { lanes } => format!("autotune_fma{lanes}"),
            Loop::Copy => "autotune_copy".into(),
            Loop::Read => "autotune_read".into(),
        }
    }
}

/// Elements of a chunk.
///
/// # Safety
///
/// The buffers are those of a [`Loop`].
unsafe fn chunk(buffers: *const *mut f32) -> usize {
    // SAFETY: the caller's promise.
    unsafe { (**buffers.add(2)).to_bits() as usize }
}

/// [`Loop::Copy`].
///
/// # Safety
///
/// The buffers are those of a [`Loop`] with a chunk of operands and of results for every task.
unsafe extern "C" fn copy(buffers: *const *mut f32, _: *mut c_char, begin: c_long, end: c_long) {
    // SAFETY: the caller's promise; the buffers are apart.
    unsafe {
        let (chunk, from, to) = (chunk(buffers), *buffers, *buffers.add(1));
        let (start, len) = (chunk * begin as usize, chunk * (end - begin) as usize);
        std::ptr::copy_nonoverlapping(from.add(start), to.add(start), len);
    }
}

/// The loops for an instruction set.
struct Loops {
    /// Vectors, in lanes, that multiply-adds are tried with.
    widths: Vec<usize>,
    /// The folder and the library of those that are compiled.
    compiled: Option<(TempDir, PathBuf)>,
}

impl Loops {
    fn of(isa: Isa) -> Result<Self, MeasureError> {
        let lanes = isa.vector_bytes() / 4;
        let widths: Vec<usize> = [lanes, lanes / 2].into_iter().filter(|&lanes| lanes >= 4).collect();
        let has_native = |&lanes: &usize| native(Loop::MultiplyAdd { lanes }).is_some();
        let native_widths: Vec<usize> = widths.iter().copied().filter(has_native).collect();
        if !native_widths.is_empty() && native(Loop::Read).is_some() {
            return Ok(Self { widths: native_widths, compiled: None });
        }
        let dir = scratch_dir()?;
        let library = dir.path().join("ceilings.so");
        Compiler::find()?.compile(&compiled::source(&widths), &library, BUILD_LIMIT).map_err(fault)?;
        Ok(Self { widths, compiled: Some((dir, library)) })
    }

    fn kernel(&self, name: Loop, plan: KernelPlan) -> Result<Kernel, MeasureError> {
        let kernel = match (&self.compiled, native(name)) {
            // SAFETY: the library was built from `source`, whose functions keep the contract for these plans.
            (Some((_, library)), None) => unsafe { Kernel::load(library, plan) },
            // SAFETY: the function is for this processor and keeps the contract for these plans.
            (_, Some(function)) => unsafe { Kernel::of_functions(vec![function], plan) },
            (None, None) => return Err(fault("a loop is missing")),
        };
        kernel.map_err(fault)
    }
}

/// The function of a loop in this library; `None` if there is none for this processor.
fn native(name: Loop) -> Option<StageFn> {
    if name == Loop::Copy {
        return Some(copy);
    }
    #[cfg(target_arch = "x86_64")]
    return native::find(name);
    #[cfg(not(target_arch = "x86_64"))]
    None
}

fn measure(target: &Target) -> Result<Ceilings, MeasureError> {
    allowed_cores();
    let Some(cpu) = target.cpu() else {
        return Err(fault(format!("{target} is no CPU")));
    };
    let loops = Loops::of(cpu.isa)?;
    let chunk = (2 * cpu.l3_bytes).clamp(MIN_COPY_BYTES, MAX_COPY_BYTES) / 4 / cpu.threads;
    let l2_bytes = (cpu.l2_bytes * cpu.threads).min(cpu.l3_bytes);
    // Half of a cache is surely in it; beyond the second level, enough not to be.
    let reads = [l2_bytes / 2, (cpu.l3_bytes / 2).max(2 * l2_bytes).min(MAX_COPY_BYTES), 4 * chunk * cpu.threads];
    let read_chunks = reads.map(|bytes| (bytes / 4 / cpu.threads).next_multiple_of(LINE * READ_ACCUMULATORS));
    let best_secs_of = |runs: usize, name: Loop, chunk: usize, threads: usize| {
        let kernel = loops.kernel(name, plan(name, chunk * threads, threads))?;
        let mut team = Team::new(threads);
        let mut buffers = Buffers::new(kernel.plan(), threads).map_err(fault)?;
        // Multiply-adds with these stay finite and normal.
        (0..2).for_each(|i| buffers.buffer_mut(i).fill(0.5));
        buffers.buffer_mut(2).fill(f32::from_bits(u32::try_from(chunk).map_err(fault)?));
        Ok(fastest_secs(runs, &kernel, &mut team, &mut buffers))
    };
    let best_secs = |name: Loop, chunk: usize, threads: usize| best_secs_of(1, name, chunk, threads);
    let run = || {
        pin_to_core(0);
        let (mut core, mut all) = (0.0f64, 0.0f64);
        for &lanes in &loops.widths {
            let (name, flops) = (Loop::MultiplyAdd { lanes }, (2 * lanes * ACCUMULATORS * ROUNDS) as f64);
            core = core.max(flops / best_secs(name, LINE, 1)?);
            all = all.max(flops * cpu.threads as f64 / best_secs(name, LINE, cpu.threads)?);
        }
        let copied_bytes = (2 * 4 * chunk * cpu.threads) as f64;
        let bytes_per_sec = copied_bytes / best_secs(Loop::Copy, chunk, cpu.threads)?;
        let mut read_bytes_per_sec = [0.0f64; 3];
        for (level, &chunk) in read_chunks.iter().enumerate() {
            let bytes = (4 * chunk * cpu.threads) as f64;
            read_bytes_per_sec[level] = bytes / best_secs(Loop::Read, chunk, cpu.threads)?;
        }
        let cache_bytes = [l2_bytes as f64, cpu.l3_bytes as f64];
        let flops_per_sec = all.max(core);
        Ok(Ceilings {
            core_flops_per_sec: core,
            flops_per_sec,
            half_flops_per_sec: flops_per_sec,
            tf32_flops_per_sec: flops_per_sec,
            bytes_per_sec,
            read_bytes_per_sec,
            cache_bytes,
            fork_join_secs: best_secs_of(FORKS, Loop::Read, LINE * READ_ACCUMULATORS, cpu.threads)?,
        })
    };
    thread::scope(|scope| scope.spawn(run).join()).map_err(|_| fault("the measuring thread panicked"))?
}

fn fault(cause: impl std::fmt::Display) -> MeasureError {
    MeasureError::Ceilings { message: cause.to_string() }
}

/// Seconds a run, of the fastest of several repeats of so many runs.
fn fastest_secs(runs: usize, kernel: &Kernel, team: &mut Team, buffers: &mut Buffers) -> f64 {
    let mut timed = || {
        let start = Instant::now();
        (0..runs).for_each(|_| kernel.run(team, buffers));
        start.elapsed().as_secs_f64() / runs as f64
    };
    timed();
    (0..REPEATS).map(|_| timed()).fold(f64::INFINITY, f64::min)
}

/// The stage of a loop with its three buffers.
fn plan(name: Loop, elements: usize, tasks: usize) -> KernelPlan {
    let buffer = |role, len| PlanBuffer {
        role,
        global: true,
        shape: vec![len],
        layout: Layout::Plain,
        dtype: Default::default(),
    };
    KernelPlan {
        buffers: vec![buffer(Role::Input, elements), buffer(Role::Output, elements), buffer(Role::Bias, 1)],
        stages: vec![PlanStage { symbol: name.symbol(), when: When::EveryRun, tasks, launch: None, boxes: vec![] }],
        local_bytes: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use autotune_schedules::CpuTarget;

    #[test]
    fn ceilings_are_plausible_and_remembered() {
        let target = Target::Cpu(CpuTarget::detect(Some(1)).unwrap());
        let ceilings = Ceilings::measure(&target).unwrap();
        // Any 64-bit core of this century does more than a tenth of a multiply-add per nanosecond, and none a thousand.
        assert!((2e8..2e12).contains(&ceilings.core_flops_per_sec), "{ceilings:?}");
        assert!(ceilings.flops_per_sec >= ceilings.core_flops_per_sec);
        assert!((1e8..1e13).contains(&ceilings.bytes_per_sec), "{ceilings:?}");
        assert!(ceilings.read_bytes_per_sec.iter().all(|rate| (1e8..1e14).contains(rate)), "{ceilings:?}");
        assert!((1e-9..1e-3).contains(&ceilings.fork_join_secs), "{ceilings:?}");
        assert_eq!(Ceilings::measure(&target).unwrap(), ceilings);
    }

    #[test]
    fn loops_compiled_from_c_do_the_same_work() {
        let dir = scratch_dir().unwrap();
        let library = dir.path().join("ceilings.so");
        Compiler::find().unwrap().compile(&compiled::source(&[8, 4]), &library, BUILD_LIMIT).unwrap();
        let compiled = Loops { widths: vec![8, 4], compiled: Some((dir, library.clone())) };
        let mut team = Team::new(2);
        let chunk = 3 * LINE * READ_ACCUMULATORS;
        let mut sums = Vec::new();
        for name in [Loop::Read, Loop::MultiplyAdd { lanes: 8 }] {
            let plan = plan(name, 2 * chunk, 2);
            // SAFETY: built from `source` for such plans.
            let from_c = unsafe { Kernel::load(&library, plan.clone()) }.unwrap();
            for kernel in [from_c, compiled.kernel(name, plan).unwrap()] {
                let mut buffers = Buffers::new(kernel.plan(), 2).unwrap();
                buffers.buffer_mut(0).fill(0.5);
                buffers.buffer_mut(2).fill(f32::from_bits(chunk as u32));
                kernel.run(&mut team, &mut buffers);
                assert!(buffers.guards_intact());
                let lines = [0, LINE]
                    .map(|line| buffers.buffer(1)[line..line + LINE].iter().filter(|x| x.is_finite()).sum::<f32>());
                assert_eq!(lines[0], lines[1]);
                sums.push((name, lines[0]));
            }
        }
        assert!(sums.iter().all(|&(name, sum)| name != Loop::Read || sum == 0.5 * chunk as f32), "{sums:?}");
        assert!(sums.iter().all(|&(_, sum)| sum > 0.0), "{sums:?}");
    }

    #[test]
    fn the_roofline_is_the_larger_of_two_times() {
        let ceilings = Ceilings {
            core_flops_per_sec: 1e9,
            flops_per_sec: 2e9,
            half_flops_per_sec: 1e12,
            tf32_flops_per_sec: 5e11,
            bytes_per_sec: 1e9,
            read_bytes_per_sec: [4e9, 2e9, 1e9],
            cache_bytes: [1e3, 1e6],
            fork_join_secs: 1e-6,
        };
        let min_secs = |text: &str| {
            let workload: autotune_schedules::Workload = text.parse().unwrap();
            ceilings.min_secs(workload.work(), workload.dtype)
        };
        let flops = 2.0 * 1e9;
        assert_eq!(min_secs("matmul:m=1000,n=1000,k=1000"), flops / 2e9);
        // As many bytes take longer than the operations on tensor cores; half as many with half the type.
        assert_eq!(min_secs("matmul:m=1000,n=1000,k=1000,dtype=tf32"), 12e6 / 1e9);
        assert_eq!(min_secs("matmul:m=1000,n=1000,k=1000,dtype=bf16"), 6e6 / 1e9);
        let cubed = 2.0 * 8000f64.powi(3);
        for (dtype, speed) in [("f32", 2e9), ("tf32", 5e11), ("f16", 1e12), ("bf16", 1e12)] {
            assert_eq!(min_secs(&format!("matmul:m=8000,n=8000,k=8000,dtype={dtype}")), cubed / speed);
        }
        let row = |n: usize| min_secs(&format!("matmul:m=1,n={n},k=1,dtype=f16"));
        assert_eq!(row(100), 2.0 * 201.0 / 4e9);
        assert_eq!(row(100_000), 2.0 * 200_001.0 / 2e9);
    }
}
