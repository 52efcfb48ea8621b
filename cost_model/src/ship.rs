//! Conversion of fitted models to the form in which they ship.

use crate::pretrained::{self, Pretrained};
use crate::ranking::{self, RankingModel};
use crate::xgb::XgbModel;

impl Pretrained {
    /// Returns the fitted trees of a model with its [expected loss](Pretrained::expected_loss).
    /// `None` if it is not fitted or too large for the binary form.
    pub fn of(model: &XgbModel, expected_loss: f32) -> Option<Self> {
        Self::from_bytes(&pretrained::encode(model.trees()?, expected_loss)?)
    }
}

impl RankingModel {
    /// Returns the bytes of a model that was fitted on rows of these columns, with its [expected
    /// loss](RankingModel::expected_loss). `None` if it is not fitted or too large for the binary
    /// form.
    pub fn encode(model: &XgbModel, columns: &[String], expected_loss: f32) -> Option<Vec<u8>> {
        let trees = model.trees()?.to_bytes()?;
        let names = columns.join("\n");
        let length = u32::try_from(names.len()).ok()?;
        Some(
            [&ranking::MAGIC[..], &expected_loss.to_le_bytes(), &length.to_le_bytes(), names.as_bytes(), &trees]
                .concat(),
        )
    }
}
