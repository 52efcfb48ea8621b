//! What runs on which memory: steps with their schedules, tensors in the layouts that these want, conversions where two disagree.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use autotune::Tuned;
use autotune_ir::KernelPlan;
use autotune_ir::plan::{Binding, PlanBuffer};
use autotune_ir::program::{Layout, Role};
use autotune_runtime::DeviceError;
use autotune_schedules::Workload;
use autotune_schedules::workload::{Broadcast, Pointwise, Transpose};

use crate::cut::{Cut, Step, Strided, ValueId, Work};
use crate::error::CompileError;
use crate::graph::{Graph, NodeId};
use crate::layouts::{self, Layouts, Wish, Wishes};
use crate::op::Op;

/// Memory for a tensor, or for several that lie in one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Slot {
    pub(crate) elements: usize,
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
    /// The value that it writes, in which layout; `None` of a conversion.
    pub(crate) value: Option<(ValueId, Layout)>,
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

/// The schedules that there are of a workload, the best first, in other layouts the others.
pub(crate) type Choose<'a> = dyn FnMut(&Workload) -> Result<Vec<Tuned>, CompileError> + 'a;

struct Planner<'a, 'c> {
    graph: &'a Graph,
    cut: &'a Cut,
    choose: &'a mut Choose<'c>,
    plan: Plan,
    layouts: Layouts,
    /// Schedules by what they compute, each with its number in [`Plan::kernels`] where it is used.
    known: HashMap<Workload, Vec<(Tuned, Option<usize>)>>,
    /// Slots of values that others lie in.
    roots: HashMap<ValueId, (usize, Layout)>,
    /// Values in layouts that are not their own.
    converted: HashMap<(ValueId, Layout), Span>,
}

impl Plan {
    /// What runs a graph.
    pub(crate) fn of(graph: &Graph, cut: &Cut, choose: &mut Choose) -> Result<Self, CompileError> {
        let (kernels, slots, actions, inputs, outputs) = (vec![], vec![], vec![], vec![], vec![]);
        let plan = Plan { kernels, slots, actions, inputs, outputs };
        let (known, roots, converted) = (HashMap::new(), HashMap::new(), HashMap::new());
        let layouts = Layouts::default();
        let mut planner = Planner { graph, cut, choose, plan, layouts, known, roots, converted };

        let wishes = cut.steps.iter().map(|step| planner.wishes(step)).collect::<Result<Vec<Wishes>, _>>()?;
        planner.layouts = layouts::assign(cut, &wishes, &|value, layout| planner.can_lie(value, layout));
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
}

impl Planner<'_, '_> {
    /// What a step wants of layouts.
    fn wishes(&mut self, step: &Step) -> Result<Wishes, CompileError> {
        let Work::Kernel(workload) = &step.work else {
            let operands = vec![Some(Layout::Plain); step.operands.len()];
            return Ok(Wishes::Of(vec![Wish { operands, output: Layout::Plain, run_secs: 0.0 }]));
        };
        if self.follows_layouts(step, workload) {
            let whole = |&&operand: &&ValueId| self.cut.value(operand).shape == self.cut.value(step.output).shape;
            return Ok(Wishes::Same(step.operands.iter().filter(whole).copied().collect()));
        }
        let schedules = self.schedules(workload)?;
        Ok(Wishes::Of(schedules.iter().map(|(tuned, _)| wish(tuned, step.operands.len())).collect()))
    }

    fn step(&mut self, step: &Step, number: usize) -> Result<(), CompileError> {
        match &step.work {
            Work::Kernel(workload) => self.kernel(step, workload, self.layouts.picks[number]),
            Work::Copy(strided) => self.plain(step, Doing::Copy(strided.clone())),
            Work::Interpret(node) => self.plain(step, Doing::Interpret(*node)),
        }
    }

