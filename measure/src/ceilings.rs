//! What this machine can do at best: the roofline's two lines.

use std::collections::HashMap;
use std::ffi::{c_char, c_long};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use autotune_ir::DType;
use autotune_ir::plan::{Binding, PlanBuffer, PlanStage};
use autotune_ir::program::{Layout, Role, When};
use autotune_ir::{Artifact, Code, CpuTarget, KernelPlan, Target};
use autotune_runtime::team::StageFn;
use autotune_runtime::{Cpu, Device, DeviceError, HostMemory, Kernel, Run, View, ViewMut, affinity};
use autotune_schedules::workload::Work;
use serde::{Deserialize, Serialize};

use crate::available::available_bytes;
use crate::compiler::Compiler;
use crate::measurement::MeasureError;
use crate::scratch::Scratch;

mod compiled;
pub(crate) mod gpu;
mod kept;
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

/// Bytes copied in one go, if there is memory for eight times as much.
const MIN_COPY_BYTES: usize = 64 << 20;

/// Bytes copied in one go, at most.
const MAX_COPY_BYTES: usize = 256 << 20;

/// Repeats of the multiply-add loop that show whether kept ceilings were measured on a disturbed machine, and by how much they are beaten
/// then.
const GLANCE_REPEATS: usize = 4;
const BEATEN: f64 = 1.01;

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
    /// Measures a CPU's ceilings, which takes a second or two; the second time it is asked, it remembers. Those of a GPU are for
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
        let ceilings = Loops::of(cpu(target)?)?.ceilings()?;
        known.insert(target.clone(), ceilings);
        Ok(ceilings)
    }

    /// A CPU's ceilings, measured once on a machine and kept for a month in a file in `$AUTOTUNE_CACHE`, else `$XDG_CACHE_HOME/autotune`,
    /// else `~/.cache/autotune`, if one of these folders can be written to. Some milliseconds of multiply-adds show whether the machine
    /// was disturbed then: if it is faster now, it is measured again, and the larger figures are kept.
    pub fn known_or_measure(target: &Target) -> Result<Self, MeasureError> {
        Self::known_in(kept::folder().as_deref(), target)
    }

    fn known_in(folder: Option<&Path>, target: &Target) -> Result<Self, MeasureError> {
        let Some(known) = folder.and_then(|folder| kept::read(folder, &target.key())) else {
            return Self::kept_in(folder, target, || Self::measure(target));
        };
        let now = Loops::of(cpu(target)?)?.core_flops_per_sec(GLANCE_REPEATS)?;
        if now <= BEATEN * known.core_flops_per_sec {
            return Ok(known);
        }
        let best = Self::measure(target)?.best_of(known);
        folder.into_iter().for_each(|folder| kept::write(folder, &target.key(), best));
        Ok(best)
    }

    /// The ceilings of a target that are kept, else those that `measure` yields, which are kept from now on.
    pub(crate) fn kept_or(
        target: &Target,
        measure: impl FnOnce() -> Result<Self, MeasureError>,
    ) -> Result<Self, MeasureError> {
        Self::kept_in(kept::folder().as_deref(), target, measure)
    }

    fn kept_in(
        folder: Option<&Path>,
        target: &Target,
        measure: impl FnOnce() -> Result<Self, MeasureError>,
    ) -> Result<Self, MeasureError> {
        if let Some(known) = folder.and_then(|folder| kept::read(folder, &target.key())) {
            return Ok(known);
        }
        let measured = measure()?;
        folder.into_iter().for_each(|folder| kept::write(folder, &target.key(), measured));
        Ok(measured)
    }

    /// Of each figure the better one.
    fn best_of(self, other: Self) -> Self {
        let [a, b] = [self.read_bytes_per_sec, other.read_bytes_per_sec];
        Self {
            core_flops_per_sec: self.core_flops_per_sec.max(other.core_flops_per_sec),
            flops_per_sec: self.flops_per_sec.max(other.flops_per_sec),
            half_flops_per_sec: self.half_flops_per_sec.max(other.half_flops_per_sec),
            tf32_flops_per_sec: self.tf32_flops_per_sec.max(other.tf32_flops_per_sec),
            bytes_per_sec: self.bytes_per_sec.max(other.bytes_per_sec),
            read_bytes_per_sec: [a[0].max(b[0]), a[1].max(b[1]), a[2].max(b[2])],
            cache_bytes: self.cache_bytes,
            fork_join_secs: self.fork_join_secs.min(other.fork_join_secs),
        }
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

/// The CPU that a target is.
fn cpu(target: &Target) -> Result<&CpuTarget, MeasureError> {
    target.cpu().ok_or_else(|| fault(format!("{target} is no CPU")))
}

/// The loops for a CPU.
struct Loops<'a> {
    cpu: &'a CpuTarget,
    /// Vectors, in lanes, that multiply-adds are tried with.
    widths: Vec<usize>,
    /// The folder and the library of those that are compiled.
    compiled: Option<(Scratch, PathBuf)>,
}

