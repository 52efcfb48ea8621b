//! Reference kernel of each workload, and its replacement by better kernels.

use std::collections::HashMap;

use autotune_measurement::{CandidateError, RunSecs};
use autotune_workloads::Workload;

use crate::loaded::LoadedKernel;
use crate::options::TimingOptions;
use crate::reference_kernel::{FASTER, ReferenceKernel};
use crate::timing::{self, KernelTiming};

/// Seconds per run from which on kernels are timed without a reference kernel. Short disturbances
/// average out over such a run, and timing a reference kernel and duels would multiply the
/// measuring time.
const LONG_SECS: f64 = 0.05;
/// Limit in bytes for the buffers of all reference kernels.
const KEPT_BYTES: usize = 512 << 20;

/// Reference kernels by workload.
pub(crate) struct ReferenceKernels<L>(HashMap<Workload, ReferenceKernel<L>>);

impl<L> Default for ReferenceKernels<L> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<L: LoadedKernel> ReferenceKernels<L> {
    /// Checks and times a kernel of `workload` with its reference kernel, and replaces that if the
    /// kernel is better. Returns the kernel that is no longer needed.
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
            Ok(timing) if is_better(timing) => match (&mut reference, timing.ratio) {
                (Some(reference), Some(ratio)) => Some(reference.replace(kernel, ratio)),
                _ => reference
                    .replace(ReferenceKernel::new(kernel, timing.run.run_secs))
                    .map(ReferenceKernel::into_kernel),
            },
            _ => Some(kernel),
        };

        // Over the limit all reference kernels are dropped; each workload's next kernel replaces
        // them.
        if self.0.values().map(|reference| reference.kernel().bytes()).sum::<usize>() > KEPT_BYTES {
            self.0.clear();
        }
        self.0.extend(reference.map(|reference| (workload.clone(), reference)));
        (timing.map(|timing| timing.run), spare)
    }
}

/// Returns true for a kernel that should become the reference kernel: short enough, timed
/// completely, and faster than the present one, if there is one.
fn is_better(KernelTiming { run, ratio }: &KernelTiming) -> bool {
    ratio.is_none_or(|ratio| ratio < FASTER) && run.run_secs < LONG_SECS && !run.stopped_early
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::HostChecks;
    use crate::problem::TestProblem;
    use crate::reference_kernel::{LOOKS, MAX_SLOWDOWN};
    use crate::resident::Resident;
    use crate::trial::Trial;
    use crate::{KernelBuilder, MeasureOptions};
    use autotune_ir::Target;
    use autotune_runtime::Cpu;
    use autotune_schedules::{Candidate, ScheduleSpace};
    use std::rc::Rc;

    type Kernels = ReferenceKernels<Trial<Cpu>>;

    /// Returns the default kernel of a workload, with operands.
    fn kernel(workload: &str) -> (Workload, Trial<Cpu>) {
        let (workload, target) = (workload.parse().unwrap(), Target::detect("cpu", Some(1)).unwrap());
        let config = ScheduleSpace::new(&workload, &target).default_config();
        let mut builder = KernelBuilder::new(MeasureOptions::default().backend, 20.0);
        let built = builder.build(&[Candidate::new(&workload, &target, config)]).unwrap().remove(0).outcome.unwrap();
        let problem = TestProblem::new(&workload).unwrap();
        let resident = Rc::new(Resident::new(Cpu::pinned(1), Box::new(HostChecks), usize::MAX));
        // SAFETY: the kernel was made by the code generator from the default config.
        let trial = unsafe { Trial::new(&resident, &problem, &built) };
        (workload, trial.unwrap())
    }

    /// Measures a kernel with the reference kernel of `of`. Returns the times, and whether a kernel
    /// was returned.
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
        assert_eq!(only(&mut reference_kernels).times, [run.run_secs]);
        // Simulates a machine that became many times slower, and then many times faster.
        only(&mut reference_kernels).times = [1e-3 * run.run_secs; 9].into();
        let (run, spare) = measure_small(&mut reference_kernels, None);
        assert_eq!((run.slowdown, spare), (MAX_SLOWDOWN, true));
        only(&mut reference_kernels).times = [1e3 * run.run_secs; LOOKS].into();
        let (run, spare) = measure_small(&mut reference_kernels, None);
        assert_eq!((run.slowdown, spare), (1.0, true));
        // The looks just before and just after are recorded, up to the limit, but are too few to
        // change the estimate of a quiet machine.
        let reference_kernel = only(&mut reference_kernels);
        let looks = &reference_kernel.times;
        assert!(looks.len() == LOOKS && looks[1] < looks[2] && looks[2] == reference_kernel.quiet_secs());
        // More than one fast look in ten changes it.
        reference_kernel.times.extend([run.run_secs; LOOKS / 8]);
        assert!(reference_kernel.quiet_secs() <= run.run_secs);
    }

    #[test]
    fn winner_of_a_duel_becomes_the_reference_kernel() {
        let mut reference_kernels = Kernels::default();
        let (workload, slow) = kernel("matmul:m=128,n=64,k=64");
        let (first, spare) = measure(&mut reference_kernels, &workload, slow, None);
        assert!(!spare);
        // This kernel computes another workload, but much faster.
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
        only(&mut reference_kernels).times = [1e-3 * run.run_secs; LOOKS].into();
        let incumbent = run.run_secs / 1e3;
        let (slow, _) = measure_small(&mut reference_kernels, Some(incumbent));
        assert_eq!(slow.slowdown, MAX_SLOWDOWN);
        let incumbent = run.run_secs;
        only(&mut reference_kernels).times = [1e-3 * run.run_secs; LOOKS].into();
        let (run, _) = measure_small(&mut reference_kernels, Some(incumbent));
        assert!(run.run_secs > 0.999 * incumbent || run.slowdown == 1.0, "{run:?} {incumbent}");
    }
}
