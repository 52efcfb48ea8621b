//! Fleets over a real NATS server: teams, the death of the server, refusals.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use autotune_db::TuningDb;
use autotune_fleet::{Fleet, FleetBuild, FleetError, FleetOptions, FleetParams, NatsOptions, NatsServer};
use autotune_ir::{CpuTarget, Target};

use crate::collector::{SimCollector, lines, memory, records};
use crate::server::{Server, shared_team};
use crate::sim::{
    Notices, SimDevice, SimWorker, candidates, check_results, connect, connect_with, measure_all, params, wait_until,
    wish,
};

#[test]
fn workers_of_a_team_are_found_and_others_are_not() {
    let (Some((team, _server)), Some((other, _))) = (shared_team(), shared_team()) else { return };
    assert!(team.find().unwrap().is_empty());
    let device = SimDevice::default();
    let _workers = [1, 2, 3].map(|_| SimWorker::start(team.listen().unwrap(), "worker", &device));
    let _other = SimWorker::start(other.listen().unwrap(), "other", &device);
    let found = team.find().unwrap();
    assert_eq!((found.len(), other.find().unwrap().len()), (3, 1));
    let mut fleet = connect(found).0.unwrap();
    let candidates = candidates(90, 1);
    assert_eq!(check_results(&candidates, measure_all(&mut fleet, &candidates)), 0);
    assert!(fleet.workers().iter().all(|(_, trials)| *trials > 10), "{:?}", fleet.workers());
}

/// Threads of connections may end after everything else of a program.
#[test]
fn connections_may_outlive_their_server() {
    for _ in 0..6 {
        let Some((team, _server)) = shared_team() else { return };
        let mut listener = team.listen().unwrap();
        let place = team.find().unwrap().remove(0);
        let dialled = place.dial(Duration::from_secs(5)).unwrap();
        let accepted = listener.accept(Duration::from_secs(5)).unwrap().unwrap();

        // The connections end while their server does.
        let ends = [dialled, accepted].map(|wire| thread::spawn(move || drop(wire)));
        drop((team, listener, place));
        ends.into_iter().for_each(|end| end.join().unwrap());
    }
}

#[test]
fn workers_that_come_later_take_part_and_those_of_another_key_do_not() {
    let Some((team, _server)) = shared_team() else { return };
    let device = SimDevice::default();
    let _worker = SimWorker::start(team.listen().unwrap(), "first", &device);
    let (finder, lines) = (std::sync::Arc::clone(&team), Notices::default());
    let notices = std::sync::Arc::clone(&lines);
    let options = FleetOptions {
        params: params(),
        find: Some(Box::new(move || finder.find().unwrap_or_default())),
        notice: Box::new(move |line| notices.lock().unwrap().push(line)),
        ..FleetOptions::default()
    };
    let mut fleet = Fleet::connect(team.find().unwrap(), &wish(), options).unwrap();

    let late = SimDevice::default();
    let other = SimDevice { target: Target::Cpu(CpuTarget::generic_avx2(4)), ..SimDevice::default() };
    let _other = SimWorker::start(team.listen().unwrap(), "other", &other);
    let _late = SimWorker::start(team.listen().unwrap(), "late", &late);
    let is_over = || {
        let told = lines.lock().unwrap().join("\n");
        late.measured.load(Ordering::SeqCst) > 0 && told.contains("worker late at") && told.contains("worker other at")
    };
    let start = Instant::now();
    while !is_over() {
        assert!(start.elapsed() < Duration::from_secs(20), "{lines:?}");
        let candidates = candidates(100, 1);
        assert_eq!(check_results(&candidates, measure_all(&mut fleet, &candidates)), 0);
    }
    assert_eq!(other.measured.load(Ordering::SeqCst), 0, "keys never mix");
}

#[test]
fn a_server_that_is_killed_and_forgets_everything_costs_no_result() {
    let Some(mut server) = Server::start(0) else { return };
    let port = server.port;
    let team = server.connect("team");
    let device = SimDevice::default();
    let _worker = SimWorker::start(team.listen().unwrap(), "worker", &device);
    let tuner = server.connect("team");
    let params = FleetParams { deliveries: 1000, ..params() };
    let mut fleet = connect_with(tuner.find().unwrap(), params, FleetBuild::own()).0.unwrap();
    let candidates = candidates(300, 1);
    let killer = std::thread::spawn(move || {
        let measured = || device.measured.load(Ordering::SeqCst);
        wait_until("some are measured", || measured() > 50);
        server.kill();
        std::thread::sleep(Duration::from_millis(300));
        Server::start(port)
    });
    assert_eq!(check_results(&candidates, measure_all(&mut fleet, &candidates)), 0);
    assert!(killer.join().unwrap().is_some());
}

#[test]
fn the_collector_of_a_team_is_found_and_found_again_at_the_same_place() {
    let (Some((team, _server)), Some((other, _))) = (shared_team(), shared_team()) else { return };
    assert!(team.collector().unwrap().is_none() && !team.has_collector().unwrap());
    let start = || SimCollector::start(team.listen_as_collector().unwrap(), TuningDb::temporary().unwrap());
    let first = start();
    assert!(team.has_collector().unwrap() && other.collector().unwrap().is_none());
    assert!(team.find().unwrap().is_empty(), "a collector is no worker");
    let dial = team.collector().unwrap().unwrap();
    let (mut tuner, all) = (memory(&dial), lines(&records(2, 1)));
    assert_eq!(tuner.store(&all[..1]).unwrap().new, 1);

    drop(first);
    assert!(tuner.store(&all).is_err());
    let _second = start();
    assert_eq!(tuner.store(&all).unwrap().new, 2);
}

#[test]
fn servers_that_cannot_be_used_are_named() {
    let refusal = |options: NatsOptions| {
        let start = Instant::now();
        let error = NatsServer::connect(&options).map(drop).unwrap_err();
        assert!(start.elapsed() < Duration::from_secs(5));
        let text = error.to_string();
        assert!(matches!(error, FleetError::Server { .. }) && text.lines().count() == 1, "{text}");
        text
    };
    let options = |url: &str| NatsOptions { url: url.into(), team: "team".into(), ..NatsOptions::default() };
    assert!(refusal(options("nats://127.0.0.1:9")).contains("127.0.0.1:9"));
    assert!(refusal(NatsOptions { team: "a.b>".into(), ..options("nats://127.0.0.1:9") }).contains("'a.b>'"));
    let missing = Some("/nowhere/file".into());
    assert!(
        refusal(NatsOptions { credentials: missing.clone(), ..options("nats://127.0.0.1:9") }).contains("/nowhere")
    );
    assert!(refusal(NatsOptions { nkey: missing, ..options("nats://127.0.0.1:9") }).contains("/nowhere/file"));
}
