//! Loops that reach a CPU's peak rates.

use std::ffi::{c_char, c_long};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use autotune_ir::instruction::{TILE_ROWS, dot_of, tile_of};
use autotune_ir::plan::{Binding, PlanBuffer, PlanStage};
use autotune_ir::program::{Layout, Role, When};
use autotune_ir::{Artifact, Code, CpuTarget, DType, KernelPlan, Target};
use autotune_runtime::team::StageFn;
use autotune_runtime::{Cpu, Device, DeviceError, HostMemory, Kernel, Run, View, ViewMut, affinity};

use super::figures::{Ceilings, fault};
use crate::available::available_bytes;
use crate::compiler::Compiler;
use crate::error::MeasureError;
use crate::scratch::ScratchDir;

mod compiled;
mod loops;
#[cfg(target_arch = "x86_64")]
mod native;

use loops::{ACCUMULATORS, CeilingLoop, LINE, READ_ACCUMULATORS, ROUNDS, TILE_ROUNDS, TILE_SUMS, chunk};

/// Number of consecutive stages with almost no work.
const FORKS: usize = 1000;

/// Word of operands: 0.75 in f32 and bf16, and 63 in 8 bits, approximately. Sums of products stay
/// finite and normal. Processors multiply zeros faster: tiles of zeros take a fifth less time
/// (measured on Intel Xeon, family 6, model 207).
const OPERAND: u32 = 0x3f3f_3f3f;

/// Short repeats of each figure, of which the best counts.
const REPEATS: usize = 20;

/// Repeats of products of tiles. Hardware threads share the unit that computes them, so a neighbour
/// disturbs them longer and more than others.
const TILE_REPEATS: usize = 200;

/// Least bytes per copy, if eight times as much memory is available.
const MIN_COPY_BYTES: usize = 64 << 20;

/// Most bytes per copy.
const MAX_COPY_BYTES: usize = 256 << 20;

/// Time limit of the compiler.
const BUILD_LIMIT: Duration = Duration::from_secs(20);

/// Stage function of [`CeilingLoop::Copy`].
///
/// # Safety
///
/// The buffers must be those of a [`CeilingLoop`], with a chunk of operands and of results for
/// every task.
unsafe extern "C" fn copy(buffers: *const *mut f32, _: *mut c_char, begin: c_long, end: c_long) {
    // SAFETY: the caller guarantees the buffers, which do not overlap.
    unsafe {
        let (chunk, from, to) = (chunk(buffers), *buffers, *buffers.add(1));
        let (start, len) = (chunk * begin as usize, chunk * (end - begin) as usize);
        std::ptr::copy_nonoverlapping(from.add(start), to.add(start), len);
    }
}

/// Implementations of the loops for a CPU.
pub(super) struct Loops<'a> {
    cpu: &'a CpuTarget,
    /// Vector widths, in lanes, that are tried for multiply-adds.
    widths: Vec<usize>,
    /// Folder and shared object of the compiled loops; `None` if none are needed.
    compiled: Option<(ScratchDir, PathBuf)>,
}

impl<'a> Loops<'a> {
    pub(super) fn of(cpu: &'a CpuTarget) -> Result<Self, MeasureError> {
        let lanes = cpu.isa.vector_bytes() / 4;
        let widths: Vec<usize> = [lanes, lanes / 2].into_iter().filter(|&lanes| lanes >= 4).collect();
        let has_native = |&lanes: &usize| native(CeilingLoop::MultiplyAdd { lanes }).is_some();
        let native_widths: Vec<usize> = widths.iter().copied().filter(has_native).collect();
        if !native_widths.is_empty() && native(CeilingLoop::Read).is_some() {
            return Ok(Self { cpu, widths: native_widths, compiled: None });
        }
        // This instruction set has no loops in assembly: compile them from C.
        let dir = ScratchDir::new()?;
        let library = dir.path().join("ceilings.so");
        Compiler::find()?.compile(&compiled::source(&widths), &library, BUILD_LIMIT).map_err(fault)?;
        Ok(Self { cpu, widths, compiled: Some((dir, library)) })
    }

