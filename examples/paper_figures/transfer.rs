//! What records of other workloads are worth.

use anyhow::Result;
use autotune_charts::{Bars, Row, standalone};
use autotune_cost_model::XgbParams;
use autotune_db::TuningRecord;
use autotune_examples::ensemble::Ensemble;
use autotune_examples::replay::ReplayTask;
use autotune_examples::{geometric_mean, median};
use autotune_ir::Target;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;

use crate::Bench;
use crate::curves::{Curve, draw};
use crate::page::Figure;
use crate::searches::{Method, Runs, curve, first_at, params, runs};

/// Workloads that records are of, and records of each.
const SOURCES: usize = 16;
const OF_EACH: usize = 64;

/// Where records are from.
#[derive(Clone, Copy, Debug, PartialEq)]
enum History {
    SameFamily,
    OtherFamilies,
    /// Convolutions that are neither depthwise nor grouped.
    Convolutions,
}

impl History {
    fn name(self) -> &'static str {
        match self {
            Self::SameFamily => "same family",
            Self::OtherFamilies => "other families",
            Self::Convolutions => "3x3 and 1x1 convolutions",
        }
    }

    /// Whether records of a family are known to one.
    fn knows(self, target: &str, source: &str) -> bool {
        match self {
            Self::SameFamily => source == target,
            Self::OtherFamilies => source != target,
            Self::Convolutions => ["conv3x3", "conv1x1"].contains(&source),
        }
    }

    /// Whether it is asked what it is worth to a family.
    fn is_for(self, target: &str) -> bool {
        self != Self::Convolutions || ["matmul", "batched", "depthwise"].contains(&target)
    }

    /// The workloads that it is of, evenly from all there are; never the one that is searched.
    fn sources<'s>(self, task: &ReplayTask, all: &'s [ReplayTask]) -> Vec<&'s ReplayTask> {
        let is_known = |it: &&ReplayTask| it.workload != task.workload && self.knows(&task.family, &it.family);
        let known: Vec<&ReplayTask> = all.iter().filter(is_known).collect();
        let n = known.len().min(SOURCES);
        (0..n).map(|i| known[i * known.len() / n]).collect()
    }
}

/// What a search goes by before it has learnt anything.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Start {
    /// The analytic estimate, as the tuner's trees do.
    Estimate,
    /// Nothing, as in the paper.
    Nothing,
}

impl Start {
    fn name(self) -> &'static str {
        match self {
            Self::Estimate => "from the estimate",
            Self::Nothing => "no prior",
        }
    }

    fn method(self, name: String, target: &Target) -> Method {
        let params = params(target);
        let prior = params.prior.filter(|_| self == Self::Estimate);
        Method::learned(&name, target).with_model(Ensemble::single(XgbParams { prior, ..params }))
    }
}

/// What histories are worth to searches that start alike.
struct Setting {
    start: Start,
    /// Of each workload that is searched.
    speed_ups: Vec<(History, Vec<f64>)>,
    curves: Vec<Curve>,
    csv: Vec<Vec<String>>,
}

pub(crate) fn transfer(bench: &Bench) -> Result<Figure> {
    let all = ReplayTask::of(&bench.test_bed, &bench.target, |_| true);
    let settings = [Start::Estimate, Start::Nothing].map(|start| Setting::of(bench, &all, start));
    Ok(figure(bench, settings.into_iter().collect::<Result<Vec<_>>>()?))
}

impl Setting {
    fn of(bench: &Bench, all: &[ReplayTask], start: Start) -> Result<Self> {
        let method = start.method("no history".into(), &bench.target);
        let without = runs(bench, &bench.record, &method)?;
        let name = |history: &str| format!("{history}, {}", start.name());
        let mut curves = vec![curve(&name("no history"), &without)];
        let (mut speed_ups, mut csv) = (Vec::new(), Vec::new());

        for history in [History::SameFamily, History::OtherFamilies, History::Convolutions] {
            let with = with_history(bench, &method, history, all)?;
            if history != History::Convolutions {
                curves.push(curve(&name(history.name()), &with));
            }
            let mut of_tasks = Vec::new();
            for (i, task) in bench.record.tasks.iter().enumerate() {
                let of_task = |runs: &Runs| runs.iter().map(|of_seed| of_seed[i].clone()).collect::<Vec<_>>();
                let is_asked = history.is_for(&task.family);
                let gain = if is_asked { Gain::of(&of_task(&without), &of_task(&with)) } else { Gain::NONE };
                of_tasks.push(gain.speed_up());
                if is_asked {
                    let names = [&task.family, task.workload.as_str(), start.name(), history.name()];
                    let cells =
                        [gain.quality, gain.without, gain.with, gain.speed_up()].map(|number| format!("{number:.3}"));
                    csv.push(names.map(String::from).into_iter().chain(cells).collect());
                }
            }
            speed_ups.push((history, of_tasks));
        }
        Ok(Self { start, speed_ups, curves, csv })
    }
}

