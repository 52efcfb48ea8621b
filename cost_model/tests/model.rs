//! Tests of the cost model's contract.

use std::panic::{self, AssertUnwindSafe};

use autotune_cost_model::metrics::{pairwise_accuracy, spearman, top_k_recall};
use autotune_cost_model::{CostModel, ModelError, Objective, Prior, Sample, XgbModel, XgbParams, contract};
use ndarray::{Array2, s};
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::synthetic;

const OBJECTIVES: [Objective; 2] = [Objective::RankPairwise, Objective::SquaredError];

fn matrix(samples: &[Sample]) -> Array2<f32> {
    let columns = samples.first().map_or(0, |sample| sample.features.len());
    Array2::from_shape_fn((samples.len(), columns), |(row, column)| samples[row].features[column])
}

fn scores(samples: &[Sample]) -> Vec<f32> {
    samples.iter().map(|sample| sample.score).collect()
}

fn sample(features: &[f32], score: f32, group: u32) -> Sample {
    Sample { features: features.to_vec(), score, group }
}

fn small(objective: Objective) -> XgbModel {
    XgbModel::new(XgbParams { objective, rounds: 20, ..XgbParams::default() })
}

/// The simplest model that satisfies the contract: it predicts the mean score.
struct MeanModel(Option<(usize, f32)>);

impl CostModel for MeanModel {
    fn fit(&mut self, samples: &[Sample]) -> Result<(), ModelError> {
        let sum: f32 = samples.iter().map(|sample| sample.score).sum();
        self.0 = samples.first().map(|first| (first.features.len(), sum / samples.len() as f32));
        Ok(())
    }

    fn predict(&self, features: ndarray::ArrayView2<f32>) -> Vec<f32> {
        vec![self.0.map_or(0.0, |(_, mean)| mean); features.nrows()]
    }

    fn feature_count(&self) -> Option<usize> {
        self.0.map(|(columns, _)| columns)
    }
}

#[test]
fn every_model_keeps_the_contract() {
    contract::cost_model(|| MeanModel(None));
    contract::cost_model(|| small(Objective::RankPairwise));
    contract::cost_model(|| small(Objective::SquaredError));
    let prior = Some(Prior { column: 3, weight: 2.0 });
    contract::cost_model(|| XgbModel::new(XgbParams { prior, ..XgbParams::default() }));
}

/// Returns the contract violation that the tests report for a model.
fn breach<M: CostModel>(new: impl Fn() -> M) -> String {
    let caught = panic::catch_unwind(AssertUnwindSafe(|| contract::cost_model(new)));
    let Err(message) = caught else { return "nothing".into() };
    message.downcast_ref::<String>().cloned().unwrap_or_default()
}

/// A model that satisfies the contract except for one fault, by name.
struct Broken {
    columns: Option<usize>,
    fits: f32,
    fault: &'static str,
}

impl CostModel for Broken {
    fn fit(&mut self, samples: &[Sample]) -> Result<(), ModelError> {
        self.columns = samples.first().map(|first| first.features.len()).filter(|_| self.fault != "blind");
        self.fits += 1.0;
        if self.fault == "forgetful" || samples.is_empty() {
            self.fits = self.columns.map_or(0.0, |_| 1.0);
        }
        if self.fault == "stubborn" { Err(ModelError::Other("no".into())) } else { Ok(()) }
    }

    fn predict(&self, features: ndarray::ArrayView2<f32>) -> Vec<f32> {
        let rows = features.nrows() + usize::from(self.fault == "long");
        let score = if self.fault == "unsure" { f32::NAN } else { self.fits };
        vec![score; rows]
    }

    fn feature_count(&self) -> Option<usize> {
        self.columns
    }
}

#[test]
fn a_model_that_breaks_the_contract_is_told_where() {
    let broken = |fault| move || Broken { columns: None, fits: 0.0, fault };
    contract::cost_model(broken("forgetful"));
    assert!(breach(broken("cumulative")).contains("fit: equal samples must give equal predictions"));
    assert!(breach(broken("blind")).contains("feature_count: must be the number of columns of the samples"));
    assert!(breach(broken("stubborn")).contains("fit: 60 samples are rejected: no"));
    assert!(breach(broken("long")).contains("predict: must return one score per row"));
    assert!(breach(broken("unsure")).contains("predict: a score is not finite"));
}

