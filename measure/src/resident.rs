//! Data that stays in a device's memory from one candidate to the next: operands, the expected
//! output, packed constants and free memory.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Instant;

use autotune_ir::DType;
use autotune_ir::program::{Layout, Role};
use autotune_measurement::CandidateError;
use autotune_runtime::{Device, DeviceError};
use autotune_workloads::Workload;

use crate::allocation_cache::AllocationCache;
use crate::checks::Checks;
use crate::fixed::Fixed;
use crate::guarded::{self, Guarded};
use crate::problem::{RawElements, TestProblem, words};

/// Device with the data that stays in its memory.
pub(crate) struct Resident<D: Device> {
    pub(crate) device: D,
    pub(crate) checks: Box<dyn Checks<D>>,
    pub(crate) cache: RefCell<AllocationCache<D>>,
    tensors: RefCell<HashMap<ResidentKey, Rc<Fixed<D>>>>,
    /// Verified output of the workload measured last, used if only samples of the expected output
    /// are known.
    agreed: RefCell<Option<(ResidentKey, Rc<Agreed<D>>)>>,
    /// Limit in bytes of cached tensors. When it is exceeded, tensors of other workloads are
    /// dropped. When the device runs out of memory, all are dropped.
    most_bytes: usize,
    /// Time at which a kernel was last timed.
    last_run: Cell<Option<Instant>>,
}

/// Output of a kernel that agreed with the known samples of the expected output. Later kernels are
/// compared with all of it.
pub(crate) struct Agreed<D: Device> {
    pub(crate) output: D::Memory,
    /// Relative error of the output at the samples.
    pub(crate) error: f64,
}

#[derive(PartialEq, Eq, Hash)]
struct ResidentKey {
    workload: Workload,
    /// Role of an operand; `None` for the expected output, which no kernel reads.
    role: Option<Role>,
    layout: Layout,
    dtype: DType,
}

impl<D: Device> Resident<D> {
    pub(crate) fn new(device: D, checks: Box<dyn Checks<D>>, most_bytes: usize) -> Self {
        let (cache, tensors, agreed) = (RefCell::default(), RefCell::default(), RefCell::new(None));
        Self { device, checks, cache, tensors, agreed, most_bytes, last_run: Cell::new(None) }
    }

    /// Returns true for a device whose kernels run on threads of the host. Such a device has no
    /// lazy loading and no idle clock rate, but other programs may disturb it.
    pub(crate) fn is_host(&self) -> bool {
        self.device.host_threads() > 0
    }

    /// Returns an operand in a layout and type; `None` if the workload has no operand of that role.
    pub(crate) fn operand(
        &self,
        problem: &TestProblem,
        role: Role,
        layout: Layout,
        dtype: DType,
    ) -> Result<Option<Rc<Fixed<D>>>, CandidateError> {
        let key = ResidentKey { workload: problem.workload().clone(), role: Some(role), layout, dtype };
        if let Some(known) = self.tensors.borrow().get(&key) {
            return Ok(Some(Rc::clone(known)));
        }
        match problem.operand(role, layout)? {
            Some(values) => self.keep(key, &words(values, dtype)).map(Some),
            None => Ok(None),
        }
    }

    /// Returns the expected output in a layout and type; `None` if only samples of it are known.
    pub(crate) fn output(
        &self,
        problem: &TestProblem,
        layout: Layout,
        dtype: DType,
    ) -> Result<Option<Rc<Fixed<D>>>, CandidateError> {
        let key = ResidentKey { workload: problem.workload().clone(), role: None, layout, dtype };
        if let Some(known) = self.tensors.borrow().get(&key) {
            return Ok(Some(Rc::clone(known)));
        }
        match problem.output(layout, dtype)? {
            Some(words) => self.keep(key, &words).map(Some),
            None => Ok(None),
        }
    }

    /// Drops the data of a workload, because a kernel that failed may have changed it.
    pub(crate) fn forget(&self, workload: &Workload) {
        self.tensors.borrow_mut().retain(|key, _| key.workload != *workload);
        self.agreed.borrow_mut().take_if(|(key, _)| key.workload == *workload);
    }

