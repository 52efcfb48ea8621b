//! The sketch `rows` for GPUs, for anything but contractions: maps, reductions such as poolings,
//! and chains of both such as a softmax.
//!
//! The axes that all equations share are rows (`map_reduce::Chain`). Several threads of a block
//! compute a row. They iterate along the other axes of an equation in turn. Then they combine their
//! partial results through shared memory in a tree, `fan_in` values at a time:
//!
//! ```text
//! block b { thread y in 0..rows of a block { thread x in 0..threads of a row {
//!   acc = neutral;  for n.t { acc = max(acc, in[m, threads*n.t + x]) }
//!   parts[y, x] = acc;  barrier
//!   if x < threads/4 { parts[y, threads + x] = max of parts[y, x], parts[y, x + threads/4], .. }
//!   barrier;  ..                                            the last value is the row's maximum
//!   acc = 0;  for n.t { acc += exp(in[m, ..] - maximum) };  ..
//!   for n.t { out[m, ..] = exp(in[m, ..] - maximum) * scale } } } }
//! ```
//!
//! With one thread per row, such as per element of a map or a pooling, nothing goes through shared
//! memory. Adjacent threads are adjacent along the axis on which memory is contiguous, which is an
//! axis of the row or the last row axis. Values that an equation defines for each element of a row
//! are either recomputed by each equation that reads them, or stored in shared memory by the first
//! one.
//!
//! # Vectors
//!
//! With `vector=v` a thread loads, computes and stores `v` adjacent elements as a vector. They are
//! elements of a row, each with an accumulator of its own, or of adjacent rows, if memory is
//! contiguous along the rows.
//!
//! ```text
//! for n.t { acc = max(acc, in[m, threads*n.t + x]) }
//!   →  for n.t { vectorized i in 0..v { acc[i] = max(acc[i], in[m, v*(threads*n.t + x) + i]) } }
//!      max of acc[0], acc[1], ..
//! for k { acc += in[m, k, n] };  out[m, n] = acc
//!   →  for k { vectorized i in 0..v { acc[i] += in[m, k, v*n + i] } }
//!      vectorized i in 0..v { out[m, v*n + i] = acc[i] }
//! ```
//!
//! # Tiles
//!
//! A copy such as a transpose reads and stores along different contiguous axes. With `tile=e` it
//! goes by square tiles through shared memory, so that adjacent threads access adjacent memory on
//! both sides (`turned.rs`).

use std::sync::Arc;

use autotune_ir::machine::gpu::MAX_ACCESS_BYTES;
use autotune_ir::program::{Access, Expr, Role};
use autotune_ir::spec::{AxisId, Equation, Reduction, Spec};
use autotune_ir::target::GpuTarget;
use autotune_ir::{DType, VarId};
use autotune_workloads::Workload;

use crate::config::KnobValues;
use crate::direct::reader::KnobReader;
use crate::error::LowerError;
use crate::map_reduce::{Chain, contiguous_axis, is_given};
use turned::ContiguousAxes;

mod lower;
mod sketch;
mod turned;

pub(crate) use sketch::RowsSketch;

/// Name of the sketch in configs.
pub const SKETCH: &str = "rows";

/// Element type of values in registers and shared memory.
const KEPT: DType = DType::F32;

/// Maximum number of blocks in a grid: kernels use 32-bit indices.
const MAX_BLOCKS: usize = i32::MAX as usize;

/// Direction of a vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Neighbours {
    /// Along the elements of a row.
    Elements,
    /// Along the last row axis.
    Rows,
}

