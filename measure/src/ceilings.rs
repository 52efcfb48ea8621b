//! What this machine can do at best: the roofline's two lines.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use autotune_schedules::plan::{PlanBuffer, PlanStage};
use autotune_schedules::program::{Layout, Role, When};
use autotune_schedules::{KernelPlan, Target};
use serde::{Deserialize, Serialize};

use crate::affinity::{allowed_cores, pin_to_core};
use crate::buffers::Buffers;
use crate::compiler::{Compiler, scratch_dir};
use crate::kernel::Kernel;
use crate::measurement::MeasureError;
use crate::team::Team;

/// Independent accumulators: more than any core needs to hide the latency of a multiply-add.
const ACCUMULATORS: usize = 12;

/// Independent sums of the reading loop.
const READ_ACCUMULATORS: usize = 8;

/// f32 elements between the operands of two tasks: no two share a cache line, and the widest vector fits.
const LINE: usize = 16;

/// Rounds of the multiply-add loop in one task, about half a millisecond.
const ROUNDS: usize = 300_000;

/// Short repeats of each figure, of which the best counts.
const REPEATS: usize = 20;

/// Bytes copied in one go, at least.
const MIN_COPY_BYTES: usize = 64 << 20;

/// Bytes copied in one go, at most.
const MAX_COPY_BYTES: usize = 256 << 20;

/// Longest wait for the compiler.
const BUILD_LIMIT: Duration = Duration::from_secs(20);

/// Measured ceilings of a CPU target.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ceilings {
    /// f32 multiply-adds on one core, two FLOP each, per second.
    pub core_flops_per_sec: f64,
    /// The same on the target's threads.
    pub flops_per_sec: f64,
    /// Bytes read plus bytes written per second by a copy in memory, larger than any cache, on the target's threads.
    pub bytes_per_sec: f64,
    /// Bytes read per second from the second-level caches, from the last-level cache and from memory, on the target's threads.
    pub read_bytes_per_sec: [f64; 3],
    /// Sizes of the second-level caches of the target's threads together and of the last-level cache.
    pub cache_bytes: [f64; 2],
}

impl Ceilings {
    /// Measures the target's ceilings, which takes under a second; the second time it is asked, it remembers.
    pub fn measure(target: &Target, compiler: &Compiler) -> Result<Self, MeasureError> {
        static KNOWN: Mutex<Option<HashMap<Target, Ceilings>>> = Mutex::new(None);
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let known = known.get_or_insert_with(HashMap::new);
        if let Some(&ceilings) = known.get(target) {
            return Ok(ceilings);
        }
        let ceilings = measure(target, compiler)?;
        known.insert(target.clone(), ceilings);
        Ok(ceilings)
    }

    /// The least seconds in which work of `flops` on `bytes` can be done over and over: operands that fit a cache are read
    /// from there.
    pub fn min_secs(&self, flops: f64, bytes: f64) -> f64 {
        let level = self.cache_bytes.iter().position(|&size| bytes <= size).unwrap_or(self.cache_bytes.len());
        (flops / self.flops_per_sec).max(bytes / self.read_bytes_per_sec[level])
    }
}