    fn kernel(&self, cpu: &Cpu, name: CeilingLoop, plan: KernelPlan) -> Result<Kernel, MeasureError> {
        match (&self.compiled, native(name)) {
            // SAFETY: the library was built from `compiled::source`, whose functions fit these
            // plans.
            (Some((_, library)), None) => unsafe { in_library(cpu, library, plan) }.map_err(fault),
            // SAFETY: this processor supports the function's instructions, and the function fits
            // these plans.
            (_, Some(function)) => unsafe { Kernel::of_functions(vec![function], plan) }.map_err(fault),
            (None, None) => Err(fault("a loop is missing")),
        }
    }

    /// Returns the seconds per run of a loop, from the fastest of `repeats` repeats of `runs` runs.
    /// Each thread has one chunk of elements.
    fn best_secs(
        &self,
        [repeats, runs]: [usize; 2],
        name: CeilingLoop,
        chunk: usize,
        threads: usize,
    ) -> Result<f64, MeasureError> {
        let cpu = Cpu::pinned(threads);
        let kernel = self.kernel(&cpu, name, plan(name, chunk * threads, threads))?;
        with_run(&cpu, &kernel, chunk, |run| fastest_secs(repeats, runs, || run.start(&cpu).map_err(fault)))?
    }

    /// Returns the FLOP per second of one core's multiply-adds (two per multiply-add).
    pub(super) fn core_flops_per_sec(&self, repeats: usize) -> Result<f64, MeasureError> {
        pinned(|| self.flops_per_sec(repeats, 1))
    }

    /// Returns the FLOP per second of `threads` threads, with the fastest vector width.
    fn flops_per_sec(&self, repeats: usize, threads: usize) -> Result<f64, MeasureError> {
        self.widths.iter().try_fold(0.0f64, |best, &lanes| {
            let flops = (2 * lanes * ACCUMULATORS * ROUNDS * threads) as f64;
            let secs = self.best_secs([repeats, 1], CeilingLoop::MultiplyAdd { lanes }, LINE, threads)?;
            Ok(best.max(flops / secs))
        })
    }

    /// Returns the FLOP per second of dot products or of products of tiles of some types on the
    /// target's threads, whichever is faster, but at least `least`, the result if no instruction
    /// computes them.
    fn product_flops_per_sec(&self, factors: [DType; 2], least: f64) -> Result<f64, MeasureError> {
        let lanes = self.cpu.lanes() * ACCUMULATORS * ROUNDS;
        let dot = dot_of(self.cpu, factors).map(|(dot, of)| (CeilingLoop::Dot(dot), REPEATS, lanes * of.steps));
        let words = TILE_ROWS.pow(3) * TILE_SUMS * TILE_ROUNDS;
        let tile =
            tile_of(self.cpu, factors).map(|(tile, of)| (CeilingLoop::Tile(tile), TILE_REPEATS, words * of.steps));

        let mut known = [dot, tile].into_iter().flatten().filter(|&(name, ..)| native(name).is_some());
        known.try_fold(least, |best, (name, repeats, multiply_adds)| {
            let flops = (2 * multiply_adds * self.cpu.threads) as f64;
            Ok(best.max(flops / self.best_secs([repeats, 1], name, LINE, self.cpu.threads)?))
        })
    }

