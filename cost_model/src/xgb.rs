//! Gradient-boosted trees as a cost model.

use std::sync::Arc;

use autotune_ir::Target;
use ndarray::ArrayView2;
use serde::{Deserialize, Serialize};

use crate::booster::{Booster, Matrix};
use crate::features;
use crate::model::{CostModel, ModelError};
use crate::pretrained::Pretrained;
use crate::sample::Sample;
use crate::trees::{Trees, TreesError};

/// Loss that training minimises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Objective {
    /// Pairwise ranking loss: pairs of candidates of one group in the wrong order. Predictions are
    /// ranks without a scale.
    #[default]
    RankPairwise,
    /// Squared difference from the score; the scores of all groups must share one scale.
    SquaredError,
}

/// Prior of a model, which learns the difference from it: a feature column of which less is better,
/// such as the logarithm of an estimated time. It ranks candidates that are unlike any measured
/// one; its influence fades where samples contradict it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prior {
    /// Position of the feature column.
    pub column: usize,
    /// Decrease of the score if the column rises by 1.
    pub weight: f32,
}

/// Large enough that a candidate with half the estimated time of another almost always ranks first.
const ESTIMATE_WEIGHT: f32 = 4.0;

impl Prior {
    /// Returns the prior of a target's analytic time estimate: [`features::estimate_column`].
    pub fn estimate(target: &Target) -> Self {
        Self { column: features::estimate_column(target), weight: ESTIMATE_WEIGHT }
    }

    /// Returns the score of a row of features; 0 if the value is missing.
    fn score(&self, row: &[f32]) -> f32 {
        row.get(self.column).filter(|value| value.is_finite()).map_or(0.0, |value| -self.weight * value)
    }
}

/// Training parameters of [`XgbModel`]. The defaults suit some hundred to some thousand samples.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct XgbParams {
    /// Loss that training minimises.
    pub objective: Objective,
    /// Number of trees: at least 1.
    pub rounds: u32,
    /// Largest depth of a tree, in splits: 1 to 16.
    pub depth: u32,
    /// Weight of each tree (learning rate): over 0, at most 1.
    pub eta: f32,
    /// Number of histogram bins per feature: 2 to 65,536.
    pub max_bin: u32,
    /// Least sum of second derivatives (about: samples or pairs) in a leaf: not negative.
    pub min_child_weight: f32,
    /// Share of the samples per tree: over 0, at most 1.
    pub subsample: f32,
    /// Share of the features per tree: over 0, at most 1. Features of neighbouring loops are much
    /// alike, so that half of them teach as much in half the time.
    pub feature_share: f32,
    /// Pairs drawn per sample for [`Objective::RankPairwise`]: 1 to 1,024.
    pub pairs_per_sample: u32,
    /// Seed of the choice of samples and features per tree.
    pub seed: u32,
    /// Prior that the model starts from, if any.
    pub prior: Option<Prior>,
}

impl Default for XgbParams {
    fn default() -> Self {
        Self {
            objective: Objective::default(),
            rounds: 120,
            depth: 3,
            eta: 0.2,
            max_bin: 64,
            min_child_weight: 1.0,
            subsample: 1.0,
            feature_share: 0.5,
            pairs_per_sample: 8,
            seed: 0,
            prior: None,
        }
    }
}

impl XgbParams {
    /// Returns the parameters of a model that corrects a pretrained one: the difference is
    /// smoother. On the recorded test bed these rank other schedules of a workload better, with a
    /// pairwise accuracy of 0.822 instead of 0.813 for 24 samples of it, and of 0.847 instead of
    /// 0.844 for 1,200 of eight workloads, in a third of the time.
    pub fn correction() -> Self {
        Self { rounds: 60, max_bin: 16, feature_share: 0.25, ..Self::default() }
    }

