//! Contract suite of transports, applied to TCP, Unix sockets and memory: frames arrive whole, in
//! order and bounded, the end of a side is noticed, and a fleet keeps the contract of measurers.

use std::any::Any;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use autotune_fleet::params::MAX_FRAME_BYTES;
use autotune_fleet::transport::{Arrival, Dial, FrameReceiver, Listen, Wire};
use autotune_fleet::{FleetError, SocketPlace};
use autotune_measure::Measurer;
use autotune_measurement::Measurement;

use crate::net::{FrameFaults, MemoryPlace};
use crate::sim::{SimDevice, SimWorker, candidates, check_results, connect, measure_all, secs_of, target};

/// Place at which a worker listens, and how tuners reach it.
pub struct Place {
    pub dial: Arc<dyn Dial>,
    pub listener: Box<dyn Listen>,
    /// Folder or server that the place needs.
    _needed: Option<Box<dyn Any>>,
}

pub fn tcp() -> Place {
    let place: SocketPlace = "127.0.0.1:0".parse().unwrap();
    let listener = place.listen().unwrap();
    let dial: SocketPlace = listener.address().parse().unwrap();
    Place { dial: Arc::new(dial), listener, _needed: None }
}

fn unix() -> Place {
    let folder = tempfile::tempdir().unwrap();
    let place = SocketPlace::Unix(folder.path().join("worker.sock"));
    let listener = place.listen().unwrap();
    Place { dial: Arc::new(place), listener, _needed: Some(Box::new(folder)) }
}

fn memory() -> Place {
    let place = MemoryPlace::new("memory", FrameFaults::default(), 1);
    let listener = place.listen();
    Place { dial: place, listener, _needed: None }
}

#[cfg(feature = "nats")]
fn nats() -> Place {
    let (team, server) = crate::server::shared_team().unwrap();
    let listener = team.listen().unwrap();
    let dial = team.find().unwrap().remove(0);
    Place { dial, listener, _needed: Some(Box::new(server)) }
}

/// Returns the transports under test: NATS if the program has it and a server is there.
pub fn places() -> Vec<fn() -> Place> {
    let mut places = vec![tcp as fn() -> Place, unix, memory];
    places.extend(nats_place());
    places
}

#[cfg(feature = "nats")]
fn nats_place() -> Option<fn() -> Place> {
    crate::server::shared_team().map(|_| nats as _)
}

#[cfg(not(feature = "nats"))]
fn nats_place() -> Option<fn() -> Place> {
    None
}

const SOON: Duration = Duration::from_millis(10);
const LIMIT: Duration = Duration::from_secs(5);

/// Returns both sides of a connection.
fn connected(place: &mut Place) -> (Wire, Wire) {
    let tuner = place.dial.dial(LIMIT).unwrap();
    let worker = place.listener.accept(LIMIT).unwrap().unwrap();
    (tuner, worker)
}

fn frame(receiver: &mut dyn FrameReceiver) -> Vec<u8> {
    match receiver.receive(LIMIT).unwrap() {
        Arrival::Frame(frame) => frame,
        other => panic!("no frame: {other:?}"),
    }
}

#[test]
fn frames_arrive_whole_and_in_order_in_both_directions() {
    for place in places() {
        let mut place = place();
        let (mut tuner, mut worker) = connected(&mut place);
        for len in [0, 1, 3, 4, 5, 1000, 70_000, MAX_FRAME_BYTES] {
            let content: Vec<u8> = (0..len).map(|at| at as u8).collect();
            let (there, back) = (content.clone(), content.clone());
            // The largest frames do not fit the buffers of the system, so both sides are at work.
            let other = thread::spawn(move || {
                assert_eq!(frame(&mut *worker.receiver), there);
                worker.sender.send(&there).unwrap();
                worker
            });
            tuner.sender.send(&content).unwrap();
            assert_eq!(frame(&mut *tuner.receiver), back);
            worker = other.join().unwrap();
        }
        for number in 0..100u32 {
            worker.sender.send(&number.to_le_bytes()).unwrap();
        }
        for number in 0..100u32 {
            assert_eq!(frame(&mut *tuner.receiver), number.to_le_bytes());
        }
    }
}

