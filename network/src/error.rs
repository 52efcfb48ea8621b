//! Errors of networks that are made to run, run and compared.

use autotune::{BuildError, LookupError};
use autotune_graph::{EvaluateError, GraphError, listed, printable};
use autotune_ir::DType;
use autotune_ir::layout::LayoutError;
use autotune_ir::program::Layout;
use autotune_runtime::{DeviceError, KernelError};
use autotune_workloads::WorkloadError;
use thiserror::Error;

/// Why a graph cannot be made into something that runs.
#[derive(Debug, Error)]
pub enum CompileError {
    /// A schedule cannot be had.
    #[error(transparent)]
    Lookup(#[from] LookupError),
    /// A kernel cannot be made.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// A kernel cannot be bound to its memory.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// There is no memory.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A conversion of layouts makes no sense.
    #[error("a conversion of layouts: {0}")]
    Workload(WorkloadError),
    /// A constant cannot be brought into the layout that its kernel wants.
    #[error("constant '{name}': {source}")]
    Constant {
        /// The constant.
        name: String,
        /// What is wrong.
        source: LayoutError,
    },
    /// A constant cannot be computed.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// A tensor lies in one layout and is wanted in another, between which there is no conversion.
    #[error("there is no conversion from layout {from:?} to {to:?}")]
    Layouts {
        /// The one.
        from: Layout,
        /// The other.
        to: Layout,
    },
    /// A kernel wants weights that are the same in all runs.
    #[error("{step}: the kernel packs its weights ahead of time, but they come with every run")]
    NotConstant {
        /// The step.
        step: String,
    },
    /// A step has a tensor of one type where its memory is of another.
    #[error("{step}: a tensor of {wanted} in memory of {found}")]
    Types {
        /// The step.
        step: String,
        /// Type of the elements that lie there.
        found: DType,
        /// Type that the step reads or writes.
        wanted: DType,
    },
    /// A device has no kernel for a step, which the processor's interpreter computes or copies.
    #[error("{step}: {device} has no kernel for it; --target cpu runs it")]
    NoKernel {
        /// The step.
        step: String,
        /// Name of the device.
        device: String,
    },
    /// The tensors of a run are too many bytes.
    #[error("the tensors of a run are too large for this machine")]
    TooLarge,
}

/// Why a network does not run.
#[derive(Debug, Error)]
pub enum RunError {
    /// Not as many tensors as the network has inputs, or outputs.
    #[error("{found} {what}, where the network has {wanted}")]
    Count {
        /// Inputs or outputs.
        what: &'static str,
        /// How many were given.
        found: usize,
        /// How many are wanted.
        wanted: usize,
    },
    /// A tensor does not have the size that the network wants.
    #[error("'{}' has {found} elements, where {wanted} are wanted: shape {:?}", printable(name), listed(shape))]
    Size {
        /// The input or output.
        name: String,
        /// Elements that were given.
        found: usize,
        /// Elements that are wanted.
        wanted: usize,
        /// The shape that the network wants.
        shape: Vec<usize>,
    },
    /// A kernel cannot be started.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The interpreter cannot compute a node.
    #[error(transparent)]
    Graph(#[from] GraphError),
}

/// Why a network cannot be compared with the reference.
#[derive(Debug, Error)]
pub enum CheckError {
    /// There is no reference.
    #[error(transparent)]
    Evaluate(#[from] EvaluateError),
    /// It does not run.
    #[error(transparent)]
    Run(#[from] RunError),
    /// Its memory cannot be read or written.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A tensor does not lie as its kernel says.
    #[error(transparent)]
    Compile(#[from] CompileError),
}
