//! The operators of networks, a file each, and the registry of how they are read from ONNX files.

use std::sync::{PoisonError, RwLock};

use autotune_workloads::AlreadyRegistered;

use crate::onnx::operator::OnnxOperator;

pub(crate) mod activations;
pub(crate) mod attention;
pub(crate) mod binary;
pub(crate) mod cast;
pub(crate) mod choose;
pub(crate) mod concat;
mod contract;
pub(crate) mod conv;
pub(crate) mod conv_transpose;
pub(crate) mod cumsum;
pub(crate) mod expand;
pub(crate) mod gather;
pub(crate) mod group_norm;
mod known;
pub(crate) mod layer_norm;
pub(crate) mod local_response_norm;
pub(crate) mod map;
pub(crate) mod matmul;
mod normalise;
pub(crate) mod not;
pub(crate) mod pad;
mod pointwise;
pub(crate) mod pool;
pub(crate) mod prelu;
pub mod prelude;
mod recurrent;
pub(crate) mod reduce;
pub(crate) mod reshape;
pub(crate) mod resize;
pub(crate) mod slice;
pub(crate) mod softmax;
pub(crate) mod transpose;
pub(crate) mod window;

pub use attention::Attention;
pub use binary::Binary;
pub use cast::Cast;
pub use choose::Where;
pub use concat::Concat;
pub use conv::Conv;
pub use conv_transpose::ConvTranspose;
pub use cumsum::CumSum;
pub use expand::Expand;
pub use gather::Gather;
pub use group_norm::GroupNorm;
pub use layer_norm::LayerNorm;
pub use local_response_norm::LocalResponseNorm;
pub use map::Map;
pub use matmul::MatMul;
pub use not::Not;
pub use pad::Pad;
pub use pool::Pool;
pub use prelu::Prelu;
pub use reduce::Reduce;
pub use reshape::Reshape;
pub use resize::Resize;
pub use slice::{Range, Slice};
pub use softmax::Softmax;
pub use transpose::Transpose;
pub use window::Sliding;

/// Those of this crate.
const OWN: &[&[OnnxOperator]] = &[
    activations::IMPORTS,
    binary::IMPORTS,
    cast::IMPORTS,
    choose::IMPORTS,
    concat::IMPORTS,
    conv::IMPORTS,
    conv_transpose::IMPORTS,
    cumsum::IMPORTS,
    expand::IMPORTS,
    gather::IMPORTS,
    group_norm::IMPORTS,
    known::IMPORTS,
    layer_norm::IMPORTS,
    local_response_norm::IMPORTS,
    map::IMPORTS,
    matmul::IMPORTS,
    normalise::IMPORTS,
    not::IMPORTS,
    pad::IMPORTS,
    pool::IMPORTS,
    prelu::IMPORTS,
    recurrent::IMPORTS,
    reduce::IMPORTS,
    reshape::IMPORTS,
    resize::IMPORTS,
    slice::IMPORTS,
    softmax::IMPORTS,
    transpose::IMPORTS,
];

/// Those from outside.
static OTHERS: RwLock<Vec<&OnnxOperator>> = RwLock::new(Vec::new());

/// Makes an operator of ONNX files known to the import of this process: a program registers its operators before it reads files.
pub fn register_onnx(operator: &'static OnnxOperator) -> Result<(), AlreadyRegistered> {
    let is_own = own(operator.domain, operator.name).is_some();
    let mut others = OTHERS.write().unwrap_or_else(PoisonError::into_inner);
    if is_own || others.iter().any(|known| known.is(operator.domain, operator.name)) {
        return Err(AlreadyRegistered { kind: "an operator of ONNX", name: operator.name });
    }
    others.push(operator);
    Ok(())
}

/// How an operator of some domain and name is read.
pub(crate) fn find(domain: &str, name: &str) -> Option<&'static OnnxOperator> {
    let others = || OTHERS.read().unwrap_or_else(PoisonError::into_inner);
    own(domain, name).or_else(|| others().iter().copied().find(|other| other.is(domain, name)))
}

fn own(domain: &str, name: &str) -> Option<&'static OnnxOperator> {
    OWN.iter().copied().flatten().find(|own| own.is(domain, name))
}
