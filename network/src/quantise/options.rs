//! Settings and failures of quantising a network.

use autotune_db::Source;
use autotune_graph::quantisation::RangeMethod;
use autotune_graph::{GraphError, printable};
use autotune_ir::Target;
use thiserror::Error;

use crate::error::{CompileError, RunError};

/// Settings of [`quantise`](super::quantise()): how ranges are chosen, the permitted error, and
/// where the network runs.
#[derive(Clone, Copy)]
pub struct QuantiseOptions<'a> {
    /// Method that chooses ranges; by default the one with the least error.
    pub method: Option<RangeMethod>,
    /// Largest error of outputs; layers stay in floating point until it holds.
    pub max_error: Option<f64>,
    /// Schedules of the networks that run.
    pub source: Option<&'a dyn Source>,
    /// CPU on which they run.
    pub target: &'a Target,
    /// Receives the work that starts, the number of steps done, and the number of all steps.
    pub progress: &'a dyn Fn(&str, usize, usize),
}

/// Reason that a network cannot be quantised.
#[derive(Debug, Error)]
pub enum QuantiseError {
    /// The network has quantised tensors.
    #[error("the network is quantised already")]
    Quantised,
    /// The network has no layer that could compute with integers.
    #[error("no layer can be quantised: there is no convolution and no matrix product with constant weights")]
    NoLayers,
    /// There is nothing to measure.
    #[error("no examples of the inputs are given")]
    NoExamples,
    /// A layer has weights that cannot be rounded.
    #[error("node '{}': a weight or bias is infinite or not a number", printable(node))]
    Weights {
        /// Name of the node.
        node: String,
    },
    /// A tensor has no range.
    #[error("node '{}': an element is infinite or not a number for these inputs", printable(node))]
    NotFinite {
        /// Name of the node.
        node: String,
    },
    /// A graph cannot be built.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// A network cannot be compiled.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// A network cannot run.
    #[error(transparent)]
    Run(#[from] RunError),
}
