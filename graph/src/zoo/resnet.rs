//! Residual networks, version 1.5: in a bottleneck with stride 2, the 3x3 convolution has the
//! stride.

use autotune_workloads::PoolKind;

use crate::builder::{Builder, ConvLayer, Value};
use crate::operators::Sliding;

/// Gain of the last convolution of a block; small, so that sums hardly grow from block to block.
const BRANCH_GAIN: f32 = 0.25;

/// Adds a ResNet with blocks of two 3x3 convolutions; `blocks` gives their number in each of four
/// stages.
pub(super) fn basic(net: &Builder, blocks: [usize; 4]) {
    resnet(net, blocks, 1, |x, name, width, stride| {
        let x = norm_conv(x, name, 1, ConvLayer::new(width, Sliding::new(3).stride(stride).pad(1))).relu();
        norm_conv(x, name, 2, ConvLayer::new(width, Sliding::new(3).pad(1)).gain(BRANCH_GAIN))
    });
}

/// Adds a ResNet with bottleneck blocks: a 3x3 convolution between two 1x1 convolutions, the last
/// of which quadruples the channels.
pub(super) fn bottleneck(net: &Builder, blocks: [usize; 4]) {
    resnet(net, blocks, 4, |x, name, width, stride| {
        let x = norm_conv(x, name, 1, ConvLayer::new(width, Sliding::new(1))).relu();
        let x = norm_conv(x, name, 2, ConvLayer::new(width, Sliding::new(3).stride(stride).pad(1))).relu();
        norm_conv(x, name, 3, ConvLayer::new(4 * width, Sliding::new(1)).gain(BRANCH_GAIN))
    });
}

/// Adds a ResNet. `branch` adds the residual branch of a block, given its input, name, width and
/// stride.
fn resnet(
    net: &Builder,
    blocks: [usize; 4],
    expansion: usize,
    branch: impl for<'b> Fn(Value<'b>, &str, usize, usize) -> Value<'b>,
) {
    let image = net.input("input", &[1, 3, 224, 224]);
    let stem = image.conv("conv1", ConvLayer::new(64, Sliding::new(7).stride(2).pad(3))).batch_norm("bn1").relu();
    let mut x = stem.pool(PoolKind::Max, Sliding::new(3).stride(2).pad(1));

    for (stage, count) in blocks.into_iter().enumerate() {
        let width = 64 << stage;
        for block in 0..count {
            let name = format!("layer{}.{block}", stage + 1);
            let stride = if stage > 0 && block == 0 { 2 } else { 1 };
            let channels = expansion * width;

            let shortcut = match x.shape().get(1) == Some(&channels) {
                true => x,
                false => {
                    let conv = ConvLayer::new(channels, Sliding::new(1).stride(stride)).gain(1.0);
                    x.conv(&format!("{name}.downsample"), conv).batch_norm(&format!("{name}.downsample.bn"))
                }
            };
            x = (branch(x, &name, width, stride) + shortcut).relu();
        }
    }
    net.output("logits", x.global_average_pool().linear("fc", 1000));
}

/// Adds a numbered convolution of a block and its batch normalisation.
fn norm_conv<'b>(x: Value<'b>, block: &str, number: usize, conv: ConvLayer) -> Value<'b> {
    x.conv(&format!("{block}.conv{number}"), conv).batch_norm(&format!("{block}.bn{number}"))
}
