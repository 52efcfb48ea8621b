//! Numbers of planning and lowering steps of a look-up.

use std::sync::atomic::{AtomicUsize, Ordering};

use autotune_db::{Snapshot, SnapshotWriter, Source, TuningDb, TuningRecord};
use autotune_deploy::{Query, Tuned};
use autotune_ir::{CpuTarget, Program, Target};
use autotune_schedules::sketch::{Plan, Sketch};
use autotune_schedules::{Config, Knob, KnobValue, KnobValues, LowerError, ScheduleSpace, lower, register_sketch};
use autotune_workloads::Workload;

const WORKLOAD: &str = "matmul:m=7,n=9,k=5";
const NAME: &str = "counted";

static PLANNED: AtomicUsize = AtomicUsize::new(0);
static LOWERED: AtomicUsize = AtomicUsize::new(0);

/// Sketch that counts, with the loop nests of another sketch's default.
struct Counted;
static COUNTED: Counted = Counted;

struct CountedPlan(Program);

impl Plan for CountedPlan {
    fn lower(&self) -> Program {
        LOWERED.fetch_add(1, Ordering::SeqCst);
        self.0.clone()
    }
}

impl Sketch for Counted {
    fn name(&self) -> &'static str {
        NAME
    }

    fn knobs(&self, workload: &Workload, _target: &Target) -> Option<Vec<Knob>> {
        (workload.to_string() == WORKLOAD).then(|| vec![Knob::choice("which", &["a", "b"])])
    }

    fn plan(&self, workload: &Workload, target: &Target, _: &dyn KnobValues) -> Result<Box<dyn Plan>, LowerError> {
        PLANNED.fetch_add(1, Ordering::SeqCst);
        Ok(Box::new(CountedPlan(lower(workload, target, &default(workload, target))?)))
    }
}

/// Returns the default config, which is of another sketch.
fn default(workload: &Workload, target: &Target) -> Config {
    ScheduleSpace::new(workload, target).default_config()
}

/// Runs `action` and returns its result with the numbers of plannings and lowerings.
fn counted<T>(action: impl FnOnce() -> T) -> (T, [usize; 2]) {
    let counts = || [&PLANNED, &LOWERED].map(|count| count.load(Ordering::SeqCst));
    let before = counts();
    let done = action();
    let after = counts();
    (done, [after[0] - before[0], after[1] - before[1]])
}

#[test]
fn a_look_up_plans_and_lowers_its_schedule_once() {
    register_sketch(&COUNTED).unwrap();
    let (workload, target) = (WORKLOAD.parse().unwrap(), Target::Cpu(CpuTarget::generic_avx2(1)));
    let config = |word: &str| Config {
        sketch: NAME.into(),
        knobs: [("which".to_string(), KnobValue::Choice(word.into()))].into(),
    };
    let (db, mut writer) = (TuningDb::temporary().unwrap(), SnapshotWriter::default());
    for (config, secs) in [(config("a"), 2e-6), (config("b"), 1e-6), (default(&workload, &target), 3e-6)] {
        let record = TuningRecord::synthetic(&workload, &target, config, secs);
        db.append(&record).unwrap();
        writer.add(&record).unwrap();
    }
    let snapshot = Snapshot::from_bytes(writer.into_bytes().unwrap()).unwrap();

    let query = Query::new(&workload, &target);
    let all = |tuned: &Tuned| tuned.plan().unwrap().stages.len() + tuned.program().unwrap().stages.len();
    // The database also asks whether the slower config fits, because it was the best when appended.
    for (source, asked) in [(&snapshot as &dyn Source, 1), (&db, 2)] {
        let (tuned, counts) = counted(|| query.source(source).best().unwrap());
        assert_eq!((tuned.config(), counts), (&config("b"), [asked, 1]));
        assert_eq!(counted(|| all(&tuned)).1, [0, 0]);
    }
    // Both records of the counting sketch are of the same kind.
    let (kinds, counts) = counted(|| query.source(&db).kinds().unwrap());
    assert_eq!((kinds.len(), counts), (2, [2, 1]));
}
