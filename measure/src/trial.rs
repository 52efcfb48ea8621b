//! One loaded kernel with operands on a device: run, checked, timed.

use std::rc::Rc;

use autotune_ir::KernelPlan;
use autotune_ir::plan::Binding;
use autotune_ir::program::When;
use autotune_measurement::CandidateError;
use autotune_runtime::{Device, DeviceError, Kernel, bytes_of_mut};
use autotune_workloads::Workload;

use crate::built::Built;
use crate::expected::{self, Expected};
use crate::fixed::{Fixed, Placed};
use crate::guarded::{self, Guarded};
use crate::loaded::Loaded;
use crate::problem::Problem;
use crate::replays::{Replays, Timed};
use crate::resident::{Agreed, Resident};

mod packed;
mod slots;

use packed::packed;
use slots::{Slot, bound, expected_output, no_output, operands, output, private_words, slots};

/// Memory of the buffers that a run uses.
struct Buffers<D: Device> {
    /// Of what the kernel may write: outputs, scratch, private memory.
    own: Guarded<D>,
    /// Operands and what was packed, by their slots.
    fixed: Placed<D>,
    /// The output among the own.
    output: usize,
    call: D::Call,
}

/// What an output is compared with.
enum Right<D: Device> {
    /// The reference, on the device.
    Exact(Rc<Fixed<D>>),
    /// Samples, on the host; and, on a device beside it, an output that agreed with them.
    Sampled(Option<Rc<Agreed<D>>>),
}

/// A kernel, its buffers and what they must hold.
pub(crate) struct Trial<D: Device> {
    /// Before what it uses.
    buffers: Buffers<D>,
    replays: Replays<D>,
    trust: Trust<D>,
    kernel: Kernel<D>,
    output: Slot,
    right: Right<D>,
    /// What the output must be, and the error that it may have.
    expected: Expected,
    tolerance: f64,
    /// Constants and what was packed of them, to be driven out of the caches before every run.
    cold: Vec<D::Memory>,
    kernel_secs: f64,
    max_rel_error: f64,
}

/// Others get operands that a kernel may have written to only if it is known that it has not.
struct Trust<D: Device> {
    resident: Rc<Resident<D>>,
    workload: Workload,
    is_earned: bool,
}

impl<D: Device> Drop for Trust<D> {
    fn drop(&mut self) {
        if !self.is_earned {
            self.resident.forget(&self.workload);
        }
    }
}

/// Bytes that a trial's buffers need; `None` if there is no such number.
pub(crate) fn needed_bytes<D: Device>(device: &D, plan: &KernelPlan) -> Option<usize> {
    let slots = slots(plan).ok()?;
    let lens: Vec<usize> = slots.iter().map(|slot| slot.words).chain(private_words(device, plan)).collect();
    guarded::bytes(device, &lens)
}

impl<D: Device> Trial<D> {
    /// Loads a kernel, and packs its constants ahead of time unless a kernel that packs alike did
    /// so.
    ///
    /// # Safety
    ///
    /// The code of `built` runs in this process: see [`Kernel::load`].
    pub(crate) unsafe fn new(
        resident: &Rc<Resident<D>>,
        problem: &Problem,
        built: &Built,
    ) -> Result<Self, CandidateError> {
        let plan = &built.artifact.plan;
        let mut slots = slots(plan)?;
        let expected = expected_output(problem, &slots)?;
        // SAFETY: the caller's promise.
        let kernel = unsafe { Kernel::load(&resident.device, &built.artifact) }?;
        let operands = operands(resident, problem, &slots)?;
        let output = output(&slots)?;
        let (layout, dtype) = (slots[output].layout, slots[output].dtype);
        let right = match resident.output(problem, layout, dtype)? {
            Some(tensor) if tensor.is_summed() => Right::Exact(tensor),
            _ => Right::Sampled(resident.agreed(&built.workload, layout, dtype)),
        };

        // Kernels of integers alone round nothing.
        let spec = built.workload.spec();
        let is_whole = spec.tensors.iter().all(|tensor| tensor.dtype.is_integer());
        let tolerance = if is_whole && matches!(right, Right::Exact(_)) { 0.0 } else { built.tolerance };

        let trust = Trust { resident: Rc::clone(resident), workload: built.workload.clone(), is_earned: false };
        let mut fixed = packed(resident, &kernel, built, &slots, &operands)?;
        fixed.extend(operands);
        let cold = match built.workload.is_cold() {
            true => constants(&resident.device, plan, &fixed, built.artifact.target.last_level_cache_bytes())?,
            false => Vec::new(),
        };
        let buffers = Buffers::new(resident, &kernel, &slots, fixed)?;
        Ok(Self {
            buffers,
            replays: Replays::new(),
            trust,
            kernel,
            output: slots.swap_remove(output),
            right,
            expected,
            tolerance,
            cold,
            kernel_secs: 0.0,
            max_rel_error: 0.0,
        })
    }

