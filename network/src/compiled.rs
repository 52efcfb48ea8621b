//! Compiled networks: loading of kernels, packing of constants, and runs in a workspace.

use std::borrow::{Borrow, Cow};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use autotune::Tuned;
use autotune_db::Source;
use autotune_ir::Target;
use autotune_ir::plan::Binding;
use autotune_runtime::{Cpu, DeviceError, Kernel, View, ViewMut, Waiting, bytes_of, bytes_of_mut};

use crate::choose::{Choose, Schedules};
use crate::cut::Cut;
use crate::device::{NetworkOps, StridedCopies};
use crate::error::{CompileError, RunError};
use crate::memory_need::check_memory;
use crate::places::places;
use crate::plan::{ActionKind, ActionOperand, NetworkPlan, SlotSpan, given};
use crate::strided::CopyEnd;
use autotune_graph::GraphError;
use autotune_graph::Tensor;
use autotune_graph::{Graph, GraphNode, NodeId};
use rayon::prelude::*;

pub(crate) mod border;
mod check;
mod in_place;
mod kernel_constants;
mod launches;
mod profile;
mod sizes;
mod spans;
mod store;

use border::has_caller_representation;
pub(crate) use border::{TypedMemory, decode, encode};
pub use check::{Checked, StepError, output_error};
use in_place::slots_in_place;
pub(crate) use in_place::{BoundCalls, InputReads};
pub(crate) use kernel_constants::Constants;
pub use profile::StepTime;
pub use spans::StepSpan;
pub(crate) use store::NetworkStore;

/// A network with its kernels and packed weights, by default for the CPU. Any number of threads may
/// run it concurrently, each in its own [`Workspace`].
pub struct Compiled<D: NetworkOps = Cpu> {
    pub(crate) graph: Graph,
    pub(crate) cut: Cut,
    pub(crate) plan: NetworkPlan,
    /// Kernels and constants that other networks may share.
    pub(crate) store: Arc<NetworkStore<D>>,
    /// Kernels of the plan.
    pub(crate) kernels: Vec<Arc<Kernel<D>>>,
    pub(crate) constants: Constants<D>,
    /// Offset of each slot in a workspace's memory; unused for constants.
    pub(crate) places: Vec<usize>,
    /// Offset of each action's scratch memory; unused for actions without a kernel.
    pub(crate) scratch: Vec<usize>,
    pub(crate) bytes: usize,
    /// Inputs that kernels read directly in the caller's memory: input number by slot.
    pub(crate) in_place: HashMap<usize, usize>,
}

/// State of one run at a time: a device, such as a team of threads, and memory for all intermediate
/// tensors.
pub struct Workspace<D: NetworkOps = Cpu> {
    bound: BoundNetwork<D>,
    pub(crate) device: D,
    memory: D::Memory,
}

/// A network bound to memory.
pub(crate) struct BoundNetwork<D: NetworkOps = Cpu> {
    /// Recording of all calls, where the device supports that.
    recording: Option<D::Recording>,
    /// The plan's actions, bound to the memory.
    calls: Vec<D::Call>,
    network: Arc<Compiled<D>>,
    /// Buffers of the calls that refer to inputs in the caller's memory during a run.
    reads: InputReads,
    failure: Arc<Failure>,
}

/// First error of an interpreted node.
pub(crate) type Failure = Mutex<Option<GraphError>>;

impl Compiled {
    /// Compiles a network for this machine's CPU. The schedules are those that the source knows to
    /// be the fastest for the network ([`race`](crate::race())), else its best schedules for each
    /// workload, else predicted ones.
    pub fn new(graph: &Graph, source: Option<&dyn Source>, target: &Target) -> Result<Arc<Self>, CompileError> {
        Self::on_device(graph, source, target)
    }

    /// Returns the number of threads of a run.
    pub(crate) fn threads(&self) -> usize {
        self.store.origin
    }
}

impl<D: NetworkOps> Compiled<D> {
    /// Compiles a network as [`Compiled::new`] does, for another kind of device, where all steps
    /// must have kernels.
    pub fn on_device(graph: &Graph, source: Option<&dyn Source>, target: &Target) -> Result<Arc<Self>, CompileError> {
        Self::of_cut(graph, Cut::for_target(graph, target), source, target)
    }

