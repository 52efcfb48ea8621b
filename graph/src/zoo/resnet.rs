//! Residual networks, version 1.5: where a bottleneck halves the image, its 3x3 convolution does.

use autotune_workloads::PoolKind;

use crate::builder::{Builder, Conv, Value};
use crate::operators::Sliding;

/// Gain of the last convolution of a block, so that sums do not grow by much from block to block.
const BRANCH_GAIN: f32 = 0.25;

/// ResNet of blocks of two 3x3 convolutions, their number given for each of four stages.
pub(super) fn basic(net: &Builder, blocks: [usize; 4]) {
    resnet(net, blocks, 1, |x, name, width, stride| {
        let x = norm_conv(x, name, 1, Conv::new(width, Sliding::new(3).stride(stride).pad(1))).relu();
        norm_conv(x, name, 2, Conv::new(width, Sliding::new(3).pad(1)).gain(BRANCH_GAIN))
    });
}

/// ResNet of blocks of a 3x3 convolution between two 1x1, of which the last makes four times as
/// many channels.
pub(super) fn bottleneck(net: &Builder, blocks: [usize; 4]) {
    resnet(net, blocks, 4, |x, name, width, stride| {
        let x = norm_conv(x, name, 1, Conv::new(width, Sliding::new(1))).relu();
        let x = norm_conv(x, name, 2, Conv::new(width, Sliding::new(3).stride(stride).pad(1))).relu();
        norm_conv(x, name, 3, Conv::new(4 * width, Sliding::new(1)).gain(BRANCH_GAIN))
    });
}

/// What both have in common; `branch` makes of a tensor what is added to it, of a width and at a
/// stride.
fn resnet(
    net: &Builder,
    blocks: [usize; 4],
    expansion: usize,
    branch: impl for<'b> Fn(Value<'b>, &str, usize, usize) -> Value<'b>,
) {
    let image = net.input("input", &[1, 3, 224, 224]);
    let stem = image.conv("conv1", Conv::new(64, Sliding::new(7).stride(2).pad(3))).batch_norm("bn1").relu();
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
                    let conv = Conv::new(channels, Sliding::new(1).stride(stride)).gain(1.0);
                    x.conv(&format!("{name}.downsample"), conv).batch_norm(&format!("{name}.downsample.bn"))
                }
            };
            x = (branch(x, &name, width, stride) + shortcut).relu();
        }
    }
    net.output("logits", x.global_average_pool().linear("fc", 1000));
}

/// A convolution of a block, by its number, and the batch normalisation behind it.
fn norm_conv<'b>(x: Value<'b>, block: &str, number: usize, conv: Conv) -> Value<'b> {
    x.conv(&format!("{block}.conv{number}"), conv).batch_norm(&format!("{block}.bn{number}"))
}
