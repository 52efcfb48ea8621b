//! Conversions of a tensor from one layout to another.

use std::collections::{HashMap, HashSet};

use autotune::{Query, Task, Tuned};
use autotune_db::{Source, Standing};
use autotune_ir::Target;
use autotune_ir::program::Layout;
use autotune_workloads::{Transpose, Workload};

use crate::choose::Schedules;
use crate::cut::Cut;
use crate::error::CompileError;
use crate::graph::Graph;
use crate::options::Options;
use crate::plan::Plan;

/// Seconds that a conversion takes beside moving its bytes, and bytes that it reads and writes a second, about, where it was not measured: within
/// networks, on one core and on two of an AMD EPYC (family 25, model 17), transposes of 16 channels of 100 kB to 1.8 MB were measured at 22 to
/// 45 GB/s where the second-level cache held a good part, at least 7 else.
const SECS: f64 = 3e-6;
const BYTES_PER_SEC: f64 = 20e9;

/// Plans whose conversions are worth measuring: those that take at most this multiple of the fastest's time.
const NEAR: f64 = 1.03;
/// Steps of all these plans together, at most: of large networks there are fewer plans.
const MOST_STEPS: usize = 1 << 19;

/// What a conversion computes, which is a transpose of blocks.
///
/// `[n, c, ..pixels]` → `[n, c/block, ..pixels, block]`: of `n*c/block` matrices of `block` rows and `pixels` columns; and back.
pub(crate) fn workload(shape: &[usize], from: Layout, to: Layout) -> Result<Workload, CompileError> {
    let none = || CompileError::Layouts { from, to };
    let [n, c, pixels @ ..] = shape else { return Err(none()) };
    let area: usize = pixels.iter().product();
    let transpose = match (from, to) {
        (Layout::Plain, Layout::ChannelBlocked(block)) => Transpose::matrices(n * c / block, block, area),
        (Layout::ChannelBlocked(block), Layout::Plain) => Transpose::matrices(n * c / block, area, block),
        _ => return Err(none()),
    };
    Workload::new(transpose).map_err(CompileError::Workload)
}

/// About how long a conversion of a tensor takes that was not measured.
pub(crate) fn estimated_secs(shape: &[usize]) -> f64 {
    let bytes = 2.0 * size_of::<f32>() as f64 * shape.iter().map(|&extent| extent as f64).product::<f64>();
    SECS + bytes / BYTES_PER_SEC
}

/// The conversions of layouts of a network, by what a source knows.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedConversions {
    /// Those of the fastest plan.
    pub needed: Vec<Task>,
    /// Part of that plan's time that they take.
    pub share: f64,
    /// Those whose times tell the fastest plan from others, and that were not measured on this machine: needed, or in the place of others in a plan
    /// that takes little longer. The former come first.
    pub unmeasured: Vec<Task>,
}

/// The conversions of layouts that a network's plan needs.
pub fn conversions(graph: &Graph, source: &dyn Source, target: &Target) -> Result<PlannedConversions, CompileError> {
    let cut = Cut::of(graph);
    let mut choose = Schedules::kinds(Some(source), target);
    let options = Options::of(graph, &cut, &mut choose)?;

    let mut known: Vec<Task> = Vec::new();
    let mut are_known: HashSet<Workload> = HashSet::new();
    let (mut share, mut needed) = (0.0, 0);
    let most = 1 + MOST_STEPS / cut.steps.len().max(1);
    for (number, layouts) in options.near(NEAR).iter().take(most).enumerate() {
        let plan = Plan::with(&options, layouts, &mut choose)?;
        let mut counts: HashMap<&Workload, usize> = HashMap::new();
        plan.conversions().for_each(|tuned| *counts.entry(tuned.workload()).or_default() += 1);
        for workload in plan.conversions().map(Tuned::workload) {
            if are_known.insert(workload.clone()) {
                let count = counts[workload];
                known.push(Task { name: workload.to_string(), workload: workload.clone(), count });
            }
        }
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

/// True if a source knows how long a workload takes on this machine.
fn is_measured(source: &dyn Source, workload: &Workload, target: &Target) -> Result<bool, CompileError> {
    let found = Query::new(workload, target).source(source).record()?;
    Ok(found.as_ref().and_then(Tuned::best).is_some_and(|best| best.standing != Standing::Claimed))
}
