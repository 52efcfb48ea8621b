//! Deployment with this crate alone: look-up in a snapshot, building the kernel, running it.
#![allow(clippy::unwrap_used)]

use autotune_db::{Snapshot, SnapshotWriter, TuningDb, TuningRecord};
use autotune_deploy::{Deploy, Origin, Query, Tuned};
use autotune_ir::Target;
use autotune_runtime::{View, ViewMut};
use autotune_schedules::{ScheduleSpace, tolerance};
use autotune_workloads::{Operands, Workload, max_rel_error, reference};
use ndarray::ArrayD;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

/// Runs a kernel on random operands and returns the relative error of its output.
fn run(tuned: &Tuned) -> f64 {
    let workload = tuned.workload();
    let operands = Operands::random(workload.spec(), 3);
    let views: Vec<View> = operands.iter().map(|x| View::new(x.as_slice().unwrap(), x.shape())).collect();
    let shape = workload.output_shape();
    let mut output = vec![f32::NAN; shape.iter().product()];
    tuned.build().unwrap().run(&views, &mut [ViewMut::new(&mut output, shape)]).unwrap();
    max_rel_error(&ArrayD::from_shape_vec(shape, output).unwrap(), &reference(workload, &operands))
}

#[test]
#[cfg(target_arch = "x86_64")]
fn schedules_of_a_snapshot_are_served_and_run() {
    let workload: Workload = "matmul:m=37,n=40,k=24,bias,act=relu".parse().unwrap();
    let target = Target::detect("cpu", Some(2)).unwrap();
    let space = ScheduleSpace::new(&workload, &target);
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut drawn = (0..20).map(|_| space.sample(&mut rng).config().clone());
    let config = drawn.find(|config| *config != space.default_config()).unwrap();

    let db = TuningDb::temporary().unwrap();
    db.append(&TuningRecord::synthetic(&workload, &target, config.clone(), 1e-5)).unwrap();
    let mut writer = SnapshotWriter::default();
    writer.add_best_of(&db, &|_| true).unwrap();
    let snapshot = Snapshot::from_bytes(writer.into_bytes().unwrap()).unwrap();

    let tuned = Deploy::LookUp(&snapshot).schedule(&workload, &target).unwrap();
    assert!(matches!(tuned.origin(), Origin::Tuned(_)));
    assert_eq!(*tuned.config(), config);
    assert!(run(&tuned) <= tolerance(&workload, &config));

    let missed: Workload = "matmul:m=41,n=40,k=24".parse().unwrap();
    let default = Deploy::LookUp(&snapshot).schedule(&missed, &target).unwrap();
    assert!(!default.is_tuned());
    assert!(run(&default) <= tolerance(&missed, default.config()));
}

/// A schedule that another process chose is taken as it is, if it is valid.
#[test]
#[cfg(target_arch = "x86_64")]
fn a_given_schedule_is_proven_and_runs() {
    let workload: Workload = "matmul:m=37,n=40,k=24,bias,act=relu".parse().unwrap();
    let target = Target::detect("cpu", Some(1)).unwrap();
    let space = ScheduleSpace::new(&workload, &target);
    let config = space.sample(&mut ChaCha8Rng::seed_from_u64(2)).config().clone();
    let query = Query::new(&workload, &target);
    let tuned = query.given(&config).unwrap().unwrap();
    assert_eq!((tuned.config(), tuned.is_tuned()), (&config, false));
    assert!(run(&tuned) <= tolerance(&workload, &config));

    let mut other = config;
    other.sketch = "none".into();
    assert!(query.given(&other).unwrap().is_none());
}

#[test]
#[cfg(not(feature = "compilers"))]
fn code_that_takes_a_compiler_is_refused_by_its_name() {
    let workload: Workload = "matmul:m=37,n=40,k=24".parse().unwrap();
    let target = Target::detect("cuda:sm_90", None).unwrap();
    let tuned = Query::new(&workload, &target).best().unwrap();
    let error = tuned.kernel(&autotune_runtime::Cpu::new(1)).err().unwrap().to_string();
    assert!(error.contains("NVRTC") && error.ends_with("'compilers' of autotune-deploy"), "{error}");
}
