//! Context of an instruction's call.

use crate::affine::{Affine, VarId};
use crate::program::{Access, GpuGrid, Loop, LoopKind, Program};

/// Context of an instruction's call.
pub struct CallSite<'a> {
    /// Program that contains the call.
    pub program: &'a Program,
    /// Grid of the stage; `None` on a CPU.
    pub grid: Option<&'a GpuGrid<'a>>,
    /// Extent of a variable that is bound around the call.
    pub extent: &'a dyn Fn(VarId) -> usize,
}

impl<'a> CallSite<'a> {
    /// Returns the loops over the threads of a block, outermost first; empty on a CPU.
    pub fn threads(&self) -> &[&'a Loop] {
        self.grid.map_or(&[], |grid| &grid.threads)
    }

    /// Returns true for a variable that numbers the threads of a block.
    pub fn is_thread(&self, var: VarId) -> bool {
        self.threads().iter().any(|l| l.var == var && l.kind == LoopKind::Thread)
    }
}

/// Returns true if the last two indices of an access have exactly these terms and all other indices
/// none. Variables for which `counts` is false are ignored.
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
