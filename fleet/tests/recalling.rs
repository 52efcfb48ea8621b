//! Tuners that share a collector: what one has measured, another that runs at the same time does
//! not measure again, and each measurement is one record.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use autotune::search::Random;
use autotune::{Report, Setup, Task, Tuner};
use autotune_db::{Phase, TuningDb, TuningRecord};
use autotune_fleet::transport::Dial;
use autotune_fleet::{Fleet, Recalling, Upload};
use autotune_measure::Measurer;

use crate::collector::{SimCollector, lines, memory, records};
use crate::contract::tcp;
use crate::sim::{SimDevice, SimWorker, candidates, check_results, connect, target};

/// Worker, its device, and a tuner connected to it.
fn measuring() -> (SimWorker, SimDevice, Fleet) {
    let (place, device) = (tcp(), SimDevice::default());
    let worker = SimWorker::start(place.listener, "worker", &device);
    let fleet = connect(vec![place.dial]).0.unwrap();
    (worker, device, fleet)
}

fn collecting() -> (SimCollector, Arc<dyn Dial>) {
    let place = tcp();
    (SimCollector::start(place.listener, TuningDb::temporary().unwrap()), place.dial)
}

fn recalling<'a>(fleet: &'a mut Fleet, dial: &Arc<dyn Dial>, db: &'a TuningDb) -> Recalling<'a> {
    Recalling::new(fleet, memory(dial), db, &target().key(), HashMap::new())
}

#[test]
fn a_measurer_with_a_memory_keeps_the_contract_of_measurers() {
    let (_worker, _device, mut fleet) = measuring();
    let (_collector, dial) = collecting();
    let db = TuningDb::temporary().unwrap();
    let mut recalling = recalling(&mut fleet, &dial, &db);
    autotune::contract::measurer(&mut recalling, &target());
    assert_eq!(recalling.answered(), 0);
}

#[test]
fn candidates_that_others_measured_meanwhile_are_answered_and_not_measured() {
    let (_worker, device, mut fleet) = measuring();
    let (_collector, dial) = collecting();
    let db = TuningDb::temporary().unwrap();
    let mut recalling = recalling(&mut fleet, &dial, &db);
    let all = candidates(96, 1);
    let (mut results, mut given) = (Vec::new(), 0);
    // Another tuner stores some results before each batch; it knows the last batch as a whole.
    let mut other = memory(&dial);
    let mut next = || {
        let batch = all[given..(given + 16).min(all.len())].to_vec();
        let known = match given {
            0 => 0,
            80 => 16,
            _ => 8,
        };
        other.store(&lines(&records(given + known, 1)[given..])).unwrap();
        given += batch.len();
        batch
    };

    let measured = recalling.measure_batches(&mut next, &mut |index, measurement| {
        results.push((index, measurement));
        ControlFlow::Continue(())
    });
    measured.unwrap();
    assert_eq!(check_results(&all, results), 0);
    assert_eq!(recalling.answered(), 4 * 8 + 16);
    assert_eq!(device.measured.load(Ordering::SeqCst), 96 - 48);
    assert_eq!(db.len(), 48, "the records of the other tuner");
}

#[test]
fn a_break_ends_the_reports() {
    let (_worker, _device, mut fleet) = measuring();
    let (_collector, dial) = collecting();
    memory(&dial).store(&lines(&records(10, 1))).unwrap();
    let db = TuningDb::temporary().unwrap();
    let mut recalling = recalling(&mut fleet, &dial, &db);
    let mut reported = 0;
    let measured = recalling.measure(&candidates(20, 1), &mut |_, _| {
        reported += 1;
        if reported == 4 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    measured.unwrap();
    assert_eq!(reported, 4);
}

#[test]
fn without_its_collector_a_tuner_measures_all_itself() {
    let (_worker, device, mut fleet) = measuring();
    let (collector, dial) = collecting();
    let db = TuningDb::temporary().unwrap();
    let mut recalling = recalling(&mut fleet, &dial, &db);
    drop(collector);
    let all = candidates(40, 1);
    let mut results = Vec::new();
    let measured = recalling.measure(&all, &mut |index, measurement| {
        results.push((index, measurement));
        ControlFlow::Continue(())
    });
    measured.unwrap();
    assert_eq!(check_results(&all, results), 0);
    assert_eq!(device.measured.load(Ordering::SeqCst), 40);
}

fn tune_on(measurer: &mut dyn Measurer, db: &TuningDb, device: &str) -> Report {
    let setup = Setup { device: device.into(), ..Setup::default() };
    let tuner = Tuner::new(&target()).trials(48).seed(3).measurer(measurer).setup(setup).database(db);
    let task = Task::single(candidates(1, 1)[0].workload().clone());
    tuner.searcher(|_| Random).tune(&[task]).unwrap()
}

#[test]
fn tuners_of_one_task_share_their_measurements_and_each_is_one_record() {
    let (_collector, dial) = collecting();
    let tune = |db: &TuningDb, name: &str| {
        let (_worker, device, mut fleet) = measuring();
        let mut recalling = recalling(&mut fleet, &dial, db);
        let report = tune_on(&mut recalling, db, name);
        assert_eq!(report.tasks[0].trials, 48);
        (recalling.answered(), device.measured.load(Ordering::SeqCst))
    };
    // Both begin with an empty database and the same seed: they propose the same schedules.
    let [first, second] = [(); 2].map(|()| Arc::new(TuningDb::temporary().unwrap()));
    let (answered, _) = tune(&first, "first");
    assert_eq!(answered, 0);
    assert!(
        Upload::start(memory(&dial), Arc::clone(&first), drop).finish(std::time::Duration::from_secs(20)).is_complete
    );
    let (answered, _) = tune(&second, "second");
    assert_eq!(answered, 48);

    let searched = |db: &TuningDb| -> Vec<TuningRecord> {
        let all = db.query_target(&target().key()).unwrap();
        all.into_iter().filter(|record| record.phase == Phase::Search).collect()
    };
    assert_eq!(searched(&second), searched(&first), "with the provenance of the first");
    let configs: HashSet<u64> = searched(&second).iter().map(|record| record.config.stable_hash()).collect();
    assert_eq!(configs.len(), 48);
}