    /// Limits trees, features and bins to those of a [correction](Self::correction).
    fn corrected(self) -> Self {
        let least = Self::correction();
        let feature_share = self.feature_share.min(least.feature_share);
        Self { rounds: self.rounds.min(least.rounds), max_bin: self.max_bin.min(least.max_bin), feature_share, ..self }
    }

    /// Checks the ranges: XGBoost reports some bad values obscurely and accepts others.
    fn check(&self) -> Result<(), ModelError> {
        const SHARE: &str = "greater than 0 and at most 1";
        let share = |value: f32| value > 0.0 && value <= 1.0;
        let prior_weight = self.prior.map_or(0.0, |prior| prior.weight);

        for (name, value, valid, range) in [
            ("rounds", self.rounds.into(), self.rounds >= 1, "at least 1"),
            ("depth", self.depth.into(), (1..=16).contains(&self.depth), "1 to 16"),
            ("eta", self.eta.into(), share(self.eta), SHARE),
            ("max_bin", self.max_bin.into(), (2..=65_536).contains(&self.max_bin), "2 to 65536"),
            ("min_child_weight", self.min_child_weight.into(), self.min_child_weight >= 0.0, "not negative"),
            ("subsample", self.subsample.into(), share(self.subsample), SHARE),
            ("feature_share", self.feature_share.into(), share(self.feature_share), SHARE),
            (
                "pairs_per_sample",
                self.pairs_per_sample.into(),
                (1..=1024).contains(&self.pairs_per_sample),
                "1 to 1024",
            ),
            ("prior.weight", prior_weight.into(), prior_weight.is_finite(), "finite"),
        ] {
            if !valid {
                return Err(ModelError::Parameter { name, value, range });
            }
        }
        Ok(())
    }

    /// Returns the parameters by their XGBoost names; `has_margins` if rows have prior scores.
    fn to_xgboost(&self, has_margins: bool) -> Vec<(&'static str, String)> {
        let mut params = vec![
            ("tree_method", "hist".to_owned()),
            ("nthread", "1".to_owned()),
            ("disable_default_eval_metric", "1".to_owned()),
            ("max_depth", self.depth.to_string()),
            ("eta", self.eta.to_string()),
            ("max_bin", self.max_bin.to_string()),
            ("min_child_weight", self.min_child_weight.to_string()),
            ("subsample", self.subsample.to_string()),
            ("colsample_bytree", self.feature_share.to_string()),
            ("seed", self.seed.to_string()),
        ];

        if has_margins {
            // The prior scores take the place of XGBoost's constant base score.
            params.push(("base_score", "0".to_owned()));
        }

        match self.objective {
            Objective::RankPairwise => params.extend([
                ("objective", "rank:pairwise".to_owned()),
                // XGBoost's defaults rank candidates much worse: they look at the top of each group
                // only and damp the gradients.
                ("lambdarank_pair_method", "mean".to_owned()),
                ("lambdarank_num_pair_per_sample", self.pairs_per_sample.to_string()),
                ("lambdarank_score_normalization", "false".to_owned()),
            ]),
            Objective::SquaredError => params.push(("objective", "reg:squarederror".to_owned())),
        }
        params
    }
}

/// Gradient-boosted trees, trained by XGBoost on the calling thread.
///
/// Training with 1,000 samples of 120 features takes about 0.1 s, predicting as many about 0.5 ms.
/// Large batches are predicted on rayon's thread pool.
#[derive(Clone, Debug, Default)]
pub struct XgbModel {
    params: XgbParams,
    /// Models whose weighted sum of predictions the trees correct.
    bases: Vec<(Arc<Pretrained>, f32)>,
    fitted: Option<Fitted>,
}

#[derive(Clone, Debug)]
struct Fitted {
    trees: Trees,
    /// Factor of the bases' sum, from 0 to 1 ([`trust`]).
    trust: f32,
    /// The trees in XGBoost's JSON format.
    json: Vec<u8>,
}

