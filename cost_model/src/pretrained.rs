//! Models that were trained before, on the recorded test bed, and ship with this crate.

use std::sync::{Arc, LazyLock};

use autotune_ir::{Isa, Target};
use autotune_schedules::config::fnv1a;
use ndarray::ArrayView2;

use crate::features;
use crate::trees::Trees;
use crate::xgb::XgbModel;

const MAGIC: &[u8; 16] = b"autotune-trees-1";

/// Ranks schedules of any workload before anything was measured of it: trees alone, without what trains them.
///
/// Predictions are differences of ranks, higher is better, as those of a model that is fitted with
/// [`Objective::RankPairwise`](crate::Objective::RankPairwise).
#[derive(Clone, Debug)]
pub struct Pretrained {
    trees: Trees,
    hash: u64,
}

/// What ships: a model for each family of instruction sets, made by the example `pretrain`.
static AVX512: LazyLock<Option<Arc<Pretrained>>> =
    LazyLock::new(|| shipped(include_bytes!("../pretrained/avx512.trees")));

fn shipped(bytes: &[u8]) -> Option<Arc<Pretrained>> {
    Pretrained::from_bytes(bytes).map(Arc::new)
}

impl Pretrained {
    /// The model that ships for a target, if one does.
    pub fn for_target(target: &Target) -> Option<Arc<Self>> {
        match target.cpu()?.isa {
            Isa::Avx512 => AVX512.clone(),
            Isa::Avx2 | Isa::Neon | Isa::Generic => None,
        }
    }

    /// What a fitted model has learnt beyond what it takes for granted; `None` if it has learnt nothing, or too much for the written form.
    pub fn of(model: &XgbModel) -> Option<Self> {
        Self::from_bytes(&encode(model.trees()?)?)
    }

    /// Reads what [`Pretrained::to_bytes`] wrote; `None` if it is something else, or of other features than today's.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let rest = bytes.strip_prefix(MAGIC)?;
        let (version, rest) = rest.split_first_chunk()?;
        let is_today = u32::from_le_bytes(*version) == features::VERSION;
        let trees = Trees::from_bytes(rest).filter(|trees| is_today && trees.columns() == features::FEATURE_COUNT)?;
        Some(Self { trees, hash: fnv1a(bytes) })
    }

    /// The written form: eight bytes for each node of a tree.
    pub fn to_bytes(&self) -> Vec<u8> {
        encode(&self.trees).unwrap_or_default()
    }

    /// The score of each row; `rows` has one column per feature.
    pub fn predict(&self, rows: ArrayView2<f32>) -> Vec<f32> {
        let values = rows.as_standard_layout();
        self.scores(values.as_slice().unwrap_or_default(), rows.ncols())
    }

    /// The score of each row of row-major values; 0 for rows that are no rows of today's features.
    pub(crate) fn scores(&self, values: &[f32], columns: usize) -> Vec<f32> {
        match columns == self.trees.columns() {
            true => self.trees.predict(values),
            false => vec![0.0; values.len() / columns.max(1)],
        }
    }

    /// Tells models apart.
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }
}

fn encode(trees: &Trees) -> Option<Vec<u8>> {
    let trees = trees.to_bytes()?;
    Some([&MAGIC[..], &features::VERSION.to_le_bytes(), &trees].concat())
}
