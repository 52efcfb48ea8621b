//! Cost model of a run: its training samples, and when it is refitted.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use autotune_cost_model::metrics::{pairwise_accuracy, top_k_recall};
use autotune_cost_model::{CostModel, ModelError, RegisterUse, Sample, relative_throughputs};
use autotune_db::TuningRecord;
use autotune_ir::Target;
use autotune_measurement::Measurement;
use autotune_schedules::Candidate;
use autotune_workloads::Workload;

use crate::featurizer::{Featurizer, Row};
use crate::params::LearningParams;
use crate::ranker::Ranker;
use crate::report::Ranking;

/// The fastest fifth of a task's samples counts as its top, for which recall is reported.
const TOP_ONE_IN: usize = 5;

/// Training sample: a measured candidate.
struct Example {
    features: Arc<[f32]>,
    workload: Workload,
    /// Seconds per run; `None` if it failed.
    run_secs: Option<f64>,
    /// Registers and spills, if a compiler reported them.
    registers: Option<RegisterUse>,
}

/// Samples of all workloads of one target and the model fitted on them. A task therefore profits
/// from the samples of other tasks.
pub(crate) struct Learner {
    target: Target,
    featurizer: Featurizer,
    /// Samples of workloads that are not tuned in this run.
    history: Vec<Example>,
    /// True if the model was pretrained on the history and only corrects those predictions.
    is_granted: bool,
    examples: Vec<Example>,
    ranker: Ranker,
    /// Number of examples at the last fit.
    fitted: usize,
    params: LearningParams,
}

impl Learner {
    pub(crate) fn new(target: Target, model: Box<dyn CostModel>, params: LearningParams) -> Self {
        Self {
            featurizer: Featurizer::default(),
            ranker: Ranker::new(target.clone(), model, params.clone()),
            target,
            history: Vec::new(),
            is_granted: false,
            examples: Vec::new(),
            fitted: 0,
            params,
        }
    }

    /// Learns from usable records of earlier runs: all of `own` workloads, which are about to be
    /// tuned, and the [most informative](telling) of other workloads. If the model supports it, it
    /// is pretrained on the latter, and samples of this run correct its predictions.
    pub(crate) fn tell_records(&mut self, records: &[TuningRecord], own: &[Workload]) -> Result<(), ModelError> {
        let mut latest: Vec<&TuningRecord> = records.iter().collect();
        latest.sort_by_key(|record| record.provenance.unix_secs);
        let is_own = |record: &&TuningRecord| own.contains(&record.workload);
        let (of_own, others): (Vec<_>, Vec<_>) = latest.into_iter().partition(is_own);
        let others = most_informative(others, own, &self.params);

        let candidate = |r: &TuningRecord| Candidate::new(&r.workload, &self.target, r.config.clone());
        let results = |records: &[&TuningRecord]| -> Vec<_> {
            records.iter().map(|record| (candidate(record), record.measurement.clone())).collect()
        };
        let [own, others] = [results(&of_own), results(&others)];
        self.history = self.examples_of(&others);
        if self.history.len() >= self.params.first_fit {
            self.fit_registers()?;
            let (samples, told) = samples(self.history.iter());
            self.is_granted = self.ranker.pretrain(samples, &told)?;
        }
        self.tell(&own);
        self.refit()
    }

    /// Adds results as samples; candidates that cannot be lowered are ignored.
    pub(crate) fn tell(&mut self, results: &[(Candidate, Measurement)]) {
        let examples = self.examples_of(results);
        self.examples.extend(examples);
    }

    fn examples_of(&mut self, results: &[(Candidate, Measurement)]) -> Vec<Example> {
        let candidates: Vec<Candidate> = results.iter().map(|(candidate, _)| candidate.clone()).collect();
        let rows = self.featurizer.rows(&candidates);
        let example = |(row, (candidate, measurement)): (Row, &(Candidate, Measurement))| {
            let (workload, run_secs) = (candidate.workload().clone(), measurement.run_secs());
            let registers = measurement
                .resources
                .map(|taken| RegisterUse { registers: taken.registers as f32, spill_bytes: taken.spill_bytes as f32 });
            row.map(|features| Example { features, workload, run_secs, registers })
        };
        rows.into_iter().zip(results).filter_map(example).collect()
    }

    /// Fits the model again if there are enough new samples since the last fit.
    pub(crate) fn refit(&mut self) -> Result<(), ModelError> {
        let LearningParams { first_fit, first_correction, refit_one_in, .. } = self.params;
        let first = if self.is_granted { first_correction } else { first_fit };
        let known = self.training_samples().count();
        let new = self.examples.len().min(self.params.samples);
        let due = self.fitted + new / refit_one_in.max(1);
        if known < first || self.examples.len() <= due {
            return Ok(());
        }

        self.fit_registers()?;
        let (samples, told) = samples(self.training_samples());
        self.ranker.fit(samples, &told)?;
        self.fitted = self.examples.len();
        Ok(())
    }

