//! Storage of a race's results.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use autotune::{Query, Tuned};
use autotune_db::{Phase, Source, TimeProvenance, TuningRecord};
use autotune_schedules::Config;
use autotune_workloads::Workload;

use super::{Entrant, NetworkRace, RaceError, config, is_faster, is_same, median_ratio};
use crate::choose::Choice;
use crate::cut::step_number;
use crate::error::CompileError;
use crate::quantile::{QUIET, quantile};

/// Common data of a race's records.
struct RaceRecords {
    rounds: usize,
    now: Duration,
    harness: String,
    /// Records of separately measured schedules, looked up so far.
    alone: HashMap<(Workload, Config), Option<TuningRecord>>,
}

impl NetworkRace<'_> {
    /// Stores the schedules of the best network if it is faster than the one before, else those of
    /// the latter unless they are stored already. Returns true if there are new records.
    pub(super) fn keep(&self, mut before: Entrant, best: &mut Entrant, rounds: usize) -> Result<bool, RaceError> {
        let network = self.cut.fingerprint(self.graph);
        let mut was_raced = false;
        for (workload, _) in self.by_workload.groups() {
            was_raced |= self.knows(workload, network)?;
        }

        if is_same(&before.choice, &best.choice) {
            if was_raced {
                return Ok(false);
            }
            let [secs] = self.secs([&mut before], rounds)?;
            return self.append((&before.choice, quantile(secs, QUIET)), None, rounds);
        }

        let [before_secs, best_secs] = self.secs([&mut before, best], rounds)?;
        let wins = is_faster(&best_secs, &before_secs);
        let (gain, before_secs) = (median_ratio(&best_secs, &before_secs), quantile(before_secs, QUIET));
        match (wins, was_raced) {
            (true, _) => {
                // The ratio is more reliable than separate times.
                let kept = (&best.choice, gain * before_secs);
                self.append(kept, Some((&before.choice, before_secs)), rounds)
            }
            (false, true) => Ok(false),
            (false, false) => self.append((&before.choice, before_secs), None, rounds),
        }
    }

    /// Appends the records of a choice, and of the slower one before it, with the seconds of the
    /// whole network. Returns true if there are any.
    pub(super) fn append(
        &self,
        (kept, kept_secs): (&Choice, f64),
        before: Option<(&Choice, f64)>,
        rounds: usize,
    ) -> Result<bool, RaceError> {
        let harness = format!("{{\"within\":\"{}\",\"rounds\":{rounds}}}", self.graph.name().escape_default());
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut raced = RaceRecords { rounds, now, harness, alone: HashMap::new() };
        let mut records = Vec::new();
        for (number, step) in self.parts(self.cut.fingerprint(self.graph), kept)? {
            let is_own = |tuned: &&Tuned| Some(tuned.workload()) == self.by_workload.workload(step);
            let Some(tuned) = kept[step].as_ref().filter(is_own) else { continue };
            records.extend(self.record(tuned, number, kept_secs, &mut raced)?);
            let previous = before.and_then(|(choice, secs)| Some((choice[step].as_ref()?, secs)));
            if let Some((previous, secs)) = previous.filter(|(previous, _)| previous.config() != tuned.config()) {
                records.extend(self.record(previous, number, secs, &mut raced)?);
            }
        }
        // Records are stored together or not at all, since only schedules that ran together are a
        // valid choice.
        let appended = self.db.append_all(&records)?;
        self.db.flush()?;
        Ok(appended > 0)
    }

    /// Returns the numbers that records are stored for, each with a representative step: the
    /// network's number for each workload, and the number of each step whose workload has, or had,
    /// differing schedules.
    fn parts(&self, network: u64, kept: &Choice) -> Result<Vec<(u64, usize)>, RaceError> {
        let mut parts = Vec::new();
        for (workload, steps) in self.by_workload.groups() {
            parts.push((network, steps[0]));
            if steps.len() == 1 {
                continue;
            }
            let differ = steps.iter().any(|&step| config(&kept[step]) != config(&kept[steps[0]]));
            for &step in steps {
                let number = step_number(network, step);
                if differ || self.knows(workload, number)? {
                    parts.push((number, step));
                }
            }
        }
        Ok(parts)
    }

    fn knows(&self, workload: &Workload, number: u64) -> Result<bool, RaceError> {
        Ok(self.db.knows(&workload.within(Some(number)), &self.target.key())?)
    }

    /// Returns the record of a schedule measured alone, outside a network, on this machine.
    pub(super) fn measured(&self, tuned: &Tuned) -> Result<Option<TuningRecord>, RaceError> {
        let own = |config: &_| config == tuned.config();
        let query = Query::new(tuned.workload(), self.target).source(self.db).fitting(&own);
        let found = query.record().map_err(CompileError::from)?;
        let best = found.as_ref().and_then(Tuned::best).filter(|best| best.standing != TimeProvenance::Claimed);
        Ok(best.map(|best| best.record.clone()))
    }

    /// Returns the record of a schedule with the seconds of a whole network; `None` if the schedule
    /// was not measured alone on this machine.
    fn record(
        &self,
        tuned: &Tuned,
        number: u64,
        secs: f64,
        raced: &mut RaceRecords,
    ) -> Result<Option<TuningRecord>, RaceError> {
        let alone = match raced.alone.entry((tuned.workload().clone(), tuned.config().clone())) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(open) => open.insert(self.measured(tuned)?),
        };
        let Some(mut record) = alone.clone() else { return Ok(None) };
        let Ok(times) = &mut record.measurement.outcome else { return Ok(None) };

        // The whole network's time replaces the single kernel's.
        (times.run_secs, times.median_secs, times.spread) = (secs, secs, 0.0);
        (times.repeats, times.slowdown, times.kernel_secs) = (raced.rounds, 1.0, 0.0);
        (record.measurement.build_secs, record.measurement.measure_secs) = (0.0, 0.0);
        record.workload = tuned.workload().within(Some(number));
        record.phase = Phase::Race { id: raced.now.as_nanos() as u64 };
        record.provenance.unix_secs = raced.now.as_secs();
        record.provenance.harness = raced.harness.clone();
        Ok(Some(record))
    }
}
