//! Constants of a network as its kernels use them. Each constant is in memory once for each way to
//! pack it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use autotune::Tuned;
use autotune_ir::DType;
use autotune_ir::plan::Binding;
use autotune_ir::program::{BufferId, Layout};
use autotune_runtime::{Cpu, Kernel, Packed};
use rayon::prelude::*;

use crate::constants::{BoundConstant, constant_in_layout, constants, release};
use crate::device::NetworkOps;
use crate::error::CompileError;
use crate::plan::{Action, ActionKind, ActionOperand, NetworkPlan, Slot, SlotContent, given};
use autotune_graph::{Graph, NodeId};

/// Binding of a constant that a kernel reads in every run, not only while packing.
const READ_IN_RUNS: Binding = Binding::Constant { read_in_runs: true };

/// Constants of a kernel, shared by all that run it on the same constants.
pub(crate) struct KernelConstants<D: NetworkOps = Cpu> {
    pub(crate) packed: Arc<Packed<D>>,
    /// Constants that the kernel reads unpacked in every run, by operand.
    pub(crate) unpacked: Vec<Option<Arc<D::Memory>>>,
}

/// Constants of a network in memory.
pub(crate) struct Constants<D: NetworkOps = Cpu> {
    /// Constants of each action's kernel.
    pub(crate) held: Vec<Option<Arc<KernelConstants<D>>>>,
    /// Memory of each slot that holds a constant.
    pub(crate) slots: Vec<Option<Arc<D::Memory>>>,
    /// Constants that no kernel packs.
    copies: HashMap<Copied, Arc<D::Memory>>,
}

/// Identity of an unpacked constant: node, layout and element type.
type Copied = (NodeId, Layout, DType);

/// Another network on the same graph, from which common kernels and constants are taken.
pub(super) struct SharedWith<'a, D: NetworkOps = Cpu> {
    pub(super) plan: &'a NetworkPlan,
    pub(super) kernels: &'a [Arc<Kernel<D>>],
    pub(super) constants: &'a Constants<D>,
}

/// Number of a kernel in the plan, and the constants among its operands.
type Use = (usize, Vec<Option<NodeId>>);

/// Packed and unpacked constants by kernel and constant operands.
type ConstantsByKernel<D> = HashMap<(*const Kernel<D>, Vec<Option<NodeId>>), Arc<KernelConstants<D>>>;

/// Identity of packed constants: the text of the packing stages, and the constants that they read.
type Packing = (String, Vec<Option<NodeId>>);

struct ConstantsBuilder<'a, D: NetworkOps> {
    graph: &'a Graph,
    plan: &'a NetworkPlan,
    kernels: &'a [Arc<Kernel<D>>],
    device: &'a D,
    shared_with: Option<&'a SharedWith<'a, D>>,
    /// Memory for constants still to be packed.
    memory: D::Memory,
    /// Constants that more than one kernel uses.
    shared: HashSet<NodeId>,
    /// [`autotune_ir::Program::packing`] of each kernel.
    texts: HashMap<usize, (String, Vec<BufferId>)>,
    packed: HashMap<Packing, Arc<Packed<D>>>,
    copies: HashMap<Copied, Arc<D::Memory>>,
}