/// First line of a saved model. If the model is fitted, XGBoost's JSON follows.
#[derive(Serialize, Deserialize)]
struct ModelHeader {
    format: String,
    fitted: bool,
    /// Hashes of the base models, with their weights.
    bases: Vec<(u64, f32)>,
    trust: f32,
    params: XgbParams,
}

const FORMAT: &str = "autotune-xgb-2";

impl XgbModel {
    /// Returns a model that has learned nothing yet. Parameters are checked by the first fit.
    pub fn new(params: XgbParams) -> Self {
        Self { params, bases: Vec::new(), fitted: None }
    }

    /// Returns a model that learns the difference from a pretrained one.
    pub fn continuing(base: Arc<Pretrained>, params: XgbParams) -> Self {
        Self { params, bases: vec![(base, 1.0)], fitted: None }
    }

    /// Returns a model that corrects a target's shipped model, or else the analytic estimate.
    pub fn for_target(target: &Target) -> Self {
        match Pretrained::for_target(target) {
            Some(base) => Self::continuing(base, XgbParams::correction()),
            None => Self::from_estimate(target),
        }
    }

    /// Returns a model that starts from the analytic time estimate for a target.
    pub fn from_estimate(target: &Target) -> Self {
        Self::new(XgbParams { prior: Some(Prior::estimate(target)), ..XgbParams::default() })
    }

    /// Returns the fitted trees; `None` before the first fit.
    pub(crate) fn trees(&self) -> Option<&Trees> {
        self.fitted.as_ref().map(|fitted| &fitted.trees)
    }

    /// Returns the prior and base scores of row-major values; `None` if the model has neither.
    fn margins(&self, values: &[f32], columns: usize, trust: f32) -> Option<Vec<f32>> {
        let of_prior = |prior: Prior| values.chunks(columns.max(1)).map(|row| prior.score(row)).collect::<Vec<_>>();
        let estimated = self.params.prior.map(of_prior);
        let Some(mut scores) = self.learnt_before(values, columns) else { return estimated };
        scores.iter_mut().for_each(|score| *score *= trust);
        scores.iter_mut().zip(estimated.iter().flatten()).for_each(|(score, estimated)| *score += estimated);
        Some(scores)
    }

    /// Returns the weighted sum of the bases' predictions for each row; `None` without bases.
    fn learnt_before(&self, values: &[f32], columns: usize) -> Option<Vec<f32>> {
        let weighted = |(base, weight): &(Arc<Pretrained>, f32)| {
            let mut scores = base.scores(values, columns);
            scores.iter_mut().for_each(|score| *score *= weight);
            scores
        };
        self.bases.iter().map(weighted).reduce(|mut sum, scores| {
            sum.iter_mut().zip(scores).for_each(|(sum, score)| *sum += score);
            sum
        })
    }

    /// Returns hashes and weights of the bases, which identify them.
    fn base_hashes(&self) -> Vec<(u64, f32)> {
        self.bases.iter().map(|(base, weight)| (base.hash(), *weight)).collect()
    }

    /// Returns the factor of the bases' predictions.
    fn trust(&self) -> f32 {
        self.fitted.as_ref().map_or(1.0, |fitted| fitted.trust)
    }

    /// Returns the training parameters.
    pub fn params(&self) -> &XgbParams {
        &self.params
    }

