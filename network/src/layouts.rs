//! Choice of tensor layouts and step schedules that minimises the network's time, including
//! conversions.
//!
//! Liu et al., "Optimizing CNN Model Inference on CPUs" (2019), section 3.3, choose layouts by
//! dynamic programming over measured times. Here the variables are the layouts of tensors and the
//! schedules of steps, and the graph may have any form ([`crate::minimise`]).
//!
//! A tensor is stored in its *own* layout, and may *also* be available in others: the one that its
//! step writes, and those that it was converted to. Each conversion runs once, for all readers.

use std::cmp::Reverse;

use autotune_ir::program::Layout;
use rustc_hash::FxHashMap;

use crate::conversion::estimated_secs;
use crate::cut::{Cut, MemoryValue, ValueId};
use crate::minimise::{Factor, Minimum, minimise};

/// Number of table entries after which [`Sum::alternatives`] tries no further layouts. Each
/// factor counts as [`FACTOR_ENTRIES`] entries more, since it is copied and split.
const MOST_OTHERWISE: usize = 1 << 24;
const FACTOR_ENTRIES: usize = 16;

/// Layouts that a schedule of a step requires.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LayoutConstraint {
    /// Layout of each operand; `None` if it may have any.
    pub(crate) operands: Vec<Option<Layout>>,
    /// Layout of the output.
    pub(crate) output: Layout,
    /// Seconds of the step; 0 if there is no alternative.
    pub(crate) run_secs: f64,
}

/// Layout constraints of a step.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum LayoutConstraints {
    /// One of these combinations.
    Of(Vec<LayoutConstraint>),
    /// The listed values, operands and output, all in the layout of the first.
    Same(Vec<ValueId>),
}

/// A choice of layouts and schedules.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Layouts {
    /// Layout of every root value, which is a value with its own memory.
    pub(crate) roots: FxHashMap<ValueId, Layout>,
    /// Position of each step's schedule among the step's constraints.
    pub(crate) picks: Vec<usize>,
    /// Seconds of all steps and conversions.
    pub(crate) secs: f64,
}

/// Known seconds of conversions of values between layouts.
pub(crate) type Conversions = FxHashMap<(ValueId, Layout, Layout), f64>;

/// The network's time as a sum of factors that depend on few variables each.
pub(crate) struct Sum<'a> {
    cut: &'a Cut,
    constraints: &'a [LayoutConstraints],
    conversions: &'a Conversions,
    /// Number of values of each variable.
    domains: Vec<usize>,
    /// Layouts that each value of a variable stands for: one for the layout of a root, any number
    /// for additionally available layouts.
    layouts: Vec<Vec<Vec<Layout>>>,
    /// Variable of each root's own layout.
    primary: FxHashMap<ValueId, usize>,
    /// Variable of the set of additional layouts, for values that have one.
    additional: FxHashMap<ValueId, usize>,
    /// Variable of each step's schedule.
    steps: Vec<usize>,
    factors: Vec<Factor>,
}

/// Primary layout of a value, and further layouts that it is available in.
struct AvailableLayouts<'a> {
    primary: Layout,
    additional: &'a [Layout],
}

