//! Quantisation of a float network by measurement: statistics of its tensors and the error of each
//! layer come from runs of the compiled network on examples.

use std::collections::{BTreeMap, BTreeSet};

use autotune_graph::quantisation::{QuantisationPlan, QuantisationSites, RangeMethod, TensorScale};
use autotune_graph::{Graph, NodeId, Tensor, rewrite};

use crate::compiled::{Compiled, Workspace, output_error};
use crate::interleaved::time_interleaved;
use crate::quantile::{QUIET, quantile};

mod options;
mod statistics;

pub use options::{QuantiseError, QuantiseOptions};
use statistics::NetworkStatistics;

/// Number of timed runs of each mix of precisions.
const RUNS: usize = 15;

/// Largest number of examples on which the error of a single layer is measured.
const MOST_EXAMPLES: usize = 8;

/// Methods that are compared if none is given.
const COMPARED: [RangeMethod; 3] = [RangeMethod::MinMax, RangeMethod::Percentile, RangeMethod::SquaredError];

/// A quantised network and the measurements that led to it.
#[derive(Debug)]
pub struct QuantisedNetwork {
    /// Network with roundings, not rewritten.
    pub graph: Graph,
    /// Method of the ranges.
    pub method: RangeMethod,
    /// True if biases are changed by the mean error of rounded weights.
    pub corrects_biases: bool,
    /// Errors of the compared methods, with all layers in integers.
    pub compared: Vec<(RangeMethod, f64)>,
    /// Layers by their error, largest first.
    pub layers: Vec<LayerError>,
    /// Mixes of integers and floating point: the first layers of [`layers`](Self::layers) are
    /// floating point.
    pub mixes: Vec<PrecisionMix>,
    /// Position of the network's mix.
    pub chosen: usize,
}

/// Error that a single layer causes.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerError {
    /// Name of the node.
    pub name: String,
    /// Name of its operator.
    pub op: &'static str,
    /// Largest error of the outputs, relative to the largest element of each, if only this layer
    /// computes with integers.
    pub max_rel_error: f64,
}

/// A network with some layers in floating point.
#[derive(Clone, Debug, PartialEq)]
pub struct PrecisionMix {
    /// Number of layers in floating point.
    pub float_layers: usize,
    /// Largest error of the outputs over all examples, relative to the largest element of each.
    pub max_rel_error: f64,
    /// Share of rows of the only output whose largest element is the same; `None` for other
    /// outputs.
    pub agreement: Option<f64>,
    /// Seconds of a run: low quantile over runs interleaved with the other mixes.
    pub run_secs: f64,
}

/// Scales and biases of a quantised network.
struct Variant {
    method: RangeMethod,
    scales: Vec<TensorScale>,
    means: BTreeMap<NodeId, Vec<f64>>,
}

/// A network that ran on the examples.
struct MeasuredMix {
    graph: Graph,
    workspace: Workspace,
    max_rel_error: f64,
    agreement: Option<f64>,
}

/// Quantises a [rewritten](crate::rewrite()) float network, given examples of its inputs.
pub fn quantise(
    graph: &Graph,
    examples: &[Vec<Tensor>],
    options: &QuantiseOptions,
) -> Result<QuantisedNetwork, QuantiseError> {
    if graph.is_quantised() {
        return Err(QuantiseError::Quantised);
    }
    let sites = QuantisationSites::of(graph);
    if sites.layers().is_empty() {
        return Err(QuantiseError::NoLayers);
    }
    if examples.is_empty() {
        return Err(QuantiseError::NoExamples);
    }
    check_weights(graph, sites.layers())?;

    let statistics = NetworkStatistics::of(graph, &sites, examples, options)?;
    let quantiser = Quantiser { graph, sites, statistics, examples, options };
    let (variant, compared) = quantiser.variant()?;
    let layers = quantiser.layers(&variant)?;
    let (chosen, measured) = quantiser.mixes(&variant, &layers)?;
    let (graph, mixes) = quantiser.timed(measured, chosen)?;

    let corrects_biases = !variant.means.is_empty();
    let layers = layers.into_iter().map(|(_, layer)| layer).collect();
    Ok(QuantisedNetwork { graph, method: variant.method, corrects_biases, compared, layers, mixes, chosen })
}

