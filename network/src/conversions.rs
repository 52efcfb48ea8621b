//! Layout conversions that a network needs.

use std::collections::{HashMap, HashSet};

use autotune::{Query, Task, Tuned};
use autotune_db::{Source, TimeProvenance};
use autotune_ir::Target;
use autotune_workloads::Workload;

use crate::choose::Schedules;
use crate::cut::Cut;
use crate::error::CompileError;
use crate::options::Options;
use crate::plan::NetworkPlan;
use autotune_graph::Graph;

/// Largest time of a plan whose conversions are measured, over the time of the fastest plan.
const NEAR: f64 = 1.03;
/// Maximum number of steps in all these plans together; large networks get fewer plans.
const MOST_STEPS: usize = 1 << 19;

/// Layout conversions of a network, planned with the times that a source knows.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedConversions {
    /// Conversions of the fastest plan.
    pub needed: Vec<Task>,
    /// Fraction of that plan's time that conversions take.
    pub share: f64,
    /// Conversions not measured on this machine whose times decide between plans: those of the
    /// fastest plan first, then those of plans that take little longer.
    pub unmeasured: Vec<Task>,
}

/// Plans a network's layouts, and returns the conversions that the best plans need.
pub fn conversions(graph: &Graph, source: &dyn Source, target: &Target) -> Result<PlannedConversions, CompileError> {
    let cut = Cut::for_target(graph, target);
    let mut choose = Schedules::kinds(Some(source), target);
    let options = Options::of(graph, &cut, &mut choose)?;

    let mut known: Vec<Task> = Vec::new();
    let mut are_known: HashSet<Workload> = HashSet::new();
    let (mut share, mut needed) = (0.0, 0);
    let most = 1 + MOST_STEPS / cut.steps.len().max(1);
    for (number, layouts) in options.near(NEAR).iter().take(most).enumerate() {
        let plan = NetworkPlan::with(&options, layouts, &mut choose)?;
        let mut counts: HashMap<&Workload, usize> = HashMap::new();
        plan.conversions().for_each(|tuned| *counts.entry(tuned.workload()).or_default() += 1);
        for workload in plan.conversions().map(Tuned::workload) {
            if are_known.insert(workload.clone()) {
                let count = counts[workload];
                known.push(Task { name: workload.to_string(), workload: workload.clone(), count });
            }
        }
        // The first plan is the fastest.
        if number == 0 {
            needed = known.len();
            share = options.conversion_secs(layouts) / layouts.secs.max(f64::MIN_POSITIVE);
        }
    }

    let mut unmeasured = Vec::new();
    for task in &known {
        if !is_measured(source, &task.workload, target)? {
            unmeasured.push(task.clone());
        }
    }
    known.truncate(needed);
    Ok(PlannedConversions { needed: known, share, unmeasured })
}

/// True if a source has a time for a workload that was measured on this machine.
fn is_measured(source: &dyn Source, workload: &Workload, target: &Target) -> Result<bool, CompileError> {
    let found = Query::new(workload, target).source(source).record()?;
    Ok(found.as_ref().and_then(Tuned::best).is_some_and(|best| best.standing != TimeProvenance::Claimed))
}
