//! Deployment modes: off, look-up, and tuning on a miss, also in several processes, for which this
//! program starts itself.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use autotune::search::Random;
use autotune::{Deploy, DeployError, Origin, Task, TuneError, TuneOnMiss, Tuner};
use autotune_cost_model::features;
use autotune_db::{Phase, Snapshot, SnapshotWriter, TaskHold, TimeProvenance, TuningDb, TuningRecord};
use autotune_ir::{CpuTarget, Isa, KeyScope, Target};
use autotune_schedules::{Candidate, ScheduleSpace};
use autotune_workloads::Workload;

use crate::support::{PaperDevice, best_and_worst};

fn target() -> Target {
    Target::Cpu(CpuTarget::generic_avx2(2))
}

fn workload() -> Workload {
    "matmul:m=12,n=16,k=8".parse().unwrap()
}

/// Tunes on a simulated device.
fn tune(db: &TuningDb, workload: &Workload, target: &Target) -> Result<(), TuneError> {
    let mut device = PaperDevice::default();
    let tuner = Tuner::new(target).searcher(|_| Random).trials(8).measurer(&mut device);
    tuner.database(db).tune(&[Task::single(workload.clone())]).map(|_| ())
}

/// Returns the provenance of the schedule's time; `None` for the default schedule.
fn provenance(deploy: &Deploy<'_>) -> Option<TimeProvenance> {
    let tuned = deploy.schedule(&workload(), &target()).unwrap();
    tuned.best().map(|best| best.standing)
}

/// Returns a snapshot of the tuned schedules.
fn snapshot(db: &TuningDb) -> Snapshot {
    let mut writer = SnapshotWriter::default();
    writer.add_best_of(db, &|_| true).unwrap();
    Snapshot::from_bytes(writer.into_bytes().unwrap()).unwrap()
}

#[test]
fn off_is_the_default_and_look_up_is_what_there_is() {
    let db = TuningDb::temporary().unwrap();
    assert_eq!(provenance(&Deploy::LookUp(&db)), None);
    tune(&db, &workload(), &target()).unwrap();
    let snapshot = snapshot(&db);
    assert_eq!(provenance(&Deploy::Off), None);
    assert_eq!(provenance(&Deploy::LookUp(&db)), Some(TimeProvenance::Raced));
    assert_eq!(provenance(&Deploy::LookUp(&snapshot)), Some(TimeProvenance::Raced));

    let alike = Target::Cpu(CpuTarget { l3_bytes: 16 << 20, ..CpuTarget::generic_avx2(2) });
    let tuned = Deploy::LookUp(&snapshot).schedule(&workload(), &alike).unwrap();
    let Origin::Tuned(found) = tuned.origin() else { panic!("the model's schedule is served") };
    assert_eq!((found.reach, found.best.standing), (KeyScope::Model, TimeProvenance::Claimed));
    assert_eq!(found.best.record.target, target().key());
}

#[test]
fn a_miss_is_tuned_once_and_served_from_then_on() {
    let dir = tempfile::tempdir().unwrap();
    let (path, runs) = (dir.path().join("db"), AtomicUsize::new(0));
    let counted = |db: &TuningDb, workload: &Workload, target: &Target| {
        runs.fetch_add(1, Ordering::SeqCst);
        tune(db, workload, target)
    };
    let deploy = Deploy::TuneOnMiss(TuneOnMiss::into(&path, counted));
    for _ in 0..2 {
        assert_eq!(provenance(&deploy), Some(TimeProvenance::Raced));
    }
    assert_eq!(runs.load(Ordering::SeqCst), 1);

    // Threads must behave like processes.
    let other: Workload = "matmul:m=13,n=16,k=8".parse().unwrap();
    let deploy = Deploy::TuneOnMiss(TuneOnMiss::into(&path, counted).wait(Duration::from_secs(60)));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert!(deploy.schedule(&other, &target()).unwrap().is_tuned()));
        }
    });
    assert_eq!(runs.load(Ordering::SeqCst), 2);
    assert!(
        fs::read_dir(&path).unwrap().all(|entry| !entry.unwrap().file_name().to_string_lossy().contains("holder."))
    );
}