impl<'a> Loops<'a> {
    fn of(cpu: &'a CpuTarget) -> Result<Self, MeasureError> {
        let lanes = cpu.isa.vector_bytes() / 4;
        let widths: Vec<usize> = [lanes, lanes / 2].into_iter().filter(|&lanes| lanes >= 4).collect();
        let has_native = |&lanes: &usize| native(Loop::MultiplyAdd { lanes }).is_some();
        let native_widths: Vec<usize> = widths.iter().copied().filter(has_native).collect();
        if !native_widths.is_empty() && native(Loop::Read).is_some() {
            return Ok(Self { cpu, widths: native_widths, compiled: None });
        }
        let dir = Scratch::new()?;
        let library = dir.path().join("ceilings.so");
        Compiler::find()?.compile(&compiled::source(&widths), &library, BUILD_LIMIT).map_err(fault)?;
        Ok(Self { cpu, widths, compiled: Some((dir, library)) })
    }

    fn kernel(&self, cpu: &Cpu, name: Loop, plan: KernelPlan) -> Result<Kernel, MeasureError> {
        match (&self.compiled, native(name)) {
            // SAFETY: the library was built from `source`, whose functions keep the contract for these plans.
            (Some((_, library)), None) => unsafe { in_library(cpu, library, plan) }.map_err(fault),
            // SAFETY: the function is for this processor and keeps the contract for these plans.
            (_, Some(function)) => unsafe { Kernel::of_functions(vec![function], plan) }.map_err(fault),
            (None, None) => Err(fault("a loop is missing")),
        }
    }

    /// Seconds of the fastest repeat of so many runs of a loop on chunks of so many elements, one for each thread.
    fn best_secs(
        &self,
        [repeats, runs]: [usize; 2],
        name: Loop,
        chunk: usize,
        threads: usize,
    ) -> Result<f64, MeasureError> {
        let cpu = Cpu::pinned(threads);
        let kernel = self.kernel(&cpu, name, plan(name, chunk * threads, threads))?;
        with_run(&cpu, &kernel, chunk, |run| fastest_secs(repeats, runs, || run.start(&cpu).map_err(fault)))?
    }

    /// Multiply-adds of one core, two FLOP each, per second.
    fn core_flops_per_sec(&self, repeats: usize) -> Result<f64, MeasureError> {
        pinned(|| self.flops_per_sec(repeats, 1))
    }

    /// The same of so many threads, with the vectors that are fastest.
    fn flops_per_sec(&self, repeats: usize, threads: usize) -> Result<f64, MeasureError> {
        self.widths.iter().try_fold(0.0f64, |best, &lanes| {
            let flops = (2 * lanes * ACCUMULATORS * ROUNDS * threads) as f64;
            let secs = self.best_secs([repeats, 1], Loop::MultiplyAdd { lanes }, LINE, threads)?;
            Ok(best.max(flops / secs))
        })
    }