#[test]
fn a_saved_model_is_the_same_and_a_blank_one_blank() {
    let samples = synthetic::samples(&mut ChaCha8Rng::seed_from_u64(1), 60, 3);
    let features = matrix(&samples);
    for objective in OBJECTIVES {
        let mut model = small(objective);
        let blank = XgbModel::from_bytes(&model.save().unwrap()).unwrap();
        assert_eq!((blank.feature_count(), blank.predict(features.view())), (None, vec![0.0; 60]));

        model.fit(&samples).unwrap();
        let loaded = XgbModel::from_bytes(&model.save().unwrap()).unwrap();
        assert_eq!(loaded.feature_count(), Some(synthetic::COLUMNS));
        assert_eq!(loaded.predict(features.view()), model.predict(features.view()));
    }
}

/// The tuner's use: train on some hundred candidates and rank thousands that were never measured.
#[test]
fn ranks_candidates_it_has_not_seen() {
    let seed = 11;
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let test = synthetic::samples(&mut random, 3000, 0);
    let (features, actual) = (matrix(&test), scores(&test));
    for (train_len, least) in [(200, 0.6), (1000, 0.8)] {
        let train = synthetic::samples(&mut random, train_len, 0);
        for objective in OBJECTIVES {
            let mut model = XgbModel::new(XgbParams { objective, ..XgbParams::default() });
            model.fit(&train).unwrap();
            let predicted = model.predict(features.view());
            let correlation = spearman(&predicted, &actual).unwrap();
            let accuracy = pairwise_accuracy(&predicted, &actual).unwrap();
            let recall = top_k_recall(&predicted, &actual, 100).unwrap();
            let report = format!(
                "seed {seed}, {train_len} samples, {objective:?}: Spearman {correlation:.3}, pairs {accuracy:.3}, top 100 {recall:.3}"
            );
            println!("{report}");
            assert!(correlation > least && accuracy > 0.5 + least / 2.5 && recall > 0.25, "{report}");
        }
    }
}

/// A prior ranks candidates without any measurement, and training corrects it where it is wrong.
#[test]
fn a_prior_is_believed_until_samples_contradict() {
    let seed = 23;
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    // The last column predicts the score roughly: smaller is better.
    let told = |samples: Vec<Sample>| -> Vec<Sample> {
        let tell = |(i, mut sample): (usize, Sample)| {
            sample.features.push(-sample.score + [0.0, 0.2][i % 2]);
            sample
        };
        samples.into_iter().enumerate().map(tell).collect()
    };

    let few = told(synthetic::samples(&mut random, 16, 0));
    let many = told(synthetic::samples(&mut random, 1500, 0));
    let test = told(synthetic::samples(&mut random, 1000, 0));
    let (features, actual) = (matrix(&test), scores(&test));
    let column = few[0].features.len() - 1;

    for objective in OBJECTIVES {
        let quality = |weight: Option<f32>, train: &[Sample]| {
            let prior = weight.map(|weight| Prior { column, weight });
            let mut model = XgbModel::new(XgbParams { objective, prior, ..XgbParams::default() });
            model.fit(train).unwrap();
            let loaded = XgbModel::from_bytes(&model.save().unwrap()).unwrap();
            let predicted = model.predict(features.view());
            assert_eq!(loaded.predict(features.view()), predicted);
            pairwise_accuracy(&predicted, &actual).unwrap()
        };
        let untrained = quality(Some(8.0), &[]);
        assert!(untrained > 0.7, "seed {seed}: {untrained}");
        // The prior has the scale of ranks, so that it may not help the squared error.
        let (with, without) = (quality(Some(8.0), &few), quality(None, &few));
        let helps = objective == Objective::SquaredError || with > without + 0.05;
        assert!(helps, "seed {seed}: {with} with the prior, {without} without");
        let (wrong_before, wrong) = (quality(Some(-1.0), &[]), quality(Some(-1.0), &many));
        assert!(wrong_before < 0.3 && wrong > 0.8, "seed {seed}, {objective:?}: {wrong_before}, {wrong}");
    }
    let one = sample(&[f32::NAN], 1.0, 0);
    let mut model = XgbModel::new(XgbParams { prior: Some(Prior { column: 0, weight: 2.0 }), ..XgbParams::default() });
    assert_eq!(model.predict(matrix(&[one.clone(), sample(&[3.0], 0.0, 0)]).view()), [0.0, -6.0], "missing, and told");
    model.fit(&[one]).unwrap();
}