impl<D: NetworkOps> Constants<D> {
    /// Packs the constants of a plan, and takes over those of another network on the same graph.
    pub(super) fn of(
        graph: &Graph,
        plan: &NetworkPlan,
        kernels: &[Arc<Kernel<D>>],
        device: &D,
        shared_with: Option<&SharedWith<D>>,
    ) -> Result<Self, CompileError> {
        let uses: Vec<Option<Use>> = plan.actions.iter().map(use_of).collect();
        let there = shared_with.map(SharedWith::held_by_kernels).unwrap_or_default();
        let mut known: HashMap<&Use, Arc<KernelConstants<D>>> = HashMap::new();
        // Constants that the other network has for the same kernel are shared.
        for of in uses.iter().flatten() {
            let held = there.get(&(Arc::as_ptr(&kernels[of.0]), of.1.clone()));
            known.extend(held.map(|held| (of, Arc::clone(held))));
        }

        let open: HashSet<&Use> = uses.iter().flatten().filter(|of| !known.contains_key(of)).collect();
        // One allocation for all that is left to pack.
        let memory = packed_memory(open.iter().map(|(kernel, _)| &kernels[*kernel]), device)?;
        let (texts, packed, copies) = (HashMap::new(), HashMap::new(), HashMap::new());
        let shared = shared(&open);
        let mut maker =
            ConstantsBuilder { graph, plan, kernels, device, shared_with, memory, shared, texts, packed, copies };
        let mut held = Vec::with_capacity(uses.len());
        for (action, of) in plan.actions.iter().zip(&uses) {
            held.push(match of {
                Some(of) if known.contains_key(of) => known.get(of).cloned(),
                Some(of) => {
                    let made = Arc::new(maker.constants_of(of, &action.operands)?);
                    known.insert(of, Arc::clone(&made));
                    Some(made)
                }
                None => None,
            });
        }

        let slot = |slot: &Slot| match slot.content {
            SlotContent::Constant(node, layout) => {
                let lies = (layout, slot.dtype);
                maker
                    .copy((node, layout, slot.dtype), &|| {
                        Ok(device.keep(&constant_in_layout(graph, node, lies, true)?)?)
                    })
                    .map(Some)
            }
            SlotContent::Run => Ok(None),
        };
        let slots = plan.slots.iter().map(slot).collect::<Result<_, CompileError>>()?;
        Ok(Self { held, slots, copies: maker.copies })
    }
}

impl Constants {
    /// Returns the size of all constants in memory, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let held = || self.held.iter().flatten();
        let packed = held().flat_map(|held| held.packed.memory());
        let unpacked = held().flat_map(|held| held.unpacked.iter().flatten()).map(|copy| &**copy);
        let slots = self.slots.iter().flatten().map(|copy| &**copy);
        let all = packed.chain(unpacked).chain(slots);
        // Shared memory counts once.
        let parts: HashMap<*mut u8, usize> = all.map(|part| (part.start(), part.elements::<u8>().len())).collect();
        parts.values().sum()
    }
}

impl<D: NetworkOps> ConstantsBuilder<'_, D> {
    /// Returns a kernel's constants, packed and unpacked.
    fn constants_of(&mut self, of: &Use, operands: &[ActionOperand]) -> Result<KernelConstants<D>, CompileError> {
        let kernel = &self.kernels[of.0];
        let packing = self.packing(of)?;
        let known = packing.as_ref().and_then(|packing| self.packed.get(packing));
        // SAFETY: both kernels have the same packing stages on the same constants, so the results
        // are equal.
        let shared = known.map(|known| unsafe { kernel.share(self.device, known) }).transpose()?;

        let constants = constants(self.graph, kernel, operands)?;
        let packed = match shared {
            Some(shared) => shared,
            None => {
                let memory = self.take(kernel.packed_bytes(self.device)?)?;
                self.device.pack(kernel, &constants, memory)?
            }
        };
        self.packed.extend(packing.map(|packing| (packing, Arc::clone(&packed))));

        let kept = |(constant, id): (&BoundConstant, &Option<NodeId>)| match (constant, *id) {
            (Some((buffer, numbers)), Some(id)) if buffer.binding == READ_IN_RUNS => {
                self.copy((id, buffer.layout, buffer.dtype), &|| Ok(self.device.keep(numbers)?)).map(Some)
            }
            _ => Ok(None),
        };
        let unpacked = constants.iter().zip(&of.1).map(kept).collect::<Result<_, CompileError>>()?;
        release(self.graph, operands);
        Ok(KernelConstants { packed, unpacked })
    }

    /// Splits `bytes` off the memory for packed constants.
    fn take(&mut self, bytes: usize) -> Result<D::Memory, CompileError> {
        let all = self.device.extent(&self.memory).bytes;
        // SAFETY: the two parts do not overlap, and the whole is not used any more from here on.
        let (own, rest) =
            unsafe { (self.device.part(&self.memory, 0..bytes)?, self.device.part(&self.memory, bytes..all)?) };
        self.memory = rest;
        Ok(own)
    }

    /// Returns the identity of a kernel's packed constants, if another kernel may share them.
    fn packing(&mut self, (kernel, constants): &Use) -> Result<Option<Packing>, CompileError> {
        let is_packed = self.kernels[*kernel].packed_bytes(self.device)? > 0;
        // Only a constant with several users can be shared.
        if !is_packed || !constants.iter().flatten().any(|id| self.shared.contains(id)) {
            return Ok(None);
        }
        if !self.texts.contains_key(kernel) {
            self.texts.insert(*kernel, self.plan.kernels[*kernel].program()?.packing());
        }
        let (text, used) = &self.texts[kernel];

        let plan = self.kernels[*kernel].plan();
        let is_read = |name: &str| used.iter().any(|id| plan.buffers[id.0 as usize].name == name);
        let read = given(plan).zip(constants).filter(|(buffer, _)| is_read(&buffer.name));
        Ok(Some((text.clone(), read.map(|(_, constant)| *constant).collect())))
    }

    /// Returns an unpacked constant; `make` copies it if it is not in memory yet.
    fn copy(
        &mut self,
        of: Copied,
        make: &dyn Fn() -> Result<D::Memory, CompileError>,
    ) -> Result<Arc<D::Memory>, CompileError> {
        let known = self.copies.get(&of).or_else(|| self.shared_with?.constants.copies.get(&of));
        let copy = match known {
            Some(known) => Arc::clone(known),
            None => Arc::new(make()?),
        };
        Ok(Arc::clone(self.copies.entry(of).or_insert(copy)))
    }
}

