//! Models whose shapes depend on the data of a run.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use autotune_db::{EmptySource, Source};
use autotune_ir::Target;
use autotune_network::onnx::{DeclaredInput, ImportError, Model};
use autotune_network::{
    Graph, Session, SessionOptions, SessionPrecision, ShapeRange, Subject, SubjectLoadError, Tensor, Waiting,
    random_input,
};

use super::Failure;
use super::shapes::refusal;
use super::subject::{InputArgs, InputFile, LoadedNetwork, Precise, Quantised};
use super::target::check_precision;

/// A model that runs in phases, with a tensor for each input.
pub(crate) struct PhasedModel {
    pub(crate) session: Session,
    pub(crate) inputs: Vec<Tensor>,
}

/// True if an error means that a model runs in phases.
pub(crate) fn needs_phases(error: &anyhow::Error) -> bool {
    let of = |error: &ImportError| error.needs_phases();
    match error.downcast_ref::<SubjectLoadError>() {
        Some(SubjectLoadError::Import { source, .. }) => of(source),
        _ => error.downcast_ref::<ImportError>().is_some_and(of),
    }
}

impl InputArgs {
    /// Opens a model whose shapes depend on data. Inputs that are not given are random.
    pub(crate) fn phased(
        &self,
        path: &Path,
        target: &Target,
        source: Arc<dyn Source>,
        waiting: Waiting,
    ) -> Result<PhasedModel> {
        let Precise::In(precision) = self.precision else {
            let why = "not supported for a model whose shapes depend on data: choose f32 or bf16";
            return Err(Failure::Usage(format!("--precision auto: {why}")).into());
        };
        check_precision(Some(precision), target)?;
        let wrong = |source| SubjectLoadError::Import { path: path.into(), source };
        let model = Model::open(path).map_err(wrong)?;
        let (import, files) = self.given.import_options(|| Ok(model.inputs().map_err(wrong)?))?;
        let shapes = model.shapes(&import).map_err(refusal)?;

        let fixed = shapes.iter().map(|(name, shape)| (name.clone(), ShapeRange::of_shape(shape)));
        let options = SessionOptions {
            shapes: fixed.collect(),
            values: import.values,
            precision: SessionPrecision::In(precision),
            is_dequantised: self.quantised == Quantised::Float,
            target: Some(target.clone()),
            source: Some(source),
            waiting,
            most_networks: None,
            pinned: Vec::new(),
        };
        let session = Session::of_model(model, options).map_err(|error| error.located(path))?;
        let shapes: BTreeMap<String, Vec<usize>> = shapes.into_iter().collect();
        let input = |(number, input): (usize, &DeclaredInput)| tensor(input, number, &shapes, &files);
        let inputs = session.inputs().iter().enumerate().map(input).collect::<Result<_>>()?;
        Ok(PhasedModel { session, inputs })
    }

    /// Runs a model whose shapes depend on data once, and returns the networks of its phases.
    pub(super) fn of_phases(&self, subject: &Subject) -> Result<Vec<LoadedNetwork>> {
        let Subject::Model(path) = subject else { return Ok(Vec::new()) };
        let target = Target::detect("cpu", None)?;
        let PhasedModel { session, inputs } = self.phased(path, &target, Arc::new(EmptySource), Waiting::Sleep)?;
        session.run(&inputs)?;
        let loaded = |graph: &Graph| LoadedNetwork {
            graph: graph.clone(),
            given: BTreeMap::new(),
            max_error: None,
            is_phase: true,
            calls: 1,
        };
        Ok(session.phases().iter().map(|network| loaded(network.graph())).collect())
    }
}

/// Returns the tensor of an input: the given one, or a random one.
fn tensor(
    input: &DeclaredInput,
    number: usize,
    shapes: &BTreeMap<String, Vec<usize>>,
    files: &BTreeMap<String, InputFile>,
) -> Result<Tensor> {
    if let Some(file) = files.get(&input.name) {
        file.check_exact("--input")?;
        return Ok(file.tensor.clone());
    }
    let shape = shapes.get(&input.name).map_or(&[][..], Vec::as_slice);
    let mut graph = Graph::new("input");
    let id = graph.input(&input.name, input.dtype, shape)?;
    Ok(random_input(graph.node(id), number as u64)?)
}
