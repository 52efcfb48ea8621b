//! Sessions of parts: from ONNX Runtime's graphs, and from the contents of EPContext nodes.

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;

use autotune_db::{EmptySource, Snapshot, SnapshotWriter, Source};
use autotune_ir::Target;
use autotune_network::onnx::Model;
use autotune_network::{PinnedNetwork, Session, SessionOptions, SessionPrecision, Waiting, printable};

use crate::context::{PartContext, PartDescription};
use crate::context_node::{ContextSettings, contents};
use crate::folder::ModelFolder;
use crate::graph::{HostGraph, HostNode, WholeGraph};
use crate::trial::NeededRecords;
use crate::tune::PartTuner;
use crate::value::HostValue;

/// Schedules, precision and threads of a session's parts.
pub(crate) struct ProviderOptions {
    pub(crate) target: Target,
    pub(crate) source: PartSource,
    pub(crate) precision: SessionPrecision,
    pub(crate) waiting: Waiting,
    /// Settings of EPContext nodes, if they are to be made.
    pub(crate) context: Option<ContextSettings>,
    /// Path of the model with EPContext nodes, if it is given.
    pub(crate) context_path: Option<PathBuf>,
}

/// Source of schedules.
pub(crate) enum PartSource {
    /// A source; `None` for the user's database.
    Given(Option<Arc<dyn Source>>),
    /// A database in which parts are tuned first.
    Tuned(PartTuner),
}

/// A part that is ready to run.
pub(crate) struct PartSession {
    pub(crate) session: Session,
    /// Position of each input of the session among ONNX Runtime's.
    pub(crate) inputs: Vec<usize>,
    /// Names in the session of ONNX Runtime's outputs, in its order.
    pub(crate) outputs: Vec<String>,
    /// Contents of an EPContext node, if one is to be made.
    pub(crate) contents: Option<Vec<u8>>,
    /// Reason that the plan is not the one in the contents.
    pub(crate) warning: Option<String>,
}

impl ProviderOptions {
    /// Tunes the parts that are compiled next, if the session is to do so; returns warnings.
    pub(crate) fn tune(&self, graphs: &[&HostGraph]) -> Result<Vec<String>, String> {
        let PartSource::Tuned(tuner) = &self.source else { return Ok(Vec::new()) };
        let parts = graphs.iter().map(|graph| graph.whole()).collect::<Result<_, _>>()?;
        tuner.tune(parts, &self.target, &self.precision)
    }

    /// Returns the source of schedules; `None` for the user's database.
    pub(crate) fn source(&self) -> Result<Option<Arc<dyn Source>>, String> {
        match &self.source {
            PartSource::Given(source) => Ok(source.clone()),
            PartSource::Tuned(tuner) => tuner.source().map(Some),
        }
    }

    /// Compiles a graph that consists of nodes of this provider.
    pub(crate) fn of_graph(&self, graph: &HostGraph, source: Option<Arc<dyn Source>>) -> Result<PartSession, String> {
        let WholeGraph { model, folder, inputs, outputs } = graph.whole()?;
        let (names, precision) = ([inputs, outputs], self.precision.clone());
        if self.context.is_none() {
            return PartSession::of(self.session(folder.open(&model)?, precision, source, Vec::new())?, names);
        }

        let [model, weights] = folder.pack(&model)?;
        let opened = folder.open_bytes(&model)?;
        let options = SessionOptions { source, ..SessionOptions::default() };
        let source = options.source().map_err(|error| error.to_string())?;
        let schedules = schedules(&opened, &*source, &self.target)?;
        let pinned = self.session(opened, precision, Some(source), Vec::new())?.pinned();
        let description = PartDescription::new(names.clone(), &self.precision, pinned);
        let [model, weights, schedules] = [model, weights, schedules].map(Cow::Owned);
        let context = PartContext { description, model, weights, schedules };
        let contents = Some(context.to_bytes().map_err(|error| error.to_string())?);

        // This session runs what a later one will load, so that their results are equal.
        Ok(PartSession { contents, ..self.of_context(context, names)? })
    }

    /// Opens the graph of one EPContext node of this provider.
    pub(crate) fn of_node(&self, graph: &HostGraph, node: &HostNode) -> Result<PartSession, String> {
        let opened = || {
            let bytes = contents(graph, node, self.context_path.as_deref())?;
            let context = PartContext::parse(&bytes).map_err(|error| error.to_string())?;
            let names = of_host(graph, node, [&context.description.inputs, &context.description.outputs])?;
            let part = self.of_context(context, names)?;
            Ok(PartSession { contents: self.context.is_some().then_some(bytes), ..part })
        };
        let located = |message: String| format!("EPContext node '{}': {message}", printable(&node.name));
        opened().map(|part: PartSession| PartSession { warning: part.warning.map(located), ..part }).map_err(located)
    }

