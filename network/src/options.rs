//! Options for a network's plan: schedules of steps, layouts of tensors, and the times of both.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use autotune::Tuned;
use autotune_ir::plan::Binding;
use autotune_ir::program::{Layout, Role};
use autotune_workloads::{Broadcast, Pointwise, Workload};
use rustc_hash::FxHashMap;

use crate::choose::{BlockedRoots, Choice, Choose, Sharing};
use crate::conversion::{self, Form};
use crate::cut::{Cut, MemoryValue, Step, StepWork, ValueId};
use crate::error::CompileError;
use crate::layouts::{Conversions, LayoutConstraint, LayoutConstraints, Layouts, Sum, blocked};
use autotune_graph::{Graph, NodeId};

/// Estimated relative error of separately measured kernel times within a network: a plan may gain
/// this fraction.
const DOUBT: f64 = 0.1;

/// Options for the plan of a graph.
pub(crate) struct Options<'a> {
    pub(crate) graph: &'a Graph,
    pub(crate) cut: &'a Cut,
    /// Schedules of each step, the best first; empty for steps without a kernel.
    pub(crate) schedules: Vec<Arc<[Tuned]>>,
    layout_constraints: Vec<LayoutConstraints>,
    conversions: Conversions,
    /// Values in the memory of each root value, itself included.
    parts: Vec<Vec<ValueId>>,
}

/// Returns the largest constant of each step with the different workloads that have it in common.
fn sharing<'a>(graph: &Graph, cut: &'a Cut) -> Vec<Sharing<'a>> {
    let elements = |node: &NodeId| graph.node(*node).shape.iter().product::<usize>();
    let mut of_constants: BTreeMap<NodeId, Vec<&Workload>> = BTreeMap::new();
    for step in &cut.steps {
        let StepWork::Kernel(workload) = &step.work else { continue };
        let nodes = step.operands.iter().map(|value| cut.values[value.0 as usize].node);
        let Some(largest) = nodes.filter(|&node| graph.constant_of(node).is_some()).max_by_key(elements) else {
            continue;
        };
        let workloads = of_constants.entry(largest).or_default();
        if !workloads.contains(&workload) {
            workloads.push(workload);
        }
    }

    // Several constants may have the same users.
    let mut met = HashSet::new();
    of_constants.retain(|_, workloads| met.insert(workloads.clone()));
    let shared = of_constants
        .into_iter()
        .filter_map(|(node, workloads)| Some(Sharing { constant: graph.constant_of(node)?.identity(), workloads }));
    shared.collect()
}

impl<'a> Options<'a> {
    pub(crate) fn of(graph: &'a Graph, cut: &'a Cut, choose: &mut dyn Choose) -> Result<Self, CompileError> {
        let (schedules, layout_constraints, conversions) = (Vec::new(), Vec::new(), Conversions::default());
        let mut options = Self { graph, cut, schedules, layout_constraints, conversions, parts: parts(cut) };
        let kernel = |(number, step): (usize, &'a Step)| match &step.work {
            StepWork::Kernel(workload) => Some((number, workload)),
            StepWork::Copy(_) | StepWork::Interpret(_) => None,
        };
        let kernels: Vec<_> = cut.steps.iter().enumerate().filter_map(kernel).collect();
        // A constant that is packed alike for several workloads occupies memory once.
        choose.prepare(&kernels, &sharing(graph, cut))?;

        for (number, step) in cut.steps.iter().enumerate() {
            let schedules = match &step.work {
                StepWork::Kernel(workload) => choose.of_step(number, workload)?,
                StepWork::Copy(_) | StepWork::Interpret(_) => Arc::new([]),
            };
            options.layout_constraints.push(options.layout_constraints(step, &schedules)?);
            options.schedules.push(schedules);
        }
        options.conversions = options.conversions(choose)?;
        Ok(options)
    }

    /// Returns the layouts and schedules with the least total time.
    pub(crate) fn least(&self) -> Layouts {
        self.sum(&|value, layout| self.can_have_layout(value, layout)).least()
    }

