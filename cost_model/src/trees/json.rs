//! Trees in XGBoost's JSON format.

use serde::Deserialize;
use thiserror::Error;

use super::{MISSING_RIGHT, Root, TreeNode, Trees};

/// Upper limit of feature columns, well above any model of this crate.
const MAX_COLUMNS: usize = 1 << 16;

/// Reason why JSON is not a set of regression trees that this crate can use.
#[derive(Debug, Error)]
pub enum TreesError {
    /// The text is not JSON, or not that of an XGBoost model.
    #[error("not an XGBoost model: {0}")]
    Json(#[from] serde_json::Error),
    /// One tree of the model cannot be used.
    #[error("tree {tree} of the model is unusable: {reason}")]
    Tree {
        /// Position of the tree, from 0.
        tree: usize,
        /// Reason why it cannot be used, in words.
        reason: &'static str,
    },
    /// The model transforms the sum of its trees in a way that this crate does not implement.
    #[error("the model is unusable: {0}")]
    Model(String),
}

impl Trees {
    /// Parses a model that XGBoost saved as JSON.
    pub(crate) fn from_json(json: &[u8]) -> Result<Self, TreesError> {
        let model: ModelJson = serde_json::from_slice(json)?;
        let learner = model.learner;
        let param = learner.learner_model_param;
        let columns = param.num_feature.parse().ok().filter(|columns| (1..=MAX_COLUMNS).contains(columns));
        let columns = columns
            .ok_or_else(|| TreesError::Model(format!("unsupported number of columns {:?}", param.num_feature)))?;
        let base = base_score(&param.base_score)
            .ok_or_else(|| TreesError::Model(format!("invalid base score {:?}", param.base_score)))?;

        // These objectives predict the plain sum; others transform it.
        let objective = learner.objective.name;
        if !matches!(objective.as_str(), "rank:pairwise" | "reg:squarederror") {
            return Err(TreesError::Model(format!("unsupported objective {objective:?}")));
        }

        let mut trees = Self { columns, base, roots: Vec::new(), nodes: Vec::new() };
        for (tree, json) in learner.gradient_booster.model.trees.iter().enumerate() {
            trees.push(json).map_err(|reason| TreesError::Tree { tree, reason })?;
        }
        Ok(trees)
    }

    /// Appends a tree breadth first, so that siblings are adjacent.
    fn push(&mut self, tree: &TreeJson) -> Result<(), &'static str> {
        let len = tree.left_children.len();
        if len == 0 {
            return Err("it has no nodes");
        }
        let lens =
            [tree.right_children.len(), tree.split_indices.len(), tree.split_conditions.len(), tree.default_left.len()];
        if lens != [len; 4] {
            return Err("its columns differ in length");
        }
        if tree.split_type.iter().any(|&split| split != 0) {
            return Err("it has categorical splits");
        }

        let first = self.nodes.len();
        // Index of each node in the JSON and its depth, in breadth-first order.
        let mut queue = vec![(0_usize, 0_u32)];
        let mut depth_max = 0;
        let mut visited = 0;
        while let Some(&(index, depth)) = queue.get(visited) {
            let here = u32::try_from(first + visited).map_err(|_| "it has too many nodes")?;
            visited += 1;
            if visited > len {
                return Err("it has a cycle");
            }

            let condition = tree.split_conditions[index];
            let (left, right) = (tree.left_children[index], tree.right_children[index]);
            if left < 0 {
                depth_max = depth_max.max(depth);
                self.nodes.push(TreeNode { threshold: f32::NAN, split: 0, child: here, value: condition });
                continue;
            }

            let column = tree.split_indices[index];
            if column as usize >= self.columns || column & MISSING_RIGHT != 0 {
                return Err("it splits on a column that does not exist");
            }
            let child = u32::try_from(first + queue.len()).map_err(|_| "it has too many nodes")?;
            for index in [left, right] {
                match usize::try_from(index) {
                    Ok(index) if index < len => queue.push((index, depth + 1)),
                    _ => return Err("a child node does not exist"),
                }
            }

            let missing = if tree.default_left[index] != 0 { 0 } else { MISSING_RIGHT };
            self.nodes.push(TreeNode { threshold: condition, split: column | missing, child, value: 0.0 });
        }