/// Fails if a constant of a layer is not finite.
fn check_weights(graph: &Graph, layers: &[NodeId]) -> Result<(), QuantiseError> {
    for node in layers.iter().map(|&id| graph.node(id)) {
        for constant in node.operands.iter().filter_map(|&id| graph.constant_of(id)) {
            let tensor = constant.read().map_err(|source| node.wrong(source))?;
            let is_finite = tensor.as_f32().is_none_or(|numbers| numbers.iter().all(|number| number.is_finite()));
            if !is_finite {
                return Err(QuantiseError::Weights { node: node.name.clone() });
            }
        }
    }
    Ok(())
}

/// A float network with its statistics.
struct Quantiser<'a> {
    graph: &'a Graph,
    sites: QuantisationSites,
    statistics: NetworkStatistics,
    examples: &'a [Vec<Tensor>],
    options: &'a QuantiseOptions<'a>,
}

impl Quantiser<'_> {
    /// Chooses method and bias correction by the error with all layers in integers.
    fn variant(&self) -> Result<(Variant, Vec<(RangeMethod, f64)>), QuantiseError> {
        let methods = self.options.method.map_or(COMPARED.to_vec(), |method| vec![method]);
        let of = |method| {
            let scales = self.statistics.tensors.iter().map(|tensor| RangeMethod::scale(method, tensor)).collect();
            Variant { method, scales, means: BTreeMap::new() }
        };
        let (count, mut compared, mut best) = (methods.len() + 1, Vec::new(), None);
        let mut least = f64::INFINITY;
        for (number, method) in methods.into_iter().enumerate() {
            (self.options.progress)("comparing methods", number, count);
            let variant = of(method);
            let error = self.error(&variant, &BTreeSet::new())?;
            compared.push((method, error));
            if best.is_none() || error < least {
                (best, least) = (Some(variant), error);
            }
        }

        let best = best.unwrap_or_else(|| of(RangeMethod::MinMax));
        (self.options.progress)("comparing methods", count - 1, count);
        let corrected = Variant { means: self.statistics.means.clone(), scales: best.scales.clone(), ..best };
        let is_better = self.error(&corrected, &BTreeSet::new())? < least;
        Ok((if is_better { corrected } else { best }, compared))
    }

    /// Measures every layer alone; returns the layers by their error, largest first.
    fn layers(&self, variant: &Variant) -> Result<Vec<(NodeId, LayerError)>, QuantiseError> {
        let all = self.sites.layers();
        let mut layers = Vec::with_capacity(all.len());
        for (number, &id) in all.iter().enumerate() {
            (self.options.progress)("measuring layers", number, all.len());
            let kept = all.iter().copied().filter(|&other| other != id).collect();
            let node = self.graph.node(id);
            let error = self.measured(variant, &kept, MOST_EXAMPLES)?.max_rel_error;
            layers.push((id, LayerError { name: node.name.clone(), op: node.op.name(), max_rel_error: error }));
        }
        layers.sort_by(|(_, a), (_, b)| b.max_rel_error.total_cmp(&a.max_rel_error));
        Ok(layers)
    }

    /// Measures mixes with 0, 1, 2, 4, .. and all layers in floating point, and the smallest number
    /// with a permitted error. Returns its position.
    fn mixes(
        &self,
        variant: &Variant,
        layers: &[(NodeId, LayerError)],
    ) -> Result<(usize, BTreeMap<usize, MeasuredMix>), QuantiseError> {
        let mut measured = BTreeMap::new();
        let mut measure = |count: usize| -> Result<bool, QuantiseError> {
            let kept = layers[..count].iter().map(|&(id, _)| id).collect();
            let mix = self.measured(variant, &kept, usize::MAX)?;
            let holds = self.options.max_error.is_none_or(|most| mix.max_rel_error <= most) || count == layers.len();
            measured.insert(count, mix);
            Ok(holds)
        };

        let powers = std::iter::successors(Some(1), |count| Some(count * 2)).take_while(|&count| count < layers.len());
        let counts: Vec<usize> = [0].into_iter().chain(powers).chain([layers.len()]).collect();
        // The least number of floating-point layers is above the first bound, at most the second.
        let mut bounds = None;
        for (number, &count) in counts.iter().enumerate() {
            (self.options.progress)("measuring mixes of precisions", number, counts.len());
            if measure(count)? && bounds.is_none() {
                bounds = Some((number.checked_sub(1).map_or(count, |before| counts[before]), count));
            }
        }

        let (mut below, mut chosen) = bounds.unwrap_or((layers.len(), layers.len()));
        while below + 1 < chosen {
            let middle = below + (chosen - below) / 2;
            (self.options.progress)("searching the error bound", middle, layers.len());
            if measure(middle)? { chosen = middle } else { below = middle }
        }
        let position = measured.keys().position(|&count| count == chosen).unwrap_or(0);
        Ok((position, measured))
    }

    /// Times all mixes interleaved; returns the chosen one's graph.
    fn timed(
        &self,
        measured: BTreeMap<usize, MeasuredMix>,
        chosen: usize,
    ) -> Result<(Graph, Vec<PrecisionMix>), QuantiseError> {
        let (progress, examples) = (self.options.progress, self.examples);
        progress("timing", 0, 1);
        let (counts, mut mixes): (Vec<usize>, Vec<MeasuredMix>) = measured.into_iter().unzip();
        let mut workspaces: Vec<&mut Workspace> = mixes.iter_mut().map(|mix| &mut mix.workspace).collect();
        let secs = time_interleaved(&mut workspaces, &examples[0], RUNS, &|| false)?;
        progress("timing", 1, 1);

        let graph = mixes[chosen].graph.clone();
        let mix = |((float_layers, mix), secs): ((usize, MeasuredMix), Vec<f64>)| {
            let MeasuredMix { max_rel_error, agreement, .. } = mix;
            PrecisionMix { float_layers, max_rel_error, agreement, run_secs: quantile(secs, QUIET) }
        };
        Ok((graph, counts.into_iter().zip(mixes).zip(secs).map(mix).collect()))
    }

    fn error(&self, variant: &Variant, kept: &BTreeSet<NodeId>) -> Result<f64, QuantiseError> {
        Ok(self.measured(variant, kept, usize::MAX)?.max_rel_error)
    }

    /// Runs a network with some layers in floating point on at most `most` examples.
    fn measured(&self, variant: &Variant, kept: &BTreeSet<NodeId>, most: usize) -> Result<MeasuredMix, QuantiseError> {
        let plan = QuantisationPlan { sites: &self.sites, kept, scales: &variant.scales, means: &variant.means };
        let graph = plan.apply(self.graph)?;
        let mut workspace = Compiled::new(&rewrite(&graph)?, self.options.source, self.options.target)?.workspace()?;
        let (mut max_rel_error, mut agreement) = (0f64, None);
        for (inputs, wanted) in self.examples.iter().zip(&self.statistics.outputs).take(most) {
            let found = workspace.run_tensors(inputs)?;
            max_rel_error = max_rel_error.max(output_error(&found, wanted));
            if let Some((alike, all)) = agreeing_rows(&found, wanted) {
                let (had, of) = agreement.unwrap_or((0, 0));
                agreement = Some((had + alike, of + all));
            }
        }
        let agreement = agreement.map(|(alike, all)| alike as f64 / all as f64);
        Ok(MeasuredMix { graph, workspace, max_rel_error, agreement })
    }
}

/// Returns how many rows of the only output have their largest element at the same place, and the
/// number of rows; `None` if it is no matrix of classes.
fn agreeing_rows(found: &[Tensor], wanted: &[Tensor]) -> Option<(usize, usize)> {
    let ([found], [wanted]) = (found, wanted) else { return None };
    let &[rows, classes, ref rest @ ..] = wanted.shape() else { return None };
    if rows == 0 || classes < 2 || rest.iter().any(|&extent| extent > 1) {
        return None;
    }
    let (found, wanted) = (found.to_numbers(), wanted.to_numbers());
    let largest = |row: &[f32]| row.iter().enumerate().max_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(at, _)| at);
    let rows_of = found.chunks(classes).zip(wanted.chunks(classes));
    Some((rows_of.filter(|(found, wanted)| largest(found) == largest(wanted)).count(), rows))
}
