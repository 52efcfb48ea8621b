//! Constants of a network as its kernels use them. Each constant is in memory once for each way to
//! pack it, whatever the number of networks that share a store.

use std::collections::HashMap;
use std::sync::Arc;

use autotune_ir::DType;
use autotune_ir::plan::{Binding, PlanBuffer};
use autotune_ir::program::Layout;
use autotune_runtime::{Cpu, Packed};

use super::store::{Copied, NetworkStore, Packing, StoredKernel};
use crate::constants::{constant_in_layout, constants, release};
use crate::device::NetworkOps;
use crate::error::CompileError;
use crate::plan::{Action, ActionKind, ActionOperand, NetworkPlan, Slot, SlotContent, given};
use autotune_graph::{Graph, NodeId};

/// Binding of a constant that a kernel reads in every run, not only while packing.
const READ_IN_RUNS: Binding = Binding::Constant { read_in_runs: true };

/// Constants of a kernel, shared by all that run it on the same constants.
pub(crate) struct KernelConstants<D: NetworkOps = Cpu> {
    pub(crate) packed: Arc<Packed<D>>,
    /// Handle by which the store knows the packed constants.
    stored: Arc<Packed<D>>,
    /// Constants that the kernel reads unpacked in every run, by operand.
    pub(crate) unpacked: Vec<Option<Arc<D::Memory>>>,
}

/// Constants of a network in memory.
pub(crate) struct Constants<D: NetworkOps = Cpu> {
    /// Constants of each action's kernel.
    pub(crate) held: Vec<Option<Arc<KernelConstants<D>>>>,
    /// Memory of each slot that holds a constant.
    pub(crate) slots: Vec<Option<Arc<D::Memory>>>,
    /// Sizes in bytes of all constants in memory, by addresses that identify them among networks.
    pub(crate) parts: HashMap<usize, usize>,
}

/// Number of a kernel in the plan, and the constants among its operands.
type Use = (usize, Vec<Option<NodeId>>);

struct ConstantsBuilder<'a, D: NetworkOps> {
    graph: &'a Graph,
    kernels: &'a [StoredKernel<D>],
    device: &'a D,
    store: &'a NetworkStore<D>,
    /// Memory for constants still to be packed.
    memory: D::Memory,
    /// Constants packed by this builder or found in the store.
    packed: HashMap<Packing, Arc<Packed<D>>>,
}

impl<D: NetworkOps> Constants<D> {
    /// Packs the constants of a plan, except those that the store has.
    pub(super) fn of(
        graph: &Graph,
        plan: &NetworkPlan,
        kernels: &[StoredKernel<D>],
        device: &D,
        store: &NetworkStore<D>,
    ) -> Result<Self, CompileError> {
        let uses: Vec<Option<Use>> = plan.actions.iter().map(use_of).collect();
        // One allocation for all that is to be packed: separate blocks would each start a huge
        // page.
        let packings: HashMap<&Use, Packing> =
            uses.iter().flatten().map(|of| (of, packing(graph, kernels, of))).collect();
        let mut packed = HashMap::new();
        let mut open: HashMap<&Packing, usize> = HashMap::new();
        for (of, packing) in &packings {
            match store.packed(packing) {
                Some(known) => drop(packed.insert(packing.clone(), known)),
                None => {
                    let most = open.entry(packing).or_default();
                    *most = kernels[of.0].kernel.packed_bytes(device)?.max(*most);
                }
            }
        }
        let bytes = open.values().try_fold(0usize, |sum, &bytes| sum.checked_add(bytes));
        let memory = device.untouched(bytes.ok_or(CompileError::TooLarge)?)?;

        let mut builder = ConstantsBuilder { graph, kernels, device, store, memory, packed };
        let mut known: HashMap<&Use, Arc<KernelConstants<D>>> = HashMap::new();
        let mut held = Vec::with_capacity(uses.len());
        for (action, of) in plan.actions.iter().zip(&uses) {
            held.push(match of {
                Some(of) if known.contains_key(of) => known.get(of).cloned(),
                Some(of) => {
                    let made = Arc::new(builder.constants_of(of, &packings[of], &action.operands)?);
                    known.insert(of, Arc::clone(&made));
                    Some(made)
                }
                None => None,
            });
        }

        let slots = plan.slots.iter().map(|slot| builder.slot(slot)).collect::<Result<Vec<_>, CompileError>>()?;
        let parts = parts(held.iter().flatten(), &slots, device);
        Ok(Self { held, slots, parts })
    }
}