    fn ceilings(&self) -> Result<Ceilings, MeasureError> {
        let cpu = self.cpu;
        let copy_bytes = (2 * cpu.l3_bytes).clamp(MIN_COPY_BYTES, MAX_COPY_BYTES).min(available_bytes() / 8);
        let chunk = copy_bytes / 4 / cpu.threads;
        let l2_bytes = (cpu.l2_bytes * cpu.threads).min(cpu.l3_bytes);
        // Half of a cache is surely in it; beyond the second level, enough not to be.
        let beyond_bytes = (cpu.l3_bytes / 2).max(2 * l2_bytes).min(copy_bytes);
        let read_chunks = [l2_bytes / 2, beyond_bytes, copy_bytes];
        let read_chunks = read_chunks.map(|bytes| (bytes / 4 / cpu.threads).next_multiple_of(LINE * READ_ACCUMULATORS));

        pinned(|| {
            let core = self.flops_per_sec(REPEATS, 1)?;
            let flops_per_sec = self.flops_per_sec(REPEATS, cpu.threads)?.max(core);
            let copied_bytes = (2 * 4 * chunk * cpu.threads) as f64;
            let bytes_per_sec = copied_bytes / self.best_secs([REPEATS, 1], Loop::Copy, chunk, cpu.threads)?;
            let mut read_bytes_per_sec = [0.0f64; 3];
            for (level, &chunk) in read_chunks.iter().enumerate() {
                let bytes = (4 * chunk * cpu.threads) as f64;
                read_bytes_per_sec[level] = bytes / self.best_secs([REPEATS, 1], Loop::Read, chunk, cpu.threads)?;
            }
            let fork = LINE * READ_ACCUMULATORS;
            Ok(Ceilings {
                core_flops_per_sec: core,
                flops_per_sec,
                half_flops_per_sec: flops_per_sec,
                tf32_flops_per_sec: flops_per_sec,
                bytes_per_sec,
                read_bytes_per_sec,
                cache_bytes: [l2_bytes as f64, cpu.l3_bytes as f64],
                fork_join_secs: self.best_secs([REPEATS, FORKS], Loop::Read, fork, cpu.threads)?,
            })
        })
    }
}

/// Measures on the first core.
fn pinned<T>(measure: impl FnOnce() -> T) -> T {
    affinity::pinned_to_core(0, measure)
}

/// A loop of a library.
///
/// # Safety
///
/// As [`Kernel::load`].
unsafe fn in_library(cpu: &Cpu, library: &Path, plan: KernelPlan) -> Result<Kernel, DeviceError> {
    let target = Target::Cpu(CpuTarget::generic_avx2(cpu.threads()));
    // SAFETY: the caller's promise.
    unsafe { Kernel::load(cpu, &Artifact { target, plan, code: Code::Library(library.into()) }) }
}

