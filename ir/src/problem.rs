//! What can be wrong with a program: what its [verifier](crate::verify()) and its
//! [interpreter](crate::interpret()) say.

use thiserror::Error;

use crate::program::Scope;

/// What is wrong with a program, and where.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{place}: {problem}")]
pub struct ProgramError {
    /// Stage and loops (by name, outermost first) or buffer.
    pub place: String,
    /// What is wrong.
    pub problem: Problem,
}

/// What can be wrong with a program.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Problem {
    /// Buffers, axes or names are not what the workload and its surroundings expect.
    #[error("{0}")]
    Interface(String),
    /// Blocks or threads that the target does not have.
    #[error("{0}")]
    Launch(String),
    /// Too much memory.
    #[error("{bytes} bytes of {scope:?} memory exceed {limit}")]
    Memory {
        /// The kind of memory.
        scope: Scope,
        /// Bytes needed.
        bytes: u64,
        /// Bytes allowed.
        limit: u64,
    },
    /// Loops or allocations are nested in a way that has no meaning.
    #[error("{0}")]
    Nesting(String),
    /// A private buffer is used outside its allocation, or a variable outside its loop.
    #[error("'{0}' is used outside its scope")]
    OutOfScope(String),
    /// An index leaves its dimension.
    #[error("{buffer}: dimension {dim} of extent {extent} is indexed from {low} to {high}")]
    OutOfBounds {
        /// The buffer.
        buffer: String,
        /// Physical dimension, outermost is 0.
        dim: usize,
        /// Smallest index.
        low: i64,
        /// Largest index.
        high: i64,
        /// Extent of the dimension.
        extent: usize,
    },
    /// A register is chosen by a variable that has no constant value once loops are unrolled within
    /// the allocation.
    #[error("the register of '{buffer}' depends on '{var}'")]
    RegisterIndex {
        /// The buffer.
        buffer: String,
        /// The variable.
        var: String,
    },
    /// A store or load that the buffer's role or the stage's time forbids.
    #[error("'{buffer}' may not be {access} here")]
    Forbidden {
        /// The buffer.
        buffer: String,
        /// `read` or `written`.
        access: &'static str,
    },
    /// Lanes of one vector, or tasks that run at once, store to the same element.
    #[error("'{buffer}': {what}")]
    Conflict {
        /// The buffer.
        buffer: String,
        /// Who meets.
        what: String,
    },
    /// A multiply-accumulate whose points are not plainly a box with each point taken once.
    #[error("{0}")]
    Point(String),
    /// An operand is read in place at another element than the point asks for.
    #[error("'{buffer}' is read at another index than the iteration asks for in logical dimension {dim}")]
    WrongElement {
        /// The operand.
        buffer: String,
        /// Logical dimension, outermost is 0.
        dim: usize,
    },
    /// Some multiply-add happens twice.
    #[error("covers an iteration that {other} covers, too")]
    Overlap {
        /// The other place.
        other: String,
    },
    /// Some multiply-add does not happen.
    #[error("{covered} of {required} iterations are covered")]
    Incomplete {
        /// Number of those that happen.
        covered: u128,
        /// Number of those that should.
        required: u128,
    },
    /// An element of the output is never assigned.
    #[error("the output is not assigned at {index:?}")]
    OutputGap {
        /// Its physical index.
        index: Vec<i64>,
    },
}

impl Problem {
    /// Loops, allocations or accesses that make no sense.
    pub(crate) fn nesting<T>(what: &str) -> Result<T, Self> {
        Err(Problem::Nesting(what.into()))
    }
}
