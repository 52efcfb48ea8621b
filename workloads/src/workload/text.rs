//! Printer of the text form of workloads.

use super::types::WEIGHTS;
use super::{Activation, Terms, WorkloadOperator};

/// Returns the text form of a workload with these parts.
pub(super) fn of(op: &dyn WorkloadOperator, terms: &Terms, has_weights: bool) -> String {
    let Terms { weights, types, prologue, epilogue, exact, cold, within } = terms;
    let mut text = format!("{}:", op.kind().name);
    // Writing to a string does not fail.
    let _ = op.write_fields(&mut text);
    let role = WEIGHTS.iter().find(|(_, is_constant)| Some(*is_constant) == *weights).map(|(word, _)| *word);
    text += &types.text(role, has_weights);
    if !prologue.is_none() {
        text += &format!(",pre={prologue}");
    }

    let types = types.suffixes();
    let words = |parts: &[(bool, &str, &str)]| -> String {
        parts.iter().filter(|part| part.0).map(|(_, word, suffix)| format!(",{word}{suffix}")).collect()
    };
    text += &words(&[
        (epilogue.scale, "scale", &types.scale),
        (epilogue.bias, "bias", &types.bias),
        (epilogue.residual, "add", &types.residual),
    ]);
    if epilogue.activation != Activation::None {
        text += &format!(",act={}", epilogue.activation);
    }
    text += &words(&[
        (epilogue.post_scale, "post_scale", &types.scale),
        (epilogue.post_bias, "post_bias", &types.bias),
        (epilogue.post_residual, "post_add", &types.residual),
    ]);

    text += &words(&[(epilogue.table, "table", ""), (*exact, "exact", ""), (*cold, "cold", "")]);
    if let Some(network) = within {
        text += &format!(",within={network:016x}");
    }
    text
}