    /// Compiles a network like [`Compiled::new`], from given steps.
    pub(crate) fn of_cut(
        graph: &Graph,
        cut: Cut,
        source: Option<&dyn Source>,
        target: &Target,
    ) -> Result<Arc<Self>, CompileError> {
        let mut choose = match source {
            Some(source) => Schedules::of_network(source, target, cut.fingerprint(graph)),
            None => Schedules::kinds(None, target),
        };
        Self::with(graph, cut, &mut choose, Arc::new(NetworkStore::new(D::origin(target)?)))
    }

    /// Compiles the same graph with untuned (predicted) schedules. Kernels and packed weights that
    /// both have in common are shared.
    pub fn untuned_sharing(&self, target: &Target) -> Result<Arc<Self>, CompileError> {
        self.sharing(&mut Schedules::kinds(None, target))
    }

    /// Compiles the same graph with the caller's choice of schedules. Kernels and packed weights
    /// that both have in common are shared.
    pub(crate) fn sharing(&self, choose: &mut dyn Choose) -> Result<Arc<Self>, CompileError> {
        Self::with(&self.graph, self.cut.clone(), choose, Arc::clone(&self.store))
    }

    /// Compiles a network whose kernels and constants are in a store.
    pub(crate) fn with(
        graph: &Graph,
        cut: Cut,
        choose: &mut dyn Choose,
        store: Arc<NetworkStore<D>>,
    ) -> Result<Arc<Self>, CompileError> {
        let plan = NetworkPlan::of(graph, &cut, choose)?;
        let device = D::of(&store.origin)?;
        // A later network of a store may share all that is in memory.
        if store.is_empty() {
            check_memory(&plan, &device)?;
        }
        let kernels: Vec<_> = plan.kernels.par_iter().map(|tuned| store.kernel(tuned)).collect::<Result<_, _>>()?;
        let constants = Constants::of(graph, &plan, &kernels, &device, &store)?;
        store.forget_unused();
        let kernels: Vec<Arc<Kernel<D>>> = kernels.into_iter().map(|stored| stored.kernel).collect();
        let (places, scratch, bytes) = places(&plan, &kernels, &device)?;
        let in_place = if D::READS_CALLERS_MEMORY { slots_in_place(&plan) } else { HashMap::new() };
        let graph = graph.clone();
        Ok(Arc::new(Self { graph, cut, plan, store, kernels, constants, places, scratch, bytes, in_place }))
    }

    /// Returns the graph that the network computes.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Returns the schedules of the kernels.
    pub fn schedules(&self) -> &[Tuned] {
        &self.plan.kernels
    }

    /// Returns the size of the constants in memory, packed or not, in bytes; shared ones count
    /// once.
    pub fn constant_bytes(&self) -> usize {
        self.constants.parts.values().sum()
    }

    /// Returns the size of a workspace's memory in bytes.
    pub fn workspace_bytes(&self) -> usize {
        self.bytes
    }

    /// Creates a workspace: memory and a device, such as a team of threads, for one run at a time.
    pub fn workspace(self: &Arc<Self>) -> Result<Workspace<D>, CompileError> {
        let device = D::of(&self.store.origin)?;
        let memory = device.zeros(self.bytes)?;
        let bound = self.bound(&device, &memory)?;
        Ok(Workspace { bound, device, memory })
    }

    /// Binds the network to memory of at least [`workspace_bytes`](Self::workspace_bytes).
    fn bound(self: &Arc<Self>, device: &D, memory: &D::Memory) -> Result<BoundNetwork<D>, CompileError> {
        let failure = Arc::new(Failure::default());
        let call = |action| self.call(device, memory, action, &failure);
        let calls = (0..self.plan.actions.len()).map(call).collect::<Result<Vec<_>, CompileError>>()?;
        let recording = device.recorded(&calls)?;
        let reads = InputReads::of(&self.plan, &self.kernels, &self.in_place);
        Ok(BoundNetwork { recording, calls, network: Arc::clone(self), reads, failure })
    }

