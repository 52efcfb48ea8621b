//! Tilings for single threads: each multiplies its register tile from the block's shared memory.
//!
//! ```text
//! block loops over batch axes and block tiles, in `order`
//!   thread loops: one per spatial axis
//!     acc = 0
//!     serial loops over chunks of the reduction, with `stages` in shared memory
//!       data_shared, weight_shared = inputs of the block's chunk    (all threads, `vector.*` wide)
//!       loops over the chunk, unrolled up to `unroll` steps
//!         data_frag, weight_frag = inputs of the thread's tile and the step
//!         acc += data_frag * weight_frag                                         (unrolled)
//!     output = act(acc + bias + residual)
//! ```
//!
//! A tile `[block, strand, register]` of an axis covers the elements `0..block`. Thread `t`
//! computes the elements `v*strand + t*register + r` with `r` in `0..register`, for each virtual
//! thread `v` in `0..block/strand`. Adjacent threads access adjacent memory however large a
//! thread's tile is.
//!
//! Shared memory holds f32 for any type of the operands. 16-bit elements are widened while they are
//! copied, once for all threads that multiply them, so that the inner loop has only multiply-adds
//! and wide reads.
//!
//! The schedule is that of Volkov and Demmel, "Benchmarking GPUs to tune dense linear algebra" (SC
//! 2008), and of AutoTVM's GPU templates.

use std::sync::Arc;

use super::limits::require;
use super::{AxisRoles, MicroKernel, Packing, Pipeline, Staged, TileLevel, Tiling};
use crate::config::KnobValues;
use crate::contraction::{AxisId, Operand};
use crate::direct::reader::KnobReader;
use crate::error::LowerError;
use crate::knob_space::Knob;
use autotune_ir::DType;
use autotune_ir::affine::VarId;
use autotune_ir::target::GpuTarget;

/// Values of the knobs for padding per row of shared memory, and for unrolled steps.
pub(crate) const PADS: &[&str] = &["0", "2", "4"];
pub(crate) const UNROLLS: &[&str] = &["1", "2", "4", "8", "16", "32", "64"];

/// Returns every knob of the sketch with its values.
pub(crate) fn knobs(roles: &AxisRoles, target: &GpuTarget) -> Vec<Knob> {
    let tile = |axis: AxisId, values| Knob::tile(&knob_of(roles, axis), values);
    let spatial = roles.spatial.iter().map(|&axis| tile(axis, spatial_tiles(roles.extent(axis), target)));
    let mut knobs: Vec<Knob> = spatial.collect();
    let reduce: Vec<AxisId> = reduced(roles).collect();
    knobs.extend(reduce.iter().map(|&axis| tile(axis, chunks(roles, axis))));
    if !roles.spatial.is_empty() {
        knobs.push(Knob::order("order", &spatial_names(roles)));
    }

    let [weights, data, weight, stages] = staging_knobs(roles);
    knobs.extend([
        weights,
        data,
        weight,
        Knob::choice("pad", PADS),
        stages,
        Knob::choice("unroll", UNROLLS),
        Knob::choice("split", if reduce.is_empty() { &["1"] } else { &["1", "2", "4", "8", "16"] }),
    ]);
    knobs
}

/// Returns the knobs for staging: packing of weights, vector widths of both copies, and stages.
pub(crate) fn staging_knobs(roles: &AxisRoles) -> [Knob; 4] {
    let [data, weight] = &roles.operands;
    let packing = roles.packing();
    let data = roles.pixels.as_ref().map_or_else(|| widest(data), |pixels| pixels.vector);
    // The knob offers what either form of the weights allows; [`check_vectors`] rejects the rest.
    let packed = packing.as_ref().map_or(1, |packing| widest(&packing.packed(weight)));
    [
        Knob::choice("weights", weight_words(roles, &packing)),
        Knob::choice("vector.data", vectors(data)),
        Knob::choice("vector.weight", vectors(packed.max(widest(weight)))),
        Knob::choice("stages", &["1", "2"]),
    ]
}