/// A plan of the sketch, parsed: threads per row, rows per block, vectors and tiles.
#[derive(Clone, Debug)]
pub struct Rows {
    pub(crate) chain: Chain,
    /// Rows per block, or vectors of adjacent rows per block.
    pub(crate) block_rows: usize,
    /// Direction and length of the vectors that a thread computes.
    pub(crate) neighbours: Neighbours,
    pub(crate) lanes: usize,
    /// Threads per row; a power of two.
    pub(crate) row_threads: usize,
    /// Number of partial results that a thread combines at once.
    pub(crate) fan_in: usize,
    /// Number of unrolled iterations.
    pub(crate) unroll: usize,
    /// True if values per element of a row are stored in shared memory rather than recomputed.
    pub(crate) keeps: bool,
    /// Axes and edge length of tiles for a transposing copy.
    pub(crate) tile: Option<(ContiguousAxes, usize)>,
}

/// Returns the chain of a spec that the sketch applies to. No map comes before the chain. Each
/// equation has values for whole rows or for all of their elements. Padding either does not occur
/// or can be filled with one neutral number.
pub(crate) fn chain_for(spec: &Arc<Spec>) -> Option<Chain> {
    let chain = Chain::of(spec).filter(|chain| chain.numbers.start == 0 && !chain.is_product())?;
    let is_alike = |pass: &Equation| pass.axes[chain.rows..].iter().all(|axis| axis.reduce == pass.reduces());
    let is_filled = |pass: &Equation| {
        pass.reduction == Reduction::Sum || matches!(pass.value, Expr::Load(_)) || !spec.reads_beyond(pass)
    };
    chain.passes().iter().all(|pass| is_alike(pass) && is_filled(pass)).then_some(chain)
}

/// Returns the chain of a workload that the sketch applies to. Tf32 contractions are excluded,
/// since only matrix instructions round their factors.
fn chain_of(workload: &Workload) -> Option<Chain> {
    let spec = workload.spec();
    if workload.dtype() == DType::Tf32 && spec.is_contraction() { None } else { chain_for(spec) }
}

/// Number of elements of a row in an equation.
pub(crate) fn elements(chain: &Chain, pass: &Equation) -> usize {
    pass.axes[chain.rows..].iter().map(|axis| axis.extent).product()
}

/// Number of elements of the longest row.
fn longest(chain: &Chain) -> usize {
    chain.passes().iter().map(|pass| elements(chain, pass)).max().unwrap_or(1)
}

/// True if the first equation reads an operand that is contiguous along the elements of a row.
pub(crate) fn is_contiguous_within(chain: &Chain) -> bool {
    let uses_own = |pass: &Equation, access: &Access| {
        let own = |axis: AxisId| access.index.last().is_some_and(|index| index.uses(VarId(axis as u32)));
        (chain.rows..pass.axes.len()).filter(|&axis| pass.axes[axis].extent > 1).any(own)
    };
    let first = chain.passes().first();
    first.is_some_and(|pass| {
        pass.loads().into_iter().any(|access| is_given(&chain.spec, access) && uses_own(pass, access))
    })
}

/// Returns the direction of a chain's vectors, and an extent that their lengths must divide.
/// Vectors are along the elements of a row if the first equation reads an operand contiguously
/// along them. Otherwise they are along rows, if an operand and the result are contiguous along
/// those.
pub(crate) fn vectors(chain: &Chain) -> Option<(Neighbours, usize)> {
    let within = || {
        let own = chain.passes().iter().filter(|pass| pass.axes.len() > chain.rows);
        own.filter_map(|pass| pass.axes.last()).map(|axis| axis.extent).reduce(common_divisor)
    };
    let is_row = |access: &Access| contiguous_axis(access).is_some_and(|axis| axis + 1 == chain.rows);
    let reads_rows = || {
        let mut loads = chain.passes().iter().flat_map(Equation::loads);
        loads.any(|access| is_given(&chain.spec, access) && is_row(access))
    };
    if reads_vectors_within(chain) {
        return Some((Neighbours::Elements, within()?));
    }
    let rows = chain.row_axes().last().filter(|_| is_row(&chain.last().output) && reads_rows());
    rows.map(|axis| (Neighbours::Rows, axis.extent))
}