    /// A step on row-major tensors.
    fn plain(&mut self, step: &Step, work: Doing) -> Result<(), CompileError> {
        let operands = step.operands.iter().map(|&operand| Ok(Operand::Span(self.in_layout(operand, Layout::Plain)?)));
        let operands = operands.collect::<Result<_, CompileError>>()?;
        let (output, convert) = self.written(step.output, Layout::Plain);
        let value = Some((step.output, convert.unwrap_or(Layout::Plain)));
        self.plan.actions.push(Action { name: step.name.clone(), work, operands, output, value });
        self.after(step.output, output, convert)
    }

    fn kernel(&mut self, step: &Step, workload: &Workload, pick: usize) -> Result<(), CompileError> {
        let number = self.kernel_of(workload, pick)?;
        let plan = KernelPlan::of(self.plan.kernels[number].program());
        let follows = if self.follows_layouts(step, workload) { self.layout(step.operands[0]) } else { None };

        let mut operands = Vec::new();
        for buffer in given(&plan) {
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
                    Operand::Span(self.in_layout(value, layout)?)
                }
            });
        }
        let written = plan.buffers.iter().find(|buffer| buffer.binding == Binding::Output);
        let layout = follows.or(written.map(|buffer| buffer.layout)).unwrap_or(Layout::Plain);
        let (output, convert) = self.written(step.output, layout);
        let value = Some((step.output, layout));
        let action = Action { name: step.name.clone(), work: Doing::Kernel(number), operands, output, value };
        self.plan.actions.push(action);
        self.after(step.output, output, convert)
    }

    fn schedules(&mut self, workload: &Workload) -> Result<&mut Vec<(Tuned, Option<usize>)>, CompileError> {
        Ok(match self.known.entry(workload.clone()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => {
                let schedules = (self.choose)(workload)?;
                unknown.insert(schedules.into_iter().map(|tuned| (tuned, None)).collect())
            }
        })
    }

    /// The number of the kernel of a workload's schedule.
    fn kernel_of(&mut self, workload: &Workload, pick: usize) -> Result<usize, CompileError> {
        let next = self.plan.kernels.len();
        let (tuned, number) =
            self.schedules(workload)?.get_mut(pick).ok_or_else(|| DeviceError::fault("no such schedule"))?;
        if let Some(number) = *number {
            return Ok(number);
        }
        *number = Some(next);
        let tuned = tuned.clone();
        self.plan.kernels.push(tuned);
        Ok(next)
    }

    fn elements(&self, value: ValueId) -> usize {
        self.cut.value(value).shape.iter().product()
    }

    /// The layout in which a value lies, if it has a place.
    fn layout(&self, value: ValueId) -> Option<Layout> {
        self.roots.get(&self.cut.root(value).0).map(|&(_, layout)| layout)
    }

    fn slot(&mut self, elements: usize, content: Content) -> usize {
        self.plan.slots.push(Slot { elements, content });
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
            let slot = self.slot(self.elements(value), Content::Constant(node, layout));
            let span = Span { slot, first: 0 };
            self.converted.insert((value, layout), span);
            return Ok(span);
        }
        if !self.roots.contains_key(&root) {
            // What the caller brings, or a constant of which others are parts.
            let content = if is_constant { Content::Constant(node, Layout::Plain) } else { Content::Run };
            let slot = self.slot(self.elements(root), content);
            self.roots.insert(root, (slot, Layout::Plain));
        }
        let (own, at) = (self.own(value), self.roots[&root].1);
        if at == layout {
            return Ok(own);
        }
        let slot = self.slot(self.elements(value), Content::Run);
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
            let slot = self.slot(self.elements(root), Content::Run);
            self.roots.insert(root, (slot, own));
        }
        if self.roots[&root].1 == layout {
            return (self.own(value), None);
        }
        let slot = self.slot(self.elements(value), Content::Run);
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

    /// True if the memory of a value can have a layout: the caller does not see it, and all that lies in it is whole blocks of channels.
    fn can_lie(&self, root: ValueId, layout: Layout) -> bool {
        let Layout::ChannelBlocked(block) = layout else { return true };
        let outer = self.cut.value(root);
        let is_given = matches!(self.graph.node(outer.node).op, Op::Input | Op::Constant(_));
        let [n, c, pixels @ ..] = &outer.shape[..] else { return false };
        let area: usize = pixels.iter().product();
        let fits = |value: usize| {
            let (found, first) = self.cut.root(ValueId(value as u32));
            let shape = &self.cut.values[value].shape;
            let is_alike = shape.len() == outer.shape.len() && shape[0] == *n && shape[2..] == *pixels;
            let is_whole = is_alike && shape[1].is_multiple_of(block) && first.is_multiple_of(block * area);
            found != root || is_whole && (*n == 1 || shape[1] == *c)
        };
        !is_given && !pixels.is_empty() && (0..self.cut.values.len()).all(fits)
    }

    /// A conversion of layouts, which is a transpose of blocks.
    ///
    /// `[n, c, ..pixels]` → `[n, c/block, ..pixels, block]`: of `n*c/block` matrices of `block` rows and `pixels` columns; and back.
    fn convert(
        &mut self,
        value: ValueId,
        (from, is): (Span, Layout),
        (to, wanted): (Span, Layout),
    ) -> Result<(), CompileError> {
        let shape = &self.cut.value(value).shape;
        let area: usize = shape[2..].iter().product();
        let blocks = |block: usize| shape[0] * shape[1] / block;
        let transpose = match (is, wanted) {
            (Layout::Plain, Layout::ChannelBlocked(block)) => Transpose::matrices(blocks(block), block, area),
            (Layout::ChannelBlocked(block), Layout::Plain) => Transpose::matrices(blocks(block), area, block),
            (from, to) => return Err(CompileError::Layouts { from, to }),
        };
        let workload = Workload::new(transpose).map_err(CompileError::Workload)?;
        let number = self.kernel_of(&workload, 0)?;
        let name = format!("{} in another layout", self.graph.node(self.cut.value(value).node).name);
        let operands = vec![Operand::Span(from)];
        self.plan.actions.push(Action { name, work: Doing::Kernel(number), operands, output: to, value: None });
        Ok(())
    }

    /// True if a step does the same to every element, wherever it lies.
    fn follows_layouts(&self, step: &Step, workload: &Workload) -> bool {
        let Some(Pointwise { lhs, rhs, third, .. }) = workload.sizes() else { return false };
        let shape = |value: ValueId| &self.cut.value(value).shape;
        let is_alike = |(broadcast, operand): (Broadcast, &ValueId)| match broadcast {
            Broadcast::FULL => shape(*operand) == shape(step.output),
            other => other == Broadcast::SCALAR,
        };
        let own = [*lhs, *rhs, *third].into_iter().chain(std::iter::repeat(Broadcast::FULL));
        *lhs == Broadcast::FULL && !workload.epilogue().is_by_channel() && own.zip(&step.operands).all(is_alike)
    }
}

/// What a schedule wants.
fn wish(tuned: &Tuned, operands: usize) -> Wish {
    let plan = KernelPlan::of(tuned.program());
    let mut wish = Wish { operands: vec![None; operands], output: Layout::Plain, run_secs: 0.0 };
    for buffer in &plan.buffers {
        match (buffer.role, buffer.binding) {
            (Role::Operand(place), Binding::Data) if place < operands => wish.operands[place] = Some(buffer.layout),
            (Role::Output, _) => wish.output = buffer.layout,
            _ => {}
        }
    }
    wish.run_secs = tuned.best().and_then(|best| best.record.measurement.run_secs()).unwrap_or(0.0);
    wish
}

/// The buffers that a kernel is given to read, in the order in which it takes them.
pub(crate) fn given(plan: &KernelPlan) -> impl Iterator<Item = &PlanBuffer> {
    plan.buffers.iter().filter(|buffer| matches!(buffer.binding, Binding::Data | Binding::Constant { .. }))
}