    /// Returns the samples on which the model is fitted: the latest, including the history unless
    /// the model was pretrained on it.
    fn training_samples(&self) -> impl Iterator<Item = &Example> {
        let history = if self.is_granted { &[] } else { &self.history[..] };
        let surplus = (history.len() + self.examples.len()).saturating_sub(self.params.samples);
        history.iter().chain(&self.examples).skip(surplus)
    }

    fn fit_registers(&mut self) -> Result<(), ModelError> {
        let all = self.history.iter().chain(&self.examples);
        let kernels: Vec<_> = all.filter_map(|example| Some((&*example.features, example.registers?))).collect();
        self.ranker.fit_registers(&kernels)
    }

    /// Evaluates how well the model ranks held-out samples when fitted on the others; `None` if
    /// there are too few.
    pub(crate) fn into_ranking(self) -> Result<Option<Ranking>, ModelError> {
        let LearningParams { first_fit, hold_out_one_in, .. } = self.params;
        let one_in = hold_out_one_in.max(1);
        let part = |is_held_out: bool| {
            let numbered = self.training_samples().enumerate();
            samples(numbered.filter(|(i, _)| i.is_multiple_of(one_in) == is_held_out).map(|(_, example)| example))
        };

        let ((known, told), (held_out, _)) = (part(false), part(true));
        if known.len() < first_fit {
            return Ok(None);
        }
        let mut ranker = self.ranker.renewed();
        ranker.fit(known, &told)?;

        // Average over the tasks, weighted by their numbers of samples.
        let (mut judged, mut pairwise, mut recall) = (0, 0.0, 0.0);
        for group in held_out.chunk_by(|a, b| a.group == b.group) {
            let rows: Vec<&[f32]> = group.iter().map(|sample| &*sample.features).collect();
            let actual: Vec<f32> = group.iter().map(|sample| sample.score).collect();
            let predicted: Vec<f32> =
                ranker.score(&rows).into_iter().map(|score| score.unwrap_or(f32::NEG_INFINITY)).collect();
            let top = top_k_recall(&predicted, &actual, group.len().div_ceil(TOP_ONE_IN));
            if let Some((accuracy, top)) = pairwise_accuracy(&predicted, &actual).zip(top) {
                judged += group.len();
                pairwise += accuracy * group.len() as f64;
                recall += top * group.len() as f64;
            }
        }
        let mean = |sum: f64| sum / judged as f64;
        Ok((judged > 0).then(|| Ranking {
            samples: judged,
            pairwise_accuracy: mean(pairwise),
            top_recall: mean(recall),
        }))
    }

    /// Returns true once the model was fitted on samples of this run.
    pub(crate) fn is_fitted(&self) -> bool {
        self.fitted > 0
    }

    /// Returns the largest number of trials in the next batch. It is small while the model relies
    /// on other workloads' records only, because the first measurements show whether they apply
    /// here.
    pub(crate) fn most_trials(&self) -> usize {
        if self.is_granted && !self.is_fitted() { self.params.first_correction.max(1) } else { usize::MAX }
    }

    /// Returns the share of a batch that is drawn at random, independent of the scores.
    pub(crate) fn explore_share(&self) -> f64 {
        if self.ranker.is_trained() { self.params.explore } else { self.params.explore_untrained }
    }

    /// Returns the score of each candidate; `None` if it cannot be lowered or is expected to spill
    /// registers heavily.
    pub(crate) fn score(&mut self, candidates: &[Candidate]) -> Vec<Option<f32>> {
        let rows = self.featurizer.rows(candidates);
        let lowered: Vec<&[f32]> = rows.iter().flatten().map(|row| &**row).collect();
        let mut scores = self.ranker.score(&lowered).into_iter();
        rows.iter().map(|row| row.as_ref().and_then(|_| scores.next()?)).collect()
    }
}

/// Selects the most informative of other workloads' records, which are sorted by time. Takes the
/// latest records of each workload in rounds of `history_of_each`, and within a round the workloads
/// with the nearest shapes first.
fn most_informative<'r>(
    records: Vec<&'r TuningRecord>,
    own: &[Workload],
    params: &LearningParams,
) -> Vec<&'r TuningRecord> {
    let LearningParams { history, history_of_each, .. } = *params;
    let mut of_workloads: HashMap<&Workload, (f32, usize)> = HashMap::new();
    let distance = |of: &Workload| own.iter().map(|own| own.distance(of)).fold(f32::INFINITY, f32::min);
    let ranked = records.into_iter().rev().map(|record| {
        let of = &record.workload;
        let (distance, met) = of_workloads.entry(of).or_insert_with(|| (distance(of), 0));
        *met += 1;
        ((*met - 1) / history_of_each.max(1), *distance, record)
    });

    let mut ranked: Vec<(usize, f32, &TuningRecord)> = ranked.collect();
    ranked.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
    ranked.truncate(history);
    // Restore the order of time within each workload.
    ranked.into_iter().rev().map(|(.., record)| record).collect()
}

