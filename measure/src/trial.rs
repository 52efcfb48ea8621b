//! Trial of one loaded kernel with operands on a device: runs, checks and times it.

use std::rc::Rc;

use autotune_ir::KernelPlan;
use autotune_ir::plan::Binding;
use autotune_ir::program::When;
use autotune_measurement::CandidateError;
use autotune_runtime::{Device, DeviceError, Kernel, bytes_of_mut};
use autotune_workloads::Workload;

use crate::built::Built;
use crate::expected::{self, Expected};
use crate::fixed::{Fixed, FixedTensors};
use crate::guarded::{self, Guarded};
use crate::loaded::LoadedKernel;
use crate::problem::TestProblem;
use crate::replays::{Replays, Timed};
use crate::resident::{Agreed, Resident};

mod packed;
mod slots;

use packed::packed;
use slots::{BufferSlot, bound, expected_output, no_output, operands, output, private_words, slots};

/// Memory of the buffers that a run uses.
struct Buffers<D: Device> {
    /// Memory that the kernel may write: output, scratch and private memory.
    own: Guarded<D>,
    /// Operands and packed constants, by position in the plan.
    fixed: FixedTensors<D>,
    /// Index of the output among the parts of `own`.
    output: usize,
    call: D::Call,
}

/// Expected output of a trial.
enum Right<D: Device> {
    /// The complete reference, on the device.
    Exact(Rc<Fixed<D>>),
    /// Samples, on the host. On devices other than the host, also an earlier output that agreed
    /// with the samples, once there is one.
    Sampled(Option<Rc<Agreed<D>>>),
}

/// Kernel, its buffers and their expected contents.
pub(crate) struct Trial<D: Device> {
    /// Declared first, so that the bound call is dropped before the kernel that it uses.
    buffers: Buffers<D>,
    replays: Replays<D>,
    trust: Trust<D>,
    kernel: Kernel<D>,
    output: BufferSlot,
    right: Right<D>,
    /// Expected output and the largest relative error allowed.
    expected: Expected,
    tolerance: f64,
    /// Constants and packed constants that are evicted from the caches before every run.
    cold: Vec<D::Memory>,
    kernel_secs: f64,
    max_rel_error: f64,
}

/// Guard that drops the workload's cached operands unless it was verified that the kernel did not
/// change them.
struct Trust<D: Device> {
    resident: Rc<Resident<D>>,
    workload: Workload,
    is_verified: bool,
}

impl<D: Device> Drop for Trust<D> {
    fn drop(&mut self) {
        if !self.is_verified {
            self.resident.forget(&self.workload);
        }
    }
}

/// Returns the bytes that a trial's buffers need; `None` on overflow or for an invalid plan.
pub(crate) fn needed_bytes<D: Device>(device: &D, plan: &KernelPlan) -> Option<usize> {
    let slots = slots(plan).ok()?;
    let lens: Vec<usize> = slots.iter().map(|slot| slot.words).chain(private_words(device, plan)).collect();
    guarded::bytes(device, &lens)
}

