//! Experiments that compare searches at equal trials: searcher, objective of the model, selection
//! of batches, and uncertainty of the model.

use std::sync::Arc;

use anyhow::Result;
use autotune::search::{Annealing, AnnealingParams, Genetic, Grid, Searcher};
use autotune::{TuneParams, Tuner};
use autotune_cost_model::{CostModel, Objective, Prior, XgbParams};
use autotune_db::{TuningDb, TuningRecord};
use autotune_ir::Target;
use autotune_lab::ensemble::{Acquisition, Ensemble};
use autotune_lab::replay::{DrawRecorded, FromRecorded, ReplayTask};
use autotune_lab::{geometric_mean, median, quantile};
use rayon::prelude::*;

use crate::curves::{Curve, draw};
use crate::page::{Figure, spread};
use crate::{Arena, Bench};

/// Number of members of an ensemble.
const MEMBERS: u32 = 5;
/// Quality from which on a run counts as near the best: share of the best recorded throughput.
const NEAR: f64 = 0.95;

/// Search method: searcher, model and number of trials.
#[derive(Clone)]
pub(crate) struct Method {
    pub(crate) name: String,
    /// Number of trials, as a multiple of the arena's.
    times: usize,
    /// True if the method is also run on the sample; false if it would equal another method there.
    in_sample: bool,
    model: Model,
    new: fn(&ReplayTask, &AnnealingParams) -> Box<dyn Searcher>,
    annealing: AnnealingParams,
}

/// Function that gives a tuner an untrained model.
type Model = Arc<dyn for<'t> Fn(Tuner<'t>) -> Tuner<'t> + Send + Sync>;

fn teaching(model: impl CostModel + Clone + Sync + 'static) -> Model {
    // Passing the closure as an argument makes the compiler infer it for tuners of any lifetime.
    fn shared(give: impl for<'t> Fn(Tuner<'t>) -> Tuner<'t> + Send + Sync + 'static) -> Model {
        Arc::new(give)
    }
    shared(move |tuner| tuner.cost_model(model.clone()))
}

impl Method {
    /// Returns annealing over a model, with the tuner's own policy.
    pub(crate) fn learned(name: &str, target: &Target) -> Self {
        Self {
            name: name.into(),
            times: 1,
            in_sample: true,
            model: teaching(Ensemble::single(params(target))),
            new: |task, params| Box::new(FromRecorded::new(Annealing::new(params.clone()), &task.pool)),
            annealing: AnnealingParams::default(),
        }
    }

    /// Returns the method with another model.
    pub(crate) fn with_model(self, model: impl CostModel + Clone + Sync + 'static) -> Self {
        Self { model: teaching(model), ..self }
    }

    /// Returns a method without a model, with twice the trials.
    pub(crate) fn plain(
        name: &str,
        target: &Target,
        new: fn(&ReplayTask, &AnnealingParams) -> Box<dyn Searcher>,
    ) -> Self {
        Self { times: 2, new, ..Self::learned(name, target) }
    }

    /// Runs a search that knows earlier records, and returns the quality after each trial.
    pub(crate) fn run(&self, task: &ReplayTask, trials: usize, seed: u64, known: &[TuningRecord]) -> Result<Vec<f64>> {
        let db = TuningDb::temporary()?;
        db.append_all(known)?;
        let trials = self.times * trials;
        let (new, annealing, of_task) = (self.new, self.annealing.clone(), task.clone());
        let model = Arc::clone(&self.model);
        let params = TuneParams { prediction: None, ..TuneParams::default() };
        let mut curve = task.search(&db, move |tuner| {
            let tuner = model(tuner.params(params));
            tuner.trials(trials).seed(seed).searcher(move |_| new(&of_task, &annealing))
        })?;
        // After the record is used up, the quality stays constant.
        curve.resize(trials, curve.last().copied().unwrap_or(0.0));
        Ok(curve)
    }
}

/// Returns the tuner's training parameters for targets without a pretrained model.
pub(crate) fn params(target: &Target) -> XgbParams {
    XgbParams { prior: Some(Prior::estimate(target)), ..XgbParams::default() }
}

/// Quality after each trial, by seed and workload.
pub(crate) type Runs = Vec<Vec<Vec<f64>>>;

