//! Hostile peers: whatever they send, the other side answers with a reason or ends the connection,
//! in bounded memory, and goes on with others. Seeds are printed; `AUTOTUNE_CASES` sets the number
//! of cases.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use autotune_fleet::message::{
    FleetBuild, LeaseId, OpenedDevice, Racer, TunerMessage, Wish, WishBatch, WorkerMessage, decode, encode,
};
use autotune_fleet::params::MAX_FRAME_BYTES;
use autotune_fleet::transport::{Arrival, Dial, Listen};
use autotune_fleet::{FleetParams, SocketPlace, query};
use autotune_measurement::{Measurement, RunSecs};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;

use crate::contract::tcp;
use crate::damage::replace_one;
use crate::messages::of_workers;
use crate::sim::{SimDevice, SimWorker, candidates, check_results, connect, measure_all, target, wish};

pub fn cases(default: u64) -> u64 {
    std::env::var("AUTOTUNE_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(default)
}

fn lease(number: u64) -> LeaseId {
    LeaseId { run: 1, number }
}

/// Returns an example of every message of a tuner.
fn tuner_messages() -> Vec<TunerMessage> {
    let all = candidates(3, 1);
    let wishes = all.iter().zip(0..).map(|(c, number)| Wish { number, config: c.config().clone() }).collect();
    let workload = all[0].workload().to_string();
    let batch = WishBatch { lease: lease(0), workload: workload.clone(), wishes, incumbent_secs: Some(1e-3) };
    vec![
        TunerMessage::Open(wish()),
        TunerMessage::State,
        TunerMessage::Alive,
        TunerMessage::Measure(batch),
        TunerMessage::Race {
            lease: lease(1),
            racers: vec![Racer { workload, config: all[1].config().clone() }],
            budget_secs: 0.1,
        },
        TunerMessage::Return { lease: lease(0) },
    ]
}

/// Returns the content of a frame with damage.
pub fn damaged(mut frame: Vec<u8>, rng: &mut ChaCha8Rng) -> Vec<u8> {
    let at = rng.random_range(0..frame.len().max(1));
    let message = serde_json::from_slice(&frame);
    match rng.random_range(0..4) {
        0 if !frame.is_empty() => frame[at] ^= 1 << rng.random_range(0..8),
        1 => frame.truncate(at),
        2 if message.is_ok() => {
            let mut message: Value = message.unwrap();
            replace_one(&mut message, rng);
            frame = serde_json::to_vec(&message).unwrap();
        }
        _ => frame = (0..rng.random_range(0..200)).map(|_| rng.random()).collect(),
    }
    frame
}

#[test]
fn damaged_messages_are_messages_or_errors() {
    let (mut understood, mut refused) = (0, 0);
    for seed in 0..cases(5000) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut tuner: Vec<Vec<u8>> = tuner_frames();
        let frame = tuner.swap_remove(rng.random_range(0..tuner.len()));
        let frame = damaged(frame, &mut rng);
        let is_message = decode::<TunerMessage>(&frame).is_ok() || decode::<WorkerMessage>(&frame).is_ok();
        *(if is_message { &mut understood } else { &mut refused }) += 1;
    }
    assert!(understood > 0 && refused > understood / 10, "{understood}, {refused}");
}

fn tuner_frames() -> Vec<Vec<u8>> {
    thread_local! {
        static FRAMES: Vec<Vec<u8>> = tuner_messages().iter().map(|message| encode(message).unwrap()).collect();
    }
    FRAMES.with(Clone::clone)
}

fn hello() -> Vec<u8> {
    encode(&TunerMessage::Hello { build: FleetBuild::own() }).unwrap()
}

#[test]
fn a_worker_survives_hostile_tuners() {
    let place = tcp();
    let _worker = SimWorker::start(place.listener, "worker", &SimDevice::default());
    let mut answered = 0;
    for seed in 0..cases(60) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut wire = place.dial.dial(Duration::from_secs(5)).unwrap();
        let mut frames = vec![hello()];
        frames.extend(tuner_frames());
        for _ in 0..rng.random_range(1..4) {
            let at = rng.random_range(0..frames.len());
            frames[at] = damaged(frames[at].clone(), &mut rng);
        }
        // The worker may have ended the connection.
        frames.iter().all(|frame| wire.sender.send(frame).is_ok());
        while let Ok(Arrival::Frame(frame)) = wire.receiver.receive(Duration::from_millis(30)) {
            let message: WorkerMessage = decode(&frame).unwrap();
            answered += usize::from(!matches!(message, WorkerMessage::Progress { .. }));
        }
    }
    assert!(answered > 60, "{answered}");
    assert_healthy(&place.dial);
}

/// Checks that a worker still serves a tuner.
fn assert_healthy(dial: &Arc<dyn Dial>) {
    let candidates = candidates(20, 1);
    let mut fleet = connect(vec![Arc::clone(dial)]).0.unwrap();
    assert_eq!(check_results(&candidates, measure_all(&mut fleet, &candidates)), 0);
}

