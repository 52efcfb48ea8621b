//! Built-in networks with random weights; the cost of a network does not depend on the weights.
//!
//! All are for inference with batch size 1. Dropout is omitted; batch normalisation is a product
//! and a sum.

use thiserror::Error;

use crate::builder::{Builder, Seeded, Weights};
use crate::error::GraphError;
use crate::graph::Graph;

mod classic;
mod mobile;
mod recurrent;
mod resnet;
mod transformer;

/// Seed of the weights of [`graph`].
const SEED: u64 = 1;

/// Function that adds a network's layers.
type Layers = fn(&Builder);

/// Networks by name, in the order of listings.
const NETWORKS: [(&str, Layers); 11] = [
    ("resnet18", |net| resnet::basic(net, [2, 2, 2, 2])),
    ("resnet34", |net| resnet::basic(net, [3, 4, 6, 3])),
    ("resnet50", |net| resnet::bottleneck(net, [3, 4, 6, 3])),
    ("mobilenet_v2", mobile::mobilenet_v2),
    ("squeezenet", mobile::squeezenet),
    ("vgg16", classic::vgg16),
    ("bert_base", transformer::bert_base),
    ("vit_b16", transformer::vit_b16),
    ("dqn", classic::dqn),
    ("dcgan", classic::dcgan),
    ("lstm", recurrent::lstm),
];

/// Names of all networks.
///
/// | name | network | input |
/// |---|---|---|
/// | `resnet18`, `resnet34`, `resnet50` | He et al., "Deep Residual Learning" (2016) | 3x224x224 |
/// | `mobilenet_v2` | Sandler et al., "MobileNetV2" (2018), width 1 | 3x224x224 |
/// | `squeezenet` | Iandola et al., "SqueezeNet" (2016), version 1.1 | 3x224x224 |
/// | `vgg16` | Simonyan, Zisserman, "Very Deep Convolutional Networks" (2015), D | 3x224x224 |
/// | `bert_base` | Devlin et al., "BERT" (2019), uncased, with its pooler | 128 tokens |
/// | `vit_b16` | Dosovitskiy et al., "An Image is Worth 16x16 Words" (2021) | 3x224x224 |
/// | `dqn` | Mnih et al., "Human-level control through deep RL" (2015), 18 actions | 4x84x84 |
/// | `dcgan` | Radford et al., "DCGAN" (2016), generator | 100 numbers |
/// | `lstm` | Zaremba et al., "RNN Regularization" (2014), medium, one step | 1 token |
pub const NAMES: [&str; NETWORKS.len()] = {
    let mut names = [""; NETWORKS.len()];
    let mut i = 0;
    while i < names.len() {
        names[i] = NETWORKS[i].0;
        i += 1;
    }
    names
};

/// Error: no network has this name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("unknown network '{0}': expected {known}", known = NAMES.join(", "))]
pub struct UnknownNetwork(pub String);

/// Reason that a network cannot be created.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ZooError {
    /// No network has the name.
    #[error(transparent)]
    Unknown(#[from] UnknownNetwork),
    /// The weights do not fit.
    #[error(transparent)]
    Weights(#[from] GraphError),
}

/// Creates a network with random weights, which are the same every time. All weights are in memory:
/// 47 MB for `resnet18`, 553 MB for `vgg16`.
pub fn graph(name: &str) -> Result<Graph, ZooError> {
    with_weights(name, Seeded { seed: SEED })
}

/// Creates a network with other weights.
pub fn with_weights(name: &str, weights: impl Weights + 'static) -> Result<Graph, ZooError> {
    let (_, build) = NETWORKS.iter().find(|known| known.0 == name).ok_or_else(|| UnknownNetwork(name.into()))?;
    let net = Builder::new(name, weights);
    build(&net);
    Ok(net.finish()?)
}
