//! A plan: actions on memory, with schedules of steps, layouts of tensors, and conversions where
//! they differ.

use std::collections::HashMap;

use autotune::Tuned;
use autotune_ir::plan::{Binding, PlanBuffer};
use autotune_ir::program::{Layout, Role};
use autotune_ir::{DType, KernelPlan};
use autotune_runtime::DeviceError;
use autotune_workloads::Workload;

use crate::choose::{BlockedRoots, Choice, Choose};
use crate::conversion::{self, Form};
use crate::cut::{Cut, MemoryValue, Step, StepWork, Strided, ValueId};
use crate::error::CompileError;
use crate::layouts::Layouts;
use crate::options::Options;
use autotune_graph::{Graph, NodeId};

/// Memory of a tensor, or of several that are parts of one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Slot {
    pub(crate) elements: usize,
    /// Element type in memory.
    pub(crate) dtype: DType,
    pub(crate) content: SlotContent,
}

/// Content of a slot.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum SlotContent {
    /// Tensors of a run.
    Run,
    /// A constant in a layout.
    Constant(NodeId, Layout),
}

/// Elements of a slot from one on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SlotSpan {
    pub(crate) slot: usize,
    pub(crate) first: usize,
}

/// An operation on slots.
#[derive(Clone, Debug)]
pub(crate) struct Action {
    pub(crate) name: String,
    pub(crate) work: ActionKind,
    pub(crate) operands: Vec<ActionOperand>,
    pub(crate) output: SlotSpan,
    /// Value that the action writes, and its layout.
    pub(crate) value: (ValueId, Layout),
    /// True if the action only converts a value's layout or element type.
    pub(crate) is_conversion: bool,
}

/// Operand of an action.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ActionOperand {
    /// Elements of a slot.
    Span(SlotSpan),
    /// A constant that a kernel packs ahead of time, and may also read in every run.
    Constant(NodeId),
}

/// Operation of an action.
#[derive(Clone, Debug)]
pub(crate) enum ActionKind {
    /// Runs the kernel with this number in [`NetworkPlan::kernels`].
    Kernel(usize),
    /// Copies elements between places in memory.
    Copy(Strided),
    /// Computes a node by the interpreter.
    Interpret(NodeId),
}

/// A network's kernels, memory, and actions in order.
pub(crate) struct NetworkPlan {
    pub(crate) kernels: Vec<Tuned>,
    pub(crate) slots: Vec<Slot>,
    pub(crate) actions: Vec<Action>,
    /// Memory of the graph's inputs, row-major.
    pub(crate) inputs: Vec<SlotSpan>,
    /// Memory of the graph's outputs, row-major.
    pub(crate) outputs: Vec<SlotSpan>,
    /// Values with their own memory that are not plain, and their layouts.
    pub(crate) blocked: BlockedRoots,
}

struct NetworkPlanner<'a, 'c> {
    graph: &'a Graph,
    cut: &'a Cut,
    options: &'a Options<'a>,
    layouts: &'a Layouts,
    choose: &'c mut dyn Choose,
    plan: NetworkPlan,
    /// Numbers of kernels in [`NetworkPlan::kernels`], by workload and hash of the config.
    numbers: HashMap<(Workload, u64), usize>,
    /// Slot and form of each root value, a value that is in no other value's memory.
    roots: HashMap<ValueId, (usize, Form)>,
    /// Converted copies of values, by form.
    converted: HashMap<(ValueId, Form), SlotSpan>,
}

impl Slot {
    /// Returns the size in bytes; `None` on overflow.
    pub(crate) fn bytes(&self) -> Option<usize> {
        self.elements.checked_mul(self.dtype.bytes())
    }
}

impl ActionOperand {
    /// Returns the span, if the operand is one.
    pub(crate) fn span(&self) -> Option<SlotSpan> {
        match self {
            Self::Span(span) => Some(*span),
            Self::Constant(_) => None,
        }
    }

