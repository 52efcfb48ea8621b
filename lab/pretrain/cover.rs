//! Selection of the portfolio: few schedules that, transferred, come near the best of many
//! workloads.

use std::collections::{BTreeMap, HashMap};

use autotune_schedules::portfolio::PortfolioEntry;
use autotune_schedules::{Config, Portfolio};
use rayon::prelude::*;

use crate::task::Task;

/// Maximum number of entries of the portfolio.
const ENTRIES: usize = 112;

// Least reduction of the mean logarithmic loss that a further entry must bring.
const LEAST_GAIN: f64 = 2e-4;
/// Logarithmic loss of a workload without a suitable entry: its time is exp(1.5), or 4.5 times, the
/// best.
const NOTHING: f64 = 1.5;

/// Selects entries among the best schedules of each workload by greedy set cover: each entry
/// reduces most the mean log(time over best time) that the transferred entries leave for the
/// workloads of their families.
pub(crate) fn cover(tasks: &[Task]) -> Portfolio {
    let times: Vec<HashMap<&Config, f64>> = tasks
        .iter()
        .map(|task| {
            task.configs.iter().zip(&task.run_secs).filter_map(|(config, secs)| Some((config, (*secs)?))).collect()
        })
        .collect();
    let origins: Vec<(usize, &Config)> =
        (0..tasks.len()).flat_map(|i| tasks[i].best.iter().map(move |config| (i, config))).collect();

    // Loss of each workload by each schedule: log of its transferred time over the best time.
    let left: Vec<BTreeMap<usize, f64>> = origins
        .par_iter()
        .map(|&(origin, config)| {
            let of = &tasks[origin];
            let is_alike = |task: &Task| {
                task.family == of.family && task.space.workload().distance(of.space.workload()).is_finite()
            };
            let alike = (0..tasks.len()).filter(|&i| is_alike(&tasks[i]));
            let loss = |i: usize| {
                let carried = tasks[i].space.adapt(config, tasks[origin].space.workload())?;
                let secs = times[i].get(carried.config())?;
                Some((i, (secs / tasks[i].least_secs()).ln()))
            };
            alike.filter_map(loss).collect()
        })
        .collect();

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
        entries.push(PortfolioEntry { workload: tasks[origin].space.workload().clone(), config: config.clone() });
    }
    let mean = losses.iter().sum::<f64>() / losses.len() as f64;
    println!("\n{} schedules cover the workloads to {:.3} times the best (geometric mean)", entries.len(), mean.exp());
    Portfolio { entries }
}
