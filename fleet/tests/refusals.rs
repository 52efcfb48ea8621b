//! Workers that cannot be used: each reason is one line, and comes soon.

use std::io::Write;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use autotune_fleet::message::FleetBuild;
use autotune_fleet::params::MAX_TUNERS;
use autotune_fleet::transport::Dial;
use autotune_fleet::{DeviceWish, Fleet, FleetError, FleetOptions, SocketPlace, WorkerOptions, query};
use autotune_ir::{CpuTarget, Target};
use autotune_measure::Measurer;

use crate::contract::tcp;
use crate::sim::{
    SimDevice, SimWorker, candidates, check_results, connect, connect_with, measure_all, params, target, wait_until,
    wish,
};

const SOON: Duration = Duration::from_secs(5);

fn other_build() -> FleetBuild {
    FleetBuild { lowering: FleetBuild::own().lowering + 1, version: "9.9.9".into(), ..FleetBuild::own() }
}

/// Returns the error of connecting, which must come soon and be one line.
fn refusal(dials: Vec<Arc<dyn Dial>>) -> FleetError {
    let start = Instant::now();
    let error = connect(dials).0.map(drop).unwrap_err();
    assert!(start.elapsed() < SOON);
    assert_eq!(error.to_string().lines().count(), 1, "{error}");
    error
}

#[test]
fn other_versions_are_refused_by_name_on_both_sides() {
    let place = tcp();
    let options = WorkerOptions { build: other_build(), params: params(), ..WorkerOptions::new("new") };
    let _worker = SimWorker::start_with(place.listener, options, &SimDevice::default());
    let error = refusal(vec![Arc::clone(&place.dial)]);
    let text = error.to_string();
    assert!(matches!(error, FleetError::Version { .. }), "{error:?}");
    let own = FleetBuild::own();
    for words in ["autotune 9.9.9", &other_build().lowering.to_string(), &own.lowering.to_string(), &own.version] {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert!(matches!(query(&*place.dial, &params()), Err(FleetError::Version { .. })));
}

#[test]
fn a_worker_without_the_device_says_what_it_has() {
    let place = tcp();
    let _worker = SimWorker::start(place.listener, "plain", &SimDevice::default());
    let options = FleetOptions { params: params(), ..FleetOptions::default() };
    let gpu = DeviceWish { target: "cuda".into(), ..wish() };
    let error = Fleet::connect(vec![place.dial], &gpu, options).map(drop).unwrap_err();
    assert!(matches!(&error, FleetError::NoDevice { cause, .. } if cause.contains(&target().key())), "{error:?}");
}

#[test]
fn places_of_other_programs_and_of_nobody_are_told_apart() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let talkative = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = |listener: &TcpListener| -> Arc<dyn Dial> {
        Arc::new(SocketPlace::Tcp(listener.local_addr().unwrap().to_string()))
    };
    let [mute, web] = [place(&silent), place(&talkative)];
    let server = thread::spawn(move || {
        let mut stream = talkative.accept().unwrap().0;
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
        stream
    });
    assert!(matches!(refusal(vec![mute]), FleetError::Unreachable { cause, .. } if cause.contains("not answer")));
    assert!(
        matches!(refusal(vec![web]), FleetError::Version { cause, .. } if cause.contains("no program of autotune"))
    );
    drop(server.join());
    for text in ["", "7", ":7", "host", "host:x", "host:99999", "unix:"] {
        assert_eq!(text.parse::<SocketPlace>(), Err(FleetError::Address(text.into())));
    }
}

#[test]
fn a_worker_serves_a_bounded_number_of_tuners() {
    let place = tcp();
    let _worker = SimWorker::start(place.listener, "popular", &SimDevice::default());
    let dials = || vec![Arc::clone(&place.dial)];
    let mut tuners: Vec<Fleet> = (0..MAX_TUNERS).map(|_| connect(dials()).0.unwrap()).collect();
    assert!(matches!(refusal(dials()), FleetError::Full { .. }));
    assert_eq!(query(&*place.dial, &params()).unwrap().state.tuners, MAX_TUNERS, "the state can still be asked for");

    tuners.pop();
    wait_until("a tuner left", || query(&*place.dial, &params()).is_ok_and(|asked| asked.state.tuners < MAX_TUNERS));
    let mut late = connect(dials()).0.unwrap();
    let candidates = candidates(20, 1);
    assert_eq!(check_results(&candidates, measure_all(&mut late, &candidates)), 0);
}

#[test]
fn keys_never_mix() {
    let (here, there) = (tcp(), tcp());
    let other = SimDevice { target: Target::Cpu(CpuTarget::generic_avx2(4)), ..SimDevice::default() };
    let _workers = [
        SimWorker::start(here.listener, "one", &SimDevice::default()),
        SimWorker::start(there.listener, "four", &other),
    ];
    let error = refusal(vec![here.dial, there.dial]);
    let FleetError::Kinds { keys } = &error else { panic!("{error:?}") };
    assert_eq!(keys.len(), 2);
    assert!(error.to_string().contains("--target"));
}

#[test]
fn one_worker_is_enough_and_the_others_are_named() {
    let (here, gone) = (tcp(), tcp());
    let absent = Arc::clone(&gone.dial);
    drop(gone);
    let _worker = SimWorker::start(here.listener, "here", &SimDevice::default());
    let (fleet, notices) = connect(vec![Arc::clone(&absent), here.dial]);
    let candidates = candidates(10, 1);
    assert_eq!(check_results(&candidates, measure_all(&mut fleet.unwrap(), &candidates)), 0);
    let notices = notices.lock().unwrap();
    assert!(notices.iter().any(|line| line.contains(&absent.address()) && line.contains("unreachable")), "{notices:?}");
}

#[test]
fn a_slow_worker_is_quarantined_by_name_and_returns() {
    let (here, there) = (tcp(), tcp());
    let (fast, slow) = (SimDevice::default(), SimDevice::default());
    slow.reference_percent.store(200, Ordering::SeqCst);
    let _workers = [SimWorker::start(here.listener, "fast", &fast), SimWorker::start(there.listener, "slow", &slow)];
    let (fleet, notices) = connect_with(vec![here.dial, there.dial], params(), FleetBuild::own());
    let mut fleet = fleet.unwrap();
    let candidates = candidates(40, 1);
    assert_eq!(check_results(&candidates, measure_all(&mut fleet, &candidates)), 0);
    let by = |device: &SimDevice| device.measured.load(Ordering::SeqCst);
    assert!(by(&slow) < by(&fast), "{} {}", by(&slow), by(&fast));
    let told = || notices.lock().unwrap().join("\n");
    assert!(told().contains("worker slow is quarantined") && told().contains("2.00 times"), "{}", told());
    fleet.race(&candidates[..3], 0.1).unwrap();
    assert_eq!([&fast, &slow].map(|device| device.races.load(Ordering::SeqCst)), [1, 0]);
}