    /// Returns the constant, if the operand is one.
    pub(crate) fn constant(&self) -> Option<NodeId> {
        match self {
            Self::Span(_) => None,
            Self::Constant(node) => Some(*node),
        }
    }
}

impl NetworkPlan {
    /// Creates the plan that is fastest by the known times of schedules, or the one with fixed
    /// layouts.
    pub(crate) fn of(graph: &Graph, cut: &Cut, choose: &mut dyn Choose) -> Result<Self, CompileError> {
        let options = Options::of(graph, cut, choose)?;
        let fixed = choose.blocked_roots().map(|blocked| options.with_roots(blocked));
        Self::with(&options, &fixed.unwrap_or_else(|| options.least()), choose)
    }

    /// Creates the plan for a choice of layouts and schedules.
    pub(crate) fn with(options: &Options, layouts: &Layouts, choose: &mut dyn Choose) -> Result<Self, CompileError> {
        let (graph, cut) = (options.graph, options.cut);
        let (kernels, slots, actions, inputs, outputs) = (vec![], vec![], vec![], vec![], vec![]);
        let own = layouts.roots.iter().filter(|(_, layout)| **layout != Layout::Plain);
        let blocked = own.map(|(&root, &layout)| (root, layout)).collect();
        let plan = NetworkPlan { kernels, slots, actions, inputs, outputs, blocked };
        let (numbers, roots, converted) = (HashMap::new(), HashMap::new(), HashMap::new());
        let mut planner = NetworkPlanner { graph, cut, options, layouts, choose, plan, numbers, roots, converted };

        // The caller sees plain layouts.
        for &input in &cut.inputs {
            let span = planner.in_form(input, planner.plain(input))?;
            planner.plan.inputs.push(span);
        }
        for (number, step) in cut.steps.iter().enumerate() {
            planner.step(step, number)?;
        }
        for &output in &cut.outputs {
            let span = planner.in_form(output, planner.plain(output))?;
            planner.plan.outputs.push(span);
        }
        Ok(planner.plan)
    }

    /// Returns the element type of a span.
    pub(crate) fn dtype(&self, span: SlotSpan) -> DType {
        self.slots[span.slot].dtype
    }

    /// Returns the offset of a span in its slot, in bytes.
    pub(crate) fn offset(&self, span: SlotSpan) -> usize {
        span.first * self.dtype(span).bytes()
    }

    /// True if a span begins at a multiple of `alignment` bytes in its slot.
    fn is_aligned(&self, span: SlotSpan, alignment: usize) -> bool {
        self.offset(span).is_multiple_of(alignment)
    }

    /// Returns the schedule of each step.
    pub(crate) fn choice(&self) -> Choice {
        let steps = self.actions.iter().filter(|action| !action.is_conversion);
        steps.map(|step| self.kernel(step).cloned()).collect()
    }

    /// Returns the schedules of conversions, in the order of execution.
    pub(crate) fn conversions(&self) -> impl Iterator<Item = &Tuned> {
        self.actions.iter().filter(|action| action.is_conversion).filter_map(|action| self.kernel(action))
    }

    fn kernel(&self, action: &Action) -> Option<&Tuned> {
        match action.work {
            ActionKind::Kernel(kernel) => Some(&self.kernels[kernel]),
            ActionKind::Copy(_) | ActionKind::Interpret(_) => None,
        }
    }
}

impl NetworkPlanner<'_, '_> {
    fn step(&mut self, step: &Step, number: usize) -> Result<(), CompileError> {
        match &step.work {
            StepWork::Kernel(_) => self.kernel(step, number),
            StepWork::Copy(strided) => self.on_plain(step, ActionKind::Copy(strided.clone())),
            StepWork::Interpret(node) => self.on_plain(step, ActionKind::Interpret(*node)),
        }
    }

    /// Returns the row-major form of a value in its own element type.
    fn plain(&self, value: ValueId) -> Form {
        Form { layout: Layout::Plain, dtype: self.cut.value(value).dtype }
    }

