//! Makes what ships for schedules that are chosen without measuring: a model and a portfolio, from a recorded test bed.
//!
//! `cargo run --release -p autotune-examples --example pretrain -- TEST_BED ISA`
//!
//! Writes `cost_model/pretrained/ISA.trees` and `schedules/portfolio/ISA.jsonl` of this repository, and prints how well such a model ranks
//! families, and shapes, that it was not trained on, and what is chosen of schedules that are carried over from other workloads.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use autotune::PredictParams;
use autotune_cost_model::metrics::pairwise_accuracy;
use autotune_cost_model::{CostModel, Pretrained, Sample, XgbModel, features, relative_throughputs};
use autotune_examples::pretraining;
use autotune_examples::test_bed::{Recording, TestBed};
use autotune_ir::Target;
use autotune_schedules::portfolio::{self, Entry};
use autotune_schedules::{Candidate, Config, Portfolio, ScheduleSpace, Workload};
use ndarray::Array2;
use rayon::prelude::*;

/// Entries of the portfolio, at most, and the least that one must lower the mean logarithm of what the others leave.
const ENTRIES: usize = 48;
const LEAST_GAIN: f64 = 2e-4;
/// Parts that workloads are held out in.
const FOLDS: usize = 5;
/// Workloads whose schedules are carried over, and tries for each schedule: those of a miss, and those of a search.
const NEAREST: [usize; 6] = [0, 1, 2, 4, 8, usize::MAX];
const TRIES: [usize; 2] = [PredictParams::QUICK.tries, PredictParams::THOROUGH.tries];

fn main() -> Result<()> {
    let argument = |i: usize| std::env::args().nth(i);
    let test_bed = TestBed::read(argument(1).context("which test bed?")?)?;
    let isa = argument(2).context("which family of instruction sets: avx512, avx2?")?;
    let key = &test_bed.header.target;
    let target = Target::of_key(key).with_context(|| format!("'{key}' is not the key of a target"))?;
    let tasks: Vec<Task> = test_bed.tasks().into_par_iter().map(|task| Task::of(task, &target)).collect();

    let expected_loss = judge(&tasks)?;
    let model = train(tasks.iter())?;
    let pretrained = Pretrained::of(&model, expected_loss as f32).context("the trees are too large to be written")?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    fs::write(root.join(format!("cost_model/pretrained/{isa}.trees")), pretrained.to_bytes())?;

    let portfolio = cover(&tasks);
    fs::write(root.join(format!("schedules/portfolio/{isa}.jsonl")), portfolio.to_text()?)?;
    Ok(())
}

/// A recorded workload and the features of its schedules.
struct Task {
    family: String,
    space: ScheduleSpace,
    /// The fastest config of each sketch.
    best: Vec<Config>,
    configs: Vec<Config>,
    run_secs: Vec<Option<f64>>,
    rows: Vec<Vec<f32>>,
}

impl Task {
    fn of(recording: Recording, target: &Target) -> Self {
        let space = ScheduleSpace::new(&recording.workload, target);
        let best = space.sketches().iter().filter_map(|sketch| recording.best_of(sketch.name()).cloned()).collect();
        let (mut configs, mut run_secs, mut rows) = (Vec::new(), Vec::new(), Vec::new());
        for sample in recording.samples {
            let candidate = Candidate::new(&recording.workload, target, sample.config);
            let Ok(program) = candidate.lower() else { continue };
            rows.push(features::extract(&program, target));
            configs.push(candidate.config().clone());
            run_secs.push(sample.run_secs);
        }
        Self { family: recording.family, space, best, configs, run_secs, rows }
    }

    fn least_secs(&self) -> f64 {
        self.run_secs.iter().flatten().copied().fold(f64::INFINITY, f64::min)
    }

    fn entries(&self) -> impl Iterator<Item = Entry> + '_ {
        self.best.iter().map(|config| Entry { workload: self.space.workload().clone(), config: config.clone() })
    }

    /// What was recorded of what is offered on a miss, by position.
    fn carried<'a>(&self, known: impl Iterator<Item = &'a Entry>, nearest: usize, tries: usize) -> Vec<usize> {
        let others = known.filter(|entry| entry.workload.with_cold(false) != self.warm());
        let offered =
            portfolio::offered(&self.space, portfolio::nearest(others, self.space.workload(), nearest), tries);
        let recorded = |candidate: &Candidate| self.configs.iter().position(|config| config == candidate.config());
        offered.iter().filter_map(recorded).collect()
    }

    /// The logarithm of how many times the best recorded time the first of [`Task::carried`] takes, as ranked by a model and by the analysis.
    fn losses(&self, model: &XgbModel, known: &[Entry], nearest: usize, tries: usize) -> Option<[f64; 2]> {
        let carried = self.carried(known.iter(), nearest, tries);
        let estimate = features::estimate_column(self.space.target());
        let predicted = model.predict(self.matrix().view());
        let analysed: Vec<f32> = self.rows.iter().map(|row| -row[estimate]).collect();

        let loss = |scores: &[f32]| {
            let best = carried.iter().copied().max_by(|&a, &b| scores[a].total_cmp(&scores[b]))?;
            Some((self.run_secs[best]? / self.least_secs()).ln())
        };
        Some([loss(&predicted)?, loss(&analysed)?])
    }

    /// Its workload, but with constants that may be in the caches: what is told apart where shapes are held out.
    fn warm(&self) -> Workload {
        self.space.workload().with_cold(false)
    }

    fn matrix(&self) -> Array2<f32> {
        Array2::from_shape_fn((self.rows.len(), features::FEATURE_COUNT), |(row, column)| self.rows[row][column])
    }
}