    /// Gives its memory back, for the next trial.
    pub(crate) fn give_back(self) {
        let Self { buffers: Buffers { own, fixed, call, .. }, replays, trust, cold, .. } = self;
        drop((replays, call, cold));
        let mut cache = trust.resident.cache.borrow_mut();
        cache.give(own.into_memory());
        // What is kept stays.
        let free = fixed.into_iter().filter_map(|(_, fixed)| Rc::into_inner(fixed));
        free.for_each(|fixed| cache.give(fixed.into_memory()));
    }

    /// Compares the output with what is right.
    fn compare(&mut self) -> Result<(), CandidateError> {
        let error = self.error()?;
        self.max_rel_error = self.max_rel_error.max(error);
        if error <= self.tolerance {
            return Ok(());
        }
        Err(CandidateError::WrongResult { max_rel_error: error, tolerance: self.tolerance })
    }

    fn error(&mut self) -> Result<f64, CandidateError> {
        let Slot { dtype, len, words, layout, .. } = self.output;
        let Resident { device, checks, .. } = &*self.trust.resident;
        let Buffers { own, output, .. } = &self.buffers;
        // SAFETY: no kernel that writes it runs before this is done: they are started in order.
        let output = unsafe { own.part(device, *output) }?;
        let difference = |from: &D::Memory| -> Result<f64, CandidateError> {
            let difference = checks.difference(device, &output, from, dtype, len)?;
            Ok(self.expected.relative(f64::from(difference)))
        };
        match &self.right {
            Right::Exact(fixed) => {
                // SAFETY: it is read.
                let right = unsafe { fixed.tensor(device) }?;
                return difference(&right);
            }
            // Kernels of a workload compute the same, or nearly so.
            Right::Sampled(Some(agreed)) => {
                let error = agreed.error + difference(&agreed.output)?;
                if error <= self.tolerance {
                    return Ok(error);
                }
            }
            Right::Sampled(None) => {}
        }

        // Samples are compared where the output is, if that is the host.
        if let Some(bytes) = device.host_bytes(&output).filter(|_| dtype.is_word()) {
            // SAFETY: any four bytes are a number.
            let (_, elements, _) = unsafe { bytes.align_to::<f32>() };
            return Ok(self.expected.error(elements, &|tasks, work| device.divide(tasks, work)));
        }
        let mut content = vec![0u32; words];
        device.read(&output, 0, bytes_of_mut(&mut content))?;
        let error = self.expected.error(&dtype.values(&content, len), &expected::divide);

        // Without memory for it, or where it is too large to be gone through, all outputs go the
        // long way.
        let is_summed = || checks.checksum(device, &output, words).is_ok_and(|sum| sum.is_some());
        if error <= self.tolerance
            && is_summed()
            && let Ok(mut agreed) = device.allocate(4 * words)
        {
            device.copy(&output, &mut agreed, 4 * words)?;
            let agreed = Rc::new(Agreed { output: agreed, error });
            self.trust.resident.agree(&self.trust.workload, layout, dtype, &agreed);
            self.right = Right::Sampled(Some(agreed));
        }
        Ok(error)
    }

