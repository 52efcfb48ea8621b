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

/// What training minimises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Objective {
    /// Pairs of candidates of the same group in the wrong order. Predictions are ranks without a
    /// scale.
    #[default]
    RankPairwise,
    /// The squared difference from the score. Groups are ignored: their scores must be on one
    /// scale.
    SquaredError,
}

/// What a model takes for granted before it has learnt anything, and learns the difference to: a
/// column of the features is the less the better, such as the logarithm of an estimate of the time.
/// It ranks candidates unlike any that were measured, and fades where samples contradict it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prior {
    /// Position of the column.
    pub column: usize,
    /// By how much the score falls when the column rises by 1.
    pub weight: f32,
}

/// Of two candidates of which one is estimated to be twice as fast, it is, as a rule.
const ESTIMATE_WEIGHT: f32 = 4.0;

impl Prior {
    /// The analytic estimate of the time for a target: [`features::estimate_column`].
    pub fn estimate(target: &Target) -> Self {
        Self { column: features::estimate_column(target), weight: ESTIMATE_WEIGHT }
    }

    /// The score of a row of features; 0 where the value is missing.
    fn score(&self, row: &[f32]) -> f32 {
        row.get(self.column).filter(|value| value.is_finite()).map_or(0.0, |value| -self.weight * value)
    }
}