    pub(super) fn ceilings(&self) -> Result<Ceilings, MeasureError> {
        let cpu = self.cpu;
        let copy_bytes = (2 * cpu.l3_bytes).clamp(MIN_COPY_BYTES, MAX_COPY_BYTES).min(available_bytes() / 8);
        let chunk = copy_bytes / 4 / cpu.threads;
        let l2_bytes = (cpu.l2_bytes * cpu.threads).min(cpu.l3_bytes);
        // Half of a cache's size certainly fits the cache. To read from the last level, the data
        // must be clearly larger than the second level.
        let beyond_bytes = (cpu.l3_bytes / 2).max(2 * l2_bytes).min(copy_bytes);
        let read_chunks = [l2_bytes / 2, beyond_bytes, copy_bytes];
        let read_chunks = read_chunks.map(|bytes| (bytes / 4 / cpu.threads).next_multiple_of(LINE * READ_ACCUMULATORS));

        pinned(|| {
            let core = self.flops_per_sec(REPEATS, 1)?;
            let flops_per_sec = self.flops_per_sec(REPEATS, cpu.threads)?.max(core);
            let copied_bytes = (2 * 4 * chunk * cpu.threads) as f64;
            let bytes_per_sec = copied_bytes / self.best_secs([REPEATS, 1], CeilingLoop::Copy, chunk, cpu.threads)?;
            let mut read_bytes_per_sec = [0.0f64; 3];
            for (level, &chunk) in read_chunks.iter().enumerate() {
                let bytes = (4 * chunk * cpu.threads) as f64;
                read_bytes_per_sec[level] =
                    bytes / self.best_secs([REPEATS, 1], CeilingLoop::Read, chunk, cpu.threads)?;
            }
            // The smallest chunk that the reading loop supports: its time is that of fork and join.
            let fork = LINE * READ_ACCUMULATORS;
            Ok(Ceilings {
                core_flops_per_sec: core,
                flops_per_sec,
                half_flops_per_sec: self.product_flops_per_sec([DType::Bf16; 2], flops_per_sec)?,
                byte_flops_per_sec: self.product_flops_per_sec([DType::U8, DType::I8], flops_per_sec)?,
                tf32_flops_per_sec: flops_per_sec,
                bytes_per_sec,
                read_bytes_per_sec,
                cache_bytes: [l2_bytes as f64, cpu.l3_bytes as f64],
                fork_join_secs: self.best_secs([REPEATS, FORKS], CeilingLoop::Read, fork, cpu.threads)?,
            })
        })
    }
}

/// Runs a measurement pinned to the first core.
fn pinned<T>(measure: impl FnOnce() -> T) -> T {
    affinity::pinned_to_core(0, measure)
}

/// Loads a loop of a shared object.
///
/// # Safety
///
/// As [`Kernel::load`].
unsafe fn in_library(cpu: &Cpu, library: &Path, plan: KernelPlan) -> Result<Kernel, DeviceError> {
    let target = Target::Cpu(CpuTarget::generic_avx2(cpu.threads()));
    // SAFETY: the caller guarantees that the code is fit to run.
    unsafe { Kernel::load(cpu, &Artifact { target, plan, code: Code::Library(library.into()) }) }
}