/// Tasks differ in size: ranks within a group are learned although scores of different groups are
/// not comparable.
#[test]
fn groups_keep_their_own_scale() {
    let seed = 5;
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut train = Vec::new();
    for group in [7, 2, 900_000_000] {
        // Negative scores, on a scale a thousand times that of the other groups.
        let scale = if group == 2 { 1000.0 } else { 1.0 };
        train.extend(
            synthetic::samples(&mut random, 400, group)
                .into_iter()
                .map(|sample| Sample { score: (sample.score - 2.0) * scale, ..sample }),
        );
    }
    train.shuffle(&mut random);
    let mut model = XgbModel::default();
    model.fit(&train).unwrap();
    for group in [7, 2, 900_000_000, 3] {
        let test = synthetic::samples(&mut random, 1000, group);
        let correlation = spearman(&model.predict(matrix(&test).view()), &scores(&test)).unwrap();
        assert!(correlation > 0.75, "seed {seed}, group {group}: {correlation}");
    }
}

/// Ranking depends on the order of scores only.
#[test]
fn ranking_ignores_the_scale_of_scores() {
    for seed in 0..5 {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let samples = synthetic::samples(&mut random, 150, 0);
        let warped: Vec<Sample> =
            (samples.iter().cloned()).map(|sample| Sample { score: (sample.score - 1.0) * 1e4, ..sample }).collect();
        let features = matrix(&samples);
        let mut model = small(Objective::RankPairwise);
        model.fit(&samples).unwrap();
        let predicted = model.predict(features.view());
        model.fit(&warped).unwrap();
        assert_eq!(model.predict(features.view()), predicted, "seed {seed}");
    }
}

#[test]
fn equal_inputs_give_equal_models() {
    for seed in 0..4 {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let samples = synthetic::samples(&mut random, 200, 1);
        let features = matrix(&samples);
        for objective in OBJECTIVES {
            let params = XgbParams { objective, rounds: 15, subsample: 0.7, feature_share: 0.5, ..Default::default() };
            let mut model = XgbModel::new(params.clone());
            model.fit(&samples).unwrap();
            let (saved, predicted) = (model.save().unwrap(), model.predict(features.view()));
            // The same model fitted again, and a new model fitted on another thread.
            model.fit(&samples).unwrap();
            assert_eq!(model.save().unwrap(), saved, "seed {seed}, {objective:?}");
            let elsewhere = std::thread::scope(|scope| {
                let fit = scope.spawn(|| {
                    let mut model = XgbModel::new(params.clone());
                    model.fit(&samples).map(|()| model)
                });
                fit.join().unwrap().unwrap()
            });
            assert_eq!(elsewhere.save().unwrap(), saved, "seed {seed}, {objective:?}");

            // Another seed gives another model.
            let mut other = XgbModel::new(XgbParams { seed: 1, ..params });
            other.fit(&samples).unwrap();
            assert_ne!(other.predict(features.view()), predicted, "seed {seed}, {objective:?}");
        }
    }
}

#[test]
fn saved_models_predict_alike_and_learn_alike() {
    let mut random = ChaCha8Rng::seed_from_u64(9);
    let samples = synthetic::samples(&mut random, 120, 1);
    let more = synthetic::samples(&mut random, 120, 1);
    let features = matrix(&more);
    for objective in OBJECTIVES {
        let mut model = XgbModel::new(XgbParams { objective, rounds: 12, depth: 5, ..Default::default() });
        model.fit(&samples).unwrap();
        let bytes = model.save().unwrap();
        let mut loaded = XgbModel::from_bytes(&bytes).unwrap();
        assert_eq!(loaded.params(), model.params());
        assert_eq!(loaded.predict(features.view()), model.predict(features.view()));
        assert_eq!(loaded.save().unwrap(), bytes);
        loaded.fit(&more).unwrap();
        model.fit(&more).unwrap();
        assert_eq!(loaded.save().unwrap(), model.save().unwrap());
    }
}

#[test]
fn any_memory_layout_predicts_alike() {
    let samples = synthetic::samples(&mut ChaCha8Rng::seed_from_u64(2), 100, 0);
    let features = matrix(&samples);
    let mut model = small(Objective::RankPairwise);
    model.fit(&samples).unwrap();
    let predicted = model.predict(features.view());
    let transposed = features.t().as_standard_layout().into_owned();
    assert_eq!(model.predict(transposed.t()), predicted);
    let every_second: Vec<f32> = predicted.iter().copied().step_by(2).collect();
    assert_eq!(model.predict(features.slice(s![..;2, ..])), every_second);
}

