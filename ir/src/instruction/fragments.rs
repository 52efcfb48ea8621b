//! Loop nests that matrix instructions of a warp or a warp group compute.

use super::site::has_terms;
use super::{BOX_ROW_BYTES, CallSite, Instruction, MMA, ThreadGroup, WGMMA};
use crate::affine::{Affine, VarId};
use crate::machine::gpu::WARP_THREADS;
use crate::program::{Access, Loop, LoopKind, Node, Program, Scope, Store, StoreMode};

/// Extents of the two innermost thread loops, which number the 32 lanes of a warp.
pub const LANES: [usize; 2] = [8, 4];

const _: () = assert!(LANES[0] * LANES[1] == WARP_THREADS);

impl ThreadGroup {
    /// Returns the matrix instruction of these threads.
    pub fn instruction(self) -> &'static Instruction {
        match self {
            ThreadGroup::Warp => &MMA,
            ThreadGroup::WarpGroup => &WGMMA,
        }
    }
}

/// Loop nest of [`MMA`] and [`WGMMA`]: seven unrolled loops around one multiply-accumulate. Below,
/// `r` and `q` are the two innermost thread loops, with extents [`LANES`]. `K` is the number of
/// steps of one instruction: 16 for f16 and bf16, 8 for tf32. `..` is anything that is equal for
/// all lanes of a warp:
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
///                 rows[.., 16*i + 8*h + r + .., K*s + k + ..] *
///                 columns[.., 8*P*j + 8*p + 2*q + c + .., K*s + k + ..]
/// ```
///
/// The rows of a warp may be in registers that its lanes hold together ([`Scope::Warp`]), in the
/// distribution of the result, which that of the factor continues for 16-bit types. The steps of an
/// instruction are then three digits:
///
/// ```text
///   unrolled u in 0..K/8 { unrolled l in 0..4 { unrolled e in 0..2 {
///     acc[i, j, h, c] += rows[warp, i, K/8*s + u, h, r, l, e] * columns[.., K*s + 8*u + 2*l + e + ..]
/// ```
///
/// With `P = 1` the columns may also be `columns[.., K*s + k + .., 8*j + 2*q + c + ..]`, and the
/// rows of a warp `rows[.., K*s + k + .., 16*i + 8*h + r + ..]`. This is the distribution of the
/// result over the lanes of a warp that `m16n8k16` and `m16n8k8` define (PTX ISA, "Matrix Fragments
/// for mma.m16n8k16" and "for mma.m16n8k8"). The operands, which several lanes need, are read from
/// shared memory, where each row begins at a multiple of 16 bytes.
///
/// For a [`ThreadGroup::WarpGroup`], the row is `64*i + 16*g + 8*h + r + ..`, where `g` is the
/// number of the warp in the group, as `wgmma` defines it. Columns are rows in shared memory, and
/// both operands have the layout that a [`super::BoxCopy`] produces.
///
/// `P` may exceed 1 for warp groups only. The iteration's point defines which columns of the result
/// are meant. If column `8*P*j + 8*p + 2*q + c` in shared memory is column
/// `8*P*j + 2*P*q + 2*p + c` of the result, each lane has runs of `2*P` neighbouring columns.
pub struct Fragments<'a> {
    /// The loops `s, i, j, h, p, c, k`, outermost first; with rows in registers, `e` instead of
    /// `k`.
    pub loops: [&'a Loop; 7],
    /// The loops `u` and `l`, if the rows are in registers.
    pub digits: Option<[&'a Loop; 2]>,
    /// The multiply-accumulate in the innermost loop.
    pub store: &'a Store,
    /// Operand that the rows of the result read.
    pub rows: &'a Access,
    /// Operand that the columns of the result read.
    pub columns: &'a Access,
}

impl<'a> Fragments<'a> {
    /// Matches the loops and the multiply-accumulate; `None` if the body has another structure.
    pub fn of(body: &'a [Node]) -> Option<Self> {
        let (mut loops, mut body) = (Vec::new(), body);
        while let [Node::Loop(l)] = body {
            loops.push(l);
            body = &l.body;
        }
        let [Node::Store(store)] = body else { return None };
        let [rows, columns] = store.factors()?;
        let mut digits = None;
        if let [outer @ .., u, l, e] = &loops[..]
            && outer.len() == 6
        {
            digits = Some([*u, *l]);
            loops = [outer, &[*e]].concat();
        }
        Some(Self { loops: loops.try_into().ok()?, digits, store, rows, columns })
    }

    /// Returns the reduction steps of one instruction.
    pub fn steps(&self) -> usize {
        let [.., last] = self.loops;
        last.extent * self.digits.map_or(1, |digits| digits.iter().map(|l| l.extent).product())
    }

    /// Returns the multiply-adds of a thread.
    pub fn fmas(&self) -> usize {
        let [s, i, j, h, p, c, _] = self.loops.map(|l| l.extent);
        s * i * j * h * p * c * self.steps()
    }

    /// Returns the columns of the tile. Each row of it is distributed over four lanes.
    pub fn width(&self) -> usize {
        let [_, _, j, _, p, ..] = self.loops;
        8 * j.extent * p.extent
    }

    /// Returns true if the column operand has the reduction axis last: one row per column of the
    /// result.
    pub fn columns_are_rows(&self) -> bool {
        self.has_steps_last(self.columns)
    }

    /// Returns true if the row operand has the reduction axis last: one row per row of the result.
    pub fn rows_are_rows(&self) -> bool {
        self.has_steps_last(self.rows)
    }

    fn has_steps_last(&self, access: &Access) -> bool {
        let [.., k] = self.loops;
        access.index.last().is_some_and(|index| index.uses(k.var))
    }

    /// Checks that a body is of this form for these threads; the error names the first violation.
    pub(super) fn check(body: &[Node], site: &CallSite, by: ThreadGroup) -> Result<(), &'static str> {
        let Some(tile) = Fragments::of(body) else {
            return Err("not a matrix product of this instruction");
        };
        let Some(steps) = by.instruction().steps(site.program.dtype(tile.rows.buffer)) else {
            return Err("no matrix instruction multiplies this element type");
        };
        let lanes: Option<[&Loop; 2]> = site.threads().last_chunk().copied();
        let Some(lanes) = lanes.filter(|lanes| lanes.map(|l| l.extent) == LANES) else {
            return Err("the innermost thread loops do not number the lanes of a warp");
        };
        let warp = tile.warp(site, by)?;

        if !tile.has_loops(steps, by) {
            return Err("the loops do not match the matrix instruction");
        }
        if !tile.has_own_sums(site.program) {
            return Err("the sums of a matrix instruction must be in the registers of its lanes");
        }
        let team = LaneVars { row: lanes[0].var, pair: lanes[1].var, warp };
        if !tile.distributes(steps, by, &team) {
            return Err("the operands are not distributed over the lanes as the matrix instruction requires");
        }
        let rows = site.program.buffer(tile.rows.buffer);
        let in_registers = rows.scope == Scope::Warp;
        if in_registers != tile.digits.is_some()
            || in_registers && !(by == ThreadGroup::Warp && rows.dtype.bytes() == 2 && tile.is_of_warp(site))
        {
            return Err("rows in registers must be 16-bit elements that the warp holds");
        }
        let shared = [tile.columns].into_iter().chain((!in_registers).then_some(tile.rows));
        if !shared.into_iter().all(|access| tile.is_aligned(access, site.program, by, &team)) {
            return Err("the operands of a matrix instruction must be rows of shared memory at multiples of 16 bytes");
        }
        Ok(())
    }

    /// Returns the variable that numbers the warps of a warp group; `None` for single warps.
    fn warp(&self, site: &CallSite, by: ThreadGroup) -> Result<Option<VarId>, &'static str> {
        let third = site.threads().iter().rev().nth(2).filter(|l| l.extent == 4);
        match (by, third) {
            (ThreadGroup::Warp, _) => Ok(None),
            (ThreadGroup::WarpGroup, Some(l)) if site.program.dtype(self.rows.buffer).bytes() == 2 => Ok(Some(l.var)),
            (ThreadGroup::WarpGroup, _) => {
                Err("a warp-group instruction needs a thread loop over 4 warps and 16-bit factors")
            }
        }
    }

    fn has_loops(&self, steps: usize, by: ThreadGroup) -> bool {
        let [_, _, _, h, p, c, last] = self.loops;
        let are_digits = self.digits.is_none_or(|[_, l]| [l.extent, last.extent] == [4, 2]);
        self.loops.iter().chain(self.digits.iter().flatten()).all(|l| l.kind == LoopKind::Unrolled)
            && [h.extent, c.extent, self.steps()] == [2, 2, steps]
            && are_digits
            && self.width().is_multiple_of(16)
            && (by == ThreadGroup::WarpGroup || p.extent == 1)
    }

    fn has_own_sums(&self, program: &Program) -> bool {
        let [_, i, j, h, p, c, _] = self.loops;
        let acc = program.buffer(self.store.dst.buffer);
        let run = Affine::var(p.var) * 2 + Affine::var(c.var);
        // Registers must be indexed by unrolled loops alone.
        let own = [Affine::var(i.var), Affine::var(j.var), Affine::var(h.var), run];
        acc.scope == Scope::Register
            && self.store.mode == StoreMode::Accumulate
            && self.store.dst.index[..] == own
            && acc.shape == [i.extent, j.extent, 2, 2 * p.extent]
    }

    /// Returns true if the last two indices of both operands are those of the form above.
    fn distributes(&self, steps: usize, by: ThreadGroup, lanes: &LaneVars) -> bool {
        let [s, i, j, h, p, c, k] = self.loops;
        let mut reduction = vec![(s.var, steps as i64), (k.var, 1)];
        reduction.extend(self.digits.iter().flatten().zip([8, 2]).map(|(digit, step)| (digit.var, step)));
        let mut along_rows = vec![(i.var, by.rows() as i64), (h.var, 8), (lanes.row, 1)];
        along_rows.extend(lanes.warp.map(|var| (var, 16)));
        let along_columns = [(j.var, 8 * p.extent as i64), (p.var, 8), (lanes.pair, 2), (c.var, 1)];

        // Terms that are equal for all lanes are ignored; so are variables that are always zero.
        let all = self.loops.iter().chain(self.digits.iter().flatten());
        let extent = |var: VarId| all.clone().find(|l| l.var == var).map_or(2, |l| l.extent);
        let counts = |var: VarId| self.is_variable(var, lanes) && extent(var) > 1;
        let is_dealt_out = |access: &Access, along: &[(VarId, i64)]| {
            // Single warps can also read transposed operands.
            has_terms(access, counts, [along, &reduction])
                || (by == ThreadGroup::Warp && has_terms(access, counts, [&reduction, along]))
        };
        let has_rows = match self.digits {
            Some(digits) => self.has_own_rows(digits, lanes),
            None => is_dealt_out(self.rows, &along_rows),
        };
        has_rows && is_dealt_out(self.columns, &along_columns)
    }

    /// Returns true if rows in registers have the indices of the form above. Which warp they are of
    /// is checked with the thread loops.
    fn has_own_rows(&self, [u, l]: [&Loop; 2], lanes: &LaneVars) -> bool {
        let [s, i, _, h, _, _, e] = self.loops;
        let tile = Affine::var(s.var) * u.extent as i64 + Affine::var(u.var);
        let [i, h, l, e] = [i, h, l, e].map(|l| Affine::var(l.var));
        let own = [i, tile, h, Affine::var(lanes.row), l, e];
        self.rows.index.get(1..).is_some_and(|index| *index == own)
    }

    /// Returns true if rows in registers are those of the warp that multiplies them.
    fn is_of_warp(&self, site: &CallSite) -> bool {
        let threads = site.threads();
        let warps = &threads[..threads.len().saturating_sub(LANES.len())];
        let add = |number: Affine, l: &&Loop| number * l.extent as i64 + Affine::var(l.var);
        let mut apart = warps.iter().fold(Affine::default(), add) * -1;
        self.rows.index.first().into_iter().for_each(|warp| apart.add_scaled(warp, 1));
        apart.constant == 0 && apart.terms.iter().all(|&(var, _)| (site.extent)(var) == 1)
    }

    /// Returns true for a variable that differs between fragments or lanes.
    fn is_variable(&self, var: VarId, lanes: &LaneVars) -> bool {
        self.loops.iter().chain(self.digits.iter().flatten()).any(|l| l.var == var)
            || [lanes.row, lanes.pair].contains(&var)
            || lanes.warp == Some(var)
    }

    /// Returns true if the rows of an operand begin at multiples of 16 bytes in shared memory; for
    /// warp groups, also that they are in swizzled order.
    fn is_aligned(&self, access: &Access, program: &Program, by: ThreadGroup, lanes: &LaneVars) -> bool {
        let [_, _, j, ..] = self.loops;
        let buffer = program.buffer(access.buffer);
        let row = buffer.shape.last().copied().unwrap_or(1) as i64;
        // Elements per 16 bytes, the unit in which the instructions read rows.
        let unit = 16 / program.dtype(access.buffer).bytes() as i64;
        let whole = |index: &Affine| {
            let rest = index.terms.iter().filter(|(var, _)| !self.is_variable(*var, lanes) || *var == j.var);
            index.constant % unit == 0 && rest.clone().all(|&(_, c)| c % unit == 0)
        };

        // Instructions derive the swizzle from the address: a tile must begin at a whole group of
        // eight rows of 128 bytes.
        let eighth = |index: &Affine| {
            let rest = index.terms.iter().filter(|(var, _)| !self.is_variable(*var, lanes));
            index.constant % 8 == 0 && rest.clone().all(|&(_, c)| c % 8 == 0)
        };
        let is_swizzled =
            || row * 16 == unit * BOX_ROW_BYTES as i64 && access.index.len() == 3 && eighth(&access.index[1]);
        buffer.scope == Scope::Shared
            && row % unit == 0
            && (by == ThreadGroup::Warp || is_swizzled())
            && access.index.last().is_some_and(whole)
    }
}

/// Variables that number the lanes of a warp and the warps of a warp group.
struct LaneVars {
    row: VarId,
    pair: VarId,
    warp: Option<VarId>,
}
