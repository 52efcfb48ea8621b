//! Errors of the export of libraries.

use autotune::LookupError;
use autotune_codegen::asm::AssembleError;
use autotune_runtime::KernelError;
use thiserror::Error;

/// Reason that a network cannot be exported as a library.
#[derive(Debug, Error)]
pub enum LibraryError {
    /// A node has no kernel, only the interpreter.
    #[error("node '{node}' ({op}): no kernel computes the node, and a library has no interpreter")]
    Interpreted {
        /// Name of the node.
        node: String,
        /// [Name](crate::Operator::name) of its operator.
        op: &'static str,
    },
    /// The schedule of a kernel cannot be planned or proven.
    #[error(transparent)]
    Lookup(#[from] LookupError),
    /// A step's kernel cannot be assembled.
    #[error("node '{step}': {source}")]
    Assemble {
        /// Name of the first node that the step computes.
        step: String,
        /// Cause of the failure.
        source: AssembleError,
    },
    /// The driver code around the kernels cannot be assembled.
    #[error(transparent)]
    Driver(#[from] AssembleError),
    /// The size of a kernel's memory overflows.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// The object file is invalid.
    #[error("library file: {0}")]
    File(#[from] object::write::Error),
    /// There is no variant, or variants have other inputs or outputs.
    #[error("variants of a library must have the same inputs and outputs, by names, types and numbers of axes")]
    Variants,
    /// Two variants have the same shapes of their inputs.
    #[error("two variants of a library have inputs of the same shapes {shapes:?}")]
    SameShapes {
        /// Shapes of the inputs.
        shapes: Vec<Vec<usize>>,
    },
    /// Networks for another instruction set have other inputs or outputs.
    #[error(
        "networks for the instruction sets of a library must have the same inputs and outputs, by names, types and shapes"
    )]
    Sets,
    /// Code for two targets needs the same instructions.
    #[error("code for two targets of the library needs the same instructions, {words}: leave one out")]
    SameInstructions {
        /// Instruction set and extensions.
        words: String,
    },
    /// Code, weights or workspace exceed the range of 32-bit offsets.
    #[error("weights or tensors are 2 GiB or more; a library must have less")]
    TooLarge,
}
