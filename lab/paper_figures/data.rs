//! Data on which models are evaluated: features and times of all recorded configs.

use std::collections::{BTreeMap, BTreeSet};

use autotune_cost_model::{CostModel, ModelError, Sample, XgbModel, XgbParams, features, relative_throughputs};
use autotune_lab::replay::ReplayTask;
use autotune_schedules::{Config, KnobValue};
use ndarray::Array2;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;

/// Recorded configs of a workload that can be lowered.
pub(crate) struct Measured {
    pub(crate) family: String,
    pub(crate) run_secs: Vec<Option<f64>>,
    /// Throughput over the best schedule's.
    pub(crate) scores: Vec<f32>,
    /// Features of the cost model, one row per config.
    pub(crate) rows: Vec<Vec<f32>>,
    /// Values of the knobs as numbers, one row per config.
    pub(crate) knobs: Vec<Vec<f32>>,
}

/// Lowers every config and extracts its features.
pub(crate) fn measured(tasks: &[ReplayTask]) -> Vec<Measured> {
    let vocabulary = Vocabulary::of(tasks);
    let of_task = |task: &ReplayTask| {
        let lowered = task.pool.candidates().iter().zip(&task.run_secs);
        let lowered = lowered.filter_map(|(candidate, secs)| Some((candidate, candidate.lower().ok()?, *secs)));
        let (mut rows, mut knobs, mut run_secs) = (Vec::new(), Vec::new(), Vec::new());
        for (candidate, program, secs) in lowered {
            rows.push(features::extract(&program, &task.target));
            knobs.push(vocabulary.numbers(candidate.config()));
            run_secs.push(secs);
        }
        Measured { family: task.family.clone(), scores: relative_throughputs(&run_secs), run_secs, rows, knobs }
    };
    tasks.par_iter().map(of_task).collect()
}

/// Part of a config's description that a model sees.
#[derive(Clone, Debug)]
pub(crate) enum View {
    /// Columns of the features.
    Columns(Vec<usize>),
    /// Values of the knobs, and columns of the features.
    Knobs(Vec<usize>),
}

impl View {
    /// Returns a view of all feature columns.
    pub(crate) fn all() -> Self {
        Self::Columns((0..features::FEATURE_COUNT).collect())
    }

    fn row(&self, of: &Measured, position: usize) -> Vec<f32> {
        let columns = |columns: &[usize]| columns.iter().map(|&column| of.rows[position][column]).collect::<Vec<f32>>();
        match self {
            Self::Columns(chosen) => columns(chosen),
            Self::Knobs(chosen) => [&of.knobs[position][..], &columns(chosen)].concat(),
        }
    }
}

/// Draws the positions of up to `n` configs of each workload.
pub(crate) fn drawn<'d>(from: &[&'d Measured], n: usize, seed: u64) -> Vec<(&'d Measured, Vec<usize>)> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let draw = |of: &&'d Measured| {
        let mut positions: Vec<usize> = (0..of.rows.len()).collect();
        let (drawn, _) = positions.partial_shuffle(&mut rng, n);
        (*of, drawn.to_vec())
    };
    from.iter().map(draw).collect()
}

/// Function that makes an untrained model from a seed.
pub(crate) type New<'m> = dyn Fn(u64) -> Box<dyn CostModel> + Sync + 'm;

/// Returns a function that makes gradient-boosted trees with the given parameters.
pub(crate) fn trees(params: XgbParams) -> impl Fn(u64) -> Box<dyn CostModel> + Sync {
    move |seed| Box::new(XgbModel::new(XgbParams { seed: seed as u32, ..params.clone() }))
}

/// Fits a model on the given configs of each workload.
pub(crate) fn fit(model: &mut dyn CostModel, view: &View, on: &[(&Measured, Vec<usize>)]) -> Result<(), ModelError> {
    let of_workload = |(group, (of, positions)): (u32, &(&Measured, Vec<usize>))| {
        let run_secs: Vec<Option<f64>> = positions.iter().map(|&position| of.run_secs[position]).collect();
        let scores = relative_throughputs(&run_secs);
        let sample = |(&position, score)| Sample { features: view.row(of, position), score, group };
        positions.iter().zip(scores).map(sample).collect::<Vec<Sample>>()
    };
    let samples: Vec<Sample> = (0..).zip(on).flat_map(of_workload).collect();
    model.fit(&samples)
}

/// Returns a model's scores of the given configs of a workload.
pub(crate) fn predict(model: &dyn CostModel, view: &View, of: &Measured, positions: &[usize]) -> Vec<f32> {
    let rows: Vec<Vec<f32>> = positions.iter().map(|&position| view.row(of, position)).collect();
    let width = rows.first().map_or(0, Vec::len);
    model.predict(Array2::from_shape_fn((rows.len(), width), |(row, column)| rows[row][column]).view())
}

/// Encoding of sketches and knob values as numbers, common to all sketches and workloads.
struct Vocabulary {
    /// Number of columns and sorted words of each knob.
    knobs: BTreeMap<String, (usize, Vec<String>)>,
    sketches: Vec<String>,
}

impl Vocabulary {
    fn of(tasks: &[ReplayTask]) -> Self {
        let mut knobs: BTreeMap<String, (usize, BTreeSet<String>)> = BTreeMap::new();
        let mut sketches = BTreeSet::new();
        for candidate in tasks.iter().flat_map(|task| task.pool.candidates()) {
            sketches.insert(candidate.sketch().to_string());
            for (name, value) in &candidate.config().knobs {
                let (columns, words) = knobs.entry(name.clone()).or_default();
                let (width, of_value) = match value {
                    KnobValue::Tile(sizes) => (sizes.len(), &[][..]),
                    KnobValue::Order(axes) => (axes.len(), &axes[..]),
                    KnobValue::Choice(word) => (1, std::slice::from_ref(word)),
                };
                *columns = width.max(*columns);
                words.extend(of_value.iter().cloned());
            }
        }
        let knobs = knobs.into_iter().map(|(name, (columns, words))| (name, (columns, words.into_iter().collect())));
        Self { knobs: knobs.collect(), sketches: sketches.into_iter().collect() }
    }

    /// Encodes a config: the sketch's position, then each knob. Tile sizes become logarithms;
    /// numeric words their value; other words their position in alphabetical order. Columns of
    /// knobs that the sketch lacks are NaN.
    fn numbers(&self, config: &Config) -> Vec<f32> {
        let place = |words: &[String], word: &String| words.binary_search(word).map_or(f32::NAN, |place| place as f32);
        let mut row = vec![place(&self.sketches, &config.sketch)];
        for (name, (columns, words)) in &self.knobs {
            let mut numbers: Vec<f32> = match config.knobs.get(name) {
                None => Vec::new(),
                Some(KnobValue::Tile(sizes)) => sizes.iter().map(|&size| (size as f32).log2()).collect(),
                Some(KnobValue::Order(axes)) => axes.iter().map(|axis| place(words, axis)).collect(),
                Some(KnobValue::Choice(word)) => vec![word.parse().unwrap_or_else(|_| place(words, word))],
            };
            numbers.resize(*columns, f32::NAN);
            row.extend(numbers);
        }
        row
    }
}
