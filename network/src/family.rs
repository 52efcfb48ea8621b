//! Networks whose input shapes change from run to run.
//!
//! A [`Family`] makes a network for a shape when the shape is first seen: the graph of that shape,
//! rewritten and planned like any other. Kernels and packed weights that networks have in common
//! are in memory once. The networks used least recently are dropped.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use autotune::Tuned;
use autotune_db::Source;
use autotune_graph::onnx::{DeclaredInput, ImportError, ImportOptions, Model};
use autotune_graph::rewrite::Rewriter;
use autotune_graph::{EvaluateError, Graph, GraphError, Tensor, printable};
use autotune_ir::Target;
use autotune_runtime::{Cpu, Waiting};
use thiserror::Error;

use crate::choose::{PACKING_LOSS, SCARCE_PACKING_LOSS, Schedules};
use crate::compiled::{Compiled, NetworkStore, Workspace};
use crate::cut::Cut;
use crate::device::NetworkOps;
use crate::error::{CompileError, RunError};
use crate::pinned::{PinnedNetwork, pinned_in};
use crate::switched::SwitchedWorkspace;

mod shape;

pub use shape::{Extents, OutsideError, ShapeRange, ShapeRangeError};

/// Number of networks in a row that are not kept because they share few constants.
const MOST_REFUSED: usize = 2;

/// Shapes of all inputs of a network, in the order of the inputs.
pub type InputShapes = Vec<Vec<usize>>;

/// Inputs of a family and the limits of its memory.
#[derive(Clone, Debug)]
pub struct FamilyOptions {
    /// Names of the inputs and the shapes that they may have.
    pub inputs: Vec<(String, ShapeRange)>,
    /// Maximum number of networks that are kept, each for one shape.
    pub most_networks: usize,
    /// Maximum memory of all constants, relative to those of the network that has most.
    pub most_constants: f64,
    /// Memory of constants in addition to those of the network that has most, in bytes, that is
    /// always permitted. Small networks may so be kept although they share few constants.
    pub spare_constant_bytes: usize,
    /// Plans of networks for some shapes, which are not made again.
    pub pinned: Vec<PinnedNetwork>,
}

impl FamilyOptions {
    /// Creates options with the default limits: 32 networks, and an eighth or 24 MiB more memory
    /// than the largest of them.
    pub fn of_inputs(inputs: Vec<(String, ShapeRange)>) -> Self {
        let (most_networks, most_constants, spare_constant_bytes) = (32, 1.125, 24 << 20);
        Self { inputs, most_networks, most_constants, spare_constant_bytes, pinned: Vec::new() }
    }

    /// Returns the maximum memory of all constants in addition to those of the network that has
    /// most, in bytes.
    fn additional_bytes(&self, largest: usize) -> usize {
        let share = (self.most_constants - 1.0) * largest as f64;
        (share as usize).max(self.spare_constant_bytes)
    }
}