fn train<'a>(tasks: impl Iterator<Item = &'a Task>) -> Result<XgbModel> {
    let mut samples = Vec::new();
    for (group, task) in (0..).zip(tasks) {
        let scores = relative_throughputs(&task.run_secs);
        samples.extend(task.rows.iter().zip(scores).map(|(row, score)| Sample { features: row.clone(), score, group }));
    }
    let mut model = XgbModel::new(pretraining());
    model.fit(&samples)?;
    Ok(model)
}

/// How models rank what they were not trained on: every family in turn, and every workload in one of some parts. Returns how many times
/// the best recorded time the first pick takes, geometric mean over the parts.
fn judge(tasks: &[Task]) -> Result<f64> {
    let mut families: Vec<&str> = tasks.iter().map(|task| task.family.as_str()).collect();
    families.sort();
    families.dedup();
    let of_family = |family: &&str| Split {
        name: format!("family {family}"),
        held_out: tasks.iter().map(|task| task.family == *family).collect(),
    };
    let mut shapes: Vec<Workload> = Vec::new();
    let mut shape_of = |task: &Task| {
        let met = shapes.iter().position(|shape| *shape == task.warm());
        met.unwrap_or_else(|| {
            shapes.push(task.warm());
            shapes.len() - 1
        })
    };
    let shape: Vec<usize> = tasks.iter().map(&mut shape_of).collect();
    let of_fold = |fold| Split {
        name: format!("shapes {fold}"),
        held_out: shape.iter().map(|shape| shape % FOLDS == fold).collect(),
    };
    let splits: Vec<Split> = families.iter().map(of_family).chain((0..FOLDS).map(of_fold)).collect();
    let models: Vec<XgbModel> =
        splits.par_iter().map(|split| train(split.part(tasks, false))).collect::<Result<_>>()?;
    let judged: Vec<Judged> = splits.iter().zip(&models).map(|(split, model)| split.judge(tasks, model)).collect();

    println!("| held out | workloads | pairs in order | the best of its first 1, 5 over the best |\n|---|---|---|---|");
    for (Split { name, .. }, Judged { count, accuracy, first, fifth }) in splits.iter().zip(&judged) {
        println!("| {name} | {count} | {accuracy:.3} | {:.3}, {:.3} |", first.exp(), fifth.exp());
    }
    let folds = &judged[families.len()..];
    judge_carried(tasks, &splits[families.len()..], &models[families.len()..]);
    let first: f64 = folds.iter().map(|judged| judged.count * judged.first).sum();
    Ok((first / tasks.len() as f64).exp())
}

/// What is chosen, of what is carried over from the nearest workloads, by models that were trained without a task, and by the analysis; and
/// of a miss, by family.
fn judge_carried(tasks: &[Task], splits: &[Split], models: &[XgbModel]) {
    let known: Vec<Entry> = tasks.iter().flat_map(Task::entries).collect();
    let losses = |nearest: usize, tries: usize| -> Vec<Option<[f64; 2]>> {
        let of_task = |i: usize| {
            let fold = splits.iter().position(|split| split.held_out[i])?;
            tasks[i].losses(&models[fold], &known, nearest, tries)
        };
        (0..tasks.len()).into_par_iter().map(of_task).collect()
    };

    println!(
        "\n| tries | carried over, and the default | workloads | ranked by the model | by the analysis |\n|---|---|---|---|---|"
    );
    for (tries, nearest) in TRIES.into_iter().flat_map(|tries| NEAREST.map(|nearest| (tries, nearest))) {
        let losses: Vec<[f64; 2]> = losses(nearest, tries).into_iter().flatten().collect();
        let from = if nearest == usize::MAX { "all".into() } else { nearest.to_string() };
        let [model, analysis] = mean_ratios(&losses);
        println!("| {tries} | {from} | {} | {model:.3} | {analysis:.3} |", losses.len());
    }

    // The rule's schedule was recorded of some only, so its mean is of fewer.
    let PredictParams { nearest, tries, .. } = PredictParams::QUICK;
    let mut of_families: BTreeMap<&str, [Vec<[f64; 2]>; 2]> = BTreeMap::new();
    for (by, nearest) in [0, nearest].into_iter().enumerate() {
        for (task, losses) in tasks.iter().zip(losses(nearest, tries)) {
            of_families.entry(&task.family).or_default()[by].extend(losses);
        }
    }
    println!("\n| family | workloads | the fixed rule's | workloads | a miss |\n|---|---|---|---|---|");
    for (family, [rule, miss]) in &of_families {
        let cells = [rule, miss].map(|losses| match losses.is_empty() {
            true => "0 | ".to_string(),
            false => format!("{} | {:.3}", losses.len(), mean_ratios(losses)[0]),
        });
        println!("| {family} | {} |", cells.join(" | "));
    }
}