/// Runs `work` with a loop on buffers of its own, of chunks of so many elements.
fn with_run<T>(
    cpu: &Cpu,
    kernel: &Kernel,
    chunk: usize,
    work: impl FnOnce(&mut Run<'_>) -> T,
) -> Result<T, MeasureError> {
    let shapes: Vec<&[usize]> = kernel.plan().buffers.iter().map(|buffer| &buffer.shape[..]).collect();
    // Multiply-adds with these stay finite and normal.
    let filled = |shape: &[usize], word: u32| -> Result<HostMemory, MeasureError> {
        let mut memory = HostMemory::new(4 * shape[0]).map_err(fault)?;
        cpu.fill(&mut memory, 0..shape[0], word).map_err(fault)?;
        Ok(memory)
    };
    let half = 0.5f32.to_bits();
    let (operands, mut results) = (filled(shapes[0], half)?, filled(shapes[1], half)?);
    let chunk = filled(shapes[2], u32::try_from(chunk).map_err(fault)?)?;

    let packed = kernel.pack(cpu, &[]).map_err(fault)?;
    let mut scratch = kernel.scratch(cpu).map_err(fault)?;
    let operands = [View::of(&operands, DType::F32, shapes[0]), View::of(&chunk, DType::F32, shapes[2])];
    let mut results = [ViewMut::of(&mut results, DType::F32, shapes[1])];
    let mut run = kernel.bind(cpu, &packed, &mut scratch, &operands, &mut results).map_err(fault)?;
    Ok(work(&mut run))
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

fn fault(cause: impl std::fmt::Display) -> MeasureError {
    MeasureError::Ceilings { message: cause.to_string() }
}

/// Seconds a run, of the fastest of several repeats of so many runs.
fn fastest_secs(
    repeats: usize,
    runs: usize,
    mut run: impl FnMut() -> Result<(), MeasureError>,
) -> Result<f64, MeasureError> {
    let mut timed = || -> Result<f64, MeasureError> {
        let start = Instant::now();
        (0..runs).try_for_each(|_| run())?;
        Ok(start.elapsed().as_secs_f64() / runs as f64)
    };
    timed()?;
    (0..repeats).try_fold(f64::INFINITY, |least, _| Ok(least.min(timed()?)))
}

/// The stage of a loop with its three buffers.
fn plan(name: Loop, elements: usize, tasks: usize) -> KernelPlan {
    let buffer = |name: &str, role, binding, len| PlanBuffer {
        name: name.into(),
        role,
        binding,
        shape: vec![len],
        layout: Layout::Plain,
        dtype: DType::F32,
    };
    // Only copies leave more than a line for each task.
    let results = if name == Loop::Copy { elements } else { LINE * tasks };
    KernelPlan {
        buffers: vec![
            buffer("operands", Role::Input, Binding::Data, elements),
            buffer("results", Role::Output, Binding::Output, results),
            buffer("chunk", Role::Residual, Binding::Data, 1),
        ],
        stages: vec![PlanStage { symbol: name.symbol(), when: When::EveryRun, tasks, launch: None, boxes: vec![] }],
        local_bytes: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use autotune_runtime::Runner;

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
    fn ceilings_are_kept_until_a_quiet_machine_beats_them() {
        let target = Target::Cpu(CpuTarget::detect(Some(1)).unwrap());
        let dir = tempfile::tempdir().unwrap();
        let measured = Ceilings::measure(&target).unwrap();
        let known = || Ceilings::known_in(Some(dir.path()), &target).unwrap();
        // Numbers in a file may differ in a last digit.
        let assert_same = |a: Ceilings, b: Ceilings| {
            let figures = |c: Ceilings| [c.core_flops_per_sec, c.flops_per_sec, c.bytes_per_sec, c.fork_join_secs];
            let pairs = figures(a).into_iter().zip(figures(b));
            pairs.for_each(|(x, y)| assert!((x / y - 1.0).abs() < 1e-12, "{a:?}, {b:?}"));
        };
        assert_eq!(Ceilings::known_in(None, &target).unwrap(), measured);
        assert_same(known(), measured);
        // Faster than any machine: never beaten, and so what was kept is what there is.
        let fast = Ceilings { core_flops_per_sec: 1e15, bytes_per_sec: 1.5 * measured.bytes_per_sec, ..measured };
        kept::write(dir.path(), &target.key(), fast);
        assert_same(known(), fast);
        // As if from a moment in which the machine hardly worked at all.
        kept::write(dir.path(), &target.key(), Ceilings { core_flops_per_sec: 2e6, ..fast });
        let beaten = Ceilings { core_flops_per_sec: measured.core_flops_per_sec, ..fast };
        assert_same(known(), beaten);
        assert_same(kept::read(dir.path(), &target.key()).unwrap(), beaten);
        let other = || Err(fault("it is not measured where it is kept"));
        assert_same(Ceilings::kept_in(Some(dir.path()), &target, other).unwrap(), beaten);
        assert!(Ceilings::kept_in(None, &target, other).is_err());
    }

    #[test]
    fn loops_compiled_from_c_do_the_same_work() {
        let dir = Scratch::new().unwrap();
        let library = dir.path().join("ceilings.so");
        Compiler::find().unwrap().compile(&compiled::source(&[8, 4]), &library, BUILD_LIMIT).unwrap();
        let cpu = CpuTarget::detect(Some(1)).unwrap();
        let compiled = Loops { cpu: &cpu, widths: vec![8, 4], compiled: Some((dir, library.clone())) };
        let team = Cpu::new(2);
        let chunk = 3 * LINE * READ_ACCUMULATORS;
        let mut sums = Vec::new();
        for name in [Loop::Read, Loop::MultiplyAdd { lanes: 8 }] {
            let plan = plan(name, 2 * chunk, 2);
            // SAFETY: built from `source` for such plans.
            let from_c = unsafe { in_library(&team, &library, plan.clone()) }.unwrap();
            for kernel in [from_c, compiled.kernel(&team, name, plan).unwrap()] {
                // Vectors of the C loops are aligned.
                let operands = team.upload(&vec![0.5; 2 * chunk]).unwrap();
                let mut results = team.upload(&[f32::NAN; 2 * LINE]).unwrap();
                let (shape, size) = ([2 * chunk], [f32::from_bits(chunk as u32)]);
                let mut runner = Runner::new(kernel, Cpu::new(2)).unwrap();
                let views = [View::of(&operands, DType::F32, &shape), View::new(&size, &[1])];
                runner.run(&views, &mut [ViewMut::of(&mut results, DType::F32, &[2 * LINE])]).unwrap();
                let results = results.elements::<f32>();
                let lines =
                    [0, LINE].map(|line| results[line..line + LINE].iter().filter(|x| x.is_finite()).sum::<f32>());
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
