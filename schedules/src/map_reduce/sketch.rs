//! Maps and reductions as a sketch.

use std::sync::Arc;

use super::chain::Chain;
use super::{MapReduce, chain_for, knobs};
use crate::config::{KnobValues, Value};
use crate::error::LowerError;
use crate::knob_space::{Knob, KnobSpace};
use crate::lower::map_reduce;
use crate::point::Point;
use crate::sketch::{Plan, Sketch};
use crate::workload::Workload;
use autotune_ir::program::{Access, Program};
use autotune_ir::spec::AxisId;
use autotune_ir::target::{CpuTarget, Target};
use autotune_ir::{Affine, VarId};

/// Name of the sketch in configs.
pub const SKETCH: &str = "map_reduce";

/// The sketch.
pub(crate) struct MapReduceSketch;

impl Sketch for MapReduceSketch {
    fn name(&self) -> &'static str {
        SKETCH
    }

    fn knobs(&self, workload: &Workload, target: &Target) -> Option<Vec<Knob>> {
        let (chain, cpu) = (chain_for(workload.spec())?, target.cpu()?);
        Some(knobs::knobs(&chain, cpu))
    }

    fn plan(&self, workload: &Workload, target: &Target, knobs: &dyn KnobValues) -> Result<Box<dyn Plan>, LowerError> {
        let cpu = target.cpu().ok_or_else(|| LowerError::unfit(SKETCH, workload))?;
        Ok(Box::new(MapReduce::new(workload, cpu, knobs)?))
    }

    /// Vectors go along the result where what is read is contiguous there, too, in tiles of up to two vectors; along what is reduced where
    /// only that is contiguous, for four results at a time. What is contiguous along different axes is copied in blocks of 4 x 8. As many
    /// loops are parallel as it takes to have work for every thread.
    fn default(&self, workload: &Workload, target: &Target, space: &Arc<KnobSpace>) -> Option<(f64, Point)> {
        let (chain, cpu) = (Chain::of(workload.spec())?, target.cpu()?);
        let (rows, vector) = (chain.row_axes(), vector_of(&chain));
        let of_rows = rows.iter().any(|axis| axis.name == vector);
        let last = knobs::tiled(&chain).last().map(|axis| rows[axis].name);
        let is_scattered = of_rows && !reads_along(&chain, vector);
        let most = |axis: &str| match axis == vector {
            true if is_scattered => 8,
            true => 2 * cpu.lanes(),
            false if is_scattered && reads_along(&chain, axis) => 4,
            false if !of_rows && last == Some(axis) => 4,
            false => 1,
        };

        let point = space.point_of(|knob| {
            let wanted = match (knob.name.as_str(), &knob.values[0]) {
                ("vector", _) => Value::Choice(vector.into()),
                ("parallel", _) => Value::Choice(parallel_loops(&chain, cpu).to_string()),
                ("unroll", _) => Value::Choice("4".into()),
                ("width", _) => Value::Choice("1".into()),
                (name, Value::Tile(_)) => {
                    let most = name.strip_prefix("tile.").map_or(1, most);
                    let fits = |value: &&Value| matches!(value, Value::Tile(t) if t[0] <= most);
                    knob.values.iter().rfind(fits).unwrap_or(&knob.values[0]).clone()
                }
                (_, first) => first.clone(),
            };
            Some(knob.values.iter().position(|value| *value == wanted).unwrap_or(0))
        })?;

        let least = || space.point(|_| 0);
        let is_valid = MapReduce::new(workload, cpu, &point).is_ok();
        Some((0.0, if is_valid { point } else { least() }))
    }
}

/// The row along which the result is contiguous if operands are so along it, or nothing is combined; else the axis along which most
/// accesses are.
fn vector_of(chain: &Chain) -> &'static str {
    let vectors = knobs::vectors(chain);
    let is_of_result = |name: &&'static str| {
        let axis = chain.row_axes().iter().position(|axis| axis.name == *name);
        axis.is_some_and(|axis| uses(chain.last().output.index.last(), axis))
    };
    let of_result = vectors.iter().copied().rfind(is_of_result);
    let best = of_result.filter(|&name| reads_along(chain, name) || !chain.reduces());
    best.unwrap_or_else(|| knobs::most_contiguous(chain))
}

/// True if the last dimension of some operand goes along an axis.
fn reads_along(chain: &Chain, name: &str) -> bool {
    chain.passes().iter().any(|pass| {
        let axis = pass.axes.iter().position(|axis| axis.name == name);
        let is_read_along = |axis| {
            let reads = |access: &Access| chain.is_at_hand(access) && uses(access.index.last(), axis);
            pass.loads().into_iter().any(reads)
        };
        axis.is_some_and(is_read_along)
    })
}

fn uses(index: Option<&Affine>, axis: AxisId) -> bool {
    index.is_some_and(|index| index.uses(VarId(axis as u32)))
}

pub(super) fn parallel_loops(chain: &Chain, cpu: &CpuTarget) -> usize {
    let mut tasks = 1;
    let loops = chain.row_axes().iter().filter(|axis| axis.extent > 1);
    let enough = loops.map(|axis| axis.extent).position(|extent| {
        tasks *= extent;
        tasks >= 4 * cpu.threads
    });
    enough.map_or(1, |at| at + 1).min(if cpu.threads > 1 { 3 } else { 1 })
}

impl Plan for MapReduce {
    fn lower(&self) -> Program {
        map_reduce::lower(self)
    }
}