/// Reason that there is no network for a shape, or that it does not run.
#[derive(Debug, Error)]
pub enum FamilyError {
    /// A shape is outside of the family.
    #[error("input '{}': {source}", printable(input))]
    Outside {
        /// Name of the input.
        input: String,
        /// Cause of the failure.
        source: OutsideError,
    },
    /// The file has no graph for the shapes.
    #[error(transparent)]
    Import(#[from] ImportError),
    /// The graph cannot be rewritten.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// The network cannot be compiled.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// The network cannot run.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The interpreter cannot compute a part.
    #[error(transparent)]
    Evaluate(#[from] EvaluateError),
}

impl FamilyError {
    /// True if shapes or graphs of the model depend on the data of a run.
    pub(crate) fn needs_phases(&self) -> bool {
        matches!(self, Self::Import(error) if error.needs_phases())
    }
}

/// Function that returns the graph, not rewritten, for the shapes of its inputs.
pub type MakeGraph = Box<dyn FnMut(&[Vec<usize>]) -> Result<Graph, FamilyError> + Send>;

/// A network for any shapes of its inputs. Any number of threads may use it, each with its own
/// [`FamilyWorkspace`].
pub struct Family<D: NetworkOps = Cpu> {
    options: FamilyOptions,
    target: Target,
    source: Arc<dyn Source>,
    store: Arc<NetworkStore<D>>,
    maker: Mutex<GraphMaker>,
    networks: Mutex<Networks<D>>,
}

/// Source of a family's graphs.
struct GraphMaker {
    make: MakeGraph,
    rewriter: Rewriter,
}

/// Networks by the shapes of their inputs.
struct Networks<D: NetworkOps> {
    kept: HashMap<InputShapes, KeptNetwork<D>>,
    /// Number of look-ups so far.
    lookups: u64,
    /// Number of networks in a row that were made and not kept.
    refused: usize,
    /// True once constants have exceeded the limit: sharing packed ones is then worth more time.
    are_scarce: bool,
}

struct KeptNetwork<D: NetworkOps> {
    network: Arc<Compiled<D>>,
    /// Number of the last look-up.
    last: u64,
}

impl<D: NetworkOps> Family<D> {
    /// Creates the family of a model. `prepare` changes an imported graph, such as its precision.
    /// Shapes that the options of the import give are not used. Schedules come from the source, or
    /// are predicted.
    pub fn of_model(
        model: Model<'static>,
        import: ImportOptions,
        prepare: impl FnMut(Graph) -> Result<Graph, GraphError> + Send + 'static,
        options: FamilyOptions,
        source: Arc<dyn Source>,
        target: &Target,
    ) -> Result<Arc<Self>, FamilyError> {
        Self::of_shared(Arc::new(Mutex::new(model)), move || import.clone(), prepare, options, source, target)
    }

    /// Creates the family of a model that others use, too. `import` returns the options for the
    /// next network.
    pub(crate) fn of_shared(
        model: Arc<Mutex<Model<'static>>>,
        mut import: impl FnMut() -> ImportOptions + Send + 'static,
        mut prepare: impl FnMut(Graph) -> Result<Graph, GraphError> + Send + 'static,
        options: FamilyOptions,
        source: Arc<dyn Source>,
        target: &Target,
    ) -> Result<Arc<Self>, FamilyError> {
        let names: Vec<String> = options.inputs.iter().map(|(name, _)| name.clone()).collect();
        let make = move |shapes: &[Vec<usize>]| {
            let shapes = names.iter().cloned().zip(shapes.iter().cloned()).collect();
            let import = import();
            let model = model.lock().unwrap_or_else(PoisonError::into_inner);
            Ok(prepare(model.graph(&ImportOptions { shapes, ..import })?)?)
        };
        Self::new(options, Box::new(make), source, target)
    }

    /// Creates the family of one network, whose shapes are fixed.
    pub fn of_network(
        network: Arc<Compiled<D>>,
        source: Arc<dyn Source>,
        target: &Target,
    ) -> Result<Arc<Self>, FamilyError> {
        let graph = network.graph().clone();
        let inputs = ShapeRange::of_inputs(&DeclaredInput::of_graph(&graph), &BTreeMap::new());
        let options = FamilyOptions::of_inputs(inputs);
        let shapes: InputShapes = graph.inputs().iter().map(|&input| graph.node(input).shape.clone()).collect();

        let make = move |_: &[Vec<usize>]| Ok(graph.clone());
        let family = Self::new(options, Box::new(make), source, target)?;
        family.networks().keep(&shapes, &network, &family.options);
        Ok(family)
    }

    /// Creates a family of the graphs that a function makes.
    pub fn new(
        options: FamilyOptions,
        make: MakeGraph,
        source: Arc<dyn Source>,
        target: &Target,
    ) -> Result<Arc<Self>, FamilyError> {
        let origin = D::origin(target).map_err(CompileError::from)?;
        let maker = Mutex::new(GraphMaker { make, rewriter: Rewriter::default() });
        let networks = Mutex::new(Networks { kept: HashMap::new(), lookups: 0, refused: 0, are_scarce: false });
        let (store, target) = (Arc::new(NetworkStore::new(origin)), target.clone());
        Ok(Arc::new(Self { options, target, source, store, maker, networks }))
    }

    /// Returns the names of the inputs and the shapes that they may have.
    pub fn inputs(&self) -> &[(String, ShapeRange)] {
        &self.options.inputs
    }

    /// Returns the number of networks that are kept.
    pub fn len(&self) -> usize {
        self.networks().kept.len()
    }

    /// Returns the size of the constants of all networks that are kept, in bytes; shared ones count
    /// once.
    pub fn constant_bytes(&self) -> usize {
        self.networks().constant_bytes()
    }

    /// True if no network is kept.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// True if the network for shapes of the inputs is in memory.
    pub fn has(&self, shapes: &[Vec<usize>]) -> bool {
        self.networks().kept.contains_key(shapes)
    }

    /// Returns the network for shapes of the inputs. It is compiled if the family has none.
    pub fn network(&self, shapes: &[Vec<usize>]) -> Result<Arc<Compiled<D>>, FamilyError> {
        if let Some(known) = self.known(shapes) {
            return Ok(known);
        }
        self.check(shapes)?;
        // One network is made at a time: others can then share what it packs.
        let mut maker = self.maker.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = self.known(shapes) {
            return Ok(known);
        }

        let GraphMaker { make, rewriter } = &mut *maker;
        let (graph, _) = rewriter.rewrite(&make(shapes)?)?;
        let mut network = self.compiled(&graph)?;
        if self.networks().become_scarce_with(&network, &self.options) {
            network = self.compiled(&graph)?;
        }
        self.networks().keep(shapes, &network, &self.options);
        Ok(network)
    }

    /// Returns the plans of the networks that are kept.
    pub fn pinned(&self) -> Vec<PinnedNetwork> {
        self.networks().kept.values().map(|kept| PinnedNetwork::of(&kept.network, &self.target)).collect()
    }

    fn compiled(&self, graph: &Graph) -> Result<Arc<Compiled<D>>, CompileError> {
        if let Some(network) = pinned_in(&self.store, graph, &self.options.pinned, &self.target)? {
            return Ok(released(network));
        }
        let packing_loss = if self.networks().are_scarce { SCARCE_PACKING_LOSS } else { PACKING_LOSS };
        compiled_in(&self.store, graph, &*self.source, &self.target, packing_loss)
    }

    fn networks(&self) -> MutexGuard<'_, Networks<D>> {
        self.networks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self, shapes: &[Vec<usize>]) -> Option<Arc<Compiled<D>>> {
        let mut networks = self.networks();
        networks.lookups += 1;
        let last = networks.lookups;
        let kept = networks.kept.get_mut(shapes)?;
        kept.last = last;
        let network = Arc::clone(&kept.network);
        networks.refused = 0;
        Some(network)
    }

    /// Fails unless the family has a network for shapes of the inputs.
    pub(crate) fn check(&self, shapes: &[Vec<usize>]) -> Result<(), FamilyError> {
        let (found, wanted) = (shapes.len(), self.options.inputs.len());
        if found != wanted {
            return Err(RunError::Count { what: "inputs", found, wanted }.into());
        }
        for (shape, (name, range)) in shapes.iter().zip(&self.options.inputs) {
            range.check(shape).map_err(|source| FamilyError::Outside { input: name.clone(), source })?;
        }
        Ok(())
    }

    /// Creates a workspace: memory and a device, such as a team of threads, for one run at a time.
    pub fn workspace(self: &Arc<Self>) -> FamilyWorkspace<D> {
        FamilyWorkspace { family: Arc::clone(self), switched: SwitchedWorkspace::new(Waiting::default()) }
    }
}

/// Compiles one of many networks, of a rewritten graph, which share kernels and packed weights.
pub(crate) fn compiled_in<D: NetworkOps>(
    store: &Arc<NetworkStore<D>>,
    graph: &Graph,
    source: &dyn Source,
    target: &Target,
    packing_loss: f32,
) -> Result<Arc<Compiled<D>>, CompileError> {
    let cut = Cut::for_target(graph, target);
    let schedules = Schedules::of_network(source, target, cut.fingerprint(graph));
    let mut choose = schedules.similar_to(store.similar_schedules(), packing_loss);
    Compiled::with(graph, cut, &mut choose, Arc::clone(store)).map(released)
}

/// Frees the loop nests of a new network: those of many networks would need much memory.
fn released<D: NetworkOps>(mut network: Arc<Compiled<D>>) -> Arc<Compiled<D>> {
    if let Some(network) = Arc::get_mut(&mut network) {
        network.plan.kernels.iter_mut().for_each(Tuned::release);
    }
    network
}

impl<D: NetworkOps> Networks<D> {
    /// Returns true if constants become scarce: they were not so far, and exceed the limit with
    /// those of a new network.
    fn become_scarce_with(&mut self, network: &Compiled<D>, options: &FamilyOptions) -> bool {
        let become_scarce = !self.are_scarce && !self.fit_with(Some(network), options);
        self.are_scarce |= become_scarce;
        become_scarce
    }