fn knob_of(roles: &AxisRoles, axis: AxisId) -> String {
    format!("tile.{}", roles.name(axis))
}

fn spatial_names(roles: &AxisRoles) -> Vec<&'static str> {
    roles.spatial.iter().map(|&axis| roles.name(axis)).collect()
}

/// Returns the reduction axes that have a knob for chunks: those of more than one element.
fn reduced(roles: &AxisRoles) -> impl Iterator<Item = AxisId> {
    roles.reduce.iter().copied().filter(|&axis| roles.extent(axis) > 1)
}

fn weight_words(roles: &AxisRoles, packing: &Option<Packing>) -> &'static [&'static str] {
    match packing {
        Some(_) if roles.unfolded => &["packed"],
        Some(_) => &["packed", "inplace"],
        None => &["inplace"],
    }
}

/// Returns the widest aligned vector that divides rows, up to 4 elements.
fn widest(operand: &Operand) -> usize {
    let (Some(index), Some(&row)) = (operand.index.last(), operand.shape.last()) else { return 1 };
    // Every row must begin at a multiple of the vector, as must the first element.
    let is_aligned = |w: &usize| row.is_multiple_of(*w) && (index.constant.unsigned_abs() as usize).is_multiple_of(*w);
    [4, 2].into_iter().find(is_aligned).unwrap_or(1)
}

fn vectors(widest: usize) -> &'static [&'static str] {
    const VECTORS: [&str; 3] = ["1", "2", "4"];
    &VECTORS[..=widest.ilog2() as usize]
}

/// Returns values `[block, strand, register]`. Numbers of threads are powers of two or divide the
/// axis, and no block is mostly out of bounds.
pub(crate) fn spatial_tiles(extent: usize, target: &GpuTarget) -> Vec<Vec<usize>> {
    let most_threads = target.threads_per_block.min(extent.next_power_of_two()).min(256);
    let threads = (1..=most_threads).filter(|&t| t.is_power_of_two() || (t <= 64 && extent.is_multiple_of(t)));
    let registers = (1..=8).filter(|&r| [1, 2, 4, 8].contains(&r) || extent.is_multiple_of(r));
    let mut tiles = Vec::new();
    for register in registers {
        for threads in threads.clone() {
            let strand = threads * register;
            let fits = |strands: usize| strands * strand < 2 * extent.max(1);
            tiles.extend([1, 2, 4].into_iter().filter(|&s| fits(s)).map(|s| vec![s * strand, strand, register]));
        }
    }
    tiles
}

/// Returns values `[chunk]` of a reduction axis: one element or all of a short axis, up to 64
/// elements of the last one.
pub(crate) fn chunks(roles: &AxisRoles, axis: AxisId) -> Vec<Vec<usize>> {
    let (extent, is_long) = (roles.extent(axis), roles.reduce.last() == Some(&axis));
    let some: &[usize] = if is_long { &[1, 2, 4, 8, 16, 32, 64] } else { &[1] };
    // Chunks of long axes would exceed shared memory.
    let whole = (!is_long || extent <= 64).then_some(extent);
    some.iter().copied().filter(|&chunk| chunk < extent).chain(whole).map(|chunk| vec![chunk]).collect()
}

