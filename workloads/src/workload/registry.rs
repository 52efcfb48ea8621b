//! Registry of the operators that the parser knows.

use std::sync::{PoisonError, RwLock};

use thiserror::Error;

use super::operator::OperatorKind;
use super::{
    attention, conv_transpose2d, conv1d, conv2d, conv3d, gather, group_norm, layer_norm, local_response_norm, matmul,
    mlp, pad, pointwise, pool2d, reduce, resize, rms_norm, separable_conv2d, softmax, transpose,
};

/// Operators of this crate.
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

/// Operators of other crates. They are global, because texts of workloads in files, records,
/// command lines and other processes are parsed by `FromStr`, which takes only the text.
static OTHERS: RwLock<Vec<&OperatorKind>> = RwLock::new(Vec::new());

/// Error of registering an external part under a name that is taken.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{kind} named '{name}' is already registered: choose another name")]
pub struct AlreadyRegistered {
    /// Kind of part, with an article, such as "an operator".
    pub kind: &'static str,
    /// Name that is taken.
    pub name: &'static str,
}

/// Registers an operator with the parser of this process, and of worker processes started from the
/// same program. Programs should register their operators first.
pub fn register_operator(kind: &'static OperatorKind) -> Result<(), AlreadyRegistered> {
    let mut others = OTHERS.write().unwrap_or_else(PoisonError::into_inner);
    if OWN.iter().chain(&*others).any(|known| known.name == kind.name) {
        return Err(AlreadyRegistered { kind: "an operator", name: kind.name });
    }
    others.push(kind);
    Ok(())
}

/// Returns every operator that the parser knows.
pub fn operators() -> Vec<&'static OperatorKind> {
    let others = OTHERS.read().unwrap_or_else(PoisonError::into_inner);
    OWN.iter().chain(&*others).copied().collect()
}
