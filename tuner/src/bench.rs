//! Repeated measurement of the best known schedules.

use std::time::Instant;

use autotune_db::{Phase, TuningDb};
use autotune_deploy::predict;
use autotune_ir::Target;
use autotune_measure::{MeasureError, Measurer};

use crate::error::TuneError;
use crate::network::Task;
use crate::observer::{Event, Observer};
use crate::race::race;
use crate::recorder::Recorder;
use crate::report::{BenchReport, Disturbance};
use crate::settings::Settings;

/// Measures the best known config of each task against its default, interleaved and checked, and
/// appends the results to `db`. If no schedule of a task is known, only its default is measured. Of
/// the settings, limits and seed are ignored.
pub(crate) fn bench(
    tasks: &[Task],
    target: &Target,
    settings: &Settings,
    measurer: &mut dyn Measurer,
    db: &TuningDb,
    observer: &mut dyn Observer,
) -> Result<BenchReport, TuneError> {
    let start = Instant::now();
    let [_, most_secs] = settings.params.race.budget_secs;
    let recorder = Recorder::new(db, target, settings);
    let mut reports = Vec::new();
    for (i, task) in tasks.iter().enumerate() {
        if settings.cancel.is_cancelled() {
            break;
        }

        observer.event(&Event::Racing { task: i });
        let space = predict::space(&task.workload, target, settings.params.predicts_by());
        TuneError::of_space(&space)?;
        recorder.follow(&space);
        match race(&recorder, &space, 0, most_secs, measurer) {
            Err(TuneError::Measure(MeasureError::Interrupted)) => break,
            Err(TuneError::Measure(why)) => observer.event(&Event::RaceFailed { task: i, why: &why }),
            raced => raced?,
        }

        let searched = recorder.measured(&task.workload)?.into_iter().filter(|r| r.phase == Phase::Search);
        let outcomes: Vec<_> = searched.map(|r| r.measurement.outcome).collect();
        let mut report = recorder.best_of(&space).into_report(task, settings.ceilings);
        report.trials = outcomes.len();
        report.failed_trials = outcomes.iter().filter(|outcome| outcome.is_err()).count();
        reports.push(report);
    }
    let disturbance = Disturbance { load: recorder.load(), slowdown: None };
    Ok(BenchReport { target: target.key(), tasks: reports, tuning_secs: start.elapsed().as_secs_f64(), disturbance })
}
