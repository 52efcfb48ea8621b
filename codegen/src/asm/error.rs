//! Reasons why a program cannot be assembled.

use thiserror::Error;

use autotune_ir::DType;
use autotune_ir::program::{BufferId, Program};
use autotune_ir::target::Isa;

/// The reason why a program cannot be assembled for a target.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AssembleError {
    /// The assembler does not support the instruction set.
    #[error("the assembler does not support instruction set {0}")]
    Isa(Isa),
    /// A gather is not supported. Its buffer has 2^31 elements or more, a dimension of more than
    /// 2^24, or integers or f16 that loads do not convert; or both its index and the access around
    /// it differ by lane.
    #[error("the assembler does not support this gather: unsupported buffer, or index and access both differ by lane")]
    Gather,
    /// A buffer has a type of elements that CPU kernels do not compute with.
    #[error("the assembler does not support elements of type {}", .0.word())]
    Type(DType),
    /// A store adds to 16-bit elements in memory.
    #[error("the assembler does not support adding to 16-bit elements in memory")]
    Narrow,
    /// The target is a GPU, or the program is made for one.
    #[error("the assembler does not support GPUs")]
    Gpu,
    /// A register tile needs too many vector registers for its partial sums and the operands added
    /// to them.
    #[error("a register tile needs {needed} vector registers, {available} are available")]
    RegisterTile {
        /// Vector registers that the tile needs.
        needed: usize,
        /// Vector registers of the instruction set.
        available: usize,
    },
    /// A leaf needs too many integer registers for its pointers and loop counters.
    #[error("a loop nest needs {needed} integer registers, {available} are available")]
    Pointers {
        /// Integer registers that the leaf needs.
        needed: usize,
        /// Integer registers of the instruction set.
        available: usize,
    },
    /// Tiles of a product do not fit the tile registers.
    #[error("a product of {rows} by {columns} tiles does not fit the tile registers")]
    Tiles {
        /// Number of row tiles.
        rows: usize,
        /// Number of column tiles.
        columns: usize,
    },
    /// An element is too far from its pointer for a 32-bit displacement.
    #[error("a displacement of {bytes} bytes does not fit 32 bits")]
    Displacement {
        /// Displacement from the pointer in bytes.
        bytes: i64,
    },
    /// A jump leads to a label that was never defined.
    #[error("a jump leads to an undefined label")]
    Label,
    /// One store takes lanes of several registers, and no horizontal reduction covers it.
    #[error("the assembler does not support storing lanes of several registers at once")]
    Fold,
    /// Accesses to a buffer of register scope are not constant, or are not to whole vectors that do
    /// not overlap.
    #[error("cannot assign registers to the elements of '{buffer}'")]
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

/// Error of the assembler's internal functions: boxed, so that results take one register.
pub(super) type Failure = Box<AssembleError>;
