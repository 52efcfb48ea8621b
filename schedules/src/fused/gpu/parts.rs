//! Translation of this sketch's knobs to those of the `tiled` sketch, for each contraction.

use super::pair::GpuPair;
use crate::config::{Config, KnobValue, KnobValues};
use crate::contraction::AxisId;
use crate::direct::reader::KnobReader;
use crate::error::LowerError;
use crate::fused::part::PARTS;
use crate::gpu::AxisRoles;

/// Name of the knob for the number of threads that share a row.
pub(super) const ROW_THREADS: &str = "threads.row";

/// Returns the values of the `tiled` sketch's knobs for contraction `number`. `written_out` is the
/// number of elements per copy of the intermediate tensor, if that is in global memory.
pub(super) fn values(
    pair: &GpuPair,
    number: usize,
    written_out: Option<usize>,
    knobs: &dyn KnobValues,
) -> Result<Config, LowerError> {
    let (roles, reader, prefix) = (pair.part(number), KnobReader(knobs), PARTS[number]);
    let mut all = Config { sketch: knobs.sketch().into(), knobs: Default::default() };
    let mut set = |name: &str, value: KnobValue| {
        all.knobs.insert(name.into(), value);
    };
    let name = |axis: AxisId| format!("tile.{}", roles.name(axis));

    for row in &pair.rows {
        let tile = reader.tile::<3>(&tile_knob(pair, row[1]))?;
        set(&name(row[number]), KnobValue::Tile(tile.to_vec()));
    }
    // Both contractions use the same number of threads along columns.
    let threads = if has_row_threads(pair) { reader.number(ROW_THREADS)? } else { 1 };
    if let Some(channel) = pair.channel {
        let [each, register] = reader.tile::<2>(&tile_knob(pair, channel[1]))?;
        if number == 0 {
            set(&name(channel[0]), KnobValue::Tile(vec![each * threads, register * threads, register]));
        }
    }
    if let Some(column) = pair.column.filter(|_| number == 1) {
        let [register] = reader.tile::<1>(&tile_knob(pair, column))?;
        let strand = register * threads;
        let runs = if written_out.is_some() { 1 } else { roles.extent(column).div_ceil(strand) };
        set(&name(column), KnobValue::Tile(vec![runs * strand, strand, register]));
    }
    for axis in steps(roles) {
        let tile = reader.tile::<1>(&format!("{prefix}.{}", name(axis)))?;
        set(&name(axis), KnobValue::Tile(tile.to_vec()));
    }

    let word = |word: &str| KnobValue::Choice(word.into());
    set("order", KnobValue::Order(roles.spatial.iter().map(|&axis| roles.name(axis).to_string()).collect()));
    for knob in ["weights", "vector.weight"] {
        set(knob, word(reader.choice(&format!("{prefix}.{knob}"))?));
    }
    match number {
        0 => set("vector.data", word(reader.choice("first.vector.data")?)),
        _ => set("vector.data", word(&written_out.unwrap_or(1).to_string())),
    }
    // Data that is in shared memory already needs no copy pipeline.
    let is_copied = number == 0 || written_out.is_some();
    set("stages", word(if is_copied { reader.choice("stages")? } else { "1" }));
    for knob in ["pad", "unroll"] {
        set(knob, word(reader.choice(knob)?));
    }
    set("split", word("1"));
    Ok(all)
}

/// Yields the reduction axes that are split into chunks.
pub(super) fn steps(roles: &AxisRoles) -> impl Iterator<Item = AxisId> {
    roles.reduce.iter().copied().filter(|&axis| roles.extent(axis) > 1)
}

/// True if neighbouring threads of a block may share a row.
pub(super) fn has_row_threads(pair: &GpuPair) -> bool {
    pair.channel.is_some() && pair.column.is_some()
}

/// Returns the name of the knob for the tile of an axis of the second contraction.
pub(super) fn tile_knob(pair: &GpuPair, axis: AxisId) -> String {
    format!("tile.{}", pair.part(1).name(axis))
}

/// Returns an error with the prefixed name that the knob has in this sketch.
pub(super) fn named(error: LowerError, number: usize, knobs: &dyn KnobValues) -> LowerError {
    match error {
        LowerError::Knob { name, reason } if name.contains('.') && knobs.value(&name).is_none() => {
            LowerError::Knob { name: format!("{}.{name}", PARTS[number]), reason }
        }
        other => other,
    }
}
