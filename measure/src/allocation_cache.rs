//! Allocation cache: what kernels packed ahead of time, for those that pack alike, and memory that
//! trials gave back.

use std::rc::Rc;

use autotune_ir::plan::{Binding, PlanBuffer};
use autotune_ir::program::{Layout, Role, When};
use autotune_ir::{Artifact, Code, KernelPlan, MachineCode};
use autotune_runtime::{Device, DeviceError};
use autotune_workloads::Workload;

use crate::fixed::{Fixed, Placed};

/// Most bytes kept in the host's memory, and in a GPU's: several outputs of the largest workloads.
const HOST_KEPT_BYTES: usize = 96 << 20;
const DEVICE_KEPT_BYTES: usize = 2 << 30;
/// Words that are worth it: fewer are packed again as soon as memory for them is had that was not
/// used before.
const LEAST_WORDS: usize = 2 << 20;
/// Memory is used again for what needs no less than a part of it.
const WASTE: usize = 4;
const LEAST_BYTES: usize = 1 << 20;

/// All on which the result of the stages that run ahead of time depends, for one workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Packing {
    /// The stages' code, all that it calls, and the constants.
    code: Vec<u8>,
    /// The tasks of each.
    tasks: Vec<usize>,
    /// Where operands are that they may read, and how these are laid out.
    operands: Vec<(usize, Role, Layout)>,
}

impl Packing {
    /// How a kernel packs; `None` if it does not, or cannot be compared with others.
    pub(crate) fn of(artifact: &Artifact) -> Option<Self> {
        let Code::Machine(code) = &artifact.code else { return None };
        let (plan, stages) = (&artifact.plan, &artifact.plan.stages);
        let ahead = stages.iter().take_while(|stage| stage.when == When::AheadOfTime).count();
        if ahead == 0 || stages[ahead..].iter().any(|stage| stage.when == When::AheadOfTime) {
            return None;
        }
        let is_operand = |b: &PlanBuffer| matches!(b.binding, Binding::Constant { .. });
        let operands = plan.buffers.iter().enumerate().filter(|(_, b)| is_operand(b));
        Some(Self {
            code: leading_code(code, ahead)?,
            tasks: stages[..ahead].iter().map(|stage| stage.tasks).collect(),
            operands: operands.map(|(position, b)| (position, b.role, b.layout)).collect(),
        })
    }
}

/// The code of the first `stages` stages: they begin with the code, one behind the other, and refer
/// to nothing behind them but constants.
fn leading_code(code: &MachineCode, stages: usize) -> Option<Vec<u8>> {
    let MachineCode { bytes, code_bytes, entries } = code;
    let in_order = entries.first() == Some(&0) && entries.is_sorted_by(|a, b| a < b);
    let end = entries.get(stages).filter(|_| in_order)?;
    let mut leading = bytes.get(..*end)?.to_vec();
    let constants = bytes.get(*code_bytes..)?;
    if !constants.is_empty() {
        // Code refers to them by their distance.
        leading.extend(code_bytes.to_le_bytes());
        leading.extend(constants);
    }
    Some(leading)
}

/// What was packed, the latest used last, and memory that is free. Memory that a process never
/// touched before can be slow to have, so that what it has is used again.
pub(crate) struct AllocationCache<D: Device> {
    packed: Vec<(Workload, Packing, Placed<D>)>,
    spare: Vec<D::Memory>,
}

impl<D: Device> Default for AllocationCache<D> {
    fn default() -> Self {
        Self { packed: Vec::new(), spare: Vec::new() }
    }
}

impl<D: Device> AllocationCache<D> {
    /// What a kernel of the workload that packs like this has packed, if it fits the plan.
    pub(crate) fn find(&mut self, workload: &Workload, packing: &Packing, plan: &KernelPlan) -> Option<Placed<D>> {
        let is_it = |(of, known, packed): &(Workload, Packing, Placed<D>)| {
            of == workload && known == packing && fits(packed, plan)
        };
        let index = self.packed.iter().position(is_it)?;
        let entry = self.packed.remove(index);
        let packed = entry.2.clone();
        self.packed.push(entry);
        Some(packed)
    }

    /// Keeps what was packed, if it is much.
    pub(crate) fn keep(&mut self, workload: &Workload, packing: Packing, packed: Placed<D>) {
        if packed.iter().map(|(_, fixed)| fixed.words()).sum::<usize>() >= LEAST_WORDS {
            self.packed.push((workload.clone(), packing, packed));
        }
    }

    /// At least `bytes` bytes, which hold anything: of what is free, or at the expense of what was
    /// not used for long.
    pub(crate) fn memory(&mut self, device: &D, bytes: usize) -> Result<D::Memory, DeviceError> {
        let size = |memory: &D::Memory| device.extent(memory).bytes;
        loop {
            let fits =
                |memory: &D::Memory| (bytes..=bytes.max(LEAST_BYTES).saturating_mul(WASTE)).contains(&size(memory));
            let fitting = self.spare.iter().enumerate().filter(|(_, memory)| fits(memory));
            if let Some((index, _)) = fitting.min_by_key(|(_, memory)| size(memory)) {
                return Ok(self.spare.remove(index));
            }
            let most = if device.host_threads() > 0 { HOST_KEPT_BYTES } else { DEVICE_KEPT_BYTES };
            if self.bytes(device).saturating_add(bytes) <= most || !self.make_room() {
                return device.allocate(bytes);
            }
        }
    }

    /// Gives memory back, of which nobody has a hold any more.
    pub(crate) fn give(&mut self, memory: D::Memory) {
        self.spare.push(memory);
    }

    /// Gives memory that is free to the system, or where there is none frees what was not used for
    /// longest; false if there is nothing.
    fn make_room(&mut self) -> bool {
        if !self.spare.is_empty() {
            self.spare.remove(0);
            return true;
        }
        if self.packed.is_empty() {
            return false;
        }
        let (.., packed) = self.packed.remove(0);
        // What is in use goes on being so.
        let free = packed.into_iter().filter_map(|(_, fixed)| Rc::into_inner(fixed));
        self.spare.extend(free.map(Fixed::into_memory));
        true
    }

    /// Number of packings that are kept.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.packed.len()
    }

    fn bytes(&self, device: &D) -> usize {
        let packed = self.packed.iter().flat_map(|(.., packed)| packed).map(|(_, fixed)| fixed.bytes(device));
        packed.chain(self.spare.iter().map(|memory| device.extent(memory).bytes)).sum()
    }
}

/// True if each is as large as the plan's buffer at its position, and that one is for what was
/// packed.
fn fits<D: Device>(packed: &Placed<D>, plan: &KernelPlan) -> bool {
    packed.iter().all(|(position, fixed)| {
        plan.buffers.get(*position).is_some_and(|buffer| {
            buffer.binding == Binding::Packed && buffer.bytes().map(|bytes| bytes.div_ceil(4)) == Some(fixed.words())
        })
    })
}
