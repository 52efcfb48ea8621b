//! Random convolutions with one or three spatial axes, and transposed ones.

use autotune_workloads::{Conv1d, Conv3d, ConvTranspose2d, Window, Workload};
use rand::{Rng, RngExt};

use super::epilogues::random_epilogue;

/// Returns a workload with at most about a million multiply-adds.
pub fn random_convolution<R: Rng>(rng: &mut R) -> Workload {
    loop {
        let workload = match rng.random_range(0..4) {
            0 => Workload::new(random_line(rng)),
            1 => Workload::new(random_volume(rng)),
            _ => Workload::new(random_transposed(rng)),
        };
        let epilogue = random_epilogue(rng);
        match workload {
            Ok(workload) if workload.flops() < 2e6 => return workload.with_epilogue(epilogue),
            _ => {}
        }
    }
}

fn pick<R: Rng, T: Copy>(rng: &mut R, of: &[T]) -> T {
    of[rng.random_range(0..of.len())]
}

/// Returns numbers of groups, input channels and output channels.
fn channels<R: Rng>(rng: &mut R) -> [usize; 3] {
    let groups = pick(rng, &[1, 1, 1, 2, 3, 8, 17]);
    let mut of_group = |most: &[usize]| if groups > 3 { 1 } else { pick(rng, most) };
    [groups, groups * of_group(&[1, 2, 3, 8, 16]), groups * of_group(&[1, 3, 5, 8, 16, 32])]
}

fn random_window<R: Rng>(rng: &mut R, most: usize) -> Window {
    Window {
        extent: rng.random_range(1..=most),
        kernel: pick(rng, &[1, 2, 3, 3, 5]),
        stride: pick(rng, &[1, 1, 2, 3]),
        pad: rng.random_range(0..3),
        dilation: pick(rng, &[1, 1, 2]),
    }
}

/// Returns a convolution with one spatial axis.
pub fn random_line<R: Rng>(rng: &mut R) -> Conv1d {
    let [groups, c, o] = channels(rng);
    Conv1d { n: pick(rng, &[1, 1, 2]), c, o, window: random_window(rng, 60), groups }
}

/// Returns a convolution with three spatial axes.
pub fn random_volume<R: Rng>(rng: &mut R) -> Conv3d {
    let [groups, c, o] = channels(rng);
    let windows = [6, 7, 15].map(|most| random_window(rng, most));
    Conv3d { n: pick(rng, &[1, 1, 2]), c, o, windows, groups }
}

/// Returns a transposed convolution of images.
pub fn random_transposed<R: Rng>(rng: &mut R) -> ConvTranspose2d {
    let [groups, c, o] = channels(rng);
    let kernel = [pick(rng, &[1, 2, 3, 4, 4, 5]), pick(rng, &[1, 2, 3, 4, 4, 6])];
    let stride = [pick(rng, &[1, 2, 2, 3, 4]), pick(rng, &[1, 2, 2, 3, 4])];
    ConvTranspose2d {
        n: pick(rng, &[1, 1, 2]),
        c,
        h: rng.random_range(1..9),
        w: rng.random_range(1..20),
        o,
        kernel,
        stride,
        pad: [rng.random_range(0..3), rng.random_range(0..4)],
        output_pad: stride.map(|stride| rng.random_range(0..stride)),
        groups,
    }
}
