//! Measurement of a kernel's run time; docs/timing.md explains the method.

use autotune_measurement::{CandidateError, RunSecs};

use crate::harness::{self, Clock};
use crate::loaded::LoadedKernel;
use crate::options::TimingOptions;
use crate::reference_kernel::{FASTER, ReferenceKernel};

/// Most attempts to time a kernel on a disturbed machine. Below the slowdown in the next constant,
/// the machine counts as quiet.
const ATTEMPTS: usize = 3;
const QUIET: f64 = 1.03;

/// Idle seconds after which a device has lowered its clock rate, and seconds of warm-up that raise
/// it again.
const IDLE_SECS: f64 = 0.1;
const IDLE_WARMUP_SECS: f64 = 0.05;

/// Seconds per run from which on a kernel is not run once more for its last check.
pub(crate) const SLOW_SECS: f64 = 0.2;

/// Times of a kernel, and their ratio to those of the reference kernel. The ratio is `None` if
/// there is no reference kernel, or if timing was stopped early.
pub(crate) struct KernelTiming {
    pub(crate) run: RunSecs,
    pub(crate) ratio: Option<f64>,
}

/// Checks and times one kernel, interleaved with a reference kernel if there is one.
pub(crate) fn measure<L: LoadedKernel>(
    kernel: &mut L,
    options: &TimingOptions,
    incumbent_secs: Option<f64>,
    reference: Option<&mut ReferenceKernel<L>>,
) -> Result<KernelTiming, CandidateError> {
    let mut options = options.clone();
    if kernel.idle_secs() > IDLE_SECS {
        options.warmup_secs = options.warmup_secs.max(IDLE_WARMUP_SECS);
    }
    let first_secs = kernel.check()?;
    let mut reference_secs = 0.0;
    let KernelTiming { run, ratio } = match reference {
        None => KernelTiming { run: time(kernel, &options, first_secs, incumbent_secs)?, ratio: None },
        Some(reference) => {
            let before = reference.kernel_secs();
            let timing = time_corrected(kernel, &options, first_secs, incumbent_secs, reference)?;
            reference_secs = reference.kernel_secs() - before;
            timing
        }
    };

    kernel.recheck(run.stopped_early || first_secs >= SLOW_SECS)?;
    let (max_rel_error, graph_runs) = (kernel.max_rel_error(), kernel.graph_runs());
    let kernel_secs = kernel.kernel_secs() + reference_secs;
    Ok(KernelTiming { run: RunSecs { max_rel_error, kernel_secs, graph_runs, ..run }, ratio })
}

/// Times a kernel that was checked and took `first_secs` then.
fn time<L: LoadedKernel>(
    kernel: &mut L,
    options: &TimingOptions,
    first_secs: f64,
    incumbent_secs: Option<f64>,
) -> Result<RunSecs, CandidateError> {
    let mut clock = Clock::new(|runs| kernel.repeat(runs));
    let estimate_secs = harness::warm_up(options, first_secs, &mut |runs| clock.repeat(runs));
    let samples = harness::sample(options, estimate_secs, incumbent_secs, &mut |runs| clock.repeat(runs));
    clock.outcome()?;
    Ok(samples.run_secs(0.0))
}

/// Times a kernel between measurements of the machine's slowdown. On a disturbed machine a kernel
/// that may be faster than the incumbent is timed again. The correction by the slowdown is limited:
/// only a kernel that wins the second timing, interleaved with the reference kernel, may become as
/// fast as the incumbent. Any other stays slower than the incumbent by the square root of the
/// slowdown, because kernels differ in what slows them down, and most of those that seem fastest
/// only after correction are not.
fn time_corrected<L: LoadedKernel>(
    kernel: &mut L,
    options: &TimingOptions,
    first_secs: f64,
    incumbent_secs: Option<f64>,
    reference: &mut ReferenceKernel<L>,
) -> Result<KernelTiming, CandidateError> {
    let incumbent = incumbent_secs.unwrap_or(0.0);
    let mut before = reference.slowdown(options)?;
    let mut best: Option<(RunSecs, f64)> = None;
    for _ in 0..ATTEMPTS {
        let run = time(kernel, options, first_secs, incumbent_secs.map(|secs| secs * before))?;
        let after = reference.slowdown(options)?;
        // The low quantile of the repeats reflects the quieter of the two moments.
        let slowdown = before.min(after);
        before = after;
        if best.is_none_or(|(_, least)| slowdown <= least) {
            best = Some((run, slowdown));
        }
        if slowdown < QUIET || run.stopped_early || run.run_secs > slowdown * incumbent {
            break;
        }
    }

    let (run, mut slowdown) =
        best.ok_or_else(|| CandidateError::Crash { message: "the kernel was not timed".into() })?;
    let mut ratio = None;
    if !run.stopped_early {
        let duel = reference.compare(kernel, run.run_secs, slowdown, options)?;
        (ratio, slowdown) = (Some(duel.0), duel.1);
    }
    let wins = ratio.is_none_or(|ratio| ratio < FASTER);
    let least_secs = if wins { incumbent } else { incumbent * slowdown.sqrt() };
    Ok(KernelTiming { run: run.undisturbed(slowdown, least_secs), ratio })
}
