//! Which schedules come nearest to the best of many workloads.

use std::collections::{BTreeMap, HashMap};

use autotune_schedules::portfolio::Entry;
use autotune_schedules::{Config, Portfolio};
use rayon::prelude::*;

use crate::task::Task;

/// Entries of the portfolio, at most, and the least that one must lower the mean logarithm of what
/// the others leave.
const ENTRIES: usize = 112;
const LEAST_GAIN: f64 = 2e-4;
/// The logarithm of how many times the best a workload takes that no entry is for.
const NOTHING: f64 = 1.5;

/// The best schedules of workloads that together, carried over, come nearest to the best of the
/// others of their families: greedy cover.
pub(crate) fn cover(tasks: &[Task]) -> Portfolio {
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
        entries.push(Entry { workload: tasks[origin].space.workload().clone(), config: config.clone() });
    }
    let mean = losses.iter().sum::<f64>() / losses.len() as f64;
    println!("\n{} schedules cover the workloads to {:.3} times the best (geometric mean)", entries.len(), mean.exp());
    Portfolio { entries }
}
