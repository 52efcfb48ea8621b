//! Networks whose shapes depend on the data of a run, or that repeat and choose graphs.
//!
//! Such a network runs in phases. A phase is everything whose shapes follow from the tensors that
//! exist; it is rewritten, planned and compiled like any network, once for the shapes. The nodes
//! after it run alone: the interpreter computes shapes and selections from data; bodies of loops
//! and branches are networks of this kind.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use autotune_db::Source;
use autotune_graph::onnx::{
    GraphPath, ImportError, ImportOptions, Model, NestedGraph, NodeError, PhaseNode, PhaseStart, PhaseWork, RunTensor,
    TensorFacts,
};
use autotune_graph::rewrite::Rewriter;
use autotune_graph::{Constant, Graph, GraphError, Tensor, printable};
use autotune_ir::Target;
use autotune_runtime::{Cpu, Waiting};

use crate::compiled::{Compiled, NetworkStore};
use crate::device::NetworkOps;
use crate::error::CompileError;
use crate::family::FamilyError;
use crate::phase_plan::{PhasePlan, PlanKey, PlannedNode};
use crate::switched::SwitchedWorkspace;
use crate::{phase_control as control, phase_layer as layer};

/// Maximum number of runs whose plans are kept for one graph, each for some shapes.
const MOST_RUNS: usize = 64;

/// Maximum number of elements of a constant that is compared with another.
const MOST_COMPARED: usize = 64;

/// Tensors of a run by their names in the file.
pub(crate) type RunTensors = HashMap<String, RunTensor>;

/// A network that runs in phases: a model's graph, or one inside a node. Any number of threads may
/// use it, each with its own [`PhasedWorkspace`].
pub(crate) struct PhasedNetwork {
    pub(crate) origin: Arc<PhasedOrigin>,
    pub(crate) graph: NestedGraph,
    /// Tensors with the same value in all runs.
    pub(crate) constants: BTreeMap<String, Constant>,
    plans: Mutex<Plans>,
}

/// Plans of a graph by the tensors that exist.
#[derive(Default)]
struct Plans {
    kept: HashMap<BTreeMap<String, TensorFacts>, KeptPlan>,
    /// Plan of the first phase of the last run.
    recent: Option<Arc<PhasePlan>>,
    /// Number of look-ups so far.
    lookups: u64,
    /// Largest number of plans of a run.
    longest: usize,
}

struct KeptPlan {
    plan: Arc<PhasePlan>,
    /// Number of the last look-up.
    last: u64,
}

/// Function that changes an imported graph, such as its precision.
pub(crate) type Prepare = Box<dyn FnMut(Graph) -> Result<Graph, GraphError> + Send>;

/// Model, schedules and store that the graphs of a model share.
pub(crate) struct PhasedOrigin {
    model: Arc<Mutex<Model<'static>>>,
    import: ImportOptions,
    pub(crate) source: Arc<dyn Source>,
    pub(crate) target: Target,
    pub(crate) store: Arc<NetworkStore>,
    /// True if the interpreter computes everything.
    pub(crate) is_reference: bool,
    maker: Mutex<PlanMaker>,
    /// Networks of the graphs inside nodes, which plans for several shapes share.
    inner: Mutex<HashMap<GraphPath, Vec<Weak<PhasedNetwork>>>>,
}

/// State for making plans, one at a time: others can then share what it packs.
pub(crate) struct PlanMaker {
    pub(crate) prepare: Prepare,
    pub(crate) rewriter: Rewriter,
    /// Number of plans made so far.
    pub(crate) made: u64,
}

/// State of one run at a time: threads and memory.
pub(crate) struct PhasedWorkspace(SwitchedWorkspace<PlanKey, Cpu>);

impl PhasedNetwork {
    /// Creates the network of a model. `prepare` changes imported graphs, such as their precision.
    /// Schedules come from the source, or are predicted.
    pub(crate) fn of_model(
        model: Arc<Mutex<Model<'static>>>,
        import: ImportOptions,
        prepare: Prepare,
        source: Arc<dyn Source>,
        target: &Target,
    ) -> Result<Self, FamilyError> {
        let graph = locked(&model).nested(&GraphPath::default())?;
        let constants = import.values.iter().map(|(name, value)| (name.clone(), value.clone().into())).collect();
        let store = Arc::new(NetworkStore::new(Cpu::origin(target).map_err(CompileError::from)?));
        let maker = Mutex::new(PlanMaker { prepare, rewriter: Rewriter::default(), made: 0 });
        let (target, inner) = (target.clone(), Mutex::default());
        let origin = PhasedOrigin { model, import, source, target, store, is_reference: false, maker, inner };
        Ok(Self { origin: Arc::new(origin), graph, constants, plans: Mutex::default() })
    }

