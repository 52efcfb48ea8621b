//! Evaluation of models on workloads that they were not trained on.

use std::collections::{BTreeMap, HashMap};

use anyhow::Result;
use autotune::PredictParams;
use autotune_cost_model::metrics::pairwise_accuracy;
use autotune_cost_model::{CostModel, XgbModel, relative_throughputs};
use autotune_schedules::portfolio::PortfolioEntry;
use autotune_workloads::Workload;
use rayon::prelude::*;

use crate::task::{Rows, Task, train};

/// Number of folds of the cross-validation over workloads.
pub(crate) const FOLDS: usize = 5;
/// Numbers of nearest workloads whose schedules are transferred.
const NEAREST: [usize; 6] = [0, 1, 2, 4, 8, usize::MAX];

// Knob combinations tried for each transfer: in a look-up miss, and in a search.
const TRIES: [usize; 2] = [PredictParams::QUICK.tries, PredictParams::THOROUGH.tries];
/// Numbers of schedules that the cheap ranking model passes to the main model.
const VERIFIED: [usize; 3] = [2, 4, 8];

/// Times of the chosen schedules over the best recorded times: geometric means over the workloads.
pub(crate) struct Expected {
    /// Choice among all recorded schedules by the loop-nest model.
    pub(crate) first: f64,
    /// Choice among transferred schedules, as on a look-up miss.
    pub(crate) carried: f64,
}

/// Evaluates models by leaving out each family in turn, and then each fold of workloads, and prints
/// their quality. `miss` are the parameters of a look-up miss.
pub(crate) fn judge(tasks: &[Task], miss: PredictParams) -> Result<Expected> {
    let splits = splits(tasks);
    let train = |rows: Rows| -> Result<Vec<XgbModel>> {
        splits.par_iter().map(|split| train(split.part(tasks, false), rows)).collect()
    };
    let (models, drafts) = (train(Rows::LoopNests)?, train(Rows::Knobs)?);

    println!(
        "| held out | workloads | pairs in order | the best of its first 1, 5 over the best | by knobs: pairs | 1, 5 |"
    );
    println!("|---|---|---|---|---|---|");
    let mut of_folds = Vec::new();
    for ((split, model), draft) in splits.iter().zip(&models).zip(&drafts) {
        let [by_nests, by_knobs] =
            [(model, Rows::LoopNests), (draft, Rows::Knobs)].map(|(model, rows)| split.judge(tasks, model, rows));
        println!("| {} | {} | {by_nests} | {by_knobs} |", split.name, by_nests.count);
        of_folds.push(by_nests);
    }

    let folds = splits.len() - FOLDS;
    let first: f64 = of_folds[folds..].iter().map(|judged| judged.count * judged.first).sum();
    let held_out = HeldOut::new(tasks, &splits[folds..], &models[folds..], &drafts[folds..]);
    Ok(Expected { first: (first / tasks.len() as f64).exp(), carried: held_out.judge(miss) })
}

/// Returns the splits: leave out each family, then each fold of shapes.
fn splits(tasks: &[Task]) -> Vec<Split> {
    let mut families: Vec<&str> = tasks.iter().map(|task| task.family.as_str()).collect();
    families.sort();
    families.dedup();
    let of_family = |family: &&str| Split {
        name: format!("family {family}"),
        held_out: tasks.iter().map(|task| task.family == *family).collect(),
    };

    let shapes = Shapes::of(tasks.iter());
    let of_fold = |fold| Split {
        name: format!("shapes {fold}"),
        held_out: tasks.iter().map(|task| shapes.fold(task) == fold).collect(),
    };
    families.iter().map(of_family).chain((0..FOLDS).map(of_fold)).collect()
}

/// Assignment of shapes to the [`FOLDS`] folds, round-robin. A workload with uncached constants is
/// in the same fold as its cached twin.
pub(crate) struct Shapes(HashMap<Workload, usize>);

impl Shapes {
    pub(crate) fn of<'t>(tasks: impl Iterator<Item = &'t Task>) -> Self {
        let mut numbers = HashMap::new();
        for task in tasks {
            let next = numbers.len();
            numbers.entry(task.warm()).or_insert(next);
        }
        Self(numbers)
    }

    /// Returns the fold of a task.
    pub(crate) fn fold(&self, task: &Task) -> usize {
        self.0.get(&task.warm()).map_or(0, |number| number % FOLDS)
    }
}

/// Split of the tasks into training and held-out ones.
struct Split {
    name: String,
    held_out: Vec<bool>,
}

/// Means over the held-out tasks; of ratios, the mean of their logarithms.
pub(crate) struct Judged {
    count: f64,
    accuracy: f64,
    first: f64,
    fifth: f64,
}

impl std::fmt::Display for Judged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.3} | {:.3}, {:.3}", self.accuracy, self.first.exp(), self.fifth.exp())
    }
}

impl Split {
    fn part<'a>(&'a self, tasks: &'a [Task], is_held_out: bool) -> impl Iterator<Item = &'a Task> {
        tasks.iter().zip(&self.held_out).filter(move |(_, out)| **out == is_held_out).map(|(task, _)| task)
    }

    fn judge(&self, tasks: &[Task], model: &XgbModel, rows: Rows) -> Judged {
        judged(self.part(tasks, true).map(|task| (task, model.predict(task.rows(rows).view()))))
    }
}