    /// Opens a part from contents. The names are those of ONNX Runtime's inputs and outputs.
    fn of_context(&self, context: PartContext<'_>, names: [Vec<String>; 2]) -> Result<PartSession, String> {
        let PartContext { description, model, weights, schedules } = context;
        let precision = description.precision().map_err(|error| error.to_string())?;
        let model = ModelFolder::unpack(&model, &weights)?;
        drop(weights);
        let source: Arc<dyn Source> = match schedules.is_empty() {
            true => Arc::new(EmptySource),
            false => Arc::new(Snapshot::from_bytes(schedules.into_owned()).map_err(|error| error.to_string())?),
        };
        let session = self.session(model, precision, Some(source), description.pinned.clone())?;

        let mismatch = description.pinned.iter().find_map(|pinned| pinned.check(&self.target).err());
        let other = || (session.pinned() != description.pinned).then(|| "its plan is not valid".to_string());
        let reason = mismatch.map(|mismatch| mismatch.to_string()).or_else(other);
        let warning = reason.map(|reason| format!("{reason}: schedules are chosen again, and may be slower"));
        Ok(PartSession { warning, ..PartSession::of(session, names)? })
    }

    fn session(
        &self,
        model: Model<'static>,
        precision: SessionPrecision,
        source: Option<Arc<dyn Source>>,
        pinned: Vec<PinnedNetwork>,
    ) -> Result<Session, String> {
        let options = SessionOptions {
            precision,
            waiting: self.waiting,
            target: Some(self.target.clone()),
            source,
            pinned,
            ..SessionOptions::default()
        };
        Session::of_model(model, options).map_err(|error| error.to_string())
    }
}

impl PartSession {
    /// Returns a part whose inputs and outputs have these names in the session, in ONNX Runtime's
    /// order. Fails unless ONNX Runtime passes all inputs and each of its outputs is computed.
    fn of(session: Session, [inputs, outputs]: [Vec<String>; 2]) -> Result<Self, String> {
        let position = |name: &str| {
            let found = inputs.iter().position(|input| input == name);
            found.ok_or_else(|| format!("ONNX Runtime passes no tensor for its input '{}'", printable(name)))
        };
        let positions = session.inputs().iter().map(|input| position(&input.name)).collect::<Result<_, _>>()?;
        let is_computed = |name: &str| session.outputs().iter().any(|output| output.name == name);
        for (number, name) in outputs.iter().enumerate() {
            if !is_computed(name) || outputs[..number].contains(name) {
                return Err(format!("it does not compute an output '{}' for ONNX Runtime", printable(name)));
            }
        }
        Ok(Self { session, inputs: positions, outputs, contents: None, warning: None })
    }
}

/// Returns a snapshot of the records that plans of a part may use; empty without any.
fn schedules(part: &Model, source: &dyn Source, target: &Target) -> Result<Vec<u8>, String> {
    let needed = NeededRecords::of(part, target);
    let mut writer = SnapshotWriter::default();
    let added = source.add_to(&mut writer, &|workload, key| needed.has(workload, key));
    added.map_err(|error| error.to_string())?;
    match writer.is_empty() {
        true => Ok(Vec::new()),
        false => writer.into_bytes().map_err(|error| error.to_string()),
    }
}