    /// Checks that no operand, nothing that was packed and nothing beside the buffers changed.
    fn check_memory(&mut self) -> Result<(), CandidateError> {
        let resident = Rc::clone(&self.trust.resident);
        let stray = |message: String| Err(CandidateError::StrayWrite { message });
        let Buffers { own, fixed, .. } = &self.buffers;
        if !own.is_intact(&resident.device)? {
            return stray("memory beside its buffers changed".into());
        }
        for (position, fixed) in fixed {
            if !resident.has_changed(fixed)? {
                continue;
            }
            if fixed.is_guard_broken(&resident.device)? {
                return stray("memory beside its buffers changed".into());
            }
            return stray(format!("the {} operand changed", self.kernel.plan().buffers[*position].name));
        }
        if let Right::Exact(tensor) = &self.right
            && resident.has_changed(tensor)?
        {
            return stray("memory that is not its own changed".into());
        }
        self.trust.is_earned = true;
        Ok(())
    }
}

impl<D: Device> Loaded for Trial<D> {
    fn check(&mut self) -> Result<f64, CandidateError> {
        let resident = &self.trust.resident;
        let Buffers { own, output, call, .. } = &mut self.buffers;
        own.clear(&resident.device, *output)?;
        let secs = resident.device.time(&mut || resident.device.start(call))?;
        self.kernel_secs += secs;
        self.compare()?;
        // A device beside the host may load the kernel when it runs first: that run tells nothing
        // of the next.
        if self.trust.resident.is_host() { Ok(secs) } else { self.repeat(1) }
    }

    fn repeat(&mut self, runs: usize) -> Result<f64, CandidateError> {
        let Self { buffers, replays, trust, cold, .. } = self;
        let device = &trust.resident.device;
        let mut run = || device.start(&buffers.call);
        let Timed { runs: timed_runs, secs } = match cold.is_empty() {
            true => replays.time(device, runs, &mut run)?,
            false => Timed { runs, secs: cold_secs(device, runs, cold, &mut run)? },
        };
        trust.resident.is_busy();
        self.kernel_secs += secs;
        Ok(secs * runs as f64 / timed_runs.max(1) as f64)
    }

    fn recheck(&mut self, briefly: bool) -> Result<(), CandidateError> {
        self.compare()?;
        if !briefly {
            self.check()?;
        }
        self.check_memory()
    }

    fn kernel_secs(&self) -> f64 {
        self.kernel_secs
    }

    fn max_rel_error(&self) -> f64 {
        self.max_rel_error
    }

    fn graph_runs(&self) -> usize {
        self.replays.graph_runs()
    }

    fn bytes(&self) -> usize {
        let device = &self.trust.resident.device;
        let fixed = self.buffers.fixed.iter().map(|(_, fixed)| fixed.bytes(device));
        fixed.sum::<usize>() + 4 * self.buffers.own.memory().1
    }

    fn idle_secs(&self) -> f64 {
        let resident = &self.trust.resident;
        if resident.is_host() { 0.0 } else { resident.idle_secs() }
    }
}

/// Constants of a plan and what was packed of them; none if every run drives them out by itself,
/// since they are larger than the caches by far.
fn constants<D: Device>(
    device: &D,
    plan: &KernelPlan,
    fixed: &Placed<D>,
    cache_bytes: usize,
) -> Result<Vec<D::Memory>, CandidateError> {
    let is_data = |position: usize| plan.buffers[position].binding == Binding::Data;
    let constants = || fixed.iter().filter(|(position, _)| !is_data(*position)).map(|(_, fixed)| fixed);
    if constants().map(|fixed| 4 * fixed.words()).sum::<usize>() > 2 * cache_bytes {
        return Ok(Vec::new());
    }
    // SAFETY: driving it out of the caches changes nothing.
    constants().map(|fixed| unsafe { fixed.tensor(device) }).collect()
}

