//! The cost model of a run: what it is fitted on, and when.

use std::collections::BTreeMap;
use std::sync::Arc;

use autotune_cost_model::metrics::{pairwise_accuracy, top_k_recall};
use autotune_cost_model::{CostModel, ModelError, RegisterUse, Sample, relative_throughputs};
use autotune_db::TuningRecord;
use autotune_ir::Target;
use autotune_measure::Measurement;
use autotune_schedules::{Candidate, Workload};

use crate::featurizer::Featurizer;
use crate::params::LearningParams;
use crate::ranker::Ranker;
use crate::report::Ranking;

/// The fastest one in so many of a task are its top, of which a ranking should find many.
const TOP_ONE_IN: usize = 5;

/// One measured candidate.
struct Example {
    features: Arc<[f32]>,
    workload: Workload,
    /// Run time, if it ran.
    run_secs: Option<f64>,
    /// Registers and spills, if a compiler told.
    registers: Option<RegisterUse>,
}

/// Samples of one target, over all its workloads, and the model fitted on them: a task begins with what its siblings taught.
pub(crate) struct Learner {
    target: Target,
    featurizer: Featurizer,
    examples: Vec<Example>,
    ranker: Ranker,
    /// Examples when the model was last fitted.
    fitted: usize,
    /// Examples of earlier runs.
    history: usize,
    params: LearningParams,
}

impl Learner {
    pub(crate) fn new(target: Target, model: Box<dyn CostModel>, params: LearningParams) -> Self {
        Self {
            featurizer: Featurizer::default(),
            ranker: Ranker::new(target.clone(), model, params.clone()),
            target,
            examples: Vec::new(),
            fitted: 0,
            history: 0,
            params,
        }
    }

    /// Takes in those records of earlier runs that a model can be fitted on: the latest of `own` workloads, which are about to be tuned,
    /// then, as far as there is room, of others.
    pub(crate) fn tell_records(&mut self, records: &[TuningRecord], own: &[Workload]) {
        let mut latest: Vec<&TuningRecord> = records.iter().collect();
        latest.sort_by_cached_key(|record| (own.contains(&record.workload), record.provenance.unix_secs));
        let latest = &latest[latest.len().saturating_sub(self.params.samples)..];
        let candidate = |r: &TuningRecord| Candidate::new(&r.workload, &self.target, r.config.clone());
        let results: Vec<_> = latest.iter().map(|r| (candidate(r), r.measurement.clone())).collect();
        self.tell(&results);
        self.history = self.examples.len();
    }

    /// Takes results in; candidates that cannot be lowered teach nothing.
    pub(crate) fn tell(&mut self, results: &[(Candidate, Measurement)]) {
        let candidates: Vec<Candidate> = results.iter().map(|(candidate, _)| candidate.clone()).collect();
        let rows = self.featurizer.rows(&candidates);
        for (row, (candidate, measurement)) in rows.into_iter().zip(results) {
            let (workload, run_secs) = (candidate.workload().clone(), measurement.run_secs());
            let registers = measurement
                .resources
                .map(|taken| RegisterUse { registers: taken.registers as f32, spill_bytes: taken.spill_bytes as f32 });
            self.examples.extend(row.map(|features| Example { features, workload, run_secs, registers }));
        }
    }

    /// Fits the model if enough was learnt since the last time.
    pub(crate) fn refit(&mut self) -> Result<(), ModelError> {
        let LearningParams { samples: most, first_fit, refit_one_in, refit_one_in_history, .. } = self.params;
        let fresh = self.examples.len() - self.fitted;
        let new = (self.examples.len() - self.history).min(most);
        let history = self.history.min(most - new);
        let due = new / refit_one_in.max(1) + history / refit_one_in_history.max(1);
        if self.examples.len() < first_fit || fresh <= due {
            return Ok(());
        }

        let from = self.examples.len().saturating_sub(most);
        let (samples, told) = samples(self.examples[from..].iter());
        self.ranker.fit(samples, &told)?;
        self.fitted = self.examples.len();
        Ok(())
    }