impl<D: Device> Trial<D> {
    /// Loads a kernel, and packs its constants unless a kernel with the same packing code has done
    /// so.
    ///
    /// # Safety
    ///
    /// The code of `built` runs in this process: see [`Kernel::load`].
    pub(crate) unsafe fn new(
        resident: &Rc<Resident<D>>,
        problem: &TestProblem,
        built: &Built,
    ) -> Result<Self, CandidateError> {
        let plan = &built.artifact.plan;
        let mut slots = slots(plan)?;
        let expected = expected_output(problem, &slots)?;
        // SAFETY: the caller guarantees that the code is fit to run.
        let kernel = unsafe { Kernel::load(&resident.device, &built.artifact) }?;
        let operands = operands(resident, problem, &slots)?;
        let output = output(&slots)?;
        let (layout, dtype) = (slots[output].layout, slots[output].dtype);
        let right = match resident.output(problem, layout, dtype)? {
            Some(tensor) if tensor.has_checksum() => Right::Exact(tensor),
            _ => Right::Sampled(resident.agreed(&built.workload, layout, dtype)),
        };

        // Integer arithmetic does not round, so the output must be exact.
        let spec = built.workload.spec();
        let is_whole = spec.tensors.iter().all(|tensor| tensor.dtype.is_integer());
        let tolerance = if is_whole && matches!(right, Right::Exact(_)) { 0.0 } else { built.tolerance };

        let trust = Trust { resident: Rc::clone(resident), workload: built.workload.clone(), is_verified: false };
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

    /// Returns the trial's memory to the cache, for the next trial.
    pub(crate) fn give_back(self) {
        let Self { buffers: Buffers { own, fixed, call, .. }, replays, trust, cold, .. } = self;
        drop((replays, call, cold));
        let mut cache = trust.resident.cache.borrow_mut();
        cache.give(own.into_memory());
        // Tensors that are still cached or shared have other owners and stay.
        let free = fixed.into_iter().filter_map(|(_, fixed)| Rc::into_inner(fixed));
        free.for_each(|fixed| cache.give(fixed.into_memory()));
    }

    /// Compares the output with the expected one, and fails if the error exceeds the tolerance.
    fn compare(&mut self) -> Result<(), CandidateError> {
        let error = self.error()?;
        self.max_rel_error = self.max_rel_error.max(error);
        if error <= self.tolerance {
            return Ok(());
        }
        Err(CandidateError::WrongResult { max_rel_error: error, tolerance: self.tolerance })
    }

    fn error(&mut self) -> Result<f64, CandidateError> {
        let BufferSlot { dtype, len, words, layout, .. } = self.output;
        let Resident { device, checks, .. } = &*self.trust.resident;
        let Buffers { own, output, .. } = &self.buffers;
        // SAFETY: no kernel writes to the output meanwhile: the device executes in order.
        let output = unsafe { own.part(device, *output) }?;
        let difference = |from: &D::Memory| -> Result<f64, CandidateError> {
            let difference = checks.difference(device, &output, from, dtype, len)?;
            Ok(self.expected.relative(f64::from(difference)))
        };
        match &self.right {
            Right::Exact(fixed) => {
                // SAFETY: the tensor is only read.
                let right = unsafe { fixed.tensor(device) }?;
                return difference(&right);
            }
            // All correct kernels of a workload compute nearly the same output, so by the triangle
            // inequality the sum of both errors bounds this one. If it is too large, the samples
            // decide below.
            Right::Sampled(Some(agreed)) => {
                let error = agreed.error + difference(&agreed.output)?;
                if error <= self.tolerance {
                    return Ok(error);
                }
            }
            Right::Sampled(None) => {}
        }

        // Output in host memory is compared with the samples in place.
        if let Some(bytes) = device.host_bytes(&output).filter(|_| dtype.is_word()) {
            // SAFETY: any four bytes are a valid `f32`.
            let (_, elements, _) = unsafe { bytes.align_to::<f32>() };
            return Ok(self.expected.error(elements, &|tasks, work| device.divide(tasks, work)));
        }
        let mut content = vec![0u32; words];
        device.read(&output, 0, bytes_of_mut(&mut content))?;
        let error = self.expected.error(&dtype.values(&content, len), &expected::divide);

        // Keep the verified output on the device for later trials. Without memory for it, or if it
        // is too large to compare on the device, every output is copied to the host.
        let has_checksum = || checks.checksum(device, &output, words).is_ok_and(|sum| sum.is_some());
        if error <= self.tolerance
            && has_checksum()
            && let Ok(mut agreed) = device.allocate(4 * words)
        {
            device.copy(&output, &mut agreed, 4 * words)?;
            let agreed = Rc::new(Agreed { output: agreed, error });
            self.trust.resident.agree(&self.trust.workload, layout, dtype, &agreed);
            self.right = Right::Sampled(Some(agreed));
        }
        Ok(error)
    }

    /// Checks that no operand, no packed constant and no memory outside the buffers changed.
    fn check_memory(&mut self) -> Result<(), CandidateError> {
        let resident = Rc::clone(&self.trust.resident);
        let stray = |message: String| Err(CandidateError::StrayWrite { message });
        let Buffers { own, fixed, .. } = &self.buffers;
        if !own.is_intact(&resident.device)? {
            return stray("memory outside its buffers changed".into());
        }
        for (position, fixed) in fixed {
            if !resident.has_changed(fixed)? {
                continue;
            }
            if fixed.is_guard_broken(&resident.device)? {
                return stray("memory outside its buffers changed".into());
            }
            return stray(format!("the {} operand changed", self.kernel.plan().buffers[*position].name));
        }
        if let Right::Exact(tensor) = &self.right
            && resident.has_changed(tensor)?
        {
            return stray("the expected output changed".into());
        }
        self.trust.is_verified = true;
        Ok(())
    }
}

impl<D: Device> LoadedKernel for Trial<D> {
    fn check(&mut self) -> Result<f64, CandidateError> {
        let resident = &self.trust.resident;
        let Buffers { own, output, call, .. } = &mut self.buffers;
        own.clear(&resident.device, *output)?;
        let secs = resident.device.time(&mut || resident.device.start(call))?;
        self.kernel_secs += secs;
        self.compare()?;
        // A GPU may load the kernel lazily at its first run, whose time then says nothing about
        // later runs.
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
        trust.resident.mark_used();
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

/// Returns the constants and packed constants of a plan. Returns none if they exceed the caches by
/// far, because every run then evicts them anyway.
fn constants<D: Device>(
    device: &D,
    plan: &KernelPlan,
    fixed: &FixedTensors<D>,
    cache_bytes: usize,
) -> Result<Vec<D::Memory>, CandidateError> {
    let is_data = |position: usize| plan.buffers[position].binding == Binding::Data;
    let constants = || fixed.iter().filter(|(position, _)| !is_data(*position)).map(|(_, fixed)| fixed);
    if constants().map(|fixed| 4 * fixed.words()).sum::<usize>() > 2 * cache_bytes {
        return Ok(Vec::new());
    }
    // SAFETY: the memory is only evicted from the caches, which does not change it.
    constants().map(|fixed| unsafe { fixed.tensor(device) }).collect()
}

/// Returns the total seconds of `runs` runs, before each of which `cold` is evicted from the
/// caches.
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
    /// Allocates the memory that the kernel may write, and binds it together with the fixed
    /// tensors.
    fn new(
        resident: &Resident<D>,
        kernel: &Kernel<D>,
        slots: &[BufferSlot],
        fixed: FixedTensors<D>,
    ) -> Result<Self, CandidateError> {
        let (own, memory) = bound(resident, kernel.plan(), slots, &fixed)?;
        let is_own = |slot: &&BufferSlot| fixed.iter().all(|(position, _)| *position != slot.position);
        let output = slots.iter().filter(is_own).position(|slot| slot.binding == Binding::Output);
        // SAFETY: the call is dropped before the kernel. The kernel writes only to `own`, and only
        // the host writes to what it reads, and not while it runs.
        let call = unsafe { kernel.bind_memory(&resident.device, When::EveryRun, memory) }?;
        Ok(Self { own, fixed, output: output.ok_or_else(no_output)?, call })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::KernelBuilder;
    use crate::allocation_cache::PackingKey;
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
            let (problem, sharing) = (TestProblem::new(&workload).unwrap(), resident());
            let (mut packers, mut distinct) = (0, 0);
            for build in KernelBuilder::new(Backend::Assembler, 20.0).build(&candidates).unwrap() {
                let built = build.outcome.unwrap();
                // SAFETY: the kernels were made by the code generator from valid schedules.
                let load = |resident: &Rc<Resident<Cpu>>| unsafe { Trial::new(resident, &problem, &built) };
                let mut trial = load(&sharing).unwrap();
                trial.check().unwrap();
                trial.recheck(false).unwrap();

                let alone_on = resident();
                let alone = load(&alone_on).unwrap();
                let (fixed, own) = (&trial.buffers.fixed, &alone.buffers.fixed);
                assert_eq!(fixed.len(), own.len());
                for ((position, shared), (own_position, own)) in fixed.iter().zip(own) {
                    // SAFETY: nothing writes to the tensor.
                    let memory = |fixed: &Fixed<Cpu>| unsafe { fixed.tensor(&alone_on.device) }.unwrap();
                    let (shared, own): (HostMemory, HostMemory) = (memory(shared), memory(own));
                    let is_same = position == own_position && shared.elements::<u32>() == own.elements::<u32>();
                    assert!(is_same, "{text}: buffer {position}");
                }
                packers += usize::from(PackingKey::of(&built.artifact).is_some());
                distinct = sharing.cache.borrow().len();
                trial.give_back();
            }
            assert!(distinct < packers, "{text}: {distinct} of {packers}");
        }
    }
}