#[test]
fn little_to_learn_from_is_no_error() {
    for objective in OBJECTIVES {
        let mut model = small(objective);
        let mut same = |samples: &[Sample], what: &str| {
            model.fit(samples).unwrap();
            let predicted = model.predict(matrix(samples).view());
            let same = predicted.iter().all(|score| score.is_finite() && *score == predicted[0]);
            assert!(same, "{objective:?}, {what}: {predicted:?}");
        };
        same(&[sample(&[1.0, 2.0], -7.0, 4)], "one sample");
        let constant: Vec<Sample> = (0..20).map(|i| sample(&[i as f32, 1.0], 0.0, i % 3)).collect();
        same(&constant, "all failed");
        let blank: Vec<Sample> = (0..20).map(|i| sample(&[f32::NAN, 3.0], i as f32, 0)).collect();
        same(&blank, "features that tell nothing");
    }
    // With one sample per group there is nothing to rank.
    let alone: Vec<Sample> = (0..20).map(|i| sample(&[i as f32], i as f32, i)).collect();
    let mut model = small(Objective::RankPairwise);
    model.fit(&alone).unwrap();
    let predicted = model.predict(matrix(&alone).view());
    assert!(predicted.iter().all(|score| *score == predicted[0]), "{predicted:?}");
}

#[test]
fn missing_values_are_learnt_from() {
    let mut random = ChaCha8Rng::seed_from_u64(3);
    let samples: Vec<Sample> = (0..300)
        .map(|_| {
            let missing = random.random_range(0..2) == 0;
            let value = if missing { f32::NAN } else { random.random_range(0.0..1.0) };
            sample(&[value], if missing { 5.0 } else { value }, 0)
        })
        .collect();
    for objective in OBJECTIVES {
        let mut model = small(objective);
        model.fit(&samples).unwrap();
        let predicted = model.predict(ndarray::array![[f32::NAN], [0.9], [0.1]].view());
        assert!(predicted[0] > predicted[1] && predicted[1] > predicted[2], "{objective:?}: {predicted:?}");
    }
}

#[test]
fn bad_samples_are_typed_errors_and_change_nothing() {
    let samples = synthetic::samples(&mut ChaCha8Rng::seed_from_u64(4), 50, 0);
    let features = matrix(&samples);
    let mut model = small(Objective::RankPairwise);
    model.fit(&samples).unwrap();
    let predicted = model.predict(features.view());
    let mut fails = |bad: Sample| {
        let error = model.fit(&[sample(&[1.0, 2.0], 0.5, 0), bad]).unwrap_err();
        assert_eq!(model.predict(features.view()), predicted, "after {error}");
        error
    };

    let error = fails(sample(&[1.0], 0.5, 0));
    assert!(matches!(error, ModelError::FeatureCount { sample: 1, expected: 2, found: 1 }), "{error}");
    for score in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let error = fails(sample(&[1.0, 2.0], score, 0));
        assert!(matches!(error, ModelError::Score { sample: 1, .. }), "{error}");
    }
    let error = fails(sample(&[1.0, f32::NEG_INFINITY], 0.5, 0));
    assert!(matches!(error, ModelError::InfiniteFeature { sample: 1, column: 1 }), "{error}");
    let error = model.fit(&[sample(&[], 0.5, 0)]).unwrap_err();
    assert!(matches!(error, ModelError::NoFeatures), "{error}");
}

#[test]
fn bad_parameters_are_errors_that_name_them() {
    let samples = synthetic::samples(&mut ChaCha8Rng::seed_from_u64(4), 50, 0);
    let params = XgbParams::default;
    for (params, expected) in [
        (XgbParams { rounds: 0, ..params() }, "rounds"),
        (XgbParams { depth: 0, ..params() }, "depth"),
        (XgbParams { depth: 17, ..params() }, "depth"),
        (XgbParams { eta: -1.0, ..params() }, "eta"),
        (XgbParams { eta: f32::NAN, ..params() }, "eta"),
        (XgbParams { max_bin: 1, ..params() }, "max_bin"),
        (XgbParams { min_child_weight: f32::NAN, ..params() }, "min_child_weight"),
        (XgbParams { subsample: 2.0, ..params() }, "subsample"),
        (XgbParams { feature_share: 0.0, ..params() }, "feature_share"),
        (XgbParams { pairs_per_sample: 0, ..params() }, "pairs_per_sample"),
        (XgbParams { prior: Some(Prior { column: 0, weight: f32::NAN }), ..params() }, "prior.weight"),
    ] {
        let error = XgbModel::new(params).fit(&samples).unwrap_err();
        assert!(matches!(error, ModelError::Parameter { name, .. } if name == expected), "{expected}: {error}");
    }

    let extreme = XgbParams { depth: 16, eta: 1.0, max_bin: 65_536, pairs_per_sample: 1024, ..params() };
    for (subsample, feature_share) in [(1e-6, 1.0), (1.0, 1e-6), (1.0, 1.0)] {
        for (min_child_weight, objective) in [(0.0, OBJECTIVES[0]), (1e30, OBJECTIVES[1]), (0.0, OBJECTIVES[1])] {
            let params = XgbParams { subsample, feature_share, min_child_weight, objective, ..extreme.clone() };
            let mut model = XgbModel::new(params.clone());
            model.fit(&samples).unwrap_or_else(|error| panic!("{params:?}: {error}"));
            let predicted = model.predict(matrix(&samples).view());
            assert!(predicted.iter().all(|score| score.is_finite()), "{params:?}");
        }
    }
}