#[test]
fn frames_of_impossible_length_and_truncated_frames_end_the_connection() {
    let place = tcp();
    let _worker = SimWorker::start(place.listener, "worker", &SimDevice::default());
    let address = place.dial.address();
    let framed = |content: &[u8]| [&(content.len() as u32).to_le_bytes()[..], content].concat();
    let beginnings: [&[u8]; 2] = [&[], &framed(&hello())];
    for beginning in beginnings {
        for hostile in [&[0xff; 4][..], &(MAX_FRAME_BYTES as u32 + 1).to_le_bytes(), b"GET / HTTP/1.1\r\n\r\n"] {
            let mut stream = TcpStream::connect(&address).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            stream.write_all(beginning).unwrap();
            stream.write_all(hostile).unwrap();
            let mut answer = Vec::new();
            let ended = stream.read_to_end(&mut answer);
            let is_reset = ended.as_ref().is_err_and(|e| e.kind() == std::io::ErrorKind::ConnectionReset);
            assert!(ended.is_ok() || is_reset, "{ended:?}");
        }
        // A frame that is cut off by the end of the tuner.
        let mut stream = TcpStream::connect(&address).unwrap();
        stream.write_all(beginning).unwrap();
        stream.write_all(&1000u32.to_le_bytes()).unwrap();
        stream.write_all(&[b'{'; 10]).unwrap();
        drop(stream);
    }
    assert_healthy(&place.dial);
}

#[test]
fn a_tuner_that_does_not_read_is_disconnected() {
    let place = tcp();
    let _worker = SimWorker::start(place.listener, "worker", &SimDevice::default());
    let mut wire = place.dial.dial(Duration::from_secs(5)).unwrap();
    wire.sender.send(&hello()).unwrap();
    let question = encode(&TunerMessage::State).unwrap();
    let is_ended = (0..200_000).any(|_| wire.sender.send(&question).is_err());
    assert!(is_ended, "the worker keeps all answers");
    assert_healthy(&place.dial);
}

/// Serves one tuner as a worker does, and then sends it frames.
fn hostile_worker(mut listener: Box<dyn Listen>, frames: Vec<Vec<u8>>) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        let mut wire = listener.accept(Duration::from_secs(5)).unwrap().unwrap();
        let welcome = WorkerMessage::Welcome { build: FleetBuild::own(), name: "hostile".into() };
        let device = OpenedDevice {
            target: target(),
            device: "hostile".into(),
            harness: "{}".into(),
            ceilings: None,
            reference_secs: Some(1e-4),
        };
        for message in [welcome, WorkerMessage::Opened(Box::new(device))] {
            wire.sender.send(&encode(&message).unwrap()).unwrap();
        }
        while let Ok(Arrival::Frame(frame)) = wire.receiver.receive(Duration::from_secs(2)) {
            if matches!(decode(&frame), Ok(TunerMessage::Measure(_))) {
                break;
            }
        }
        frames.iter().all(|frame| wire.sender.send(frame).is_ok());
        thread::sleep(Duration::from_millis(100));
    })
}

#[test]
fn a_tuner_survives_hostile_workers() {
    for seed in 0..cases(25) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let (bad, good) = (tcp(), tcp());
        let mut frames: Vec<Vec<u8>> = of_workers().iter().map(|message| encode(message).unwrap()).collect();
        for _ in 0..rng.random_range(1..5) {
            let at = rng.random_range(0..frames.len());
            frames[at] = damaged(frames[at].clone(), &mut rng);
        }
        let _worker = SimWorker::start(good.listener, "good", &SimDevice::default());
        let hostile = hostile_worker(bad.listener, frames);
        let (fleet, _) = connect(vec![bad.dial, good.dial]);
        let candidates = candidates(40, seed);
        assert_eq!(check_results(&candidates, measure_all(&mut fleet.unwrap(), &candidates)), 0, "seed {seed}");
        hostile.join().unwrap();
    }
}

#[test]
fn impossible_times_expel_a_worker() {
    let (bad, good) = (tcp(), tcp());
    let zero = |run: u64| WorkerMessage::Measured {
        lease: LeaseId { run, number: 0 },
        wish: 0,
        measurement: Box::new(Measurement::of(Ok(RunSecs::synthetic(0.0)))),
    };
    let _worker = SimWorker::start(good.listener, "good", &SimDevice::default());
    let hostile = hostile_worker(bad.listener, vec![encode(&zero(1)).unwrap()]);
    let (fleet, notices) = connect(vec![bad.dial, good.dial]);
    let candidates = candidates(60, 1);
    assert_eq!(check_results(&candidates, measure_all(&mut fleet.unwrap(), &candidates)), 0);
    hostile.join().unwrap();
    let told = notices.lock().unwrap().join("\n");
    assert!(told.contains("worker hostile is not used any more: a result with an impossible value (0)"), "{told}");
}

#[test]
fn states_are_asked_for_in_any_number() {
    let place = tcp();
    let _worker = SimWorker::start(place.listener, "asked", &SimDevice::default());
    let dial: SocketPlace = place.dial.address().parse().unwrap();
    for _ in 0..100 {
        let asked = query(&dial, &FleetParams::default()).unwrap();
        assert_eq!((asked.name.as_str(), asked.state.target), ("asked", target().key()));
    }
}