    /// How well the model ranks the examples that are held out if it is fitted on the others; `None` if there are too few to tell.
    pub(crate) fn into_ranking(self) -> Result<Option<Ranking>, ModelError> {
        let LearningParams { samples: most, first_fit, hold_out_one_in, .. } = self.params;
        let one_in = hold_out_one_in.max(1);
        let from = self.examples.len().saturating_sub(most);
        let part = |is_held_out: bool| {
            let numbered = self.examples[from..].iter().enumerate();
            samples(numbered.filter(|(i, _)| i.is_multiple_of(one_in) == is_held_out).map(|(_, example)| example))
        };

        let ((known, told), (held_out, _)) = (part(false), part(true));
        if known.len() < first_fit {
            return Ok(None);
        }
        let mut ranker = self.ranker.renewed();
        ranker.fit(known, &told)?;

        // The mean over the tasks, each by its number of examples.
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

    /// True once the model was fitted on what was told.
    pub(crate) fn is_fitted(&self) -> bool {
        self.fitted > 0
    }

    /// Share of a batch to be drawn at random, whatever the scores say.
    pub(crate) fn explore_share(&self) -> f64 {
        if self.ranker.is_taught() { self.params.explore } else { self.params.explore_untaught }
    }

    /// The score of each candidate, `None` for one that cannot be lowered or is expected to spill registers heavily.
    pub(crate) fn score(&mut self, candidates: &[Candidate]) -> Vec<Option<f32>> {
        let rows = self.featurizer.rows(candidates);
        let lowered: Vec<&[f32]> = rows.iter().flatten().map(|row| &**row).collect();
        let mut scores = self.ranker.score(&lowered).into_iter();
        rows.iter().map(|row| row.as_ref().and_then(|_| scores.next()?)).collect()
    }
}

/// One sample per example, and what a compiler told of it: the group is the workload, the score the throughput relative to the
/// group's best.
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
    /// With the model that is ours, and the usual policy.
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
    fn of_earlier_runs_the_latest_and_its_own_tasks_count() {
        let target = Target::detect("cpu", Some(1)).unwrap();
        let [own, sibling] = ["matmul:m=4,n=4,k=4", "matmul:m=8,n=8,k=8"].map(|text| text.parse::<Workload>().unwrap());
        let of =
            |workload: &Workload, secs: u32| record(workload, &target, Phase::Search, f64::from(secs), secs.into());
        let mut records: Vec<TuningRecord> = (0..3).map(|secs| of(&own, secs)).collect();
        let most = LearningParams::default().samples;
        let siblings = most as u32 + 5;
        let like = of(&sibling, 0);
        records.extend((0..siblings).rev().map(|secs| {
            let mut record = like.clone();
            record.provenance.unix_secs = secs.into();
            record.measurement = of(&own, secs).measurement;
            record
        }));
        let mut learner = Learner::with_xgb(target.clone());
        learner.tell_records(&records, std::slice::from_ref(&own));
        assert_eq!(learner.examples.len(), most);
        let (siblings_told, own_told) = learner.examples.split_at(most - 3);
        assert!(own_told.iter().all(|example| example.workload == own));
        let secs: Vec<u32> = siblings_told.iter().map(|example| example.run_secs.unwrap() as u32).collect();
        assert_eq!(secs, (siblings - secs.len() as u32..siblings).collect::<Vec<_>>(), "in the order of time");
        learner.refit().unwrap();
    }

    #[test]
    fn a_long_history_does_not_keep_the_model_from_what_is_new() {
        let target = Target::detect("cpu", Some(1)).unwrap();
        let [own, sibling] = ["matmul:m=4,n=4,k=4", "matmul:m=8,n=8,k=8"].map(|text| text.parse::<Workload>().unwrap());
        let records: Vec<TuningRecord> =
            (0..1_000u32).map(|secs| record(&sibling, &target, Phase::Search, f64::from(secs), secs.into())).collect();
        let mut learner = Learner::with_xgb(target.clone());
        learner.tell_records(&records, std::slice::from_ref(&own));
        learner.refit().unwrap();
        assert_eq!(learner.fitted, 1_000);

        let new = record(&own, &target, Phase::Search, 1.0, 0);
        for _ in 0..32 {
            learner.tell(&[(Candidate::new(&own, &target, new.config.clone()), new.measurement.clone())]);
            learner.refit().unwrap();
        }
        assert!(learner.fitted > 1_000, "32 trials are enough to learn from");
    }
}