    /// Returns the choice of the first schedule of each step, with given layouts of values.
    pub(crate) fn with_roots(&self, blocked: &BlockedRoots) -> Layouts {
        let roots =
            (0..self.cut.values.len() as u32).map(ValueId).filter(|&root| self.cut.value(root).within.is_none());
        let layout = |root: ValueId| {
            let blocked = blocked.get(&root).copied().filter(|&layout| self.can_have_layout(root, layout));
            (root, blocked.unwrap_or(Layout::Plain))
        };
        Layouts { roots: roots.map(layout).collect(), picks: vec![0; self.cut.steps.len()], secs: 0.0 }
    }

    /// Returns the choice with the least total time, then those that take at most `times` times as
    /// long, each the best with one tensor in another layout.
    pub(crate) fn near(&self, times: f64) -> Vec<Layouts> {
        let can_have_layout = |value, layout| self.can_have_layout(value, layout);
        let sum = self.sum(&can_have_layout);
        let least = sum.least();
        let mut near: Vec<Layouts> =
            sum.alternatives(&least).filter(|other| other.secs <= times * least.secs).collect();
        near.sort_by(|a, b| a.secs.total_cmp(&b.secs));
        [least].into_iter().chain(near).collect()
    }

    /// Returns choices with other schedules than `least`, each the best with one tensor in another
    /// layout, the most promising first. A choice is promising if it changes a large part of the
    /// network and is estimated to lose little.
    pub(crate) fn alternatives(&self, least: &Layouts, most: usize) -> Vec<Layouts> {
        let can_have_layout = |value, layout| self.can_have_layout(value, layout);
        let sum = self.sum(&can_have_layout);
        let promise = |other: &Layouts| {
            let changed = (0..other.picks.len()).filter(|&step| other.picks[step] != least.picks[step]);
            let changed: f64 = changed.map(|step| self.run_secs(least, step)).sum();
            DOUBT * (changed + (self.conversion_secs(other) - self.conversion_secs(least)).abs())
                - (other.secs - least.secs)
        };

        let others = sum.alternatives(least).filter(|other| other.picks != least.picks);
        let mut promising: Vec<(f64, Layouts)> = others.map(|other| (promise(&other), other)).collect();
        promising.retain(|(promise, _)| *promise > 0.0);
        promising.sort_by(|a, b| b.0.total_cmp(&a.0));
        let mut found: Vec<Layouts> = Vec::new();
        for (_, other) in promising {
            if found.len() < most && !found.iter().any(|known| known.picks == other.picks) {
                found.push(other);
            }
        }
        found
    }

    /// Returns the schedules of a choice.
    pub(crate) fn choice(&self, layouts: &Layouts) -> Choice {
        let picked = self.schedules.iter().zip(&layouts.picks);
        picked.map(|(schedules, &pick)| schedules.get(pick).cloned()).collect()
    }

    /// Returns the seconds that conversions take in a choice.
    pub(crate) fn conversion_secs(&self, layouts: &Layouts) -> f64 {
        layouts.secs - (0..layouts.picks.len()).map(|step| self.run_secs(layouts, step)).sum::<f64>()
    }

    fn run_secs(&self, layouts: &Layouts, step: usize) -> f64 {
        match &self.layout_constraints[step] {
            LayoutConstraints::Of(of) => of.get(layouts.picks[step]).map_or(0.0, |wish| wish.run_secs),
            LayoutConstraints::Same(_) => 0.0,
        }
    }

