//! Models trained on the recorded test bed, which ship with this crate.

use std::sync::{Arc, LazyLock};

use autotune_ir::Target;
use autotune_schedules::config::fnv1a;
use autotune_schedules::portfolio::ShippedSet;
use ndarray::ArrayView2;

use crate::features;
use crate::trees::Trees;

const MAGIC: &[u8; 16] = b"autotune-trees-2";

/// Model that ranks schedules of any workload before anything was measured of it. It only predicts.
///
/// Predictions are differences of ranks, higher is better, as with `Objective::RankPairwise`.
#[derive(Clone, Debug)]
pub struct Pretrained {
    trees: Trees,
    expected_loss: f32,
    hash: u64,
}

/// Models that ship, in the order of [`ShippedSet::ALL`]. The example `pretrain` makes them.
static SHIPPED: [LazyLock<Option<Arc<Pretrained>>>; ShippedSet::ALL.len()] = [
    LazyLock::new(|| read(include_bytes!("../pretrained/avx2.trees"))),
    LazyLock::new(|| read(include_bytes!("../pretrained/avx512.trees"))),
    LazyLock::new(|| read(include_bytes!("../pretrained/avx512_narrow.trees"))),
];

fn read(bytes: &[u8]) -> Option<Arc<Pretrained>> {
    Pretrained::from_bytes(bytes).map(Arc::new)
}

impl Pretrained {
    /// Returns the model of a shipped set; `None` if the current code cannot read it.
    pub fn shipped(set: ShippedSet) -> Option<Arc<Self>> {
        SHIPPED[set as usize].clone()
    }

    /// Returns the model for a target's f32 workloads; `None` if none ships for its instruction
    /// set.
    pub fn for_target(target: &Target) -> Option<Arc<Self>> {
        Self::shipped(ShippedSet::of_target(target)?)
    }

    /// Returns the expected loss of the model's top pick: its run time over the best recorded one,
    /// as the geometric mean over workloads that were not used for training.
    pub fn expected_loss(&self) -> f32 {
        self.expected_loss
    }

    /// Reads bytes of [`Pretrained::to_bytes`]; `None` for other bytes and for another version of
    /// the features.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let rest = bytes.strip_prefix(MAGIC)?;
        let (version, rest) = rest.split_first_chunk()?;
        let (loss, rest) = rest.split_first_chunk()?;
        let (is_today, expected_loss) = (u32::from_le_bytes(*version) == features::VERSION, f32::from_le_bytes(*loss));
        let trees = Trees::from_bytes(rest).filter(|trees| is_today && trees.columns() == features::FEATURE_COUNT)?;
        Some(Self { trees, expected_loss, hash: fnv1a(bytes) })
    }

    /// Returns the model as bytes: six per node of a tree.
    pub fn to_bytes(&self) -> Vec<u8> {
        encode(&self.trees, self.expected_loss).unwrap_or_default()
    }

    /// Returns the score of each row; `rows` has one column per feature.
    pub fn predict(&self, rows: ArrayView2<f32>) -> Vec<f32> {
        let values = rows.as_standard_layout();
        self.scores(values.as_slice().unwrap_or_default(), rows.ncols())
    }

    /// Returns the score of each row of row-major values; 0 for rows with another number of
    /// columns.
    pub(crate) fn scores(&self, values: &[f32], columns: usize) -> Vec<f32> {
        match columns == self.trees.columns() {
            true => self.trees.predict(values),
            false => vec![0.0; values.len() / columns.max(1)],
        }
    }

    /// Returns a hash of the model's bytes, which identifies the model.
    pub fn hash(&self) -> u64 {
        self.hash
    }
}

pub(crate) fn encode(trees: &Trees, expected_loss: f32) -> Option<Vec<u8>> {
    let trees = trees.to_bytes()?;
    Some([&MAGIC[..], &features::VERSION.to_le_bytes(), &expected_loss.to_le_bytes(), &trees].concat())
}

#[cfg(test)]
#[cfg(feature = "train")]
mod tests {
    use autotune_ir::{CpuTarget, Isa};
    use ndarray::Array2;

    use super::*;
    use crate::{CostModel, XgbModel, XgbParams};

    fn target(isa: Isa) -> Target {
        Target::Cpu(CpuTarget { isa, ..CpuTarget::generic_avx2(2) })
    }

    #[test]
    fn shipped_models_have_the_current_features() {
        for set in ShippedSet::ALL {
            let model = Pretrained::shipped(set);
            let model = model.unwrap_or_else(|| panic!("run the example `pretrain` for {set:?} again"));
            let rows = Array2::from_shape_fn((3, features::FEATURE_COUNT), |(row, column)| ((row * column) % 7) as f32);
            let scores = model.predict(rows.view());
            assert!(scores.iter().all(|score| score.is_finite()) && scores[0] != scores[1], "{scores:?}");
            assert_eq!(Pretrained::from_bytes(&model.to_bytes()).unwrap().predict(rows.view()), scores);
        }
        assert!(Pretrained::for_target(&target(Isa::Generic)).is_none());
    }

    #[test]
    fn a_continued_model_is_only_read_with_its_base() {
        let base = Pretrained::for_target(&target(Isa::Avx512)).unwrap();
        let model = XgbModel::continuing(base.clone(), XgbParams::default());
        let rows = Array2::from_shape_fn((2, features::FEATURE_COUNT), |(row, column)| ((row + column) % 5) as f32);
        assert_eq!(model.predict(rows.view()), base.predict(rows.view()));

        let saved = model.save().unwrap();
        assert!(XgbModel::from_bytes(&saved).unwrap_err().to_string().contains("another pretrained model"));
        let mut beside = XgbModel::continuing(base, XgbParams::default());
        beside.load(&saved).unwrap();
        assert_eq!(beside.predict(rows.view()), model.predict(rows.view()));
    }
}
