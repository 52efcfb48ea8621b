//! Why a network does not become a library.

use autotune::LookupError;
use autotune_codegen::asm::AssembleError;
use autotune_runtime::KernelError;
use thiserror::Error;

/// Why a network does not become a library.
#[derive(Debug, Error)]
pub enum LibraryError {
    /// Nothing but the interpreter computes a node.
    #[error("node '{node}' ({op}): there is no kernel for it, and a library has no interpreter")]
    Interpreted {
        /// Its name.
        node: String,
        /// What it computes, by its [name](crate::Operator::name).
        op: &'static str,
    },
    /// A kernel's schedule is not right.
    #[error(transparent)]
    Lookup(#[from] LookupError),
    /// A step's kernel cannot be assembled.
    #[error("node '{step}': {source}")]
    Assemble {
        /// The name of the first node that it computes.
        step: String,
        /// Why.
        source: AssembleError,
    },
    /// What is around the kernels cannot be assembled.
    #[error(transparent)]
    Driver(#[from] AssembleError),
    /// A kernel's memory is too large a number of bytes.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// The file cannot be laid out.
    #[error("the file of the library: {0}")]
    File(#[from] object::write::Error),
    /// Code, weights or the tensors of a run are more than addresses of 32 bits reach.
    #[error("weights or tensors of 2 GiB or more: a library has less")]
    TooLarge,
}