/// Seconds of some runs, before each of which some memory is driven out of the caches.
fn cold_secs<D: Device>(
    device: &D,
    runs: usize,
    cold: &[D::Memory],
    run: &mut dyn FnMut() -> Result<(), DeviceError>,
) -> Result<f64, DeviceError> {
    let mut secs = 0.0;
    for _ in 0..runs {
        for memory in cold {
            device.evict(memory)?;
        }
        secs += device.time(run)?;
    }
    Ok(secs)
}

impl<D: Device> Buffers<D> {
    /// Memory for what the kernel may write, beside what is fixed.
    fn new(
        resident: &Resident<D>,
        kernel: &Kernel<D>,
        slots: &[Slot],
        fixed: Placed<D>,
    ) -> Result<Self, CandidateError> {
        let (own, memory) = bound(resident, kernel.plan(), slots, &fixed)?;
        let is_own = |slot: &&Slot| fixed.iter().all(|(position, _)| *position != slot.position);
        let output = slots.iter().filter(is_own).position(|slot| slot.binding == Binding::Output);
        // SAFETY: the kernel goes last. What it writes is the copy's own; what it reads nobody
        // writes but the host, when it does not run.
        let call = unsafe { kernel.bind_memory(&resident.device, When::EveryRun, memory) }?;
        Ok(Self { own, fixed, output: output.ok_or_else(no_output)?, call })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Builder;
    use crate::allocation_cache::Packing;
    use crate::checks::HostChecks;
    use autotune_ir::Target;
    use autotune_measurement::Backend;
    use autotune_runtime::{Cpu, HostMemory};
    use autotune_schedules::{Candidate, ScheduleSpace};
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    fn resident() -> Rc<Resident<Cpu>> {
        Rc::new(Resident::new(Cpu::pinned(2), Box::new(HostChecks), usize::MAX))
    }

    #[test]
    fn kernels_that_pack_alike_share_what_one_of_them_packed() {
        let target = Target::detect("cpu", Some(2)).unwrap();
        for (seed, text) in
            ["conv2d:c=256,h=5,w=4,o=256,k=3,p=1,bias", "matmul:m=5,n=1450,k=1500,bias"].iter().enumerate()
        {
            let workload = text.parse().unwrap();
            let space = ScheduleSpace::new(&workload, &target);
            let mut rng = ChaCha8Rng::seed_from_u64(seed as u64);
            let candidates: Vec<Candidate> = (0..16).map(|_| space.sample(&mut rng)).collect();
            let (problem, sharing) = (Problem::new(&workload).unwrap(), resident());
            let (mut packers, mut distinct) = (0, 0);
            for build in Builder::new(Backend::Assembler, 20.0).build(&candidates).unwrap() {
                let built = build.outcome.unwrap();
                // SAFETY: the code generator's kernels are fit to run.
                let load = |resident: &Rc<Resident<Cpu>>| unsafe { Trial::new(resident, &problem, &built) };
                let mut trial = load(&sharing).unwrap();
                trial.check().unwrap();
                trial.recheck(false).unwrap();

                let alone_on = resident();
                let alone = load(&alone_on).unwrap();
                let (fixed, own) = (&trial.buffers.fixed, &alone.buffers.fixed);
                assert_eq!(fixed.len(), own.len());
                for ((position, shared), (own_position, own)) in fixed.iter().zip(own) {
                    // SAFETY: nobody writes.
                    let memory = |fixed: &Fixed<Cpu>| unsafe { fixed.tensor(&alone_on.device) }.unwrap();
                    let (shared, own): (HostMemory, HostMemory) = (memory(shared), memory(own));
                    let is_same = position == own_position && shared.elements::<u32>() == own.elements::<u32>();
                    assert!(is_same, "{text}: buffer {position}");
                }
                packers += usize::from(Packing::of(&built.artifact).is_some());
                distinct = sharing.cache.borrow().len();
                trial.give_back();
            }
            assert!(distinct < packers, "{text}: {distinct} of {packers}");
        }
    }
}
