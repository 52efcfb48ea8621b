//! Replays searches on the recorded test bed, without the machine: a measurer that answers from the
//! record, and searchers that propose recorded configs.
//!
//! [`Replay`] returns the recorded time of a config, and a failure for a config that was not
//! recorded. As only a tiny part of a space is recorded, a searcher runs inside [`FromRecorded`]:
//! it moves through the whole space as usual, but each candidate gets the score of the nearest
//! recorded config that is not measured yet, and that config is proposed in its place.
//!
//! The model, the measurer and the searcher therefore see only recorded configs with their true
//! times; everything else is the tuner itself. [`ReplayTask::search`] is a complete run of
//! [`Tuner`], deterministic for a seed.
//!
//! The schedule with which the tuner begins must be a recorded one. With [`TuneParams::prediction`]
//! `None` it is the schedule of the fixed rule, or, if the database knows other workloads, the
//! best-scored of the recorded configs nearest to the transferred schedules. The pretrained model
//! from which [`XgbModel::for_target`] starts was trained on this record: give the tuner a model
//! that was not.
//!
//! # Limits of a replay
//!
//! The recorded configs are a selection: some random, most from a learned search and from the best
//! configs of other workloads. They are far better than the average of the space. Random draws from
//! them therefore flatter random search; draws of the [random configs](ReplayTask::drawn) do not.
//!
//! A config that was never measured cannot be found, so that steps finer than the density of the
//! record cannot be judged, such as the last per cent of a search.
//!
//! Recorded times are one measurement or a few, so that the fastest are partly luck. Searches that
//! measure a large part of the record all end at the same best: compare the first third.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use anyhow::{Context, Result};
#[cfg(doc)]
use autotune::TuneParams;
use autotune::search::{Ask, Searcher};
use autotune::{Event, Observer, Task, Tuner};
#[cfg(doc)]
use autotune_cost_model::XgbModel;
use autotune_db::{Phase, Provenance, TuningDb, TuningRecord};
use autotune_ir::Target;
use autotune_measure::{Batches, MeasureError, Measurer, OnResult, RaceResult};
use autotune_measurement::{CandidateError, Measurement, RunSecs};
use autotune_schedules::{Candidate, KnobSpace, KnobValue, LOWERING_VERSION, ScheduleSpace};
use autotune_workloads::Workload;
use rand::seq::SliceRandom;

use crate::test_bed::{ConfigSource, Recording, TestBed};

/// Measurer that answers with recorded times.
#[derive(Clone, Debug, Default)]
pub struct Replay {
    run_secs: Arc<HashMap<(Workload, u64), Option<f64>>>,
}

impl Replay {
    /// Returns a replay of some recorded workloads, each config once: see [`TestBed::tasks`].
    pub fn new(tasks: &[Recording]) -> Self {
        let known = tasks.iter().flat_map(|task| {
            let key = |sample: &crate::test_bed::RecordedSample| (task.workload.clone(), sample.config.stable_hash());
            task.samples.iter().map(move |sample| (key(sample), sample.run_secs))
        });
        Self { run_secs: Arc::new(known.collect()) }
    }

    /// Returns the recorded time of a candidate; a failure if it failed or was not recorded.
    pub fn measurement(&self, candidate: &Candidate) -> Measurement {
        let known = self.run_secs.get(&(candidate.workload().clone(), candidate.stable_hash()));
        let failed = |message: &str| Err(CandidateError::Build { message: message.into() });
        Measurement::of(match known {
            Some(Some(run_secs)) => Ok(RunSecs::synthetic(*run_secs)),
            Some(None) => failed("it failed when it was recorded"),
            None => failed("it is not in the record"),
        })
    }
}

impl Measurer for Replay {
    fn measure_batches(
        &mut self,
        next_batch: &mut Batches<'_>,
        on_result: &mut OnResult<'_>,
    ) -> Result<(), MeasureError> {
        answer_each(next_batch, on_result, |candidate| self.measurement(candidate));
        Ok(())
    }

    fn race(&mut self, candidates: &[Candidate], _budget_secs: f64) -> Result<RaceResult, MeasureError> {
        Ok(RaceResult::interleaved(candidates.iter().map(|candidate| self.measurement(candidate)).collect()))
    }
}