    fn sum<'s>(&'s self, can_have_layout: &dyn Fn(ValueId, Layout) -> bool) -> Sum<'s> {
        Sum::of(self.cut, &self.layout_constraints, &self.conversions, can_have_layout)
    }

    /// Returns the layout constraints of a step.
    fn layout_constraints(&self, step: &Step, schedules: &[Tuned]) -> Result<LayoutConstraints, CompileError> {
        if self.follows_layouts(step) {
            let whole = |&&operand: &&ValueId| self.cut.value(operand).shape == self.cut.value(step.output).shape;
            return Ok(LayoutConstraints::Same(step.operands.iter().filter(whole).copied().collect()));
        }
        let operands = vec![Some(Layout::Plain); step.operands.len()];
        let plain = || vec![LayoutConstraint { operands, output: Layout::Plain, run_secs: 0.0 }];
        let wishes = schedules.iter().map(|tuned| layout_constraint(tuned, step.operands.len()));
        let wishes: Vec<LayoutConstraint> = wishes.collect::<Result<_, CompileError>>()?;
        Ok(LayoutConstraints::Of(if wishes.is_empty() { plain() } else { wishes }))
    }

    /// Returns the times of conversions to layouts that steps may require.
    fn conversions(&self, choose: &mut dyn Choose) -> Result<Conversions, CompileError> {
        let mut conversions = Conversions::default();

        // Values often share shapes, so each conversion is looked up once.
        let mut known: FxHashMap<(&[usize], Form, Form), f64> = FxHashMap::default();
        for layout in blocked(&self.layout_constraints) {
            for (number, value) in self.cut.values.iter().enumerate().filter(|(_, value)| fits(value, layout)) {
                let id = ValueId(number as u32);
                // Constants are converted ahead of time.
                let is_free = value.within.is_none() && self.graph.constant_of(value.node).is_some();
                for (from, to) in [(Layout::Plain, layout), (layout, Layout::Plain)] {
                    let [is, wanted] = [from, to].map(|layout| Form { layout, dtype: value.dtype });
                    let same = (&value.shape[..], is, wanted);
                    let secs = match known.get(&same) {
                        _ if is_free => 0.0,
                        Some(&secs) => secs,
                        None => {
                            let workload = conversion::workload(&value.shape, is, wanted, choose.target())?;
                            let measured = choose.conversion_secs(&workload)?;
                            let secs =
                                measured.unwrap_or_else(|| conversion::estimated_secs(&value.shape, value.dtype));
                            *known.entry(same).or_insert(secs)
                        }
                    };
                    conversions.insert((id, from, to), secs);
                }
            }
        }
        Ok(conversions)
    }

    /// True if the memory of a value can have a layout: it is not visible to the caller, and
    /// consists of whole blocks of channels.
    pub(crate) fn can_have_layout(&self, root: ValueId, layout: Layout) -> bool {
        let Layout::ChannelBlocked(block) = layout else { return true };
        let outer = self.cut.value(root);
        let is_given = self.graph.is_given(outer.node);
        let [n, c, pixels @ ..] = &outer.shape[..] else { return false };
        let area: usize = pixels.iter().product();
        let fits = |part: &ValueId| {
            let (first, shape) = (self.cut.root(*part).1, &self.cut.value(*part).shape);
            let is_alike = shape.len() == outer.shape.len() && shape[0] == *n && shape[2..] == *pixels;
            let is_whole = is_alike && shape[1].is_multiple_of(block) && first.is_multiple_of(block * area);
            // With several images, a part of the channels is not contiguous.
            is_whole && (*n == 1 || shape[1] == *c)
        };
        !is_given && !pixels.is_empty() && self.parts[root.0 as usize].iter().all(fits)
    }

    /// True if a step is elementwise, so that it works in any layout.
    pub(crate) fn follows_layouts(&self, step: &Step) -> bool {
        let StepWork::Kernel(workload) = &step.work else { return false };
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

/// Returns the values in the memory of each root value.
fn parts(cut: &Cut) -> Vec<Vec<ValueId>> {
    let mut parts = vec![Vec::new(); cut.values.len()];
    for value in (0..cut.values.len()).map(|value| ValueId(value as u32)) {
        parts[cut.root(value).0.0 as usize].push(value);
    }
    parts
}

/// True if a value can be stored in a layout.
fn fits(value: &MemoryValue, layout: Layout) -> bool {
    match (layout, &value.shape[..]) {
        (Layout::Plain, _) => true,
        (Layout::ChannelBlocked(block), [_, c, _, ..]) => c.is_multiple_of(block),
        _ => false,
    }
}

/// Returns the layouts that a schedule requires, and its time.
fn layout_constraint(tuned: &Tuned, operands: usize) -> Result<LayoutConstraint, CompileError> {
    let plan = tuned.plan()?;
    let mut wish = LayoutConstraint { operands: vec![None; operands], output: Layout::Plain, run_secs: 0.0 };
    for buffer in &plan.buffers {
        match (buffer.role, buffer.binding) {
            (Role::Operand(place), Binding::Data) if place < operands => wish.operands[place] = Some(buffer.layout),
            (Role::Output, _) => wish.output = buffer.layout,
            _ => {}
        }
    }
    wish.run_secs = tuned.run_secs().unwrap_or(0.0);
    Ok(wish)
}

#[cfg(test)]
mod tests;
