//! Rules that bring operations into epilogues, and images composed of blocks.

use autotune_network::cut::{Cut, StepWork};
use autotune_network::operators::{Binary, Conv, ConvTranspose, MatMul, Reshape, Resize, Sliding, Transpose};
use autotune_network::{Graph, NodeId, rewrite};
use autotune_workloads::{Coordinates, Rounding, Sampling, Workload};

use crate::common::graphs::{Net, assert_same, ops};

fn rewritten(net: &Net, seed: u64) -> Graph {
    let rewritten = rewrite(&net.graph).unwrap();
    assert_same(&net.graph, &rewritten, seed);
    assert_eq!(ops(&rewrite(&rewritten).unwrap()), ops(&rewritten), "something is left to do");
    rewritten
}

/// Returns the workloads of a graph's steps.
fn steps(graph: &Graph) -> Vec<String> {
    let text = |work: &StepWork| match work {
        StepWork::Kernel(workload) => workload.to_string(),
        other => format!("{other:?}"),
    };
    Cut::of(graph).steps.iter().map(|step| text(&step.work)).collect()
}

/// Adds a convolution from `c` to `o` channels that keeps the size of the images.
fn conv(net: &mut Net, x: NodeId, [c, o, kernel]: [usize; 3]) -> NodeId {
    let weights = net.random(&[o, c, kernel, kernel]);
    let window = vec![Sliding::new(kernel).pad(kernel / 2); 2];
    net.add(Conv { window, groups: 1 }, &[x, weights])
}

#[test]
fn a_scalar_after_an_activation_applies_to_each_channel() {
    for (channels, residual) in [(6, false), (6, true), (1, false)] {
        let mut net = Net::new(1);
        let (x, other) = (net.input(&[2, 3, 5, 5]), net.input(&[2, channels, 5, 5]));
        let mut sums = conv(&mut net, x, [3, channels, 3]);
        if residual {
            sums = net.binary(Binary::Add, sums, other);
        }
        let act = net.act("hard_swish", &[], sums);
        let scaled = net.with(Binary::Mul, act, 0.5);
        let shifted = net.with(Binary::Add, scaled, -0.25);
        // Two readers, so the scale is folded into the weights of neither.
        let (a, b) = (conv(&mut net, shifted, [channels, 4, 3]), conv(&mut net, shifted, [channels, 2, 1]));
        net.output(a);
        net.output(b);
        let steps = steps(&rewritten(&net, 1));
        assert_eq!(steps.len(), 3, "{steps:?}");
        assert!(steps[0].ends_with("act=hard_swish,post_scale,post_bias"), "{steps:?}");
    }
}

/// Steps have text forms that can be read, which tuning needs.
#[test]
fn rounding_after_floating_point_sums_is_a_step() {
    for bounds in [[0.0, 255.0], [-8_388_608.0, 8_388_608.0]] {
        let mut net = Net::new(4);
        let x = net.input(&[1, 3, 5, 5]);
        let sums = conv(&mut net, x, [3, 4, 3]);
        let rounded = net.act("round", &bounds, sums);
        net.output(rounded);
        let steps = steps(&rewrite(&net.graph).unwrap());
        assert_eq!(steps.len(), 2, "{steps:?}");
        assert!(steps.iter().all(|step| step.parse::<Workload>().is_ok()), "{steps:?}");
    }
}

#[test]
fn a_scalar_after_a_matrix_product() {
    let mut net = Net::new(2);
    let x = net.input(&[5, 3]);
    let weights = net.random(&[3, 4]);
    let product = net.add(MatMul, &[x, weights]);
    let act = net.act("sigmoid", &[], product);
    let scaled = net.with(Binary::Mul, act, 2.0);
    net.output(scaled);
    assert_eq!(steps(&rewritten(&net, 2)), ["matmul:m=5,n=4,k=3,act=sigmoid,post_scale"]);

    // A tensor that is not a product stays as it is.
    let mut net = Net::new(2);
    let x = net.input(&[5, 3]);
    let act = net.act("sigmoid", &[], x);
    let scaled = net.with(Binary::Mul, act, 2.0);
    net.output(act);
    net.output(scaled);
    assert_eq!(steps(&rewritten(&net, 2))[1], "pointwise:m=5,n=3,op=mul,rhs=scalar");
}

