//! Kernels that tell how fast the machine is at the moment.
//!
//! Other processes, and other guests of a virtual machine's host, slow kernels down by some per cent for tens of milliseconds
//! to seconds, and to half their speed where two virtual cores come to share a real one. No floor of time averages that out, and a
//! loop of arithmetic does not feel all of it. So the best kernel of a workload so far is timed just before and just after each
//! other candidate: by how much it is slower than on a quiet machine, the candidate is taken to be, too.
//!
//! Luck must not decide which kernel is the best: a moment that was faster than nine in ten of those of late is no quiet machine, and
//! kernels differ in what slows them down. So a candidate that seems to beat the reference kernel has to do so in a duel, in turns with it, to take its place.

use std::collections::{HashMap, VecDeque};

use autotune_schedules::Workload;

use crate::harness::{quantile, runs_per_repeat};
use crate::loaded::Loaded;
use crate::measurement::{CandidateError, RunSecs};
use crate::options::TimingOptions;
use crate::timing::{self, Timing};

/// Repeats of a look, at most, and the seconds after which there are no more.
const LOOK_REPEATS: usize = 3;
const LOOK_SECS: f64 = 0.002;
/// Looks that are remembered, the latest: a hundred trials and more, so that what is quiet does not change within seconds.
const LOOKS: usize = 256;
/// One look in so many was at a quiet machine. The less, the longer a first disturbed look is believed; the more, the longer a lucky one.
const QUIET_ONE_IN: usize = 10;
/// A candidate becomes the reference kernel if it takes less than this part of the present one's time.
pub(crate) const FASTER: f64 = 0.97;
/// Turns of a duel.
const DUEL_TURNS: usize = 7;
/// Beyond this, a moment's hiccup is likelier than a slow machine.
const MAX_SLOWDOWN: f64 = 2.5;
/// A kernel that takes as long is disturbed by the mean of what happens meanwhile, and to time another beside it, and in duels, would
/// take many times as long as timing it: such kernels are timed by themselves.
const LONG_SECS: f64 = 0.05;
/// Most bytes of reference kernels that are kept.
const KEPT_BYTES: usize = 512 << 20;

/// A kernel with operands, and its times of late, in seconds a run.
pub(crate) struct ReferenceKernel<L> {
    kernel: L,
    looks: VecDeque<f64>,
}

impl<L: Loaded> ReferenceKernel<L> {
    /// Seconds that the kernel takes on a quiet machine: a low quantile of its looks.
    fn quiet_secs(&self) -> f64 {
        let mut looks = Vec::from_iter(self.looks.iter().copied());
        looks.sort_by(f64::total_cmp);
        looks.get(looks.len() / QUIET_ONE_IN).copied().unwrap_or(f64::NAN)
    }

    /// Seconds of all its runs so far.
    pub(crate) fn kernel_secs(&self) -> f64 {
        self.kernel.kernel_secs()
    }

    /// Times longer that the kernel takes now than on a quiet machine.
    pub(crate) fn slowdown(&mut self, options: &TimingOptions) -> Result<f64, CandidateError> {
        let quiet_secs = self.quiet_secs();
        let now_secs = look(&mut self.kernel, quiet_secs, options)?;
        self.looks.truncate(LOOKS - 1);
        self.looks.push_front(now_secs);
        Ok(credible(now_secs / quiet_secs))
    }

    /// How many times longer than this kernel `rival` takes, which took `run_secs` on a machine so many times slower than a
    /// quiet one, and that slowdown. If it seems to win, the two are timed in turns, and the median over the turns tells.
    pub(crate) fn compare(
        &mut self,
        rival: &mut L,
        run_secs: f64,
        slowdown: f64,
        options: &TimingOptions,
    ) -> Result<(f64, f64), CandidateError> {
        let quiet_secs = self.quiet_secs();
        let ratio = run_secs / slowdown / quiet_secs;
        if ratio >= FASTER {
            return Ok((ratio, slowdown));
        }
        let mut turn = || Ok(look(rival, run_secs, options)? / look(&mut self.kernel, quiet_secs, options)?);
        let mut ratios = (0..DUEL_TURNS).map(|_| turn()).collect::<Result<Vec<f64>, CandidateError>>()?;
        ratios.sort_by(f64::total_cmp);
        let ratio = quantile(&ratios, 0.5);
        Ok((ratio, credible(run_secs / (ratio * quiet_secs))))
    }
}

