//! Why a program has no machine code.

use thiserror::Error;

use autotune_ir::DType;
use autotune_ir::program::{BufferId, Program};
use autotune_ir::target::Isa;

/// Why a program cannot be assembled for a target.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AssembleError {
    /// There is no assembler for the instruction set.
    #[error("no assembler for instruction set {0}")]
    Isa(Isa),
    /// An element is found by values in a buffer of 2^31 elements or more, along a dimension of
    /// more than 2^24, or by values that differ by lane where the element does so, too; or it has
    /// 16 bits.
    #[error("no assembler for elements found by values in so large a buffer, or where lanes are also apart")]
    Gather,
    /// A buffer has elements of a type that kernels of CPUs do not compute with.
    #[error("no assembler for elements of type {}", .0.word())]
    Type(DType),
    /// Something is added to elements of 16 bits.
    #[error("no assembler for elements of 16 bits that are added to")]
    Narrow,
    /// The target or the program is a GPU's.
    #[error("no assembler for GPUs")]
    Gpu,
    /// The partial sums of a register tile, and what is being added to them, exceed the vector
    /// registers.
    #[error("a register tile needs {needed} vector registers of {available}")]
    RegisterTile {
        /// Registers that it needs.
        needed: usize,
        /// Registers that there are.
        available: usize,
    },
    /// The places that a leaf reads and writes, and its loop counters, exceed the integer
    /// registers.
    #[error("a nest needs {needed} integer registers of {available}")]
    Pointers {
        /// Registers that it needs.
        needed: usize,
        /// Registers that there are.
        available: usize,
    },
    /// An element is too far from its pointer.
    #[error("a displacement of {bytes} bytes exceeds 32 bits")]
    Displacement {
        /// The displacement.
        bytes: i64,
    },
    /// Something leads to a label that is nowhere.
    #[error("a jump to a label that is nowhere")]
    Label,
    /// Lanes of several registers go to memory at once.
    #[error("no assembler for lanes of several registers that go to memory at once")]
    Fold,
    /// A buffer of register scope is not indexed by constants and whole vectors that do not
    /// overlap.
    #[error("the elements of '{buffer}' cannot be given registers")]
    RegisterIndex {
        /// Name of the buffer.
        buffer: String,
    },
}

impl AssembleError {
    pub(super) fn register_index(program: &Program, buffer: BufferId) -> Failure {
        Box::new(Self::RegisterIndex { buffer: program.buffer(buffer).name.clone() })
    }
}

/// What the many small steps of assembling return: an error that takes one register.
pub(super) type Failure = Box<AssembleError>;
