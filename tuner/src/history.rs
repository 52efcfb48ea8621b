//! Schedules of other workloads, from the records of earlier runs.

use std::collections::{BTreeMap, BTreeSet};

use autotune_db::TuningRecord;
use autotune_ir::spec::Axis;
use autotune_schedules::portfolio::Entry;
use autotune_schedules::{Candidate, Portfolio, ScheduleSpace, Workload};

/// The fastest that was measured of each sketch of each workload.
pub(crate) struct History(Vec<Entry>);

impl History {
    /// Of the records of other workloads than `own`.
    pub(crate) fn new(records: &[TuningRecord], own: &[Workload]) -> Self {
        let mut fastest: BTreeMap<(&Workload, &str), (f64, &TuningRecord)> = BTreeMap::new();
        for record in records.iter().filter(|record| !own.contains(&record.workload)) {
            let Some(run_secs) = record.measurement.run_secs() else { continue };
            let known = fastest.entry((&record.workload, &record.config.sketch)).or_insert((run_secs, record));
            if run_secs < known.0 {
                *known = (run_secs, record);
            }
        }
        let entry = |record: &TuningRecord| Entry { workload: record.workload.clone(), config: record.config.clone() };
        Self(fastest.into_values().map(|(_, record)| entry(record)).collect())
    }

    /// Those of the `n` nearest workloads, carried over to a space.
    pub(crate) fn carried(&self, space: &ScheduleSpace, n: usize) -> Vec<Candidate> {
        let with_distance =
            self.0.iter().filter_map(|entry| Some((distance(&entry.workload, space.workload())?, entry)));
        let mut near: Vec<(f64, &Entry)> = with_distance.collect();
        near.sort_by(|a, b| a.0.total_cmp(&b.0).then_with(|| a.1.workload.cmp(&b.1.workload)));
        let of_workloads = near.chunk_by(|a, b| a.1.workload == b.1.workload).take(n);
        let entries = of_workloads.flatten().map(|(_, entry)| (*entry).clone()).collect();
        Portfolio { entries }.candidates(space)
    }
}

/// How unlike the sizes of two workloads of one operator are: the sum over the axes of how many times they differ by two.
fn distance(a: &Workload, b: &Workload) -> Option<f64> {
    let (axes, others) = (&a.spec().main().axes, &b.spec().main().axes);
    let is_alike = a.operator().kind().name == b.operator().kind().name && a.dtype() == b.dtype();
    let extent = |axes: &[Axis], name| axes.iter().find(|axis| axis.name == name).map_or(1, |axis| axis.extent) as f64;
    let names: BTreeSet<&str> = axes.iter().chain(others).map(|axis| axis.name).collect();
    let unlike = |name| (extent(axes, name) / extent(others, name)).log2().abs();
    is_alike.then(|| names.into_iter().map(unlike).sum())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use autotune_db::Phase;
    use autotune_ir::Target;

    use super::*;
    use crate::testing::record;

    #[test]
    fn the_fastest_of_the_nearest_are_carried_over() {
        let target = Target::detect("cpu", Some(1)).unwrap();
        let space = |text: &str| ScheduleSpace::new(&text.parse().unwrap(), &target);
        let of = |text: &str, secs: u32| {
            let space = space(text);
            let config = space.iter().nth(secs as usize).unwrap().config().clone();
            TuningRecord { config, ..record(space.workload(), &target, Phase::Search, f64::from(secs), 0) }
        };
        let [near, far, own, other] =
            ["matmul:m=64,n=64,k=32", "matmul:m=2,n=64,k=64", "matmul:m=64,n=64,k=64", "conv2d:c=16,h=8,w=8,o=16,k=1"];
        let mut records: Vec<TuningRecord> =
            [near, far, own, other].iter().flat_map(|text| [3, 1, 2].map(|secs| of(text, secs))).collect();
        records.push(of(far, 9));

        let to = space(own);
        let history = History::new(&records, &[to.workload().clone()]);
        let carried = |text: &str| to.adapt(&of(text, 1).config, &space(text)).unwrap();
        assert_eq!(history.carried(&to, 1), [carried(near)]);
        let both = history.carried(&to, 9);
        assert_eq!(both[0], carried(near));
        assert!(both.len() <= 2 && both.contains(&carried(far)), "{both:?}");
        assert!(History::new(&[], &[]).carried(&to, 9).is_empty());
    }
}
