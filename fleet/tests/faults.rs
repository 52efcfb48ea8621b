//! Faults one by one: death, silence, stop in good order, repetition, poison.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use autotune_fleet::transport::Dial;
use autotune_fleet::{Fleet, FleetOptions, FleetParams, WorkerOptions};
use autotune_measure::{MeasureError, Measurer};

use crate::contract::tcp;
use crate::net::{FrameFaults, MemoryPlace};
use crate::sim::{
    SimDevice, SimWorker, candidates, check_results, connect, connect_with, measure_all, params, wait_until, wish,
};

fn place(name: &str) -> Arc<MemoryPlace> {
    MemoryPlace::new(name, FrameFaults::default(), 1)
}

fn measured(device: &SimDevice) -> usize {
    device.measured.load(Ordering::SeqCst)
}

#[test]
fn wishes_of_a_killed_worker_are_measured_by_another() {
    let places = [place("a"), place("b")];
    let device = SimDevice::default();
    let _workers = places.each_ref().map(|place| SimWorker::start(place.listen(), "worker", &device));
    let (fleet, notices) = connect(places.iter().map(|place| Arc::clone(place) as Arc<dyn Dial>).collect());
    let mut fleet = fleet.unwrap();
    let candidates = candidates(80, 2);
    let victim = Arc::clone(&places[0]);
    let killer = thread::spawn(move || {
        wait_until("half is measured", || measured(&device) > 30);
        victim.cut();
    });
    assert_eq!(check_results(&candidates, measure_all(&mut fleet, &candidates)), 0);
    killer.join().unwrap();
    assert!(notices.lock().unwrap().iter().any(|line| line.contains("is lost")));
}

#[test]
fn a_worker_that_stops_in_good_order_loses_nothing() {
    let places = [tcp(), tcp()];
    let device = SimDevice::default();
    let dials = places.iter().map(|place| Arc::clone(&place.dial)).collect();
    let mut workers = places.map(|place| SimWorker::start(place.listener, "worker", &device));
    // A single lost delivery would be a failure.
    let params = FleetParams { deliveries: 1, ..params() };
    let mut fleet = connect_with(dials, params, autotune_fleet::FleetBuild::own()).0.unwrap();
    let candidates = candidates(80, 2);
    let stopper = thread::spawn(move || {
        wait_until("half is measured", || measured(&device) > 30);
        let start = Instant::now();
        workers[0].stop();
        (workers, start.elapsed())
    });
    assert_eq!(check_results(&candidates, measure_all(&mut fleet, &candidates)), 0);
    assert!(stopper.join().unwrap().1 < Duration::from_secs(5));
}

#[test]
fn late_results_of_a_lost_lease_are_the_same_records() {
    let places = [place("slow"), place("other")];
    let device = SimDevice::default();
    let _workers = places.each_ref().map(|place| SimWorker::start(place.listen(), "worker", &device));
    let (fleet, notices) = connect(places.iter().map(|place| Arc::clone(place) as Arc<dyn Dial>).collect());
    let mut fleet = fleet.unwrap();
    let candidates = candidates(400, 2);
    let paused = Arc::clone(&places[0]);
    let pauser = thread::spawn(move || {
        wait_until("some are measured", || measured(&device) > 50);
        paused.hold(true);
        thread::sleep(Duration::from_millis(350));
        paused.hold(false);
    });
    assert_eq!(check_results(&candidates, measure_all(&mut fleet, &candidates)), 0);
    pauser.join().unwrap();
    let told = notices.lock().unwrap().join("\n");
    assert!(told.contains("reports no progress"), "{told}");
}

#[test]
fn a_config_that_kills_every_worker_is_a_failure_and_the_others_are_not() {
    let places = [place("a"), place("b")];
    let candidates = candidates(30, 5);
    let device = SimDevice { poison: Some(candidates[7].stable_hash()), ..SimDevice::default() };
    let is_over = Arc::new(AtomicBool::new(false));
    // Each dead worker is started again.
    let keepers = places.clone().map(|place| {
        let device = SimDevice { is_dying: Arc::default(), ..device.clone() };
        let is_over = Arc::clone(&is_over);
        thread::spawn(move || {
            let mut deaths = 0;
            let mut worker = SimWorker::start(place.listen(), "worker", &device);
            while !is_over.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_millis(1));
                if device.is_dying.swap(false, Ordering::SeqCst) {
                    deaths += 1;
                    place.cut();
                    worker.stop();
                    worker = SimWorker::start(place.listen(), "worker", &device);
                }
            }
            drop(worker);
            deaths
        })
    });
    wait_until("both listen", || places.iter().all(|place| place.dial(Duration::from_secs(1)).is_ok()));
    let mut fleet = connect(places.iter().map(|place| Arc::clone(place) as Arc<dyn Dial>).collect()).0.unwrap();
    let results = measure_all(&mut fleet, &candidates);
    is_over.store(true, Ordering::SeqCst);
    let deaths: usize = keepers.into_iter().map(|keeper| keeper.join().unwrap()).sum();

    let failed: Vec<usize> = results.iter().filter(|(_, m)| m.run_secs().is_none()).map(|(index, _)| *index).collect();
    assert_eq!(check_results(&candidates, results), 1);
    assert_eq!((failed, deaths), (vec![7], 3), "one delivery in a batch and two alone");
}

