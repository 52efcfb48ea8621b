//! Evaluation of the measured machine rates as model inputs: within one machine, and across
//! machines.

use anyhow::{Context, Result, ensure};
use autotune_cost_model::{CostModel, Sample, XgbModel, features, relative_throughputs};
use autotune_ir::Rates;
use autotune_lab::test_bed::{Recording, TestBed};
use ndarray::Array2;
use rayon::prelude::*;

use crate::judge::{FOLDS, Judged, Shapes, judged};
use crate::task::{Rows, Task, fitted};

/// Number of schedules of each workload in a model's training data.
const OF_EACH: usize = 64;

/// Name prefixes of the feature columns that are the rates themselves.
const RATE_COLUMNS: [&str; 4] = ["target.l2_reads", "target.l3_reads", "target.memory_reads", "target.fork_join"];

/// Prints how well the analytic estimate and models rank the workloads of each test bed: with
/// nominal and with measured rates, trained on the same machine, on the other one, and on both.
/// Cross-validation holds out one workload in five on all machines.
pub(crate) fn compare(test_beds: &[TestBed; 2]) -> Result<()> {
    let measured = [0, 1].map(|bed| test_beds[bed].header.rates);
    ensure!(measured != [Rates::NOMINAL; 2], "neither test bed has rates in its header");

    println!("| ranked | rates | learnt from | pairs in order | the best of its first 1, 5 over the best |");
    println!("|---|---|---|---|---|");
    for (name, rates) in [("nominal", [Rates::NOMINAL; 2]), ("measured", measured)] {
        let machines = [Machine::of(&test_beds[0], rates[0])?, Machine::of(&test_beds[1], rates[1])?];
        let shapes = Shapes::of(machines.iter().flat_map(|machine| &machine.tasks));
        let row = |ranked: &Machine, from: &str, judged: Judged| {
            println!("| {} | {name} | {from} | {judged} |", ranked.name);
        };
        machines.iter().for_each(|ranked| row(ranked, "nothing: the estimate", ranked.by_estimate()));

        let [first, second] = &machines;
        for (from, known) in [(&*first.name, &machines[..1]), (&second.name, &machines[1..]), ("both", &machines)] {
            let models = models(known, &shapes, false)?;
            machines.iter().for_each(|ranked| row(ranked, from, ranked.by_models(&models, &shapes, false)));
        }
        if rates == measured {
            let models = models(&machines, &shapes, true)?;
            let from = "both, without columns of the rates";
            machines.iter().for_each(|ranked| row(ranked, from, ranked.by_models(&models, &shapes, true)));
        }
    }
    Ok(())
}

/// Trains a model for each fold, on the machines' workloads outside the fold.
fn models(of: &[Machine], shapes: &Shapes, hides_columns: bool) -> Result<Vec<XgbModel>> {
    let without = |fold: usize| {
        let known = of.iter().flat_map(|machine| &machine.tasks).filter(|task| shapes.fold(task) != fold);
        let samples: Vec<Sample> =
            (0..).zip(known).flat_map(|(group, task)| some(task, group, hides_columns)).collect();
        fitted(&samples, Rows::LoopNests)
    };
    (0..FOLDS).into_par_iter().map(without).collect()
}

/// Test bed of a machine, analysed with given rates.
struct Machine {
    name: String,
    tasks: Vec<Task>,
}

impl Machine {
    fn of(test_bed: &TestBed, rates: Rates) -> Result<Self> {
        let target = test_bed.header.target()?.with_rates(rates);
        let isa = target.cpu().context("no CPU's test bed")?.isa;
        let tasks = test_bed.tasks().into_par_iter().map(|recording: Recording| Task::of(recording, &target, &[]));
        Ok(Self { name: isa.to_string(), tasks: tasks.collect() })
    }

    fn by_estimate(&self) -> Judged {
        judged(self.tasks.iter().map(|task| (task, task.analysed())))
    }

    /// Evaluates each task with the model that was trained without its shape.
    fn by_models(&self, models: &[XgbModel], shapes: &Shapes, hides_columns: bool) -> Judged {
        let predicted = |task| models[shapes.fold(task)].predict(seen(task, hides_columns).view());
        judged(self.tasks.iter().map(|task| (task, predicted(task))))
    }
}

/// Returns evenly chosen schedules of a task as samples.
fn some(task: &Task, group: u32, hides_columns: bool) -> Vec<Sample> {
    let (rows, scores) = (seen(task, hides_columns), relative_throughputs(&task.run_secs));
    let n = OF_EACH.min(scores.len());
    let chosen = (0..n).map(|i| i * scores.len() / n);
    chosen.map(|i| Sample { features: rows.row(i).to_vec(), score: scores[i], group }).collect()
}

/// Returns the feature rows of a task; hidden rate columns are set to zero.
fn seen(task: &Task, hides_columns: bool) -> Array2<f32> {
    let mut rows = task.rows(Rows::LoopNests).clone();
    let is_hidden = |name: &String| hides_columns && RATE_COLUMNS.iter().any(|column| name.starts_with(column));
    let columns = features::names().iter().enumerate().filter(|(_, name)| is_hidden(name));
    columns.for_each(|(column, _)| rows.column_mut(column).fill(0.0));
    rows
}