impl<'a> Sum<'a> {
    /// Builds the sum for the layout constraints of each step. `can_have_layout` returns true if a
    /// value's memory can have a layout. Outputs are converted to the plain layout.
    pub(crate) fn of(
        cut: &'a Cut,
        constraints: &'a [LayoutConstraints],
        conversions: &'a Conversions,
        can_have_layout: &dyn Fn(ValueId, Layout) -> bool,
    ) -> Self {
        let (primary, additional) = (FxHashMap::default(), FxHashMap::default());
        let (domains, layouts, steps, factors) = (vec![], vec![], vec![], vec![]);
        let mut sum = Self { cut, constraints, conversions, domains, layouts, primary, additional, steps, factors };

        let blocked = blocked(constraints);
        for value in values(cut).filter(|&value| cut.value(value).within.is_none()) {
            let fitting = blocked.iter().copied().filter(|&layout| can_have_layout(value, layout));
            let layouts = [Layout::Plain].into_iter().chain(fitting).map(|layout| vec![layout]).collect();
            let variable = sum.add(layouts);
            sum.primary.insert(value, variable);
        }
        sum.add_additional();
        for wishes in constraints {
            let schedules = if let LayoutConstraints::Of(of) = wishes { of.len().max(1) } else { 1 };
            let variable = sum.add(vec![Vec::new(); schedules]);
            sum.steps.push(variable);
        }

        sum.factors = (0..cut.steps.len()).map(|step| sum.of_step(step)).collect();
        let converted = values(cut).filter(|value| sum.additional.contains_key(value));
        let conversions: Vec<Factor> = converted.map(|value| sum.of_conversions(value)).collect();
        sum.factors.extend(conversions);
        let outputs: Vec<Factor> = cut.outputs.iter().map(|&output| sum.of_output(output)).collect();
        sum.factors.extend(outputs);
        sum
    }

    /// Returns the choice with the least time.
    pub(crate) fn least(&self) -> Layouts {
        self.layouts_of(&minimise(&self.domains, self.factors.clone()).values)
    }

    /// Returns, for each root and each layout other than in `least`, the best choice with that
    /// layout, the largest tensors first. [`MOST_OTHERWISE`] limits the number for large networks,
    /// where the time would grow with the square of the steps.
    pub(crate) fn alternatives<'s>(&'s self, least: &'s Layouts) -> impl Iterator<Item = Layouts> + 's {
        let mut roots: Vec<(ValueId, usize)> =
            values(self.cut).filter_map(|value| Some((value, *self.primary.get(&value)?))).collect();
        // Layouts of large tensors matter most.
        roots.sort_by_key(|(value, _)| Reverse(self.cut.value(*value).shape.iter().product::<usize>()));
        let others = roots.into_iter().flat_map(move |(value, variable)| {
            let is_other = move |at: &usize| least.roots.get(&value) != self.layouts[variable][*at].first();
            (0..self.domains[variable]).filter(is_other).map(move |at| (variable, at))
        });

        let mut left = MOST_OTHERWISE;
        others.map_while(move |(variable, at)| {
            if left == 0 {
                return None;
            }
            let (layouts, entries) = self.minimum_with(variable, at);
            left = left.saturating_sub(entries + FACTOR_ENTRIES * self.factors.len());
            Some(layouts)
        })
    }

    /// Returns the best choice with a variable fixed to a value, and the number of table entries
    /// computed.
    fn minimum_with(&self, variable: usize, value: usize) -> (Layouts, usize) {
        // A factor with infinite cost elsewhere fixes the variable.
        let cost = |at: usize| if at == value { 0.0 } else { f64::INFINITY };
        let fixed = Factor { variables: vec![variable], costs: (0..self.domains[variable]).map(cost).collect() };
        let factors = self.factors.iter().cloned().chain([fixed]).collect();
        let Minimum { values, entries } = minimise(&self.domains, factors);
        (self.layouts_of(&values), entries)
    }

    /// Returns the layouts and schedules that the variables' values stand for.
    fn layouts_of(&self, values: &[usize]) -> Layouts {
        let layout = |variable: usize| self.layouts[variable][values[variable]].first().copied();
        let roots = self.primary.iter().filter_map(|(&root, &variable)| Some((root, layout(variable)?))).collect();
        let picks = self.steps.iter().map(|&variable| values[variable]).collect();
        let secs = self.factors.iter().map(|factor| factor.cost(&self.domains, values)).sum();
        Layouts { roots, picks, secs }
    }

    /// Adds a variable with the layouts that each of its values stands for.
    fn add(&mut self, layouts: Vec<Vec<Layout>>) -> usize {
        self.domains.push(layouts.len());
        self.layouts.push(layouts);
        self.domains.len() - 1
    }

