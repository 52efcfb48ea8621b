//! What stays in a device's memory from one candidate to the next: the operands of a workload, the
//! output that is right, what was packed ahead of time, and memory that is free.

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
use crate::problem::{Problem, Words, words};

/// A device with what stays on it.
pub(crate) struct Resident<D: Device> {
    pub(crate) device: D,
    pub(crate) checks: Box<dyn Checks<D>>,
    pub(crate) cache: RefCell<AllocationCache<D>>,
    tensors: RefCell<HashMap<Key, Rc<Fixed<D>>>>,
    /// Output of the workload that was measured last, where only samples of the right one are
    /// known.
    agreed: RefCell<Option<(Key, Rc<Agreed<D>>)>>,
    /// Most bytes of tensors that stay: beyond them, those of other workloads go. On a device with
    /// less memory all of them go when it is used up.
    most_bytes: usize,
    /// When a kernel was last timed.
    last_run: Cell<Option<Instant>>,
}

/// An output that agreed with the samples that are known of it.
pub(crate) struct Agreed<D: Device> {
    pub(crate) output: D::Memory,
    /// Relative error of the output.
    pub(crate) error: f64,
}

#[derive(PartialEq, Eq, Hash)]
struct Key {
    workload: Workload,
    /// Of an operand; none for the output that is right, which no kernel is given.
    role: Option<Role>,
    layout: Layout,
    dtype: DType,
}

impl<D: Device> Resident<D> {
    pub(crate) fn new(device: D, checks: Box<dyn Checks<D>>, most_bytes: usize) -> Self {
        let (cache, tensors, agreed) = (RefCell::default(), RefCell::default(), RefCell::new(None));
        Self { device, checks, cache, tensors, agreed, most_bytes, last_run: Cell::new(None) }
    }

    /// True for a device whose kernels are run by threads of the host: it loads nothing late and
    /// never idles its clock down, but others may disturb it.
    pub(crate) fn is_host(&self) -> bool {
        self.device.host_threads() > 0
    }

    /// The operand of a role in a layout and type; `None` if the workload has none.
    pub(crate) fn operand(
        &self,
        problem: &Problem,
        role: Role,
        layout: Layout,
        dtype: DType,
    ) -> Result<Option<Rc<Fixed<D>>>, CandidateError> {
        let key = Key { workload: problem.workload().clone(), role: Some(role), layout, dtype };
        if let Some(known) = self.tensors.borrow().get(&key) {
            return Ok(Some(Rc::clone(known)));
        }
        match problem.operand(role, layout)? {
            Some(values) => self.keep(key, &words(values, dtype)).map(Some),
            None => Ok(None),
        }
    }

    /// The output that is right, as the device would hold it; `None` if only samples of it are
    /// known.
    pub(crate) fn output(
        &self,
        problem: &Problem,
        layout: Layout,
        dtype: DType,
    ) -> Result<Option<Rc<Fixed<D>>>, CandidateError> {
        let key = Key { workload: problem.workload().clone(), role: None, layout, dtype };
        if let Some(known) = self.tensors.borrow().get(&key) {
            return Ok(Some(Rc::clone(known)));
        }
        match problem.output(layout, dtype)? {
            Some(words) => self.keep(key, &words).map(Some),
            None => Ok(None),
        }
    }

    /// Forgets what a kernel that failed may have written to.
    pub(crate) fn forget(&self, workload: &Workload) {
        self.tensors.borrow_mut().retain(|key, _| key.workload != *workload);
        self.agreed.borrow_mut().take_if(|(key, _)| key.workload == *workload);
    }

    /// The output of an earlier kernel of the workload in this layout and type that agreed with the
    /// samples.
    pub(crate) fn agreed(&self, workload: &Workload, layout: Layout, dtype: DType) -> Option<Rc<Agreed<D>>> {
        let is_it = |key: &Key| key.workload == *workload && key.layout == layout && key.dtype == dtype;
        let agreed = self.agreed.borrow();
        agreed.as_ref().filter(|(key, _)| is_it(key)).map(|(_, agreed)| Rc::clone(agreed))
    }

    /// Keeps an output for the next kernels that write it like this, instead of that of others.
    pub(crate) fn agree(&self, workload: &Workload, layout: Layout, dtype: DType, agreed: &Rc<Agreed<D>>) {
        let key = Key { workload: workload.clone(), role: None, layout, dtype };
        *self.agreed.borrow_mut() = Some((key, Rc::clone(agreed)));
    }

    /// Bytes of the tensors that stay.
    pub(crate) fn bytes(&self) -> usize {
        self.tensors.borrow().values().map(|tensor| tensor.bytes(&self.device)).sum()
    }

    /// Undefined parts of `lens` words.
    pub(crate) fn undefined(&self, lens: &[usize]) -> Result<Guarded<D>, CandidateError> {
        let bytes = guarded::bytes(&self.device, lens).ok_or_else(guarded::no_memory)?;
        Guarded::new(&self.device, self.memory(bytes)?, lens)
    }

    /// An undefined tensor, to be written by a kernel and then sealed.
    pub(crate) fn blank(&self, words: usize) -> Result<Fixed<D>, CandidateError> {
        Fixed::blank(&self.device, self.memory(Fixed::bytes_of(&self.device, words)?)?, words)
    }

    /// True if a tensor or what lies beside it is not as it was.
    pub(crate) fn has_changed(&self, tensor: &Fixed<D>) -> Result<bool, CandidateError> {
        Ok(!tensor.is_intact(&self.device, &*self.checks)?)
    }

    /// Seconds since a kernel was last timed; infinite if none was.
    pub(crate) fn idle_secs(&self) -> f64 {
        self.last_run.get().map_or(f64::INFINITY, |last| last.elapsed().as_secs_f64())
    }

    pub(crate) fn is_busy(&self) {
        self.last_run.set(Some(Instant::now()));
    }

    /// Memory that is free, at the expense of what stays if there is no other.
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

    fn keep(&self, key: Key, words: &Words) -> Result<Rc<Fixed<D>>, CandidateError> {
        let content = words.bytes();
        let bytes = Fixed::bytes_of(&self.device, content.len().div_ceil(4))?;
        self.make_room(&key.workload, bytes);
        let tensor = Rc::new(Fixed::of(&self.device, &*self.checks, self.memory(bytes)?, content)?);
        self.tensors.borrow_mut().insert(key, Rc::clone(&tensor));
        Ok(tensor)
    }

    /// Drops tensors of other workloads if there would be too many bytes.
    fn make_room(&self, workload: &Workload, bytes: usize) {
        if self.bytes().saturating_add(bytes) > self.most_bytes {
            self.tensors.borrow_mut().retain(|key, _| key.workload == *workload);
        }
    }
}
