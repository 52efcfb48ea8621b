//! More workers than wishes in a batch of the searcher.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use autotune_fleet::FleetParams;
use autotune_fleet::message::FleetBuild;
use autotune_fleet::transport::Dial;
use autotune_measure::Measurer;

use crate::net::{FrameFaults, MemoryPlace};
use crate::sim::{SimDevice, SimWorker, candidates, check_results, connect_with, params};

#[test]
fn all_of_many_workers_get_wishes_from_small_batches() {
    const WORKERS: usize = 24;
    let device = SimDevice { wish: Duration::from_millis(40), ..SimDevice::default() };
    let faults = FrameFaults::default();
    let places: Vec<_> = (0..WORKERS as u64).map(|seed| MemoryPlace::new("worker", faults, seed)).collect();
    let _workers: Vec<_> = places.iter().map(|place| SimWorker::start(place.listen(), "worker", &device)).collect();
    let dials = places.iter().map(|place| Arc::clone(place) as Arc<dyn Dial>).collect();
    let params = FleetParams { lease: Duration::from_secs(10), ..params() };
    let mut fleet = connect_with(dials, params, FleetBuild::own()).0.unwrap();

    // Each batch is for a single worker; a new one is asked for until none is hungry.
    let candidates = candidates(5 * WORKERS, 3);
    let (mut batches, mut results) = (candidates.chunks(1), Vec::new());
    let measured =
        fleet.measure_batches(&mut || batches.next().unwrap_or_default().to_vec(), &mut |index, measured| {
            results.push((index, measured));
            ControlFlow::Continue(())
        });
    measured.unwrap();
    assert_eq!(check_results(&candidates, results), 0);
    let idle: Vec<_> = fleet.workers().into_iter().filter(|(_, trials)| *trials == 0).collect();
    assert!(idle.is_empty(), "{} of {WORKERS} workers got no wish", idle.len());
}