/// Returns an action's kernel and constants, if it runs a kernel.
fn use_of(action: &Action) -> Option<Use> {
    match action.work {
        ActionKind::Kernel(kernel) => Some((kernel, action.operands.iter().map(ActionOperand::constant).collect())),
        ActionKind::Copy(_) | ActionKind::Interpret(_) => None,
    }
}

/// Returns the constants that more than one kernel uses.
fn shared(uses: &HashSet<&Use>) -> HashSet<NodeId> {
    let mut kernels: HashMap<NodeId, HashSet<usize>> = HashMap::new();
    for (kernel, constants) in uses {
        constants.iter().flatten().for_each(|id| kernels.entry(*id).or_default().extend([*kernel]));
    }
    kernels.into_iter().filter(|(_, kernels)| kernels.len() > 1).map(|(id, _)| id).collect()
}

/// Allocates one block for all packed constants. Separate blocks would each start a huge page.
fn packed_memory<'k, D: NetworkOps + 'k>(
    mut kernels: impl Iterator<Item = &'k Arc<Kernel<D>>>,
    device: &D,
) -> Result<D::Memory, CompileError> {
    let bytes = kernels.try_fold(0usize, |bytes, kernel| {
        bytes.checked_add(kernel.packed_bytes(device)?).ok_or(CompileError::TooLarge)
    })?;
    Ok(device.untouched(bytes)?)
}

/// Loads the kernels of a plan, and takes over those of another network.
pub(super) fn kernels<D: NetworkOps>(
    plan: &NetworkPlan,
    origin: &D::Origin,
    shared_with: Option<&SharedWith<D>>,
) -> Result<Vec<Arc<Kernel<D>>>, CompileError> {
    let kernel = |tuned: &Tuned| match shared_with.and_then(|beside| beside.kernel_of(tuned)) {
        Some(known) => Ok(known),
        None => Ok(Arc::new(tuned.kernel(&D::to_load(origin)?)?)),
    };
    plan.kernels.par_iter().map(kernel).collect()
}

