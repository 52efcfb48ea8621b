//! Look-up of tuned schedules.

use autotune::search::Random;
use autotune::{BuildError, LookupError, Origin, PredictParams, Query, Task, Tuned, Tuner};
use autotune_cost_model::RankingModel;
use autotune_db::{Phase, Snapshot, SnapshotWriter, Source, TimeProvenance, TuningDb, TuningRecord};
use autotune_ir::layout::{from_layout, to_layout};
use autotune_ir::plan::Binding;
use autotune_ir::{CpuTarget, Isa, Target};
use autotune_runtime::{View, ViewMut};
use autotune_schedules::portfolio::ShippedSet;
use autotune_schedules::{Candidate, KnobValue, ScheduleSpace};
use autotune_workloads::{Operands, Workload, max_rel_error, reference};

use crate::support::{PaperDevice, best_and_worst};

fn target() -> Target {
    Target::Cpu(CpuTarget::generic_avx2(2))
}

fn workload() -> Workload {
    "matmul:m=12,n=16,k=8".parse().unwrap()
}

/// Returns a database in which the workload was tuned for the target.
fn tuned_db() -> TuningDb {
    let db = TuningDb::temporary().unwrap();
    let mut device = PaperDevice::default();
    let tuner = Tuner::new(&target()).searcher(|_| Random).trials(16).measurer(&mut device);
    tuner.database(&db).tune(&[Task::single(workload())]).unwrap();
    db
}

/// Returns a record that is faster than any other.
fn fastest(db: &TuningDb) -> TuningRecord {
    let mut record = db.query(&workload(), &target().key()).unwrap().pop().unwrap();
    record.measurement.outcome.as_mut().unwrap().run_secs = 1e-12;
    record.phase = Phase::Search;
    record
}

#[test]
fn the_winner_is_found_and_without_one_the_default() {
    let (db, space) = (tuned_db(), ScheduleSpace::new(&workload(), &target()));
    let tuned = Query::new(&workload(), &target()).source(&db).best().unwrap();
    let best = db.best(&workload(), &target().key(), &|_| true).unwrap().unwrap();
    assert!(tuned.is_tuned() && tuned.best() == Some(&best) && best.standing == TimeProvenance::Raced);
    assert_eq!(tuned.config(), &best.record.config);
    assert_eq!(tuned.program().unwrap(), &space.checked(&best.record.config).unwrap().lower().unwrap());

    let other = "matmul:m=13,n=16,k=8".parse().unwrap();
    let of_others = Query::new(&other, &target()).source(&db).best().unwrap();
    assert!(matches!(of_others.origin(), Origin::Predicted { .. }) && of_others.best().is_none());
    let untuned = Query::new(&other, &target()).best().unwrap();
    assert!(!untuned.is_tuned());
    let predicted = autotune::predicted(&ScheduleSpace::new(&other, &target()), 1, PredictParams::default());
    assert_eq!(untuned.config(), predicted[0].config());
}

#[test]
fn warm_records_answer_for_cold_workloads_without_records() {
    let (db, cold) = (tuned_db(), workload().with_cold(true));
    let look_up = || Query::new(&cold, &target()).source(&db).best().unwrap();
    let warm = Query::new(&workload(), &target()).source(&db).best().unwrap();
    assert!(look_up().is_tuned() && look_up().config() == warm.config() && *look_up().workload() == workload());

    // Slower than any with warm caches, but measured with uncached constants.
    let mut own = fastest(&db);
    own.workload = cold.clone();
    own.measurement.outcome.as_mut().unwrap().run_secs = 1.0;
    db.append(&own).unwrap();
    assert_eq!((look_up().workload(), look_up().config()), (&cold, &own.config));
    let kinds = Query::new(&cold, &target()).source(&db).kinds().unwrap();
    assert!(kinds.len() == 1 && kinds[0].config() == &own.config);
    assert_eq!(Query::new(&workload(), &target()).source(&db).best().unwrap().config(), warm.config());
}