    /// Adds variables for the additional layouts of values: the subsets of layouts that at least
    /// two steps use.
    fn add_additional(&mut self) {
        let mut wanted: FxHashMap<ValueId, Vec<Vec<Layout>>> = FxHashMap::default();
        for (step, wishes) in self.cut.steps.iter().zip(self.constraints) {
            for (place, &value) in step.operands.iter().chain([&step.output]).enumerate() {
                let of =
                    |wish: &LayoutConstraint| wish.operands.get(place).map_or(Some(wish.output), |operand| *operand);
                let layouts = match wishes {
                    LayoutConstraints::Of(of_step) => of_step.iter().filter_map(of).collect(),
                    LayoutConstraints::Same(of_step) => {
                        of_step.first().map(|&first| self.of_root(first).concat()).unwrap_or_default()
                    }
                };
                wanted.entry(value).or_default().push(layouts);
            }
        }
        // Outputs are required in the plain layout.
        for &output in &self.cut.outputs {
            wanted.entry(output).or_default().push(vec![Layout::Plain]);
        }

        for value in values(self.cut) {
            // With a single use there is no conversion to share.
            let Some(wanted) = wanted.get(&value).filter(|wanted| wanted.len() > 1) else { continue };
            let count = |layout: Layout| wanted.iter().filter(|layouts| layouts.contains(&layout)).count();
            let always = |layout: Layout| self.of_root(value) == [vec![layout]];
            let mut distinct: Vec<Layout> = Vec::new();
            for &layout in wanted.iter().flatten() {
                if !distinct.contains(&layout) {
                    distinct.push(layout);
                }
            }
            let is_shared = |&layout: &Layout| count(layout) > 1 && !always(layout);
            let shared: Vec<Layout> = distinct.into_iter().filter(is_shared).collect();
            if shared.is_empty() {
                continue;
            }
            // Each subset of the shared layouts is a value of the variable.
            let subset = |bits: usize| (0..shared.len()).filter(move |at| bits >> at & 1 == 1).map(|at| shared[at]);
            let subsets: Vec<Vec<Layout>> = (0..1usize << shared.len()).map(|bits| subset(bits).collect()).collect();
            let variable = self.add(subsets);
            self.additional.insert(value, variable);
        }
    }

    /// Returns the possible layouts of a value's root.
    fn of_root(&self, value: ValueId) -> &[Vec<Layout>] {
        &self.layouts[self.primary[&self.cut.root(value).0]]
    }

    /// Returns the seconds of a conversion, measured or estimated; 0 between equal layouts.
    fn conversion(&self, value: ValueId, is: Layout, wanted: Layout) -> f64 {
        if is == wanted {
            return 0.0;
        }
        let known = self.conversions.get(&(value, is, wanted)).copied();
        known.unwrap_or_else(|| {
            let MemoryValue { shape, dtype, .. } = self.cut.value(value);
            estimated_secs(shape, *dtype)
        })
    }

    /// Returns the seconds of conversion for a reader that requires a layout.
    fn reading(&self, value: ValueId, had: &AvailableLayouts, wanted: Layout) -> f64 {
        if had.additional.contains(&wanted) { 0.0 } else { self.conversion(value, had.primary, wanted) }
    }

    /// Returns the seconds of conversion after a step that writes a value: from the written layout
    /// to the value's own. If the written layout is one of the additional ones, the conversion to
    /// it, which [`Self::of_conversions`] counts, is not needed and is subtracted.
    fn writing(&self, value: ValueId, had: &AvailableLayouts, written: Layout) -> f64 {
        let paid = if had.additional.contains(&written) { self.conversion(value, had.primary, written) } else { 0.0 };
        self.conversion(value, written, had.primary) - paid
    }

    /// Returns the variables of a value's layouts.
    fn variables(&self, value: ValueId) -> impl Iterator<Item = usize> {
        [self.primary[&self.cut.root(value).0]].into_iter().chain(self.additional.get(&value).copied())
    }

