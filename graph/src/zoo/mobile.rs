//! Small networks for images.

use autotune_workloads::PoolKind;

use crate::builder::{Builder, ConvLayer, Value};
use crate::operators::{Pool, Sliding};

/// MobileNetV2: expansion factor of a block, its channels, its repetitions, and the stride of the
/// first.
const INVERTED_RESIDUALS: [[usize; 4]; 7] =
    [[1, 16, 1, 1], [6, 24, 2, 2], [6, 32, 3, 2], [6, 64, 4, 2], [6, 96, 3, 1], [6, 160, 3, 2], [6, 320, 1, 1]];

/// Adds MobileNetV2, as in table 2 of the paper.
pub(super) fn mobilenet_v2(net: &Builder) {
    let image = net.input("input", &[1, 3, 224, 224]);
    let mut x = norm_relu6(image, "features.0", ConvLayer::new(32, Sliding::new(3).stride(2).pad(1)));

    let mut number = 1;
    for [widening, channels, count, first_stride] in INVERTED_RESIDUALS {
        for repeat in 0..count {
            let stride = if repeat == 0 { first_stride } else { 1 };
            x = inverted_residual(x, &format!("features.{number}"), widening, channels, stride);
            number += 1;
        }
    }

    let x = norm_relu6(x, &format!("features.{number}"), ConvLayer::new(1280, Sliding::new(1)));
    net.output("logits", x.global_average_pool().linear("classifier", 1000));
}

/// Adds a block: a 1x1 convolution to more channels, a depthwise convolution, and a 1x1 convolution
/// back without an activation.
fn inverted_residual<'b>(x: Value<'b>, name: &str, widening: usize, channels: usize, stride: usize) -> Value<'b> {
    let given = x.shape().get(1).copied().unwrap_or(1);
    let (wide, is_residual) = (given * widening, stride == 1 && given == channels);

    let inside = match widening {
        1 => x,
        _ => norm_relu6(x, &format!("{name}.expand"), ConvLayer::new(wide, Sliding::new(1))),
    };
    let depthwise = ConvLayer::new(wide, Sliding::new(3).stride(stride).pad(1)).groups(wide);
    let inside = norm_relu6(inside, &format!("{name}.depthwise"), depthwise);

    let project = ConvLayer::new(channels, Sliding::new(1)).gain(if is_residual { 0.25 } else { 1.0 });
    let y = inside.conv(&format!("{name}.project"), project).batch_norm(&format!("{name}.project.bn"));
    if is_residual { y + x } else { y }
}

/// Adds a convolution, a batch normalisation and a ReLU6.
fn norm_relu6<'b>(x: Value<'b>, name: &str, conv: ConvLayer) -> Value<'b> {
    x.conv(name, conv).batch_norm(&format!("{name}.bn")).clip(0.0, 6.0)
}

/// SqueezeNet 1.1: channels of a fire module, squeezed and (twice) expanded. A pooling precedes the
/// first, third and fifth.
const FIRES: [[usize; 2]; 8] = [[16, 64], [16, 64], [32, 128], [32, 128], [48, 192], [48, 192], [64, 256], [64, 256]];

/// Adds SqueezeNet 1.1 of the authors' repository, with 2.4 times fewer operations than the paper's
/// version.
pub(super) fn squeezenet(net: &Builder) {
    let image = net.input("input", &[1, 3, 224, 224]);
    let mut x = biased_relu(image, "conv1", ConvLayer::new(64, Sliding::new(3).stride(2)));

    for (number, [squeezed, expanded]) in FIRES.into_iter().enumerate() {
        if let 0 | 2 | 4 = number {
            let window = vec![Sliding::new(3).stride(2); 2];
            x = x.op(Pool { window, ceil: true, kind: PoolKind::Max }, &[]);
        }
        let name = format!("fire{}", number + 2);
        let squeeze = biased_relu(x, &format!("{name}.squeeze"), ConvLayer::new(squeezed, Sliding::new(1)));
        let one = biased_relu(squeeze, &format!("{name}.expand1x1"), ConvLayer::new(expanded, Sliding::new(1)));
        let three =
            biased_relu(squeeze, &format!("{name}.expand3x3"), ConvLayer::new(expanded, Sliding::new(3).pad(1)));
        x = one.concat(&[three], 1);
    }

    let scores = biased_relu(x, "conv10", ConvLayer::new(1000, Sliding::new(1)));
    net.output("logits", scores.global_average_pool());
}

fn biased_relu<'b>(x: Value<'b>, name: &str, conv: ConvLayer) -> Value<'b> {
    x.conv(name, conv.bias()).relu()
}
