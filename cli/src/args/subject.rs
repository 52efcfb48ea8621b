//! What a command is about, and its shapes.

use anyhow::Result;
use autotune::Network;
use autotune_network::onnx::ImportError;
use autotune_network::{Graph, LoadError, Subject};
use clap::Args;

use super::{Failure, TargetArgs};

#[derive(Debug, Args)]
pub(crate) struct SubjectArgs {
    /// A network (resnet18, model.onnx) or a workload (conv2d:..., matmul:...)
    #[arg(value_name = "NETWORK|WORKLOAD", value_parser = Subject::of)]
    pub(crate) subject: Subject,
    #[command(flatten)]
    pub(crate) shapes: ShapeArgs,
}

impl SubjectArgs {
    /// What is to be tuned for a target.
    pub(crate) fn tasks(&self, target: &TargetArgs) -> Result<Network> {
        Ok(target.tasks(&self.subject, self.graph()?.as_ref()))
    }

    /// The graph of a network.
    pub(crate) fn graph(&self) -> Result<Option<Graph>> {
        self.shapes.graph(&self.subject)
    }
}

#[derive(Debug, Args)]
pub(crate) struct ShapeArgs {
    /// The shape of an input that an ONNX file leaves open
    #[arg(long, value_name = "NAME=1x3x224x224", value_parser = parse_shape)]
    shape: Vec<(String, Vec<usize>)>,
}

impl ShapeArgs {
    /// The graph of a network with these shapes; `None` of a workload.
    pub(crate) fn graph(&self, subject: &Subject) -> Result<Option<Graph>> {
        match subject.graph(&self.shape) {
            Err(error @ (LoadError::Shapes { .. } | LoadError::Import { source: ImportError::Shape { .. }, .. })) => {
                Err(Failure::Usage(format!("--shape: {error}")).into())
            }
            graph => Ok(graph?),
        }
    }
}

/// `NAME=1x3x224x224`.
fn parse_shape(text: &str) -> Result<(String, Vec<usize>), String> {
    let bad = || format!("--shape '{text}' is not an input and its extents, such as image=1x3x224x224");
    let (name, extents) = text.rsplit_once('=').ok_or_else(bad)?;
    let extents = extents.split('x').map(str::parse).collect::<Result<Vec<usize>, _>>();
    Ok((name.to_string(), extents.map_err(|_| bad())?))
}