/// Parses the knobs of a config. Fails with the first knob that is malformed or does not fit.
pub(crate) fn tiling(roles: Arc<AxisRoles>, dtype: DType, knobs: &dyn KnobValues) -> Result<Tiling, LowerError> {
    let reader = KnobReader(knobs);
    let (mut spatial, mut threads, mut sums) = (Vec::new(), Vec::new(), Vec::new());
    for &axis in &roles.spatial {
        let knob = knob_of(&roles, axis);
        let [block, strand, register] = reader.tile::<3>(&knob)?;
        // Threads then have equally many elements, and no element has two threads.
        let divides = block.is_multiple_of(strand) && strand.is_multiple_of(register);
        require(divides, &knob, "each level must divide the one before it")?;
        // A larger block would compute mostly elements that do not exist.
        let is_within = block < 2 * roles.extent(axis);
        require(is_within, &knob, format_args!("a block of {block} is too large for the axis"))?;
        spatial.push((axis, block));
        threads.push(TileLevel { axis, name: ".t", extent: strand / register, step: register });
        sums.push(TileLevel { axis, name: ".v", extent: block / strand, step: strand });
        sums.push(TileLevel { axis, name: ".r", extent: register, step: 1 });
    }

    let mut reduce = Vec::new();
    for axis in reduced(&roles) {
        let (knob, whole) = (knob_of(&roles, axis), roles.extent(axis));
        let [chunk] = reader.tile::<1>(&knob)?;
        // Only the innermost reduction axis may have an incomplete chunk.
        let fits = match roles.reduce.last() {
            Some(&last) if last == axis => chunk < 2 * whole,
            _ => whole.is_multiple_of(chunk),
        };
        require(fits, &knob, format_args!("a chunk of {chunk} does not fit an axis of {whole}"))?;
        reduce.push((axis, chunk));
    }

    let order = reader.order("order", &spatial_names(&roles))?;
    let tiles = order.into_iter().filter_map(|name| spatial.iter().find(|tile| roles.name(tile.0) == name));
    let blocks = tiles.map(|&(axis, block)| {
        let extent = roles.extent(axis).div_ceil(block);
        TileLevel { axis, name: ".b", extent, step: block }
    });
    let blocks = blocks.collect();

    let packing = roles.packing();
    let is_packed = reader.one_of("weights", weight_words(&roles, &packing))? == "packed";
    let packing = packing.filter(|_| is_packed);
    let pad = reader.number_in("pad", 0..=32)?;
    let stage = |source: Operand, knob: &str| {
        let (order, vector) = (roles.reduce_first(&source), reader.number(knob)?);
        // Elements are widened once, here, and not again by each thread that reads them.
        Ok(Staged { source, dtype: DType::F32, order, extents: Vec::new(), vector, pad })
    };
    let [data, weight] = roles.sources(&packing);
    let slots = reader.number("stages")?;

    let tiling = Tiling {
        dtype,
        spatial,
        reduce,
        blocks,
        threads,
        sums,
        staged: [stage(data, "vector.data")?, stage(weight, "vector.weight")?],
        packing,
        kernel: MicroKernel::Registers { unroll: reader.number("unroll")? },
        pipeline: if slots == 1 { Pipeline::Serial } else { Pipeline::Fetched },
        slots,
        split: reader.number("split")?,
        persistent: None,
        roles,
    };
    let tiling = tiling.measured();
    check_vectors(&tiling)?;
    Ok(tiling)
}

/// Checks that vectors are aligned, and entirely in bounds or entirely out of bounds.
fn check_vectors(tiling: &Tiling) -> Result<(), LowerError> {
    let roles = &tiling.roles;
    // Returns the distance in elements between consecutive tiles or chunks along an axis.
    let step = |axis: AxisId, c: i64| {
        let is_whole = tiling.tile(axis) >= roles.extent(axis) && !roles.batch.contains(&axis);
        if is_whole { 0 } else { tiling.tile(axis) * c.unsigned_abs() as usize }
    };
    let lie_together = roles.pixels.as_ref().is_none_or(|pixels| tiling.staged[0].vector <= pixels.vector);
    require(lie_together, "vector.data", "neighbouring pixels are not adjacent in memory")?;

    for (Staged { vector, source, extents, .. }, knob) in tiling.staged.iter().zip(["vector.data", "vector.weight"]) {
        require([1, 2, 4].contains(vector), knob, "must be 1, 2 or 4")?;
        let (Some(&row), Some(index), Some(&extent)) = (source.shape.last(), source.index.last(), extents.last())
        else {
            continue;
        };
        let steps = index.terms.iter().map(|&(VarId(axis), c)| step(axis as usize, c));
        let mut places = [row, extent, index.constant.unsigned_abs() as usize].into_iter().chain(steps);
        let is_aligned = places.all(|n| n.is_multiple_of(*vector));
        require(is_aligned, knob, format_args!("rows must begin at multiples of {vector} elements"))?;
    }
    Ok(())
}
