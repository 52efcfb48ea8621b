//! Cache of packed constants, shared by kernels with the same packing code, and of memory for
//! reuse.

use std::rc::Rc;

use autotune_ir::plan::{Binding, PlanBuffer};
use autotune_ir::program::{Layout, Role, When};
use autotune_ir::{Artifact, Code, KernelPlan, MachineCode};
use autotune_runtime::{Device, DeviceError};
use autotune_workloads::Workload;

use crate::fixed::{Fixed, FixedTensors};

/// Most bytes that the cache keeps in the host's memory, and in a GPU's: several outputs of the
/// largest workloads.
const HOST_KEPT_BYTES: usize = 96 << 20;
const DEVICE_KEPT_BYTES: usize = 2 << 30;
/// Least number of packed words worth caching. Packing fewer words again takes no longer than
/// allocating memory for them that the process has not touched yet.
const LEAST_WORDS: usize = 2 << 20;
/// Memory is reused only if it has at most `WASTE` times the bytes asked for, or `LEAST_BYTES`
/// where those are more.
const WASTE: usize = 4;
const LEAST_BYTES: usize = 1 << 20;

/// Everything on which the result of the ahead-of-time stages depends, for one workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PackingKey {
    /// Code of the stages, including everything they call, and its constants.
    code: Vec<u8>,
    /// Number of tasks of each stage.
    tasks: Vec<usize>,
    /// Positions, roles and layouts of the operands that the stages may read.
    operands: Vec<(usize, Role, Layout)>,
}

impl PackingKey {
    /// Returns the packing of a kernel; `None` if it packs nothing, or if its code cannot be
    /// compared.
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

/// Returns the code of the first `stages` stages. They lie at the start of the code, one after
/// another, and refer to nothing after them except constants.
fn leading_code(code: &MachineCode, stages: usize) -> Option<Vec<u8>> {
    let MachineCode { bytes, code_bytes, entries } = code;
    let in_order = entries.first() == Some(&0) && entries.is_sorted_by(|a, b| a < b);
    let end = entries.get(stages).filter(|_| in_order)?;
    let mut leading = bytes.get(..*end)?.to_vec();
    let constants = bytes.get(*code_bytes..)?;
    if !constants.is_empty() {
        // Code refers to constants by relative offsets, which depend on the size of the code.
        leading.extend(code_bytes.to_le_bytes());
        leading.extend(constants);
    }
    Some(leading)
}

/// Packed constants, least recently used first, and free memory. Memory that a process has never
/// touched can be slow to get, so freed memory is reused.
pub(crate) struct AllocationCache<D: Device> {
    packed: Vec<(Workload, PackingKey, FixedTensors<D>)>,
    spare: Vec<D::Memory>,
}

impl<D: Device> Default for AllocationCache<D> {
    fn default() -> Self {
        Self { packed: Vec::new(), spare: Vec::new() }
    }
}

impl<D: Device> AllocationCache<D> {
    /// Returns the constants that a kernel of the workload with the same packing has packed, if
    /// they fit the plan. Marks them as most recently used.
    pub(crate) fn find(
        &mut self,
        workload: &Workload,
        packing: &PackingKey,
        plan: &KernelPlan,
    ) -> Option<FixedTensors<D>> {
        let is_it = |(of, known, packed): &(Workload, PackingKey, FixedTensors<D>)| {
            of == workload && known == packing && fits(packed, plan)
        };
        let index = self.packed.iter().position(is_it)?;
        let entry = self.packed.remove(index);
        let packed = entry.2.clone();
        self.packed.push(entry);
        Some(packed)
    }

    /// Caches packed constants if they are large enough.
    pub(crate) fn keep(&mut self, workload: &Workload, packing: PackingKey, packed: FixedTensors<D>) {
        if packed.iter().map(|(_, fixed)| fixed.words()).sum::<usize>() >= LEAST_WORDS {
            self.packed.push((workload.clone(), packing, packed));
        }
    }

    /// Returns memory of at least `bytes` bytes with any content: free memory, or newly allocated,
    /// after evicting entries if the cache would exceed its limit.
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

    /// Takes back memory that nothing uses any more.
    pub(crate) fn give(&mut self, memory: D::Memory) {
        self.spare.push(memory);
    }

    /// Returns one free memory to the system, or, if there is none, evicts the least recently used
    /// packed constants. Returns false if the cache is empty.
    fn make_room(&mut self) -> bool {
        if !self.spare.is_empty() {
            self.spare.remove(0);
            return true;
        }
        if self.packed.is_empty() {
            return false;
        }
        let (.., packed) = self.packed.remove(0);
        // Constants still in use by a kernel are freed when it is dropped.
        let free = packed.into_iter().filter_map(|(_, fixed)| Rc::into_inner(fixed));
        self.spare.extend(free.map(Fixed::into_memory));
        true
    }

    /// Returns the number of cached packings.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.packed.len()
    }

    fn bytes(&self, device: &D) -> usize {
        let packed = self.packed.iter().flat_map(|(.., packed)| packed).map(|(_, fixed)| fixed.bytes(device));
        packed.chain(self.spare.iter().map(|memory| device.extent(memory).bytes)).sum()
    }
}

/// Returns true if every tensor has the size of the plan's buffer at its position, and that buffer
/// is for packed constants.
fn fits<D: Device>(packed: &FixedTensors<D>, plan: &KernelPlan) -> bool {
    packed.iter().all(|(position, fixed)| {
        plan.buffers.get(*position).is_some_and(|buffer| {
            buffer.binding == Binding::Packed && buffer.bytes().map(|bytes| bytes.div_ceil(4)) == Some(fixed.words())
        })
    })
}
