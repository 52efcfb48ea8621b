//! Several kinds of workers: each is found with its workers, and keys never mix.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;

use autotune_fleet::kinds::finder_of;
use autotune_fleet::transport::Dial;
use autotune_fleet::{DeviceWish, Fleet, FleetError, FleetOptions, WorkerKind};
use autotune_ir::{CpuTarget, Target};
use autotune_measurement::Backend;

use crate::contract::tcp;
use crate::sim::{SimDevice, SimWorker, candidates_on, check_results, measure_all, params, target};

/// Starts a worker whose CPU has some threads.
fn worker(threads: usize) -> (SimWorker, Arc<dyn Dial>, SimDevice) {
    let place = tcp();
    let device = SimDevice { target: Target::Cpu(CpuTarget::generic_avx2(threads)), ..SimDevice::default() };
    (SimWorker::start(place.listener, "worker", &device), place.dial, device)
}

fn key(threads: usize) -> String {
    Target::Cpu(CpuTarget::generic_avx2(threads)).key()
}

fn find(dials: &[Arc<dyn Dial>], threads: Option<usize>) -> (Result<Vec<WorkerKind>, FleetError>, Vec<String>) {
    let mut lines = Vec::new();
    (WorkerKind::find_all(dials, threads, &params(), &mut |line| lines.push(line)), lines)
}

#[test]
fn workers_are_sorted_by_their_keys_and_each_kind_is_tuned_at_the_same_time() {
    let (workers, rest): (Vec<_>, Vec<_>) = [1, 4, 1, 4].map(worker).into_iter().map(|(w, d, s)| (w, (d, s))).unzip();
    let (dials, devices): (Vec<_>, Vec<_>) = rest.into_iter().unzip();
    let kinds = find(&dials, None).0.unwrap();
    let found: Vec<(&str, usize)> = kinds.iter().map(|kind| (kind.key.as_str(), kind.dials.len())).collect();
    assert_eq!(found, [(key(1).as_str(), 2), (&key(4), 2)]);

    thread::scope(|scope| {
        for kind in kinds {
            scope.spawn(move || {
                let wish = DeviceWish { target: kind.key.clone(), threads: None, backend: Backend::Assembler };
                let options = FleetOptions { params: params(), ..FleetOptions::default() };
                let mut fleet = Fleet::connect(kind.dials, &wish, options).unwrap();
                assert_eq!(fleet.target().key(), kind.key);
                let all = candidates_on(fleet.target(), 60, 1);
                assert_eq!(check_results(&all, measure_all(&mut fleet, &all)), 0);
                assert!(fleet.workers().iter().all(|(_, trials)| *trials > 0), "{:?}", fleet.workers());
            });
        }
    });
    let measured: Vec<usize> = devices.iter().map(|device| device.measured.load(Ordering::SeqCst)).collect();
    assert_eq!([measured[0] + measured[2], measured[1] + measured[3]], [60, 60]);
    drop(workers);
}

#[test]
fn threads_make_one_kind_of_cpus_that_have_enough_cores() {
    let (_workers, dials): (Vec<_>, Vec<_>) = [1, 4, 2].map(worker).into_iter().map(|(w, d, _)| (w, d)).unzip();
    let (kinds, lines) = find(&dials, Some(2));
    let kinds = kinds.unwrap();
    assert_eq!(kinds.iter().map(|kind| (kind.key.clone(), kind.dials.len())).collect::<Vec<_>>(), [(key(2), 2)]);
    assert!(lines.len() == 1 && lines[0].contains(&format!("it has {}", target().key())), "{lines:?}");
    let none = find(&dials, Some(8)).0.map(drop);
    assert!(matches!(none, Err(FleetError::NoDevice { .. })), "{none:?}");
}

#[test]
fn workers_that_cannot_be_asked_are_left_out_and_none_is_an_error() {
    assert_eq!(find(&[], None).0.map(drop), Err(FleetError::NoWorker));
    let (stopped, gone, _) = worker(1);
    drop(stopped);
    let nobody = find(&[Arc::clone(&gone)], None).0.map(drop);
    assert!(matches!(nobody, Err(FleetError::Unreachable { .. })), "{nobody:?}");
    let (_worker, there, _) = worker(1);
    let (kinds, lines) = find(&[gone, there], None);
    assert_eq!(kinds.unwrap().len(), 1);
    assert!(lines.len() == 1 && lines[0].contains("is unreachable"), "{lines:?}");
}

#[test]
fn later_workers_join_their_own_kind() {
    let (_workers, dials): (Vec<_>, Vec<_>) = [1, 4, 1].map(worker).into_iter().map(|(w, d, _)| (w, d)).unzip();
    let addresses = |dials: Vec<Arc<dyn Dial>>| dials.iter().map(|dial| dial.address()).collect::<Vec<_>>();
    let expected = [dials[0].address(), dials[2].address()];
    let find = finder_of(&key(1), None, &params(), Box::new(move || dials.clone()));
    for _ in 0..2 {
        assert_eq!(addresses(find()), expected);
    }
}
