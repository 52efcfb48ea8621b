//! Experiment on transfer: number of trials to a given quality, with and without records of other
//! workloads.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use autotune_charts::{BarRow, Bars, standalone};
use autotune_cost_model::{CostModel, ModelError, Sample, XgbModel, XgbParams};
use autotune_db::TuningRecord;
use autotune_lab::replay::{DrawRecorded, ReplayTask};
use autotune_lab::{geometric_mean, quantile};
use ndarray::ArrayView2;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;

use crate::curves::draw;
use crate::page::Figure;
use crate::published::ON_CPU;
use crate::searches::{Method, Runs, curve, first_at, params, runs, until};
use crate::{Arena, Bench};

/// Number of records of each known workload, as an earlier run of as many trials leaves.
const OF_EACH: usize = 64;
/// Relative qualities to be reached: throughput over the best recorded.
const QUALITIES: [f64; 2] = [0.95, 0.98];
/// Maximum number of known workloads, the nearest ones; more than the tuner learns from.
const KNOWN: usize = 24;
/// Number of parts of each family's workloads, of which one is unknown at a time.
const FOLDS: usize = 5;

/// Workloads that are unknown to the search of a workload, besides itself.
#[derive(Clone, Copy, Debug, PartialEq)]
enum HeldOut {
    /// One workload in five of each family.
    Shapes,
    /// All workloads of its family.
    Family,
}

impl HeldOut {
    fn name(self) -> &'static str {
        match self {
            Self::Shapes => "records of other shapes",
            Self::Family => "records of other families",
        }
    }

    /// Returns the workloads that are known to the search of a task, nearest first.
    fn known<'t>(self, task: &ReplayTask, all: &'t [ReplayTask]) -> Vec<&'t ReplayTask> {
        let part = |i: usize| all[..i].iter().filter(|other| other.family == all[i].family).count() % FOLDS;
        let own = all.iter().position(|other| other.workload == task.workload).map(part);
        let is_known = |&i: &usize| match self {
            Self::Shapes => Some(part(i)) != own,
            Self::Family => all[i].family != task.family,
        };
        let mut known: Vec<&ReplayTask> = (0..all.len()).filter(is_known).map(|i| &all[i]).collect();
        let distance = |of: &ReplayTask| task.workload.distance(&of.workload);
        known.sort_by(|a, b| distance(a).total_cmp(&distance(b)));
        known.truncate(KNOWN);
        known
    }
}

/// Runs of one search method.
struct Search {
    place: &'static str,
    name: &'static str,
    curves: Runs,
}

/// Names of the searches without a history. Each search with a history is compared with all of
/// them.
const WITHOUT: [&str; 3] = ["chance, of the space", "nothing known, no prior", "nothing known, the estimate"];

pub(crate) fn transfer(bench: &Bench) -> Result<Figure> {
    let all = ReplayTask::of(&bench.test_bed, &bench.target, |_| true);
    let estimate = params(&bench.target);
    let learned = |params: XgbParams| Method::learned("", &bench.target).with_model(XgbModel::new(params));
    let chance = Method::plain("", &bench.target, |task, _| Box::new(DrawRecorded::new(&task.drawn)));
    let without = [chance, learned(XgbParams { prior: None, ..estimate.clone() }), learned(estimate.clone())];

    let mut searches = Vec::new();
    let with = [HeldOut::Shapes, HeldOut::Family].map(|held_out| (held_out, Pretraining::default()));
    for (place, arena) in [("the record", &bench.unseen_record), ("a sample", &bench.unseen_sample)] {
        for (name, method) in WITHOUT.into_iter().zip(&without) {
            searches.push(Search { place, name, curves: runs(bench, arena, method)? });
        }
        for (held_out, pretraining) in &with {
            let model = Remembering { model: XgbModel::new(estimate.clone()), pretraining: pretraining.clone() };
            let method = Method::learned("", &bench.target).with_model(model);
            let curves = with_history(bench, arena, &method, *held_out, &all)?;
            searches.push(Search { place, name: held_out.name(), curves });
        }
    }
    Ok(figure(bench, &searches))
}