impl<D: NetworkOps> SharedWith<'_, D> {
    /// Returns the other network's kernel for a schedule, if there is one.
    fn kernel_of(&self, tuned: &Tuned) -> Option<Arc<Kernel<D>>> {
        let place = self.plan.kernels.iter().position(|own| own.candidate() == tuned.candidate())?;
        Some(Arc::clone(&self.kernels[place]))
    }

    /// Returns the other network's constants by kernel and constant operands.
    fn held_by_kernels(&self) -> ConstantsByKernel<D> {
        let held = |(action, held): (&Action, &Option<Arc<KernelConstants<D>>>)| {
            let (kernel, constants) = use_of(action)?;
            Some(((Arc::as_ptr(&self.kernels[kernel]), constants), Arc::clone(held.as_ref()?)))
        };
        self.plan.actions.iter().zip(&self.constants.held).filter_map(held).collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use autotune_db::{TuningDb, TuningRecord};
    use autotune_ir::{CpuTarget, Target};
    use autotune_schedules::ScheduleSpace;

    use super::*;
    use crate::Checked;
    use crate::compiled::Compiled;
    use crate::cut::{Cut, StepWork};
    use autotune_graph::rewrite::rewrite_traced;
    use autotune_graph::{Builder, Fill, Seeded};

    const SIZE: usize = 128;

    /// A chain of products with a common weight, all but the first with an epilogue.
    fn products(uses: usize, epilogue: &str) -> Graph {
        let net = Builder::new("products", Seeded { seed: 1 });
        let weight = net.weight("w", &[SIZE, SIZE], Fill::deviation(0.1));
        let mut x = net.input("x", &[3, SIZE]);
        for number in 0..uses {
            let product = x.matmul(weight);
            x = match epilogue {
                "relu" if number > 0 => product.relu(),
                "sum" if number > 0 => product + x,
                _ => product,
            };
        }
        net.output("y", x);
        net.finish().unwrap()
    }

    fn target() -> Target {
        Target::detect("cpu", Some(1)).unwrap()
    }

    /// A database with the first step's default schedule for every workload.
    fn alike(graph: &Graph) -> TuningDb {
        let db = TuningDb::temporary().unwrap();
        let mut config = None;
        for step in &Cut::of(graph).steps {
            let StepWork::Kernel(workload) = &step.work else { continue };
            let space = ScheduleSpace::new(workload, &target());
            let config = config.get_or_insert_with(|| space.default_config()).clone();
            assert!(space.proven(&config).is_ok());
            db.append(&TuningRecord::synthetic(workload, &target(), config, 1e-6)).unwrap();
        }
        db
    }

    fn bytes(graph: &Graph) -> usize {
        Compiled::new(graph, Some(&alike(graph)), &target()).unwrap().constant_bytes()
    }

    #[test]
    fn uses_of_a_constant_share_what_is_packed_of_it() {
        let once = bytes(&products(1, ""));
        assert!((4 * SIZE * SIZE..5 * SIZE * SIZE).contains(&once), "{once} bytes");
        for epilogue in ["", "relu", "sum"] {
            assert_eq!(bytes(&products(8, epilogue)), once, "{epilogue}");
        }
    }

    /// Predicted schedules follow that of the largest step, for which blocks of 64 rows are near
    /// the optimum.
    #[test]
    fn predicted_schedules_agree_on_what_is_packed_of_a_constant() {
        let net = Builder::new("levels", Seeded { seed: 1 });
        let weight = net.weight("w", &[3072, 768], Fill::deviation(0.1));
        for rows in [512, 128, 64, 32] {
            let x = net.input(&format!("x{rows}"), &[rows, 3072]);
            net.output(&format!("y{rows}"), x.matmul(weight));
        }
        let target = Target::Cpu(CpuTarget::generic_avx2(1));
        let network = Compiled::new(&net.finish().unwrap(), None, &target).unwrap();
        assert_eq!(network.kernels.len(), 4);
        let once = size_of::<f32>() * 3072 * 768;
        assert!((once..once + once / 4).contains(&network.constant_bytes()), "{}", network.constant_bytes());
    }

    /// Results are right if one kernel reads what another packed.
    #[test]
    fn kernels_that_share_what_is_packed_compute_what_they_mean() {
        for epilogue in ["relu", "sum"] {
            let imported = products(4, epilogue);
            let (graph, trace) = rewrite_traced(&imported).unwrap();
            let network = Compiled::new(&graph, Some(&alike(&graph)), &target()).unwrap();
            assert_eq!(network.kernels.len(), 2);
            let x = crate::Tensor::f32(&[3, SIZE], (0..3 * SIZE).map(|i| (i % 7) as f32 - 3.0).collect()).unwrap();
            let Checked { steps, imported } = network.workspace().unwrap().check(&[x], &imported, &trace).unwrap();
            assert_eq!(steps.len(), 4);
            assert!(steps.iter().chain(&imported).all(|step| step.is_within_tolerance()), "{steps:?} {imported:?}");
        }
    }

    /// A network compiled from another shares all of its constants.
    #[test]
    fn networks_share_constants() {
        let graph = products(3, "relu");
        let network = Compiled::new(&graph, None, &target()).unwrap();
        let other = network.untuned_sharing(&target()).unwrap();
        for (own, other) in network.constants.held.iter().zip(&other.constants.held) {
            assert!(Arc::ptr_eq(own.as_ref().unwrap(), other.as_ref().unwrap()));
        }
    }
}