    /// Binds an action to memory.
    fn call(
        self: &Arc<Self>,
        device: &D,
        memory: &D::Memory,
        number: usize,
        failure: &Arc<Failure>,
    ) -> Result<D::Call, CompileError> {
        let action = &self.plan.actions[number];
        let part = |span: SlotSpan| self.part(device, memory, span);
        let spans = || action.operands.iter().filter_map(ActionOperand::span);

        match &action.work {
            ActionKind::Kernel(kernel) => self.kernel(device, memory, number, *kernel),
            ActionKind::Copy(strided) => {
                let from = spans().next().ok_or_else(|| DeviceError::fault("a copy has no source"))?;
                let bytes = self.plan.dtype(from).bytes();
                let end = |span: SlotSpan| {
                    let memory = part(SlotSpan { first: 0, ..span })?;
                    Ok::<_, CompileError>(CopyEnd { memory, first: span.first })
                };
                let (from, to) = (end(from)?, end(action.output)?);
                // SAFETY: as for kernels, see `kernel`.
                unsafe { self.store.origin.copying(device, strided, bytes, from, to) }
            }
            ActionKind::Interpret(node) => {
                let piece = |span| Ok(TypedMemory { memory: part(span)?, dtype: self.plan.dtype(span) });
                let operands = spans().map(piece).collect::<Result<Vec<_>, CompileError>>()?;
                let call = device.interpreter_call(self, *node, operands, piece(action.output)?, failure);
                let (step, operator) = (action.name.clone(), self.graph.node(*node).op.name().into());
                call.ok_or_else(|| CompileError::NoKernel { step, operator, device: device.name() })
            }
        }
    }

    /// Binds a kernel to memory.
    fn kernel(&self, device: &D, memory: &D::Memory, number: usize, kernel: usize) -> Result<D::Call, CompileError> {
        let (action, kernel) = (&self.plan.actions[number], &self.kernels[kernel]);
        let held = self.constants.held[number]
            .as_ref()
            .ok_or_else(|| DeviceError::fault("the constants of a kernel are missing"))?;
        let parts = action.operands.iter().enumerate().map(|(operand, what)| match what {
            ActionOperand::Span(span) => self.part(device, memory, *span).map(Some),
            ActionOperand::Constant(_) => match &held.unpacked[operand] {
                // SAFETY: constants are only read.
                Some(constant) => Ok(Some(unsafe { device.part(constant, 0..device.extent(constant).bytes) }?)),
                None => Ok(None),
            },
        });
        let parts = parts.collect::<Result<Vec<Option<D::Memory>>, CompileError>>()?;
        let operands: Vec<View<D>> = parts
            .iter()
            .zip(given(kernel.plan()))
            .map(|(part, buffer)| match part {
                Some(part) => View::of(part, buffer.dtype, &buffer.shape).in_layout(buffer.layout),
                None => View::packed(),
            })
            .collect();

        let mut output = self.part(device, memory, action.output)?;
        let written = kernel.plan().buffers.iter().find(|buffer| buffer.binding == Binding::Output);
        let mut outputs: Vec<ViewMut<D>> = written
            .map(|buffer| ViewMut::of(&mut output, buffer.dtype, &buffer.shape).in_layout(buffer.layout))
            .into_iter()
            .collect();

        let first = self.scratch[number];
        let bytes = kernel.scratch_bytes(device)?;
        // SAFETY: the plan reserves this range for the action's scratch while it runs.
        let mut scratch = kernel.scratch_in(device, unsafe { device.part(memory, first..first + bytes) }?)?;
        let run = kernel.bind(device, &held.packed, &mut scratch, &operands, &mut outputs)?;
        // SAFETY: kernel, packed constants and memory live in the workspace, as the call does.
        // Calls of a workspace run one after the other, and the plan lets no two tensors overlap
        // that are live at the same time.
        Ok(unsafe { run.into_call() })
    }

    /// Returns the memory from a span's start to the end of its slot.
    fn part(&self, device: &D, memory: &D::Memory, span: SlotSpan) -> Result<D::Memory, CompileError> {
        let end = self.plan.slots[span.slot].bytes().ok_or(CompileError::TooLarge)?;
        let bytes = self.plan.offset(span)..end;
        let (memory, first) = match self.constants.slots[span.slot].as_deref() {
            Some(constant) => (constant, 0),
            None => (memory, self.places[span.slot]),
        };
        // SAFETY: constants are only read. The plan decides when the tensors of a run are read and
        // written.
        let part = unsafe { device.part(memory, first + bytes.start..first + bytes.end) };
        Ok(part?)
    }
}

