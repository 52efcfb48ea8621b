//! Where a call of an instruction stands.

use crate::affine::{Affine, VarId};
use crate::program::{Access, Grid, Loop, LoopKind, Program};

/// Where a call stands.
pub struct Site<'a> {
    /// The program.
    pub program: &'a Program,
    /// The grid of its stage; none on a CPU.
    pub grid: Option<&'a Grid<'a>>,
    /// Extent of a variable around.
    pub extent: &'a dyn Fn(VarId) -> usize,
}

impl<'a> Site<'a> {
    /// Returns the loops over the threads of a block, outermost first; none on a CPU.
    pub fn threads(&self) -> &[&'a Loop] {
        self.grid.map_or(&[], |grid| &grid.threads)
    }

    /// True for a variable that numbers the threads of a block.
    pub fn is_thread(&self, var: VarId) -> bool {
        self.threads().iter().any(|l| l.var == var && l.kind == LoopKind::Thread)
    }
}

/// True if the last two indices of an access have just these terms, and the others none, but for
/// variables that do not count.
pub(super) fn has_terms(
    access: &Access,
    counts: impl Fn(VarId) -> bool,
    [rows, columns]: [&[(VarId, i64)]; 2],
) -> bool {
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
