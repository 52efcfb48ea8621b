//! Transformers with twelve layers of width 768, twelve heads, and a perceptron four times as wide.

use autotune_ir::DType;
use autotune_workloads::Activation;

use crate::builder::{Builder, ConvLayer, Fill, Value};
use crate::operators::Sliding;

const LAYERS: usize = 12;
const HEADS: usize = 12;
const WIDTH: usize = 768;

/// Adds BERT (uncased) with post-normalisation. All tokens belong to the first segment.
pub(super) fn bert_base(net: &Builder) {
    const TOKENS: usize = 128;
    let eps = 1e-12;
    let table = |part, rows| net.weight(&format!("embeddings.{part}"), &[rows, WIDTH], Fill::deviation(0.5));

    let tokens = net.input_of("input_ids", DType::I64, &[1, TOKENS]);
    let (words, positions) = (table("words", 30522), table("positions", 512));
    let segment = table("segments", 2).slice(0, 0..1);
    let mut x = (words.gather(tokens) + segment + positions.slice(0, 0..TOKENS)).layer_norm("embeddings.norm", eps);

    for layer in 0..LAYERS {
        let name = |part| format!("layer.{layer}.{part}");
        let mixed = x.self_attention(&name("attention"), HEADS, None) + x;
        let y = mixed.layer_norm(&name("attention.norm"), eps);
        let wide = y.linear(&name("mlp.1"), 4 * WIDTH).activation(Activation::Gelu);
        x = (wide.linear(&name("mlp.2"), WIDTH) + y).layer_norm(&name("mlp.norm"), eps);
    }

    net.output("last_hidden_state", x);
    let first = x.slice(1, 0..1).reshape(&[1, WIDTH]);
    net.output("pooler_output", first.linear("pooler", WIDTH).activation(Activation::Tanh));
}

/// Adds a vision transformer with patches of 16x16 and pre-normalisation.
pub(super) fn vit_b16(net: &Builder) {
    const PATCHES: usize = 14 * 14;
    let eps = 1e-6;
    let image = net.input("input", &[1, 3, 224, 224]);
    let patches = image.conv("patches", ConvLayer::new(WIDTH, Sliding::new(16).stride(16)).bias().gain(1.0));
    let patches = patches.reshape(&[1, WIDTH, PATCHES]).transpose(&[0, 2, 1]);

    let class = net.weight("class", &[1, 1, WIDTH], Fill::deviation(0.5));
    let positions = net.weight("positions", &[1, PATCHES + 1, WIDTH], Fill::deviation(0.5));
    let mut x = class.concat(&[patches], 1) + positions;

    for layer in 0..LAYERS {
        let name = |part| format!("layer.{layer}.{part}");
        x = x + x.layer_norm(&name("norm1"), eps).self_attention(&name("attention"), HEADS, None);
        let wide = x.layer_norm(&name("norm2"), eps).linear(&name("mlp.1"), 4 * WIDTH).activation(Activation::Gelu);
        x = x + wide.linear(&name("mlp.2"), WIDTH);
    }

    let first: Value<'_> = x.layer_norm("norm", eps).slice(1, 0..1).reshape(&[1, WIDTH]);
    net.output("logits", first.linear("head", 1000));
}