#[test]
fn huge_scores_are_ranked_or_refused() {
    let samples: Vec<Sample> =
        (0..40).map(|i| sample(&[i as f32], if i < 20 { f32::MIN } else { f32::MAX }, 0)).collect();
    let features = matrix(&samples);
    let mut model = small(Objective::RankPairwise);
    model.fit(&samples).unwrap();
    let predicted = model.predict(features.view());
    assert!(predicted[..20].iter().all(|low| predicted[20..].iter().all(|high| low < high)), "{predicted:?}");

    let mut model = small(Objective::SquaredError);
    match model.fit(&samples) {
        Ok(()) => assert!(model.predict(features.view()).iter().all(|score| score.is_finite())),
        Err(error) => assert!(matches!(error, ModelError::Diverged | ModelError::Booster(_)), "{error}"),
    }
}

#[test]
#[should_panic(expected = "feature columns")]
fn rows_of_another_width_are_refused() {
    let mut model = small(Objective::SquaredError);
    model.fit(&[sample(&[1.0, 2.0], 0.0, 0), sample(&[2.0, 2.0], 1.0, 0)]).unwrap();
    model.predict(Array2::zeros((1, 3)).view());
}

#[test]
fn damaged_bytes_are_errors_and_change_nothing() {
    let samples = synthetic::samples(&mut ChaCha8Rng::seed_from_u64(6), 80, 0);
    let features = matrix(&samples);
    let mut model = small(Objective::RankPairwise);
    model.fit(&samples).unwrap();
    let (bytes, predicted) = (model.save().unwrap(), model.predict(features.view()));

    assert!(matches!(XgbModel::from_bytes(b""), Err(ModelError::Format(_))));
    assert!(matches!(XgbModel::from_bytes(b"{}\n"), Err(ModelError::Format(_))));
    let text = String::from_utf8_lossy(&model.save().unwrap()).replacen("autotune-xgb-2", "autotune-xgb-0", 1);
    assert!(matches!(XgbModel::from_bytes(text.as_bytes()), Err(ModelError::Format(_))));

    let mut random = ChaCha8Rng::seed_from_u64(7);
    for _ in 0..30 {
        let end = random.random_range(0..bytes.len());
        assert!(model.load(&bytes[..end]).is_err(), "{end} bytes of {}", bytes.len());
        assert_eq!(model.predict(features.view()), predicted);
    }
    // Changed bytes may give another model, but must not crash.
    for _ in 0..200 {
        let mut other = bytes.clone();
        for _ in 0..random.random_range(1..4) {
            let at = random.random_range(0..other.len());
            other[at] = random.random_range(0..=255);
        }
        let model = XgbModel::from_bytes(&other).ok();
        if let Some(model) = model.filter(|model| model.feature_count() == Some(synthetic::COLUMNS)) {
            assert_eq!(model.predict(features.view()).len(), samples.len());
        }
    }
}

/// Concurrent training and prediction on several threads give the same results as one after the
/// other.
#[test]
fn models_on_several_threads_are_independent() {
    let fit = |seed: u64| {
        let samples = synthetic::samples(&mut ChaCha8Rng::seed_from_u64(seed), 100, 0);
        let mut model = small(Objective::RankPairwise);
        model.fit(&samples).unwrap();
        model.predict(matrix(&samples).view())
    };
    let alone: Vec<Vec<f32>> = (0..4).map(fit).collect();
    let together: Vec<Vec<f32>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|seed| scope.spawn(move || fit(seed))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(alone, together);
}
