//! Fitted models in the form in which they ship.

use crate::draft::{self, DraftModel};
use crate::pretrained::{self, Pretrained};
use crate::xgb::XgbModel;

impl Pretrained {
    /// Returns the trees that a model was fitted with, and its [expected
    /// loss](Pretrained::expected_loss). `None` if it has learnt nothing, or too much for the
    /// written form.
    pub fn of(model: &XgbModel, expected_loss: f32) -> Option<Self> {
        Self::from_bytes(&pretrained::encode(model.trees()?, expected_loss)?)
    }
}

impl DraftModel {
    /// Returns the written form of a model that was fitted on rows of such columns, and of its
    /// [expected loss](DraftModel::expected_loss). `None` if it has learnt nothing, or too much for
    /// the form.
    pub fn encode(model: &XgbModel, columns: &[String], expected_loss: f32) -> Option<Vec<u8>> {
        let trees = model.trees()?.to_bytes()?;
        let names = columns.join("\n");
        let length = u32::try_from(names.len()).ok()?;
        Some(
            [&draft::MAGIC[..], &expected_loss.to_le_bytes(), &length.to_le_bytes(), names.as_bytes(), &trees].concat(),
        )
    }
}