/// Implements [`Measurer::measure_batches`] for immediate answers: answers each candidate of the
/// batches in order, until there are no more or `on_result` breaks.
pub fn answer_each(
    next_batch: &mut Batches<'_>,
    on_result: &mut OnResult<'_>,
    mut answer: impl FnMut(&Candidate) -> Measurement,
) {
    let mut index = 0;
    loop {
        let batch = next_batch();
        if batch.is_empty() {
            return;
        }

        for candidate in &batch {
            if let ControlFlow::Break(()) = on_result(index, answer(candidate)) {
                return;
            }
            index += 1;
        }
    }
}

/// Recorded configs of a workload, with a nearest-neighbour search.
#[derive(Debug)]
pub struct ConfigPool {
    candidates: Vec<Candidate>,
    sketches: Vec<Members>,
}

/// Recorded configs of one sketch.
#[derive(Debug)]
struct Members {
    sketch: &'static str,
    /// Positions of the sketch's configs in the pool.
    positions: Vec<usize>,
    /// Distance from a value of a knob to that knob in each config, by knob and value.
    distances: HashMap<String, HashMap<KnobValue, Vec<f32>>>,
}

impl ConfigPool {
    /// Returns a pool of candidates of a space.
    pub fn new(space: &ScheduleSpace, candidates: Vec<Candidate>) -> Self {
        let sketches = space.sketches().iter().map(|sketch| Members::of(sketch, &candidates)).collect();
        Self { candidates, sketches }
    }

    /// Returns the recorded candidates.
    pub fn candidates(&self) -> &[Candidate] {
        &self.candidates
    }

    /// Returns for each candidate whether its hash is not in `seen`.
    fn unseen(&self, seen: &HashSet<u64>) -> Vec<bool> {
        self.candidates.iter().map(|candidate| !seen.contains(&candidate.stable_hash())).collect()
    }

    /// Returns the position of the allowed config that is nearest to a candidate: one of its sketch
    /// if possible, else the first allowed one.
    fn nearest(&self, candidate: &Candidate, may_take: &[bool]) -> Option<usize> {
        let members = self.sketches.iter().find(|members| members.sketch == candidate.sketch());
        let of_sketch = members.and_then(|members| members.nearest(candidate, may_take));
        of_sketch.or_else(|| may_take.iter().position(|may| *may))
    }
}

impl Members {
    fn of(sketch: &KnobSpace, candidates: &[Candidate]) -> Self {
        let is_member = |position: &usize| candidates[*position].sketch() == sketch.name();
        let positions: Vec<usize> = (0..candidates.len()).filter(is_member).collect();
        let mut distances = HashMap::new();
        for knob in &sketch.knobs {
            // Distances between two values are cached, as many configs share a value.
            let values: Vec<Option<&KnobValue>> =
                positions.iter().map(|&position| candidates[position].config().knobs.get(&knob.name)).collect();
            let of_value = |from: &KnobValue| {
                let mut known: HashMap<&KnobValue, f32> = HashMap::new();
                let mut far = |to| *known.entry(to).or_insert_with(|| sketch.distance(knob, from, to) as f32);
                values.iter().map(|value| value.map_or(0.0, &mut far)).collect::<Vec<f32>>()
            };
            let of_knob = knob.values.iter().map(|value| (value.clone(), of_value(value))).collect();
            distances.insert(knob.name.clone(), of_knob);
        }
        Self { sketch: sketch.name(), positions, distances }
    }

    fn nearest(&self, candidate: &Candidate, may_take: &[bool]) -> Option<usize> {
        let mut sums = vec![0.0; self.positions.len()];
        for (name, value) in candidate.knobs() {
            let of_value: Option<&Vec<f32>> =
                self.distances.get(name).and_then(|of_knob: &HashMap<_, _>| of_knob.get(value));
            if let Some(of_value) = of_value {
                sums.iter_mut().zip(of_value).for_each(|(sum, distance)| *sum += distance);
            }
        }
        let free = self.positions.iter().zip(sums).filter(|(position, _)| may_take[**position]);
        free.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(position, _)| *position)
    }
}

