//! Choice of a network's precision by measurement.
//!
//! A network in f32, in each other precision of the target, and in that except for the steps that
//! are slower in it are timed interleaved, on the same inputs. The fastest network with a permitted
//! output error wins.

use std::collections::BTreeSet;
use std::sync::Arc;

use autotune_db::Source;
use autotune_ir::Target;
use autotune_runtime::Cpu;

use crate::compiled::{Compiled, Workspace, output_error};
use crate::conversion::estimated_secs;
use crate::device::NetworkDevice;
use crate::error::RunError;
use crate::interleaved::time_interleaved;
use crate::quantile::{QUIET, quantile};
use crate::race::RaceError;
use autotune_graph::Precision;
use autotune_graph::Tensor;
use autotune_graph::{Graph, NodeId};

/// Number of runs for timing steps and networks.
const STEP_RUNS: usize = 5;
const RUNS: usize = 15;

/// Minimum fraction of the f32 time that a network in another precision must save; less is noise.
const LEAST_GAIN: f64 = 0.01;

/// A network in its fastest permitted precision.
pub struct Decided<D: NetworkDevice = Cpu> {
    /// Network in the chosen precision, ready to run.
    pub network: Arc<Compiled<D>>,
    /// Measured networks; the first is f32.
    pub contenders: Vec<Contender>,
    /// Position of the chosen network among the contenders.
    pub chosen: usize,
}

/// Measurement of a network in a precision.
#[derive(Clone, Debug, PartialEq)]
pub struct Contender {
    /// Precision of the steps, apart from the exact ones.
    pub precision: Precision,
    /// Number of steps that compute in f32 because they are faster so.
    pub f32_steps: usize,
    /// Seconds of a run: low quantile over runs interleaved with the other contenders.
    pub run_secs: f64,
    /// Largest difference of an output's element from f32, relative to the largest element of that
    /// output.
    pub max_rel_error: f64,
}

/// A contender during the measurement.
struct TimedContender<D: NetworkDevice> {
    workspace: Workspace<D>,
    outputs: Vec<Tensor>,
}

impl<D: NetworkDevice> TimedContender<D> {
    fn of(graph: &Graph, source: Option<&dyn Source>, target: &Target, inputs: &[Tensor]) -> Result<Self, RaceError> {
        let mut workspace = Compiled::on_device(graph, source, target)?.workspace()?;
        let outputs = workspace.run_tensors(inputs)?;
        Ok(Self { workspace, outputs })
    }
}

/// Chooses the precision of a network: the fastest on these inputs among those that the target
/// supports and whose outputs differ from f32 by at most `max_error` of their largest element.
/// Schedules come from `source`.
pub fn decide<D: NetworkDevice>(
    graph: &Graph,
    source: Option<&dyn Source>,
    target: &Target,
    inputs: &[Tensor],
    max_error: f64,
) -> Result<Decided<D>, RaceError> {
    let in_precision = |precision| graph.clone().with_precision(precision);
    let mut entrants = vec![TimedContender::of(&in_precision(Precision::F32), source, target, inputs)?];
    let others = Precision::ALL.into_iter().filter(|&precision| precision != Precision::F32);
    for precision in others.filter(|precision| target.supports(precision.dtype())) {
        let mut entrant = TimedContender::of(&in_precision(precision), source, target, inputs)?;
        // Steps that rounding slows down stay in f32 in a further network.
        let slower = slower_steps(&mut entrants[0].workspace, &mut entrant.workspace)?;
        entrants.push(entrant);
        if !slower.is_empty() {
            let mixed = in_precision(precision).with_exact(slower);
            entrants.push(TimedContender::of(&mixed, source, target, inputs)?);
        }
    }

    let error = |entrant: &TimedContender<D>| output_error(&entrant.outputs, &entrants[0].outputs);
    let errors: Vec<f64> = entrants.iter().map(error).collect();
    let mut workspaces: Vec<&mut Workspace<D>> = entrants.iter_mut().map(|entrant| &mut entrant.workspace).collect();
    // Interleaved runs let disturbances hit all contenders alike.
    let secs = time_interleaved(&mut workspaces, inputs, RUNS, &|| false)?;
    let contenders: Vec<Contender> = (entrants.iter().zip(errors).zip(secs))
        .map(|((entrant, max_rel_error), secs)| {
            let graph = entrant.workspace.network().graph();
            let (precision, f32_steps) = (graph.precision(), graph.exact().len());
            Contender { precision, f32_steps, run_secs: quantile(secs, QUIET), max_rel_error }
        })
        .collect();

    let chosen = fastest(&contenders, max_error);
    let network = Arc::clone(entrants[chosen].workspace.network());
    Ok(Decided { network, contenders, chosen })
}