/// Evaluates predicted scores of the tasks' schedules.
pub(crate) fn judged<'t>(predictions: impl Iterator<Item = (&'t Task, Vec<f32>)>) -> Judged {
    let mut sums = Judged { count: 0.0, accuracy: 0.0, first: 0.0, fifth: 0.0 };
    for (task, predicted) in predictions {
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

/// Method of choosing among transferred schedules.
#[derive(Clone, Copy)]
enum By {
    Model,
    Draft,
    /// The main model, among this number of schedules that the cheap ranking model puts first.
    Verified(usize),
    Analysis,
}

/// Workloads with the scores of models that were trained without them.
struct HeldOut<'a> {
    tasks: &'a [Task],
    /// Best schedules of all workloads.
    known: Vec<PortfolioEntry>,
    ratings: Vec<Ratings>,
}

/// Scores of a workload's schedules.
struct Ratings {
    model: Vec<f32>,
    draft: Vec<f32>,
    analysis: Vec<f32>,
}

impl<'a> HeldOut<'a> {
    fn new(tasks: &'a [Task], splits: &[Split], models: &[XgbModel], drafts: &[XgbModel]) -> Self {
        let rate = |i: usize| {
            let fold = splits.iter().position(|split| split.held_out[i]).unwrap_or_default();
            Ratings {
                model: models[fold].predict(tasks[i].rows(Rows::LoopNests).view()),
                draft: drafts[fold].predict(tasks[i].rows(Rows::Knobs).view()),
                analysis: tasks[i].analysed(),
            }
        };
        let known = tasks.iter().flat_map(Task::entries).collect();
        Self { tasks, known, ratings: (0..tasks.len()).map(rate).collect() }
    }

    /// Prints the loss of each method of choosing among schedules transferred from the nearest
    /// workloads, and by family the loss of a look-up miss. Returns the mean time ratio of a miss.
    fn judge(&self, miss: PredictParams) -> f64 {
        let verified = VERIFIED.map(By::Verified);
        let columns = [&[By::Model, By::Draft], &verified[..], &[By::Analysis]].concat();
        let heads = VERIFIED.map(|n| format!(" by the model, of the draft's first {n} |")).concat();
        println!("\n| tries | carried over | workloads | by the model | by the draft |{heads} by the analysis |");
        println!("|---|---|---|{}", "---|".repeat(columns.len()));
        for (tries, nearest) in TRIES.into_iter().flat_map(|tries| NEAREST.map(|nearest| (tries, nearest))) {
            let losses: Vec<Vec<f64>> = self.losses(&columns, nearest, tries).into_iter().flatten().collect();
            let mean = |column: usize| mean_ratio(losses.iter().map(|of| of[column]));
            let means: Vec<String> = (0..columns.len()).map(|column| format!("{:.3}", mean(column))).collect();
            let from = if nearest == usize::MAX { "all".into() } else { nearest.to_string() };
            println!("| {tries} | {from} | {} | {} |", losses.len(), means.join(" | "));
        }

        // The fixed rule's schedule was recorded for some workloads only, so that its mean is over
        // fewer.
        let PredictParams { nearest, tries, verified, .. } = miss;
        let by = if verified > 0 { By::Verified(verified) } else { By::Draft };
        let mut of_families: BTreeMap<&str, [Vec<f64>; 2]> = BTreeMap::new();
        for (which, nearest) in [0, nearest].into_iter().enumerate() {
            for (task, losses) in self.tasks.iter().zip(self.losses(&[by], nearest, tries)) {
                of_families.entry(&task.family).or_default()[which].extend(losses.into_iter().flatten());
            }
        }
        println!("\n| family | workloads | the fixed rule's | workloads | a miss |\n|---|---|---|---|---|");
        for (family, [rule, miss]) in &of_families {
            let cells = [rule, miss].map(|losses| match losses.is_empty() {
                true => "0 | ".to_string(),
                false => format!("{} | {:.3}", losses.len(), mean_ratio(losses.iter().copied())),
            });
            println!("| {family} | {} |", cells.join(" | "));
        }
        mean_ratio(of_families.values().flat_map(|[_, miss]| miss.iter().copied()))
    }

    /// Returns for each workload, by method, log(time of the chosen schedule over the best time);
    /// `None` if a chosen schedule has no recorded time.
    fn losses(&self, columns: &[By], nearest: usize, tries: usize) -> Vec<Option<Vec<f64>>> {
        let of_task = |(task, ratings): (&Task, &Ratings)| {
            let Ratings { model, draft, analysis } = ratings;
            let carried = task.transferred(self.known.iter(), nearest, tries);
            let mut drafted = carried.clone();
            drafted.sort_by(|&a, &b| draft[b].total_cmp(&draft[a]));
            let chosen = |by: &By| match *by {
                By::Model => best_of(&carried, model),
                By::Draft => best_of(&carried, draft),
                By::Verified(n) => best_of(&drafted[..n.min(drafted.len())], model),
                By::Analysis => best_of(&carried, analysis),
            };
            columns.iter().map(|by| Some((task.run_secs[chosen(by)?]? / task.least_secs()).ln())).collect()
        };
        self.tasks.par_iter().zip(&self.ratings).map(of_task).collect()
    }
}

fn best_of(schedules: &[usize], scores: &[f32]) -> Option<usize> {
    schedules.iter().copied().max_by(|&a, &b| scores[a].total_cmp(&scores[b]))
}

/// Returns the geometric mean of ratios, given their logarithms.
fn mean_ratio(losses: impl Iterator<Item = f64>) -> f64 {
    let (count, sum) = losses.fold((0, 0.0), |(count, sum), loss| (count + 1, sum + loss));
    (sum / f64::from(count)).exp()
}
