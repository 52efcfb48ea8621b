//! What runs on which memory: steps with their schedules, tensors in the layouts that these want, conversions where two disagree.

use std::collections::HashMap;

use autotune::Tuned;
use autotune_ir::plan::{Binding, PlanBuffer};
use autotune_ir::program::{Layout, Role};
use autotune_ir::{DType, KernelPlan};
use autotune_runtime::DeviceError;
use autotune_schedules::Config;
use autotune_workloads::Workload;

use crate::choose::{Choice, Choose};
use crate::conversion;
use crate::cut::{Cut, Step, Strided, Value, ValueId, Work};
use crate::error::CompileError;
use crate::graph::{Graph, NodeId};
use crate::layouts::Layouts;
use crate::options::Options;

/// Memory for a tensor, or for several that lie in one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Slot {
    pub(crate) elements: usize,
    /// Type in which they lie there.
    pub(crate) dtype: DType,
    pub(crate) content: Content,
}

/// What a slot holds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Content {
    /// Tensors of a run.
    Run,
    /// A constant in a layout, the same in all runs.
    Constant(NodeId, Layout),
}

/// Elements of a slot from one on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Span {
    pub(crate) slot: usize,
    pub(crate) first: usize,
}

/// Something that is done on slots.
#[derive(Clone, Debug)]
pub(crate) struct Action {
    pub(crate) name: String,
    pub(crate) work: Doing,
    pub(crate) operands: Vec<Operand>,
    pub(crate) output: Span,
    /// The value that it writes, in which layout.
    pub(crate) value: (ValueId, Layout),
    /// True if it only brings the value from another layout.
    pub(crate) is_conversion: bool,
}

/// What an action reads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Operand {
    /// Elements of a slot.
    Span(Span),
    /// A constant that a kernel packs ahead of time, and perhaps reads in runs, too.
    Constant(NodeId),
}

/// What an action does.
#[derive(Clone, Debug)]
pub(crate) enum Doing {
    /// Runs the kernel of this number in [`Plan::kernels`].
    Kernel(usize),
    /// Copies elements.
    Copy(Strided),
    /// Computes a node by the interpreter.
    Interpret(NodeId),
}

/// A network's kernels, memory, and what is done in which order.
pub(crate) struct Plan {
    pub(crate) kernels: Vec<Tuned>,
    pub(crate) slots: Vec<Slot>,
    pub(crate) actions: Vec<Action>,
    /// For each input of the graph its place: row-major.
    pub(crate) inputs: Vec<Span>,
    /// For each output of the graph its place: row-major.
    pub(crate) outputs: Vec<Span>,
}

struct Planner<'a, 'c> {
    graph: &'a Graph,
    cut: &'a Cut,
    options: &'a Options<'a>,
    layouts: &'a Layouts,
    choose: &'c mut dyn Choose,
    plan: Plan,
    /// Numbers of kernels in [`Plan::kernels`], by workload and config.
    numbers: HashMap<(Workload, Config), usize>,
    /// Slots of values that others lie in.
    roots: HashMap<ValueId, (usize, Layout)>,
    /// Values in layouts that are not their own.
    converted: HashMap<(ValueId, Layout), Span>,
}

impl Slot {
    /// Returns its size; `None` if that is too large a number.
    pub(crate) fn bytes(&self) -> Option<usize> {
        self.elements.checked_mul(self.dtype.bytes())
    }
}

impl Operand {
    /// The elements of a slot that it is.
    pub(crate) fn span(&self) -> Option<Span> {
        match self {
            Self::Span(span) => Some(*span),
            Self::Constant(_) => None,
        }
    }

    /// The constant that it is.
    pub(crate) fn constant(&self) -> Option<NodeId> {
        match self {
            Self::Span(_) => None,
            Self::Constant(node) => Some(*node),
        }
    }
}

impl Plan {
    /// What runs a graph the fastest, by what is known of its schedules.
    pub(crate) fn of(graph: &Graph, cut: &Cut, choose: &mut dyn Choose) -> Result<Self, CompileError> {
        let options = Options::of(graph, cut, choose)?;
        Self::with(&options, &options.least(), choose)
    }

    /// What runs a graph by a choice of layouts and schedules.
    pub(crate) fn with(options: &Options, layouts: &Layouts, choose: &mut dyn Choose) -> Result<Self, CompileError> {
        let (graph, cut) = (options.graph, options.cut);
        let (kernels, slots, actions, inputs, outputs) = (vec![], vec![], vec![], vec![], vec![]);
        let plan = Plan { kernels, slots, actions, inputs, outputs };
        let (numbers, roots, converted) = (HashMap::new(), HashMap::new(), HashMap::new());
        let mut planner = Planner { graph, cut, options, layouts, choose, plan, numbers, roots, converted };

        for &input in &cut.inputs {
            let span = planner.in_layout(input, Layout::Plain)?;
            planner.plan.inputs.push(span);
        }
        for (number, step) in cut.steps.iter().enumerate() {
            planner.step(step, number)?;
        }
        for &output in &cut.outputs {
            let span = planner.in_layout(output, Layout::Plain)?;
            planner.plan.outputs.push(span);
        }
        Ok(planner.plan)
    }

