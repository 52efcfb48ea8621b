//! Planned kernels of a network for a target that need not be present.

use autotune::{LookupError, Query, Tuned};
use autotune_db::Source;
use autotune_ir::Target;
use autotune_schedules::UnfitError;
use autotune_workloads::Workload;

use crate::cut::{Cut, StepWork};
use autotune_graph::Graph;

/// A step of a network and its schedule on a target.
#[derive(Clone, Debug)]
pub struct PlannedStep {
    /// Name of the first node that the step computes.
    pub name: String,
    /// Kernel of the step.
    pub kernel: PlannedKernel,
}

/// Kernel of a planned step.
#[derive(Clone, Debug)]
pub enum PlannedKernel {
    /// A kernel with the best known or predicted schedule.
    Of(Box<Tuned>),
    /// A kernel that the target does not support, and the reason.
    Refused(Workload, UnfitError),
    /// A copy of elements, without a kernel.
    Copy,
    /// No kernel: the interpreter would compute the step.
    None,
}

/// Returns the steps of a network on a target, with the best schedules of a source, or predicted
/// ones where it has none. Each kernel is planned for the `variant` of its workload, for example
/// with another element type.
///
/// # Errors
/// If the source cannot be read.
pub fn planned(
    graph: &Graph,
    source: Option<&dyn Source>,
    target: &Target,
    variant: impl Fn(&Workload) -> Workload,
) -> Result<Vec<PlannedStep>, LookupError> {
    let kernel = |work: &StepWork| {
        let StepWork::Kernel(workload) = work else {
            return Ok(if matches!(work, StepWork::Copy(_)) { PlannedKernel::Copy } else { PlannedKernel::None });
        };
        // On other devices weights remain in device memory, so nothing is uncached.
        let workload = variant(&workload.with_cold(workload.is_cold() && target.cpu().is_some()));
        let query = Query::new(&workload, target);
        match source.map_or(query, |source| query.source(source)).best() {
            Ok(tuned) => Ok(PlannedKernel::Of(Box::new(tuned))),
            Err(LookupError::Unfit { workload, why }) => Ok(PlannedKernel::Refused(*workload, why)),
            Err(error) => Err(error),
        }
    };
    let steps = Cut::for_target(graph, target).steps;
    steps.into_iter().map(|step| Ok(PlannedStep { kernel: kernel(&step.work)?, name: step.name })).collect()
}
