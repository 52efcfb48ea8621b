//! Tests of replayed searches: only recorded configs are proposed and answered, and a seed
//! determines the search.

use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::path::Path;

use autotune::search::{Annealing, Genetic, Grid, Searcher};
use autotune::{TuneParams, contract};
use autotune_cost_model::{XgbModel, XgbParams};
use autotune_db::TuningDb;
use autotune_lab::replay::{DrawRecorded, FromRecorded, Replay, ReplayTask, answer_each};
use autotune_lab::test_bed::{ConfigSource, RecordedSample, Recording, TestBed};
use autotune_measure::{Batches, MeasureError, Measurer, OnResult, RaceResult};
use autotune_measurement::{CandidateError, Measurement, RunSecs};
use autotune_schedules::{Candidate, ScheduleSpace};
use autotune_workloads::Workload;

use crate::made_up;

const WORKLOAD: &str = "conv2d:c=16,h=20,w=20,o=32,k=3,p=1";
const CONFIGS: usize = 60;

/// Measurer with times from a formula, which stores its answers as samples.
#[derive(Default)]
struct Recorder {
    said: HashMap<Workload, Vec<RecordedSample>>,
}

impl Recorder {
    fn answer(&mut self, candidate: &Candidate) -> Measurement {
        let ran = candidate.lower().is_ok();
        let run_secs = ran.then_some(1e-6 * (1 + candidate.stable_hash() % 1000) as f64);
        let of_workload = self.said.entry(candidate.workload().clone()).or_default();
        of_workload.push(RecordedSample { config: candidate.config().clone(), run_secs });
        let failure = CandidateError::Lower { message: "made up".into() };
        Measurement::of(run_secs.map(RunSecs::synthetic).ok_or(failure))
    }
}

impl Measurer for Recorder {
    fn measure_batches(
        &mut self,
        next_batch: &mut Batches<'_>,
        on_result: &mut OnResult<'_>,
    ) -> Result<(), MeasureError> {
        answer_each(next_batch, on_result, |candidate| self.answer(candidate));
        Ok(())
    }

    fn race(&mut self, candidates: &[Candidate], _budget_secs: f64) -> Result<RaceResult, MeasureError> {
        Ok(RaceResult::interleaved(candidates.iter().map(|candidate| self.answer(candidate)).collect()))
    }
}

#[test]
fn a_replay_of_what_the_contract_measures_keeps_the_contract() {
    let target = made_up::target();
    let mut recorder = Recorder::default();
    contract::measurer(&mut recorder, &target);
    let recording =
        |(workload, samples)| Recording { family: "any".into(), workload, source: ConfigSource::Random, samples };
    let tasks: Vec<Recording> = recorder.said.into_iter().map(recording).collect();
    contract::measurer(&mut Replay::new(&tasks), &target);
}

#[test]
fn nothing_is_known_of_what_was_not_recorded() {
    let task = task();
    let replay = Replay::new(&[]);
    assert!(replay.measurement(&task.pool.candidates()[0]).outcome.is_err());
}

fn task() -> ReplayTask {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bed.jsonl");
    made_up::write(&path, &[("conv3x3", WORKLOAD)], CONFIGS);
    let test_bed = TestBed::read(&path).unwrap();
    let [task] = ReplayTask::of(&test_bed, &made_up::target(), |_| true).try_into().unwrap();
    task
}

/// Runs a replayed search, checks its records, and returns the measured configs in order.
fn measured(task: &ReplayTask, new: NewSearcher, seed: u64, trials: usize) -> Vec<String> {
    let db = TuningDb::temporary().unwrap();
    let of_task = task.clone();
    let params = TuneParams { prediction: None, ..TuneParams::default() };
    let model = XgbModel::new(XgbParams { rounds: 10, ..XgbParams::default() });
    let curve = task.search(&db, move |tuner| {
        tuner.params(params).cost_model(model).trials(trials).seed(seed).searcher(move |_| new(&of_task))
    });
    let curve = curve.unwrap();
    assert!(curve.is_sorted() && curve.iter().all(|quality| (0.0..=1.0).contains(quality)), "{curve:?}");

    let records = db.query(&task.workload, &task.target.key()).unwrap();
    let known: HashMap<u64, Option<f64>> =
        task.pool.candidates().iter().map(Candidate::stable_hash).zip(task.run_secs.iter().copied()).collect();
    for record in &records {
        let recorded = known.get(&record.config.stable_hash());
        assert_eq!(recorded, Some(&record.measurement.run_secs()), "seed {seed}: {}", record.config);
    }
    records.iter().take(curve.len()).map(|record| record.config.to_string()).collect()
}

type NewSearcher = fn(&ReplayTask) -> Box<dyn Searcher>;

const SEARCHERS: [NewSearcher; 4] = [
    |task| Box::new(FromRecorded::new(Annealing::default(), &task.pool)),
    |task| Box::new(FromRecorded::new(Genetic::default(), &task.pool)),
    |task| Box::new(FromRecorded::new(Grid::default(), &task.pool)),
    |task| Box::new(DrawRecorded::new(&task.pool)),
];

#[test]
fn a_seed_decides_and_only_what_was_recorded_is_measured_and_each_once() {
    let task = task();
    let default = ScheduleSpace::new(&task.workload, &task.target).default_config().to_string();
    for (i, new) in SEARCHERS.into_iter().enumerate() {
        let [first, again, other] = [7, 7, 8].map(|seed| measured(&task, new, seed, 24));
        assert_eq!(first, again, "searcher {i}");
        assert!(first != other || i == 2, "searcher {i}: chance decides nothing");
        assert_eq!(first.len(), 24, "searcher {i}");
        assert_eq!(first[0], default, "searcher {i}: the fixed rule's schedule is the first");
        assert_eq!(first.iter().collect::<HashSet<_>>().len(), 24, "searcher {i}: one is measured twice");
    }
}

#[test]
fn a_search_ends_where_the_record_is_used_up() {
    let task = task();
    for new in SEARCHERS {
        let all = measured(&task, new, 1, 10 * CONFIGS);
        assert_eq!(all.len(), task.pool.candidates().len());
    }
}

/// Workload texts are keys of databases and recordings: a recorded text must parse to a workload
/// with the same text and element type.
#[test]
fn recorded_workloads_keep_their_texts() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("test_bed");
    let mut known = HashSet::new();
    for bed in ["avx2_2threads", "avx512_2threads", "h200"] {
        let mut lines = String::new();
        let file = std::fs::File::open(folder.join(format!("{bed}.jsonl.gz"))).unwrap();
        flate2::read::GzDecoder::new(file).read_to_string(&mut lines).unwrap();
        for line in lines.lines().skip(1) {
            let recorded: serde_json::Value = serde_json::from_str(line).unwrap();
            let text = recorded["workload"].as_str().unwrap();
            let workload: Workload = text.parse().unwrap_or_else(|error| panic!("{bed}: {text}: {error}"));
            assert_eq!(workload.as_str(), text, "{bed}");

            // All operands and the result have the one type that the text names.
            let said = text.split(',').find_map(|field| field.strip_prefix("dtype=")).unwrap_or("f32");
            let types = workload.spec().operands().map(|tensor| tensor.dtype);
            assert!(types.chain([workload.result_dtype()]).all(|dtype| dtype.word() == said), "{bed}: {text}");
            known.insert(text.to_string());
        }
    }
    assert!(known.len() > 100, "{} workloads", known.len());
}