/// Geometric means of ratios that are given by their logarithms.
fn mean_ratios(losses: &[[f64; 2]]) -> [f64; 2] {
    [0, 1].map(|by| (losses.iter().map(|of| of[by]).sum::<f64>() / losses.len() as f64).exp())
}

/// Which tasks are held out.
struct Split {
    name: String,
    held_out: Vec<bool>,
}

/// Means over the tasks that were held out; of the ratios, of their logarithms.
struct Judged {
    count: f64,
    accuracy: f64,
    first: f64,
    fifth: f64,
}

impl Split {
    fn part<'a>(&'a self, tasks: &'a [Task], is_held_out: bool) -> impl Iterator<Item = &'a Task> {
        tasks.iter().zip(&self.held_out).filter(move |(_, out)| **out == is_held_out).map(|(task, _)| task)
    }

    fn judge(&self, tasks: &[Task], model: &XgbModel) -> Judged {
        let mut sums = Judged { count: 0.0, accuracy: 0.0, first: 0.0, fifth: 0.0 };
        for task in self.part(tasks, true) {
            let predicted = model.predict(task.matrix().view());
            let actual = relative_throughputs(&task.run_secs);
            let mut order: Vec<usize> = (0..predicted.len()).collect();
            order.sort_by(|&a, &b| predicted[b].total_cmp(&predicted[a]));

            let best_of = |n: usize| order.iter().take(n).map(|&i| actual[i]).fold(f32::MIN_POSITIVE, f32::max);
            sums.accuracy += pairwise_accuracy(&predicted, &actual).unwrap_or(0.5);
            sums.first -= f64::from(best_of(1)).ln();
            sums.fifth -= f64::from(best_of(5)).ln();
            sums.count += 1.0;
        }
        let mean = |sum: f64| sum / sums.count;
        Judged { count: sums.count, accuracy: mean(sums.accuracy), first: mean(sums.first), fifth: mean(sums.fifth) }
    }
}

/// The best schedules of workloads that together, carried over, come nearest to the best of the others of their families: greedy cover.
fn cover(tasks: &[Task]) -> Portfolio {
    let times: Vec<HashMap<&Config, f64>> = tasks
        .iter()
        .map(|task| {
            task.configs.iter().zip(&task.run_secs).filter_map(|(config, secs)| Some((config, (*secs)?))).collect()
        })
        .collect();
    let origins: Vec<(usize, &Config)> =
        (0..tasks.len()).flat_map(|i| tasks[i].best.iter().map(move |config| (i, config))).collect();

    // What each leaves of each: the logarithm of its time over the best.
    let left: Vec<BTreeMap<usize, f64>> = origins
        .par_iter()
        .map(|&(origin, config)| {
            let alike = (0..tasks.len()).filter(|&i| tasks[i].family == tasks[origin].family);
            let loss = |i: usize| {
                let carried = tasks[i].space.adapt(config, tasks[origin].space.workload())?;
                let secs = times[i].get(carried.config())?;
                Some((i, (secs / tasks[i].least_secs()).ln()))
            };
            alike.filter_map(loss).collect()
        })
        .collect();

    const NOTHING: f64 = 1.5;
    let mut losses = vec![NOTHING; tasks.len()];
    let mut entries = Vec::new();
    while entries.len() < ENTRIES {
        let gain = |of: &BTreeMap<usize, f64>| {
            of.iter().map(|(&i, loss)| (losses[i] - loss).max(0.0)).sum::<f64>() / tasks.len() as f64
        };
        let gains = left.iter().map(gain).enumerate();
        let Some((best, gained)) = gains.max_by(|a, b| a.1.total_cmp(&b.1)) else { break };
        if gained < LEAST_GAIN {
            break;
        }
        left[best].iter().for_each(|(&i, loss)| losses[i] = losses[i].min(*loss));
        let (origin, config) = origins[best];
        entries.push(Entry { workload: tasks[origin].space.workload().clone(), config: config.clone() });
    }
    let mean = losses.iter().sum::<f64>() / losses.len() as f64;
    println!("\n{} schedules cover the workloads to {:.3} times the best (geometric mean)", entries.len(), mean.exp());
    Portfolio { entries }
}