/// A shift after an activation costs nothing; as a tensor of the image's size it would.
#[test]
fn a_shift_after_an_activation_stays_before_padding() {
    let mut net = Net::new(3);
    let x = net.input(&[1, 3, 7, 7]);
    let act = conv(&mut net, x, [3, 6, 1]);
    let act = net.act("relu", &[], act);
    let scaled = net.with(Binary::Mul, act, 0.5);
    let shifted = net.with(Binary::Add, scaled, 1.5);
    let sums = conv(&mut net, shifted, [6, 4, 3]);
    net.output(sums);
    let steps = steps(&rewritten(&net, 3));
    assert_eq!(steps.len(), 2, "{steps:?}");
    assert!(steps[0].ends_with("act=relu,post_scale,post_bias"), "{steps:?}");
    assert!(steps[1].ends_with("k=3,s=1,p=1"), "{steps:?}");
}

/// Constants before the activation, still to be folded, change nothing.
#[test]
fn a_shift_after_what_becomes_a_convolution_stays_before_padding() {
    for act in [None, Some("hard_swish")] {
        let mut net = Net::new(5);
        let x = net.input(&[1, 3, 7, 7]);
        let mut x = conv(&mut net, x, [3, 6, 1]);
        let bias = net.random(&[1, 6, 1, 1]);
        x = net.binary(Binary::Add, x, bias);
        x = net.with(Binary::Mul, x, 0.8);
        x = net.with(Binary::Add, x, 0.2);
        if let Some(act) = act {
            x = net.act(act, &[], x);
            x = net.with(Binary::Mul, x, 0.5);
            x = net.with(Binary::Add, x, 1e-4);
        }
        let sums = conv(&mut net, x, [6, 4, 3]);
        net.output(sums);
        let steps = steps(&rewritten(&net, 5));
        assert_eq!(steps.len(), 2, "{steps:?}");
        assert!(steps[1].ends_with("k=3,s=1,p=1"), "{steps:?}");
    }
}

#[test]
fn activations_go_before_what_only_moves() {
    let mut net = Net::new(4);
    let (x, residual) = (net.input(&[2, 3, 4, 4]), net.input(&[2, 6, 4, 4]));
    let sums = conv(&mut net, x, [3, 6, 3]);
    let sums = net.binary(Binary::Add, residual, sums);
    let rows = net.add(Reshape(vec![2, 6, 16]), &[sums]);
    let last = net.add(Transpose(vec![0, 2, 1]), &[rows]);
    let act = net.act("silu", &[], last);
    net.output(act);
    assert_eq!(ops(&rewritten(&net, 4)), ["Conv", "Add", "Map", "Reshape", "Transpose"]);

    // Not if another node reads the product, and not for other tensors.
    net.output(rows);
    assert_eq!(ops(&rewritten(&net, 4)), ["Conv", "Add", "Reshape", "Transpose", "Map"]);
    let mut net = Net::new(4);
    let x = net.input(&[2, 3]);
    let last = net.add(Transpose(vec![1, 0]), &[x]);
    let act = net.act("silu", &[], last);
    net.output(act);
    assert_eq!(ops(&rewritten(&net, 4)), ["Transpose", "Map"]);
}

/// Adds a transposed convolution from 4 to 3 channels, with batch normalisation and activation.
fn transposed(net: &mut Net, x: NodeId, window: &[Sliding], groups: usize, bias: bool) -> NodeId {
    let kernel: Vec<usize> = window.iter().map(|window| window.kernel).collect();
    let weights = net.random(&[&[4, 3][..], &kernel].concat());
    let bias = bias.then(|| net.random(&[3 * groups]));
    let operands: Vec<NodeId> = [x, weights].into_iter().chain(bias).collect();
    let op = ConvTranspose { window: window.to_vec(), output_pad: vec![0; window.len()], groups };
    let sums = net.add(op, &operands);

    let shape = [&[3 * groups][..], &vec![1; window.len()]].concat();
    let (scale, shift) = (net.random(&shape), net.random(&shape));
    let scaled = net.binary(Binary::Mul, sums, scale);
    let normal = net.binary(Binary::Add, scaled, shift);
    net.act("relu", &[], normal)
}