/// Runs every task with records of other workloads in the database.
fn with_history(bench: &Bench, arena: &Arena, method: &Method, held_out: HeldOut, all: &[ReplayTask]) -> Result<Runs> {
    let pairs = (0..bench.seeds).flat_map(|seed| arena.tasks.iter().map(move |task| (seed, task)));
    let pairs: Vec<(u64, &ReplayTask)> = pairs.collect();
    let run =
        |(seed, task): (u64, &ReplayTask)| method.run(task, arena.trials, seed, &records(&held_out.known(task, all)));
    let curves = pairs.into_par_iter().map(run).collect::<Result<Vec<_>>>()?;
    Ok(curves.chunks(arena.tasks.len()).map(<[_]>::to_vec).collect())
}

/// Draws records of each workload: the same in all runs, so that only the search differs.
fn records(sources: &[&ReplayTask]) -> Vec<TuningRecord> {
    let of_source = |source: &&ReplayTask| {
        let mut positions: Vec<usize> = (0..source.run_secs.len()).collect();
        let (drawn, _) = positions.partial_shuffle(&mut ChaCha8Rng::seed_from_u64(0), OF_EACH);
        source.records(drawn.to_vec())
    };
    sources.iter().flat_map(of_source).collect()
}

/// Pretrained models by a hash of their training samples.
type Pretraining = Arc<Mutex<HashMap<u64, XgbModel>>>;

/// Model that caches its pretraining, as many runs begin with the same history.
#[derive(Clone)]
struct Remembering {
    model: XgbModel,
    pretraining: Pretraining,
}

impl CostModel for Remembering {
    fn fit(&mut self, samples: &[Sample]) -> Result<(), ModelError> {
        self.model.fit(samples)
    }

    fn pretrain(&mut self, samples: &[Sample]) -> Result<bool, ModelError> {
        let values = samples.iter().flat_map(|sample| sample.features.iter().chain([&sample.score]));
        let bytes: Vec<u8> = values.flat_map(|value| value.to_bits().to_le_bytes()).collect();
        let hash = autotune_schedules::config::fnv1a(&bytes);
        let known = self.pretraining.lock().unwrap_or_else(PoisonError::into_inner).get(&hash).cloned();
        if let Some(known) = known {
            self.model = known;
            return Ok(true);
        }

        let has_learnt = self.model.pretrain(samples)?;
        self.pretraining.lock().unwrap_or_else(PoisonError::into_inner).insert(hash, self.model.clone());
        Ok(has_learnt)
    }

    fn is_pretrained(&self) -> bool {
        self.model.is_pretrained()
    }

    fn predict(&self, features: ArrayView2<f32>) -> Vec<f32> {
        self.model.predict(features)
    }

    fn feature_count(&self) -> Option<usize> {
        self.model.feature_count()
    }
}

impl Search {
    /// Returns for each run the trial after which it reaches a quality.
    fn firsts(&self, quality: f64) -> Vec<f64> {
        self.curves.iter().flatten().map(|curve| first_at(curve, quality)).collect()
    }

    /// Returns for each workload the trials until a quality is reached, geometric mean over the
    /// seeds. A run that does not reach it counts as one trial more than it had.
    fn trials(&self, quality: f64) -> Vec<f64> {
        let trials = |curve: &Vec<f64>| first_at(curve, quality).min(curve.len() as f64 + 1.0);
        let of_task = |task: usize| geometric_mean(self.curves.iter().map(|of_seed| trials(&of_seed[task])));
        (0..self.curves.first().map_or(0, Vec::len)).map(of_task).collect()
    }

    /// Returns for each workload the trials of another search over those of this one.
    fn fewer(&self, than: &Self, quality: f64) -> Vec<f64> {
        than.trials(quality).iter().zip(self.trials(quality)).map(|(theirs, own)| theirs / own).collect()
    }
}

/// Formats the geometric mean over the workloads, and the quartiles.
fn spread(ratios: &[f64]) -> String {
    let [low, high] = [0.25, 0.75].map(|share| quantile(ratios.to_vec(), share));
    format!("{:.1} ({low:.1}–{high:.1})", geometric_mean(ratios.iter().copied()))
}

fn percent(quality: f64) -> String {
    format!("{:.0} %", 100.0 * (1.0 - quality))
}

