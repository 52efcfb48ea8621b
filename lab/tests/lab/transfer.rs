//! Checks, by replay on the recorded test bed, that records of other shapes save trials.

use autotune::TuneParams;
use autotune::search::Annealing;
use autotune_cost_model::{Prior, XgbModel, XgbParams};
use autotune_db::{TuningDb, TuningRecord};
use autotune_lab::geometric_mean;
use autotune_lab::replay::{FromRecorded, ReplayTask};
use autotune_lab::test_bed::TestBed;

use crate::long::or_long;

const FAMILIES: [&str; 2] = ["conv1x1", "matmul"];
/// One workload of each family in this number is searched; the others are known.
const SEARCHED_ONE_IN: usize = 9;

// Number of known records of each known workload, approximately.
const OF_EACH: usize = 24;
const TRIALS: usize = 32;
/// Seeds in an ordinary and a long run.
const SEEDS: [u64; 2] = [1, 2];

/// Returns the number of trials until a search is within 2 % of the best recorded time: geometric
/// mean over workloads and seeds.
fn trials(tasks: &[ReplayTask], known: &[TuningRecord], model: &XgbModel) -> f64 {
    let of_run = |task: &ReplayTask, seed| {
        let db = TuningDb::temporary().unwrap();
        db.append_all(known).unwrap();
        let (model, pool) = (model.clone(), task.pool.clone());
        let params = TuneParams { prediction: None, ..TuneParams::default() };
        let curve = task.search(&db, move |tuner| {
            let tuner = tuner.params(params).cost_model(model).trials(TRIALS).seed(seed);
            tuner.searcher(move |_| FromRecorded::new(Annealing::default(), &pool))
        });
        let curve = curve.unwrap();
        curve.iter().position(|&quality| quality >= 0.98).map_or(TRIALS + 1, |at| at + 1) as f64
    };
    geometric_mean(tasks.iter().flat_map(|task| (0..or_long(SEEDS)).map(move |seed| of_run(task, seed))))
}

#[test]
fn a_history_of_other_shapes_saves_trials() {
    let _cores = crate::all_cores();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/test_bed/avx512_2threads.jsonl.gz");
    let test_bed = TestBed::read(path).unwrap();
    let target = test_bed.header.target().unwrap();
    let all = ReplayTask::of(&test_bed, &target, |task| FAMILIES.contains(&task.family.as_str()));
    let (searched, known): (Vec<_>, Vec<_>) =
        all.into_iter().enumerate().partition(|(i, _)| i % SEARCHED_ONE_IN == SEARCHED_ONE_IN / 2);
    let searched: Vec<ReplayTask> = searched.into_iter().map(|(_, task)| task).collect();
    let every = |task: &ReplayTask| task.records((0..task.run_secs.len()).step_by(task.run_secs.len() / OF_EACH));
    let known: Vec<TuningRecord> = known.iter().flat_map(|(_, task)| every(task)).collect();
    assert!(searched.len() >= 6 && known.len() > 1000, "{} searched, {} records", searched.len(), known.len());

    let model = |prior| XgbModel::new(XgbParams { prior, ..XgbParams::default() });
    let estimate = model(Some(Prior::estimate(&target)));
    let [with, without, nothing] =
        [trials(&searched, &known, &estimate), trials(&searched, &[], &estimate), trials(&searched, &[], &model(None))];
    assert!(with < without && 2.0 * with < nothing, "{with} trials with it, {without} without, {nothing} from nothing");
}