/// Returns the position of the fastest contender with a permitted error. f32 always qualifies, and
/// wins unless another saves a noticeable amount.
fn fastest(contenders: &[Contender], max_error: f64) -> usize {
    let mut best = 0;
    for (number, contender) in contenders.iter().enumerate().skip(1) {
        // A rounded network must save enough to be worth its error. Among rounded ones, any gain
        // counts.
        let least = if best == 0 { 1.0 - LEAST_GAIN } else { 1.0 };
        if contender.max_rel_error <= max_error && contender.run_secs < contenders[best].run_secs * least {
            best = number;
        }
    }
    best
}

/// Returns the last nodes of steps that take longer rounded than in f32, even with the conversions
/// of operands and result that f32 would then need.
fn slower_steps<D: NetworkDevice>(
    exact: &mut Workspace<D>,
    rounded: &mut Workspace<D>,
) -> Result<BTreeSet<NodeId>, RunError> {
    let steps = |workspace: &mut Workspace<D>| -> Result<Vec<f64>, RunError> {
        let times = workspace.profile(STEP_RUNS)?;
        Ok(times.iter().filter(|step| !step.is_conversion).map(|step| step.run_secs).collect())
    };
    let (exact_secs, rounded_secs) = (steps(exact)?, steps(rounded)?);

    let network = rounded.network();
    let cut = &network.cut;
    let mut slower = BTreeSet::new();
    for ((step, exact_secs), rounded_secs) in cut.steps.iter().zip(exact_secs).zip(rounded_secs) {
        let tensors = step.operands.iter().chain([&step.output]).map(|&value| cut.value(value));
        let is_converted = |dtype| dtype == network.graph.precision().dtype();
        let converted =
            tensors.filter(|value| network.graph.constant_of(value.node).is_none() && is_converted(value.dtype));
        // In f32 the step would need conversions of its rounded tensors.
        let conversions: f64 = converted.map(|value| estimated_secs(&value.shape, value.dtype)).sum();
        if rounded_secs > exact_secs + conversions {
            slower.insert(cut.value(step.output).node);
        }
    }
    Ok(slower)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contender(run_secs: f64, max_rel_error: f64) -> Contender {
        Contender { precision: Precision::Bf16, f32_steps: 0, run_secs, max_rel_error }
    }

    #[test]
    fn the_fastest_within_the_error_is_taken() {
        let exact = contender(10e-3, 0.0);
        let chosen = |others: &[Contender], most| {
            let all: Vec<Contender> = [&exact].into_iter().chain(others).cloned().collect();
            fastest(&all, most)
        };
        assert_eq!(chosen(&[contender(5e-3, 3e-3), contender(4e-3, 2e-3)], 1e-2), 2);
        assert_eq!(chosen(&[contender(5e-3, 3e-3), contender(4e-3, 2e-2)], 1e-2), 1);
        assert_eq!(chosen(&[contender(5e-3, 3e-3)], 1e-3), 0);
        assert_eq!(chosen(&[contender(9.95e-3, 3e-3)], 1e-2), 0, "no gain");
        assert_eq!(chosen(&[contender(5e-3, f64::NAN)], 1e-2), 0);
        assert_eq!(chosen(&[], 1e-2), 0);
    }
}
