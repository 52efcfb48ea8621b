//! Measuring winners again.

use std::time::Instant;

use autotune_db::{Phase, TuningDb};
use autotune_ir::Target;
use autotune_measure::{MeasureError, Measurer};
use autotune_schedules::ScheduleSpace;

use crate::dtype_check::check_dtypes;
use crate::network::Task;
use crate::observer::{Event, Observer};
use crate::options::TuneOptions;
use crate::race::{RACE_SECS, race};
use crate::recorder::Recorder;
use crate::report::{BenchReport, TaskReport};
use crate::session::{TuneError, check_space};

/// Measures the best known config of each task against its default, interleaved and checked, and appends the results to `db`.
/// A task of which nothing is known yet has its default measured. Of `options`, the ceilings, the setup and the cancelling
/// count.
pub fn bench(
    tasks: &[Task],
    target: &Target,
    options: &TuneOptions,
    measurer: &mut dyn Measurer,
    db: &TuningDb,
    observer: &mut dyn Observer,
) -> Result<BenchReport, TuneError> {
    check_dtypes(&tasks.iter().map(|task| task.workload).collect::<Vec<_>>(), target)?;
    let start = Instant::now();
    let recorder = Recorder::new(db, target, options);
    let mut reports = Vec::new();
    for (i, task) in tasks.iter().enumerate() {
        if options.cancel.is_cancelled() {
            break;
        }
        observer.event(&Event::Racing { task: i });
        let space = ScheduleSpace::new(&task.workload, target);
        check_space(&space)?;
        recorder.follow(&space);
        match race(&recorder, &space, 0, RACE_SECS, measurer) {
            Err(TuneError::Measure(MeasureError::Interrupted)) => break,
            Err(TuneError::Measure(why)) => observer.event(&Event::RaceFailed { task: i, why: &why }),
            raced => raced?,
        }
        let searched = recorder.measured(&task.workload)?.into_iter().filter(|r| r.phase == Phase::Search);
        let outcomes: Vec<_> = searched.map(|r| r.measurement.outcome).collect();
        reports.push(TaskReport {
            trials: outcomes.len(),
            failed_trials: outcomes.iter().filter(|outcome| outcome.is_err()).count(),
            ..TaskReport::new(task, recorder.standing(&space), options.ceilings)
        });
    }
    Ok(BenchReport { target: target.key(), tasks: reports, tuning_secs: start.elapsed().as_secs_f64() })
}