fn measure(target: &Target, compiler: &Compiler) -> Result<Ceilings, MeasureError> {
    allowed_cores();
    let Some(cpu) = target.cpu() else {
        return Err(MeasureError::Ceilings { message: format!("{target} is no CPU") });
    };
    let dir = scratch_dir()?;
    let library = dir.path().join("ceilings.so");
    let widths = [cpu.lanes(), cpu.lanes() / 2];
    let chunk = (2 * cpu.l3_bytes).clamp(MIN_COPY_BYTES, MAX_COPY_BYTES) / 4 / cpu.threads;
    let l2_bytes = (cpu.l2_bytes * cpu.threads).min(cpu.l3_bytes);
    // Half of a cache is surely in it; beyond the second level, enough not to be.
    let reads = [l2_bytes / 2, (cpu.l3_bytes / 2).max(2 * l2_bytes).min(MAX_COPY_BYTES), 4 * chunk * cpu.threads];
    let read_chunks = reads.map(|bytes| (bytes / 4 / cpu.threads).next_multiple_of(LINE * READ_ACCUMULATORS));
    compiler.compile(&source(&widths, chunk, &read_chunks), &library, BUILD_LIMIT).map_err(fault)?;
    let best_secs = |symbol: &str, elements: usize, threads: usize| {
        // SAFETY: the library was built from `source`, whose functions keep the contract for these plans.
        let kernel = unsafe { Kernel::load(&library, plan(symbol, elements, threads)) }.map_err(fault)?;
        let mut team = Team::new(threads);
        let mut buffers = Buffers::new(kernel.plan(), threads).map_err(fault)?;
        // Multiply-adds with these stay finite and normal.
        (0..2).for_each(|i| buffers.buffer_mut(i).fill(0.5));
        Ok(fastest_secs(&kernel, &mut team, &mut buffers))
    };
    let run = || {
        pin_to_core(0);
        let (mut core, mut all) = (0.0f64, 0.0f64);
        for width in widths {
            let (symbol, flops) = (format!("autotune_fma{width}"), (2 * width * ACCUMULATORS * ROUNDS) as f64);
            core = core.max(flops / best_secs(&symbol, LINE, 1)?);
            all = all.max(flops * cpu.threads as f64 / best_secs(&symbol, LINE * cpu.threads, cpu.threads)?);
        }
        let copied_bytes = (2 * 4 * chunk * cpu.threads) as f64;
        let bytes_per_sec = copied_bytes / best_secs("autotune_copy", chunk * cpu.threads, cpu.threads)?;
        let mut read_bytes_per_sec = [0.0f64; 3];
        for (level, &chunk) in read_chunks.iter().enumerate() {
            let bytes = (4 * chunk * cpu.threads) as f64;
            let secs = best_secs(&format!("autotune_read{level}"), chunk * cpu.threads, cpu.threads)?;
            read_bytes_per_sec[level] = bytes / secs;
        }
        let cache_bytes = [l2_bytes as f64, cpu.l3_bytes as f64];
        let flops_per_sec = all.max(core);
        Ok(Ceilings { core_flops_per_sec: core, flops_per_sec, bytes_per_sec, read_bytes_per_sec, cache_bytes })
    };
    thread::scope(|scope| scope.spawn(run).join()).map_err(|_| fault("the measuring thread panicked"))?
}

fn fault(cause: impl std::fmt::Display) -> MeasureError {
    MeasureError::Ceilings { message: cause.to_string() }
}

fn fastest_secs(kernel: &Kernel, team: &mut Team, buffers: &mut Buffers) -> f64 {
    let mut timed = || {
        let start = Instant::now();
        kernel.run(team, buffers);
        start.elapsed().as_secs_f64()
    };
    timed();
    (0..REPEATS).map(|_| timed()).fold(f64::INFINITY, f64::min)
}

/// Two buffers and one stage.
fn plan(symbol: &str, elements: usize, tasks: usize) -> KernelPlan {
    let buffer = |role| PlanBuffer { role, global: true, shape: vec![elements], layout: Layout::Plain };
    KernelPlan {
        buffers: vec![buffer(Role::Input), buffer(Role::Output)],
        stages: vec![PlanStage { symbol: symbol.into(), when: When::EveryRun, tasks, launch: None }],
        local_bytes: 0,
    }
}