    /// Returns the type of a span's elements.
    pub(crate) fn dtype(&self, span: Span) -> DType {
        self.slots[span.slot].dtype
    }

    /// Returns the first byte of a span in its slot.
    pub(crate) fn offset(&self, span: Span) -> usize {
        span.first * self.dtype(span).bytes()
    }

    /// Fails unless a step that reads or writes elements of a type has memory of that type.
    fn check_dtype(&self, step: &str, span: Span, wanted: DType) -> Result<(), CompileError> {
        match self.dtype(span) {
            found if found.lies_as(wanted) => Ok(()),
            found => Err(CompileError::Types { step: step.into(), found, wanted }),
        }
    }

    /// For each step its schedule.
    pub(crate) fn choice(&self) -> Choice {
        let steps = self.actions.iter().filter(|action| !action.is_conversion);
        steps.map(|step| self.kernel(step).cloned()).collect()
    }

    /// The schedules of conversions of layouts, in the order in which they run.
    pub(crate) fn conversions(&self) -> impl Iterator<Item = &Tuned> {
        self.actions.iter().filter(|action| action.is_conversion).filter_map(|action| self.kernel(action))
    }

    fn kernel(&self, action: &Action) -> Option<&Tuned> {
        match action.work {
            Doing::Kernel(kernel) => Some(&self.kernels[kernel]),
            Doing::Copy(_) | Doing::Interpret(_) => None,
        }
    }
}

impl Planner<'_, '_> {
    fn step(&mut self, step: &Step, number: usize) -> Result<(), CompileError> {
        match &step.work {
            Work::Kernel(_) => self.kernel(step, number),
            Work::Copy(strided) => self.plain(step, Doing::Copy(strided.clone())),
            Work::Interpret(node) => self.plain(step, Doing::Interpret(*node)),
        }
    }

    /// A step on row-major tensors.
    fn plain(&mut self, step: &Step, work: Doing) -> Result<(), CompileError> {
        let operands = step.operands.iter().map(|&operand| Ok(Operand::Span(self.in_layout(operand, Layout::Plain)?)));
        let operands = operands.collect::<Result<Vec<_>, CompileError>>()?;
        let (output, convert) = self.written(step.output, Layout::Plain);
        if let (Doing::Copy(_), Some(from)) = (&work, operands.first().and_then(Operand::span)) {
            self.plan.check_dtype(&step.name, from, self.plan.dtype(output))?;
        }
        let value = (step.output, convert.unwrap_or(Layout::Plain));
        let name = step.name.clone();
        self.plan.actions.push(Action { name, work, operands, output, value, is_conversion: false });
        self.after(step.output, output, convert)
    }

    fn kernel(&mut self, step: &Step, number: usize) -> Result<(), CompileError> {
        let options = self.options;
        let pick = options.schedules[number].get(self.layouts.picks[number]);
        let pick = pick.ok_or_else(|| DeviceError::fault("no such schedule"))?;
        let (plan, number) = (pick.plan()?, self.kernel_of(pick));
        let follows = if self.options.follows_layouts(step) { self.layout(step.operands[0]) } else { None };

        let mut operands = Vec::new();
        for buffer in given(plan) {
            let Role::Operand(place) = buffer.role else { continue };
            let value = step.operands[place];
            let node = self.cut.value(value).node;
            let is_packed = matches!(buffer.binding, Binding::Constant { .. });
            operands.push(match (is_packed, self.graph.constant_of(node)) {
                (true, Some(_)) => Operand::Constant(node),
                (true, None) => return Err(CompileError::NotConstant { step: step.name.clone() }),
                (false, _) => {
                    let is_whole = self.cut.value(value).shape == self.cut.value(step.output).shape;
                    let layout = follows.filter(|_| is_whole).unwrap_or(buffer.layout);
                    let span = self.in_layout(value, layout)?;
                    self.plan.check_dtype(&step.name, span, buffer.dtype)?;
                    Operand::Span(span)
                }
            });
        }
        let written = plan.buffers.iter().find(|buffer| buffer.binding == Binding::Output);
        let layout = follows.or(written.map(|buffer| buffer.layout)).unwrap_or(Layout::Plain);
        let (output, convert) = self.written(step.output, layout);
        if let Some(buffer) = written {
            self.plan.check_dtype(&step.name, output, buffer.dtype)?;
        }
        let (name, work, value) = (step.name.clone(), Doing::Kernel(number), (step.output, layout));
        self.plan.actions.push(Action { name, work, operands, output, value, is_conversion: false });
        self.after(step.output, output, convert)
    }

