//! A kernel that stays loaded, to be timed in turns with whatever else is timed on the machine.

use std::time::Instant;

use crate::builder::Built;
use crate::harness::runs_per_repeat;
use crate::measurement::CandidateError;
use crate::problem::Problem;
use crate::team::Team;
use crate::trial::Trial;

/// Repeats of a turn, at least.
const MIN_REPEATS: usize = 3;

/// A built kernel in this process with operands and a team, its output checked.
///
/// ```no_run
/// use autotune_measure::{Bench, Builder, Candidate, MeasureOptions, pin_to_core};
/// # fn compare(candidates: &[Candidate]) -> Result<(), Box<dyn std::error::Error>> {
/// let mut builder = Builder::new(MeasureOptions::default().backend, 20.0);
/// pin_to_core(0);
/// for build in builder.build(candidates)? {
///     // SAFETY: the candidates are known to run.
///     let mut bench = unsafe { Bench::new(&build.outcome?)? };
///     println!("{:?}", bench.turn(0.02));
///     bench.recheck()?;
/// }
/// # Ok(()) }
/// ```
pub struct Bench {
    trial: Trial,
    team: Team,
}

impl Bench {
    /// Loads a kernel, runs what runs ahead of time, runs it once on random operands and compares the output with the
    /// reference. The calling thread takes part in every run: pin it to the first core.
    ///
    /// # Safety
    ///
    /// The code runs in this process without protection: see [`crate::Kernel::new`].
    pub unsafe fn new(built: &Built) -> Result<Self, CandidateError> {
        let mut team = Team::new(built.target.threads());
        let mut problem = Problem::new(&built.workload);
        // SAFETY: the caller's promise.
        let mut trial = unsafe { Trial::new(&mut problem, built, false, None, &mut team) }?;
        trial.check(&mut team)?;
        Ok(Self { trial, team })
    }

    /// Runs for at least `floor_secs` with warm caches; seconds a run of each repeat, at least three. What the runs
    /// before did to the caches is undone by a first run that does not count. Between turns no thread is busy.
    pub fn turn(&mut self, floor_secs: f64) -> Vec<f64> {
        self.trial.repeat(1, &mut self.team);
        let runs = runs_per_repeat(self.trial.repeat(1, &mut self.team));
        let (start, mut repeats) = (Instant::now(), Vec::new());
        while repeats.len() < MIN_REPEATS || start.elapsed().as_secs_f64() < floor_secs {
            repeats.push(self.trial.repeat(runs, &mut self.team) / runs as f64);
        }
        repeats
    }

    /// Checks the output again, and that nothing but the output changed in all the runs.
    pub fn recheck(&mut self) -> Result<(), CandidateError> {
        self.trial.recheck(false, &mut self.team)
    }

    /// Largest deviation from the reference so far, over the reference's largest magnitude.
    pub fn max_rel_error(&self) -> f64 {
        self.trial.max_rel_error()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Builder, Candidate, MeasureOptions};
    use autotune_schedules::{ScheduleSpace, Target, Workload};

    #[test]
    fn a_bench_runs_turn_after_turn_and_stays_right() {
        let mut builder = Builder::new(MeasureOptions::default().backend, 20.0);
        let target = Target::detect("cpu", None).unwrap();
        for text in ["matmul:m=5,n=7,k=9,bias", "conv2d:c=3,h=9,w=9,o=5,k=3,p=1,add,act=relu"] {
            let workload: Workload = text.parse().unwrap();
            let config = ScheduleSpace::new(&workload, &target).default_config();
            let build = builder.build(&[Candidate { workload, target: target.clone(), config }]).unwrap().remove(0);
            // SAFETY: the default config's kernel is made by the code generator.
            let mut bench = unsafe { Bench::new(&build.outcome.unwrap()) }.unwrap();
            for floor_secs in [0.0, 0.001] {
                let repeats = bench.turn(floor_secs);
                assert!(repeats.len() >= MIN_REPEATS);
                assert!(repeats.iter().all(|secs| *secs > 0.0 && secs.is_finite()));
                bench.recheck().unwrap();
            }
            assert!(bench.max_rel_error() < 1e-5, "{text}: {}", bench.max_rel_error());
        }
    }
}
