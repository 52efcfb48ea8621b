//! Sequential networks of convolutions and matrix products.

use autotune_workloads::{Activation, PoolKind};

use crate::builder::{Builder, ConvLayer, Fill};
use crate::operators::Sliding;

/// Number of convolutions and channels of each stage; a pooling follows each stage.
const VGG16: [(usize, usize); 5] = [(2, 64), (2, 128), (3, 256), (3, 512), (3, 512)];

pub(super) fn vgg16(net: &Builder) {
    let mut x = net.input("input", &[1, 3, 224, 224]);
    for (stage, (count, channels)) in VGG16.into_iter().enumerate() {
        for number in 1..=count {
            let conv = ConvLayer::new(channels, Sliding::new(3).pad(1)).bias();
            x = x.conv(&format!("conv{}_{number}", stage + 1), conv).relu();
        }
        x = x.pool(PoolKind::Max, Sliding::new(2).stride(2));
    }
    let x = x.flatten().linear("fc6", 4096).relu().linear("fc7", 4096).relu();
    net.output("logits", x.linear("fc8", 1000));
}

/// Q-network on four grey frames; the output is the value of each action.
pub(super) fn dqn(net: &Builder) {
    let frames = net.input("frames", &[1, 4, 84, 84]);
    let x = frames.conv("conv1", ConvLayer::new(32, Sliding::new(8).stride(4)).bias()).relu();
    let x = x.conv("conv2", ConvLayer::new(64, Sliding::new(4).stride(2)).bias()).relu();
    let x = x.conv("conv3", ConvLayer::new(64, Sliding::new(3)).bias()).relu();
    net.output("values", x.flatten().linear("fc1", 512).relu().linear("fc2", 18));
}

/// Generator of an RGB image in -1..1 from a code: figure 1 of the paper, with the normalisation of
/// TVM's `relay.testing.dcgan`.
pub(super) fn dcgan(net: &Builder) {
    let code = net.input("code", &[1, 100]);
    let project = net.weight("project.weight", &[100, 1024 * 4 * 4], Fill::of_sums(100, 2.0));
    let mut x = code.matmul(project).relu().reshape(&[1, 1024, 4, 4]);

    let window = Sliding::new(4).stride(2).pad(1);
    for (number, channels) in [(2, 512), (3, 256), (4, 128)] {
        let conv = ConvLayer::new(channels, window);
        x = x.conv_transpose(&format!("conv{number}"), conv).batch_norm(&format!("bn{number}")).relu();
    }
    let image = x.conv_transpose("conv5", ConvLayer::new(3, window).gain(1.0));
    net.output("image", image.activation(Activation::Tanh));
}