        let node = u32::try_from(first).map_err(|_| "it has too many nodes")?;
        self.roots.push(Root { node, depth: depth_max });
        Ok(())
    }
}

/// Parses one number, or an array of one.
fn base_score(text: &str) -> Option<f32> {
    text.trim_start_matches('[').trim_end_matches(']').parse().ok().filter(|base: &f32| base.is_finite())
}

#[derive(Deserialize)]
struct ModelJson {
    learner: LearnerJson,
}

#[derive(Deserialize)]
struct LearnerJson {
    gradient_booster: GradientBoosterJson,
    learner_model_param: ParamJson,
    objective: ObjectiveJson,
}

#[derive(Deserialize)]
struct GradientBoosterJson {
    model: ForestJson,
}

#[derive(Deserialize)]
struct ForestJson {
    trees: Vec<TreeJson>,
}

#[derive(Deserialize)]
struct ParamJson {
    base_score: String,
    num_feature: String,
}

#[derive(Deserialize)]
struct ObjectiveJson {
    name: String,
}

#[derive(Deserialize)]
struct TreeJson {
    left_children: Vec<i32>,
    right_children: Vec<i32>,
    split_indices: Vec<u32>,
    /// Threshold of an inner node, value of a leaf.
    split_conditions: Vec<f32>,
    split_type: Vec<u8>,
    default_left: Vec<u8>,
}

