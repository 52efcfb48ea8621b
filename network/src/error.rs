//! Errors of networks that are made to run, run and compared.

use autotune::{BuildError, LookupError};
use autotune_graph::{EvaluateError, GraphError, listed, printable};
use autotune_ir::DType;
use autotune_ir::layout::LayoutError;
use autotune_ir::program::Layout;
use autotune_runtime::{DeviceError, KernelError};
use autotune_workloads::WorkloadError;
use thiserror::Error;

/// Reason that a graph cannot be compiled.
#[derive(Debug, Error)]
pub enum CompileError {
    /// A schedule cannot be looked up.
    #[error(transparent)]
    Lookup(#[from] LookupError),
    /// A kernel cannot be built.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// A kernel cannot be bound to its memory.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// The device fails, for example because memory is exhausted.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A layout conversion is not a valid workload.
    #[error("layout conversion: {0}")]
    Workload(WorkloadError),
    /// A constant cannot be converted to the layout of its kernel.
    #[error("constant '{name}': {source}")]
    Constant {
        /// Name of the constant.
        name: String,
        /// Cause of the failure.
        source: LayoutError,
    },
    /// A constant cannot be computed.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// There is no conversion between two layouts.
    #[error("no conversion from layout {from:?} to {to:?}")]
    Layouts {
        /// Layout of the tensor.
        from: Layout,
        /// Layout that is required.
        to: Layout,
    },
    /// A kernel requires constant weights.
    #[error("{step}: the kernel packs its weights ahead of time, but they are not constant")]
    NotConstant {
        /// Name of the step.
        step: String,
    },
    /// A tensor's type differs from the type of its memory.
    #[error("{step}: the tensor is {wanted}, but its memory is {found}")]
    Types {
        /// Name of the step.
        step: String,
        /// Element type in memory.
        found: DType,
        /// Element type that the step reads or writes.
        wanted: DType,
    },
    /// A device has no kernel for a node, which on a CPU the interpreter computes.
    #[error("{}: {device} has no kernel for {operator}; use --target cpu", printable(step))]
    NoKernel {
        /// Name of the node.
        step: String,
        /// Name of its operator.
        operator: String,
        /// Name of the device.
        device: String,
    },
    /// A device has too little free memory for a network.
    #[error(
        "a run needs at least {:.1} MB of device memory, {:.1} MB of them for constants, but {device} has {:.1} MB \
         free: free memory of the device, or use --target cpu",
        megabytes(*needed), megabytes(*constants), megabytes(*free)
    )]
    Memory {
        /// Least bytes of constants and tensors.
        needed: usize,
        /// Bytes of constants among them.
        constants: usize,
        /// Bytes that the device has free.
        free: usize,
        /// Name of the device.
        device: String,
    },
    /// The memory of a run exceeds the address range.
    #[error("the tensors of a run are too large for this machine")]
    TooLarge,
}

fn megabytes(bytes: usize) -> f64 {
    bytes as f64 / 1e6
}

/// Reason that a network cannot run.
#[derive(Debug, Error)]
pub enum RunError {
    /// The number of inputs or outputs is wrong.
    #[error("{found} {what}, expected {wanted}")]
    Count {
        /// Side of the network: "inputs" or "outputs".
        what: &'static str,
        /// Number of tensors given.
        found: usize,
        /// Number of tensors required.
        wanted: usize,
    },
    /// A tensor has the wrong size.
    #[error("'{}' has {found} elements, expected {wanted}: shape {:?}", printable(name), listed(shape))]
    Size {
        /// Name of the input or output.
        name: String,
        /// Number of elements given.
        found: usize,
        /// Number of elements required.
        wanted: usize,
        /// Shape that is required.
        shape: Vec<usize>,
    },
    /// The device fails to allocate, copy or run.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The interpreter cannot compute a node.
    #[error(transparent)]
    Graph(#[from] GraphError),
}

/// Reason that a network cannot be compared with the reference.
#[derive(Debug, Error)]
pub enum CheckError {
    /// The reference cannot be evaluated.
    #[error(transparent)]
    Evaluate(#[from] EvaluateError),
    /// The network cannot run.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The network's memory cannot be read or written.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A tensor's layout cannot be converted.
    #[error(transparent)]
    Compile(#[from] CompileError),
}