/// True if the first equation reads an operand contiguously along the last axis of the row's
/// elements, and its rows begin at even offsets.
fn reads_vectors_within(chain: &Chain) -> bool {
    let Some(pass) = chain.passes().first().filter(|pass| pass.axes.len() > chain.rows) else { return false };
    let last = pass.axes.len() - 1;
    let is_aligned = |access: &Access| {
        access.index.last().is_some_and(|index| {
            let is_even = |&(VarId(axis), c): &(VarId, i64)| c % 2 == 0 || pass.axes[axis as usize].extent == 1;
            let mut others = index.terms.iter().filter(|term| term.0 != VarId(last as u32));
            index.coefficient(VarId(last as u32)) == 1 && index.constant % 2 == 0 && others.all(is_even)
        })
    };
    pass.axes[last].extent > 1
        && pass.loads().into_iter().any(|access| is_given(&chain.spec, access) && is_aligned(access))
}

fn common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

/// Returns the widest vector, in elements, that one access can load or store of the smallest
/// element type.
pub(crate) fn widest(chain: &Chain) -> usize {
    let all = chain.spec.operands().chain(chain.spec.find(Role::Output));
    MAX_ACCESS_BYTES / all.map(|tensor| tensor.dtype.bytes()).min().unwrap_or(MAX_ACCESS_BYTES)
}

/// Returns the equations that define a value for each element of a row and are read by others.
pub(crate) fn kept(chain: &Chain) -> impl Iterator<Item = &Equation> {
    let (_, before) = chain.passes().split_last().unwrap_or((chain.last(), &[]));
    before.iter().filter(|pass| pass.axes.len() > chain.rows && !pass.reduces())
}

impl Rows {
    /// Parses the knobs of a config. Fails with the first knob that is malformed, does not fit the
    /// workload, or breaks a limit of the target.
    pub fn new(workload: &Workload, target: &GpuTarget, knobs: &dyn KnobValues) -> Result<Self, LowerError> {
        let chain = chain_of(workload).ok_or_else(|| LowerError::unfit(SKETCH, workload))?;
        let reader = KnobReader(knobs);
        let [threads, row_threads, fan_in, unroll] =
            ["threads", "threads.row", "fan_in", "unroll"].map(|knob| reader.number(knob));
        let (threads, row_threads) = (threads?, row_threads?);
        let keeps = reader.one_of("keep", &["none", "shared"])? == "shared";

        // Configs of older versions lack the knobs for vectors and tiles.
        let lanes = if reader.has("vector") { reader.number("vector")? } else { 1 };
        let tile = if reader.has("tile") && reader.choice("tile")? != "none" {
            let turned = ContiguousAxes::of(&chain)
                .ok_or_else(|| LowerError::knob("tile", "the workload transposes nothing"))?;
            Some((turned, reader.number("tile")?))
        } else {
            None
        };
        let (neighbours, divided) = vectors(&chain).unwrap_or((Neighbours::Rows, 1));
        let fits = lanes.is_power_of_two() && lanes <= widest(&chain) && divided.is_multiple_of(lanes);
        require(fits, "vector", "must be a power of two that divides the contiguous elements and fits one access")?;

        require(row_threads.is_power_of_two(), "threads.row", "must be a power of two")?;
        require(threads.is_multiple_of(row_threads), "threads", "must be a multiple of threads.row")?;
        let (block_rows, fan_in, unroll) = (threads / row_threads, fan_in?, unroll?);
        let plan = Self { chain, block_rows, neighbours, lanes, row_threads, fan_in, unroll, keeps, tile };
        let most = longest(&plan.chain).next_power_of_two() / plan.lanes_of(Neighbours::Elements);
        require(row_threads <= most, "threads.row", "exceeds the number of elements or vectors of a row")?;
        plan.check(target)?;
        Ok(plan)
    }

