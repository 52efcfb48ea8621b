//! The form of nests that a warp runs by matrix instructions.

use super::{Access, BOX_ROW_BYTES, Expr, Loop, LoopKind, Node, Program, Scope, Store, StoreMode};
use crate::affine::{Affine, VarId};
use crate::dtype::DType;
use crate::launch::Grid;

/// Extents of the two innermost thread loops, which number the lanes of a warp.
pub const LANES: [usize; 2] = [8, 4];

/// The threads that run a [`Node::Mma`] together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Team {
    /// The lanes of a warp.
    Warp,
    /// The lanes of four warps, numbered by the third thread loop from within, of extent 4.
    WarpGroup,
}

impl Team {
    /// Rows of one instruction.
    pub fn rows(self) -> usize {
        match self {
            Team::Warp => 16,
            Team::WarpGroup => 64,
        }
    }

    /// Its threads.
    pub fn threads(self) -> usize {
        2 * self.rows()
    }
}

/// The nest of a [`Node::Mma`], seven written-out loops around one multiply-accumulate. With `r` and `q` the two innermost
/// thread loops, [`LANES`] wide, `K` the steps of one instruction (16 for f16 and bf16, 8 for tf32), and anything that is the
/// same for all lanes of a warp for `..`:
///
/// ```text
/// unrolled s in 0..S                   instructions along the reduction
///   unrolled i in 0..I                 along the rows
///     unrolled j in 0..J               along the columns
///       unrolled h in 0..2
///         unrolled p in 0..P           along the columns; J*P is an even number
///           unrolled c in 0..2
///             unrolled k in 0..K
///               acc[i, j, h, 2*p + c] +=
///                 rows[.., 16*i + 8*h + r + .., K*s + k + ..] * columns[.., 8*P*j + 8*p + 2*q + c + .., K*s + k + ..]
/// ```
///
/// or, with `P = 1`, `columns[.., K*s + k + .., 8*j + 2*q + c + ..]`. This is how the instructions `m16n8k16` and `m16n8k8` deal out their
/// result to the lanes of a warp (PTX ISA, "Matrix Fragments for mma.m16n8k16" and "for mma.m16n8k8"); the operands, which
/// other lanes need as well, come from shared memory, where rows of operands begin at multiples of 16 bytes.
///
/// With `g` the number of a warp in its [`Team::WarpGroup`], the row is `64*i + 16*g + 8*h + r + ..` there, as `wgmma` deals it
/// out; columns are rows in shared memory, and both operands are as a [`super::BoxCopy`] leaves them.
///
/// Only a warp group's `P` may be more than 1. Which columns of the result these are is for the point to say: where the columns
/// lie in shared memory such that column `8*P*j + 8*p + 2*q + c` is that of the result `8*P*j + 2*P*q + 2*p + c`, a lane has runs
/// of `2*P` neighbours.
pub struct WarpTile<'a> {
    /// The loops `s, i, j, h, p, c, k`.
    pub loops: [&'a Loop; 7],
    /// The multiply-accumulate.
    pub store: &'a Store,
    /// The operand with the rows of the result.
    pub rows: &'a Access,
    /// The operand with the columns of the result.
    pub columns: &'a Access,
}

impl<'a> WarpTile<'a> {
    /// Steps of the reduction that one instruction takes; `None` where there is no instruction for a type.
    pub fn steps(dtype: DType) -> Option<usize> {
        match dtype {
            DType::F32 => None,
            DType::Tf32 => Some(8),
            DType::F16 | DType::Bf16 => Some(16),
        }
    }

    /// The loops and the multiply-accumulate; `None` if the body has another structure.
    pub fn of(body: &'a [Node]) -> Option<Self> {
        let (mut loops, mut body) = (Vec::new(), body);
        while let [Node::Loop(l)] = body {
            loops.push(l);
            body = &l.body;
        }
        let [Node::Store(store)] = body else { return None };
        let Expr::Mul(factors) = &store.value else { return None };
        let [Expr::Load(rows), Expr::Load(columns)] = &**factors else { return None };
        Some(Self { loops: loops.try_into().ok()?, store, rows, columns })
    }

    /// Columns of the result that one lane of a warp and three others have.
    pub fn width(&self) -> usize {
        let [_, _, j, _, p, ..] = self.loops;
        8 * j.extent * p.extent
    }

    /// True if a row of the operand with the columns holds what one column of the result needs.
    pub fn columns_are_rows(&self) -> bool {
        let [.., k] = self.loops;
        self.columns.index.last().is_some_and(|index| index.coefficient(k.var) != 0)
    }