    /// Adds a step on row-major tensors.
    fn on_plain(&mut self, step: &Step, work: ActionKind) -> Result<(), CompileError> {
        let written = self.plain(step.output);
        let read = |planner: &mut Self, operand| match work {
            // A copy does not convert element types, so its operand is converted first.
            ActionKind::Copy(_) => planner.in_form(operand, written),
            _ => planner.in_form(operand, planner.plain(operand)),
        };
        let operands = step.operands.iter().map(|&operand| Ok(ActionOperand::Span(read(self, operand)?)));
        let operands = operands.collect::<Result<Vec<_>, CompileError>>()?;
        // Copies write to any address, and so does the interpreter.
        let (output, convert) = self.written(step.output, written, 1);
        let value = (step.output, Layout::Plain);
        let name = step.name.clone();
        self.plan.actions.push(Action { name, work, operands, output, value, is_conversion: false });
        self.after(step.output, output, convert)
    }

    fn kernel(&mut self, step: &Step, number: usize) -> Result<(), CompileError> {
        // The reference is copied, so that `pick` does not borrow the planner.
        let options = self.options;
        let pick = options.schedules[number].get(self.layouts.picks[number]);
        let pick = pick.ok_or_else(|| DeviceError::fault("the chosen schedule does not exist"))?;
        let (plan, number) = (pick.plan()?, self.kernel_of(pick));
        // An elementwise kernel takes over its operand's layout.
        let follows = if self.options.follows_layouts(step) { self.layout(step.operands[0]) } else { None };

        let mut operands = Vec::new();
        for buffer in given(plan) {
            let Role::Operand(place) = buffer.role else { continue };
            let value = step.operands[place];
            let node = self.cut.value(value).node;
            let is_packed = matches!(buffer.binding, Binding::Constant { .. });
            // A packed buffer is filled before all runs, so its operand must be a constant.
            operands.push(match (is_packed, self.graph.constant_of(node)) {
                (true, Some(_)) => ActionOperand::Constant(node),
                (true, None) => return Err(CompileError::NotConstant { step: step.name.clone() }),
                (false, _) => {
                    // Operands that broadcast, such as a bias, stay in the layout that the kernel
                    // was built for.
                    let is_whole = self.cut.value(value).shape == self.cut.value(step.output).shape;
                    let layout = follows.filter(|_| is_whole).unwrap_or(buffer.layout);
                    ActionOperand::Span(self.aligned(value, Form { layout, dtype: buffer.dtype })?)
                }
            });
        }
        let written = plan.buffers.iter().find(|buffer| buffer.binding == Binding::Output);
        let layout = follows.or(written.map(|buffer| buffer.layout)).unwrap_or(Layout::Plain);
        let dtype = written.map_or(self.cut.value(step.output).dtype, |buffer| buffer.dtype);
        let (output, convert) = self.written(step.output, Form { layout, dtype }, self.alignment());
        let (name, work, value) = (step.name.clone(), ActionKind::Kernel(number), (step.output, layout));
        self.plan.actions.push(Action { name, work, operands, output, value, is_conversion: false });
        self.after(step.output, output, convert)
    }

    /// Returns the number of a schedule's kernel; adds the kernel if it is new.
    fn kernel_of(&mut self, tuned: &Tuned) -> usize {
        // Steps with the same workload and config share one loaded kernel.
        let next = self.plan.kernels.len();
        let number = *self.numbers.entry((tuned.workload().clone(), tuned.candidate().stable_hash())).or_insert(next);
        if number == next {
            self.plan.kernels.push(tuned.clone());
        }
        number
    }

    /// Returns the layout of a value, if it has memory.
    fn layout(&self, value: ValueId) -> Option<Layout> {
        self.roots.get(&self.cut.root(value).0).map(|(_, form)| form.layout)
    }

    /// Adds a slot for a value.
    fn slot(&mut self, value: ValueId, dtype: DType, content: SlotContent) -> usize {
        let elements = self.cut.value(value).shape.iter().product();
        self.plan.slots.push(Slot { elements, dtype, content });
        self.plan.slots.len() - 1
    }