    /// Returns the verified output of an earlier kernel of the workload, if it has this layout and
    /// type.
    pub(crate) fn agreed(&self, workload: &Workload, layout: Layout, dtype: DType) -> Option<Rc<Agreed<D>>> {
        let is_it = |key: &ResidentKey| key.workload == *workload && key.layout == layout && key.dtype == dtype;
        let agreed = self.agreed.borrow();
        agreed.as_ref().filter(|(key, _)| is_it(key)).map(|(_, agreed)| Rc::clone(agreed))
    }

    /// Stores a verified output for later kernels with the same layout and type, replacing the
    /// previous one.
    pub(crate) fn agree(&self, workload: &Workload, layout: Layout, dtype: DType, agreed: &Rc<Agreed<D>>) {
        let key = ResidentKey { workload: workload.clone(), role: None, layout, dtype };
        *self.agreed.borrow_mut() = Some((key, Rc::clone(agreed)));
    }

    /// Returns the bytes of the cached tensors.
    pub(crate) fn bytes(&self) -> usize {
        self.tensors.borrow().values().map(|tensor| tensor.bytes(&self.device)).sum()
    }

    /// Returns guarded buffers of `lens` words each, with undefined contents.
    pub(crate) fn undefined(&self, lens: &[usize]) -> Result<Guarded<D>, CandidateError> {
        let bytes = guarded::bytes(&self.device, lens).ok_or_else(guarded::no_memory)?;
        Guarded::new(&self.device, self.memory(bytes)?, lens)
    }

    /// Returns a tensor with undefined contents. A kernel must write it before
    /// [`Fixed::set_checksum`] takes its checksum.
    pub(crate) fn blank(&self, words: usize) -> Result<Fixed<D>, CandidateError> {
        Fixed::blank(&self.device, self.memory(Fixed::bytes_of(&self.device, words)?)?, words)
    }

    /// Returns true if a tensor or its guards changed.
    pub(crate) fn has_changed(&self, tensor: &Fixed<D>) -> Result<bool, CandidateError> {
        Ok(!tensor.is_intact(&self.device, &*self.checks)?)
    }

    /// Returns the seconds since a kernel was last timed; infinite if none was.
    pub(crate) fn idle_secs(&self) -> f64 {
        self.last_run.get().map_or(f64::INFINITY, |last| last.elapsed().as_secs_f64())
    }

    /// Records that a kernel has just been timed.
    pub(crate) fn mark_used(&self) {
        self.last_run.set(Some(Instant::now()));
    }

    /// Returns free or new memory. If the device runs out of memory, drops all cached data and
    /// tries again.
    fn memory(&self, bytes: usize) -> Result<D::Memory, CandidateError> {
        let allocate = || self.cache.borrow_mut().memory(&self.device, bytes);
        match allocate() {
            Err(DeviceError::OutOfMemory { .. }) => {
                self.tensors.borrow_mut().clear();
                self.agreed.take();
                *self.cache.borrow_mut() = AllocationCache::default();
                Ok(allocate()?)
            }
            allocated => Ok(allocated?),
        }
    }

    fn keep(&self, key: ResidentKey, words: &RawElements) -> Result<Rc<Fixed<D>>, CandidateError> {
        let content = words.bytes();
        let bytes = Fixed::bytes_of(&self.device, content.len().div_ceil(4))?;
        self.make_room(&key.workload, bytes);
        let tensor = Rc::new(Fixed::of(&self.device, &*self.checks, self.memory(bytes)?, content)?);
        self.tensors.borrow_mut().insert(key, Rc::clone(&tensor));
        Ok(tensor)
    }

    /// Drops tensors of other workloads if `bytes` more would exceed the limit.
    fn make_room(&self, workload: &Workload, bytes: usize) {
        if self.bytes().saturating_add(bytes) > self.most_bytes {
            self.tensors.borrow_mut().retain(|key, _| key.workload == *workload);
        }
    }
}