/// Adapter that restricts a searcher to recorded configs: see the [module](self).
pub struct FromRecorded<S> {
    searcher: S,
    pool: Arc<ConfigPool>,
}

impl<S> FromRecorded<S> {
    /// Wraps a new searcher.
    pub fn new(searcher: S, pool: &Arc<ConfigPool>) -> Self {
        Self { searcher, pool: Arc::clone(pool) }
    }
}

impl<S: Searcher> Searcher for FromRecorded<S> {
    fn begin_with(&mut self, carried: Vec<Candidate>) -> Vec<Candidate> {
        let may_take = vec![true; self.pool.candidates().len()];
        let mut met = HashSet::new();
        let nearest = carried.iter().filter_map(|candidate| self.pool.nearest(candidate, &may_take));
        let nearest = nearest.filter(|position| met.insert(*position));
        self.searcher.begin_with(nearest.map(|position| self.pool.candidates()[position].clone()).collect())
    }

    fn ask(&mut self, ask: Ask<'_>) -> Vec<Candidate> {
        let Ask { space, score, explore, seen, n, rng } = ask;
        let pool = Arc::clone(&self.pool);
        let mut unseen = pool.unseen(seen);
        let left = unseen.iter().filter(|unseen| **unseen).count();
        if left == 0 {
            return Vec::new();
        }

        let scores = if self.searcher.uses_scores() { score(pool.candidates()) } else { Vec::new() };
        let mut score_of_nearest = |candidates: &[Candidate]| {
            let score = |candidate| scores.get(pool.nearest(candidate, &unseen)?).copied().flatten();
            candidates.iter().map(score).collect()
        };
        let wanted = Ask { space, score: &mut score_of_nearest, explore, seen, n: n.min(left), rng: &mut *rng };
        let proposed = self.searcher.ask(wanted);

        let mut batch = Vec::new();
        for candidate in proposed.iter().take(n) {
            if let Some(position) = pool.nearest(candidate, &unseen) {
                unseen[position] = false;
                batch.push(pool.candidates()[position].clone());
            }
        }
        // Distinct proposals may share a nearest config; random ones fill the batch.
        draw(&pool, &unseen, n, &mut batch, rng);
        batch
    }

    fn tell(&mut self, results: &[(Candidate, Measurement)]) {
        self.searcher.tell(results);
    }

    fn uses_scores(&self) -> bool {
        self.searcher.uses_scores()
    }
}

/// Searcher that draws uniformly from the recorded configs.
pub struct DrawRecorded {
    pool: Arc<ConfigPool>,
}

impl DrawRecorded {
    /// Returns a searcher over a pool.
    pub fn new(pool: &Arc<ConfigPool>) -> Self {
        Self { pool: Arc::clone(pool) }
    }
}

impl Searcher for DrawRecorded {
    fn ask(&mut self, ask: Ask<'_>) -> Vec<Candidate> {
        let mut batch = Vec::new();
        draw(&self.pool, &self.pool.unseen(ask.seen), ask.n, &mut batch, ask.rng);
        batch
    }

    fn tell(&mut self, _results: &[(Candidate, Measurement)]) {}

    fn uses_scores(&self) -> bool {
        false
    }
}

/// Fills a batch up to `n` with uniformly drawn, allowed candidates.
fn draw(pool: &ConfigPool, may_take: &[bool], n: usize, batch: &mut Vec<Candidate>, rng: &mut rand_chacha::ChaCha8Rng) {
    let mut left: Vec<usize> = (0..may_take.len()).filter(|&position| may_take[position]).collect();
    let (drawn, _) = left.partial_shuffle(rng, n.saturating_sub(batch.len()));
    batch.extend(drawn.iter().map(|&position| pool.candidates()[position].clone()));
}

/// Workload of the test bed, ready to be searched.
#[derive(Clone, Debug)]
pub struct ReplayTask {
    /// Family of the workload, such as `conv3x3`.
    pub family: String,
    /// Workload to be searched.
    pub workload: Workload,
    /// Target on which it was recorded.
    pub target: Target,
    /// All recorded configs of the workload.
    pub pool: Arc<ConfigPool>,
    /// Recorded configs that were drawn at random from the space.
    pub drawn: Arc<ConfigPool>,
    /// Seconds of a run of each candidate of the pool; `None` if it failed.
    pub run_secs: Vec<Option<f64>>,
    /// Least recorded seconds of a run.
    pub best_secs: f64,
    replay: Replay,
}