#[test]
fn frames_that_are_too_long_are_not_sent() {
    for place in places() {
        let mut place = place();
        let (mut tuner, mut worker) = connected(&mut place);
        assert!(tuner.sender.send(&vec![7; MAX_FRAME_BYTES + 1]).is_err());
        tuner.sender.send(&[8]).unwrap();
        assert_eq!(frame(&mut *worker.receiver), [8], "{}: the connection goes on", place.dial.address());
    }
}

#[test]
fn silence_is_no_end_and_an_end_is_noticed_by_both_sides() {
    for place in places() {
        let mut place = place();
        let (tuner, mut worker) = connected(&mut place);
        assert_eq!(worker.receiver.receive(SOON).unwrap(), Arrival::Nothing);
        drop(tuner);
        let start = Instant::now();
        assert!(matches!(worker.receiver.receive(LIMIT), Ok(Arrival::End)));
        assert!(start.elapsed() < LIMIT);

        let (mut tuner, mut worker) = connected(&mut place);
        worker.sender.send(&[1]).unwrap();
        drop(worker);
        assert_eq!(frame(&mut *tuner.receiver), [1], "what was sent before the end arrives");
        assert!(matches!(tuner.receiver.receive(LIMIT), Ok(Arrival::End)));
    }
}

#[test]
fn places_at_which_nobody_listens_are_unreachable() {
    for place in places() {
        let Place { dial, listener, _needed } = place();
        drop(listener);
        let start = Instant::now();
        let refused = dial.dial(LIMIT).map(drop);
        assert!(matches!(&refused, Err(FleetError::Unreachable { .. })), "{refused:?}");
        assert!(start.elapsed() < LIMIT);
    }
}

#[test]
fn a_fleet_keeps_the_contract_of_measurers() {
    for place in places() {
        for workers in [1, 3] {
            let device = SimDevice::default();
            let places: Vec<Place> = (0..workers).map(|_| place()).collect();
            let dials = places.iter().map(|place| Arc::clone(&place.dial)).collect();
            let (listeners, _needed): (Vec<_>, Vec<_>) =
                places.into_iter().map(|place| (place.listener, place._needed)).unzip();
            let start = |listener| SimWorker::start(listener, "worker", &device);
            let _running: Vec<SimWorker> = listeners.into_iter().map(start).collect();
            let mut fleet = connect(dials).0.unwrap();
            assert_eq!(fleet.target(), &target());
            autotune::contract::measurer(&mut fleet, &target());
        }
    }
}

#[test]
fn all_workers_measure_and_one_races() {
    let devices = [SimDevice::default(), SimDevice::default()];
    let places = [tcp(), tcp()];
    let dials = places.iter().map(|place| Arc::clone(&place.dial)).collect();
    let start = |(place, device): (Place, &SimDevice)| SimWorker::start(place.listener, "worker", device);
    let _running: Vec<SimWorker> = places.into_iter().zip(&devices).map(start).collect();
    let mut fleet = connect(dials).0.unwrap();
    let candidates = candidates(100, 1);
    assert_eq!(check_results(&candidates, measure_all(&mut fleet, &candidates)), 0);
    let counts = devices.each_ref().map(|device| device.measured.load(std::sync::atomic::Ordering::SeqCst));
    assert!(counts.iter().all(|count| *count >= 20) && counts.iter().sum::<usize>() == 100, "{counts:?}");
    assert_eq!(fleet.workers().iter().map(|(_, trials)| trials).sum::<usize>(), 100);

    for _ in 0..4 {
        let raced = fleet.race(&candidates[..10], 0.1).unwrap();
        assert!(raced.failure.is_none());
        let secs: Vec<Option<f64>> = raced.measurements.iter().map(Measurement::run_secs).collect();
        assert_eq!(secs, candidates[..10].iter().map(|candidate| Some(secs_of(candidate))).collect::<Vec<_>>());
    }
    let mut races = devices.each_ref().map(|device| device.races.load(std::sync::atomic::Ordering::SeqCst));
    races.sort();
    assert_eq!(races, [0, 4], "all races run on the same worker");
}
