//! Experiment on the trials to a given relative quality: published results of AutoTVM, and this
//! tuner.

use std::ptr;
use std::sync::Arc;

use anyhow::{Context, Result};
use autotune_cost_model::{Pretrained, XgbModel, XgbParams};
use autotune_lab::replay::{DrawRecorded, ReplayTask};
use autotune_lab::{median, pretraining};
use ndarray::Array2;
use rayon::prelude::*;

use crate::data::{Measured, View, fit, measured};
use crate::page::Figure;
use crate::searches::{Method, Runs, first_at, runs, until};
use crate::split::Split;
use crate::{Arena, Bench};

/// Relative qualities to be reached: throughput over the best known.
const QUALITIES: [f64; 4] = [0.90, 0.95, 0.98, 0.99];
/// Index of the quality that the text discusses.
const NEAR: usize = 1;

/// Medians over the layers of ResNet-18, from the logs of every trial that come with "The Droplet
/// Search Algorithm for Kernel Scheduling" (Canesche et al., ACM TACO 2024;
/// <https://github.com/lac-dcc/DropletSearch>, `results/x86_AMD3700X` and `results/cuda_rtx3080`).
const PUBLISHED: [[&str; 6]; 4] = [
    ["published: Ryzen 7 3700X", "AutoTVM, trees + annealing", "", "52", "", ""],
    ["published: Ryzen 7 3700X", "AutoTVM, random", "", "63", "", ""],
    ["published: RTX 3080", "AutoTVM, trees + annealing", "225", "385", "", "556"],
    ["published: RTX 3080", "AutoTVM, random; genetic", "", "more than 625", "", ""],
];
/// Published trials to within 5 % on the CPU, for trees and for random search.
pub(crate) const ON_CPU: [f64; 2] = [52.0, 63.0];

/// Maximum number of configs of each other workload in a model's training data.
const OF_EACH: usize = 48;

/// Runs of one search method.
struct Search {
    place: &'static str,
    name: String,
    curves: Runs,
}

pub(crate) fn published(bench: &Bench) -> Result<Figure> {
    let splits = [("other workloads", Split::Shapes(OF_EACH)), ("other families", Split::Families(OF_EACH))];
    let models = splits.map(|(name, split)| Ok((name, models(bench, split)?)));
    let models = models.into_iter().collect::<Result<Vec<_>>>()?;
    let chance = Method::plain("", &bench.target, |task, _| Box::new(DrawRecorded::new(&task.drawn)));
    let learned = Method::learned("", &bench.target);

    let mut searches = Vec::new();
    for (place, arena) in [("the record", &bench.record), ("a sample", &bench.sample)] {
        let mut push = |name: String, curves: Runs| searches.push(Search { place, name, curves });
        push("trees + annealing".into(), runs(bench, arena, &learned)?);
        for (name, models) in &models {
            push(format!("the same, from a model of {name}"), runs_from(bench, arena, models)?);
            push(format!("the picks of a model of {name}"), vec![picks(arena, models)]);
        }
        push("random, of the space".into(), runs(bench, arena, &chance)?);
    }
    Ok(figure(bench, &searches))
}

/// Trains, for each searched workload, a model without that workload.
fn models(bench: &Bench, split: Split) -> Result<Vec<Arc<Pretrained>>> {
    let tasks = ReplayTask::of(&bench.test_bed, &bench.target, |_| true);
    let all = measured(&tasks);
    let folds = split.folds(&all, 0);
    let fold_of = |wanted: &ReplayTask| {
        let it = tasks.iter().position(|task| task.workload == wanted.workload)?;
        folds.iter().position(|fold| fold.held_out.iter().any(|(of, _)| ptr::eq(*of, &all[it])))
    };
    let of_tasks: Option<Vec<usize>> = bench.record.tasks.iter().map(fold_of).collect();
    let of_tasks = of_tasks.context("a workload that is searched is in no part")?;

    let train = |fold: usize| {
        if !of_tasks.contains(&fold) {
            return Ok(None);
        }
        let mut model = XgbModel::new(pretraining());
        fit(&mut model, &View::all(), &folds[fold].known)?;
        Ok(Some(Arc::new(Pretrained::of(&model, 1.0).context("nothing was learnt from the other workloads")?)))
    };
    let of_folds = (0..folds.len()).into_par_iter().map(train).collect::<Result<Vec<_>>>()?;
    Ok(of_tasks.into_iter().filter_map(|fold| of_folds[fold].clone()).collect())
}

/// Runs searches whose models continue from the given pretrained models.
fn runs_from(bench: &Bench, arena: &Arena, models: &[Arc<Pretrained>]) -> Result<Runs> {
    let pairs =
        (0..bench.seeds).flat_map(|seed| arena.tasks.iter().zip(models).map(move |(task, model)| (seed, task, model)));
    let pairs: Vec<(u64, &ReplayTask, &Arc<Pretrained>)> = pairs.collect();
    let run = |(seed, task, model): (u64, &ReplayTask, &Arc<Pretrained>)| {
        let model = XgbModel::continuing(Arc::clone(model), XgbParams::correction());
        Method::learned("", &bench.target).with_model(model).run(task, arena.trials, seed, &[])
    };
    let curves = pairs.into_par_iter().map(run).collect::<Result<Vec<_>>>()?;
    Ok(curves.chunks(arena.tasks.len()).map(<[_]>::to_vec).collect())
}