impl<D: NetworkOps> BoundNetwork<D> {
    /// True if this is the network.
    pub(crate) fn is_of(&self, network: &Arc<Compiled<D>>) -> bool {
        Arc::ptr_eq(&self.network, network)
    }
}

impl<D: NetworkOps> Workspace<D> {
    /// Binds another network of the same device, which needs no more memory, to this memory.
    pub(crate) fn bind(&self, network: &Arc<Compiled<D>>) -> Result<BoundNetwork<D>, CompileError> {
        network.bound(&self.device, &self.memory)
    }

    /// Replaces the network by another that is bound to this memory, and returns the old one.
    pub(crate) fn replace(&mut self, bound: BoundNetwork<D>) -> BoundNetwork<D> {
        std::mem::replace(&mut self.bound, bound)
    }

    /// Returns the size of the memory in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.device.extent(&self.memory).bytes
    }

    /// Changes the behaviour of waiting threads of a CPU; without effect on GPUs.
    pub fn set_waiting(&mut self, waiting: Waiting) {
        self.device.set_waiting(waiting);
    }

    /// Returns the network of the workspace.
    pub fn network(&self) -> &Arc<Compiled<D>> {
        &self.bound.network
    }

    /// Runs the network. Inputs and outputs are row-major, in the order of the graph; integers and
    /// booleans are passed as f32 numbers. Fails if a count or a size does not fit.
    pub fn run(&mut self, inputs: &[&[f32]], outputs: &mut [&mut [f32]]) -> Result<(), RunError> {
        let network = Arc::clone(&self.bound.network);
        network.check_sizes(inputs, outputs)?;
        self.start_on(&network.plan, inputs)?;
        self.read_all(&network.plan, outputs)
    }

    /// Runs the network on tensors, and allocates the outputs.
    pub fn run_tensors(&mut self, inputs: &[impl Borrow<Tensor>]) -> Result<Vec<Tensor>, RunError> {
        let network = Arc::clone(&self.bound.network);
        let numbers: Vec<Cow<[f32]>> = inputs.iter().map(|input| input.borrow().numbers()).collect();
        let inputs: Vec<&[f32]> = numbers.iter().map(|numbers| &**numbers).collect();
        let mut results = self.outputs();
        let mut outputs: Vec<&mut [f32]> = results.iter_mut().map(Vec::as_mut_slice).collect();
        self.run(&inputs, &mut outputs)?;

        let tensor = |(node, numbers): (&GraphNode, Vec<f32>)| {
            Ok(Tensor::from_numbers(&node.shape, node.dtype, numbers).map_err(|source| node.wrong(source))?)
        };
        let nodes = network.graph.outputs().iter().map(|output| network.graph.node(output.node));
        nodes.zip(results).map(tensor).collect()
    }

    /// Allocates buffers for the outputs of [`Workspace::run`].
    pub fn outputs(&self) -> Vec<Vec<f32>> {
        let graph = &self.bound.network.graph;
        let nodes = graph.outputs().iter().map(|output| graph.node(output.node));
        nodes.map(|node| vec![0.0; node.shape.iter().product()]).collect()
    }

    /// Returns the mean seconds of `runs` successive runs on the data of the last run, by the
    /// device's clock, without transfer of inputs and outputs.
    pub fn run_secs(&mut self, runs: usize) -> Result<f64, RunError> {
        let secs = self.device.time(&mut || (0..runs).try_for_each(|_| self.start_all()))?;
        self.check_failure()?;
        Ok(secs / runs as f64)
    }

    /// Reads all outputs after a run.
    fn read_all(&self, plan: &NetworkPlan, outputs: &mut [&mut [f32]]) -> Result<(), RunError> {
        for (output, &span) in outputs.iter_mut().zip(&plan.outputs) {
            self.read(span, output)?;
        }
        Ok(())
    }

    /// Starts all actions on the data in memory.
    fn start_all(&self) -> Result<(), DeviceError> {
        match &self.bound.recording {
            Some(recording) => self.device.replay(recording),
            None => self.device.start_all(&self.bound.calls),
        }
    }

    /// Runs all actions on inputs of the right sizes, which are read in place or copied.
    fn start_on(&mut self, plan: &NetworkPlan, inputs: &[&[f32]]) -> Result<(), RunError> {
        self.copy_inputs(plan, inputs)?;
        let bound = &mut self.bound;
        match &bound.recording {
            Some(recording) => self.device.replay(recording)?,
            // SAFETY: the inputs have the right sizes and are borrowed until this function returns;
            // a device that reads them in place runs its calls synchronously.
            None => unsafe { self.device.run(&mut bound.calls, &mut bound.reads, inputs) }?,
        }
        self.check_failure()
    }

    /// Copies the inputs that are not read in place.
    fn copy_inputs(&mut self, plan: &NetworkPlan, inputs: &[&[f32]]) -> Result<(), RunError> {
        for (number, (&input, &span)) in inputs.iter().zip(&plan.inputs).enumerate() {
            if self.bound.reads.is_copied(number) {
                self.write(span, input)?;
            }
        }
        Ok(())
    }

    /// Runs a range of actions on the data of the last run.
    fn start(&self, actions: Range<usize>) -> Result<(), RunError> {
        self.device.start_all(&self.bound.calls[actions])?;
        self.check_failure()
    }

    fn check_failure(&self) -> Result<(), RunError> {
        match self.bound.failure.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(error) => Err(error.into()),
            None => Ok(()),
        }
    }

    /// Writes a tensor before a run.
    fn write(&mut self, span: SlotSpan, numbers: &[f32]) -> Result<(), DeviceError> {
        let (dtype, first) = (self.bound.network.plan.dtype(span), self.place(span).1);
        if has_caller_representation(dtype) {
            return self.device.write(&mut self.memory, first, bytes_of(numbers));
        }
        let mut elements = vec![0; numbers.len() * dtype.bytes()];
        encode(dtype, numbers, &mut elements);
        self.device.write(&mut self.memory, first, &elements)
    }

    /// Reads the first `numbers.len()` elements of a tensor after a run.
    fn read(&self, span: SlotSpan, numbers: &mut [f32]) -> Result<(), DeviceError> {
        let (dtype, (memory, first)) = (self.bound.network.plan.dtype(span), self.place(span));
        if has_caller_representation(dtype) {
            return self.device.read(memory, first, bytes_of_mut(numbers));
        }
        let mut elements = vec![0; numbers.len() * dtype.bytes()];
        self.device.read(memory, first, &mut elements)?;
        decode(dtype, &elements, numbers);
        Ok(())
    }

    /// Returns the first `len` elements of a tensor after a run.
    fn result(&self, span: SlotSpan, len: usize) -> Result<Vec<f32>, DeviceError> {
        let mut numbers = vec![0.0; len];
        self.read(span, &mut numbers)?;
        Ok(numbers)
    }
}

