//! What may be chosen.

use autotune_ir::DType;
use autotune_ir::target::GpuTarget;

use super::pair::{Between, GpuPair};
use super::{GpuFused, between_words, parts};
use crate::config::{Config, Value};
use crate::fused::SKETCH;
use crate::fused::part::PARTS;
use crate::gpu::threads;
use crate::knob_space::Knob;
use crate::workload::Workload;

/// Threads that share a row.
const ROW_THREADS: [&str; 8] = ["1", "2", "4", "8", "16", "32", "64", "128"];
/// Columns of a thread that lie together, and such runs that it has.
const REGISTERS: [usize; 4] = [1, 2, 4, 8];
const RUNS: [usize; 3] = [1, 2, 4];

/// Every knob of the sketch with its values, for one workload and target; none if it is not for them.
pub(in crate::fused) fn knobs(workload: &Workload, target: &GpuTarget) -> Option<Vec<Knob>> {
    let pair = GpuPair::of(workload).filter(|_| workload.dtype() != DType::Tf32)?;
    let mut knobs: Vec<Knob> = Vec::new();
    if let Between::Map = pair.between {
        knobs.push(Knob::choice("between", between_words(&pair)));
    }

    let second = pair.part(1);
    for row in &pair.rows {
        let tiles = threads::spatial_tiles(second.extent(row[1]), target);
        knobs.push(Knob::tile(&parts::tile_knob(&pair, row[1]), tiles));
    }
    knobs.extend(parts::has_row_threads(&pair).then(|| Knob::choice(parts::ROW_THREADS, &ROW_THREADS)));
    if let Some([_, step]) = pair.channel {
        knobs.push(Knob::tile(&parts::tile_knob(&pair, step), channels(second.extent(step))));
    }
    if let Some(column) = pair.column {
        let registers = REGISTERS.into_iter().filter(|&register| register < 2 * second.extent(column));
        knobs.push(Knob::tile(&parts::tile_knob(&pair, column), registers.map(|register| vec![register]).collect()));
    }

    for (number, prefix) in PARTS.into_iter().enumerate() {
        let roles = pair.part(number);
        for axis in parts::own_steps(&pair, number) {
            let name = format!("{prefix}.tile.{}", roles.name(axis));
            knobs.push(Knob::tile(&name, threads::chunks(roles, axis)));
        }
        let [weights, data, weight, stages] = threads::staging_knobs(roles);
        let own = if number == 0 { vec![weights, data, weight] } else { vec![weights, weight] };
        knobs.extend(own.into_iter().map(|knob| Knob { name: format!("{prefix}.{}", knob.name), ..knob }));
        knobs.extend((number == 0).then_some(stages));
    }
    knobs.extend([Knob::choice("pad", threads::PADS), Knob::choice("unroll", threads::UNROLLS)]);
    fits(workload, target, &knobs).then_some(knobs)
}

/// True if the smallest tiles keep the limits of the target: all columns of a row may be too many for the memory of a block.
fn fits(workload: &Workload, target: &GpuTarget, knobs: &[Knob]) -> bool {
    let least = |threads: &Value, between: &Value| {
        let value = |knob: &Knob| match knob.name.as_str() {
            parts::ROW_THREADS => threads.clone(),
            "between" => between.clone(),
            _ => knob.values[0].clone(),
        };
        let knobs = knobs.iter().map(|knob| (knob.name.clone(), value(knob))).collect();
        Config { sketch: SKETCH.into(), knobs }
    };
    let threads = ROW_THREADS.map(|word| Value::Choice(word.into()));
    let between = ["whole", "shared"].map(|word| Value::Choice(word.into()));
    between
        .iter()
        .any(|between| threads.iter().any(|threads| GpuFused::new(workload, target, &least(threads, between)).is_ok()))
}

/// `[of a thread, register]` values of the channels between.
fn channels(extent: usize) -> Vec<Vec<usize>> {
    let tiles = REGISTERS.into_iter().flat_map(|register| RUNS.map(|runs| vec![runs * register, register]));
    tiles.filter(|tile| tile[0] < 2 * extent).collect()
}