#[test]
fn repeated_delayed_and_lost_frames_change_no_result() {
    for seed in 0..4 {
        let faults = FrameFaults { lost: 0.03, doubled: 0.2, delayed: 0.3 };
        let places = [1, 2, 3].map(|number| MemoryPlace::new("noisy", faults, 10 * seed + number));
        let device = SimDevice::default();
        let _workers = places.each_ref().map(|place| SimWorker::start(place.listen(), "worker", &device));
        let dials = places.iter().map(|place| Arc::clone(place) as Arc<dyn Dial>).collect();
        // Lost frames cost deliveries, too.
        let params = FleetParams { deliveries: 1000, ..params() };
        let mut fleet = match connect_with(dials, params, autotune_fleet::FleetBuild::own()).0 {
            Ok(fleet) => fleet,
            Err(error) => panic!("seed {seed}: {error}"),
        };
        let candidates = candidates(60, seed);
        assert_eq!(check_results(&candidates, measure_all(&mut fleet, &candidates)), 0, "seed {seed}");
    }
}

#[test]
fn an_interruption_ends_soon_and_returns_the_leases() {
    let place = tcp();
    let device = SimDevice { wish: Duration::from_millis(20), ..SimDevice::default() };
    let _worker = SimWorker::start(place.listener, "worker", &device);
    let is_interrupted = Arc::new(AtomicBool::new(false));
    let switch = Arc::clone(&is_interrupted);
    let asked = Arc::new(move || switch.load(Ordering::SeqCst));
    let options = FleetOptions { params: params(), is_interrupted: asked, ..FleetOptions::default() };
    let mut fleet = Fleet::connect(vec![Arc::clone(&place.dial)], &wish(), options).unwrap();
    let mut interrupted_at = None;
    let measured = fleet.measure(&candidates(60, 1), &mut |index, _| {
        if index == 3 {
            is_interrupted.store(true, Ordering::SeqCst);
            interrupted_at = Some(Instant::now());
        }
        ControlFlow::Continue(())
    });
    assert!(matches!(measured, Err(MeasureError::Interrupted)), "{measured:?}");
    assert!(interrupted_at.unwrap().elapsed() < Duration::from_secs(1));
    wait_until("the worker has nothing to do", || {
        autotune_fleet::query(&*place.dial, &params()).is_ok_and(|asked| asked.state.queued == 0)
    });
}

#[test]
fn a_run_without_workers_gives_up_and_says_so() {
    let place = place("only");
    let device = SimDevice::default();
    let _worker = SimWorker::start(place.listen(), "worker", &device);
    let params = FleetParams { give_up: Duration::from_millis(300), ..params() };
    let dials = vec![Arc::clone(&place) as Arc<dyn Dial>];
    let mut fleet = connect_with(dials, params, autotune_fleet::FleetBuild::own()).0.unwrap();
    let candidates = candidates(60, 1);
    let measured = fleet.measure(&candidates, &mut |index, _| {
        if index == 3 {
            place.cut();
        }
        ControlFlow::Continue(())
    });
    let Err(MeasureError::Device { message }) = measured else { panic!("{measured:?}") };
    assert!(message.contains("all workers are lost"), "{message}");
}

#[test]
fn idle_workers_exit_and_busy_ones_stay() {
    let place = tcp();
    let idle = Some(Duration::from_millis(200));
    let options = WorkerOptions { exit_when_idle: idle, params: params(), ..WorkerOptions::new("brief") };
    let device = SimDevice::default();
    let mut worker = SimWorker::start_with(place.listener, options, &device);
    let fleet = connect(vec![Arc::clone(&place.dial)]).0.unwrap();
    thread::sleep(Duration::from_millis(400));
    assert!(autotune_fleet::query(&*place.dial, &params()).is_ok(), "a tuner is connected");
    drop(fleet);
    wait_until("it exits", || autotune_fleet::query(&*place.dial, &params()).is_err());
    worker.stop();
}