/// Converts examples to samples, each with what a compiler reported. A sample's group is its
/// workload, its score the throughput relative to the group's best.
fn samples<'a>(examples: impl Iterator<Item = &'a Example>) -> (Vec<Sample>, Vec<Option<RegisterUse>>) {
    let mut groups: BTreeMap<Workload, Vec<&Example>> = BTreeMap::new();
    for example in examples {
        groups.entry(example.workload.clone()).or_default().push(example);
    }
    let (mut samples, mut told) = (Vec::new(), Vec::new());
    for (group, members) in (0..).zip(groups.values()) {
        let run_secs: Vec<Option<f64>> = members.iter().map(|example| example.run_secs).collect();
        for (example, score) in members.iter().zip(relative_throughputs(&run_secs)) {
            samples.push(Sample { features: example.features.to_vec(), score, group });
            told.push(example.registers);
        }
    }
    (samples, told)
}

#[cfg(test)]
impl Learner {
    /// Returns a learner with the default model and parameters.
    pub(crate) fn with_xgb(target: Target) -> Self {
        let model = Box::new(autotune_cost_model::XgbModel::for_target(&target));
        Self::new(target, model, LearningParams::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::record;
    use autotune_db::Phase;

    #[test]
    fn of_earlier_runs_its_own_tasks_count_and_of_others_the_nearest_and_latest() {
        let target = Target::detect("cpu", Some(1)).unwrap();
        let texts = ["matmul:m=8,n=8,k=8", "matmul:m=8,n=8,k=9", "matmul:m=8,n=8,k=64", "conv2d:c=8,h=8,w=8,o=8,k=1"];
        let [own, near, far, foreign] = texts.map(|text| text.parse::<Workload>().unwrap());
        let mut records = Vec::new();
        // The unrelated workload has the latest records, the distant one the most.
        for (workload, secs) in [(&own, 0..3), (&near, 0..70), (&far, 100..250), (&foreign, 1000..1070)] {
            let first = record(workload, &target, Phase::Search, 0.0, 0);
            records.extend(secs.rev().map(|secs: u32| {
                let mut record = first.clone();
                record.provenance.unix_secs = secs.into();
                record.measurement = Measurement::of(Ok(autotune_measurement::RunSecs::synthetic(secs.into())));
                record
            }));
        }

        let learnt = |history: usize| {
            let params = LearningParams { history, history_of_each: 50, ..LearningParams::default() };
            let model = Box::new(autotune_cost_model::XgbModel::from_estimate(&target));
            let mut learner = Learner::new(target.clone(), model, params);
            learner.tell_records(&records, std::slice::from_ref(&own)).unwrap();
            assert!(learner.examples.len() == 3 && learner.examples.iter().all(|example| example.workload == own));
            let mut secs: Vec<u32> = learner.history.iter().map(|example| example.run_secs.unwrap() as u32).collect();
            secs.sort();
            secs
        };
        assert_eq!(learnt(60), (20..70).chain(240..250).collect::<Vec<_>>(), "the nearest first, the latest of each");
        assert_eq!(learnt(110), (20..70).chain(200..250).chain(1060..1070).collect::<Vec<_>>(), "others last");
        let again: Vec<u32> = (0..70).chain(190..250).chain(1020..1070).collect();
        assert_eq!(learnt(180), again, "where there is room, more of each");
        assert_eq!(learnt(1000).len(), records.len() - 3, "all, where there is room for all");
    }

    #[test]
    fn a_long_history_does_not_keep_the_model_from_what_is_new() {
        let target = Target::detect("cpu", Some(1)).unwrap();
        let [own, sibling] = ["matmul:m=4,n=4,k=4", "matmul:m=8,n=8,k=8"].map(|text| text.parse::<Workload>().unwrap());
        let records: Vec<TuningRecord> =
            (0..1_000u32).map(|secs| record(&sibling, &target, Phase::Search, f64::from(secs), secs.into())).collect();
        let mut learner = Learner::with_xgb(target.clone());
        learner.tell_records(&records, std::slice::from_ref(&own)).unwrap();
        assert!(learner.is_granted && learner.fitted == 0, "what others teach is taken for granted");

        let new = record(&own, &target, Phase::Search, 1.0, 0);
        for _ in 0..32 {
            learner.tell(&[(Candidate::new(&own, &target, new.config.clone()), new.measurement.clone())]);
            learner.refit().unwrap();
        }
        assert!(learner.fitted >= 16, "what is new is learnt from soon");
    }
}