#[test]
fn network_choices_do_not_replace_records_of_a_narrower_scope() {
    let (db, network) = (tuned_db(), 7);
    let within =
        |target: &Target, network| Query::new(&workload(), target).source(&db).within(network).kinds().unwrap();
    let kinds = Query::new(&workload(), &target()).source(&db).kinds().unwrap();
    let configs = |found: &[Tuned]| found.iter().map(|tuned| tuned.config().clone()).collect::<Vec<_>>();
    assert_eq!(configs(&within(&target(), network)), configs(&kinds));

    // Slower, because it is the time of a whole network.
    let best = kinds[0].config();
    let records = db.query(&workload(), &target().key()).unwrap();
    let mut chosen = records.into_iter().rfind(|record| record.config != *best).unwrap();
    chosen.workload = workload().within(Some(network));
    chosen.measurement.outcome.as_mut().unwrap().run_secs = 1.0;
    db.append(&chosen).unwrap();
    let found = within(&target(), network);
    assert_eq!((configs(&found), found[0].workload()), (vec![chosen.config.clone()], &workload()));
    assert_eq!(configs(&within(&target(), 8)), configs(&kinds));
    assert_eq!(Query::new(&workload(), &target()).source(&db).best().unwrap().config(), best);

    // A similar machine uses the choice until it has measured something itself.
    let alike = Target::Cpu(CpuTarget { l3_bytes: 16 << 20, ..CpuTarget::generic_avx2(2) });
    assert_eq!(configs(&within(&alike, network)), [chosen.config]);
    let own = TuningRecord { target: alike.key(), ..fastest(&db) };
    db.append(&own).unwrap();
    assert_eq!(configs(&within(&alike, network)), [own.config]);
}

#[test]
fn transferred_and_shipped_schedules_are_ranked_together() {
    let target = Target::Cpu(CpuTarget { isa: Isa::Avx512, ..CpuTarget::generic_avx2(2) });
    let space = |text: &str| ScheduleSpace::new(&text.parse().unwrap(), &target);
    let (asked, near) = (space("matmul:m=61,n=100,k=70"), space("matmul:m=60,n=100,k=70"));
    let model = RankingModel::shipped(ShippedSet::Avx512).unwrap();
    let score = |candidate: &Candidate| model.scores(std::slice::from_ref(candidate))[0];

    let look_up = |source: &dyn Source| Query::new(asked.workload(), &target).source(source).best().unwrap();
    let shipped = look_up(&TuningDb::temporary().unwrap());
    assert_ne!(shipped.candidate(), asked.default_candidate(), "what ships makes a difference");
    let [best, worst] = best_and_worst(&near, &asked, score);
    assert!(score(&best.1) > score(shipped.candidate()) && score(&worst.1) < score(shipped.candidate()));

    for (known, carried, is_best) in [(best.0, &best.1, true), (worst.0, &worst.1, false)] {
        let record = TuningRecord {
            workload: near.workload().clone(),
            target: target.key(),
            config: known,
            ..fastest(&tuned_db())
        };
        let (db, mut writer) = (TuningDb::temporary().unwrap(), SnapshotWriter::default());
        db.append(&record).unwrap();
        writer.add(&record).unwrap();
        let snapshot = Snapshot::from_bytes(writer.into_bytes().unwrap()).unwrap();
        for source in [&db as &dyn Source, &snapshot] {
            // A known schedule replaces the farthest one of those that ship, so that another of
            // these may be the best.
            let found = look_up(source);
            assert_eq!(found.candidate() == carried, is_best);
            assert!(score(found.candidate()) >= score(carried));
        }
    }
}

