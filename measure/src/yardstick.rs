//! Kernels that tell how fast the machine is at the moment.
//!
//! Other processes, and other guests of a virtual machine's host, slow kernels down by some per cent for tens of milliseconds
//! to seconds, and to half their speed where two virtual cores come to share a real one. No floor of time averages that out, and a
//! loop of arithmetic does not feel all of it. So the fastest kernel of a workload so far is timed just before and just after
//! each other candidate: by how much it is slower than it ever was, the candidate is taken to be, too.

use std::collections::HashMap;

use autotune_schedules::Workload;

use crate::harness::runs_per_repeat;
use crate::measurement::{CandidateError, RunSecs};
use crate::options::TimingOptions;
use crate::team::Team;
use crate::trial::{self, Trial};

/// Repeats of a look, at most, and the seconds after which there are no more.
const LOOK_REPEATS: usize = 3;
const LOOK_SECS: f64 = 0.002;
/// A candidate becomes the yardstick if it takes less than this part of the present one's time.
const FASTER: f64 = 0.97;
/// Beyond this, a moment's hiccup is likelier than a slow machine.
const MAX_SLOWDOWN: f64 = 2.5;
/// Most bytes of yardsticks that are kept.
const KEPT_BYTES: usize = 512 << 20;

/// A kernel with operands, and the fastest it ever ran: as measured, so that errors do not add up from yardstick to yardstick.
pub(crate) struct Yardstick {
    trial: Trial,
    fastest_secs: f64,
}

impl Yardstick {
    /// Times longer that the kernel takes now than it ever did.
    pub(crate) fn slowdown(&mut self, options: &TimingOptions, team: &mut Team) -> f64 {
        let runs = runs_per_repeat(options, self.fastest_secs);
        let (mut elapsed, mut now) = (0.0, f64::INFINITY);
        for _ in 0..LOOK_REPEATS {
            let secs = self.trial.repeat(runs, team);
            now = (secs / runs as f64).min(now);
            elapsed += secs;
            if elapsed >= LOOK_SECS {
                break;
            }
        }
        self.fastest_secs = self.fastest_secs.min(now);
        (now / self.fastest_secs).min(MAX_SLOWDOWN)
    }

    /// Seconds of all its runs so far.
    pub(crate) fn kernel_secs(&self) -> f64 {
        self.trial.kernel_secs()
    }
}

/// The yardsticks of workloads, each for a number of threads.
#[derive(Default)]
pub(crate) struct Yardsticks(HashMap<(Workload, usize), Yardstick>);

impl Yardsticks {
    /// Checks and times a kernel of `workload` beside its yardstick. Hands back the trial that is not needed any more.
    pub(crate) fn measure(
        &mut self,
        workload: &Workload,
        mut trial: Trial,
        options: &TimingOptions,
        incumbent_secs: Option<f64>,
        team: &mut Team,
    ) -> (Result<RunSecs, CandidateError>, Option<Trial>) {
        let key = (*workload, team.threads());
        let mut yardstick = self.0.remove(&key);
        let outcome = trial::measure(&mut trial, options, incumbent_secs, team, yardstick.as_mut());
        let bar = yardstick.as_ref().map_or(f64::INFINITY, |yardstick| FASTER * yardstick.fastest_secs);
        let spare = match &outcome {
            Ok(run) if !run.stopped_early && run.run_secs < bar && !options.cold => {
                let new = Yardstick { trial, fastest_secs: run.run_secs * run.slowdown };
                yardstick.replace(new).map(|old| old.trial)
            }
            _ => Some(trial),
        };
        if self.0.values().map(|yardstick| yardstick.trial.bytes()).sum::<usize>() > KEPT_BYTES {
            self.0.clear();
        }
        self.0.extend(yardstick.map(|yardstick| (key, yardstick)));
        (outcome, spare)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packed::Kept;
    use crate::problem::Problem;
    use crate::{Builder, Candidate, MeasureOptions};
    use autotune_schedules::{ScheduleSpace, Target};

    /// Measures the default kernel of a workload; what it says, and whether memory came back.
    fn measure(yardsticks: &mut Yardsticks, incumbent_secs: Option<f64>) -> (RunSecs, bool) {
        let (workload, target) = ("matmul:m=5,n=7,k=9,bias".parse().unwrap(), Target::detect("cpu", Some(1)).unwrap());
        let config = ScheduleSpace::new(&workload, &target).default_config();
        let mut builder = Builder::new(MeasureOptions::default().backend, 20.0);
        let built = builder.build(&[Candidate { workload, target, config }]).unwrap().remove(0).outcome.unwrap();
        let mut team = Team::new(1);
        // SAFETY: the default config's kernel is made by the code generator.
        let trial = unsafe { Trial::new(&mut Problem::new(&workload), &built, false, &mut Kept::default(), &mut team) }
            .unwrap();
        let options = TimingOptions { stop_factor: 1e9, ..TimingOptions::default() };
        let (outcome, spare) = yardsticks.measure(&workload, trial, &options, incumbent_secs, &mut team);
        (outcome.unwrap(), spare.is_some())
    }

    fn only(yardsticks: &mut Yardsticks) -> &mut Yardstick {
        assert_eq!(yardsticks.0.len(), 1);
        yardsticks.0.values_mut().next().unwrap()
    }

    #[test]
    fn the_first_kernel_is_the_yardstick_of_those_after_it() {
        let mut yardsticks = Yardsticks::default();
        let (run, spare) = measure(&mut yardsticks, None);
        assert_eq!((run.slowdown, spare), (1.0, false));
        assert_eq!(only(&mut yardsticks).fastest_secs, run.run_secs);
        // As if the machine were many times slower than it was.
        only(&mut yardsticks).fastest_secs = 1e-3 * run.run_secs;
        let (run, spare) = measure(&mut yardsticks, None);
        assert_eq!((run.slowdown, spare), (MAX_SLOWDOWN, true));
        // A yardstick that never was so fast is replaced.
        only(&mut yardsticks).fastest_secs = 1.0;
        let (run, spare) = measure(&mut yardsticks, None);
        assert!(spare && run.slowdown < MAX_SLOWDOWN);
        assert!(only(&mut yardsticks).fastest_secs < 0.5);
    }

    #[test]
    fn a_correction_makes_nothing_faster_than_the_incumbent() {
        let mut yardsticks = Yardsticks::default();
        let (run, _) = measure(&mut yardsticks, None);
        only(&mut yardsticks).fastest_secs = 1e-3 * run.run_secs;
        let incumbent = run.run_secs / 1e3;
        let (slow, _) = measure(&mut yardsticks, Some(incumbent));
        assert_eq!(slow.slowdown, MAX_SLOWDOWN);
        let incumbent = run.run_secs;
        only(&mut yardsticks).fastest_secs = 1e-3 * run.run_secs;
        let (run, _) = measure(&mut yardsticks, Some(incumbent));
        assert!(run.run_secs > 0.999 * incumbent || run.slowdown == 1.0, "{run:?} {incumbent}");
    }
}
