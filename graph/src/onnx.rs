//! Import of networks from ONNX files, and export.

use std::path::Path;

use crate::graph::Graph;

mod alone;
pub(crate) mod attribute;
mod bias;
pub(crate) mod call;
pub(crate) mod draft;
pub(crate) mod error;
mod export;
mod file;
mod import;
mod inputs;
mod layers;
mod limits;
mod nodes;
pub(crate) mod operator;
mod phase;
mod sequences;
pub(crate) mod tensor;
mod wire;
pub(crate) mod writer;

pub use alone::{NestedGraph, PhaseWork};
pub use attribute::{Attribute, float, int, ints, word};
pub use call::{Call, ImportValue, Result as CallResult, attribute, axes, axis};
pub use error::{ExportError, ImportError, NodeError};
pub use import::{Model, ModelMetadata};
pub use inputs::{DeclaredInput, DeclaredOutput, ImportOptions};
pub use layers::PART_STEPS;
pub use limits::{LAYER_LENGTHS, LAYER_STATES, VERSIONS};
pub(crate) use limits::{MICROSOFT, ROUNDED_INPUTS};
pub use operator::OnnxOperator;
pub use phase::{GraphPath, ModelPhase, PhaseNode, PhaseStart, RunTensor, TensorFacts};
pub use writer::NodeWriter;

/// Reads a graph from a file ([`Model::open`]).
pub fn read(path: &Path, options: &ImportOptions) -> Result<Graph, ImportError> {
    Model::open(path)?.graph(options)
}

/// Returns the inputs that a file's model declares and that the caller must provide in every run.
pub fn inputs(path: &Path) -> Result<Vec<DeclaredInput>, ImportError> {
    Model::open(path)?.inputs()
}

/// Reads a graph from the bytes of a model without external tensor files.
pub fn read_bytes(bytes: &[u8], options: &ImportOptions) -> Result<Graph, ImportError> {
    Model::of_bytes(bytes)?.graph(options)
}

/// Writes a graph as the bytes of a model, which [`read_bytes`] and other runtimes can read.
/// Constants are stored inside it, and attention is written as the operators that it consists of.
pub fn write(graph: &Graph) -> Result<Vec<u8>, ExportError> {
    export::model(graph)?.bytes().map_err(|e| ExportError::Encode(e.to_string()))
}
