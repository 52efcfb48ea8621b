//! Maps and reductions as a sketch.

use std::sync::Arc;

use super::{MapReduce, is_for, knobs};
use crate::config::{KnobValues, Value};
use crate::error::LowerError;
use crate::knob_space::{Knob, KnobSpace};
use crate::lower::map_reduce;
use crate::point::Point;
use crate::sketch::{Plan, Sketch};
use crate::workload::Workload;
use autotune_ir::program::Program;
use autotune_ir::spec::{AxisId, Spec};
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
        let (spec, cpu) = (workload.spec(), target.cpu()?);
        is_for(spec).then(|| knobs::knobs(spec, cpu))
    }

    fn plan(&self, workload: &Workload, target: &Target, knobs: &dyn KnobValues) -> Result<Box<dyn Plan>, LowerError> {
        let cpu = target.cpu().ok_or_else(|| LowerError::unfit(SKETCH, workload))?;
        Ok(Box::new(MapReduce::new(workload, cpu, knobs)?))
    }

    /// Vectors go along the result where what is read is contiguous there, too, in tiles of up to two vectors; along what is reduced where
    /// only that is contiguous, for four results at a time. What is contiguous along different axes is copied in blocks of 4 x 8. As many
    /// loops are parallel as it takes to have work for every thread.
    fn default(&self, workload: &Workload, target: &Target, space: &Arc<KnobSpace>) -> Option<(f64, Point)> {
        let (spec, cpu) = (workload.spec(), target.cpu()?);
        let (vector, last) = (vector_of(spec), knobs::tiled(spec.main()).last());
        let is_scattered = !spec.main().axes[vector].reduce && !reads_along(spec, vector);
        let is_read_along = |name: &str| {
            spec.main().axes.iter().position(|axis| axis.name == name).is_some_and(|axis| reads_along(spec, axis))
        };
        let most = |axis: &str| match axis == spec.main().axes[vector].name {
            true if is_scattered => 8,
            true => 2 * cpu.lanes(),
            false if is_scattered && is_read_along(axis) => 4,
            false
                if spec.main().axes[vector].reduce && last.is_some_and(|last| spec.main().axes[last].name == axis) =>
            {
                4
            }
            false => 1,
        };
        let point = space.point_of(|knob| {
            let wanted = match (knob.name.as_str(), &knob.values[0]) {
                ("vector", _) => Value::Choice(spec.main().axes[vector].name.into()),
                ("parallel", _) => Value::Choice(parallel_loops(spec, cpu).to_string()),
                ("unroll", _) => Value::Choice("4".into()),
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

/// The axis of the result that is contiguous if operands are so along it, or nothing is reduced; else the last that vectors may run along.
fn vector_of(spec: &Spec) -> AxisId {
    let (main, vectors) = (spec.main(), knobs::vectors(spec));
    let is_of_result = |axis: &AxisId| !main.axes[*axis].reduce && uses(main.output.index.last(), *axis);
    let of_result = vectors.iter().copied().rfind(is_of_result);
    let best = of_result.filter(|&axis| reads_along(spec, axis) || !main.reduces());
    best.or(vectors.last().copied()).unwrap_or(0)
}

/// True if the last dimension of some operand goes along an axis.
fn reads_along(spec: &Spec, axis: AxisId) -> bool {
    spec.main().loads().into_iter().any(|access| uses(access.index.last(), axis))
}

fn uses(index: Option<&Affine>, axis: AxisId) -> bool {
    index.is_some_and(|index| index.uses(VarId(axis as u32)))
}

fn parallel_loops(spec: &Spec, cpu: &CpuTarget) -> usize {
    let mut tasks = 1;
    let loops = spec.main().axes.iter().filter(|axis| !axis.reduce && axis.extent > 1);
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