/// Runs of every task with records of others known; one that it is not asked of has no curve.
fn with_history(bench: &Bench, method: &Method, history: History, all: &[ReplayTask]) -> Result<Runs> {
    let pairs = (0..bench.seeds).flat_map(|seed| bench.record.tasks.iter().map(move |task| (seed, task)));
    let pairs: Vec<(u64, &ReplayTask)> = pairs.collect();
    let run = |(seed, task): (u64, &ReplayTask)| match history.is_for(&task.family) {
        true => method.run(task, bench.record.trials, seed, &records(&history.sources(task, all), seed)),
        false => Ok(vec![f64::NAN; bench.record.trials]),
    };
    let curves = pairs.into_par_iter().map(run).collect::<Result<Vec<_>>>()?;
    Ok(curves.chunks(bench.record.tasks.len()).map(<[_]>::to_vec).collect())
}

/// Some records of each of some workloads, drawn.
fn records(sources: &[&ReplayTask], seed: u64) -> Vec<TuningRecord> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let of_source = |source: &&ReplayTask| {
        let mut positions: Vec<usize> = (0..source.run_secs.len()).collect();
        let (drawn, _) = positions.partial_shuffle(&mut rng, OF_EACH);
        source.records(drawn.to_vec())
    };
    sources.iter().flat_map(of_source).collect()
}

/// Trials to equal quality: that which the runs without history end with, in the middle.
struct Gain {
    quality: f64,
    without: f64,
    with: f64,
}

impl Gain {
    const NONE: Self = Self { quality: f64::NAN, without: f64::NAN, with: f64::NAN };

    fn of(without: &[Vec<f64>], with: &[Vec<f64>]) -> Self {
        let quality = median(without.iter().filter_map(|curve| curve.last().copied()).collect());
        let trials = |curves: &[Vec<f64>]| {
            // One that does not get there takes one more trial at least.
            let first = |curve: &Vec<f64>| first_at(curve, quality).min(curve.len() as f64 + 1.0);
            median(curves.iter().map(first).collect())
        };
        Self { quality, without: trials(without), with: trials(with) }
    }

    fn speed_up(&self) -> f64 {
        self.without / self.with
    }
}

fn figure(bench: &Bench, settings: Vec<Setting>) -> Figure {
    let mut families: Vec<String> = bench.record.tasks.iter().map(|task| task.family.clone()).collect();
    families.dedup();
    let of_family = |of_tasks: &[f64], family: &str| {
        let of_family =
            bench.record.tasks.iter().zip(of_tasks).filter(|(task, value)| task.family == family && value.is_finite());
        geometric_mean(of_family.map(|(_, value)| *value))
    };
    let number = |value: f64| if value.is_finite() { format!("{value:.2}") } else { String::new() };

    let columns = || settings.iter().flat_map(|setting| setting.speed_ups.iter().map(|it| (setting.start, it)));
    let head = columns().map(|(start, (history, _))| format!("{}; records of: {}", start.name(), history.name()));
    let mut table = vec![["family searched".to_string()].into_iter().chain(head).collect::<Vec<_>>()];
    for family in &families {
        let cells = columns().map(|(_, (_, of_tasks))| number(of_family(of_tasks, family)));
        table.push([family.clone()].into_iter().chain(cells).collect());
    }
    let all =
        columns().map(|(_, (_, it))| number(geometric_mean(it.iter().copied().filter(|value| value.is_finite()))));
    table.push(["geometric mean".to_string()].into_iter().chain(all).collect());

    let bars = |setting: &Setting| {
        let row = |family: &String| {
            let values = setting.speed_ups.iter().map(|(_, of_tasks)| Some(of_family(of_tasks, family)));
            Row { name: family.clone(), values: values.collect() }
        };
        let title = "trials without history over trials with it, to equal quality";
        let series = setting.speed_ups.iter().map(|(history, _)| history.name().to_string());
        let (title, axis) = (format!("{title} ({})", setting.start.name()), title.to_string());
        standalone(Bars { title, axis, series: series.collect(), rows: families.iter().map(row).collect() }.draw())
    };
    let drawn: Vec<String> = settings.iter().map(bars).collect();
    let files = ["", "_no_prior"];
    let mut charts: Vec<(&str, String)> = files.into_iter().zip(drawn).collect();

    let head = ["family", "workload", "start", "history", "quality", "trials_without", "trials_with", "speed_up"];
    let mut csv = vec![head.map(String::from).to_vec()];
    let mut curves = Vec::new();
    for setting in settings {
        csv.extend(setting.csv);
        curves.extend(setting.curves);
    }
    charts.push(("_curves", draw(&curves)));

    Figure {
        name: "transfer",
        title: "Transfer".into(),
        text: format!(
            "Trials without history over trials with it, until as good as the runs without history that start alike are after {} (medians \
             over the seeds, geometric means over the workloads; each workload is in the CSV file). What is known is {OF_EACH} records of \
             each of up to {SOURCES} other workloads, in the database as any earlier run leaves them. *From the estimate*: the trees \
             start from the analytic estimate, as the tuner's do; *no prior*: from nothing, as in the paper, which reports 2x to 10x.",
            bench.record.trials
        ),
        table,
        csv,
        charts,
    }
}