    /// True if all constants, also those of one more network, are within the limit.
    fn fit_with(&self, more: Option<&Compiled<D>>, options: &FamilyOptions) -> bool {
        let networks = || self.kept.values().map(|kept| &*kept.network).chain(more);
        let largest = networks().map(Compiled::constant_bytes).max().unwrap_or_default();
        constant_bytes(networks()).saturating_sub(largest) <= options.additional_bytes(largest)
    }

    /// Returns the size of the constants of the network that has most, in bytes.
    fn largest(&self) -> usize {
        self.kept.values().map(|kept| kept.network.constant_bytes()).max().unwrap_or_default()
    }

    /// Keeps a network, and drops others, least recently used first, that exceed the limits.
    ///
    /// A network whose own constants alone exceed the limit is not kept, since all others would
    /// have to be dropped. If such networks follow each other, they replace the others.
    fn keep(&mut self, shapes: &[Vec<usize>], network: &Arc<Compiled<D>>, options: &FamilyOptions) {
        let is_within =
            |networks: &Self| networks.kept.len() <= options.most_networks && networks.fit_with(None, options);
        let before = self.constant_bytes();
        self.kept.insert(shapes.to_vec(), KeptNetwork { network: Arc::clone(network), last: self.lookups });
        let own = self.constant_bytes() - before;
        let exceeds = before > 0 && own > options.additional_bytes(self.largest());
        if exceeds && self.refused < MOST_REFUSED {
            self.kept.remove(shapes);
            self.refused += 1;
            return;
        }
        self.refused = 0;

        let mut in_order: Vec<(u64, InputShapes)> =
            self.kept.iter().map(|(shapes, kept)| (kept.last, shapes.clone())).collect();
        in_order.sort_unstable_by(|a, b| b.cmp(a));
        // The new network is the last in this order, and is always kept.
        while in_order.len() > 1 && !is_within(self) {
            in_order.pop().map(|(_, oldest)| self.kept.remove(&oldest));
        }
    }

