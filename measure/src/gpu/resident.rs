//! What stays in a device's memory from one candidate to the next: the operands of a workload, and the output that is right.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Instant;

use autotune_ir::program::{Layout, Role};
use autotune_ir::{DType, GpuTarget};
use autotune_schedules::Workload;

use super::Device;
use super::checks::Checks;
use crate::measurement::CandidateError;
use crate::problem::Problem;
use crate::reference_check::Expected;

/// Words behind each buffer that must not change.
pub(super) const GUARD: usize = 1024;
/// What they hold: a number that no kernel computes.
pub(super) const GUARD_BITS: u32 = 0xffc0_dead;

/// Most bytes of tensors that stay: beyond them, those of other workloads go. On a device with less memory all of them go when it is used up.
const RESIDENT_BYTES: usize = 4 << 30;

/// A device with what stays on it.
pub(super) struct Resident<D: Device> {
    pub(super) device: Rc<D>,
    pub(super) checks: Checks<D>,
    tensors: RefCell<HashMap<Key, Tensor<D>>>,
    /// When a kernel was last timed.
    last_run: Cell<Option<Instant>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    workload: Workload,
    /// Of an operand; none for the output that is right, which no kernel is given.
    role: Option<Role>,
    layout: Layout,
    dtype: DType,
}

/// A tensor on the device, followed by its guard.
pub(super) struct Tensor<D: Device> {
    pub(super) memory: Rc<D::Memory>,
    /// Without the guard.
    pub(super) words: usize,
    /// Number of elements.
    pub(super) len: usize,
    /// Of words and guard; nothing if they are more than can be gone through.
    pub(super) checksum: Option<u64>,
}

impl<D: Device> Clone for Tensor<D> {
    fn clone(&self) -> Self {
        Self { memory: Rc::clone(&self.memory), ..*self }
    }
}

impl<D: Device> Resident<D> {
    pub(super) fn new(device: Rc<D>, target: &GpuTarget) -> Result<Self, CandidateError> {
        let checks = Checks::new(Rc::clone(&device), target)?;
        Ok(Self { device, checks, tensors: RefCell::default(), last_run: Cell::new(None) })
    }

    /// The operand of a role in a layout and type; `None` if the workload has none.
    pub(super) fn operand(
        &self,
        problem: &mut Problem,
        role: Role,
        layout: Layout,
        dtype: DType,
    ) -> Result<Option<Tensor<D>>, CandidateError> {
        let key = Key { workload: *problem.workload(), role: Some(role), layout, dtype };
        if let Some(known) = self.tensors.borrow().get(&key) {
            return Ok(Some(known.clone()));
        }
        match problem.arranged(role, layout)? {
            Some(values) => self.keep(key, &values).map(Some),
            None => Ok(None),
        }
    }

    /// The output that is expected, as the device would hold it; `None` if only samples of it are known.
    pub(super) fn output(
        &self,
        problem: &mut Problem,
        expected: &Expected,
        layout: Layout,
        dtype: DType,
    ) -> Result<Option<Tensor<D>>, CandidateError> {
        let key = Key { workload: *problem.workload(), role: None, layout, dtype };
        if let Some(known) = self.tensors.borrow().get(&key) {
            return Ok(Some(known.clone()));
        }
        match expected {
            Expected::Exact { elements, .. } => self.keep(key, elements).map(Some),
            Expected::Sampled { .. } => Ok(None),
        }
    }

    /// Forgets what a kernel that failed may have written to.
    pub(super) fn forget(&self, workload: &Workload) {
        self.tensors.borrow_mut().retain(|key, _| key.workload != *workload);
    }

    /// Memory of so many words that are no numbers, nor are their halves, and a guard behind them.
    pub(super) fn undefined(&self, words: usize) -> Result<Rc<D::Memory>, CandidateError> {
        let memory = self.guarded(words)?;
        self.device.fill(&memory, words, u32::MAX)?;
        Ok(Rc::new(memory))
    }

    /// A copy of a tensor.
    pub(super) fn copy(&self, of: &Tensor<D>) -> Result<Tensor<D>, CandidateError> {
        let memory = self.guarded(of.words)?;
        self.device.copy(&of.memory, &memory, 4 * of.words)?;
        Ok(Tensor { memory: Rc::new(memory), ..of.clone() })
    }

    /// True if a tensor or its guard is not as it was.
    pub(super) fn has_changed(&self, tensor: &Tensor<D>) -> Result<bool, CandidateError> {
        match tensor.checksum {
            Some(checksum) => Ok(self.checks.checksum(&tensor.memory, tensor.words + GUARD)? != checksum),
            None => self.is_guard_broken(&tensor.memory, tensor.words),
        }
    }

    /// True if what is behind so many words changed.
    pub(super) fn is_guard_broken(&self, memory: &D::Memory, words: usize) -> Result<bool, CandidateError> {
        let mut found = vec![0; 4 * GUARD];
        self.device.read(memory, 4 * words, &mut found)?;
        Ok(found.chunks_exact(4).any(|word| word != GUARD_BITS.to_ne_bytes()))
    }

    /// Seconds since a kernel was last timed; infinite if none was.
    pub(super) fn idle_secs(&self) -> f64 {
        self.last_run.get().map_or(f64::INFINITY, |last| last.elapsed().as_secs_f64())
    }

    pub(super) fn is_busy(&self) {
        self.last_run.set(Some(Instant::now()));
    }

    fn keep(&self, key: Key, values: &[f32]) -> Result<Tensor<D>, CandidateError> {
        let words = key.dtype.words(values);
        self.make_room(&key.workload, 4 * words.len());
        let memory = Rc::new(self.guarded(words.len())?);
        self.device.write(&memory, 0, bytes_of(&words))?;

        let all = words.len() + GUARD;
        let checksum = Checks::<D>::reach(all).then(|| self.checks.checksum(&memory, all)).transpose()?;
        let tensor = Tensor { memory, words: words.len(), len: values.len(), checksum };
        self.tensors.borrow_mut().insert(key, tensor.clone());
        Ok(tensor)
    }

    /// Drops tensors of other workloads if there would be too many bytes.
    fn make_room(&self, workload: &Workload, bytes: usize) {
        let held: usize = self.tensors.borrow().values().map(|tensor| 4 * tensor.words).sum();
        if held + bytes > RESIDENT_BYTES {
            self.tensors.borrow_mut().retain(|key, _| key.workload == *workload);
        }
    }

    /// Memory of so many words, and a guard behind them.
    fn guarded(&self, words: usize) -> Result<D::Memory, CandidateError> {
        let bytes = 4 * (words + GUARD);
        let memory = match self.device.allocate(bytes) {
            Err(CandidateError::OutOfMemory { .. }) => {
                self.tensors.borrow_mut().clear();
                self.device.allocate(bytes)?
            }
            allocated => allocated?,
        };
        self.device.write(&memory, 4 * words, bytes_of(&[GUARD_BITS; GUARD]))?;
        Ok(memory)
    }
}

fn bytes_of(words: &[u32]) -> &[u8] {
    // SAFETY: numbers are bytes without padding, and those of the slice are these.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), size_of_val(words)) }
}
