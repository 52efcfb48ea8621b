//! Networks from ONNX files, and back.

use std::path::Path;

use crate::graph::Graph;
use file::ModelFile;

pub(crate) mod attribute;
pub(crate) mod call;
pub(crate) mod draft;
pub(crate) mod error;
mod export;
mod file;
mod import;
mod inputs;
mod limits;
pub(crate) mod operator;
pub(crate) mod tensor;
mod wire;
pub(crate) mod writer;

pub use attribute::{Attribute, float, int, ints, word};
pub use call::{Call, Result as CallResult, Value, attribute, axes, axis};
pub use error::{ExportError, ImportError, NodeError};
pub use inputs::{DeclaredInput, ImportOptions};
pub use limits::VERSIONS;
pub use operator::OnnxOperator;
pub use writer::Writer;

/// The graph of a file. Tensors that it has in other files are read from its folder, and from
/// nowhere else.
///
/// Large tensors stay in their files until they are packed or computed with: as long as the graph
/// is there, the files may be removed or replaced, but nobody may write to them.
pub fn read(path: &Path, options: &ImportOptions) -> Result<Graph, ImportError> {
    let file = ModelFile::open(path)?;
    let named = options.name.is_none().then(|| path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
    let options = match named.flatten() {
        Some(name) => &ImportOptions { name: Some(name), ..options.clone() },
        None => options,
    };
    import::graph(&file, options)
}

/// What a file's model is given in every run.
pub fn inputs(path: &Path) -> Result<Vec<DeclaredInput>, ImportError> {
    import::inputs(&ModelFile::open(path)?)
}

/// The graph of a file's bytes; it has no tensors in other files.
pub fn read_bytes(bytes: &[u8], options: &ImportOptions) -> Result<Graph, ImportError> {
    import::graph(&ModelFile::of_bytes(bytes), options)
}

/// A graph as the bytes of a file, which [`read_bytes`] and other runtimes read: constants are in
/// it, attention is the operators that it is made of.
pub fn write(graph: &Graph) -> Result<Vec<u8>, ExportError> {
    export::model(graph)?.bytes().map_err(|e| ExportError::Encode(e.to_string()))
}