    /// Reads a model without bases from bytes of [`XgbModel::save`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, ModelError> {
        let mut model = Self::default();
        model.load(bytes)?;
        Ok(model)
    }

    /// Returns the parameters and the fitted trees as bytes for [`XgbModel::load`].
    pub fn save(&self) -> Result<Vec<u8>, ModelError> {
        let header = ModelHeader {
            format: FORMAT.to_owned(),
            fitted: self.fitted.is_some(),
            bases: self.base_hashes(),
            trust: self.trust(),
            params: self.params.clone(),
        };
        let mut bytes = serde_json::to_vec(&header).map_err(|error| ModelError::Format(error.to_string()))?;
        bytes.push(b'\n');
        if let Some(fitted) = &self.fitted {
            bytes.extend_from_slice(&fitted.json);
        }
        Ok(bytes)
    }

    /// Replaces the model by a saved one with equal bases; after an error it is unchanged.
    ///
    /// The saved model may have other features: compare [`CostModel::feature_count`] first.
    pub fn load(&mut self, bytes: &[u8]) -> Result<(), ModelError> {
        let line = bytes.iter().position(|&byte| byte == b'\n');
        let (header, json) = bytes.split_at(line.map_or(bytes.len(), |at| at + 1));
        let header: ModelHeader =
            serde_json::from_slice(header).map_err(|error| ModelError::Format(error.to_string()))?;
        if header.format != FORMAT {
            return Err(ModelError::Format(format!("the format is {:?}, expected {FORMAT:?}", header.format)));
        }
        if header.bases != self.base_hashes() {
            return Err(ModelError::Format("it extends another pretrained model".to_owned()));
        }
        // Not parsed by XGBoost, which may abort the process on malformed bytes.
        let read = || -> Result<Fitted, TreesError> {
            Ok(Fitted { trees: Trees::from_json(json)?, trust: header.trust, json: json.to_vec() })
        };
        let fitted = header.fitted.then(read).transpose()?;
        *self = Self { params: header.params, bases: std::mem::take(&mut self.bases), fitted };
        Ok(())
    }
}

impl CostModel for XgbModel {
    fn fit(&mut self, samples: &[Sample]) -> Result<(), ModelError> {
        let Some(first) = samples.first() else {
            self.fitted = None;
            return Ok(());
        };
        let columns = first.features.len();
        self.params.check()?;
        check(samples, columns)?;

        // XGBoost needs the rows of a group adjacent; the stable sort stays deterministic.
        let mut rows: Vec<&Sample> = samples.iter().collect();
        rows.sort_by_key(|sample| sample.group);
        let values: Vec<f32> = rows.iter().flat_map(|sample| &sample.features).copied().collect();
        let labels: Vec<f32> = rows.iter().map(|sample| sample.score).collect();

        let mut matrix = Matrix::new(&values, columns)?;
        matrix.set_labels(&labels)?;
        let groups: Vec<u32> = rows.iter().map(|sample| sample.group).collect();
        let trust = self.learnt_before(&values, columns).map_or(1.0, |scores| trust(&scores, &labels, &groups));
        let margins = self.margins(&values, columns, trust);
        if let Some(margins) = &margins {
            matrix.set_margins(margins)?;
        }
        if self.params.objective == Objective::RankPairwise {
            matrix.set_groups(&groups)?;
        }

        let booster = Booster::train(&matrix, &self.params.to_xgboost(margins.is_some()), self.params.rounds)?;
        let json = booster.to_json()?;
        let trees = Trees::from_json(&json).map_err(|error| match error {
            // Numbers that are not finite make invalid JSON.
            TreesError::Json(_) => ModelError::Diverged,
            error => error.into(),
        })?;
        self.fitted = Some(Fitted { trees, trust, json });
        Ok(())
    }

    fn pretrain(&mut self, samples: &[Sample]) -> Result<bool, ModelError> {
        let mut general = Self { fitted: None, ..self.clone() };
        general.fit(samples)?;
        // The loss of its top picks is unknown.
        let Some(base) = Pretrained::of(&general, f32::NAN) else { return Ok(false) };

        let trust = general.trust();
        self.bases.iter_mut().for_each(|(_, weight)| *weight *= trust);
        self.bases.push((Arc::new(base), 1.0));
        self.params = self.params.clone().corrected();
        self.fitted = None;
        Ok(true)
    }

