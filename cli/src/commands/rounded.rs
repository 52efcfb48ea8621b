//! Networks in reduced precision, compared with the same networks in f32.

use std::sync::Arc;

use anyhow::Result;
use autotune_db::Source;
use autotune_ir::instruction::{dot_of, tile_of};
use autotune_ir::{CpuTarget, DType, Target};
use autotune_network::{Compiled, Contender, Decided, Graph, NetworkDevice, Precision, Tensor, decide, output_error};
use serde::Serialize;

use crate::output::say;

/// Compiles the network in f32 with the best schedules of a source. Returns `None` for a network
/// that is in f32 already.
pub(super) fn in_f32<D: NetworkDevice>(
    graph: &Graph,
    source: &dyn Source,
    target: &Target,
) -> Result<Option<Arc<Compiled<D>>>> {
    if graph.precision() == Precision::F32 {
        return Ok(None);
    }
    Ok(Some(Compiled::on_device(&graph.clone().with_precision(Precision::F32), Some(source), target)?))
}

/// Returns the network in the fastest precision whose error on some inputs is at most `max_error`,
/// and prints the comparison. Without `max_error` the network keeps its precision.
pub(super) fn decided<D: NetworkDevice>(
    graph: Graph,
    max_error: Option<f64>,
    source: &dyn Source,
    target: &Target,
    inputs: &[Tensor],
) -> Result<Graph> {
    let Some(max_error) = max_error else { return Ok(graph) };
    let Decided { network, contenders, chosen } = decide::<D>(&graph, Some(source), target, inputs, max_error)?;
    let told = |contender: &Contender| {
        let Contender { precision, f32_steps, run_secs, max_rel_error } = contender;
        let but = if *f32_steps > 0 { format!(" except {f32_steps} steps") } else { String::new() };
        let off = if *max_rel_error > 0.0 { format!(" error {max_rel_error:.1e}") } else { String::new() };
        format!("{precision}{but} {:.3} ms{off}", run_secs * 1e3)
    };
    let all: Vec<String> = contenders.iter().map(told).collect();
    say(format_args!(
        "precision {} within an error of {max_error}: timed interleaved, {}",
        contenders[chosen].precision,
        all.join(", ")
    ));
    Ok(network.graph().clone())
}

/// Warns if the processor multiplies the network's precision no faster than f32.
pub(super) fn warn_if_slow(graph: &Graph, target: &Target) {
    let dtype = graph.precision().dtype();
    if dtype != DType::F32 && target.cpu().is_some_and(|cpu| !is_fast(cpu, dtype)) {
        say(format_args!(
            "autotune: warning: --precision {dtype}: this processor has no fast instructions for this type; f32 may be faster"
        ));
    }
}

/// True if a processor has instructions that multiply a type faster than f32.
fn is_fast(cpu: &CpuTarget, dtype: DType) -> bool {
    tile_of(cpu, [dtype; 2]).is_some() || dot_of(cpu, [dtype; 2]).is_some()
}

/// Effect of rounding on the outputs of a network.
#[derive(Clone, Copy, Serialize)]
pub(super) struct RoundingEffect {
    precision: &'static str,
    /// Largest absolute difference between an output element and the same element in f32, divided
    /// by the largest absolute element of that output.
    max_rel_error: f64,
}

impl RoundingEffect {
    /// Compares some outputs with the outputs in f32 for the same inputs.
    pub(super) fn of(graph: &Graph, found: &[Tensor], in_f32: &[Tensor]) -> Self {
        Self { precision: graph.precision().word(), max_rel_error: output_error(found, in_f32) }
    }

    /// Returns the effect with the larger error.
    pub(super) fn worse(self, other: Self) -> Self {
        if other.max_rel_error > self.max_rel_error { other } else { self }
    }

    /// Formats the effect for people.
    pub(super) fn summary(&self) -> String {
        let Self { precision, max_rel_error } = self;
        format!("{precision}: largest error of outputs is {max_rel_error:.1e} of their largest element in f32")
    }
}
