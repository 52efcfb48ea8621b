//! Operators of networks, one file each, with their imports from ONNX.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::onnx::operator::OnnxOperator;

pub(crate) mod activations;
mod along;
pub(crate) mod attention;
pub(crate) mod binary;
pub(crate) mod bitwise;
mod block_weights;
pub(crate) mod cast;
pub(crate) mod choose;
pub(crate) mod concat;
mod contract;
pub(crate) mod conv;
pub(crate) mod conv_transpose;
pub(crate) mod cumsum;
mod determinant;
mod einsum;
pub(crate) mod expand;
mod fold;
mod fused;
pub(crate) mod gather;
pub(crate) mod gather_elements;
mod grid_sample;
pub(crate) mod group_norm;
mod grouped_heads;
mod heads;
mod indices;
pub(crate) mod integers;
mod known;
pub(crate) mod layer_norm;
pub(crate) mod local_response_norm;
pub(crate) mod lookup;
mod losses;
pub(crate) mod map;
pub(crate) mod matmul;
mod non_max;
mod non_zero;
mod normalise;
pub(crate) mod not;
pub(crate) mod pad;
mod pointwise;
pub(crate) mod pool;
mod predicates;
pub(crate) mod prelu;
pub mod prelude;
mod qlinear;
pub(crate) mod quantise;
mod random;
mod recurrent;
pub(crate) mod reduce;
mod regions;
mod resample;
pub(crate) mod reshape;
pub(crate) mod resize;
mod rotary;
pub(crate) mod scaled;
pub(crate) mod scatter;
mod score_mask;
mod sequences;
mod signal;
pub(crate) mod slice;
pub(crate) mod softmax;
mod sub_nodes;
pub(crate) mod top_k;
pub(crate) mod transpose;
pub(crate) mod trigonometric;
mod unique;
mod unpool;
pub(crate) mod window;

pub use attention::Attention;
pub use binary::Binary;
pub use bitwise::Bitwise;
pub use cast::Cast;
pub use choose::Where;
pub use concat::Concat;
pub use conv::Conv;
pub use conv_transpose::ConvTranspose;
pub use cumsum::CumSum;
pub use expand::Expand;
pub use gather::Gather;
pub use gather_elements::{GatherElements, GatherNd};
pub use group_norm::GroupNorm;
pub use indices::Selection;
pub use integers::{ConvInteger, MatMulInteger};
pub use layer_norm::LayerNorm;
pub use local_response_norm::LocalResponseNorm;
pub use lookup::Lookup;
pub use map::Map;
pub use matmul::MatMul;
pub use not::Not;
pub use pad::Pad;
pub use pointwise::rows_and_columns;
pub use pool::Pool;
pub use prelu::Prelu;
pub use quantise::{Dequantize, Quantize, Saturate};
pub use reduce::Reduce;
pub use reshape::Reshape;
pub use resize::Resize;
pub use scaled::{Rescale, ScaledConv, ScaledMatMul, Unsigned};
pub use scatter::Scatter;
pub use slice::{Range, Slice};
pub use softmax::Softmax;
pub use top_k::TopK;
pub use transpose::Transpose;
pub use trigonometric::Trigonometric;
pub use window::Sliding;

/// Import rules of this crate's operators.
const OWN: &[&[OnnxOperator]] = &[
    activations::IMPORTS,
    binary::IMPORTS,
    bitwise::IMPORTS,
    block_weights::IMPORTS,
    cast::IMPORTS,
    choose::IMPORTS,
    concat::IMPORTS,
    conv::IMPORTS,
    conv_transpose::IMPORTS,
    cumsum::IMPORTS,
    determinant::IMPORTS,
    einsum::IMPORTS,
    expand::IMPORTS,
    fold::IMPORTS,
    fused::IMPORTS,
    gather::IMPORTS,
    gather_elements::IMPORTS,
    grid_sample::IMPORTS,
    group_norm::IMPORTS,
    grouped_heads::IMPORTS,
    heads::IMPORTS,
    integers::IMPORTS,
    known::IMPORTS,
    layer_norm::IMPORTS,
    local_response_norm::IMPORTS,
    losses::IMPORTS,
    map::IMPORTS,
    matmul::IMPORTS,
    non_max::IMPORTS,
    non_zero::IMPORTS,
    normalise::IMPORTS,
    not::IMPORTS,
    pad::IMPORTS,
    pool::IMPORTS,
    predicates::IMPORTS,
    prelu::IMPORTS,
    qlinear::IMPORTS,
    quantise::IMPORTS,
    random::IMPORTS,
    recurrent::IMPORTS,
    reduce::IMPORTS,
    regions::IMPORTS,
    reshape::IMPORTS,
    resize::IMPORTS,
    rotary::IMPORTS,
    scatter::IMPORTS,
    sequences::IMPORTS,
    signal::IMPORTS,
    slice::IMPORTS,
    softmax::IMPORTS,
    top_k::IMPORTS,
    transpose::IMPORTS,
    trigonometric::IMPORTS,
    unique::IMPORTS,
    unpool::IMPORTS,
];

/// Finds the import rule for an operator's domain and name; `others`, the caller's rules, take
/// precedence.
pub(crate) fn find<'a>(others: &[&'a OnnxOperator], domain: &str, name: &str) -> Option<&'a OnnxOperator> {
    static BY_NAME: LazyLock<HashMap<(&str, &str), &OnnxOperator>> = LazyLock::new(|| {
        let own = OWN.iter().copied().flatten();
        // Of rules with one name, the first applies.
        own.rev().map(|own| ((own.domain, own.name), own)).collect()
    });
    let own = || BY_NAME.get(&(domain, name)).copied();
    others.iter().copied().find(|other| other.is(domain, name)).or_else(own)
}
