//! Contract tests that every [`CostModel`] must pass, for models from other crates.

use ndarray::{Array2, s};

use crate::model::CostModel;
use crate::sample::Sample;

/// Number of rows and columns of the generated features.
const SHAPE: (usize, usize) = (60, 12);

/// Tests the behaviour that the tuner relies on; panics with the failed requirement. A fit with no
/// samples resets the model, equal samples give equal models, features may be missing, and every
/// row gets a finite score. The quality of scores is not tested.
pub fn cost_model<M: CostModel>(new: impl Fn() -> M) {
    let samples = samples();
    let rows = Array2::from_shape_fn(SHAPE, |(row, column)| samples[row].features[column]);

    let mut model = new();
    assert_eq!(model.feature_count(), None, "feature_count: must be None before the first fit");
    let untaught = model.predict(rows.view());
    check_scores(&untaught, SHAPE.0);
    check_scores(&model.predict(Array2::zeros((2, 1)).view()), 2);

    fit(&mut model, &samples);
    assert_eq!(model.feature_count(), Some(SHAPE.1), "feature_count: must be the number of columns of the samples");
    let taught = model.predict(rows.view());
    check_scores(&taught, SHAPE.0);
    check_scores(&model.predict(rows.slice(s![..0, ..])), 0);
    assert_eq!(
        taught[..5],
        model.predict(rows.slice(s![..5, ..])),
        "predict: the score of a row must not depend on other rows"
    );

    // A second fit must replace the first one without a trace.
    let mut again = new();
    fit(&mut again, &samples[..20]);
    fit(&mut again, &samples);
    assert_eq!(again.predict(rows.view()), taught, "fit: equal samples must give equal predictions");

    fit(&mut model, &[]);
    assert_eq!(model.feature_count(), None, "fit: without samples, the model must return to its initial state");
    assert_eq!(
        model.predict(rows.view()),
        untaught,
        "fit: without samples, the model must return to its initial state"
    );
}

fn fit(model: &mut impl CostModel, samples: &[Sample]) {
    if let Err(error) = model.fit(samples) {
        panic!("fit: {} samples are rejected: {error}", samples.len());
    }
}

fn check_scores(scores: &[f32], rows: usize) {
    assert_eq!(scores.len(), rows, "predict: must return one score per row");
    assert!(scores.iter().all(|score| score.is_finite()), "predict: a score is not finite: {scores:?}");
}

/// Returns samples of three groups, the last of which has a single, failed candidate. Some features
/// are missing.
fn samples() -> Vec<Sample> {
    let feature = |row: usize, column: usize| match (row * SHAPE.1 + column) % 41 {
        7 => f32::NAN,
        _ => ((row * (2 * column + 3)) % 17) as f32 / 4.0 - 1.0,
    };
    let sample = |row: usize| {
        let features: Vec<f32> = (0..SHAPE.1).map(|column| feature(row, column)).collect();
        let is_last = row + 1 == SHAPE.0;
        let score = if is_last { 0.0 } else { 1.0 / (2.0 + ((row * 3) % 17) as f32) };
        Sample { features, score, group: if is_last { 2 } else { (row % 2) as u32 } }
    };
    (0..SHAPE.0).map(sample).collect()
}
