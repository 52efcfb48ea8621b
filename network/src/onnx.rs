//! Networks from ONNX files, and back.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::Path;

use crate::graph::Graph;
use crate::tensor::Tensor;
use file::ModelFile;

mod call;
mod draft;
mod error;
mod export;
mod file;
mod import;
mod inputs;
mod operators;
mod tensor;
mod wire;

pub use error::{ExportError, ImportError, NodeError};
pub use inputs::DeclaredInput;

/// Versions of the operators that are read.
pub const VERSIONS: RangeInclusive<i64> = 6..=24;

/// Axes of a tensor, at most.
const MOST_AXES: usize = 16;

/// Bytes of a file, at most: those of a message.
const MOST_BYTES: u64 = 1 << 31;

/// How a file is read.
#[derive(Clone, Debug)]
pub struct ImportOptions {
    /// What the graph is called.
    pub name: Option<String>,
    /// Shapes of inputs by their names, for those whose shapes the file leaves open.
    pub shapes: BTreeMap<String, Vec<usize>>,
    /// Inputs that are the same in all runs, by their names: they become constants, which shapes
    /// and the branch of an `If` may depend on.
    pub values: BTreeMap<String, Tensor>,
    /// Elements of constants that are computed while the file is read, and steps of their computation, at most: what goes beyond stays to be
    /// computed when the network runs. Bounds memory and time that a small file may ask for.
    pub most_folded: usize,
}

impl Default for ImportOptions {
    fn default() -> Self {
        Self { name: None, shapes: BTreeMap::new(), values: BTreeMap::new(), most_folded: 1 << 29 }
    }
}

/// The graph of a file. Tensors that it has in other files are read from its folder, and from nowhere else.
///
/// Large tensors stay in their files until they are packed or computed with: as long as the graph is there, the files may be removed or
/// replaced, but nobody may write to them.
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

/// A graph as the bytes of a file, which [`read_bytes`] and other runtimes read: constants are in it, attention is the operators that it is
/// made of.
pub fn write(graph: &Graph) -> Result<Vec<u8>, ExportError> {
    export::model(graph)?.bytes().map_err(|e| ExportError::Encode(e.to_string()))
}
