//! The kinds of operators that the parser knows.

use std::sync::{PoisonError, RwLock};

use thiserror::Error;

use super::operator::OperatorKind;
use super::{
    attention, conv_transpose2d, conv1d, conv2d, conv3d, gather, group_norm, layer_norm, local_response_norm, matmul,
    mlp, pad, pointwise, pool2d, reduce, resize, rms_norm, separable_conv2d, softmax, transpose,
};

/// The kinds of this crate.
const OWN: &[&OperatorKind] = &[
    &conv2d::KIND,
    &conv1d::KIND,
    &conv3d::KIND,
    &conv_transpose2d::KIND,
    &matmul::KIND,
    &pool2d::KIND,
    &reduce::KIND,
    &softmax::KIND,
    &softmax::LOG_KIND,
    &layer_norm::KIND,
    &rms_norm::KIND,
    &group_norm::KIND,
    &group_norm::INSTANCE_KIND,
    &local_response_norm::KIND,
    &transpose::KIND,
    &attention::KIND,
    &separable_conv2d::KIND,
    &mlp::KIND,
    &pointwise::KIND,
    &resize::KIND,
    &gather::KIND,
    &pad::KIND,
];

/// Kinds of operators of other crates. They belong to the process: texts of workloads are parsed
/// wherever they come from, files, records, command lines and other processes, by `FromStr`, which
/// takes nothing but the text.
static OTHERS: RwLock<Vec<&OperatorKind>> = RwLock::new(Vec::new());

/// A part from outside whose name is taken.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("there is {kind} '{name}' already: choose another name")]
pub struct AlreadyRegistered {
    /// What it is, with an article.
    pub kind: &'static str,
    /// The name.
    pub name: &'static str,
}

/// Makes a kind of operators known to the parser of this process, and of worker processes that are
/// started from the same program: a program registers its operators before anything else.
pub fn register_operator(kind: &'static OperatorKind) -> Result<(), AlreadyRegistered> {
    let mut others = OTHERS.write().unwrap_or_else(PoisonError::into_inner);
    if OWN.iter().chain(&*others).any(|known| known.name == kind.name) {
        return Err(AlreadyRegistered { kind: "an operator", name: kind.name });
    }
    others.push(kind);
    Ok(())
}

/// Every kind of operators that the parser knows.
pub fn operators() -> Vec<&'static OperatorKind> {
    let others = OTHERS.read().unwrap_or_else(PoisonError::into_inner);
    OWN.iter().chain(&*others).copied().collect()
}