/// C functions: `autotune_fma{w}` for each vector width in lanes, whose task `t` runs multiply-adds and leaves their sum
/// in line `t` of the second buffer, `autotune_copy`, whose task `t` copies the `t`-th chunk of the first buffer, and
/// `autotune_read{level}`, whose task `t` reads the `t`-th chunk and leaves its sum.
fn source(widths: &[usize], chunk: usize, read_chunks: &[usize]) -> String {
    let mut text = String::from("#include <string.h>\n");
    let each = |f: &dyn Fn(usize) -> String, between: &str| (0..ACCUMULATORS).map(f).collect::<Vec<_>>().join(between);
    for w in widths {
        let start = each(&|i| format!("a{i} = x + {i}.0f"), ", ");
        let step = each(&|i| format!("a{i} = a{i} * x + y;"), " ");
        let sum = each(&|i| format!("a{i}"), " + ");
        text += &format!(
            "typedef float v{w} __attribute__((vector_size({bytes})));
void autotune_fma{w}(float *const *buffers, char *local, long begin, long end) {{
    for (long t = begin; t < end; t++) {{
        v{w} x, y, sum;
        memcpy(&x, buffers[0] + {LINE} * t, sizeof x);
        memcpy(&y, buffers[0] + {LINE} * t, sizeof y);
        v{w} {start};
        for (long i = 0; i < {ROUNDS}; i++) {{ {step} }}
        sum = {sum};
        memcpy(buffers[1] + {LINE} * t, &sum, sizeof sum);
    }}
}}
",
            bytes = 4 * w
        );
    }
    text += &format!(
        "void autotune_copy(float *const *buffers, char *local, long begin, long end) {{
    for (long t = begin; t < end; t++)
        memcpy(buffers[1] + {chunk} * t, buffers[0] + {chunk} * t, {chunk} * sizeof(float));
}}
"
    );
    for (level, read) in read_chunks.iter().enumerate() {
        let each = |f: &dyn Fn(usize) -> String, between: &str| {
            (0..READ_ACCUMULATORS).map(f).collect::<Vec<_>>().join(between)
        };
        let start = each(&|i| format!("r{i} = {{0}}"), ", ");
        let step = each(&|i| format!("r{i} += *(const line *)(p + i + {});", i * LINE), " ");
        let sum = each(&|i| format!("r{i}"), " + ");
        text += &format!(
            "void autotune_read{level}(float *const *buffers, char *local, long begin, long end) {{
    typedef float line __attribute__((vector_size({bytes}), may_alias));
    for (long t = begin; t < end; t++) {{
        const float *p = buffers[0] + {read} * t;
        line {start};
        for (long i = 0; i < {read}; i += {stride}) {{ {step} }}
        line sum = {sum};
        memcpy(buffers[1] + {LINE} * t, &sum, sizeof sum);
    }}
}}
",
            bytes = 4 * LINE,
            stride = LINE * READ_ACCUMULATORS,
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use autotune_schedules::CpuTarget;

    #[test]
    fn ceilings_are_plausible_and_remembered() {
        let target = Target::Cpu(CpuTarget::detect(Some(1)).unwrap());
        let compiler = Compiler::find().unwrap();
        let ceilings = Ceilings::measure(&target, &compiler).unwrap();
        // Any 64-bit core of this century does more than a tenth of a multiply-add per nanosecond, and none a thousand.
        assert!((2e8..2e12).contains(&ceilings.core_flops_per_sec), "{ceilings:?}");
        assert!(ceilings.flops_per_sec >= ceilings.core_flops_per_sec);
        assert!((1e8..1e13).contains(&ceilings.bytes_per_sec), "{ceilings:?}");
        assert!(ceilings.read_bytes_per_sec.iter().all(|rate| (1e8..1e14).contains(rate)), "{ceilings:?}");
        assert_eq!(Ceilings::measure(&target, &compiler).unwrap(), ceilings);
    }

    #[test]
    fn the_roofline_is_the_larger_of_two_times() {
        let ceilings = Ceilings {
            core_flops_per_sec: 1e9,
            flops_per_sec: 2e9,
            bytes_per_sec: 1e9,
            read_bytes_per_sec: [4e9, 2e9, 1e9],
            cache_bytes: [1e3, 1e6],
        };
        assert_eq!(ceilings.min_secs(4e9, 1e9), 2.0);
        assert_eq!(ceilings.min_secs(0.0, 1e3), 1e3 / 4e9);
        assert_eq!(ceilings.min_secs(0.0, 1e6), 1e6 / 2e9);
        assert_eq!(ceilings.min_secs(4e9, 8e9), 8.0);
    }
}