    fn available_layouts<'s>(&'s self, value: ValueId, values: &dyn Fn(usize) -> usize) -> AvailableLayouts<'s> {
        let meant = |variable: usize| &self.layouts[variable][values(variable)][..];
        let primary = meant(self.primary[&self.cut.root(value).0]).first().copied().unwrap_or(Layout::Plain);
        AvailableLayouts {
            primary,
            additional: self.additional.get(&value).map(|&variable| meant(variable)).unwrap_or_default(),
        }
    }

    /// Returns the cost of a step, by its schedule and the layouts of operands and output.
    fn of_step(&self, number: usize) -> Factor {
        let (step, schedule) = (&self.cut.steps[number], self.steps[number]);
        let mut variables = vec![schedule];
        for variable in step.operands.iter().chain([&step.output]).flat_map(|&value| self.variables(value)) {
            if !variables.contains(&variable) {
                variables.push(variable);
            }
        }

        self.tabulate(variables, |values| {
            let reading =
                |value: ValueId, wanted: Layout| self.reading(value, &self.available_layouts(value, values), wanted);
            let writing =
                |written: Layout| self.writing(step.output, &self.available_layouts(step.output, values), written);
            match &self.constraints[number] {
                LayoutConstraints::Of(of) => {
                    let Some(wish) = of.get(values(schedule)) else { return 0.0 };
                    let reads = step.operands.iter().zip(&wish.operands);
                    let reads: f64 = reads.filter_map(|(&value, wanted)| Some(reading(value, (*wanted)?))).sum();
                    wish.run_secs + reads + writing(wish.output)
                }
                LayoutConstraints::Same(operands) => {
                    let same =
                        operands.first().map_or(Layout::Plain, |&first| self.available_layouts(first, values).primary);
                    operands.iter().map(|&value| reading(value, same)).sum::<f64>() + writing(same)
                }
            }
        })
    }

    /// Returns the cost of providing a value in additional layouts.
    fn of_conversions(&self, value: ValueId) -> Factor {
        self.tabulate(self.variables(value).collect(), |values| {
            let had = self.available_layouts(value, values);
            had.additional.iter().map(|&layout| self.conversion(value, had.primary, layout)).sum()
        })
    }

    /// Returns the cost of an output, by its layouts.
    fn of_output(&self, output: ValueId) -> Factor {
        let variables = self.variables(output).collect();
        self.tabulate(variables, |values| self.reading(output, &self.available_layouts(output, values), Layout::Plain))
    }

    /// Tabulates a cost over all combinations of the variables' values.
    fn tabulate(&self, variables: Vec<usize>, cost: impl Fn(&dyn Fn(usize) -> usize) -> f64) -> Factor {
        let entries: usize = variables.iter().map(|&variable| self.domains[variable]).product();
        // An entry's index is a mixed-radix number of the variables' values.
        let of_entry = |entry: usize| {
            let digit = |variable: usize| {
                let place = variables.iter().position(|&other| other == variable).unwrap_or(variables.len());
                let behind = variables.iter().skip(place + 1).map(|&other| self.domains[other]);
                entry / behind.product::<usize>() % self.domains[variable]
            };
            cost(&digit)
        };
        let costs = (0..entries).map(of_entry).collect();
        Factor { variables, costs }
    }
}

fn values(cut: &Cut) -> impl Iterator<Item = ValueId> {
    (0..cut.values.len()).map(|value| ValueId(value as u32))
}