    /// Returns a value's span in its own form; its root must have a slot.
    fn own_span(&self, value: ValueId) -> SlotSpan {
        let (root, first) = self.cut.root(value);
        SlotSpan { slot: self.roots[&root].0, first }
    }

    /// Returns a value's span in a form, and adds a conversion if necessary.
    fn in_form(&mut self, value: ValueId, form: Form) -> Result<SlotSpan, CompileError> {
        // Types with the same bits count as one, so that no conversion is made between them.
        let form = self.own_type(value, form);
        let root = self.cut.root(value).0;
        if let Some(&span) = self.converted.get(&(value, form)) {
            return Ok(span);
        }

        let node = self.cut.value(root).node;
        let is_constant = self.graph.constant_of(node).is_some();
        // A whole constant is laid out ahead of time in each form.
        if is_constant && root == value {
            let slot = self.slot(value, form.dtype, SlotContent::Constant(node, form.layout));
            let span = SlotSpan { slot, first: 0 };
            self.converted.insert((value, form), span);
            return Ok(span);
        }

        if !self.roots.contains_key(&root) {
            // The value is an input of the network, or a constant with parts.
            let content = if is_constant { SlotContent::Constant(node, Layout::Plain) } else { SlotContent::Run };
            let plain = self.plain(root);
            let slot = self.slot(root, plain.dtype, content);
            self.roots.insert(root, (slot, plain));
        }

        let (own, is) = (self.own_span(value), self.roots[&root].1);
        if is == form {
            return Ok(own);
        }
        let slot = self.slot(value, form.dtype, SlotContent::Run);
        let span = SlotSpan { slot, first: 0 };
        self.convert(value, (own, is), (span, form))?;
        // Later readers of this form share the conversion.
        self.converted.insert((value, form), span);
        Ok(span)
    }

    /// Returns the alignment in bytes that operands of kernels need.
    fn alignment(&self) -> usize {
        conversion::operand_alignment(self.choose.target())
    }

    /// Returns a value's span in a form at an address that kernels can read.
    fn aligned(&mut self, value: ValueId, form: Form) -> Result<SlotSpan, CompileError> {
        let own = self.in_form(value, form)?;
        if self.plan.is_aligned(own, self.alignment()) {
            return Ok(own);
        }
        let form = self.own_type(value, form);
        let span = SlotSpan { slot: self.slot(value, form.dtype, SlotContent::Run), first: 0 };
        self.convert(value, (own, form), (span, form))?;
        self.converted.insert((value, form), span);
        Ok(span)
    }

    /// Returns the span that a step writes in a form, at an aligned address, and that form if a
    /// conversion must follow.
    fn written(&mut self, value: ValueId, form: Form, alignment: usize) -> (SlotSpan, Option<Form>) {
        let form = self.own_type(value, form);
        let root = self.cut.root(value).0;
        // The first writer creates the root's memory; other parts of the root are written to it
        // later.
        if !self.roots.contains_key(&root) {
            let layout = self.layouts.roots.get(&root).copied().unwrap_or(Layout::Plain);
            let own = Form { layout, ..self.plain(root) };
            let slot = self.slot(root, own.dtype, SlotContent::Run);
            self.roots.insert(root, (slot, own));
        }
        let own = self.own_span(value);
        if self.roots[&root].1 == form && self.plan.is_aligned(own, alignment) {
            return (own, None);
        }
        // The step writes its own form to separate memory, from which [`Self::after`] converts it.
        let slot = self.slot(value, form.dtype, SlotContent::Run);
        (SlotSpan { slot, first: 0 }, Some(form))
    }

    /// Replaces the form's element type by the value's own where both have the same representation.
    fn own_type(&self, value: ValueId, form: Form) -> Form {
        let own = self.cut.value(value).dtype;
        if own.has_same_bits_as(form.dtype) { Form { dtype: own, ..form } } else { form }
    }

