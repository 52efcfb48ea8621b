//! What a network's kernels would be on a target that this machine need not have.

use autotune::{LookupError, Query, Tuned};
use autotune_db::Source;
use autotune_ir::Target;
use autotune_schedules::UnfitError;
use autotune_workloads::Workload;

use crate::cut::{Cut, Work};
use autotune_graph::Graph;

/// A step of a network and its schedule on a target.
#[derive(Clone, Debug)]
pub struct PlannedStep {
    /// The name of the first node that it computes.
    pub name: String,
    /// What it runs.
    pub kernel: PlannedKernel,
}

/// What a step runs.
#[derive(Clone, Debug)]
pub enum PlannedKernel {
    /// A kernel, by the best schedule that is known or predicted.
    Of(Box<Tuned>),
    /// A kernel that the target does not have, and why.
    Refused(Workload, UnfitError),
    /// It copies elements.
    Copy,
    /// There is no workload for it: the interpreter would compute it.
    None,
}

/// Returns the steps of a network on a target, with the best schedules that a source has, what is
/// predicted where it has none. Each kernel is planned for the `variant` of its workload: with
/// another element type, say.
///
/// # Errors
/// If the source cannot be read.
pub fn planned(
    graph: &Graph,
    source: Option<&dyn Source>,
    target: &Target,
    variant: impl Fn(&Workload) -> Workload,
) -> Result<Vec<PlannedStep>, LookupError> {
    let kernel = |work: &Work| {
        let Work::Kernel(workload) = work else {
            return Ok(if matches!(work, Work::Copy(_)) { PlannedKernel::Copy } else { PlannedKernel::None });
        };
        // On other devices weights are where the last run left them.
        let workload = variant(&workload.with_cold(workload.is_cold() && target.cpu().is_some()));
        let query = Query::new(&workload, target);
        match source.map_or(query, |source| query.source(source)).best() {
            Ok(tuned) => Ok(PlannedKernel::Of(Box::new(tuned))),
            Err(LookupError::Unfit { workload, why }) => Ok(PlannedKernel::Refused(*workload, why)),
            Err(error) => Err(error),
        }
    };
    let steps = Cut::of(graph).steps;
    steps.into_iter().map(|step| Ok(PlannedStep { kernel: kernel(&step.work)?, name: step.name })).collect()
}
