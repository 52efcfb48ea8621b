//! Recorded workloads as training data, and training of models on them.

use std::collections::{BTreeSet, HashMap};

use anyhow::Result;
use autotune_cost_model::ranking::{describe, fill_row};
use autotune_cost_model::{CostModel, Sample, XgbModel, XgbParams, features, relative_throughputs};
use autotune_ir::Target;
use autotune_lab::pretraining;
use autotune_lab::test_bed::Recording;
use autotune_schedules::portfolio::{self, PortfolioEntry};
use autotune_schedules::{Candidate, Config, ScheduleSpace};
use autotune_workloads::Workload;
use ndarray::{Array2, Axis};
use rayon::prelude::*;

/// Inputs of a model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rows {
    /// Features of the lowered loop nest.
    LoopNests,
    /// Knob values and shapes, known before lowering.
    Knobs,
}

impl Rows {
    fn params(self) -> XgbParams {
        match self {
            Rows::LoopNests => XgbParams { rounds: 400, ..pretraining() },
            Rows::Knobs => XgbParams { rounds: 240, depth: 8, ..pretraining() },
        }
    }
}

/// Recorded workload with the model inputs and times of its schedules.
pub(crate) struct Task {
    pub(crate) family: String,
    pub(crate) space: ScheduleSpace,
    /// Fastest config of each sketch.
    pub(crate) best: Vec<Config>,
    pub(crate) configs: Vec<Config>,
    pub(crate) run_secs: Vec<Option<f64>>,
    loop_nests: Array2<f32>,
    knobs: Array2<f32>,
}

impl Task {
    pub(crate) fn of(recording: Recording, target: &Target, columns: &[String]) -> Self {
        let space = ScheduleSpace::new(&recording.workload, target);
        let best = space.sketches().iter().filter_map(|sketch| recording.best_of(sketch.name()).cloned()).collect();
        let numbers: HashMap<&str, usize> = columns.iter().map(String::as_str).zip(0..).collect();
        let (mut configs, mut run_secs, mut loop_nests, mut knobs) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for sample in recording.samples {
            let candidate = Candidate::new(&recording.workload, target, sample.config);
            let Ok(program) = candidate.lower() else { continue };
            loop_nests.extend(features::extract(&program, target));
            let mut row = vec![f32::NAN; columns.len()];
            fill_row(&mut row, &candidate, |name| numbers.get(name.to_string().as_str()).copied());
            knobs.extend(row);
            configs.push(candidate.config().clone());
            run_secs.push(sample.run_secs);
        }

        let count = configs.len();
        let matrix = |values: Vec<f32>, width: usize| {
            Array2::from_shape_fn((count, width), |(row, column)| values[row * width + column])
        };
        let (loop_nests, knobs) = (matrix(loop_nests, features::FEATURE_COUNT), matrix(knobs, columns.len()));
        Self { family: recording.family, space, best, configs, run_secs, loop_nests, knobs }
    }

    pub(crate) fn rows(&self, rows: Rows) -> &Array2<f32> {
        match rows {
            Rows::LoopNests => &self.loop_nests,
            Rows::Knobs => &self.knobs,
        }
    }

    /// Returns the analytic score of each schedule, the higher the faster.
    pub(crate) fn analysed(&self) -> Vec<f32> {
        let estimate = features::estimate_column(self.space.target());
        self.loop_nests.column(estimate).iter().map(|secs| -secs).collect()
    }

    pub(crate) fn least_secs(&self) -> f64 {
        self.run_secs.iter().flatten().copied().fold(f64::INFINITY, f64::min)
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = PortfolioEntry> + '_ {
        self.best
            .iter()
            .map(|config| PortfolioEntry { workload: self.space.workload().clone(), config: config.clone() })
    }

    /// Returns the workload with constants that may be cached: variants with and without cached
    /// constants count as one shape.
    pub(crate) fn warm(&self) -> Workload {
        self.space.workload().with_cold(false)
    }

    /// Returns the positions of the recorded configs among the schedules that a look-up miss would
    /// choose from.
    pub(crate) fn transferred<'a>(
        &self,
        known: impl Iterator<Item = &'a PortfolioEntry>,
        nearest: usize,
        tries: usize,
    ) -> Vec<usize> {
        let others = known.filter(|entry| entry.workload.with_cold(false) != self.warm());
        let offered =
            portfolio::offered(&self.space, portfolio::nearest(others, self.space.workload(), nearest), tries);
        let recorded = |candidate: &Candidate| self.configs.iter().position(|config| config == candidate.config());
        offered.iter().filter_map(recorded).collect()
    }
}

/// Returns the column names of the cheap ranking model over all recorded schedules.
pub(crate) fn draft_columns(recordings: &[Recording], target: &Target) -> Vec<String> {
    let names = recordings.par_iter().map(|recording| {
        let mut names = BTreeSet::new();
        for sample in &recording.samples {
            let candidate = Candidate::new(&recording.workload, target, sample.config.clone());
            describe(&candidate, &mut |name, _| {
                names.insert(name.to_string());
            });
        }
        names
    });
    names.reduce(BTreeSet::new, |a, b| a.into_iter().chain(b).collect()).into_iter().collect()
}

pub(crate) fn train<'a>(tasks: impl Iterator<Item = &'a Task>, rows: Rows) -> Result<XgbModel> {
    let mut samples = Vec::new();
    for (group, task) in (0..).zip(tasks) {
        let scores = relative_throughputs(&task.run_secs);
        let described = task.rows(rows).axis_iter(Axis(0)).zip(scores);
        samples.extend(described.map(|(row, score)| Sample { features: row.to_vec(), score, group }));
    }
    fitted(&samples, rows)
}

pub(crate) fn fitted(samples: &[Sample], rows: Rows) -> Result<XgbModel> {
    let mut model = XgbModel::new(rows.params());
    model.fit(samples)?;
    Ok(model)
}