    /// Number of elements or rows in a thread's vectors along the given direction.
    pub(crate) fn lanes_of(&self, neighbours: Neighbours) -> usize {
        if self.neighbours == neighbours { self.lanes } else { 1 }
    }

    /// Checks the rules between knobs and the limits of the target.
    fn check(&self, target: &GpuTarget) -> Result<(), LowerError> {
        let (threads, combines) = (self.block_rows * self.row_threads, self.row_threads > 1);
        require(threads <= target.threads_per_block, "threads", "exceeds the limit of threads per block")?;
        require(self.blocks() <= MAX_BLOCKS, "threads", "results in too many blocks")?;
        require(self.fan_in.is_power_of_two() && self.fan_in > 1, "fan_in", "must be a power of two greater than 1")?;
        let is_least = if combines { self.fan_in <= self.row_threads } else { self.fan_in == 2 };
        require(is_least, "fan_in", "exceeds the number of values to combine")?;
        require(self.unroll.is_power_of_two(), "unroll", "must be a power of two")?;
        let is_kept = combines && kept(&self.chain).next().is_some();
        require(is_kept || !self.keeps, "keep", "needs intermediate values and several threads per row")?;
        if let Some((_, edge)) = self.tile {
            let is_shared = threads.is_multiple_of(edge) && edge.is_multiple_of(threads / edge);
            require(
                is_shared && self.lanes == 1,
                "tile",
                "must divide the threads of a block and be a multiple of the rows they copy at once, one element each",
            )?;
        }

        let bytes = self.shared_bytes();
        let limit = target.shared_bytes_per_block;
        // The kept values are the larger part of shared memory, if there are any.
        let knob = if self.keeps { "keep" } else { "threads" };
        require(bytes <= limit, knob, &format!("{bytes} bytes of shared memory exceed the limit of {limit}"))
    }

    /// Number of rows of the workload.
    pub(crate) fn rows(&self) -> usize {
        self.chain.row_axes().iter().map(|axis| axis.extent).product()
    }

    /// Number of blocks in the grid.
    pub(crate) fn blocks(&self) -> usize {
        if let Some((turned, edge)) = self.tile {
            return turned.blocks(&self.chain, edge).into_iter().product();
        }
        (self.rows() / self.lanes_of(Neighbours::Rows)).div_ceil(self.block_rows)
    }

    /// Numbers of partial results of a row by level, from one per thread down to one.
    pub(crate) fn levels(&self) -> Vec<usize> {
        let next = |&parts: &usize| (parts > 1).then(|| parts.div_ceil(self.fan_in));
        std::iter::successors(Some(self.row_threads), next).collect()
    }

    /// Number of values per row in shared memory for a pass: partial results, or the values that it
    /// defines.
    pub(crate) fn shared_values(&self, pass: &Equation) -> usize {
        match pass.reduces() {
            true if self.row_threads > 1 => self.levels().iter().sum(),
            false if self.keeps => elements(&self.chain, pass),
            _ => 0,
        }
    }

    /// Shared memory of a block in bytes.
    fn shared_bytes(&self) -> usize {
        let reducing = self.chain.passes().iter().filter(|pass| pass.reduces());
        let values = reducing.chain(kept(&self.chain)).map(|pass| {
            let bytes = self
                .shared_values(pass)
                .saturating_mul(KEPT.bytes() * self.block_rows * self.lanes_of(Neighbours::Rows));
            bytes.checked_next_multiple_of(16).unwrap_or(bytes)
        });
        let tile =
            self.tile.map_or(0, |(_, edge)| KEPT.bytes() * turned::tile_shape(edge).into_iter().product::<usize>());
        values.fold(tile.next_multiple_of(16), usize::saturating_add)
    }
}

fn require(holds: bool, knob: &str, reason: &str) -> Result<(), LowerError> {
    if holds { Ok(()) } else { Err(LowerError::knob(knob, reason)) }
}