#[test]
fn transposed_convolutions_whose_windows_do_not_overlap() {
    let apart = |kernel: usize| Sliding::new(kernel).stride(kernel);
    let windows: [&[Sliding]; 5] = [
        &[apart(3)],
        &[apart(2), apart(2)],
        &[apart(3), apart(1)],
        &[apart(1), apart(1)],
        &[apart(2), apart(1), apart(3)],
    ];
    for (seed, window) in windows.into_iter().enumerate() {
        for (images, bias) in [(1, true), (3, false)] {
            let mut net = Net::new(seed as u64);
            let x = net.input(&[&[images, 4][..], &[5, 2, 3][..window.len()]].concat());
            let y = transposed(&mut net, x, window, 1, bias);
            net.output(y);
            let rewritten = rewritten(&net, seed as u64);
            assert_eq!(ops(&rewritten)[..2], ["Conv", "Map"], "{window:?}");
            assert!(!ops(&rewritten).contains(&"ConvTranspose"));
        }
    }

    // Overlapping windows, padding and groups prevent the rewriting.
    let others = [(Sliding::new(3).stride(2), 1), (Sliding::new(2).stride(2).pad(1), 1), (apart(2), 2)];
    for (window, groups) in others {
        let mut net = Net::new(9);
        let x = net.input(&[1, 4, 5, 3]);
        let y = transposed(&mut net, x, &[window, window], groups, true);
        net.output(y);
        assert!(ops(&rewritten(&net, 9)).contains(&"ConvTranspose"), "{window:?}");
    }
}

/// In a sequence of two, the second works on the blocks of the first; only the final output is
/// rearranged.
#[test]
fn successive_transposed_convolutions() {
    for images in [1, 2] {
        let mut net = Net::new(5);
        let x = net.input(&[images, 4, 5, 3]);
        let window = [Sliding::new(2).stride(2), Sliding::new(3).stride(3)];
        let y = transposed(&mut net, x, &window, 1, true);
        let weights = net.random(&[3, 1, 3, 1]);
        let window = vec![Sliding::new(3).stride(3), Sliding::new(1)];
        let op = ConvTranspose { window, output_pad: vec![0; 2], groups: 1 };
        let y = net.add(op, &[y, weights]);
        let y = net.act("sigmoid", &[], y);
        net.output(y);
        let steps = steps(&rewritten(&net, 5));
        assert_eq!(steps[0], format!("conv2d:n={images},c=4,h=5,w=3,o=18,k=1,s=1,p=0,bias,act=relu"));
        assert_eq!(steps[1], format!("conv2d:n={},c=3,h=5,w=3,o=3,k=1,s=1,p=0,act=sigmoid", 6 * images));
        assert!(steps[2..].iter().all(|step| step.starts_with("transpose:")), "{steps:?}");
    }
}

/// If it has no more channels than the blocks, a pointwise convolution moves before them.
#[test]
fn convolutions_of_blocks() {
    for (outputs, wanted) in [(5, &["Conv", "Map", "Transpose"][..]), (6, &["Transpose", "Conv", "Map"])] {
        let mut net = Net::new(6);
        let x = net.input(&[2, 4 * 5, 3, 4]);
        let split = net.add(Reshape(vec![2, 2, 2, 5, 3, 4]), &[x]);
        let ordered = net.add(Transpose(vec![0, 3, 4, 1, 5, 2]), &[split]);
        let whole = net.add(Reshape(vec![2, 5, 6, 8]), &[ordered]);
        let sums = conv(&mut net, whole, [5, outputs, 1]);
        let act = net.act("relu", &[], sums);
        net.output(act);
        let rewritten = rewritten(&net, 6);
        let found: Vec<_> = ops(&rewritten).into_iter().filter(|op| *op != "Reshape").collect();
        assert_eq!(found, wanted);
    }
}

#[test]
fn additions_to_resized_images_are_fused() {
    let mut net = Net::new(7);
    let (x, other) = (net.input(&[1, 16, 4, 5]), net.input(&[1, 16, 8, 10]));
    let sampling = Sampling::Nearest(Rounding::Floor);
    let larger = net.add(Resize { size: [8, 10], coordinates: Coordinates::Asymmetric, sampling }, &[x]);
    let sum = net.binary(Binary::Add, other, larger);
    net.output(sum);
    assert_eq!(steps(&rewritten(&net, 7)), ["resize:c=16,h=4,w=5,s=2,mode=nearest,add"]);
}