    /// Adds the conversion of a written value to its own form, if required.
    fn after(&mut self, value: ValueId, written: SlotSpan, convert: Option<Form>) -> Result<(), CompileError> {
        let Some(form) = convert else { return Ok(()) };
        let root = self.cut.root(value).0;
        let to = (self.own_span(value), self.roots[&root].1);
        self.convert(value, (written, form), to)?;
        // Readers of the written form use it directly.
        self.converted.insert((value, form), written);
        Ok(())
    }

    /// Returns the form in between if one kernel cannot convert a tensor.
    fn form_between(&self, (from, is): (SlotSpan, Form), (to, wanted): (SlotSpan, Form)) -> Option<Form> {
        let is_aligned = |span| self.plan.is_aligned(span, self.alignment());
        let are_blocked = ![is, wanted].map(|form| form.layout).contains(&Layout::Plain);
        let is_in_two = is.dtype != wanted.dtype && (self.choose.target().gpu().is_some() || are_blocked);
        match is.layout != wanted.layout {
            // Kernels of GPUs either cast or move; they move elements of the smaller type.
            true if is_in_two && wanted.dtype.bytes() < is.dtype.bytes() => Some(Form { dtype: wanted.dtype, ..is }),
            true if is_in_two => Some(Form { dtype: is.dtype, ..wanted }),
            true if are_blocked => Some(Form { layout: Layout::Plain, ..is }),
            _ if !is_aligned(from) => Some(is),
            _ if !is_aligned(to) => Some(wanted),
            _ => None,
        }
    }

    /// Adds a conversion of a value from one form to another, or to another address.
    fn convert(
        &mut self,
        value: ValueId,
        (from, is): (SlotSpan, Form),
        (to, wanted): (SlotSpan, Form),
    ) -> Result<(), CompileError> {
        let MemoryValue { node, shape, .. } = self.cut.value(value);
        let name = &self.graph.node(*node).name;
        if !conversion::is_between(is.dtype, wanted.dtype, self.choose.target()) {
            return Err(CompileError::Types { step: name.clone(), found: is.dtype, wanted: wanted.dtype });
        }
        let copy = conversion::copy(shape, is, wanted);
        if copy.is_none()
            && let Some(form) = self.form_between((from, is), (to, wanted))
        {
            let between = SlotSpan { slot: self.slot(value, form.dtype, SlotContent::Run), first: 0 };
            self.convert(value, (from, is), (between, form))?;
            return self.convert(value, (between, form), (to, wanted));
        }

        let name = match is.dtype == wanted.dtype {
            true if is == wanted => format!("{name} at another address"),
            true => format!("{name} in another layout"),
            false => format!("{name} as {}", wanted.dtype),
        };

        let work = match copy {
            Some(strided) => ActionKind::Copy(strided),
            None => {
                let tuned =
                    self.choose.of_conversion(&conversion::workload(shape, is, wanted, self.choose.target())?)?;
                ActionKind::Kernel(self.kernel_of(&tuned))
            }
        };
        let (operands, value) = (vec![ActionOperand::Span(from)], (value, wanted.layout));
        self.plan.actions.push(Action { name, work, operands, output: to, value, is_conversion: true });
        Ok(())
    }
}

/// Returns the buffers that a kernel reads from the caller, in the order of its operands.
pub(crate) fn given(plan: &KernelPlan) -> impl Iterator<Item = &PlanBuffer> {
    given_at(plan).map(|(_, buffer)| buffer)
}

/// Returns the buffers of [`given`] with their positions in the plan.
pub(crate) fn given_at(plan: &KernelPlan) -> impl Iterator<Item = (usize, &PlanBuffer)> {
    let is_given = |buffer: &PlanBuffer| matches!(buffer.binding, Binding::Data | Binding::Constant { .. });
    plan.buffers.iter().enumerate().filter(move |(_, buffer)| is_given(buffer))
}