    fn predict(&self, features: ArrayView2<f32>) -> Vec<f32> {
        let (rows, columns) = features.dim();
        let values = features.as_standard_layout();
        let values = values.as_slice().unwrap_or_default();
        let mut scores = match &self.fitted {
            None => vec![0.0; rows],
            Some(Fitted { trees, .. }) => {
                assert_eq!(columns, trees.columns(), "the number of feature columns differs from that of the model");
                trees.predict(values)
            }
        };
        let margins = self.margins(values, columns, self.trust());
        scores.iter_mut().zip(margins.iter().flatten()).for_each(|(score, margin)| *score += margin);
        scores
    }

    fn is_pretrained(&self) -> bool {
        !self.bases.is_empty()
    }

    fn feature_count(&self) -> Option<usize> {
        self.fitted.as_ref().map(|fitted| fitted.trees.columns())
    }
}

/// Weighted share of pairs in order from which on the bases are trusted in full; by chance it is
/// 0.5. A search samples the best-scored candidates, which are harder to order than others.
const BELIEVED: f32 = 0.7;

/// Returns how far the bases are trusted, from 0 to 1: by the share of pairs that `scores` order
/// like `labels`, weighted by the labels' difference. Rows are sorted by group. The share is raised
/// by its uncertainty, so that few samples do not discredit the bases.
fn trust(scores: &[f32], labels: &[f32], groups: &[u32]) -> f32 {
    let (mut in_order, mut all) = (0.0, 0.0);
    for i in 0..labels.len() {
        for j in (i + 1..labels.len()).take_while(|&j| groups[j] == groups[i]) {
            let weight = (labels[i] - labels[j]).abs();
            all += weight;
            if (labels[i] > labels[j]) == (scores[i] > scores[j]) {
                in_order += weight;
            }
        }
    }
    if all == 0.0 {
        return 1.0;
    }

    // About the standard error of the share.
    let doubt = 1.0 / (3.0 * (labels.len() as f32).sqrt());
    ((in_order / all + doubt - 0.5) / (BELIEVED - 0.5)).clamp(0.0, 1.0)
}

fn check(samples: &[Sample], columns: usize) -> Result<(), ModelError> {
    if columns == 0 {
        return Err(ModelError::NoFeatures);
    }
    for (sample, Sample { features, score, .. }) in samples.iter().enumerate() {
        if features.len() != columns {
            return Err(ModelError::FeatureCount { sample, expected: columns, found: features.len() });
        }
        if !score.is_finite() {
            return Err(ModelError::Score { sample, score: *score });
        }
        if let Some(column) = features.iter().position(|value| value.is_infinite()) {
            return Err(ModelError::InfiniteFeature { sample, column });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// XGBoost accepts unknown parameters: checks the values that it reports to be in effect.
    #[test]
    fn parameters_are_in_effect() {
        let mut matrix = Matrix::new(&[1.0, 2.0, 3.0], 1).unwrap();
        matrix.set_labels(&[1.0, 2.0, 3.0]).unwrap();
        let params = XgbParams {
            objective: Objective::RankPairwise,
            rounds: 1,
            depth: 7,
            eta: 0.125,
            max_bin: 37,
            min_child_weight: 0.25,
            subsample: 0.75,
            feature_share: 0.5,
            pairs_per_sample: 11,
            seed: 4321,
            prior: None,
        };

        let booster = Booster::train(&matrix, &params.to_xgboost(false), params.rounds).unwrap();
        let config = booster.config().unwrap().replace([' ', '\n'], "");
        for expected in [
            r#""objective":"rank:pairwise""#,
            r#""lambdarank_pair_method":"mean""#,
            r#""lambdarank_num_pair_per_sample":"11""#,
            r#""lambdarank_score_normalization":"0""#,
            r#""tree_method":"hist""#,
            r#""max_depth":"7""#,
            r#""eta":"0.125""#,
            r#""max_bin":"37""#,
            r#""min_child_weight":"0.25""#,
            r#""subsample":"0.75""#,
            r#""colsample_bytree":"0.5""#,
            r#""seed":"4321""#,
            r#""nthread":"1""#,
        ] {
            assert!(config.contains(expected), "{expected} is not in {config}");
        }
    }
}
