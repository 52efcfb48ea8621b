//! Instructions that do a whole loop nest.
//!
//! A [`Node::Call`] has as its body the nest that its instruction does, so that what runs, counts or proves a program reads the
//! body and needs to know nothing of the instruction; an [`Instruction`] says what no nest can say: which nests it does, and what of
//! it goes on behind it. How it is written, the dialects of GPU languages say.
//!
//! ```text
//! call mma.sync                                  sixteen times eight sums of a warp, and K steps of their reduction
//!   unrolled s in 0..2
//!     ...
//!       acc[i, j, h, 2*p + c] += data_shared[..] * weight_shared[..]
//! ```
//!
//! A new one is a file with a static beside [`MMA`], [`WGMMA`] and [`BOX_COPY`], and its entry in the table of the dialects that
//! have it.

use std::fmt;

use crate::affine::{Affine, VarId};
use crate::program::{Access, Grid, LoopKind, Node, Program};

mod box_copy;
mod fragments;
mod mma;
mod wgmma;

pub use box_copy::{BOX_COPY, BOX_ROW_BYTES, BoxCopy};
pub use fragments::{Fragments, LANES, ThreadGroup};
pub use mma::MMA;
pub use wgmma::WGMMA;

/// An instruction.
pub struct Instruction {
    /// How PTX or another machine's manual calls it, in short; unique.
    pub name: &'static str,
    /// The threads whose registers hold its sums; none if it does not multiply.
    pub multiplies: Option<ThreadGroup>,
    /// What of it goes on behind it.
    pub asynchrony: Asynchrony,
    /// Whether it does the nest in a body, where that stands, or why not.
    pub check: fn(&[Node], &Site) -> Result<(), &'static str>,
}

/// What of an instruction goes on while the threads that called it do something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asynchrony {
    /// Nothing.
    Nothing,
    /// It may go on reading shared memory until the end of the next instruction of its kind, or of the innermost serial loop around,
    /// which other threads know behind a barrier or a release.
    Reads,
    /// It is a copy, and only in a [`Node::CopyGroup`], with which it ends. One thread starts it for the whole block: its nest is
    /// written as if the threads of the thread loops did it.
    Copies,
}

/// Where a call stands.
pub struct Site<'a> {
    /// The program.
    pub program: &'a Program,
    /// The grid of its stage.
    pub grid: &'a Grid<'a>,
    /// Extent of a variable around.
    pub extent: &'a dyn Fn(VarId) -> usize,
}

impl Site<'_> {
    /// True for a variable that numbers the threads of a block.
    pub fn is_thread(&self, var: VarId) -> bool {
        self.grid.threads.iter().any(|l| l.var == var && l.kind == LoopKind::Thread)
    }
}

/// True if the last two indices of an access have just these terms, and the others none, but for variables that do not count.
fn has_terms(access: &Access, counts: impl Fn(VarId) -> bool, [rows, columns]: [&[(VarId, i64)]; 2]) -> bool {
    let has = |index: &Affine, wanted: &[(VarId, i64)]| {
        let found = index.terms.iter().filter(|term| counts(term.0));
        let wanted = wanted.iter().filter(|term| counts(term.0));
        found.clone().count() == wanted.clone().count() && wanted.clone().all(|term| found.clone().any(|f| f == term))
    };
    match &access.index[..] {
        [outer @ .., row, column] => {
            has(row, rows) && has(column, columns) && outer.iter().all(|index| has(index, &[]))
        }
        _ => false,
    }
}

impl PartialEq for Instruction {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl fmt::Debug for Instruction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}