    /// The number of the kernel of a schedule.
    fn kernel_of(&mut self, tuned: &Tuned) -> usize {
        let next = self.plan.kernels.len();
        let number = *self.numbers.entry((tuned.workload().clone(), tuned.config().clone())).or_insert(next);
        if number == next {
            self.plan.kernels.push(tuned.clone());
        }
        number
    }

    /// The layout in which a value lies, if it has a place.
    fn layout(&self, value: ValueId) -> Option<Layout> {
        self.roots.get(&self.cut.root(value).0).map(|&(_, layout)| layout)
    }

    /// A slot of its own for a value.
    fn slot(&mut self, value: ValueId, content: Content) -> usize {
        let Value { shape, dtype, .. } = self.cut.value(value);
        self.plan.slots.push(Slot { elements: shape.iter().product(), dtype: *dtype, content });
        self.plan.slots.len() - 1
    }

    /// The place of a value in its own layout; its root has a slot.
    fn own(&self, value: ValueId) -> Span {
        let (root, first) = self.cut.root(value);
        Span { slot: self.roots[&root].0, first }
    }

    /// Where a value lies in a layout, converted to it if it must be.
    fn in_layout(&mut self, value: ValueId, layout: Layout) -> Result<Span, CompileError> {
        let root = self.cut.root(value).0;
        if let Some(&span) = self.converted.get(&(value, layout)) {
            return Ok(span);
        }

        let node = self.cut.value(root).node;
        let is_constant = self.graph.constant_of(node).is_some();
        if is_constant && root == value {
            let slot = self.slot(value, Content::Constant(node, layout));
            let span = Span { slot, first: 0 };
            self.converted.insert((value, layout), span);
            return Ok(span);
        }

        if !self.roots.contains_key(&root) {
            // What the caller brings, or a constant of which others are parts.
            let content = if is_constant { Content::Constant(node, Layout::Plain) } else { Content::Run };
            let slot = self.slot(root, content);
            self.roots.insert(root, (slot, Layout::Plain));
        }

        let (own, at) = (self.own(value), self.roots[&root].1);
        if at == layout {
            return Ok(own);
        }
        let slot = self.slot(value, Content::Run);
        let span = Span { slot, first: 0 };
        self.convert(value, (own, at), (span, layout))?;
        self.converted.insert((value, layout), span);
        Ok(span)
    }

    /// Where a step writes a value in a layout, and whether that is to be converted behind it.
    fn written(&mut self, value: ValueId, layout: Layout) -> (Span, Option<Layout>) {
        let root = self.cut.root(value).0;
        if !self.roots.contains_key(&root) {
            let own = self.layouts.roots.get(&root).copied().unwrap_or(Layout::Plain);
            let slot = self.slot(root, Content::Run);
            self.roots.insert(root, (slot, own));
        }
        if self.roots[&root].1 == layout {
            return (self.own(value), None);
        }
        let slot = self.slot(value, Content::Run);
        (Span { slot, first: 0 }, Some(layout))
    }

    /// Brings what was written in another layout to its place.
    fn after(&mut self, value: ValueId, written: Span, convert: Option<Layout>) -> Result<(), CompileError> {
        let Some(layout) = convert else { return Ok(()) };
        let root = self.cut.root(value).0;
        let to = (self.own(value), self.roots[&root].1);
        self.convert(value, (written, layout), to)?;
        self.converted.insert((value, layout), written);
        Ok(())
    }

    /// A conversion of layouts.
    fn convert(
        &mut self,
        value: ValueId,
        (from, is): (Span, Layout),
        (to, wanted): (Span, Layout),
    ) -> Result<(), CompileError> {
        let workload = conversion::workload(self.cut.value(value), is, wanted)?;
        let tuned = self.choose.of_conversion(&workload)?;
        let number = self.kernel_of(&tuned);
        let name = format!("{} in another layout", self.graph.node(self.cut.value(value).node).name);
        for (span, binding) in [(from, Binding::Data), (to, Binding::Output)] {
            for buffer in tuned.plan()?.buffers.iter().filter(|buffer| buffer.binding == binding) {
                self.plan.check_dtype(&name, span, buffer.dtype)?;
            }
        }
        let (work, operands, value) = (Doing::Kernel(number), vec![Operand::Span(from)], (value, wanted));
        self.plan.actions.push(Action { name, work, operands, output: to, value, is_conversion: true });
        Ok(())
    }
}

/// The buffers that a kernel is given to read, in the order in which it takes them.
pub(crate) fn given(plan: &KernelPlan) -> impl Iterator<Item = &PlanBuffer> {
    given_at(plan).map(|(_, buffer)| buffer)
}

/// Positions in the plan and buffers of [`given`].
pub(crate) fn given_at(plan: &KernelPlan) -> impl Iterator<Item = (usize, &PlanBuffer)> {
    let is_given = |buffer: &PlanBuffer| matches!(buffer.binding, Binding::Data | Binding::Constant { .. });
    plan.buffers.iter().enumerate().filter(move |(_, buffer)| is_given(buffer))
}
