//! Which layout every tensor has, and which of its schedules every step: what makes the network fastest, conversions included.
//!
//! Liu et al., "Optimizing CNN Model Inference on CPUs" (2019), section 3.3, choose layouts so by dynamic programming over measured times; here
//! the variables are the layouts of tensors and the schedules of steps, and any graph will do ([`crate::minimise`]).

use std::collections::HashMap;

use autotune_ir::program::Layout;

use crate::cut::{Cut, ValueId};
use crate::minimise::{Factor, minimise};

/// Seconds that a conversion takes beside moving its bytes, and bytes that it reads and writes a second, about: within networks, on one core and
/// on two of an AMD EPYC (family 25, model 17), transposes of 16 channels of 100 kB to 1.8 MB were measured at 22 to 45 GB/s where the second-level
/// cache held a good part, at least 7 else.
const CONVERSION_SECS: f64 = 3e-6;
const CONVERSION_BYTES_PER_SEC: f64 = 20e9;

/// What a schedule of a step wants.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Wish {
    /// The layout of each of the step's operands; `None` where any will do.
    pub(crate) operands: Vec<Option<Layout>>,
    /// The layout that it writes.
    pub(crate) output: Layout,
    /// Seconds that it takes; 0 where nothing else is to be chosen.
    pub(crate) run_secs: f64,
}

/// What a step wants of the layouts of its tensors.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Wishes {
    /// One of these.
    Of(Vec<Wish>),
    /// The same layout for all of these operands and the output.
    Same(Vec<ValueId>),
}

/// A choice of layouts and schedules.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Layouts {
    /// Of every value that others lie in, or that lies in none.
    pub(crate) roots: HashMap<ValueId, Layout>,
    /// For each step the number of its schedule.
    pub(crate) picks: Vec<usize>,
}

/// The choice with the least time. `can_lie` says whether a value's memory can have a layout; outputs are converted to the plain one.
pub(crate) fn assign(cut: &Cut, wishes: &[Wishes], can_lie: &dyn Fn(ValueId, Layout) -> bool) -> Layouts {
    let mut space = Space { cut, domains: Vec::new(), layouts: Vec::new(), of_roots: HashMap::new() };
    let blocked = blocked(wishes);
    for value in (0..cut.values.len()).map(|value| ValueId(value as u32)) {
        if cut.value(value).within.is_none() {
            let fitting = blocked.iter().copied().filter(|&layout| can_lie(value, layout));
            space.add_root(value, [Layout::Plain].into_iter().chain(fitting).collect());
        }
    }
    let steps: Vec<usize> = wishes.iter().map(|wishes| space.add_step(wishes)).collect();

    let mut factors: Vec<Factor> =
        cut.steps.iter().enumerate().map(|(step, _)| space.factor(step, steps[step], &wishes[step])).collect();
    factors.extend(cut.outputs.iter().map(|&output| space.output(output)));
    let values = minimise(&space.domains, factors);

    let roots = space.of_roots.iter().map(|(&root, &variable)| (root, space.layouts[variable][values[variable]]));
    Layouts { roots: roots.collect(), picks: steps.iter().map(|&variable| values[variable]).collect() }
}

/// The layouts other than the plain one that some schedule wants.
fn blocked(wishes: &[Wishes]) -> Vec<Layout> {
    let mut found = Vec::new();
    for wish in wishes.iter().flat_map(|wishes| if let Wishes::Of(of) = wishes { of.as_slice() } else { &[] }) {
        for layout in wish.operands.iter().flatten().chain([&wish.output]) {
            if *layout != Layout::Plain && !found.contains(layout) {
                found.push(*layout);
            }
        }
    }
    found
}

/// Variables: a layout for every root, a schedule for every step.
struct Space<'a> {
    cut: &'a Cut,
    domains: Vec<usize>,
    /// For each variable that is a root its layouts.
    layouts: Vec<Vec<Layout>>,
    of_roots: HashMap<ValueId, usize>,
}