/// A slowdown, as far as it is to be believed.
fn credible(slowdown: f64) -> f64 {
    slowdown.clamp(1.0, MAX_SLOWDOWN)
}

/// The fastest of a few repeats of a kernel that takes about `run_secs`, in seconds a run.
fn look(kernel: &mut impl Loaded, run_secs: f64, options: &TimingOptions) -> Result<f64, CandidateError> {
    let runs = runs_per_repeat(options, run_secs);
    let (mut elapsed, mut fastest) = (0.0, f64::INFINITY);
    for _ in 0..LOOK_REPEATS {
        let secs = kernel.repeat(runs)?;
        fastest = (secs / runs as f64).min(fastest);
        elapsed += secs;
        if elapsed >= LOOK_SECS {
            break;
        }
    }
    Ok(fastest)
}

/// The reference kernels of workloads.
pub(crate) struct ReferenceKernels<L>(HashMap<Workload, ReferenceKernel<L>>);

impl<L> Default for ReferenceKernels<L> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<L: Loaded> ReferenceKernels<L> {
    /// Checks and times a kernel of `workload` beside its reference kernel. Hands back the kernel that is not needed any more.
    pub(crate) fn measure(
        &mut self,
        workload: &Workload,
        mut kernel: L,
        options: &TimingOptions,
        incumbent_secs: Option<f64>,
    ) -> (Result<RunSecs, CandidateError>, Option<L>) {
        let mut reference = self.0.remove(workload);
        let timing = timing::measure(&mut kernel, options, incumbent_secs, reference.as_mut());
        let spare = match &timing {
            Ok(timing) if is_better(timing) && !options.cold => {
                let looks = match (&reference, timing.ratio) {
                    (Some(old), Some(ratio)) => old.looks.iter().map(|secs| secs * ratio).collect(),
                    _ => VecDeque::from([timing.run.run_secs]),
                };
                reference.replace(ReferenceKernel { kernel, looks }).map(|old| old.kernel)
            }
            _ => Some(kernel),
        };

        if self.0.values().map(|reference| reference.kernel.bytes()).sum::<usize>() > KEPT_BYTES {
            self.0.clear();
        }
        self.0.extend(reference.map(|reference| (*workload, reference)));
        (timing.map(|timing| timing.run), spare)
    }
}