#[test]
fn only_untrusted_snapshot_entries_are_tuned() {
    let (dir, tuned) = (tempfile::tempdir().unwrap(), TuningDb::temporary().unwrap());
    let path = dir.path().join("db");
    tune(&tuned, &workload(), &target()).unwrap();
    let snapshot = snapshot(&tuned);
    let deploy = Deploy::TuneOnMiss(TuneOnMiss::into(&path, tune).after(&snapshot));
    assert_eq!(provenance(&deploy), Some(TimeProvenance::Raced));
    assert!(!path.exists(), "no database is made for it");

    let alike = Target::Cpu(CpuTarget { l3_bytes: 16 << 20, ..CpuTarget::generic_avx2(2) });
    let held = TaskHold::take(&path, &workload(), &alike.key(), Duration::ZERO).unwrap();
    let standing = || deploy.schedule(&workload(), &alike).unwrap().best().map(|best| best.standing);
    assert_eq!(standing(), Some(TimeProvenance::Claimed), "meanwhile what others found is better than the default");
    drop(held);
    assert_eq!(standing(), Some(TimeProvenance::Raced));
}

#[test]
fn lookups_without_waiting_get_the_best_known_schedule() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let fails =
        |_: &TuningDb, _: &Workload, _: &Target| -> Result<(), TuneError> { panic!("it is not this one's turn") };
    let deploy = Deploy::TuneOnMiss(TuneOnMiss::into(&path, fails));
    {
        let _tuning = TaskHold::take(&path, &workload(), &target().key(), Duration::ZERO).unwrap().unwrap();
        assert_eq!(provenance(&deploy), None, "another tunes it");
    }
    let db = TuningDb::open(&path).unwrap();
    assert_eq!(provenance(&deploy), None, "another writes the database");

    tune(&db, &workload(), &target()).unwrap();
    let mut half_done = db.query(&workload(), &target().key()).unwrap().remove(0);
    half_done.workload = "matmul:m=14,n=16,k=8".parse().unwrap();
    half_done.config = ScheduleSpace::new(&half_done.workload, &target()).default_config();
    half_done.phase = Phase::Search;
    db.append(&half_done).unwrap();
    let tuned = deploy.schedule(&half_done.workload, &target()).unwrap();
    assert_eq!(tuned.best().map(|best| best.standing), Some(TimeProvenance::Searched), "what was measured so far");

    let start = Instant::now();
    let waits = Deploy::TuneOnMiss(TuneOnMiss::into(&path, fails).wait(Duration::from_millis(200)));
    waits.schedule(&half_done.workload, &target()).unwrap();
    assert!(start.elapsed() >= Duration::from_millis(200));
}

#[test]
fn misses_use_neighbours_of_both_sources() {
    // No model ships for this target, so the analytic estimate ranks the schedules of other
    // workloads.
    let target = Target::Cpu(CpuTarget { isa: Isa::Generic, ..CpuTarget::generic_avx2(2) });
    let space = |text: &str| ScheduleSpace::new(&text.parse().unwrap(), &target);
    let (asked, near) =
        (space("matmul:m=61,n=100,k=70"), ["matmul:m=60,n=100,k=70", "matmul:m=61,n=96,k=70"].map(space));
    let score = |candidate: &Candidate| {
        let row = features::extract(&candidate.lower().unwrap(), &target);
        -row[features::estimate_column(&target)]
    };

    let template = {
        let db = TuningDb::temporary().unwrap();
        tune(&db, &workload(), &target).unwrap();
        db.query(&workload(), &target.key()).unwrap().remove(0)
    };
    let known = near.each_ref().map(|near| best_and_worst(near, &asked, score));
    for good in [0, 1] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("db");
        let dbs = [TuningDb::temporary().unwrap(), TuningDb::open(&path).unwrap()];
        for (place, db) in dbs.iter().enumerate() {
            let (config, _) = known[place][usize::from(place != good)].clone();
            db.append(&TuningRecord { workload: near[place].workload().clone(), config, ..template.clone() }).unwrap();
        }
        let [first, stored] = dbs;
        let snapshot = snapshot(&first);
        drop(stored);

        let _tuning = TaskHold::take(&path, asked.workload(), &target.key(), Duration::ZERO).unwrap().unwrap();
        let fails = |_: &TuningDb, _: &Workload, _: &Target| -> Result<(), TuneError> { panic!("another tunes it") };
        let deploy = Deploy::TuneOnMiss(TuneOnMiss::into(&path, fails).after(&snapshot));
        let tuned = deploy.schedule(asked.workload(), &target).unwrap();
        let (wanted, other) = (&known[good][0].1, &known[1 - good][1].1);
        assert!(score(wanted) > score(asked.default_candidate()) && score(wanted) > score(other));
        assert!(matches!(tuned.origin(), Origin::Predicted { .. }) && tuned.candidate() == wanted, "{good}: {wanted}");
    }
}

