//! Arrays that a program reads and writes.

use std::fmt;

use serde::{Deserialize, Serialize};
use smallvec::{SmallVec, smallvec};

use crate::dtype::DType;

/// Identifier of a buffer: its position in [`Program::buffers`](super::Program::buffers).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BufferId(pub u32);

/// Role of a buffer in the computation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Operand that the caller provides, by its number in
    /// [`Spec::operands`](crate::spec::Spec::operands).
    Operand(usize),
    /// Result of the computation.
    Output,
    /// Copy of an operand in another layout, transformed operand, or intermediate result.
    Packed,
    /// Partial sums of a register tile.
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

/// Memory space and lifetime of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Memory that all threads share and that outlives the stages.
    Global,
    /// Shared memory of a GPU block, valid inside the [`Node::Alloc`](super::Node::Alloc) that
    /// names it.
    Shared,
    /// Private memory of a thread, valid inside the [`Node::Alloc`](super::Node::Alloc) that names
    /// it.
    Local,
    /// Registers of a thread, valid inside the [`Node::Alloc`](super::Node::Alloc) that names them.
    /// Every index is constant once unrolled and vectorised loops are expanded.
    Register,
    /// Registers in which the lanes of each warp hold a matrix together, valid inside the
    /// [`Node::Alloc`](super::Node::Alloc) that names them. The shape is that of the rows of
    /// [`Fragments`](crate::instruction::Fragments): `[warps, i, j, 2, 8, 4, 2]`. A thread stores
    /// only the elements of its own lane, `[warp, i, j, h, lane / 4, lane % 4, c]`, and only matrix
    /// instructions read them.
    Warp,
}

/// Layout of a logical tensor in a buffer; its axes are those of its [`crate::spec::TensorSpec`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layout {
    /// Logical axes, row-major. Has no meaning for buffers with the role packed or accumulator.
    Plain,
    /// `[n, c/block, h, w, block]` for a logical `[n, c, h, w]`, and likewise for images of other
    /// ranks; `block` divides `c`.
    ChannelBlocked(usize),
}

/// A dense row-major array in some memory space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// Name, a C identifier that is unique within the program.
    pub name: String,
    /// Role in the computation.
    pub role: Role,
    /// Memory space and lifetime.
    pub scope: Scope,
    /// Physical shape, outermost first.
    pub shape: Vec<usize>,
    /// Layout of the logical tensor in the buffer.
    pub layout: Layout,
    /// Type of the elements in memory.
    pub dtype: DType,
    /// True if stored elements are not read soon, so that stores of whole vectors may bypass the
    /// caches (CPU only).
    pub streamed: bool,
}

impl Buffer {
    /// Creates a buffer with plain layout and ordinary (cached) stores.
    pub fn plain(name: impl Into<String>, role: Role, scope: Scope, shape: Vec<usize>, dtype: DType) -> Self {
        Self { name: name.into(), role, scope, shape, layout: Layout::Plain, dtype, streamed: false }
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Returns the size in bytes.
    pub fn bytes(&self) -> usize {
        self.len() * self.dtype.bytes()
    }

    /// Returns true if some dimension is zero.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the elements of one lane of a buffer that warps hold together, and its dimensions
    /// apart from warp and lane.
    pub fn lane_dims(&self) -> Option<(usize, [usize; 4])> {
        match (self.scope, &self.shape[..]) {
            (Scope::Warp, &[_, i, j, h, _, _, c]) => Some((i * j * h * c, [i, j, h, c])),
            _ => None,
        }
    }

    /// Returns the thread of a block that holds an element of a buffer of warps; `None` for other
    /// scopes.
    pub fn owner(&self, offset: usize) -> Option<usize> {
        match (self.scope, &self.shape[..]) {
            (Scope::Warp, &[_, i, j, h, rows, pairs, c]) => {
                let lanes = rows * pairs;
                Some(offset / (i * j * h * lanes * c).max(1) * lanes + offset / c.max(1) % lanes.max(1))
            }
            _ => None,
        }
    }

    /// Returns the row-major strides, in elements.
    pub fn strides(&self) -> SmallVec<[i64; 6]> {
        let mut strides = smallvec![1; self.shape.len()];
        for d in (1..self.shape.len()).rev() {
            strides[d - 1] = strides[d] * self.shape[d] as i64;
        }
        strides
    }
}