/// Returns names of a part in the order of ONNX Runtime's inputs and outputs of a node's graph,
/// from names in the order of the node.
fn of_host(graph: &HostGraph, node: &HostNode, [inputs, outputs]: [&[String]; 2]) -> Result<[Vec<String>; 2], String> {
    let [graph_inputs, graph_outputs] = graph.names()?;
    let renamed = |host: Vec<String>, values: &[Option<HostValue>], own: &[String]| {
        if values.len() != own.len() {
            return Err(format!("it has {} values, its contents {}", values.len(), own.len()));
        }
        let name = |name: String| {
            let place = values.iter().position(|value| value.as_ref().is_some_and(|value| value.name == name));
            place.map(|place| own[place].clone()).ok_or_else(|| format!("'{}' is not a value of it", printable(&name)))
        };
        host.into_iter().map(name).collect::<Result<Vec<_>, _>>()
    };
    Ok([renamed(graph_inputs, &node.inputs, inputs)?, renamed(graph_outputs, &node.outputs, outputs)?])
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use autotune_network::{Builder, Precision, Seeded, Tensor, onnx};
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    fn options() -> ProviderOptions {
        ProviderOptions {
            target: Target::detect("cpu", Some(1)).unwrap(),
            source: PartSource::Given(Some(Arc::new(EmptySource))),
            precision: SessionPrecision::In(Precision::F32),
            waiting: Waiting::Spin,
            context: None,
            context_path: None,
        }
    }

    fn numbers(shape: &[usize]) -> Tensor {
        let count = shape.iter().product::<usize>();
        Tensor::f32(shape, (0..count).map(|number| (number % 7) as f32).collect()).unwrap()
    }

    /// Returns the contents of a part with a pinned plan.
    fn context() -> PartContext<'static> {
        let net = Builder::new("layer", Seeded { seed: 1 });
        let hidden = net.input("x", &[4, 8]).matmul(net.constant("a", numbers(&[8, 8]))).relu();
        net.output("y", hidden.matmul(net.constant("b", numbers(&[8, 2]))));
        let model = onnx::write(&net.finish().unwrap()).unwrap();
        let (precision, source) =
            (SessionPrecision::In(Precision::F32), Some(Arc::new(EmptySource) as Arc<dyn Source>));
        let opened = ModelFolder::unpack(&model, &[]).unwrap();
        let pinned = options().session(opened, precision.clone(), source, Vec::new()).unwrap().pinned();
        let names = [vec!["x".to_string()], vec!["y".to_string()]];
        let description = PartDescription::new(names, &precision, pinned);
        PartContext { description, model: model.into(), weights: [][..].into(), schedules: [][..].into() }
    }

    fn again(bytes: &[u8]) -> PartContext<'_> {
        PartContext::parse(bytes).unwrap()
    }

    fn opened(options: &ProviderOptions, context: PartContext) -> Result<PartSession, String> {
        let names = [context.description.inputs.clone(), context.description.outputs.clone()];
        options.of_context(context, names)
    }

    #[test]
    fn contents_are_opened_with_their_plan() {
        let context = context();
        assert_eq!(context.description.pinned.len(), 1);
        let part = opened(&options(), again(&context.to_bytes().unwrap())).unwrap();
        assert_eq!((part.warning, part.session.pinned()), (None, context.description.pinned));
    }

    /// ONNX Runtime reads memory of outputs that were not computed.
    #[test]
    fn contents_with_other_inputs_and_outputs_are_refused() {
        let bytes = context().to_bytes().unwrap();
        let refused = |inputs: &[&str], outputs: &[&str]| {
            let names = [inputs, outputs].map(|names| names.iter().map(|name| name.to_string()).collect());
            options().of_context(again(&bytes), names).err()
        };
        assert_eq!(refused(&["other", "x"], &["y"]), None);
        assert!(refused(&["other"], &["y"]).unwrap().contains("passes no tensor for its input 'x'"));
        for outputs in [&["other"][..], &["y", "other"], &["y", "y"]] {
            assert!(refused(&["x"], outputs).unwrap().contains("does not compute an output '"), "{outputs:?}");
        }
    }

    /// Contents of a stranger have a valid checksum. They are refused, or what they compute is run.
    #[test]
    fn forged_contents_do_no_harm() {
        let (own, mut rng) = (context().to_bytes().unwrap(), ChaCha8Rng::seed_from_u64(5));
        let (mut refused, mut run) = (0, 0);
        for _ in 0..400 {
            let mut forged = again(&own);
            let at = rng.random_range(0..forged.model.len());
            forged.model.to_mut()[at] = rng.random();
            match opened(&options(), forged) {
                Err(message) => {
                    assert!(!message.contains('\n'), "{message}");
                    refused += 1;
                }
                Ok(part) => {
                    let _ = part.session.run(&[numbers(&[4, 8])]);
                    run += 1;
                }
            }
        }
        assert!(refused > 20 && run > 20, "{refused} refused, {run} run");

        let snapshot = PartContext { schedules: b"no snapshot"[..].into(), ..again(&own) };
        assert!(opened(&options(), snapshot).is_err_and(|message| message.contains("is not a snapshot")));
        let foreign = Target::Cpu(autotune_ir::CpuTarget::generic_avx2(1));
        let part = opened(&ProviderOptions { target: foreign, ..options() }, again(&own)).unwrap();
        assert!(part.warning.is_some_and(|warning| warning.contains("schedules are chosen again")));
    }
}
