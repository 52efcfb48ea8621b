//! Final race of the best few configs of a task against its default.

use std::time::Instant;

use autotune_db::{DbError, Phase, TuningRecord};
use autotune_measure::{Measurer, RaceResult};
use autotune_measurement::Measurement;
use autotune_schedules::{Candidate, Config, ScheduleSpace};
use autotune_workloads::Workload;

use crate::error::TuneError;
use crate::params::RaceParams;
use crate::recorder::{Recorder, since_1970};

/// Races a task's schedules with interleaved timing and appends the results. The racers are the
/// default, the winner of the last race, the best, and up to `more` others as `budget_secs` allows:
/// the best in other layouts, and fast ones. The fastest racer is the best from then on, even if it
/// is the default. A race whose fastest racer is much slower than it was before is repeated while
/// there is time.
///
/// Times of candidates that could not be interleaved are appended as those of a search, and the
/// returned error has the reason.
pub(crate) fn race(
    recorder: &Recorder<'_>,
    space: &ScheduleSpace,
    more: usize,
    budget_secs: f64,
    measurer: &mut dyn Measurer,
) -> Result<(), TuneError> {
    let start = Instant::now();
    let params = &recorder.settings.params.race;
    let records = recorder.measured(space.workload())?;
    let RaceField { mut candidates, fixed } = RaceField::of(recorder, space, &records, more, budget_secs)?;
    let known_secs = candidates.iter().filter_map(|candidate| fastest_secs(&records, candidate));
    let least_secs = known_secs.reduce(f64::min);
    for attempt in 1..=params.attempts {
        let id = since_1970().as_nanos() as u64;
        let (raced, taken) = recorder.watched(|| measurer.race(&candidates, budget_secs));
        let RaceResult { mut measurements, failure } = raced?;
        if !recorder.settings.reports_load {
            measurements.iter_mut().for_each(|measurement| measurement.taken = taken);
        }
        let phase = if failure.is_some() { Phase::Search } else { Phase::Race { id } };
        for (candidate, measurement) in candidates.iter().zip(&measurements) {
            recorder.append(candidate, measurement, phase)?;
        }
        if let Some(failure) = failure {
            recorder.flush()?;
            return Err(failure.into());
        }

        let is_over = attempt == params.attempts || start.elapsed().as_secs_f64() > params.again_within * budget_secs;
        if is_over || !is_disturbed(&measurements, least_secs, params) {
            break;
        }
        candidates = finalists(candidates, &measurements, fixed, params);
    }
    Ok(recorder.flush()?)
}

/// Participants of a race.
struct RaceField {
    candidates: Vec<Candidate>,
    /// Number of leading candidates that stay in all repetitions of the race.
    fixed: usize,
}

impl RaceField {
    fn of(
        recorder: &Recorder<'_>,
        space: &ScheduleSpace,
        records: &[TuningRecord],
        more: usize,
        budget_secs: f64,
    ) -> Result<Self, TuneError> {
        let (workload, key) = (space.workload(), recorder.target.key());
        let fits = |config: &Config| space.contains(config);
        let mut candidates: Vec<Candidate> = vec![space.default_candidate().clone()];
        let mut enter = |config: &Config| {
            let is_in = candidates.iter().any(|candidate| candidate.config() == config);
            let proven = || match recorder.has_run(space, config) {
                true => Some(space.candidate(config)),
                false => space.checked(config).ok(),
            };
            candidates.extend((!is_in).then(proven).flatten());
            candidates.len()
        };

        let fixed = last_winner(records).map_or(1, |winner| enter(&winner.config));

        let best = recorder.db.best(workload, &key, &fits)?.map(|best| best.record);
        let best_secs = best.as_ref().and_then(|record| record.measurement.run_secs());
        let runs = recorder.settings.params.race.runs_of_racer;
        let affordable = best_secs.map_or(f64::INFINITY, |secs| budget_secs / (runs * secs));
        let entered = best.iter().map(|record| enter(&record.config)).last().unwrap_or(fixed);
        let more = more.min((affordable as usize).saturating_sub(entered));
        let top = recorder.db.top(workload, &key, more, &fits)?;
        // A network may need the best schedule in another layout, which the search may hardly have
        // tried.
        let mut others = top.first().map(|record| space.in_other_layouts(&record.config)).unwrap_or_default();
        others.truncate(more / 2);
        let fastest = top.iter().take(more - others.len()).map(|record| &record.config);
        for config in others.iter().map(Candidate::config).chain(fastest) {
            enter(config);
        }
        Ok(Self { candidates, fixed })
    }
}

