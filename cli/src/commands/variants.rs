//! Networks of a model for each of several shapes of its inputs.

use std::sync::Arc;

use anyhow::Result;
use autotune_db::Source;
use autotune_ir::Target;
use autotune_network::{Compiled, Family, FamilyError, FamilyOptions, Graph, NetworkDevice, ShapeRange};

use crate::args::{Failure, ModelOfShapes, refusal};

/// Compiles a model for every shape on the command line. Equal constants are in memory once.
pub(super) fn compiled(model: ModelOfShapes, source: &Arc<dyn Source>, target: &Target) -> Result<Vec<Arc<Compiled>>> {
    let shapes = model.every()?;
    let family = family(model, Arc::clone(source), target)?;
    shapes.iter().map(|shapes| family.network(shapes).map_err(usage)).collect()
}

/// Creates the family of a model, whose networks share constants.
pub(super) fn family<D: NetworkDevice>(
    model: ModelOfShapes,
    source: Arc<dyn Source>,
    target: &Target,
) -> Result<Arc<Family<D>>> {
    let options = FamilyOptions::of_inputs(ShapeRange::of_inputs(&model.declared()?, &model.ranges));
    let ModelOfShapes { model, import, types, .. } = model;
    let prepare = move |graph: Graph| types.of(graph);
    Ok(Family::of_model(model, import, prepare, options, source, target)?)
}

/// Converts an error of a family: a shape outside is a usage error.
pub(super) fn usage(error: FamilyError) -> anyhow::Error {
    match error {
        FamilyError::Outside { .. } => Failure::Usage(format!("--shape: {error}")).into(),
        FamilyError::Import(error) => refusal(error),
        _ => error.into(),
    }
}