fn figure(bench: &Bench, searches: &[Search]) -> Figure {
    let of = |place: &str, name: &str| searches.iter().find(|search| search.place == place && search.name == name);
    let mut table = vec![vec!["in".to_string(), "search".into()]];
    table[0].extend(QUALITIES.map(|quality| format!("trials until within {}", percent(quality))));
    let against = WITHOUT.iter().flat_map(|than| QUALITIES.map(|quality| (*than, quality)));
    table[0].extend(against.clone().map(|(than, quality)| format!("times fewer than {than}: {}", percent(quality))));

    let mut csv = vec![["in", "search", "family", "workload", "quality", "mean_trials"].map(String::from).to_vec()];
    for search in searches {
        let mut row = vec![search.place.to_string(), search.name.into()];
        row.extend(QUALITIES.map(|quality| until(search.firsts(quality))));
        row.extend(against.clone().map(|(than, quality)| {
            let than = of(search.place, than).filter(|than| than.name != search.name);
            than.map_or(String::new(), |than| spread(&search.fewer(than, quality)))
        }));
        table.push(row);

        for quality in QUALITIES {
            for (task, trials) in bench.unseen_record.tasks.iter().zip(search.trials(quality)) {
                let names = [search.place, search.name, &task.family, task.workload.as_str()].map(String::from);
                csv.push(names.into_iter().chain([format!("{quality}"), format!("{trials:.2}")]).collect());
            }
        }
    }

    let mut charts = Vec::new();
    for (place, file) in [("the record", ""), ("a sample", "_sample")] {
        charts.push((file, bars(bench, place, searches)));
    }
    let drawn = searches.iter().filter(|search| search.place == "the record");
    charts.push(("_curves", draw(&drawn.map(|search| curve(search.name, &search.curves)).collect::<Vec<_>>())));
    Figure { name: "transfer", title: "Transfer".into(), text: text(bench, searches), table, csv, charts }
}

/// Draws, by family, the trials of searches without knowledge over those with a history.
fn bars(bench: &Bench, place: &str, searches: &[Search]) -> String {
    let mut families: Vec<&str> = bench.unseen_record.tasks.iter().map(|task| task.family.as_str()).collect();
    families.dedup();
    let of_place = || searches.iter().filter(|search| search.place == place);
    let nothing = of_place().find(|search| search.name == WITHOUT[1]);
    let with: Vec<&Search> = of_place().filter(|search| !WITHOUT.contains(&search.name)).collect();
    let row = |family: &&str| {
        let of_family = |search: &&Search| {
            let fewer = search.fewer(nothing?, QUALITIES[1]);
            let alike = bench.unseen_record.tasks.iter().zip(fewer).filter(|(task, _)| task.family == *family);
            Some(geometric_mean(alike.map(|(_, fewer)| fewer)))
        };
        BarRow { name: family.to_string(), values: with.iter().map(of_family).collect() }
    };
    let axis = format!("times fewer trials until within {} than where nothing is known", percent(QUALITIES[1]));
    let series = with.iter().map(|search| search.name.to_string()).collect();
    standalone(
        Bars { title: format!("Transfer, in {place}"), axis, series, rows: families.iter().map(row).collect() }.draw(),
    )
}

/// Returns the text of the figure: how to read the table.
fn text(bench: &Bench, searches: &[Search]) -> String {
    let published = |search: &Search| {
        let trials = quantile(search.firsts(QUALITIES[0]), 0.5);
        format!("{:.0} times fewer in {} with {}", ON_CPU[0] / trials, search.place, search.name)
    };
    let with = searches.iter().filter(|search| !WITHOUT.contains(&search.name));
    let published: Vec<String> = with.map(published).collect();
    format!(
        "Trials until within a few per cent of the best recorded: medians over all runs, in parentheses the share of runs that get \
         there. *Times fewer* is the ratio of trials without a history to trials with it, for each workload (geometric mean over {} \
         seeds; a run that does not get there counts one trial more than there were). The table has the geometric mean over the \
         workloads, and the quartiles in parentheses. The tuner's policy was chosen on none of the {} workloads.\n\n\
         *With records*, the database has {OF_EACH} records of each of the {KNOWN} nearest workloads, as any earlier run leaves \
         them: of all but one in five of each family (*other shapes*), or of all other families. Nothing else is known: neither the \
         shipped model nor the shipped schedules. *Nothing known* is the same search with an empty database. It starts from the \
         analytic estimate, as the tuner does, or from no prior, as the paper does (which reports 2 to 10 times). *Chance* is random \
         draws from the space.\n\n\
         As published (below), AutoTVM's trees take {:.0} trials to within {} on a CPU. Here the trials are {}.",
        bench.seeds,
        bench.unseen_record.tasks.len(),
        ON_CPU[0],
        percent(QUALITIES[0]),
        published.join(", "),
    )
}