    /// Returns the same network by the interpreter alone, in the precision of the file.
    pub(crate) fn reference(&self) -> Result<Self, FamilyError> {
        let PhasedOrigin { model, import, source, target, .. } = &*self.origin;
        let (model, source) = (Arc::clone(model), Arc::clone(source));
        let mut reference = Self::of_model(model, import.clone(), Box::new(Ok), source, target)?;
        if let Some(origin) = Arc::get_mut(&mut reference.origin) {
            origin.is_reference = true;
        }
        Ok(reference)
    }

    /// Returns the compiled networks of all plans in memory, in the order in which they were made.
    pub(crate) fn compiled(&self) -> Vec<Arc<Compiled>> {
        let mut plans: Vec<Arc<PhasePlan>> = self.plans().kept.values().map(|kept| Arc::clone(&kept.plan)).collect();
        plans.sort_by_key(|plan| plan.key.number());
        let mut known = HashSet::new();
        let compiled = plans.iter().flat_map(|plan| plan.compiled());
        compiled.filter(|network| known.insert(Arc::as_ptr(network))).collect()
    }

    /// Returns the network of a graph inside a node. Plans whose constants for it are the same
    /// share it.
    pub(crate) fn nested(&self, graph: &NestedGraph, constants: &BTreeMap<String, Constant>) -> Arc<Self> {
        let captured = graph.captured.iter().filter_map(|name| Some((name.clone(), constants.get(name)?.clone())));
        let constants: BTreeMap<String, Constant> = captured.collect();
        let mut inner = self.origin.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let networks = inner.entry(graph.path.clone()).or_default();
        networks.retain(|network| network.strong_count() > 0);
        if let Some(known) =
            networks.iter().filter_map(Weak::upgrade).find(|known| are_same(&known.constants, &constants))
        {
            return known;
        }

        let origin = Arc::clone(&self.origin);
        let network = Arc::new(Self { origin, graph: graph.clone(), constants, plans: Mutex::default() });
        networks.push(Arc::downgrade(&network));
        network
    }

    /// Creates a workspace for one run at a time, also of the graphs inside.
    pub(crate) fn workspace(waiting: Waiting) -> PhasedWorkspace {
        PhasedWorkspace(SwitchedWorkspace::new(waiting))
    }

    /// Runs the network on named tensors, and returns the outputs in order.
    pub(crate) fn run(
        &self,
        workspace: &mut PhasedWorkspace,
        mut tensors: RunTensors,
    ) -> Result<Vec<RunTensor>, FamilyError> {
        let mut plan = self.first_plan(&tensors)?;
        for count in 1.. {
            let mut results = plan.compute(&mut workspace.0, &tensors)?;
            tensors.extend(results.iter().cloned());
            for node in &plan.nodes {
                let computed = self.run_node(node, workspace, &tensors)?;
                tensors.extend(computed.iter().cloned());
                results.extend(computed);
            }
            if plan.is_last {
                let longest = &mut self.plans().longest;
                *longest = count.max(*longest);
                break;
            }

            let mut known = plan.start.clone();
            known.extend(results.iter().map(|(name, tensor)| (name.clone(), TensorFacts::of(tensor))));
            drop(results);
            tensors.retain(|name, _| plan.reads.contains(name));
            plan = self.plan(known)?;
        }
        self.graph.outputs.iter().map(|name| self.tensor(name, &tensors, &self.constants)).collect()
    }

    /// Returns the plan of a run's first phase.
    fn first_plan(&self, tensors: &RunTensors) -> Result<Arc<PhasePlan>, FamilyError> {
        // Rounds of a loop mostly begin alike.
        if let Some(recent) = self.plans().recent.as_ref().filter(|plan| plan.begins_with(tensors)) {
            return Ok(Arc::clone(recent));
        }
        let known = tensors.iter().map(|(name, tensor)| (name.clone(), TensorFacts::of(tensor))).collect();
        let plan = self.plan(known)?;
        self.plans().recent = Some(Arc::clone(&plan));
        Ok(plan)
    }

    /// Returns the plan of the phase that begins with some tensors.
    fn plan(&self, known: BTreeMap<String, TensorFacts>) -> Result<Arc<PhasePlan>, FamilyError> {
        if let Some(plan) = self.plans().find(&known) {
            return Ok(plan);
        }
        let mut maker = self.origin.maker.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(plan) = self.plans().find(&known) {
            return Ok(plan);
        }

        let start = PhaseStart { tensors: known, constants: self.constants.clone() };
        let phase = locked(&self.origin.model).phase(&self.graph.path, &start, &self.origin.import)?;
        let plan = Arc::new(PhasePlan::of(phase, start.tensors, self, &mut maker)?);
        self.plans().keep(&plan);
        Ok(plan)
    }