/// Runs a method on every task of an arena with every seed.
pub(crate) fn runs(bench: &Bench, arena: &Arena, method: &Method) -> Result<Runs> {
    let all: Vec<(u64, &ReplayTask)> =
        (0..bench.seeds).flat_map(|seed| arena.tasks.iter().map(move |task| (seed, task))).collect();
    let curves = all.into_par_iter().map(|(seed, task)| method.run(task, arena.trials, seed, &[]));
    let curves = curves.collect::<Result<Vec<_>>>()?;
    Ok(curves.chunks(arena.tasks.len()).map(<[_]>::to_vec).collect())
}

pub(crate) fn searchers(bench: &Bench) -> Result<Figure> {
    let target = &bench.target;
    let of_space = Method::plain("random, of the space", target, |task, _| Box::new(DrawRecorded::new(&task.drawn)));
    let methods = [
        Method::learned("trees + annealing", target),
        Method { times: 2, ..Method::learned("trees + annealing, planned for twice the trials", target) },
        Method::plain("genetic", target, |task, _| Box::new(FromRecorded::new(Genetic::default(), &task.pool))),
        Method::plain("random", target, |task, _| Box::new(DrawRecorded::new(&task.pool))),
        Method { in_sample: false, ..of_space },
        Method::plain("grid", target, |task, _| Box::new(FromRecorded::new(Grid::default(), &task.pool))),
    ];
    compare(
        bench,
        "searchers",
        "Searchers",
        "The paper's first claim: trees and annealing find better schedules than the others at equal trials, and also at twice their \
         trials. *Random, of the space* draws only from the sample of the space, *random* from all there is.",
        &methods,
    )
}

pub(crate) fn objectives(bench: &Bench) -> Result<Figure> {
    let method = |name: &str, objective, prior: bool| {
        let params = params(&bench.target);
        let prior = params.prior.filter(|_| prior);
        Method::learned(name, &bench.target).with_model(Ensemble::single(XgbParams { objective, prior, ..params }))
    };
    let methods = [
        method("rank", Objective::RankPairwise, true),
        method("regression", Objective::SquaredError, true),
        method("rank, no prior", Objective::RankPairwise, false),
        method("regression, no prior", Objective::SquaredError, false),
    ];
    compare(
        bench,
        "objectives",
        "Rank against regression",
        "The trees minimise one of two losses: pairs in the wrong order, or the squared difference from the relative throughput. The paper \
         finds ranks to be better or as good. *No prior*: without the analytic estimate that the tuner's trees start from, as in the paper. \
         The prior has the scale of ranks, which the squared error has to undo first: compare regression without it.",
        &methods,
    )
}

pub(crate) fn diversity(bench: &Bench) -> Result<Figure> {
    let method = |name: &str, candidates_per_config, diversity_weight| {
        let annealing = AnnealingParams { candidates_per_config, diversity_weight, ..AnnealingParams::default() };
        Method { annealing, ..Method::learned(name, &bench.target) }
    };
    let AnnealingParams { candidates_per_config: lambda, diversity_weight: weight, .. } = AnnealingParams::default();
    let methods = [
        method(&format!("default: lambda {lambda}, weight {weight}"), lambda, weight),
        method("off: the best-scored", 1, 0.0),
        method("lambda 2, weight 0.3", 2, 0.3),
        method("lambda 4, weight 0.3", 4, 0.3),
    ];
    compare(
        bench,
        "diversity",
        "Diversity-aware selection",
        "A batch is picked from lambda times as many of the best-scored candidates, each new knob value being worth that weight in standard \
         deviations of their scores. The paper finds a small gain or none.",
        &methods,
    )
}

pub(crate) fn uncertainty(bench: &Bench) -> Result<Figure> {
    let method = |name: &str, objective, members, acquisition| {
        let params = XgbParams { objective, ..params(&bench.target) };
        Method::learned(name, &bench.target).with_model(Ensemble::new(members, params, acquisition))
    };
    let (rank, regression) = (Objective::RankPairwise, Objective::SquaredError);
    let methods = [
        method("one model", rank, 1, Acquisition::Mean),
        method("mean of the ensemble", rank, MEMBERS, Acquisition::Mean),
        method("upper confidence bound", rank, MEMBERS, Acquisition::UpperConfidence(1.0)),
        method("expected improvement", rank, MEMBERS, Acquisition::ExpectedImprovement),
        method("expected improvement, regression", regression, MEMBERS, Acquisition::ExpectedImprovement),
    ];
    compare(
        bench,
        "uncertainty",
        "Uncertainty",
        &format!(
            "{MEMBERS} models, each fitted on samples drawn with replacement: whether it pays to propose what they disagree on. The paper \
             finds that it does not."
        ),
        &methods,
    )
}

