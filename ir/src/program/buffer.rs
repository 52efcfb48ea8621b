//! Arrays that a program reads and writes.

use std::fmt;

use serde::{Deserialize, Serialize};
use smallvec::{SmallVec, smallvec};

use crate::dtype::DType;

/// A buffer, by its position in [`Program::buffers`](super::Program::buffers).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BufferId(pub u32);

/// What a buffer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Given by the caller: of [`Spec::operands`](crate::spec::Spec::operands), the one of this
    /// number.
    Operand(usize),
    /// The result.
    Output,
    /// A copy of an operand in another layout, a transform of it, or what a transform keeps on the
    /// way.
    Packed,
    /// Partial sums of one register tile.
    Accumulator,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Role::Operand(number) => write!(f, "operand {number}"),
            Role::Output => f.write_str("output"),
            Role::Packed => f.write_str("packed"),
            Role::Accumulator => f.write_str("accumulator"),
        }
    }
}

/// Where a buffer lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Memory that every thread sees and that outlives the stages.
    Global,
    /// Memory of one block of threads, valid inside the [`Node::Alloc`](super::Node::Alloc) that
    /// names it. GPU only.
    Shared,
    /// Memory of one thread, valid inside the [`Node::Alloc`](super::Node::Alloc) that names it.
    Local,
    /// Registers of one thread: every index is constant once unrolled and vectorised loops are
    /// expanded. Valid inside the [`Node::Alloc`](super::Node::Alloc) that names it.
    Register,
}

/// How the logical tensor (axes as in its [`crate::spec::Tensor`]) lies in a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layout {
    /// The logical axes, row-major. For operands of role packed or accumulator it says nothing.
    Plain,
    /// `[n, c/block, h, w, block]` for a logical `[n, c, h, w]`, alike for images of other
    /// dimensions; `block` divides `c`.
    ChannelBlocked(usize),
}

/// A dense row-major array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// A name that is a C identifier and unique within the program.
    pub name: String,
    /// What it is for.
    pub role: Role,
    /// Where it lives.
    pub scope: Scope,
    /// Physical shape, outermost first.
    pub shape: Vec<usize>,
    /// How the logical tensor lies in it.
    pub layout: Layout,
    /// Type of its elements.
    pub dtype: DType,
    /// True if nothing reads soon what is stored there: stores of whole vectors may go past the
    /// caches. On CPUs only.
    pub streamed: bool,
}

impl Buffer {
    /// A buffer of plain layout, whose elements are stored as they come.
    pub fn plain(name: impl Into<String>, role: Role, scope: Scope, shape: Vec<usize>, dtype: DType) -> Self {
        Self { name: name.into(), role, scope, shape, layout: Layout::Plain, dtype, streamed: false }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Size of the elements in memory, in bytes.
    pub fn bytes(&self) -> usize {
        self.len() * self.dtype.bytes()
    }

    /// True if some dimension is zero.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Row-major strides in elements.
    pub fn strides(&self) -> SmallVec<[i64; 6]> {
        let mut strides = smallvec![1; self.shape.len()];
        for d in (1..self.shape.len()).rev() {
            strides[d - 1] = strides[d] * self.shape[d] as i64;
        }
        strides
    }
}