    fn plans(&self) -> MutexGuard<'_, Plans> {
        self.plans.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a node that runs alone; returns its results by name.
    fn run_node(
        &self,
        planned: &PlannedNode,
        workspace: &mut PhasedWorkspace,
        tensors: &RunTensors,
    ) -> Result<Vec<(String, RunTensor)>, FamilyError> {
        let node = &planned.node;
        let operand = |name: &String| match name.is_empty() {
            true => Ok(None),
            false => self.tensor(name, tensors, &node.constants).map(Some),
        };

        let operands = || node.inputs.iter().map(operand).collect::<Result<Vec<_>, FamilyError>>();
        let results = match &node.work {
            PhaseWork::Node { graph, node: number } => {
                let model = locked(&self.origin.model);
                return Ok(model.run_node(graph, *number, tensors, &node.constants, &self.origin.import)?);
            }
            PhaseWork::If { .. } => control::choose(planned, operands()?, workspace, tensors)?,
            PhaseWork::Loop(_) => control::repeat(planned, operands()?, workspace, tensors)?,
            PhaseWork::Layer { .. } => {
                let read = |(number, name)| if layer::READ.contains(&number) { operand(name) } else { Ok(None) };
                let operands = node.inputs.iter().enumerate().map(read).collect::<Result<Vec<_>, FamilyError>>()?;
                layer::run(planned, operands, workspace, tensors)?
            }
            PhaseWork::Scan { inputs, outputs, .. } => {
                control::scan(planned, (inputs, outputs), operands()?, workspace, tensors)?
            }
        };
        Ok(node.outputs.iter().cloned().zip(results).filter(|(name, _)| !name.is_empty()).collect())
    }

    /// Returns a tensor by name, which may be a constant.
    fn tensor(
        &self,
        name: &str,
        tensors: &RunTensors,
        constants: &BTreeMap<String, Constant>,
    ) -> Result<RunTensor, FamilyError> {
        if let Some(tensor) = tensors.get(name) {
            return Ok(tensor.clone());
        }
        let wrong = |reason: String| ImportError::Tensor { tensor: printable(name), reason };
        let constant = constants.get(name).ok_or_else(|| wrong("no node computes it".into()))?;
        let tensor = Arc::clone(constant.tensor().map_err(|error| wrong(error.to_string()))?);
        Ok(RunTensor { tensor, byte_type: None })
    }
}

impl Plans {
    fn find(&mut self, known: &BTreeMap<String, TensorFacts>) -> Option<Arc<PhasePlan>> {
        self.lookups += 1;
        let kept = self.kept.get_mut(known)?;
        kept.last = self.lookups;
        Some(Arc::clone(&kept.plan))
    }

    /// Keeps a plan; drops the one that was used least recently if there are too many.
    fn keep(&mut self, plan: &Arc<PhasePlan>) {
        if self.kept.len() >= MOST_RUNS.saturating_mul(self.longest.max(1)) {
            let oldest = self.kept.iter().min_by_key(|(_, kept)| kept.last).map(|(known, _)| known.clone());
            oldest.and_then(|oldest| self.kept.remove(&oldest));
        }
        self.kept.insert(plan.start.clone(), KeptPlan { plan: Arc::clone(plan), last: self.lookups });
    }
}

/// True if constants are the same, or equal if they are small.
fn are_same(a: &BTreeMap<String, Constant>, b: &BTreeMap<String, Constant>) -> bool {
    let is_small = |constant: &Constant| constant.shape().iter().product::<usize>() <= MOST_COMPARED;
    let is_same = |a: &Constant, b: &Constant| a.identity() == b.identity() || is_small(a) && is_small(b) && a == b;
    a.len() == b.len() && a.iter().zip(b).all(|((name, a), (other, b))| name == other && is_same(a, b))
}

fn locked<'m>(model: &'m Mutex<Model<'static>>) -> MutexGuard<'m, Model<'static>> {
    model.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns an error about a node that runs alone.
pub(crate) fn wrong(node: &PhaseNode, reason: impl Into<String>) -> FamilyError {
    let source = NodeError::Unfit(reason.into());
    ImportError::Node { node: printable(&node.name), operator: printable(&node.operator), source }.into()
}

/// Returns a tensor of a run.
pub(crate) fn run_tensor(tensor: Tensor) -> RunTensor {
    RunTensor { tensor: Arc::new(tensor), byte_type: None }
}