impl Space<'_> {
    fn add_root(&mut self, root: ValueId, layouts: Vec<Layout>) {
        self.of_roots.insert(root, self.domains.len());
        self.domains.push(layouts.len());
        self.layouts.push(layouts);
    }

    fn add_step(&mut self, wishes: &Wishes) -> usize {
        self.domains.push(match wishes {
            Wishes::Of(of) => of.len().max(1),
            Wishes::Same(_) => 1,
        });
        self.layouts.push(Vec::new());
        self.domains.len() - 1
    }

    fn variable(&self, value: ValueId) -> usize {
        self.of_roots[&self.cut.root(value).0]
    }

    /// Seconds of a conversion of a value, if there is one.
    fn conversion(&self, value: ValueId, is: Layout, wanted: Layout) -> f64 {
        let elements: usize = self.cut.value(value).shape.iter().product();
        let bytes = 2.0 * (elements * size_of::<f32>()) as f64;
        if is == wanted { 0.0 } else { CONVERSION_SECS + bytes / CONVERSION_BYTES_PER_SEC }
    }

    /// What a step costs, by its schedule and the layouts of what it reads and writes.
    fn factor(&self, step: usize, schedule: usize, wishes: &Wishes) -> Factor {
        let step = &self.cut.steps[step];
        let mut variables = vec![schedule];
        for &value in step.operands.iter().chain([&step.output]) {
            let variable = self.variable(value);
            if !variables.contains(&variable) {
                variables.push(variable);
            }
        }

        self.tabulate(variables, |values| {
            let layout = |value: ValueId| {
                let variable = self.variable(value);
                self.layouts[variable][values(variable)]
            };
            match wishes {
                Wishes::Of(of) => {
                    let Some(wish) = of.get(values(schedule)) else { return 0.0 };
                    let reads = step.operands.iter().zip(&wish.operands);
                    let reads = reads.filter_map(|(&value, wanted)| Some((value, (*wanted)?)));
                    let reads: f64 = reads.map(|(value, wanted)| self.conversion(value, layout(value), wanted)).sum();
                    wish.run_secs + reads + self.conversion(step.output, wish.output, layout(step.output))
                }
                Wishes::Same(operands) => {
                    let same = operands.first().map_or(Layout::Plain, |&first| layout(first));
                    let others = operands.iter().chain([&step.output]);
                    others.map(|&value| self.conversion(value, layout(value), same)).sum()
                }
            }
        })
    }

    /// What an output costs, by its layout.
    fn output(&self, output: ValueId) -> Factor {
        let variable = self.variable(output);
        self.tabulate(vec![variable], |values| {
            self.conversion(output, self.layouts[variable][values(variable)], Layout::Plain)
        })
    }

    /// A cost for every combination of values of some variables.
    fn tabulate(&self, variables: Vec<usize>, cost: impl Fn(&dyn Fn(usize) -> usize) -> f64) -> Factor {
        let entries: usize = variables.iter().map(|&variable| self.domains[variable]).product();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cut::{Step, Value, Work};
    use crate::graph::NodeId;

    const BLOCKED: Layout = Layout::ChannelBlocked(16);

    /// A chain of steps over values of as many elements as are given.
    fn chain(sizes: &[usize]) -> Cut {
        let value = |&size: &usize| Value { node: NodeId(0), shape: vec![1, 16, size], within: None };
        let step = |at: usize| Step {
            name: at.to_string(),
            work: Work::Interpret(NodeId(0)),
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

    fn wish(input: Layout, output: Layout, run_secs: f64) -> Wish {
        Wish { operands: vec![Some(input)], output, run_secs }
    }

    #[test]
    fn a_faster_schedule_is_left_where_its_conversions_cost_more() {
        let cut = chain(&[1000, 1000, 1000]);
        let convert = CONVERSION_SECS + 2.0 * 64e3 / CONVERSION_BYTES_PER_SEC;
        // The first wants its output blocked; the second is faster on the plain one, but not by a conversion.
        let first = Wishes::Of(vec![wish(Layout::Plain, BLOCKED, 1.0)]);
        let second = |gain: f64| {
            let slower = wish(BLOCKED, Layout::Plain, 1.0 + gain * convert);
            Wishes::Of(vec![wish(Layout::Plain, Layout::Plain, 1.0), slower])
        };
        let inner = |gain| assign(&cut, &[first.clone(), second(gain)], &|value, _| value == ValueId(1));
        assert_eq!(inner(0.5).picks, [0, 1]);
        assert_eq!(inner(0.5).roots[&ValueId(1)], BLOCKED);
        assert_eq!(inner(2.0).picks, [0, 0]);
    }

    #[test]
    fn what_does_the_same_to_every_element_keeps_the_layout() {
        let cut = chain(&[1000, 1000, 1000, 1000]);
        let wishes = [
            Wishes::Of(vec![wish(Layout::Plain, BLOCKED, 1.0)]),
            Wishes::Same(vec![ValueId(1)]),
            Wishes::Of(vec![wish(BLOCKED, Layout::Plain, 1.0)]),
        ];
        let found = assign(&cut, &wishes, &|value, _| value != ValueId(0));
        assert_eq!([1, 2].map(|value| found.roots[&ValueId(value)]), [BLOCKED; 2]);
        assert_eq!(found.roots[&ValueId(3)], Layout::Plain);
        // Where a tensor cannot lie so, one conversion is as good before it as behind.
        let found = assign(&cut, &wishes, &|value, _| value == ValueId(1));
        assert_eq!(found.roots[&ValueId(2)], Layout::Plain);
    }
}