/// How [`XgbModel`] learns. The defaults suit some hundred to some thousand samples.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct XgbParams {
    /// What training minimises.
    pub objective: Objective,
    /// Trees to train: at least 1.
    pub rounds: u32,
    /// Splits on the longest way from a tree's root to a leaf: 1 to 16.
    pub depth: u32,
    /// Weight of each tree: over 0, at most 1.
    pub eta: f32,
    /// Ranges of each feature's values that training tells apart: 2 to 65,536.
    pub max_bin: u32,
    /// Least curvature (about: samples or pairs) in a leaf: not negative.
    pub min_child_weight: f32,
    /// Share of the samples that each tree sees: over 0, at most 1.
    pub subsample: f32,
    /// Share of the features that each tree sees: over 0, at most 1. Neighbouring loops have much
    /// the same features: half of them teach as much in half the time.
    pub feature_share: f32,
    /// Pairs drawn for each sample, with [`Objective::RankPairwise`]: 1 to 1,024.
    pub pairs_per_sample: u32,
    /// Chooses the samples and features of each tree.
    pub seed: u32,
    /// What is taken for granted.
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
    /// How a model learns that goes on from a pretrained one: the difference is smaller and
    /// smoother than the whole. On the recorded test bed half the trees, a quarter of the features
    /// for each and wider ranges rank other schedules of a workload better, from 24 samples of it
    /// (pairs in order 0.822 for 0.813) to 1,200 of eight workloads (0.847 for 0.844), and take a
    /// third of the time.
    pub fn correction() -> Self {
        Self { rounds: 60, max_bin: 16, feature_share: 0.25, ..Self::default() }
    }

    /// The same, with no more trees, features and ranges than a [correction](Self::correction)
    /// takes.
    fn corrected(self) -> Self {
        let least = Self::correction();
        let feature_share = self.feature_share.min(least.feature_share);
        Self { rounds: self.rounds.min(least.rounds), max_bin: self.max_bin.min(least.max_bin), feature_share, ..self }
    }

    /// XGBoost refuses some values in words of its own, and trains nonsense with others.
    fn check(&self) -> Result<(), ModelError> {
        const SHARE: &str = "over 0, at most 1";
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

    /// In XGBoost's words, of a model that takes something for granted or not.
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
            // What is taken for granted stands in its place.
            params.push(("base_score", "0".to_owned()));
        }

        match self.objective {
            Objective::RankPairwise => params.extend([
                ("objective", "rank:pairwise".to_owned()),
                // The defaults of XGBoost only look at the top of each group and damp their
                // gradients, which ranks candidates much worse.
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
/// Training 1,000 samples of 120 features takes about 0.1 s and predicting as many about 0.5 ms;
/// large batches are predicted by all threads of rayon's pool.
#[derive(Clone, Debug, Default)]
pub struct XgbModel {
    params: XgbParams,
    /// What its trees correct: the sum of what these predict, each times its weight.
    bases: Vec<(Arc<Pretrained>, f32)>,
    fitted: Option<Fitted>,
}

#[derive(Clone, Debug)]
struct Fitted {
    trees: Trees,
    /// What the sum of the bases is multiplied by.
    trust: f32,
    /// The same in XGBoost's own format.
    json: Vec<u8>,
}

/// The first line of a saved model. The model follows in XGBoost's JSON format, if it is fitted.
#[derive(Serialize, Deserialize)]
struct Header {
    format: String,
    fitted: bool,
    /// Hashes of the models that it goes on from, and their weights.
    bases: Vec<(u64, f32)>,
    /// What their sum is multiplied by.
    trust: f32,
    params: XgbParams,
}

const FORMAT: &str = "autotune-xgb-2";

impl XgbModel {
    /// A model that has learnt nothing yet. Parameters are checked when it is fitted.
    pub fn new(params: XgbParams) -> Self {
        Self { params, bases: Vec::new(), fitted: None }
    }

    /// A model that goes on from a pretrained one: it learns the difference to what that predicts.
    pub fn continuing(base: Arc<Pretrained>, params: XgbParams) -> Self {
        Self { params, bases: vec![(base, 1.0)], fitted: None }
    }

    /// A model for a target that goes on from the one that ships for it; where there is none, from
    /// the analytic estimate of the time.
    pub fn for_target(target: &Target) -> Self {
        match Pretrained::for_target(target) {
            Some(base) => Self::continuing(base, XgbParams::correction()),
            None => Self::from_estimate(target),
        }
    }

    /// A model that starts from the analytic estimate of the time for a target.
    pub fn from_estimate(target: &Target) -> Self {
        Self::new(XgbParams { prior: Some(Prior::estimate(target)), ..XgbParams::default() })
    }

    /// What was learnt, as trees.
    pub(crate) fn trees(&self) -> Option<&Trees> {
        self.fitted.as_ref().map(|fitted| &fitted.trees)
    }

    /// What is taken for granted of each row of row-major values; `None` if that is nothing.
    fn margins(&self, values: &[f32], columns: usize, trust: f32) -> Option<Vec<f32>> {
        let of_prior = |prior: Prior| values.chunks(columns.max(1)).map(|row| prior.score(row)).collect::<Vec<_>>();
        let estimated = self.params.prior.map(of_prior);
        let Some(mut scores) = self.learnt_before(values, columns) else { return estimated };
        scores.iter_mut().for_each(|score| *score *= trust);
        scores.iter_mut().zip(estimated.iter().flatten()).for_each(|(score, estimated)| *score += estimated);
        Some(scores)
    }

    /// What the bases predict of each row; `None` if there are none.
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

    /// What tells the bases apart from others.
    fn base_hashes(&self) -> Vec<(u64, f32)> {
        self.bases.iter().map(|(base, weight)| (base.hash(), *weight)).collect()
    }

    /// What the predictions of the bases are multiplied by.
    fn trust(&self) -> f32 {
        self.fitted.as_ref().map_or(1.0, |fitted| fitted.trust)
    }

    /// How it learns.
    pub fn params(&self) -> &XgbParams {
        &self.params
    }

    /// A model read from what [`XgbModel::save`] wrote of one that does not go on from another.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, ModelError> {
        let mut model = Self::default();
        model.load(bytes)?;
        Ok(model)
    }

    /// What was learnt, and with which parameters, as bytes for [`XgbModel::load`].
    pub fn save(&self) -> Result<Vec<u8>, ModelError> {
        let header = Header {
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

    /// Replaces the whole model by a saved one, which must go on from the same pretrained model;
    /// after an error, it is as it was before.
    ///
    /// It may stem from other features: compare [`CostModel::feature_count`] before the first
    /// prediction.
    pub fn load(&mut self, bytes: &[u8]) -> Result<(), ModelError> {
        let line = bytes.iter().position(|&byte| byte == b'\n');
        let (header, json) = bytes.split_at(line.map_or(bytes.len(), |at| at + 1));
        let header: Header = serde_json::from_slice(header).map_err(|error| ModelError::Format(error.to_string()))?;
        if header.format != FORMAT {
            return Err(ModelError::Format(format!("format {:?}, {FORMAT:?} is known", header.format)));
        }
        if header.bases != self.base_hashes() {
            return Err(ModelError::Format("it goes on from another pretrained model".to_owned()));
        }
        // Read without XGBoost, which takes bytes that are no model badly.
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

        // Rows of a group must be adjacent. The sort is stable: the order of the samples is part of
        // the input.
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
            // What is not finite is no JSON.
            TreesError::Json(_) => ModelError::Diverged,
            error => error.into(),
        })?;
        self.fitted = Some(Fitted { trees, trust, json });
        Ok(())
    }

    fn pretrain(&mut self, samples: &[Sample]) -> Result<bool, ModelError> {
        let mut general = Self { fitted: None, ..self.clone() };
        general.fit(samples)?;
        // Nothing is said of how far its picks are from the best.
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
                assert_eq!(columns, trees.columns(), "feature columns given and feature columns of the model differ");
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

/// Share of the pairs in order, each by how far its scores are apart, from which on what was learnt
/// before is believed in full: half of them are in order by chance. Samples of a search are the
/// best-scored ones, which are harder to order than others.
const BELIEVED: f32 = 0.7;

/// How far what was learnt before is believed, by the order of its scores for samples, sorted by
/// group, that are labelled now: 0 to 1. With few samples it is given the benefit of the doubt.
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

    // About the standard error of such a share.
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

    /// XGBoost accepts names of parameters that do not exist: what it says is in effect must be
    /// what was asked for.
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