/// Compares methods in the record and in the sample, and returns the figure.
pub(crate) fn compare(
    bench: &Bench,
    name: &'static str,
    title: &str,
    text: &str,
    methods: &[Method],
) -> Result<Figure> {
    let (mut table, mut charts) = (Vec::new(), Vec::new());
    let mut csv =
        vec![["in", "method", "trials", "median", "lower_quartile", "upper_quartile"].map(String::from).to_vec()];
    let longest = bench.record.trials * methods.iter().map(|method| method.times).max().unwrap_or(1);
    let marks: Vec<usize> = (2..).map(|power| 1 << power).take_while(|&trials| trials <= longest).collect();
    let head = marks.iter().map(|trials| format!("{trials} trials"));
    let near = format!("trials until within {:.0} %", 100.0 * (1.0 - NEAR));
    table.push(["in".to_string(), String::new()].into_iter().chain(head).chain([near]).collect::<Vec<_>>());

    for (place, file, arena) in [("the record", "", &bench.record), ("a sample", "_sample", &bench.sample)] {
        let mut curves = Vec::new();
        for method in methods.iter().filter(|method| method.in_sample || file.is_empty()) {
            let runs = runs(bench, arena, method)?;
            let means = by_trial(&runs);
            let names = || [place.to_string(), method.name.clone()].into_iter();
            let cell = |trials: &usize| means.get(trials - 1).map_or(String::new(), |of_seeds| spread(of_seeds, 3));
            table.push(names().chain(marks.iter().map(cell)).chain([until_near(&runs)]).collect());
            csv.extend(means.iter().enumerate().map(|(i, of_seeds)| {
                let quartiles = [0.5, 0.25, 0.75].map(|share| format!("{:.4}", quantile(of_seeds.clone(), share)));
                names().chain([(i + 1).to_string()]).chain(quartiles).collect()
            }));
            curves.push(curve(&method.name, &runs));
        }
        charts.push((file, draw(&curves)));
    }
    Ok(Figure { name, title: title.into(), text: text.into(), table, csv, charts })
}

/// Returns the curve of a method: median and quartiles over the seeds.
pub(crate) fn curve(name: &str, runs: &Runs) -> Curve {
    let means = by_trial(runs);
    let numbered = || means.iter().enumerate();
    Curve {
        name: name.into(),
        points: numbered().map(|(i, of_seeds)| [i as f64 + 1.0, median(of_seeds.clone())]).collect(),
        spread: numbered().map(|(_, it)| [0.25, 0.75].map(|share| quantile(it.clone(), share))).collect(),
    }
}

/// Returns for each trial the geometric mean over the workloads, for each seed.
fn by_trial(runs: &Runs) -> Vec<Vec<f64>> {
    let trials = runs.iter().flatten().map(Vec::len).min().unwrap_or(0);
    let mean = |of_seed: &Vec<Vec<f64>>, trial: usize| geometric_mean(of_seed.iter().map(|curve| curve[trial]));
    (0..trials).map(|trial| runs.iter().map(|of_seed| mean(of_seed, trial)).collect()).collect()
}

/// Formats the median over all runs of the trials until near the best, and the share of runs that
/// get there.
fn until_near(runs: &Runs) -> String {
    until(runs.iter().flatten().map(|curve| first_at(curve, NEAR)).collect())
}

/// Formats the median of trials, and the share of runs for which it is finite.
pub(crate) fn until(firsts: Vec<f64>) -> String {
    let there = firsts.iter().filter(|first| first.is_finite()).count() as f64 / firsts.len() as f64;
    let middle = median(firsts);
    let trials = if middle.is_finite() { format!("{middle:.0}") } else { "more".into() };
    format!("{trials} ({:.0} % of runs)", 100.0 * there)
}

/// Returns the trial after which a run reaches a quality; infinite if it never does.
pub(crate) fn first_at(curve: &[f64], quality: f64) -> f64 {
    let at = curve.iter().position(|&reached| reached >= quality * (1.0 - 1e-9));
    at.map_or(f64::INFINITY, |at| at as f64 + 1.0)
}