/// Calls `work` with a loop bound to newly allocated buffers.
fn with_run<T>(
    cpu: &Cpu,
    kernel: &Kernel,
    chunk: usize,
    work: impl FnOnce(&mut Run<'_>) -> T,
) -> Result<T, MeasureError> {
    let shapes: Vec<&[usize]> = kernel.plan().buffers.iter().map(|buffer| &buffer.shape[..]).collect();
    let filled = |shape: &[usize], word: u32| -> Result<HostMemory, MeasureError> {
        let mut memory = HostMemory::new(4 * shape[0]).map_err(fault)?;
        cpu.fill(&mut memory, 0..shape[0], word).map_err(fault)?;
        Ok(memory)
    };
    let (operands, mut results) = (filled(shapes[0], OPERAND)?, filled(shapes[1], OPERAND)?);
    let chunk = filled(shapes[2], u32::try_from(chunk).map_err(fault)?)?;

    let packed = kernel.pack(cpu, &[]).map_err(fault)?;
    let mut scratch = kernel.scratch(cpu).map_err(fault)?;
    let operands = [View::of(&operands, DType::F32, shapes[0]), View::of(&chunk, DType::F32, shapes[2])];
    let mut results = [ViewMut::of(&mut results, DType::F32, shapes[1])];
    let mut run = kernel.bind(cpu, &packed, &mut scratch, &operands, &mut results).map_err(fault)?;
    Ok(work(&mut run))
}

/// Returns the loop's function in this crate; `None` if this processor has none.
fn native(name: CeilingLoop) -> Option<StageFn> {
    if name == CeilingLoop::Copy {
        return Some(copy);
    }
    #[cfg(target_arch = "x86_64")]
    return native::find(name);
    #[cfg(not(target_arch = "x86_64"))]
    None
}

/// Returns the seconds per run, from the fastest of several repeats after one that does not count.
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

/// Returns the plan of a loop: one stage with three buffers.
fn plan(name: CeilingLoop, elements: usize, tasks: usize) -> KernelPlan {
    let buffer = |name: &str, role, binding, len| PlanBuffer {
        name: name.into(),
        role,
        binding,
        shape: vec![len],
        layout: Layout::Plain,
        dtype: DType::F32,
    };
    // Only copies write more than one line per task.
    let results = if name == CeilingLoop::Copy { elements } else { LINE * tasks };
    KernelPlan {
        buffers: vec![
            buffer("operands", Role::Operand(0), Binding::Data, elements),
            buffer("results", Role::Output, Binding::Output, results),
            buffer("chunk", Role::Operand(1), Binding::Data, 1),
        ],
        stages: vec![PlanStage { symbol: name.symbol(), when: When::EveryRun, tasks, launch: None, boxes: vec![] }],
        local_bytes: 0,
        uses_tiles: matches!(name, CeilingLoop::Tile(_)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use autotune_ir::instruction::{TILE_BF16, TILE_I8};
    use autotune_runtime::Runner;

    #[test]
    fn loops_compiled_from_c_do_the_same_work() {
        let dir = ScratchDir::new().unwrap();
        let library = dir.path().join("ceilings.so");
        Compiler::find().unwrap().compile(&compiled::source(&[8, 4]), &library, BUILD_LIMIT).unwrap();
        let cpu = CpuTarget::detect(Some(1)).unwrap();
        let compiled = Loops { cpu: &cpu, widths: vec![8, 4], compiled: Some((dir, library.clone())) };

        let team = Cpu::new(2);
        let chunk = 3 * LINE * READ_ACCUMULATORS;
        let mut sums = Vec::new();

        for name in [CeilingLoop::Read, CeilingLoop::MultiplyAdd { lanes: 8 }] {
            let plan = plan(name, 2 * chunk, 2);
            // SAFETY: the library was built from `compiled::source`, whose functions fit such
            // plans.
            let from_c = unsafe { in_library(&team, &library, plan.clone()) }.unwrap();
            for kernel in [from_c, compiled.kernel(&team, name, plan).unwrap()] {
                // The vectors of the C loops need aligned operands.
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
        assert!(sums.iter().all(|&(name, sum)| name != CeilingLoop::Read || sum == 0.5 * chunk as f32), "{sums:?}");
        assert!(sums.iter().all(|&(_, sum)| sum > 0.0), "{sums:?}");
    }

    #[test]
    fn tiles_are_loaded_and_multiplied() {
        for (tile, wanted) in [(&TILE_BF16, 0.25 * TILE_ROWS as f32), (&TILE_I8, 63.0 * 63.0 * TILE_ROWS as f32)] {
            let name = CeilingLoop::Tile(tile);
            if native(name).is_none() {
                return eprintln!("skipped: no tile registers");
            }
            // SAFETY: this processor supports the instruction, and the function fits such plans.
            let kernel = unsafe { Kernel::of_functions(vec![native(name).unwrap()], plan(name, 2 * LINE, 2)) }.unwrap();
            // In each word, the highest element counts: 0.5 in bf16, and 0x3f in 8 bits.
            let operands = [f32::from_bits(0x3f00_0000); 2 * LINE];
            let (size, mut sums) = ([f32::from_bits(LINE as u32)], [f32::NAN; 2 * LINE]);
            let mut runner = Runner::new(kernel, Cpu::new(2)).unwrap();
            let views = [View::new(&operands, &[2 * LINE]), View::new(&size, &[1])];
            runner.run(&views, &mut [ViewMut::new(&mut sums, &[2 * LINE])]).unwrap();

            let sums = sums.map(|sum| if *tile == TILE_I8 { sum.to_bits() as i32 as f32 } else { sum });
            assert!(sums.iter().all(|&sum| sum == TILE_ROUNDS as f32 * wanted), "{tile:?}: {sums:?}");
        }
    }
}