/// Computes the quality after each trial if the recorded configs are measured in the order of the
/// models' scores, without further learning.
fn picks(arena: &Arena, models: &[Arc<Pretrained>]) -> Vec<Vec<f64>> {
    let of_task = |(of, model): (&Measured, &Arc<Pretrained>)| {
        let width = of.rows.first().map_or(0, Vec::len);
        let rows = Array2::from_shape_fn((of.rows.len(), width), |(row, column)| of.rows[row][column]);
        let scores = model.predict(rows.view());
        let mut order: Vec<usize> = (0..scores.len()).collect();
        order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
        let best_so_far = order.into_iter().scan(0.0, |best: &mut f64, at| {
            *best = best.max(f64::from(of.scores[at]));
            Some(*best)
        });
        best_so_far.collect()
    };
    measured(&arena.tasks).iter().zip(models).map(of_task).collect()
}

impl Search {
    /// Returns for each run the trial after which it reaches a quality.
    fn firsts(&self, quality: f64) -> Vec<f64> {
        self.curves.iter().flatten().map(|curve| first_at(curve, quality)).collect()
    }
}

fn figure(bench: &Bench, searches: &[Search]) -> Figure {
    let head = QUALITIES.map(|quality| format!("trials until within {:.0} %", 100.0 * (1.0 - quality)));
    let mut table = vec![["in".to_string(), "search".into()].into_iter().chain(head).collect::<Vec<_>>()];
    table.extend(PUBLISHED.map(|row| row.map(String::from).to_vec()));
    let mut csv = vec![["in", "search", "workload", "quality", "median_trials"].map(String::from).to_vec()];
    for search in searches {
        let names = [search.place.to_string(), search.name.clone()];
        let cells = QUALITIES.map(|quality| until(search.firsts(quality)));
        table.push(names.clone().into_iter().chain(cells).collect());
        for (i, task) in bench.record.tasks.iter().enumerate() {
            csv.extend(QUALITIES.map(|quality| {
                let firsts = search.curves.iter().map(|of_seed| first_at(&of_seed[i], quality)).collect();
                let cells = [task.workload.to_string(), format!("{quality}"), format!("{:.1}", median(firsts))];
                names.clone().into_iter().chain(cells).collect()
            }));
        }
    }
    Figure {
        name: "published",
        title: "Trials to the same relative quality: published, and here".into(),
        text: text(searches),
        table,
        csv,
        charts: Vec::new(),
    }
}

/// Returns the text of the figure: how to read the table, and its result.
fn text(searches: &[Search]) -> String {
    format!(
        "Figures are medians over all runs (here) or over the layers of ResNet-18 (published), with the share of runs that get there \
         in parentheses. The published trials are counted in the logs of the Droplet Search paper (Canesche et al., ACM TACO 2024; \
         `results/` of [its repository](https://github.com/lac-dcc/DropletSearch)), which have every trial. The paper ran AutoTVM's \
         tuners on two machines, about a thousand trials a layer.\n\n*From a model*: the \
         trees start from a model trained like the shipped one, on {OF_EACH} configs of each of the other \
         workloads, or of those of other families, but never on the searched workload. *The picks of a model*: the recorded \
         schedules in the order in which that model ranks them, without learning on the way. The first trial of every search is the \
         default schedule of the fixed rule, whatever is known.\n\n\
         Only relative quality can be compared. Templates, spaces and machines differ, and so does the best known: of a few hundred \
         recorded schedules here, of some thousand trials there. If much of a space is near its best, few trials prove little, so \
         compare each search with chance. On that CPU chance takes {:.0} trials, {:.1} times those of the trees: a space of about a \
         thousand schedules needs no learning. On that GPU a third of the schedules do not run, and the trees take hundreds.\n\n\
         To within 5 %, in the median, trees + annealing take {} in the record and {} in a sample. The paper's own curves (its \
         figures 4 and 5) are drawn and not tabled.",
        ON_CPU[1],
        ON_CPU[1] / ON_CPU[0],
        said(searches, "the record"),
        said(searches, "a sample"),
    )
}

/// Describes the trials of trees until they are near the best, relative to the published ones and
/// to random search.
fn said(searches: &[Search], place: &str) -> String {
    let of_place = searches.iter().filter(|search| search.place == place);
    let trials: Vec<f64> = of_place.map(|search| median(search.firsts(QUALITIES[NEAR]))).collect();
    let (Some(&ours), Some(&chance)) = (trials.first(), trials.last()) else { return String::new() };
    let fewer = |than: f64| match (than / ours).is_finite() {
        true => format!("{:.1} times fewer", than / ours),
        false => "more, or nobody knows how many fewer,".into(),
    };
    let ours = if ours.is_finite() { format!("{ours:.0}") } else { "more than there were".into() };
    format!("{ours} trials ({} than the published {:.0}, {} than chance)", fewer(ON_CPU[0]), ON_CPU[0], fewer(chance))
}