/// Returns a function that computes a node by the interpreter.
pub(crate) fn interpreter(
    network: &Arc<Compiled>,
    node: NodeId,
    operands: Vec<TypedMemory>,
    output: TypedMemory,
    failure: &Arc<Failure>,
) -> impl Fn() + Send + Sync + 'static {
    let (network, failure, output) = (Arc::clone(network), Arc::clone(failure), Mutex::new(output));
    move || {
        let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = interpret(&network.graph, node, &operands, &mut output) {
            // Calls cannot fail, so the first error is kept for the end of the run.
            failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        }
    }
}

/// Computes a node by the interpreter.
fn interpret(graph: &Graph, id: NodeId, operands: &[TypedMemory], output: &mut TypedMemory) -> Result<(), GraphError> {
    let node = graph.node(id);
    let tensor = |(piece, &id): (&TypedMemory, &NodeId)| {
        let GraphNode { shape, dtype, .. } = graph.node(id);
        Tensor::of_numbers(shape, *dtype, &piece.numbers(shape.iter().product()))
    };
    let tensors = operands
        .iter()
        .zip(&node.operands)
        .map(tensor)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|source| node.wrong(source))?;
    let result = node.op.evaluate(&tensors.iter().collect::<Vec<_>>()).map_err(|source| node.wrong(source))?;
    output.put(&result.to_numbers());
    Ok(())
}