/// True for a kernel that is to be the reference kernel: it beat the present one, if there is one.
fn is_better(Timing { run, ratio }: &Timing) -> bool {
    ratio.is_none_or(|ratio| ratio < FASTER) && run.run_secs < LONG_SECS && !run.stopped_early
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::HostChecks;
    use crate::problem::Problem;
    use crate::resident::Resident;
    use crate::trial::Trial;
    use crate::{Builder, Candidate, MeasureOptions};
    use autotune_ir::Target;
    use autotune_runtime::Cpu;
    use autotune_schedules::ScheduleSpace;
    use std::rc::Rc;

    type Kernels = ReferenceKernels<Trial<Cpu>>;

    /// The default kernel of a workload, with operands.
    fn kernel(workload: &str) -> (Workload, Trial<Cpu>) {
        let (workload, target) = (workload.parse().unwrap(), Target::detect("cpu", Some(1)).unwrap());
        let config = ScheduleSpace::new(&workload, &target).default_config();
        let mut builder = Builder::new(MeasureOptions::default().backend, 20.0);
        let built = builder.build(&[Candidate { workload, target, config }]).unwrap().remove(0).outcome.unwrap();
        let problem = Problem::new(&workload).unwrap();
        let resident = Rc::new(Resident::new(Cpu::pinned(1), Box::new(HostChecks), usize::MAX));
        // SAFETY: the default config's kernel is made by the code generator.
        let trial = unsafe { Trial::new(&resident, &problem, &built, false) };
        (workload, trial.unwrap())
    }

    /// Measures a kernel beside the reference kernel of `of`; what it says, and whether a kernel came back.
    fn measure(
        reference_kernels: &mut Kernels,
        of: &Workload,
        trial: Trial<Cpu>,
        incumbent_secs: Option<f64>,
    ) -> (RunSecs, bool) {
        let options = TimingOptions { stop_factor: 1e9, ..TimingOptions::default() };
        let (outcome, spare) = reference_kernels.measure(of, trial, &options, incumbent_secs);
        (outcome.unwrap(), spare.is_some())
    }

    fn measure_small(reference_kernels: &mut Kernels, incumbent_secs: Option<f64>) -> (RunSecs, bool) {
        let (workload, trial) = kernel("matmul:m=5,n=7,k=9,bias");
        measure(reference_kernels, &workload, trial, incumbent_secs)
    }

    fn only(reference_kernels: &mut Kernels) -> &mut ReferenceKernel<Trial<Cpu>> {
        assert_eq!(reference_kernels.0.len(), 1);
        reference_kernels.0.values_mut().next().unwrap()
    }

    #[test]
    fn the_first_kernel_is_the_reference_of_those_after_it() {
        let mut reference_kernels = Kernels::default();
        let (run, spare) = measure_small(&mut reference_kernels, None);
        assert_eq!((run.slowdown, spare), (1.0, false));
        assert_eq!(only(&mut reference_kernels).looks, [run.run_secs]);
        // As if the machine were many times slower than it was, and then many times faster.
        only(&mut reference_kernels).looks = [1e-3 * run.run_secs; 9].into();
        let (run, spare) = measure_small(&mut reference_kernels, None);
        assert_eq!((run.slowdown, spare), (MAX_SLOWDOWN, true));
        only(&mut reference_kernels).looks = [1e3 * run.run_secs; LOOKS].into();
        let (run, spare) = measure_small(&mut reference_kernels, None);
        assert_eq!((run.slowdown, spare), (1.0, true));
        // What was seen just before and just after is remembered, so much and no more, and makes no quiet machine.
        let reference_kernel = only(&mut reference_kernels);
        let looks = &reference_kernel.looks;
        assert!(looks.len() == LOOKS && looks[1] < looks[2] && looks[2] == reference_kernel.quiet_secs());
        // But more than one look in ten do.
        reference_kernel.looks.extend([run.run_secs; LOOKS / 8]);
        assert!(reference_kernel.quiet_secs() <= run.run_secs);
    }

    #[test]
    fn who_wins_a_duel_is_the_reference_kernel_from_then_on() {
        let mut reference_kernels = Kernels::default();
        let (workload, slow) = kernel("matmul:m=128,n=64,k=64");
        let (first, spare) = measure(&mut reference_kernels, &workload, slow, None);
        assert!(!spare);
        // Not what the workload asks for, but much faster.
        let (_, fast) = kernel("matmul:m=5,n=7,k=9");
        let (run, spare) = measure(&mut reference_kernels, &workload, fast, Some(first.run_secs));
        assert!(spare && run.run_secs < 0.5 * first.run_secs, "{run:?} {first:?}");
        assert!(only(&mut reference_kernels).quiet_secs() < 0.5 * first.run_secs);
        let (_, slow) = kernel("matmul:m=128,n=64,k=64");
        let (_, spare) = measure(&mut reference_kernels, &workload, slow, Some(run.run_secs));
        assert!(spare && only(&mut reference_kernels).quiet_secs() < 0.5 * first.run_secs);
    }

    #[test]
    fn a_correction_makes_nothing_faster_than_the_incumbent() {
        let mut reference_kernels = Kernels::default();
        let (run, _) = measure_small(&mut reference_kernels, None);
        only(&mut reference_kernels).looks = [1e-3 * run.run_secs; LOOKS].into();
        let incumbent = run.run_secs / 1e3;
        let (slow, _) = measure_small(&mut reference_kernels, Some(incumbent));
        assert_eq!(slow.slowdown, MAX_SLOWDOWN);
        let incumbent = run.run_secs;
        only(&mut reference_kernels).looks = [1e-3 * run.run_secs; LOOKS].into();
        let (run, _) = measure_small(&mut reference_kernels, Some(incumbent));
        assert!(run.run_secs > 0.999 * incumbent || run.slowdown == 1.0, "{run:?} {incumbent}");
    }
}
