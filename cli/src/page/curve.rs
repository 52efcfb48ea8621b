//! Curves of the best run time so far over the course of a search.

use autotune_db::TuningRecord;

/// One point of a curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SearchMoment {
    /// Number of trials up to here.
    pub(crate) trials: f64,
    /// Seconds spent building and measuring those trials.
    pub(crate) spent_secs: f64,
    /// Best run time so far in seconds; for several tasks the weighted sum.
    pub(crate) best_secs: f64,
}

/// Returns the points at which the best time improved, and the last trial. Several tasks that were
/// tuned together count with their weights. The curve begins once each task has a time; it is empty
/// if a task never gets one.
pub(crate) fn best_so_far(tasks: &[(f64, &[&TuningRecord])]) -> Vec<SearchMoment> {
    let mut best_secs = vec![f64::INFINITY; tasks.len()];
    let mut now = SearchMoment { trials: 0.0, spent_secs: 0.0, best_secs: f64::INFINITY };
    let mut points: Vec<SearchMoment> = Vec::new();

    for (task, trial) in in_order(tasks) {
        let measurement = &trial.measurement;
        now.trials += 1.0;
        now.spent_secs += measurement.build_secs + measurement.measure_secs;
        best_secs[task] = best_secs[task].min(measurement.run_secs().unwrap_or(f64::INFINITY));

        let total: f64 = tasks.iter().zip(&best_secs).map(|((weight, _), secs)| weight * secs).sum();
        if total < now.best_secs {
            now.best_secs = total;
            points.push(now);
        }
    }

    if points.last().is_some_and(|last| *last != now) {
        points.push(now);
    }
    points
}

/// Merges the trials of all tasks by their time stamps in whole seconds. The trials of one task
/// keep their order, even if the clock went back.
fn in_order<'r>(tasks: &[(f64, &[&'r TuningRecord])]) -> Vec<(usize, &'r TuningRecord)> {
    let mut all: Vec<(u64, usize, &TuningRecord)> = Vec::new();
    for (task, (_, trials)) in tasks.iter().enumerate() {
        let mut latest = 0;
        all.extend(trials.iter().map(|trial| {
            latest = trial.provenance.unix_secs.max(latest);
            (latest, task, *trial)
        }));
    }
    all.sort_by_key(|(at, _, _)| *at);
    all.into_iter().map(|(_, task, trial)| (task, trial)).collect()
}

/// Minimum, median and maximum of several curves at one `x`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) x: f64,
    pub(crate) low: f64,
    pub(crate) median: f64,
    pub(crate) high: f64,
}

/// Returns the spread of several step curves, given as points `[x, value]`, from the place where
/// all have begun. A curve that ended keeps its last value.
pub(crate) fn spread(curves: &[Vec<[f64; 2]>]) -> Vec<Spread> {
    let begin = curves.iter().filter_map(|curve| curve.first()).map(|point| point[0]).fold(0.0, f64::max);
    let mut xs: Vec<f64> = curves.iter().flatten().map(|point| point[0]).filter(|x| *x >= begin).collect();
    xs.sort_by(f64::total_cmp);
    xs.dedup();

    let at = |x: f64| {
        let value = |curve: &Vec<[f64; 2]>| Some(curve[..curve.partition_point(|point| point[0] <= x)].last()?[1]);
        let mut values: Vec<f64> = curves.iter().filter_map(value).collect();
        values.sort_by(f64::total_cmp);
        let (low, high) = (*values.first()?, *values.last()?);
        let middle = (values.len() - 1) / 2;

        Some(Spread { x, low, median: (values[middle] + values[values.len() / 2]) / 2.0, high })
    };
    xs.into_iter().filter_map(at).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::page::made_up::record;

    const WORKLOAD: &str = "matmul:m=8,n=16,k=8";

    fn trial(run_secs: Option<f64>, unix_secs: u64) -> TuningRecord {
        let mut record = record(WORKLOAD, 0, run_secs, 0);
        record.provenance.unix_secs = unix_secs;
        (record.measurement.build_secs, record.measurement.measure_secs) = (0.25, 0.75);
        record
    }

    fn triples(points: Vec<SearchMoment>) -> Vec<[f64; 3]> {
        points.into_iter().map(|point| [point.trials, point.spent_secs, point.best_secs]).collect()
    }

    #[test]
    fn only_what_is_better_counts_and_the_end() {
        let trials = [None, Some(4.0), Some(5.0), Some(3.0), None].map(|secs| trial(secs, 7));
        let trials: Vec<&TuningRecord> = trials.iter().collect();
        let curve = triples(best_so_far(&[(1.0, &trials)]));
        assert_eq!(curve, [[2.0, 2.0, 4.0], [4.0, 4.0, 3.0], [5.0, 5.0, 3.0]]);
        assert_eq!(triples(best_so_far(&[(1.0, &trials[..1])])), [[0.0; 3]; 0]);
        assert_eq!(triples(best_so_far(&[(1.0, &[])])), [[0.0; 3]; 0]);
    }

    #[test]
    fn a_network_begins_when_every_task_has_a_time() {
        let a = [trial(Some(4.0), 10), trial(Some(2.0), 30)];
        // The clock of this task went back: its trials stay in the order in which they were
        // appended.
        let b = [trial(None, 20), trial(Some(1.0), 15)];
        let [a, b] = [&a, &b].map(|trials| trials.iter().collect::<Vec<_>>());
        assert_eq!(triples(best_so_far(&[(1.0, &a), (3.0, &b)])), [[3.0, 3.0, 7.0], [4.0, 4.0, 5.0]]);
        assert_eq!(best_so_far(&[(1.0, &a), (3.0, &b[..1])]), []);
    }

    #[test]
    fn the_spread_is_that_of_all_curves() {
        let curves = [vec![[1.0, 9.0], [4.0, 1.0]], vec![[2.0, 5.0], [6.0, 4.0]], vec![[1.0, 7.0]]];
        let spread = spread(&curves).into_iter().map(|s| [s.x, s.low, s.median, s.high]).collect::<Vec<_>>();
        assert_eq!(spread, [[2.0, 5.0, 7.0, 9.0], [4.0, 1.0, 5.0, 7.0], [6.0, 1.0, 4.0, 7.0]]);
        assert_eq!(super::spread(&curves[..2])[0].median, 7.0);
        assert_eq!(super::spread(&[]), []);
    }
}