impl<D: NetworkOps> ConstantsBuilder<'_, D> {
    /// Returns a kernel's constants, packed and unpacked.
    fn constants_of(
        &mut self,
        of: &Use,
        packing: &Packing,
        operands: &[ActionOperand],
    ) -> Result<KernelConstants<D>, CompileError> {
        let kernel = &self.kernels[of.0].kernel;
        let (packed, stored) = match self.packed.get(packing) {
            // SAFETY: both kernels have the same packing stages on the same constants, so the
            // results are equal.
            Some(known) => (unsafe { kernel.share(self.device, known) }?, Arc::clone(known)),
            None => {
                let memory = self.take(kernel.packed_bytes(self.device)?)?;
                let packed = self.device.pack(kernel, &constants(self.graph, kernel, operands)?, memory)?;
                self.store.keep_packed(packing, &packed);
                self.packed.insert(packing.clone(), Arc::clone(&packed));
                (Arc::clone(&packed), packed)
            }
        };

        self.store.keep_stages(packing, &self.kernels[of.0].packing);

        // Constants that are packed already are not read again.
        let kept = |(buffer, id): (&PlanBuffer, &Option<NodeId>)| match *id {
            Some(id) if buffer.binding == READ_IN_RUNS => {
                self.copy((id, buffer.layout, buffer.dtype), kernel.takes_any_address())
            }
            _ => Ok(None),
        };
        let unpacked = given(kernel.plan()).zip(&of.1).map(kept).collect::<Result<_, CompileError>>()?;
        release(self.graph, operands);
        Ok(KernelConstants { packed, stored, unpacked })
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

    /// Returns the constant of a slot, if the slot has one.
    fn slot(&self, slot: &Slot) -> Result<Option<Arc<D::Memory>>, CompileError> {
        let SlotContent::Constant(node, layout) = slot.content else { return Ok(None) };
        self.copy((node, layout, slot.dtype), true)
    }

    /// Returns an unpacked constant, which is copied if it is not in memory yet. `None` if the node
    /// is no constant.
    fn copy(
        &self,
        (node, layout, dtype): (NodeId, Layout, DType),
        takes_any_address: bool,
    ) -> Result<Option<Arc<D::Memory>>, CompileError> {
        let Some(constant) = self.graph.constant_of(node) else { return Ok(None) };
        let of: Copied = (constant.identity(), layout, dtype);
        if let Some(known) = self.store.copy(&of) {
            return Ok(Some(known));
        }
        let elements = constant_in_layout(self.graph, node, (layout, dtype), takes_any_address)?;
        Ok(Some(self.store.keep_copy(of, Arc::new(self.device.keep(&elements)?))))
    }
}

/// Returns the sizes of constants in bytes, by addresses of their handles.
fn parts<'a, D: NetworkOps + 'a>(
    held: impl Iterator<Item = &'a Arc<KernelConstants<D>>> + Clone,
    slots: &[Option<Arc<D::Memory>>],
    device: &D,
) -> HashMap<usize, usize> {
    let packed = held.clone().map(|held| {
        let bytes = held.stored.memory().iter().map(|memory| device.extent(memory).bytes).sum();
        (Arc::as_ptr(&held.stored).addr(), bytes)
    });
    let unpacked = held.flat_map(|held| &held.unpacked).chain(slots).flatten();
    packed.chain(unpacked.map(|copy| (Arc::as_ptr(copy).addr(), device.extent(copy).bytes))).collect()
}

/// Returns an action's kernel and constants, if it runs a kernel.
fn use_of(action: &Action) -> Option<Use> {
    match action.work {
        ActionKind::Kernel(kernel) => Some((kernel, action.operands.iter().map(ActionOperand::constant).collect())),
        ActionKind::Copy(_) | ActionKind::Interpret(_) => None,
    }
}

/// Returns the identity of a kernel's packed constants.
fn packing<D: NetworkOps>(graph: &Graph, kernels: &[StoredKernel<D>], (kernel, constants): &Use) -> Packing {
    let StoredKernel { kernel, packing } = &kernels[*kernel];
    let is_read = |name: &String| packing.buffers.contains(name);
    let read = given(kernel.plan()).zip(constants).filter(|(buffer, _)| is_read(&buffer.name));
    let identity = |node: NodeId| graph.constant_of(node).map(|constant| constant.identity());
    (Arc::clone(&packing.text), read.map(|(_, constant)| constant.and_then(identity)).collect())
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
            assert!(Arc::ptr_eq(&own.as_ref().unwrap().stored, &other.as_ref().unwrap().stored));
        }
    }
}
