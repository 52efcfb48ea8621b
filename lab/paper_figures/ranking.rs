//! Experiment on how well models rank schedules that they were not trained on.

use anyhow::Result;
use autotune_cost_model::metrics::{pairwise_accuracy, top_k_recall};
use autotune_cost_model::{Objective, XgbParams};
use autotune_lab::replay::ReplayTask;
use rayon::prelude::*;

use crate::Bench;
use crate::data::{Measured, New, View, fit, measured, predict, trees};
use crate::page::{Figure, spread};
use crate::searches::params;
use crate::split::{Fold, Split};

/// Number k of the top-k recall.
const RECALL: usize = 10;

/// Number of configs of each other workload that a model learns from.
const OF_OTHERS: usize = 48;

/// Evaluation of the scores of one workload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Judged {
    pub(crate) pairwise: f64,
    recall: f64,
    best_secs: f64,
    /// Best times among the 1 and the 5 configs with the highest scores.
    top_secs: [f64; 2],
}

/// Evaluation over all workloads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quality {
    pub(crate) pairwise: f64,
    recall: f64,
    /// Top-1 and top-5 scores as TenSet defines them: sum of the best times over the sum of the
    /// picked times.
    top: [f64; 2],
    /// Means over the workloads of the ratio of best to picked time, for top 1 and top 5.
    pub(crate) mean_top: [f64; 2],
}

pub(crate) fn ranking(bench: &Bench) -> Result<Figure> {
    let all = measured(&ReplayTask::of(&bench.test_bed, &bench.target, |_| true));
    let rank = params(&bench.target);
    let regression = XgbParams { objective: Objective::SquaredError, ..rank.clone() };
    // The estimate alone does not learn, so that it is not fitted.
    let models: [(&str, &New<'_>, bool); 3] = [
        ("analytic estimate alone", &trees(rank.clone()), false),
        ("trees, rank", &trees(rank), true),
        ("trees, regression", &trees(regression), true),
    ];
    let splits = [Split::Own(64), Split::Own(192), Split::Shapes(OF_OTHERS), Split::Families(OF_OTHERS)];

    let mut table = vec![head()];
    for split in splits {
        for (name, new, fits) in models {
            let of_seeds = over_seeds(bench.seeds, &all, split, &View::all(), new, fits)?;
            table.push([split.name(), name.to_string()].into_iter().chain(cells(&of_seeds)).collect());
        }
    }
    Ok(Figure {
        name: "ranking",
        title: "Ranking quality".into(),
        text: format!(
            "The table is of all {} workloads. *Top-k score* is the sum over the workloads of the best time recorded, over the sum \
             of the best time among the k that are predicted to be the fastest, as in TenSet and TLP. *Mean top-k* is the mean of \
             the ratios. {OF_OTHERS} configs of each other workload are known. Judged schedules are never of a workload that was \
             learned from, unless the row says so.\n\n\
             Published, for programs not seen before and far larger data sets: TLP top-1/top-5 score 0.919/0.971, TenSet's trees \
             0.829/0.905 at a pairwise accuracy of 0.846; within a task, 256 samples, 0.92. All start from the analytic estimate, \
             whose scale is that of ranks: the squared error has to undo it first.",
            all.len()
        ),
        table,
        csv: Vec::new(),
        charts: Vec::new(),
    })
}

/// Returns the column names of a table of [`cells`].
fn head() -> Vec<String> {
    let head = ["learnt from", "model", "pairwise accuracy", "top-1 score", "top-5 score", "mean top-1", "mean top-5"];
    head.map(String::from).into_iter().chain([format!("recall of the best {RECALL}")]).collect()
}

/// Formats the qualities of a model with their quartiles over the seeds.
fn cells(of_seeds: &[Quality]) -> [String; 6] {
    let values: [fn(&Quality) -> f64; 6] =
        [|it| it.pairwise, |it| it.top[0], |it| it.top[1], |it| it.mean_top[0], |it| it.mean_top[1], |it| it.recall];
    values.map(|value| spread(&of_seeds.iter().map(value).collect::<Vec<_>>(), 3))
}

/// Evaluates a model with a view for each seed. A model that does not learn is not fitted.
pub(crate) fn over_seeds(
    seeds: u64,
    all: &[Measured],
    split: Split,
    view: &View,
    new: &New<'_>,
    fits: bool,
) -> Result<Vec<Quality>> {
    let judge_fold = |fold: &Fold<'_>, seed: u64| -> Result<Vec<Judged>> {
        if fold.held_out.is_empty() {
            return Ok(Vec::new());
        }
        let mut model = new(seed);
        if fits {
            fit(&mut *model, view, &fold.known)?;
        }
        let judged = fold
            .held_out
            .iter()
            .filter_map(|(of, positions)| judge(of, positions, &predict(&*model, view, of, positions)));
        Ok(judged.collect())
    };

    let of_seed = |seed: u64| {
        let folds = split.folds(all, seed);
        let judged = folds.par_iter().map(|fold| judge_fold(fold, seed)).collect::<Result<Vec<_>>>()?;
        Ok(Quality::of(&judged.concat()))
    };
    (0..seeds).map(of_seed).collect()
}

/// Evaluates the scores of the given configs of a workload; `None` if none ran, or all times are
/// equal.
fn judge(of: &Measured, positions: &[usize], predicted: &[f32]) -> Option<Judged> {
    let actual: Vec<f32> = positions.iter().map(|&position| of.scores[position]).collect();
    let secs = |at: usize| of.run_secs[positions[at]].unwrap_or(f64::INFINITY);
    let best_secs = (0..positions.len()).map(secs).fold(f64::INFINITY, f64::min);
    let worst_secs = (0..positions.len()).map(secs).filter(|secs| secs.is_finite()).fold(0.0, f64::max);
    let mut order: Vec<usize> = (0..positions.len()).collect();
    order.sort_by(|&a, &b| predicted[b].total_cmp(&predicted[a]));
    // A failing pick counts as the slowest config.
    let top = |k: usize| order.iter().take(k).map(|&at| secs(at)).fold(f64::INFINITY, f64::min).min(worst_secs);
    best_secs.is_finite().then_some(())?;
    Some(Judged {
        pairwise: pairwise_accuracy(predicted, &actual)?,
        recall: top_k_recall(predicted, &actual, RECALL)?,
        best_secs,
        top_secs: [1, 5].map(top),
    })
}

impl Quality {
    fn of(judged: &[Judged]) -> Self {
        let sum = |value: &dyn Fn(&Judged) -> f64| judged.iter().map(value).sum::<f64>();
        let mean = |value: &dyn Fn(&Judged) -> f64| sum(value) / judged.len() as f64;
        Self {
            pairwise: mean(&|it| it.pairwise),
            recall: mean(&|it| it.recall),
            top: [0, 1].map(|k| sum(&|it| it.best_secs) / sum(&|it| it.top_secs[k])),
            mean_top: [0, 1].map(|k| mean(&|it| it.best_secs / it.top_secs[k])),
        }
    }
}
