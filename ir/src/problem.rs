//! Faults of programs that the [verifier](crate::verify()) and the
//! [interpreter](crate::interpret()) report.

use thiserror::Error;

use crate::program::Scope;

/// A fault of a program, with its place.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{place}: {problem}")]
pub struct ProgramError {
    /// Stage and loops (by name, outermost first), or buffer.
    pub place: String,
    /// Description of the fault.
    pub problem: Problem,
}

/// A fault of a program.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Problem {
    /// Buffers, axes or names do not match the workload or the context of the program.
    #[error("{0}")]
    Interface(String),
    /// The launch exceeds the blocks or threads that the target supports.
    #[error("{0}")]
    Launch(String),
    /// The program needs too much memory.
    #[error("{bytes} bytes of {scope:?} memory exceed the limit of {limit}")]
    Memory {
        /// Memory space that is exceeded.
        scope: Scope,
        /// Bytes that the program needs.
        bytes: u64,
        /// Bytes that the target allows.
        limit: u64,
    },
    /// Loops or allocations are nested in an invalid way.
    #[error("{0}")]
    Nesting(String),
    /// A private buffer is used outside its allocation, or a variable outside its loop.
    #[error("'{0}' is used outside its scope")]
    OutOfScope(String),
    /// An index is out of bounds.
    #[error("{buffer}: dimension {dim} of extent {extent} is indexed from {low} to {high}")]
    OutOfBounds {
        /// Name of the buffer.
        buffer: String,
        /// Physical dimension; 0 is outermost.
        dim: usize,
        /// Smallest value of the index.
        low: i64,
        /// Largest value of the index.
        high: i64,
        /// Extent of the dimension.
        extent: usize,
    },
    /// A register is indexed by a variable that is not constant after the loops within the
    /// allocation are unrolled.
    #[error("the register index of '{buffer}' depends on '{var}', which is not unrolled")]
    RegisterIndex {
        /// Name of the buffer.
        buffer: String,
        /// Name of the variable.
        var: String,
    },
    /// A load or store is not allowed for the buffer's role or in this stage.
    #[error("'{buffer}' must not be {access} here")]
    Forbidden {
        /// Name of the buffer.
        buffer: String,
        /// Kind of access: `read` or `written`.
        access: &'static str,
    },
    /// Lanes of a vector, or concurrent tasks, store to the same element.
    #[error("'{buffer}': {what}")]
    Conflict {
        /// Name of the buffer.
        buffer: String,
        /// Description of the conflicting accesses.
        what: String,
    },
    /// The points of a multiply-accumulate are not provably a box in which each point occurs once.
    #[error("{0}")]
    Point(String),
    /// An operand is read at another element than the iteration requires.
    #[error("'{buffer}' is not read at the index that the iteration requires in logical dimension {dim}")]
    WrongElement {
        /// Name of the operand.
        buffer: String,
        /// Logical dimension; 0 is outermost.
        dim: usize,
    },
    /// An iteration is executed twice.
    #[error("executes an iteration that {other} also executes")]
    Overlap {
        /// Place of the other statement that executes the iteration.
        other: String,
    },
    /// An iteration is not executed.
    #[error("{covered} of {required} iterations are executed")]
    Incomplete {
        /// Number of iterations that are executed.
        covered: u128,
        /// Number of iterations that the equation has.
        required: u128,
    },
    /// An element of the output is never assigned.
    #[error("the output is not assigned at {index:?}")]
    OutputGap {
        /// Physical index of the element.
        index: Vec<i64>,
    },
}

impl Problem {
    /// Returns a [`Problem::Nesting`] error.
    pub(crate) fn nesting<T>(what: &str) -> Result<T, Self> {
        Err(Problem::Nesting(what.into()))
    }
}
