//! Knobs of two fused contractions on GPUs.

use autotune_ir::target::GpuTarget;
use autotune_workloads::Workload;

use super::pair::{GpuPair, PairMiddle};
use super::{GpuFused, intermediate_words, parts};
use crate::config::Config;
use crate::fused::SKETCH;
use crate::fused::part::PARTS;
use crate::gpu::threads;
use crate::knob_space::Knob;

/// Numbers of threads that share a row.
const ROW_THREADS: [&str; 8] = ["1", "2", "4", "8", "16", "32", "64", "128"];
/// Contiguous columns of a thread.
const REGISTERS: [usize; 4] = [1, 2, 4, 8];
/// Numbers of such runs of columns per thread.
const RUNS: [usize; 3] = [1, 2, 4];

/// Returns all knobs with their values, for one workload and target; `None` if the sketch does not
/// apply to them.
pub(in crate::fused) fn knobs(workload: &Workload, target: &GpuTarget) -> Option<Vec<Knob>> {
    let pair = GpuPair::of(workload)?;
    let mut knobs: Vec<Knob> = Vec::new();
    if let PairMiddle::Map = pair.between {
        knobs.push(Knob::choice("between", intermediate_words(&pair)));
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
        for axis in parts::steps(roles) {
            let name = format!("{prefix}.tile.{}", roles.name(axis));
            knobs.push(Knob::tile(&name, threads::chunks(roles, axis)));
        }
        let [weights, data, weight, stages] = threads::staging_knobs(roles);
        let own = if number == 0 { vec![weights, data, weight] } else { vec![weights, weight] };
        knobs.extend(own.into_iter().map(|knob| Knob { name: format!("{prefix}.{}", knob.name), ..knob }));
        knobs.extend((number == 0).then_some(stages));
    }
    knobs.extend([Knob::choice("pad", threads::PADS), Knob::choice("unroll", threads::UNROLLS)]);
    smallest(workload, target, &knobs).map(|_| knobs)
}

/// Returns a config of small tiles within the limits of the target. `None` if there is none: all
/// columns of a row may need more memory than a block has.
pub(in crate::fused) fn smallest(workload: &Workload, target: &GpuTarget, knobs: &[Knob]) -> Option<Config> {
    // All knobs have their least value, except those that divide the columns among threads and
    // loops.
    let shares = |knob: &Knob| {
        knob.name == "between"
            || knob.name == parts::ROW_THREADS
            || knob.name.starts_with(&format!("{}.tile", PARTS[1]))
    };
    let count: usize = knobs.iter().filter(|knob| shares(knob)).map(|knob| knob.values.len()).product();
    let small = |mut number: usize| {
        let value = |knob: &Knob| {
            let values = if shares(knob) { &knob.values[..] } else { &knob.values[..1] };
            let position = number % values.len();
            number /= values.len();
            (knob.name.clone(), values[position].clone())
        };
        Config { sketch: SKETCH.into(), knobs: knobs.iter().map(value).collect() }
    };
    (0..count).rev().map(small).find(|config| GpuFused::new(workload, target, config).is_ok())
}

/// Returns the values `[columns of a thread, contiguous columns]` of the knob for intermediate
/// channels.
fn channels(extent: usize) -> Vec<Vec<usize>> {
    let tiles = REGISTERS.into_iter().flat_map(|register| RUNS.map(|runs| vec![runs * register, register]));
    tiles.filter(|tile| tile[0] < 2 * extent).collect()
}