#[cfg(test)]
mod tests {
    use super::super::STEPS_PER_BATCH_MIN;
    use super::*;
    use crate::booster::{Booster, Matrix};
    use rand::{Rng, RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    /// Returns rows whose values often equal a threshold, are often missing, and sometimes
    /// infinite.
    fn rows(random: &mut impl Rng, len: usize, infinities: bool) -> Vec<f32> {
        let mut value = |_| match random.random_range(0..12) {
            0 | 1 => f32::NAN,
            2 if infinities => f32::INFINITY,
            3 if infinities => f32::NEG_INFINITY,
            4 => -0.0,
            5..8 => random.random_range(-3..3) as f32,
            _ => random.random_range(-3.0..3.0),
        };
        (0..len).map(&mut value).collect()
    }

    fn train(random: &mut impl Rng, columns: usize, depth: u32, objective: &str) -> Booster {
        let count = random.random_range(20..400);
        let values = rows(random, count * columns, false);
        let known = |value: f32| if value.is_nan() { 0.7 } else { value };
        let labels: Vec<f32> = (values.chunks(columns))
            .map(|row| known(row[0]) * known(row[columns - 1]) + known(row[columns / 2]).abs() - 2.0)
            .collect();
        let mut matrix = Matrix::new(&values, columns).unwrap();
        matrix.set_labels(&labels).unwrap();
        let params = [
            ("objective", objective.to_owned()),
            ("max_depth", depth.to_string()),
            ("lambdarank_pair_method", "mean".to_owned()),
        ];
        Booster::train(&matrix, &params, 25).unwrap()
    }

    fn trees(booster: &Booster) -> Trees {
        Trees::from_json(&booster.to_json().unwrap()).unwrap()
    }

    fn bits(values: &[f32]) -> Vec<u32> {
        values.iter().map(|value| value.to_bits()).collect()
    }

    #[test]
    fn predicts_bit_for_bit_what_xgboost_predicts() {
        for seed in 0..40_u64 {
            let random = &mut ChaCha8Rng::seed_from_u64(seed);
            let columns = random.random_range(1..12);
            let depth = random.random_range(1..9);
            let objective = ["rank:pairwise", "reg:squarederror"][seed as usize % 2];
            let booster = train(random, columns, depth, objective);
            let trees = trees(&booster);
            assert_eq!(trees.columns(), columns, "seed {seed}");
            let count = random.random_range(1..200);
            let values = rows(random, count * columns, false);
            let expected = booster.predict(&values, columns).unwrap();
            assert_eq!(bits(&trees.predict(&values)), bits(&expected), "seed {seed}");
        }
    }

    #[test]
    fn large_batches_are_predicted_alike() {
        let random = &mut ChaCha8Rng::seed_from_u64(1);
        let booster = train(random, 5, 6, "rank:pairwise");
        let trees = trees(&booster);
        let values = rows(random, 5 * 20_011, false);
        let predicted = trees.predict(&values);
        assert!(predicted.len() * trees.roots.len() >= STEPS_PER_BATCH_MIN);
        assert_eq!(bits(&predicted), bits(&booster.predict(&values, 5).unwrap()));
        let one_by_one: Vec<f32> = values.chunks(5).flat_map(|row| trees.predict(row)).collect();
        assert_eq!(bits(&predicted), bits(&one_by_one));
    }

    #[test]
    fn infinities_are_ordinary_values() {
        let random = &mut ChaCha8Rng::seed_from_u64(2);
        let trees = trees(&train(random, 4, 5, "reg:squarederror"));
        let values = rows(random, 4 * 300, true);
        let huge: Vec<f32> = values.iter().map(|value| value.clamp(f32::MIN, f32::MAX)).collect();
        assert_eq!(bits(&trees.predict(&values)), bits(&trees.predict(&huge)));
    }

    #[test]
    fn without_rows_there_are_no_predictions() {
        let random = &mut ChaCha8Rng::seed_from_u64(3);
        assert!(trees(&train(random, 3, 2, "reg:squarederror")).predict(&[]).is_empty());
    }

    /// Returns a model of one tree over two columns.
    fn model(tree: &str, objective: &str, base_score: &str) -> String {
        format!(
            r#"{{"learner": {{"gradient_booster": {{"model": {{"trees": [{tree}]}}}},
                "learner_model_param": {{"base_score": "{base_score}", "num_feature": "2"}},
                "objective": {{"name": "{objective}"}}}}}}"#
        )
    }

    fn tree(left: &str, right: &str, columns: &str, split_type: u8) -> String {
        format!(
            r#"{{"left_children": {left}, "right_children": {right}, "split_indices": {columns},
                "split_conditions": [0.5, -1, 1], "split_type": [{split_type}, 0, 0], "default_left": [0, 0, 0]}}"#
        )
    }

    #[test]
    fn a_model_by_hand() {
        let json = model(&tree("[1, -1, -1]", "[2, -1, -1]", "[1, 0, 0]", 0), "reg:squarederror", "[2.5E-1]");
        let trees = Trees::from_json(json.as_bytes()).unwrap();
        let predicted = trees.predict(&[9.0, 0.4, 9.0, 0.5, 9.0, f32::NAN]);
        assert_eq!(predicted, [-0.75, 1.25, 1.25]);
    }

    #[test]
    fn models_that_are_none_are_errors() {
        let leaf = "[-1, -1, -1]";
        let good = tree("[1, -1, -1]", "[2, -1, -1]", "[1, 0, 0]", 0);
        let squared = "reg:squarederror";
        for (json, reason) in [
            (String::new(), "not an XGBoost model"),
            ("{\"learner\": 1}".to_owned(), "not an XGBoost model"),
            (model(&good, "binary:logistic", "0"), "binary:logistic"),
            (model(&good, squared, "[1,2]"), "base score"),
            (model(&good, squared, "nan"), "base score"),
            (model(&tree("[1, -1, -1]", "[3, -1, -1]", "[1, 0, 0]", 0), squared, "0"), "a child node does not exist"),
            (model(&tree("[1, -1, -1]", "[-1, -1, -1]", "[1, 0, 0]", 0), squared, "0"), "a child node does not exist"),
            (model(&tree("[1, 0, -1]", "[2, 0, -1]", "[1, 0, 0]", 0), squared, "0"), "cycle"),
            (model(&tree("[1, -1, -1]", "[2, -1, -1]", "[2, 0, 0]", 0), squared, "0"), "column"),
            (model(&tree("[1, -1, -1]", "[2, -1, -1]", "[1, 0]", 0), squared, "0"), "length"),
            (model(&tree("[1, -1, -1]", "[2, -1, -1]", "[1, 0, 0]", 1), squared, "0"), "categorical"),
            (model(&tree("[]", leaf, "[]", 0), squared, "0"), "no nodes"),
        ] {
            let error = Trees::from_json(json.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(reason), "{error:?} should say {reason:?}");
        }
    }
}
