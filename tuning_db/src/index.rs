//! What the store keeps per task (workload and target) so that the best record is found without a scan.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::record::{Phase, TuningRecord};

/// A record that ran: its place in the task's log, its time and its config.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Timed {
    pub(crate) seq: u64,
    pub(crate) run_secs: f64,
    pub(crate) config_hash: u64,
}

impl Timed {
    fn of(seq: u64, record: &TuningRecord) -> Option<Self> {
        let run_secs = record.measurement.run_secs()?;
        Some(Self { seq, run_secs, config_hash: record.config.stable_hash() })
    }
}

/// The faster of the two; the first if they tie.
fn faster(first: Option<Timed>, second: Option<Timed>) -> Option<Timed> {
    match (first, second) {
        (Some(a), Some(b)) => Some(if b.run_secs < a.run_secs { b } else { a }),
        (a, b) => a.or(b),
    }
}

/// The race that the newest record of a task belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Race {
    id: u64,
    incumbent: Option<Timed>,
    incumbent_raced: bool,
    fastest: Option<Timed>,
}

/// A fold over the log of one task. See [`TuningDb::best`](crate::TuningDb::best) for what it computes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct TaskIndex {
    /// Number of records, which is the place of the next one.
    pub(crate) records: u64,
    /// The best record.
    pub(crate) best: Option<Timed>,
    race: Option<Race>,
}

impl TaskIndex {
    /// Takes in the next record of the task.
    pub(crate) fn push(&mut self, record: &TuningRecord) {
        let timed = Timed::of(self.records, record);
        self.records += 1;
        let Phase::Race { id } = record.phase else {
            self.race = None;
            self.best = faster(self.best, timed);
            return;
        };
        let mut race = match self.race {
            Some(race) if race.id == id => race,
            _ => Race { id, incumbent: self.best, incumbent_raced: false, fastest: None },
        };
        race.incumbent_raced |= race.incumbent.is_some_and(|i| i.config_hash == record.config.stable_hash());
        race.fastest = faster(race.fastest, timed);
        self.best = if race.incumbent_raced { race.fastest } else { faster(race.incumbent, race.fastest) };
        self.race = Some(race);
    }
}

/// Places of the `k` records that are most worth racing, fastest first, one per config.
///
/// A config stands with its fastest record of the last race it took part in (and is left out if it failed there), else with
/// its fastest record of the search. Ties go to the earlier record.
pub(crate) fn ranking(log: &[TuningRecord], k: usize) -> Vec<usize> {
    struct Standing {
        race: Option<u64>,
        timed: Option<Timed>,
    }
    let mut standings: HashMap<u64, Standing> = HashMap::new();
    for (place, record) in log.iter().enumerate() {
        let timed = Timed::of(place as u64, record);
        let standing = standings.entry(record.config.stable_hash()).or_insert(Standing { race: None, timed: None });
        match (record.phase, standing.race) {
            (Phase::Search, Some(_)) => {}
            (Phase::Race { id }, race) if race != Some(id) => *standing = Standing { race: Some(id), timed },
            _ => standing.timed = faster(standing.timed, timed),
        }
    }
    let mut ranked: Vec<Timed> = standings.into_values().filter_map(|s| s.timed).collect();
    ranked.sort_by(|a, b| a.run_secs.total_cmp(&b.run_secs).then(a.seq.cmp(&b.seq)));
    ranked.iter().take(k).map(|t| t.seq as usize).collect()
}
