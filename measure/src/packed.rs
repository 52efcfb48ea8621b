//! What kernels of a workload packed ahead of time, kept for those that pack alike.

use autotune_schedules::plan::PlanBuffer;
use autotune_schedules::program::{Layout, Role, When};
use autotune_schedules::{KernelPlan, codegen::x86::MachineCode};

use crate::builder::{Built, Code};
use crate::fixed::Placed;

/// Most bytes that are kept of a workload.
const KEPT_BYTES: usize = 256 << 20;

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
    pub(crate) fn of(built: &Built) -> Option<Self> {
        let Code::Machine(code) = &built.code else { return None };
        let (plan, stages) = (&built.plan, &built.plan.stages);
        let ahead = stages.iter().take_while(|stage| stage.when == When::AheadOfTime).count();
        if ahead == 0 || stages[ahead..].iter().any(|stage| stage.when == When::AheadOfTime) {
            return None;
        }
        let is_operand = |b: &PlanBuffer| matches!(b.role, Role::Weight | Role::Bias);
        let operands = plan.buffers.iter().enumerate().filter(|(_, b)| is_operand(b));
        Some(Self {
            code: leading_code(code, ahead)?,
            tasks: stages[..ahead].iter().map(|stage| stage.tasks).collect(),
            operands: operands.map(|(position, b)| (position, b.role, b.layout)).collect(),
        })
    }
}

/// The code of the first `stages` stages: they begin with the code, one behind the other, and refer to nothing behind them but
/// constants.
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

/// What was packed, the latest used last.
#[derive(Default)]
pub(crate) struct Kept(Vec<(Packing, Placed)>);

impl Kept {
    /// What a kernel that packs like this has packed, if it fits the plan.
    pub(crate) fn find(&mut self, packing: &Packing, plan: &KernelPlan) -> Option<Placed> {
        let index = self.0.iter().position(|(known, packed)| known == packing && fits(packed, plan))?;
        let entry = self.0.remove(index);
        let packed = entry.1.clone();
        self.0.push(entry);
        Some(packed)
    }

    /// Keeps what was packed, at the expense of what was not used for long.
    pub(crate) fn keep(&mut self, packing: Packing, packed: Placed) {
        self.0.push((packing, packed));
        while self.bytes() > KEPT_BYTES {
            self.0.remove(0);
        }
    }

    /// Number of packings that are kept.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Bytes of it.
    pub(crate) fn bytes(&self) -> usize {
        self.0.iter().flat_map(|(_, packed)| packed).map(|(_, fixed)| fixed.bytes()).sum()
    }
}

/// True if each is as large as the plan's buffer at its position, and that one is for what was packed.
fn fits(packed: &Placed, plan: &KernelPlan) -> bool {
    packed.iter().all(|(position, fixed)| {
        plan.buffers.get(*position).is_some_and(|buffer| {
            let len = buffer.shape.iter().try_fold(1usize, |product, &d| product.checked_mul(d));
            buffer.global && buffer.role == Role::Packed && len == Some(fixed.elements().len())
        })
    })
}
