//! Epilogue: operations that are fused after an operator.

use super::activation::Activation;

/// Operations on each output element at its final store, in this order:
/// `act(scale * x + bias + residual) * post_scale + post_bias + residual_scale * post_residual`,
/// then the element of a table at that index.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct Epilogue {
    /// Multiply by one value per output channel (conv2d) or column (matmul).
    pub scale: bool,
    /// Add one value per output channel (conv2d) or column (matmul).
    pub bias: bool,
    /// Add a tensor of the output's shape.
    pub residual: bool,
    /// Function that is applied to that.
    pub activation: Activation,
    /// Multiply the result by one value per output channel.
    pub post_scale: bool,
    /// Add one value per output channel to that.
    pub post_bias: bool,
    /// Add a tensor of the output's shape to that, times one value per output channel.
    pub post_residual: bool,
    /// Round to u8 and replace by the element of a table at this index. Results are then of 8 bits.
    pub table: bool,
}

impl Epilogue {
    /// True if some part multiplies by one value per output channel, slopes excepted.
    pub(super) fn has_scales(&self) -> bool {
        self.scale || self.post_scale || self.post_residual
    }

    /// True if some part adds a tensor of the output's shape.
    pub fn has_residuals(&self) -> bool {
        self.residual || self.post_residual
    }

    /// True if some part has one value per output channel.
    pub fn is_by_channel(&self) -> bool {
        self.has_scales() || self.bias || self.activation.has_slopes() || self.post_bias
    }
}
