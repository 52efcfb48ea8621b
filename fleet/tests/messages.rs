//! Form of the messages: a change of it needs another protocol version. `UPDATE_GOLDEN=1` writes
//! the examples of a new version.

use std::fs;
use std::path::Path;

use autotune_fleet::Fingerprint;
use autotune_fleet::collector_message::{Answer, NumberedAnswer, NumberedQuestion, Question};
use autotune_fleet::message::{
    DeviceWish, FleetBuild, LeaseId, OpenedDevice, PROTOCOL, Racer, Refusal, TunerMessage, Wish, WishBatch,
    WorkerMessage, WorkerState, decode, encode,
};
use autotune_measure::Ceilings;
use autotune_measurement::{Backend, CandidateError, Measurement, RunSecs, Toolchain};
use autotune_schedules::Config;

use crate::sim::target;

fn lease() -> LeaseId {
    LeaseId { run: 7, number: 3 }
}

fn config() -> Config {
    serde_json::from_str(r#"{"sketch":"direct","knobs":{"order":["m","n"],"tile.m":[2,4],"pack":"none"}}"#).unwrap()
}

fn build() -> FleetBuild {
    FleetBuild { protocol: 1, lowering: 5, version: "0.2.0".into() }
}

/// Returns an example of every message of a tuner.
pub fn of_tuners() -> Vec<TunerMessage> {
    let workload = || "matmul:m=48,n=48,k=48".to_string();
    let batch = WishBatch {
        lease: lease(),
        workload: workload(),
        wishes: vec![Wish { number: 11, config: config() }],
        incumbent_secs: Some(0.5),
    };
    vec![
        TunerMessage::Hello { build: build() },
        TunerMessage::State,
        TunerMessage::Open(DeviceWish { target: "cpu".into(), threads: Some(2), backend: Backend::C }),
        TunerMessage::Measure(batch),
        TunerMessage::Race {
            lease: lease(),
            racers: vec![Racer { workload: workload(), config: config() }],
            budget_secs: 0.25,
        },
        TunerMessage::Return { lease: lease() },
        TunerMessage::Alive,
    ]
}

/// Returns an example of every message of a worker.
pub fn of_workers() -> Vec<WorkerMessage> {
    let toolchain = Toolchain { backend: Some(Backend::C), compiler: "cc".into(), flags: "-O3".into() };
    let ran = Measurement { toolchain: Some(toolchain), ..Measurement::of(Ok(RunSecs::synthetic(0.5))) };
    let failed = Measurement::of(Err(CandidateError::Timeout { limit_secs: 15.0 }));
    let ceilings = Ceilings {
        core_flops_per_sec: 1.0,
        flops_per_sec: 2.0,
        half_flops_per_sec: 3.0,
        tf32_flops_per_sec: 4.0,
        byte_flops_per_sec: 5.0,
        bytes_per_sec: 6.0,
        read_bytes_per_sec: [7.0, 8.0, 9.0],
        cache_bytes: [10.0, 11.0],
        fork_join_secs: 12.0,
    };
    let opened = OpenedDevice {
        target: target(),
        device: "a CPU".into(),
        harness: "{}".into(),
        ceilings: Some(ceilings),
        reference_secs: Some(0.125),
    };
    let state = WorkerState {
        target: target().key(),
        offers: Some(vec![target().key()]),
        devices: vec![target().key()],
        tuners: 1,
        queued: 2,
        trials: 3,
        trials_per_sec: 4.0,
        up_secs: 5.0,
        idle_secs: Some(6.0),
        drift: Some(1.0),
    };

    vec![
        WorkerMessage::Welcome { build: build(), name: "rack7".into() },
        WorkerMessage::Refused { refusal: Refusal::NoDevice, reason: "none".into() },
        WorkerMessage::State(state),
        WorkerMessage::Opened(Box::new(opened)),
        WorkerMessage::Progress { leases: vec![lease()] },
        WorkerMessage::Leaving,
        WorkerMessage::Measured { lease: lease(), wish: 11, measurement: Box::new(ran.clone()) },
        WorkerMessage::Finished { lease: lease(), reference_secs: Some(0.125) },
        WorkerMessage::Raced { lease: lease(), measurements: vec![ran, failed], failure: Some("crash".into()) },
        WorkerMessage::Returned { lease: lease(), fault: Some("no memory".into()) },
    ]
}

/// Returns an example of every question to a collector.
pub fn questions() -> Vec<NumberedQuestion> {
    let print = Fingerprint::of(b"record");
    let questions = [
        Question::Offer { records: vec![print] },
        Question::Store { lines: vec!["{}".into()] },
        Question::Recall { target: target().key(), workload: "matmul:m=48,n=48,k=48".into(), from: 3 },
        Question::Snapshot { known: Some(print), from: 4 },
    ];
    questions.into_iter().zip(1..).map(|(question, number)| NumberedQuestion { number, question }).collect()
}

/// Returns an example of every answer of a collector.
fn answers() -> Vec<NumberedAnswer> {
    let answers = [
        Answer::Lacking { positions: vec![0] },
        Answer::Stored { new: 1, refused: 2, reason: Some("no record".into()) },
        Answer::Records { lines: vec!["{}".into()], next: Some(5) },
        Answer::Snapshot { snapshot: Fingerprint::of(b"snapshot"), len: 6, part: "00ff".into() },
        Answer::Current,
        Answer::Failed { reason: "the disk is full".into() },
    ];
    answers.into_iter().zip(1..).map(|(answer, number)| NumberedAnswer { number, answer }).collect()
}

#[test]
fn the_form_of_messages_changes_with_their_version_only() {
    let text = |frame: Vec<u8>| String::from_utf8(frame).unwrap();
    let tuners = of_tuners().iter().map(|message| text(encode(message).unwrap())).collect::<Vec<_>>();
    let workers = of_workers().iter().map(|message| text(encode(message).unwrap())).collect::<Vec<_>>();
    for (message, line) in of_tuners().iter().zip(&tuners) {
        assert_eq!(decode(line.as_bytes()).as_ref(), Ok(message));
    }
    for (message, line) in of_workers().iter().zip(&workers) {
        assert_eq!(decode(line.as_bytes()).as_ref(), Ok(message));
    }

    let asked = questions().iter().map(|message| text(encode(message).unwrap())).collect::<Vec<_>>();
    let answered = answers().iter().map(|message| text(encode(message).unwrap())).collect::<Vec<_>>();
    for (message, line) in questions().iter().zip(&asked) {
        assert_eq!(decode(line.as_bytes()).as_ref(), Ok(message));
    }
    for (message, line) in answers().iter().zip(&answered) {
        assert_eq!(decode(line.as_bytes()).as_ref(), Ok(message));
    }

    let all = [tuners, workers, asked, answered].concat();
    let lines = all.join("\n") + "\n";
    let name = format!("tests/golden/messages-{PROTOCOL}.jsonl");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(&name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, &lines).unwrap();
    }
    let golden = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(lines, golden, "the messages are not those of {name}: raise PROTOCOL, and write the new ones");
}