#[test]
fn untunable_workloads_are_errors() {
    let dir = tempfile::tempdir().unwrap();
    let refused: Workload = "matmul:m=8,n=8,k=8,dtype=f16".parse().unwrap();
    let deploy = Deploy::TuneOnMiss(TuneOnMiss::into(dir.path().join("db"), tune));
    assert!(matches!(deploy.schedule(&refused, &target()), Err(DeployError::Lookup(_))));
    let file = dir.path().join("file");
    fs::write(&file, "text").unwrap();
    let deploy = Deploy::TuneOnMiss(TuneOnMiss::into(&file, tune));
    assert!(matches!(deploy.schedule(&workload(), &target()), Err(DeployError::Db(_))));
}

/// Environment variables of the child process: its folder, and its role.
const ROLE: [&str; 2] = ["AUTOTUNE_DEPLOY_TEST_FOLDER", "AUTOTUNE_DEPLOY_TEST_ROLE"];

fn start(folder: &Path, role: &str) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "deploy::another_process", "--nocapture"]).env(ROLE[0], folder).env(ROLE[1], role);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Runs as the child process; does nothing in the process that runs the tests.
#[test]
fn another_process() {
    let (Some(folder), Some(role)) = (std::env::var_os(ROLE[0]), std::env::var_os(ROLE[1])) else { return };
    let folder = Path::new(&folder);
    let logged = |db: &TuningDb, workload: &Workload, target: &Target| {
        let mut log = OpenOptions::new().append(true).create(true).open(folder.join("log")).unwrap();
        writeln!(log, "{}", std::process::id()).unwrap();
        if role == "hangs" {
            let mut device = PaperDevice {
                before: Some(Box::new(|n| sleep(Duration::from_secs(n as u64 / 3 * 600)))),
                ..PaperDevice::default()
            };
            let tuner = Tuner::new(target).searcher(|_| Random).trials(8).measurer(&mut device);
            return tuner.database(db).tune(&[Task::single(workload.clone())]).map(|_| ());
        }
        sleep(Duration::from_millis(300));
        tune(db, workload, target)
    };
    let on_miss = TuneOnMiss::into(folder.join("db"), logged).wait(Duration::from_secs(100));
    assert_eq!(provenance(&Deploy::TuneOnMiss(on_miss)), Some(TimeProvenance::Raced));
}

fn tuned_by(folder: &Path) -> Vec<String> {
    fs::read_to_string(folder.join("log")).unwrap_or_default().lines().map(str::to_string).collect()
}

#[test]
fn of_many_processes_one_tunes() {
    let dir = tempfile::tempdir().unwrap();
    let children: Vec<Child> = (0..6).map(|_| start(dir.path(), "tunes")).collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(
            output.status.success(),
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    assert_eq!(tuned_by(dir.path()).len(), 1);
}

#[test]
fn another_process_finishes_for_a_killed_one() {
    let dir = tempfile::tempdir().unwrap();
    let mut killed = start(dir.path(), "hangs");
    let start_time = Instant::now();
    let records = || TuningDb::open_reading(dir.path().join("db")).map_or(0, |db| db.len());
    while records() < 3 {
        assert!(start_time.elapsed() < Duration::from_secs(60), "nothing is tuned");
        sleep(Duration::from_millis(5));
    }
    let waiting = start(dir.path(), "tunes");
    killed.kill().unwrap();
    killed.wait().unwrap();
    let output = waiting.wait_with_output().unwrap();
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(tuned_by(dir.path()).len(), 2);

    let searched = |db: TuningDb| {
        let records = db.query(&workload(), &target().key()).unwrap();
        records.iter().filter(|record| record.phase == Phase::Search).count()
    };
    assert_eq!(
        searched(TuningDb::open_reading(dir.path().join("db")).unwrap()),
        8,
        "it went on, and did not begin anew"
    );
}