    /// Returns the size of all constants in bytes; shared ones count once.
    fn constant_bytes(&self) -> usize {
        constant_bytes(self.kept.values().map(|kept| &*kept.network))
    }
}

/// Returns the size of all constants of networks in bytes; shared ones count once.
fn constant_bytes<'a, D: NetworkOps + 'a>(networks: impl Iterator<Item = &'a Compiled<D>>) -> usize {
    let parts = networks.flat_map(|network| &network.constants.parts);
    parts.collect::<HashMap<&usize, &usize>>().into_values().sum()
}

/// State of one run at a time, for any network of a family.
pub struct FamilyWorkspace<D: NetworkOps = Cpu> {
    family: Arc<Family<D>>,
    switched: SwitchedWorkspace<InputShapes, D>,
}

impl<D: NetworkOps> FamilyWorkspace<D> {
    /// Changes the behaviour of waiting threads, as [`Workspace::set_waiting`].
    pub fn set_waiting(&mut self, waiting: Waiting) {
        self.switched.set_waiting(waiting);
    }

    /// Returns the workspace with the network for shapes of the inputs.
    pub fn of(&mut self, shapes: &[Vec<usize>]) -> Result<&mut Workspace<D>, FamilyError> {
        let (family, mut networks) = (&self.family, None);
        // Networks that the family has dropped are not kept here either.
        let is_kept = |shapes: &InputShapes| {
            let networks = networks.get_or_insert_with(|| family.networks());
            networks.kept.contains_key(shapes)
        };
        self.switched.of(shapes, || family.network(shapes), is_kept)
    }

    /// Runs the network for the shapes of the tensors, and allocates the outputs.
    pub fn run_tensors(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>, FamilyError> {
        let shapes: InputShapes = inputs.iter().map(|input| input.shape().to_vec()).collect();
        Ok(self.of(&shapes)?.run_tensors(inputs)?)
    }
}
