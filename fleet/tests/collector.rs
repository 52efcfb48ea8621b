//! Contract suite of collectors, over each transport: what is acknowledged is durable and there
//! once, whatever is lost, repeated or killed; others recall it; followers get snapshots of it.

use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use autotune_db::{Snapshot, SnapshotWriter, TuningDb, TuningRecord};
use autotune_fleet::collector_message::{Answer, MAX_RECORDS, NumberedAnswer, NumberedQuestion, Question};
use autotune_fleet::message::{TunerMessage, WorkerMessage, decode, encode};
use autotune_fleet::transport::{Arrival, Dial, Listen};
use autotune_fleet::{
    Collected, CollectorOptions, Fingerprint, FleetBuild, FleetError, FleetParams, MetricsPlace, SocketPlace,
    TeamMemory, Upload, query, serve_collector,
};
use autotune_workloads::Workload;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::contract::{places, tcp};
use crate::hostile::{cases, damaged};
use crate::messages::questions;
use crate::net::{FrameFaults, MemoryPlace};
use crate::sim::{SimDevice, SimWorker, candidates, connect, params, secs_of, target, wait_until};

/// Collector that runs in threads of the test.
pub struct SimCollector {
    is_stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl SimCollector {
    pub fn start(listener: Box<dyn Listen>, db: TuningDb) -> Self {
        let is_stopped = Arc::new(AtomicBool::new(false));
        let switch = Arc::clone(&is_stopped);
        let thread = thread::spawn(move || {
            let collected = Arc::new(Collected::new(db, Duration::ZERO));
            let options = CollectorOptions { params: params(), ..CollectorOptions::new("collector") };
            serve_collector(vec![listener], &collected, &options, &|| switch.load(Ordering::SeqCst), drop).unwrap();
            // The next collector of the database waits for the last connection.
            while Arc::strong_count(&collected) > 1 {
                thread::sleep(Duration::from_millis(1));
            }
        });
        Self { is_stopped, thread: Some(thread) }
    }

    pub fn stop(&mut self) {
        self.is_stopped.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for SimCollector {
    fn drop(&mut self) {
        self.stop();
    }
}

pub fn memory_with(dial: &Arc<dyn Dial>, params: &FleetParams) -> Result<TeamMemory, FleetError> {
    TeamMemory::connect(Arc::clone(dial), params, &FleetBuild::own(), Arc::new(|| false))
}

pub fn memory(dial: &Arc<dyn Dial>) -> TeamMemory {
    memory_with(dial, &params()).unwrap()
}

fn workload() -> Workload {
    candidates(1, 1)[0].workload().clone()
}

/// Returns records of distinct configs, as a tuner measured them.
pub fn records(count: usize, seed: u64) -> Vec<TuningRecord> {
    let record = |c| {
        TuningRecord::synthetic(&workload(), &target(), autotune_schedules::Candidate::config(c).clone(), secs_of(c))
    };
    candidates(count, seed).iter().map(record).collect()
}

pub fn lines(records: &[TuningRecord]) -> Vec<String> {
    records.iter().map(|record| record.to_line().unwrap()).collect()
}

pub fn exported(path: &Path) -> Vec<String> {
    let mut out = Vec::new();
    TuningDb::open_reading(path).unwrap().export(&mut out).unwrap();
    String::from_utf8(out).unwrap().lines().map(str::to_string).collect()
}

/// Checks that a database has each line once, and no other.
fn check_lines(path: &Path, expected: &[String]) {
    let mut there = exported(path);
    let mut expected = expected.to_vec();
    there.sort();
    expected.sort();
    assert!(there == expected, "{} lines instead of {}", there.len(), expected.len());
}

#[test]
fn records_are_stored_once_and_recalled_by_others() {
    for place in places() {
        let (folder, place) = (tempfile::tempdir().unwrap(), place());
        let path = folder.path().join("team");
        let _collector = SimCollector::start(place.listener, TuningDb::open(&path).unwrap());
        let all = records(30, 1);
        let (all_lines, mut tuner) = (lines(&all), memory(&place.dial));
        let prints: Vec<Fingerprint> = all_lines.iter().map(|line| Fingerprint::of(line.as_bytes())).collect();
        assert_eq!(tuner.lacking(&prints).unwrap(), Vec::from_iter(0..30));
        assert_eq!(tuner.store(&all_lines[..20]).unwrap().new, 20);
        check_lines(&path, &all_lines[..20]);

        let mut other = memory(&place.dial);
        assert_eq!(other.lacking(&prints).unwrap(), Vec::from_iter(20..30));
        let again = other.store(&all_lines).unwrap();
        assert_eq!((again.new, again.refused), (10, 0));
        check_lines(&path, &all_lines);

        let mut recall = |from| other.recall(&workload(), &target().key(), from).unwrap();
        assert_eq!(recall(0), (all.clone(), 30));
        assert_eq!(recall(25), (all[25..].to_vec(), 30));
        assert_eq!(recall(30), (Vec::new(), 30));
        let none = other.recall(&"matmul:m=1,n=2,k=3".parse().unwrap(), &target().key(), 0).unwrap();
        assert_eq!(none, (Vec::new(), 0));
        assert_eq!(other.recall(&workload(), "cuda:sm_90:H100", 0).unwrap(), (Vec::new(), 0));
    }
}

#[test]
fn records_that_nobody_of_the_team_measured_are_not_recalled() {
    let (place, db) = (tcp(), TuningDb::temporary().unwrap());
    let mut all = records(6, 1);
    all[2].imported = true;
    db.append_all(&all).unwrap();
    let _collector = SimCollector::start(place.listener, db);
    let recalled = memory(&place.dial).recall(&workload(), &target().key(), 0).unwrap();
    all.remove(2);
    assert_eq!(recalled, (all, 6));
}

#[test]
fn followers_get_each_snapshot_once() {
    for place in places() {
        let place = place();
        let _collector = SimCollector::start(place.listener, TuningDb::temporary().unwrap());
        let (mut tuner, mut follower) = (memory(&place.dial), memory(&place.dial));
        assert!(follower.snapshot(None).unwrap().is_none(), "there are no schedules yet");
        let mut all = records(10, 1);
        all.sort_by(|a, b| b.measurement.run_secs().unwrap().total_cmp(&a.measurement.run_secs().unwrap()));
        let of = |snapshot: &Snapshot| {
            let keys = autotune_db::KeyChain::of(&target().key());
            snapshot.get(&keys, &workload().to_string()).unwrap().unwrap().run_secs()
        };
        let mut known = None;

        for record in &all {
            tuner.store(&lines(std::slice::from_ref(record))).unwrap();
            // Snapshots take a small part of the collector's time.
            let (fingerprint, snapshot) = loop {
                if let Some(fetched) = follower.snapshot(known).unwrap() {
                    break fetched;
                }
                thread::sleep(Duration::from_millis(1));
            };
            assert_eq!(of(&snapshot), record.measurement.run_secs().unwrap());
            known = Some(fingerprint);
            assert!(follower.snapshot(known).unwrap().is_none());
        }
        // A slower schedule changes nothing.
        let slow = TuningRecord { config: records(11, 1)[10].config.clone(), ..all[0].clone() };
        tuner.store(&lines(&[slow])).unwrap();
        for _ in 0..100 {
            assert!(follower.snapshot(known).unwrap().is_none());
            thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn uploads_are_complete_whatever_is_lost_and_killed() {
    for seed in 0..3 {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("team");
        let faults = FrameFaults { lost: 0.1, doubled: 0.1, delayed: 0.2 };
        let place = MemoryPlace::new("memory", faults, seed);
        let mut collector = SimCollector::start(place.listen(), TuningDb::open(&path).unwrap());
        let params = FleetParams { deliveries: 30, ..params() };
        let dial: Arc<dyn Dial> = place.clone();
        let tuners = [1, 2].map(|tuner| {
            let connected = (0..50).find_map(|_| memory_with(&dial, &params).ok()).unwrap();
            let db = Arc::new(TuningDb::temporary().unwrap());
            // Both tuners have some records, which earlier uploads brought.
            db.append_all(&records(40, 1)).unwrap();
            (Arc::clone(&db), Upload::start(connected, db, drop), records(60, 10 + 2 * seed + tuner))
        });
        for number in 0..60 {
            tuners.iter().for_each(|(db, _, own)| db.append(&own[number]).unwrap());
            thread::sleep(Duration::from_millis(2));
            if number % 20 == 10 {
                // As by kill -9: nothing more arrives from it.
                place.cut();
                collector.stop();
                collector = SimCollector::start(place.listen(), TuningDb::open(&path).unwrap());
            }
        }

        let mut expected: HashSet<String> = lines(&records(40, 1)).into_iter().collect();
        for (_, upload, own) in tuners {
            assert!(upload.finish(Duration::from_secs(30)).is_complete, "seed {seed}");
            expected.extend(lines(&own));
        }
        collector.stop();
        check_lines(&path, &Vec::from_iter(expected));
    }
}

#[test]
fn an_upload_that_reaches_nobody_tells_so_once_and_keeps_its_records() {
    let place = MemoryPlace::new("memory", FrameFaults::default(), 1);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("team");
    let mut collector = SimCollector::start(place.listen(), TuningDb::open(&path).unwrap());
    let dial: Arc<dyn Dial> = place.clone();
    let (told, db) = (Arc::new(Mutex::new(Vec::new())), Arc::new(TuningDb::temporary().unwrap()));
    let lines_told = Arc::clone(&told);
    let upload = Upload::start(memory(&dial), Arc::clone(&db), move |line| lines_told.lock().unwrap().push(line));
    place.cut();
    collector.stop();
    db.append_all(&records(5, 1)).unwrap();
    wait_until("the loss is told", || !told.lock().unwrap().is_empty());
    let uploaded = upload.finish(Duration::from_millis(100));
    assert!(!uploaded.is_complete && uploaded.stored.new == 0);
    let told = told.lock().unwrap().clone();
    assert!(told.len() == 1 && told[0].contains("records wait in the database"), "{told:?}");

    // The next run passes them on. Imported records are no measurements of the tuner.
    let imported = TuningRecord { imported: true, ..records(6, 1)[5].clone() };
    db.append(&imported).unwrap();
    let _collector = SimCollector::start(place.listen(), TuningDb::open(&path).unwrap());
    let uploaded = Upload::start(memory(&dial), db, drop).finish(Duration::from_secs(20));
    assert!(uploaded.is_complete);
    assert_eq!((uploaded.stored.new, uploaded.stored.refused), (5, 0));
    check_lines(&path, &lines(&records(5, 1)));
}

#[test]
fn lines_that_are_no_measurements_are_refused_and_others_stored() {
    let place = tcp();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("team");
    let _collector = SimCollector::start(place.listener, TuningDb::open(&path).unwrap());
    let good = records(2, 1);
    let imported = TuningRecord { imported: true, ..records(3, 1)[2].clone() };
    let zero = lines(&good)[0].replace("\"run_secs\":", "\"run_secs\":-");
    let mut sent = vec!["{}".to_string(), "no record".into(), imported.to_line().unwrap(), zero];
    sent.splice(2..2, lines(&good));
    let stored = memory(&place.dial).store(&sent).unwrap();
    assert_eq!((stored.new, stored.refused), (2, 4));
    assert!(stored.reason.is_some());
    check_lines(&path, &lines(&good));
}

#[test]
fn workers_collectors_and_other_programs_are_told_apart() {
    let (worker, collector) = (tcp(), tcp());
    let _worker = SimWorker::start(worker.listener, "worker", &SimDevice::default());
    let _collector = SimCollector::start(collector.listener, TuningDb::temporary().unwrap());
    let error = memory_with(&worker.dial, &params()).map(drop).unwrap_err().to_string();
    assert!(
        error.contains("cannot be used: it is no collector of this version: not a message of the fleet"),
        "{error}"
    );
    let error = connect(vec![Arc::clone(&collector.dial)]).0.map(drop).unwrap_err().to_string();
    assert!(error.contains("refused: it is a collector of records, and measures nothing"), "{error}");
    let error = query(&*collector.dial, &params()).unwrap_err().to_string();
    assert!(error.contains("refused: it is a collector of records, and measures nothing"), "{error}");
    let metrics = MetricsPlace::bind("127.0.0.1:0").unwrap();
    let _server = metrics.serve(String::new);
    let address = metrics.url().trim_start_matches("http://").trim_end_matches("/metrics").to_string();
    let dial: Arc<dyn Dial> = Arc::new(address.parse::<SocketPlace>().unwrap());
    let error = memory_with(&dial, &FleetParams::default()).map(drop).unwrap_err().to_string();
    assert!(error.contains("cannot be used: it is no program of autotune: a frame of"), "{error}");

    let other = FleetBuild { lowering: 0, ..FleetBuild::own() };
    let refused = TeamMemory::connect(Arc::clone(&collector.dial), &params(), &other, Arc::new(|| false));
    let error = refused.map(drop).unwrap_err().to_string();
    assert!(error.starts_with("collector 127.0.0.1:") && error.contains("lowering 0"), "{error}");
    assert_eq!(memory(&collector.dial).name(), "collector");
}

#[test]
fn connecting_is_interrupted() {
    // It accepts connections and answers nothing.
    let silent = tcp();
    let params = FleetParams { greeting: Duration::from_secs(5), ..params() };
    let interrupted = TeamMemory::connect(silent.dial, &params, &FleetBuild::own(), Arc::new(|| true));
    assert!(matches!(interrupted, Err(FleetError::Interrupted)), "{:?}", interrupted.map(drop));
}

/// Answers questions by a function, as a collector that may be hostile.
fn scripted(
    mut listener: Box<dyn Listen>,
    mut answer: impl FnMut(Question) -> Option<Answer> + Send + 'static,
) -> JoinHandle<()> {
    thread::spawn(move || {
        let mut wire = listener.accept(Duration::from_secs(5)).unwrap().unwrap();
        let welcome = WorkerMessage::Welcome { build: FleetBuild::own(), name: "scripted".into() };
        wire.sender.send(&encode(&welcome).unwrap()).unwrap();
        while let Ok(Arrival::Frame(frame)) = wire.receiver.receive(Duration::from_secs(2)) {
            let Ok(NumberedQuestion { number, question }) = decode(&frame) else { continue };
            if let Question::Offer { .. } = question {
                let answer = Answer::Lacking { positions: vec![7] };
                wire.sender.send(&encode(&NumberedAnswer { number, answer }).unwrap()).unwrap();
            } else if let Some(answer) = answer(question) {
                // An answer to another question is ignored.
                for number in [number + 1, number] {
                    let answer = NumberedAnswer { number, answer: answer.clone() };
                    wire.sender.send(&encode(&answer).unwrap()).unwrap();
                }
            }
        }
    })
}

#[test]
fn snapshots_are_fetched_in_parts_and_damaged_ones_refused() {
    let written = |count: usize| {
        let mut writer = SnapshotWriter::default();
        let fastest = |a: &&TuningRecord, b: &&TuningRecord| {
            a.measurement.run_secs().unwrap().total_cmp(&b.measurement.run_secs().unwrap())
        };
        writer.add(records(count, 1).iter().min_by(fastest).unwrap()).unwrap();
        writer.into_bytes().unwrap()
    };
    let part = |bytes: &[u8], from: u64, print: Fingerprint| {
        let start = from as usize;
        let part = bytes[start..bytes.len().min(start + 100)].iter().map(|byte| format!("{byte:02x}")).collect();
        Some(Answer::Snapshot { snapshot: print, len: bytes.len() as u64, part })
    };
    let (old, new) = (written(1), written(20));
    assert!(old != new && old.len() > 300, "several parts");
    let fetch = |answer: Box<dyn FnMut(Question) -> Option<Answer> + Send>| {
        let place = tcp();
        let script = scripted(place.listener, answer);
        let fetched = memory(&place.dial).snapshot(None);
        script.join().unwrap();
        fetched
    };

    // It is replaced after two parts.
    let (mut asked, both) = (0, (old.clone(), new.clone()));
    let fetched = fetch(Box::new(move |question| {
        let Question::Snapshot { from, .. } = question else { return None };
        asked += 1;
        let bytes = if asked <= 2 { &both.0 } else { &both.1 };
        part(bytes, from.min(bytes.len() as u64 - 1), Fingerprint::of(bytes))
    }));
    assert_eq!(fetched.unwrap().unwrap().1.as_bytes(), new);

    let damaged = old.clone();
    let fetched = fetch(Box::new(move |question| {
        let Question::Snapshot { from, .. } = question else { return None };
        part(&damaged, from, Fingerprint::of(b"something else"))
    }));
    assert!(fetched.unwrap_err().to_string().contains("a damaged snapshot"));
    let fetched = fetch(Box::new(|_| {
        Some(Answer::Snapshot {
            snapshot: Fingerprint::of(b"no snapshot"),
            len: 11,
            part: "6e6f20736e617073686f74".into(),
        })
    }));
    assert!(matches!(fetched, Err(FleetError::Collector { .. })));
    let fetched =
        fetch(Box::new(|_| Some(Answer::Snapshot { snapshot: Fingerprint::of(b""), len: 1 << 40, part: "00".into() })));
    assert!(matches!(fetched, Err(FleetError::Collector { .. })), "a snapshot of a terabyte");
    let fetched =
        fetch(Box::new(|_| Some(Answer::Snapshot { snapshot: Fingerprint::of(b""), len: 9, part: String::new() })));
    assert!(matches!(fetched, Err(FleetError::Collector { .. })), "a part without content");
}

#[test]
fn records_of_other_tasks_are_not_recalled() {
    let other: Workload = "matmul:m=8,n=8,k=8".parse().unwrap();
    let place = tcp();
    let script = scripted(place.listener, |_| Some(Answer::Records { lines: lines(&records(3, 1)), next: Some(1) }));
    let mut tuner = memory(&place.dial);
    assert!(tuner.lacking(&[Fingerprint::of(b"")]).unwrap().is_empty(), "a position that was not offered");
    let error = tuner.recall(&other, &target().key(), 0).unwrap_err().to_string();
    assert!(error.contains("it sent a record of another task"), "{error}");
    drop(tuner);
    script.join().unwrap();
}

#[test]
fn a_collector_survives_hostile_members() {
    let place = tcp();
    let _collector = SimCollector::start(place.listener, TuningDb::temporary().unwrap());
    let hello = encode(&TunerMessage::Hello { build: FleetBuild::own() }).unwrap();
    let offer = |count: usize| {
        let question = Question::Offer { records: vec![Fingerprint::of(b""); count] };
        encode(&NumberedQuestion { number: 1, question }).unwrap()
    };
    let hostile: [Vec<Vec<u8>>; 6] = [
        vec![offer(1)],
        vec![hello.clone(), b"{}".to_vec()],
        vec![hello.clone(), vec![0xff; 100]],
        vec![hello.clone(), offer(MAX_RECORDS + 1)],
        vec![hello.clone(), encode(&TunerMessage::State).unwrap()],
        vec![vec![]],
    ];
    for frames in hostile {
        let mut wire = place.dial.dial(Duration::from_secs(5)).unwrap();
        frames.iter().all(|frame| wire.sender.send(frame).is_ok());
        let mut refused = false;
        while let Ok(Arrival::Frame(frame)) = wire.receiver.receive(Duration::from_secs(5)) {
            refused |= matches!(decode(&frame), Ok(WorkerMessage::Refused { .. }));
        }
        assert!(refused, "{frames:?}");
    }

    let far = NumberedQuestion { number: 2, question: Question::Snapshot { known: None, from: u64::MAX } };
    let mut wire = place.dial.dial(Duration::from_secs(5)).unwrap();
    [hello, encode(&far).unwrap()].iter().for_each(|frame| wire.sender.send(frame).unwrap());
    let mut tuner = memory(&place.dial);
    assert_eq!(tuner.store(&lines(&records(3, 1))).unwrap().new, 3);
}

#[test]
fn a_collector_survives_damaged_questions() {
    let place = tcp();
    let _collector = SimCollector::start(place.listener, TuningDb::temporary().unwrap());
    let (mut answered, mut refused) = (0, 0);
    for seed in 0..cases(40) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut wire = place.dial.dial(Duration::from_secs(5)).unwrap();
        let mut frames: Vec<Vec<u8>> = questions().iter().map(|question| encode(question).unwrap()).collect();
        let at = rng.random_range(0..frames.len());
        frames[at] = damaged(frames[at].clone(), &mut rng);
        frames.insert(0, encode(&TunerMessage::Hello { build: FleetBuild::own() }).unwrap());
        // The collector may have ended the connection.
        frames.iter().all(|frame| wire.sender.send(frame).is_ok());

        let mut left = frames.len() - 1;
        while left > 0
            && let Ok(Arrival::Frame(frame)) = wire.receiver.receive(Duration::from_secs(5))
        {
            let is_answer = decode::<NumberedAnswer>(&frame).is_ok();
            let is_refusal = matches!(decode(&frame), Ok(WorkerMessage::Refused { .. }));
            (answered, refused) = (answered + usize::from(is_answer), refused + usize::from(is_refusal));
            left -= usize::from(is_answer);
        }
    }
    assert!(answered > 40 && refused > 5, "{answered} answers, {refused} refusals");
    let own = lines(&records(3, 1));
    assert_eq!(memory(&place.dial).store(&own).unwrap().new, 3);
}