/// Returns the fastest racer of the last race. It must race again, because many that seemed faster
/// since then were only lucky.
fn last_winner(records: &[TuningRecord]) -> Option<&TuningRecord> {
    let raced = |record: &&TuningRecord| matches!(record.phase, Phase::Race { .. });
    let last = records.iter().rfind(raced)?.phase;
    let racers = records.iter().filter(|record| record.phase == last);
    let timed = racers.filter_map(|record| Some((record, record.measurement.run_secs()?)));
    timed.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(record, _)| record)
}

/// Returns the fastest time measured for a config.
fn fastest_secs(records: &[TuningRecord], config: &Config) -> Option<f64> {
    let own = records.iter().filter(|r| r.config == *config).filter_map(|r| r.measurement.run_secs());
    own.min_by(f64::total_cmp)
}

/// Returns true if the fastest racer is much slower than the fastest of the racers was before, so
/// that other programs probably used the machine.
fn is_disturbed(measurements: &[Measurement], least_secs: Option<f64>, params: &RaceParams) -> bool {
    let now_secs = measurements.iter().filter_map(Measurement::run_secs).reduce(f64::min);
    now_secs.zip(least_secs).is_some_and(|(now, least)| now > params.disturbed * least)
}

/// Returns the first `fixed` candidates and the fastest of the others.
fn finalists(
    candidates: Vec<Candidate>,
    measurements: &[Measurement],
    fixed: usize,
    params: &RaceParams,
) -> Vec<Candidate> {
    let secs = |i: &usize| measurements[*i].run_secs().unwrap_or(f64::INFINITY);
    let mut others: Vec<usize> = (fixed..candidates.len()).collect();
    others.sort_by(|a, b| secs(a).total_cmp(&secs(b)));
    others.truncate((1 + params.finalists).saturating_sub(fixed));
    let goes_on = |(i, candidate)| (i < fixed || others.contains(&i)).then_some(candidate);
    candidates.into_iter().enumerate().filter_map(goes_on).collect()
}

/// Returns true if the task's last measurement was a race.
pub(crate) fn is_raced(recorder: &Recorder<'_>, workload: &Workload) -> Result<bool, DbError> {
    let last = recorder.measured(workload)?.pop();
    Ok(last.is_some_and(|record| matches!(record.phase, Phase::Race { .. })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{ran, record};
    use autotune_ir::Target;

    #[test]
    fn a_race_is_disturbed_if_its_fastest_is_slower_than_known() {
        let (race, params) = ([ran(2.0), ran(2.5)], RaceParams::default());
        assert!(is_disturbed(&race, Some(1.0), &params));
        assert!(!is_disturbed(&race, Some(1.9), &params));
        assert!(!is_disturbed(&race, None, &params));
        assert!(!is_disturbed(&[], Some(1.0), &params));
    }

    #[test]
    fn the_winner_of_the_last_race_is_its_fastest() {
        let (workload, target) = ("matmul:m=4,n=4,k=4".parse().unwrap(), Target::detect("cpu", Some(1)).unwrap());
        let record = |phase, run_secs, unix_secs| record(&workload, &target, phase, run_secs, unix_secs);
        let race = |id| Phase::Race { id };
        assert!(last_winner(&[record(Phase::Search, 1.0, 0)]).is_none());
        let records = [
            record(race(1), 1.0, 1),
            record(Phase::Search, 0.5, 2),
            record(race(2), 4.0, 3),
            record(race(2), 3.0, 4),
            record(race(2), 5.0, 5),
            record(Phase::Search, 0.5, 6),
        ];
        assert_eq!(last_winner(&records).unwrap().provenance.unix_secs, 4);
    }

    #[test]
    fn the_default_the_last_winner_and_the_fastest_race_again() {
        let workload: Workload = "matmul:m=4,n=4,k=4".parse().unwrap();
        let target = Target::detect("cpu", Some(1)).unwrap();
        let config = ScheduleSpace::new(&workload, &target).default_config();
        let candidate = |i: usize| {
            let workload = workload.with_exact(i % 2 == 1);
            Candidate::new(&workload, &target, config.clone())
        };
        let race = [9.0, 8.0, 1.0, 7.0, 2.0, 3.0, 6.0].map(ran);
        let params = RaceParams::default();
        let all = || (0..race.len()).map(candidate).collect::<Vec<_>>();
        let kept = finalists(all(), &race, 1, &params);
        let odd: Vec<bool> = kept.iter().map(|candidate| candidate.workload().is_exact()).collect();
        // Indices 0, 2, 4, 5 and 6 remain.
        assert_eq!(odd, [false, false, false, true, false]);
        assert_eq!(finalists(kept, &race[..5], 1, &params).len(), 5);
        // Indices 0, 1, 2, 4 and 5 remain: the previous winner stays, however slow it was.
        let kept: Vec<bool> =
            finalists(all(), &race, 2, &params).iter().map(|candidate| candidate.workload().is_exact()).collect();
        assert_eq!(kept, [false, true, false, false, true]);
    }
}
