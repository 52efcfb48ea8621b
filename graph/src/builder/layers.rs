//! Layers with weights. A weight's name starts with its layer's: `conv1.weight`, `conv1.bias`.

use super::{Fill, Value};
use crate::op::Op;
use crate::operators::{self, Attention, ConvTranspose, LayerNorm, MatMul, Sliding};

/// Standard deviation of untrained biases and shifts.
const BIAS: f32 = 0.05;

/// Window and channels of a convolution layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConvLayer {
    channels: usize,
    window: Sliding,
    groups: usize,
    has_bias: bool,
    gain: f32,
}

impl ConvLayer {
    /// Creates a convolution to this number of channels, with the same window along all spatial
    /// axes.
    pub fn new(channels: usize, window: Sliding) -> Self {
        Self { channels, window, groups: 1, has_bias: false, gain: 2.0 }
    }

    /// Sets the number of channel groups.
    pub fn groups(self, groups: usize) -> Self {
        Self { groups, ..self }
    }

    /// Adds a bias for each channel.
    pub fn bias(self) -> Self {
        Self { has_bias: true, ..self }
    }

    /// Sets the gain of random weights ([`Fill::of_sums`]). The default 2 suits a ReLU after the
    /// layer.
    pub fn gain(self, gain: f32) -> Self {
        Self { gain, ..self }
    }
}

impl<'b> Value<'b> {
    /// Adds a convolution of `[n, c, ..]` with weights `[o, c/groups, ..kernel]`.
    pub fn conv(self, name: &str, conv: ConvLayer) -> Value<'b> {
        let (shape, ConvLayer { window, groups, .. }) = (self.shape(), conv);
        let spatial = shape.len().saturating_sub(2);
        let channels = self.channels() / groups.max(1);
        let weights = [&[conv.channels, channels], &vec![window.kernel; spatial][..]].concat();
        let products = weights[1..].iter().product();

        let op = operators::Conv { window: vec![window; spatial], groups };
        self.weighted(name, op, &weights, products, conv)
    }

    /// Adds a transposed convolution of `[n, c, ..]` with weights `[c, o/groups, ..kernel]`.
    pub fn conv_transpose(self, name: &str, conv: ConvLayer) -> Value<'b> {
        let (shape, ConvLayer { window, groups, .. }) = (self.shape(), conv);
        let spatial = shape.len().saturating_sub(2);
        let (channels, groups_of) = (self.channels(), groups.max(1));
        let weights = [&[channels, conv.channels / groups_of], &vec![window.kernel; spatial][..]].concat();
        // An output sums only the taps that meet an element of the image, not those in the gaps of
        // the stride.
        let taps = window.kernel.div_ceil(window.stride.max(1)).pow(spatial as u32);

        let op = ConvTranspose { window: vec![window; spatial], output_pad: vec![0; spatial], groups };
        self.weighted(name, op, &weights, channels / groups_of * taps, conv)
    }

    /// Adds a batch normalisation of `[n, c, ..]` for inference, `x * scale + shift` with shapes
    /// `[c, 1, ..]`.
    pub fn batch_norm(self, name: &str) -> Value<'b> {
        let spatial = self.shape().len().saturating_sub(2);
        let shape = [&[self.channels()], &vec![1; spatial][..]].concat();
        let scale = self.builder.weight(&format!("{name}.scale"), &shape, Fill { mean: 1.0, deviation: 0.1 });
        let shift = self.builder.weight(&format!("{name}.shift"), &shape, Fill::deviation(BIAS));
        self * scale + shift
    }

    /// Adds a product of the last axis with weights `[features of the input, features]`, plus a
    /// bias.
    pub fn linear(self, name: &str, features: usize) -> Value<'b> {
        let inner = self.shape().last().copied().unwrap_or(1);
        let weight = self.builder.weight(&format!("{name}.weight"), &[inner, features], Fill::of_sums(inner, 1.0));
        let bias = self.builder.weight(&format!("{name}.bias"), &[features], Fill::deviation(BIAS));
        self.named(name, MatMul, &[weight]) + bias
    }

    /// Adds a layer normalisation over the last axis, with a scale and a bias for each of its
    /// elements.
    pub fn layer_norm(self, name: &str, eps: f32) -> Value<'b> {
        let shape = self.shape();
        let axis = shape.len().saturating_sub(1);
        let scale = Fill { mean: 1.0, deviation: 0.1 };
        let scale = self.builder.weight(&format!("{name}.weight"), &shape[axis..], scale);
        let bias = self.builder.weight(&format!("{name}.bias"), &shape[axis..], Fill::deviation(BIAS));
        self.named(name, LayerNorm { axis, eps }, &[scale, bias])
    }

    /// Adds multi-head self-attention on `[b, n, features]`: projections to queries, keys and
    /// values, attention of each head ([`Attention`]), and a projection of the heads together. The
    /// optional mask broadcasts to `[b, heads, n, n]`.
    ///
    /// Attention is a single node: splitting it where no kernel exists is easier than recognising
    /// it again among matrix products.
    pub fn self_attention(self, name: &str, heads: usize, mask: Option<Value<'_>>) -> Value<'b> {
        let [b, n, features] = self.shape()[..] else { return self.op(Attention { scale: 1.0 }, &[]) };
        let of_head = features / heads.max(1);
        let project = |part: &str| {
            let projected = self.linear(&format!("{name}.{part}"), features);
            projected.reshape(&[b, n, heads, of_head]).transpose(&[0, 2, 1, 3])
        };

        let (query, mut others) = (project("query"), vec![project("key"), project("value")]);
        others.extend(mask);
        let scale = 1.0 / (of_head as f32).sqrt();
        let mixed = query.named(name, Attention { scale }, &others);
        mixed.transpose(&[0, 2, 1, 3]).reshape(&[b, n, features]).linear(&format!("{name}.output"), features)
    }

    /// Returns the second extent.
    fn channels(self) -> usize {
        self.shape().get(1).copied().unwrap_or(1)
    }

    fn weighted(self, name: &str, op: impl Into<Op>, shape: &[usize], products: usize, conv: ConvLayer) -> Value<'b> {
        let fill = Fill::of_sums(products, conv.gain);
        let mut operands = vec![self.builder.weight(&format!("{name}.weight"), shape, fill)];
        if conv.has_bias {
            let bias = self.builder.weight(&format!("{name}.bias"), &[conv.channels], Fill::deviation(BIAS));
            operands.push(bias);
        }
        self.named(name, op, &operands)
    }
}