/// Returns the blocked layouts that any schedule requires.
pub(crate) fn blocked(wishes: &[LayoutConstraints]) -> Vec<Layout> {
    let mut found = Vec::new();
    for wish in
        wishes.iter().flat_map(|wishes| if let LayoutConstraints::Of(of) = wishes { of.as_slice() } else { &[] })
    {
        for layout in wish.operands.iter().flatten().chain([&wish.output]) {
            if *layout != Layout::Plain && !found.contains(layout) {
                found.push(*layout);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use autotune_ir::DType;

    use super::*;
    use crate::cut::{Step, StepWork};
    use autotune_graph::NodeId;

    const BLOCKED: Layout = Layout::ChannelBlocked(16);

    /// A chain of steps over values with these numbers of pixels.
    fn chain(sizes: &[usize]) -> Cut {
        let value =
            |&size: &usize| MemoryValue { node: NodeId(0), shape: vec![1, 16, size], dtype: DType::F32, within: None };
        let step = |at: usize| Step {
            name: at.to_string(),
            work: StepWork::Interpret(NodeId(0)),
            operands: vec![ValueId(at as u32)],
            output: ValueId(at as u32 + 1),
        };
        let last = ValueId(sizes.len() as u32 - 1);
        Cut {
            values: sizes.iter().map(value).collect(),
            steps: (0..sizes.len() - 1).map(step).collect(),
            inputs: vec![ValueId(0)],
            outputs: vec![last],
        }
    }

    fn assign(
        cut: &Cut,
        constraints: &[LayoutConstraints],
        can_have_layout: &dyn Fn(ValueId, Layout) -> bool,
    ) -> Layouts {
        Sum::of(cut, constraints, &Conversions::default(), can_have_layout).least()
    }

    fn constraint(input: Layout, output: Layout, run_secs: f64) -> LayoutConstraint {
        LayoutConstraint { operands: vec![Some(input)], output, run_secs }
    }

    #[test]
    fn a_faster_schedule_is_left_where_its_conversions_cost_more() {
        let cut = chain(&[1000, 1000, 1000]);
        let convert = estimated_secs(&[1, 16, 1000], DType::F32);
        // The first step writes a blocked output; the second is slower on it, by less or by more
        // than a conversion takes.
        let first = LayoutConstraints::Of(vec![constraint(Layout::Plain, BLOCKED, 1.0)]);
        let second = |gain: f64| {
            let slower = constraint(BLOCKED, Layout::Plain, 1.0 + gain * convert);
            LayoutConstraints::Of(vec![constraint(Layout::Plain, Layout::Plain, 1.0), slower])
        };
        let inner = |gain| assign(&cut, &[first.clone(), second(gain)], &|value, _| value == ValueId(1));
        assert_eq!(inner(0.5).picks, [0, 1]);
        assert_eq!(inner(0.5).roots[&ValueId(1)], BLOCKED);
        assert_eq!(inner(2.0).picks, [0, 0]);
    }

    /// Large networks try few alternatives, since the time would grow with the square of their
    /// size.
    #[test]
    fn large_networks_have_few_alternatives() {
        let (cut, both) = (chain(&[4; 6000]), [Layout::Plain, BLOCKED]);
        let wishes: Vec<LayoutConstraints> = (0..cut.steps.len())
            .map(|step| {
                LayoutConstraints::Of(both.iter().map(|&layout| constraint(layout, both[step % 2], 1.0)).collect())
            })
            .collect();
        let conversions = Conversions::default();
        let sum = Sum::of(&cut, &wishes, &conversions, &|_, _| true);
        let least = sum.least();
        let count = sum.alternatives(&least).count();
        assert!(count > 10 && (count - 1) * FACTOR_ENTRIES * sum.factors.len() <= MOST_OTHERWISE, "{count}");
    }

    #[test]
    fn elementwise_steps_keep_the_layout() {
        let cut = chain(&[1000, 1000, 1000, 1000]);
        let wishes = [
            LayoutConstraints::Of(vec![constraint(Layout::Plain, BLOCKED, 1.0)]),
            LayoutConstraints::Same(vec![ValueId(1)]),
            LayoutConstraints::Of(vec![constraint(BLOCKED, Layout::Plain, 1.0)]),
        ];
        let found = assign(&cut, &wishes, &|value, _| value != ValueId(0));
        assert_eq!([1, 2].map(|value| found.roots[&ValueId(value)]), [BLOCKED; 2]);
        assert_eq!(found.roots[&ValueId(3)], Layout::Plain);
        // A tensor that cannot be blocked is converted equally well before or after the step.
        let found = assign(&cut, &wishes, &|value, _| value == ValueId(1));
        assert_eq!(found.roots[&ValueId(2)], Layout::Plain);
    }
}