    /// Whether extents and indices are those of the form, or what is not.
    pub fn check(&self, program: &Program, grid: &Grid, by: Team) -> Result<(), &'static str> {
        let dtype = program.dtype(self.rows.buffer);
        let Some(steps) = Self::steps(dtype) else {
            return Err("matrix instructions of a type that has none");
        };
        let lanes: Option<[&Loop; 2]> = grid.threads.last_chunk().copied();
        let Some([row, pair]) = lanes.filter(|lanes| lanes.map(|l| l.extent) == LANES) else {
            return Err("matrix instructions in a block whose threads are not numbered by the lanes of warps");
        };
        let of_group = grid.threads.len().checked_sub(3).map(|at| grid.threads[at]).filter(|l| l.extent == 4);
        let warp = match by {
            Team::Warp => None,
            Team::WarpGroup if of_group.is_some() && dtype.bytes() == 2 => of_group.map(|l| l.var),
            Team::WarpGroup => return Err("matrix instructions of warp groups in a block without, or of other types"),
        };
        let [s, i, j, h, p, c, k] = self.loops;
        let written_out = self.loops.iter().all(|l| l.kind == LoopKind::Unrolled);
        let in_runs = by == Team::WarpGroup || p.extent == 1;
        if !written_out
            || [h.extent, c.extent, k.extent] != [2, 2, steps]
            || !self.width().is_multiple_of(16)
            || !in_runs
        {
            return Err("loops that are not those of matrix instructions");
        }
        let acc = program.buffer(self.store.dst.buffer);
        let run = Affine::var(p.var) * 2 + Affine::var(c.var);
        let own = [Affine::var(i.var), Affine::var(j.var), Affine::var(h.var), run];
        let sums = acc.scope == Scope::Register && self.store.mode == StoreMode::Accumulate;
        if !sums || self.store.dst.index != own || acc.shape != [i.extent, j.extent, 2, 2 * p.extent] {
            return Err("matrix instructions with sums elsewhere than in the registers of the lanes");
        }
        let of_team = |var: VarId| [row.var, pair.var].contains(&var) || warp == Some(var);
        let variable = |var: VarId| self.loops.iter().any(|l| l.var == var) || of_team(var);
        let reduction = [(s.var, steps as i64), (k.var, 1)];
        let mut along_rows = vec![(i.var, by.rows() as i64), (h.var, 8), (row.var, 1)];
        along_rows.extend(warp.map(|var| (var, 16)));
        let along_columns = [(j.var, 8 * p.extent as i64), (p.var, 8), (pair.var, 2), (c.var, 1)];
        // What is the same for all lanes is left out; what is always zero says nothing.
        let extent = |var: VarId| self.loops.iter().find(|l| l.var == var).map_or(2, |l| l.extent);
        let varies = |index: &Affine, wanted: &[(VarId, i64)]| {
            let found = index.terms.iter().filter(|(var, _)| variable(*var) && extent(*var) > 1);
            let wanted = wanted.iter().filter(|(var, _)| extent(*var) > 1);
            found.clone().count() == wanted.clone().count()
                && wanted.clone().all(|term| found.clone().any(|f| f == term))
        };
        let is = |access: &Access, last: [&[(VarId, i64)]; 2]| match &access.index[..] {
            [outer @ .., a, b] => {
                varies(a, last[0]) && varies(b, last[1]) && outer.iter().all(|index| varies(index, &[]))
            }
            _ => false,
        };
        if !is(self.rows, [&along_rows, &reduction])
            || !(is(self.columns, [&along_columns, &reduction])
                || (by == Team::Warp && is(self.columns, [&reduction, &along_columns])))
        {
            return Err("operands that matrix instructions do not deal out to the lanes like this");
        }
        let aligned = |access: &Access| {
            let buffer = program.buffer(access.buffer);
            let row = buffer.shape.last().copied().unwrap_or(1) as i64;
            let unit = 16 / program.dtype(access.buffer).bytes() as i64;
            let whole = |index: &Affine| {
                let rest = index.terms.iter().filter(|(var, _)| !variable(*var) || *var == j.var);
                index.constant % unit == 0 && rest.clone().all(|&(_, c)| c % unit == 0)
            };
            let swizzled = |access: &Access| {
                let eighth = |index: &Affine| {
                    let rest = index.terms.iter().filter(|(var, _)| !variable(*var));
                    index.constant % 8 == 0 && rest.clone().all(|&(_, c)| c % 8 == 0)
                };
                // Instructions find the swizzle by address: tiles begin with a whole group of eight rows of 128 bytes.
                row * 16 == unit * BOX_ROW_BYTES as i64 && access.index.len() == 3 && eighth(&access.index[1])
            };
            let rows = by == Team::Warp || swizzled(access);
            buffer.scope == Scope::Shared && row % unit == 0 && rows && access.index.last().is_some_and(whole)
        };
        if !aligned(self.rows) || !aligned(self.columns) {
            return Err("operands of matrix instructions that are not rows of shared memory at multiples of 16 bytes");
        }
        Ok(())
    }
}