impl ReplayTask {
    /// Returns the workloads of a test bed that pass a filter, in its order. Workloads without a
    /// successful config are left out.
    pub fn of(test_bed: &TestBed, target: &Target, mut wanted: impl FnMut(&Recording) -> bool) -> Vec<Self> {
        let tasks = test_bed.tasks().into_iter().filter(|task| wanted(task));
        tasks.filter_map(|task| Self::of_recording(&task, test_bed, target)).collect()
    }

    fn of_recording(task: &Recording, test_bed: &TestBed, target: &Target) -> Option<Self> {
        let run_secs: Vec<Option<f64>> = task.samples.iter().map(|sample| sample.run_secs).collect();
        let best_secs = run_secs.iter().flatten().copied().reduce(f64::min)?;
        let space = ScheduleSpace::new(&task.workload, target);
        let candidates: Vec<Candidate> = task.samples.iter().map(|sample| space.candidate(&sample.config)).collect();

        let of_task = test_bed.recordings.iter().filter(|it| it.workload == task.workload);
        let at_random = of_task.filter(|it| it.source == ConfigSource::Random).flat_map(|it| &it.samples);
        let at_random: HashSet<u64> = at_random.map(|sample| sample.config.stable_hash()).collect();
        let is_drawn = |candidate: &&Candidate| at_random.contains(&candidate.stable_hash());
        let drawn: Vec<Candidate> = candidates.iter().filter(is_drawn).cloned().collect();
        Some(Self {
            family: task.family.clone(),
            workload: task.workload.clone(),
            target: target.clone(),
            pool: Arc::new(ConfigPool::new(&space, candidates)),
            drawn: Arc::new(ConfigPool { candidates: drawn, sketches: Vec::new() }),
            run_secs,
            best_secs,
            replay: Replay::new(std::slice::from_ref(task)),
        })
    }

    /// Runs a tuner on this task, after `with` has configured it; its searcher must propose
    /// recorded configs. Returns for each trial the throughput of the best schedule so far over
    /// that of the best recorded one; 0 before the first success.
    pub fn search(&self, db: &TuningDb, with: impl for<'t> FnOnce(Tuner<'t>) -> Tuner<'t>) -> Result<Vec<f64>> {
        let mut curve = Curve::default();
        let mut replay = self.replay.clone();
        let tuner = Tuner::new(&self.target).database(db).measurer(&mut replay).observer(&mut curve);
        with(tuner).tune(&[Task::single(self.workload.clone())]).with_context(|| self.workload.to_string())?;
        Ok(curve.best_after.iter().map(|secs| self.best_secs / secs).collect())
    }

    /// Returns some of the recorded configs as records of an earlier run.
    pub fn records(&self, positions: impl IntoIterator<Item = usize>) -> Vec<TuningRecord> {
        let record = |position: usize| {
            let candidate = &self.pool.candidates()[position];
            TuningRecord {
                workload: self.workload.clone(),
                target: self.target.key(),
                config: candidate.config().clone(),
                measurement: self.replay.measurement(candidate),
                phase: Phase::Search,
                imported: false,
                provenance: Provenance {
                    device: self.target.device().into(),
                    backend: None,
                    compiler: String::new(),
                    flags: String::new(),
                    tuner_version: env!("CARGO_PKG_VERSION").into(),
                    lowering: LOWERING_VERSION,
                    harness: String::new(),
                    seed: 0,
                    unix_secs: 0,
                },
            }
        };
        positions.into_iter().map(record).collect()
    }
}

/// Observer that stores the best time after each trial.
#[derive(Default)]
struct Curve {
    best_after: Vec<f64>,
}

impl Observer for Curve {
    fn event(&mut self, event: &Event<'_>) {
        if let Event::Measured { best_secs, .. } = event {
            self.best_after.push(*best_secs);
        }
    }
}