#[test]
fn records_outside_the_current_space_are_skipped() {
    let db = tuned_db();
    let mut poison = fastest(&db);
    poison.config.knobs.insert("warp".into(), KnobValue::Choice("9".into()));
    db.append(&poison).unwrap();
    let tuned = Query::new(&workload(), &target()).source(&db).best().unwrap();
    assert!(tuned.is_tuned() && tuned.config() != &poison.config);
}

#[test]
fn a_stated_gpu_finds_what_any_of_its_kind_found() {
    let (db, stated) = (tuned_db(), Target::detect("cuda:sm_80", None).unwrap());
    assert!(!Query::new(&workload(), &stated).source(&db).best().unwrap().is_tuned());
    let record = TuningRecord {
        target: "cuda:sm_80:Some_device".into(),
        config: ScheduleSpace::new(&workload(), &stated).default_config(),
        ..fastest(&db)
    };
    db.append(&record).unwrap();
    assert_eq!(Query::new(&workload(), &stated).source(&db).best().unwrap().best().unwrap().record, record);
}

#[test]
fn untrusted_records_are_marked_and_rank_after_measured_ones() {
    let db = TuningDb::temporary().unwrap();
    let claim = TuningRecord { imported: true, ..fastest(&tuned_db()) };
    db.append(&claim).unwrap();
    let standing = || Query::new(&workload(), &target()).source(&db).best().unwrap().best().map(|best| best.standing);
    assert_eq!(standing(), Some(TimeProvenance::Claimed));
    let mut measured = fastest(&tuned_db());
    measured.measurement.outcome.as_mut().unwrap().run_secs = 1.0;
    db.append(&measured).unwrap();
    assert_eq!(standing(), Some(TimeProvenance::Searched));
}

#[test]
fn looked_up_schedules_run_on_the_callers_memory() {
    let here = Target::detect("cpu", Some(1)).unwrap();
    let tuned = Query::new(&workload(), &here).best().unwrap();
    let mut runner = tuned.build().unwrap();
    let plan = runner.kernel().plan().clone();
    let operands = Operands::random(workload().spec(), 0);

    let given = plan.buffers.iter().filter_map(|buffer| Some((operands.find(buffer.role)?, buffer)));
    let given: Vec<_> = given.map(|(tensor, buffer)| (to_layout(tensor, buffer.layout).unwrap(), buffer)).collect();
    let views: Vec<View<'_>> =
        given.iter().map(|(elements, buffer)| View::new(elements, &buffer.shape).in_layout(buffer.layout)).collect();
    let output = plan.buffers.iter().find(|buffer| buffer.binding == Binding::Output).unwrap();
    let mut result = vec![0.0; output.shape.iter().product()];
    runner.run(&views, &mut [ViewMut::new(&mut result, &output.shape).in_layout(output.layout)]).unwrap();
    let result = from_layout(&result, workload().output_shape(), output.layout).unwrap();
    assert!(max_rel_error(&result, &reference(&workload(), &operands)) < 1e-5);
}

#[test]
fn code_for_another_machine_is_not_built() {
    let arm = Target::Cpu(CpuTarget { isa: autotune_ir::Isa::Neon, ..CpuTarget::generic_avx2(1) });
    if Target::detect("cpu", Some(1)).unwrap().cpu().unwrap().isa != autotune_ir::Isa::Neon {
        let error = Query::new(&workload(), &arm).best().unwrap().build().err().unwrap();
        assert!(matches!(error, BuildError::Isa { .. }), "{error}");
    }
    let gpu = Target::detect("cuda:sm_80", None).unwrap();
    assert!(Query::new(&workload(), &gpu).best().unwrap().build().is_err(), "a CPU runs no code for GPUs");
}

#[test]
fn a_workload_that_the_target_has_no_kernels_for_is_an_error() {
    let workload: Workload = "matmul:m=8,n=8,k=8,dtype=f16".parse().unwrap();
    let error = Query::new(&workload, &target()).best();
    assert!(matches!(error, Err(LookupError::Unfit { .. })), "{error:?}");
}
