//! Predictions of a model for measurements that it was not fitted on.

use autotune_cost_model::{ModelError, XgbModel};
use autotune_db::TuningRecord;
use autotune_ir::Target;
use autotune_schedules::{Candidate, Config};

use crate::learner::Learner;
use crate::params::LearningParams;

/// Record that a model was not fitted on, with the model's prediction.
#[derive(Clone, Debug, PartialEq)]
pub struct Predicted<'r> {
    /// Record with the measured result.
    pub record: &'r TuningRecord,
    /// Predicted score; higher means faster. Only the order within a workload is meaningful. `None`
    /// if the config cannot be lowered or is expected to spill registers heavily.
    pub score: Option<f32>,
}

/// Fits a cost model, with the parameters of a tuning run, on those of a target's records whose
/// configs are not held out, and predicts the others. If there are more records than a model is
/// fitted on, only the latest are used. `None` if too few are left to fit one.
pub fn predict_held_out<'r>(
    target: &Target,
    records: &'r [TuningRecord],
    is_held_out: impl Fn(&Config) -> bool,
) -> Result<Option<Vec<Predicted<'r>>>, ModelError> {
    let params = LearningParams::default();
    let mut latest: Vec<&TuningRecord> = records.iter().collect();
    latest.sort_by_key(|record| record.provenance.unix_secs);
    let latest = latest.split_off(latest.len().saturating_sub(params.samples));
    let (held_out, known): (Vec<_>, Vec<_>) = latest.into_iter().partition(|record| is_held_out(&record.config));

    let candidate = |record: &TuningRecord| Candidate::new(&record.workload, target, record.config.clone());
    let mut learner = Learner::new(target.clone(), Box::new(XgbModel::for_target(target)), params);
    learner.tell(&known.iter().map(|record| (candidate(record), record.measurement.clone())).collect::<Vec<_>>());
    learner.refit()?;
    if !learner.is_fitted() {
        return Ok(None);
    }

    let scores = learner.score(&held_out.iter().map(|record| candidate(record)).collect::<Vec<_>>());
    Ok(Some(held_out.into_iter().zip(scores).map(|(record, score)| Predicted { record, score }).collect()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use autotune_db::Phase;
    use autotune_measurement::CandidateError;
    use autotune_schedules::ScheduleSpace;
    use autotune_workloads::Workload;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::*;
    use crate::testing::record;

    #[test]
    fn a_model_is_asked_about_what_it_was_not_told() {
        let target = Target::detect("cpu", Some(1)).unwrap();
        let workload: Workload = "matmul:m=64,n=64,k=64".parse().unwrap();
        let space = ScheduleSpace::new(&workload, &target);
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let mut records: Vec<TuningRecord> = (1..=60)
            .map(|i| TuningRecord {
                config: space.sample(&mut rng).config().clone(),
                ..record(&workload, &target, Phase::Search, f64::from(i), i as u64)
            })
            .collect();
        let is_held_out = |config: &Config| config.stable_hash().is_multiple_of(3);
        let held_out = records.iter().filter(|record| is_held_out(&record.config)).count();

        let predicted = |records: &[TuningRecord]| {
            let predicted = predict_held_out(&target, records, is_held_out).unwrap();
            predicted.map(|all| {
                assert!(all.iter().all(|one| is_held_out(&one.record.config)));
                all.iter().map(|one| one.score).collect::<Vec<_>>()
            })
        };
        let scores = predicted(&records).unwrap();
        assert!(held_out > 5 && scores.len() == held_out && scores.iter().all(Option::is_some), "{scores:?}");
        // The model must not depend on the results of the held-out records.
        for record in records.iter_mut().filter(|record| is_held_out(&record.config)) {
            record.measurement.outcome = Err(CandidateError::Timeout { limit_secs: 1.0 });
        }
        assert_eq!(predicted(&records), Some(scores));
        assert_eq!(predicted(&records[..10]), None, "too few");
        assert_eq!(predicted(&[]), None);
    }
}
