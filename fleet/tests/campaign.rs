//! Campaign of random faults: workers die, return, hang and are cut off while a tuner measures on
//! them through a transport that loses, repeats, delays and reorders frames. No wish is lost, none
//! is answered twice, and the winner is the same.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use autotune_fleet::transport::Dial;
use autotune_fleet::{FleetBuild, FleetParams};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::long::or_long;
use crate::net::{FrameFaults, MemoryPlace};
use crate::sim::{SimDevice, SimWorker, candidates, check_results, connect_with, measure_all, params, secs_of};

const WORKERS: usize = 3;

/// Faults of all runs together, at least: in an ordinary run, and with `AUTOTUNE_LONG_TESTS=1`.
const FAULTS: [usize; 2] = [60, 400];

/// Makes random faults of a worker until the run is over, and counts them.
fn torment(place: &MemoryPlace, seed: u64, is_over: &AtomicBool, faults: &AtomicUsize) {
    let device = SimDevice::default();
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut worker = SimWorker::start(place.listen(), "worker", &device);
    thread::sleep(Duration::from_millis(100));

    while !is_over.load(Ordering::SeqCst) {
        thread::sleep(Duration::from_millis(rng.random_range(20..200)));
        faults.fetch_add(1, Ordering::SeqCst);
        match rng.random_range(0..3) {
            0 => {
                // As by kill -9: nothing more arrives from it.
                place.cut();
                worker.stop();
                thread::sleep(Duration::from_millis(rng.random_range(0..60)));
                worker = SimWorker::start(place.listen(), "worker", &device);
            }
            1 => {
                worker.stop();
                worker = SimWorker::start(place.listen(), "worker", &device);
            }
            _ => {
                // As by SIGSTOP: sometimes longer than the lease, and then all arrives late.
                place.hold(true);
                thread::sleep(Duration::from_millis(rng.random_range(10..300)));
                place.hold(false);
            }
        }
    }
}

#[test]
fn random_faults_lose_and_double_nothing() {
    let (faults, least) = (AtomicUsize::new(0), or_long(FAULTS));
    for seed in 0.. {
        if faults.load(Ordering::SeqCst) >= least {
            break;
        }
        let frames = FrameFaults { lost: 0.01, doubled: 0.1, delayed: 0.2 };
        let places: Vec<_> = (0..WORKERS as u64).map(|n| MemoryPlace::new("worker", frames, 100 * seed + n)).collect();
        let candidates = candidates(600, seed);
        let is_over = AtomicBool::new(false);
        let results = thread::scope(|scope| {
            for (number, place) in (0..).zip(&places) {
                let (is_over, faults) = (&is_over, &faults);
                scope.spawn(move || torment(place, 100 * seed + number, is_over, faults));
            }
            thread::sleep(Duration::from_millis(50));
            let dials = places.iter().map(|place| Arc::clone(place) as Arc<dyn Dial>).collect();
            // Losses are the worker's here, never the config's.
            let params = FleetParams { deliveries: 1000, ..params() };
            let results =
                connect_with(dials, params, FleetBuild::own()).0.map(|mut fleet| measure_all(&mut fleet, &candidates));
            is_over.store(true, Ordering::SeqCst);
            results
        });

        let results = results.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        println!("seed {seed}: {} results, {} faults so far", results.len(), faults.load(Ordering::SeqCst));
        let fastest = |secs: Vec<f64>| secs.into_iter().min_by(f64::total_cmp);
        let found = fastest(results.iter().filter_map(|(_, measurement)| measurement.run_secs()).collect());
        assert_eq!(found, fastest(candidates.iter().map(secs_of).collect()), "seed {seed}: another winner");
        assert_eq!(check_results(&candidates, results), 0, "seed {seed}");
    }
    println!("{} faults, 0 lost, 0 doubled", faults.load(Ordering::SeqCst));
}
