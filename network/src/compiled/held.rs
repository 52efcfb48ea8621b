//! What the kernels of a network have of its constants.

use std::sync::Arc;

use autotune::Tuned;
use autotune_ir::plan::Binding;
use autotune_runtime::{Cpu, HostMemory, Kernel, Packed};
use rayon::prelude::*;

use super::Compiled;
use crate::constants::{Given, constants, pack, packed_memory, release};
use crate::error::CompileError;
use crate::graph::{Graph, NodeId};
use crate::plan::{Action, Doing, Operand, Plan};

/// What a kernel has of its constants: all who run it on the same ones can share it.
pub(crate) struct Held {
    pub(crate) packed: Arc<Packed>,
    /// Constants that it reads in runs beside what was packed of them, by operand.
    pub(crate) unpacked: Vec<Option<HostMemory>>,
}

impl Held {
    /// Packs into the first bytes of some memory, of which the rest is left.
    fn of(
        graph: &Graph,
        kernel: &Kernel,
        operands: &[Operand],
        team: &Cpu,
        memory: &mut HostMemory,
    ) -> Result<Self, CompileError> {
        let constants = constants(graph, kernel, operands)?;
        let packed = pack(team, kernel, &constants, memory)?;
        let kept = |constant: &Given| match constant {
            Some((buffer, numbers)) if buffer.binding == (Binding::Constant { read_in_runs: true }) => {
                Ok(Some(numbers.copy()?))
            }
            _ => Ok(None),
        };
        let unpacked = constants.iter().map(kept).collect::<Result<_, CompileError>>()?;
        release(graph, operands);
        Ok(Self { packed, unpacked })
    }

    /// For each action of a plan what its kernel has; that of another network on the same graph where it has the same.
    pub(super) fn all(
        graph: &Graph,
        plan: &Plan,
        kernels: &[Arc<Kernel>],
        team: &Cpu,
        beside: Option<&Compiled>,
    ) -> Result<Vec<Option<Arc<Self>>>, CompileError> {
        let kernel_of = |action: &Action| match action.work {
            Doing::Kernel(kernel) => Some(&kernels[kernel]),
            Doing::Copy(_) | Doing::Interpret(_) => None,
        };
        let known = |action: &Action| beside?.held_by(kernel_of(action)?, &action.operands);
        let mut held: Vec<Option<Arc<Self>>> = plan.actions.iter().map(known).collect();

        let open = || plan.actions.iter().zip(&held).filter(|(_, held)| held.is_none());
        let mut memory = packed_memory(open().filter_map(|(action, _)| kernel_of(action)), team)?;
        for (action, held) in plan.actions.iter().zip(&mut held) {
            if let (Some(kernel), None) = (kernel_of(action), &held) {
                *held = Some(Arc::new(Self::of(graph, kernel, &action.operands, team, &mut memory)?));
            }
        }
        Ok(held)
    }
}

/// The kernels of a plan; those of another network where it has them.
pub(super) fn kernels(plan: &Plan, beside: Option<&Compiled>) -> Result<Vec<Arc<Kernel>>, CompileError> {
    let kernel = |tuned: &Tuned| match beside.and_then(|beside| beside.kernel_of(tuned)) {
        Some(known) => Ok(known),
        None => Ok(Arc::new(tuned.kernel(&Cpu::new(1))?)),
    };
    plan.kernels.par_iter().map(kernel).collect()
}

impl Compiled {
    /// The kernel of a schedule, if there is one.
    fn kernel_of(&self, tuned: &Tuned) -> Option<Arc<Kernel>> {
        let place = self.plan.kernels.iter().position(|own| own.candidate() == tuned.candidate())?;
        Some(Arc::clone(&self.kernels[place]))
    }

    /// What a kernel has of the constants among some operands, if it runs on them.
    fn held_by(&self, kernel: &Arc<Kernel>, operands: &[Operand]) -> Option<Arc<Held>> {
        let constants = |operands: &[Operand]| operands.iter().map(Operand::constant).collect::<Vec<Option<NodeId>>>();
        let wanted = constants(operands);
        let is_it = |action: &Action| match action.work {
            Doing::Kernel(own) => Arc::ptr_eq(&self.kernels[own], kernel) && constants(&action.operands) == wanted,
            Doing::Copy(_) | Doing::Interpret(_) => false,
        };
        self.held[self.plan.actions.iter().position(is_it)?].clone()
    }
}
