//! Results that arrive in another order than the candidates, twice, or never.

use std::collections::HashSet;
use std::ops::ControlFlow;

use autotune::search::Random;
use autotune::{Task, Timing, TuneParams, Tuner};
use autotune_db::{Phase, TuningDb};
use autotune_ir::{CpuTarget, Target};
use autotune_measure::{Batches, MeasureError, Measurer, OnResult, RaceResult};
use autotune_schedules::{Candidate, ScheduleSpace};

use crate::support::{PaperDevice, paper_secs};

const TRIALS: usize = 60;

/// Loses every fifth result and reports the following one twice. Each batch is in reverse order.
struct Unreliable(PaperDevice);

impl Measurer for Unreliable {
    fn measure_batches(
        &mut self,
        next_batch: &mut Batches<'_>,
        on_result: &mut OnResult<'_>,
    ) -> Result<(), MeasureError> {
        self.0.measure_batches(next_batch, &mut |position, measurement| match position % 5 {
            1 => ControlFlow::Continue(()),
            2 => {
                on_result(position, measurement.clone())?;
                on_result(position, measurement)
            }
            _ => on_result(position, measurement),
        })
    }

    fn race(&mut self, candidates: &[Candidate], budget_secs: f64) -> Result<RaceResult, MeasureError> {
        self.0.race(candidates, budget_secs)
    }
}

#[test]
fn each_candidate_has_the_result_that_carries_its_position_once() {
    let (target, db) = (Target::Cpu(CpuTarget::generic_avx2(2)), TuningDb::temporary().unwrap());
    let workloads = ["matmul:m=96,n=192,k=64", "matmul:m=20,n=16,k=8"];
    let tasks = workloads.map(|text| Task::single(text.parse().unwrap()));
    let mut device = Unreliable(PaperDevice { backwards: true, ..PaperDevice::default() });
    let params = TuneParams { prediction: None, ..TuneParams::default() };
    let tuner = Tuner::new(&target).params(params).searcher(|_| Random).trials(TRIALS).seed(3);
    let report = tuner.measurer(&mut device).database(&db).tune(&tasks).unwrap();

    let mut records = db.query_target(&target.key()).unwrap();
    records.retain(|record| record.phase == Phase::Search);
    assert_eq!(records.len(), TRIALS - TRIALS / 5);
    assert_eq!(report.new_trials, records.len());
    let known: HashSet<_> = records.iter().map(|record| (&record.workload, record.config.to_string())).collect();
    assert_eq!(known.len(), records.len());
    for record in &records {
        let candidate = ScheduleSpace::new(&record.workload, &target).candidate(&record.config);
        assert_eq!(record.measurement.run_secs(), Some(paper_secs("", &candidate)), "{}", record.config);
    }
}

/// Device of another machine, a third of which others use.
#[derive(Default)]
struct Busy(PaperDevice);

impl Measurer for Busy {
    fn measure_batches(
        &mut self,
        next_batch: &mut Batches<'_>,
        on_result: &mut OnResult<'_>,
    ) -> Result<(), MeasureError> {
        self.0.measure_batches(next_batch, on_result)
    }

    fn race(&mut self, candidates: &[Candidate], budget_secs: f64) -> Result<RaceResult, MeasureError> {
        let mut raced = self.0.race(candidates, budget_secs)?;
        raced.measurements.iter_mut().for_each(|measurement| measurement.taken = 0.375);
        Ok(raced)
    }

    fn reports_load(&self) -> bool {
        true
    }
}

#[test]
fn races_of_other_machines_have_the_load_that_these_report() {
    let target = Target::Cpu(CpuTarget::generic_avx2(1));
    let task = Task::single("matmul:m=16,n=16,k=16".parse().unwrap());
    let db = TuningDb::temporary().unwrap();
    let mut device = Busy::default();
    let tuner = Tuner::new(&target).trials(4).searcher(|_| Random).database(&db).measurer(&mut device);
    let report = tuner.tune(std::slice::from_ref(&task)).unwrap();
    let records = db.query(&task.workload, &target.key()).unwrap();
    let raced = records.iter().filter(|record| matches!(record.phase, Phase::Race { .. }));
    let taken: Vec<f64> = raced.map(|record| record.measurement.taken).collect();
    assert!(!taken.is_empty() && taken.iter().all(|taken| *taken == 0.375), "{taken:?}");
    assert_eq!((report.tasks[0].timing, report.disturbance.load), (Timing::Disturbed, None));
}
