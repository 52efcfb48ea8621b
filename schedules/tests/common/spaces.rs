//! Random schedules, and random workloads that have schedules of some kind.

use autotune_ir::Target;
use autotune_schedules::{Candidate, Config, KnobValue, ScheduleSpace, winograd};
use autotune_workloads::{Conv2d, Pool2d, ResizeMode, ResizeWorkload, Workload};
use rand::{Rng, RngExt};

use super::epilogues::{random_epilogue, with_random_prologue};
use super::workloads::{pick, random_conv, random_matmul, random_pool};

/// Returns some schedules of a space: the default, then one of each sketch in turn.
pub fn some<R: Rng>(space: &ScheduleSpace, count: usize, rng: &mut R) -> Vec<Candidate> {
    let mut all = vec![space.default_candidate().clone()];
    for number in 1..count {
        let sketch = space.sketches()[number % space.sketches().len()].name();
        let mut drawn = (0..100).map(|_| space.sample(rng));
        let of_sketch = drawn.find(|candidate| candidate.config().sketch == sketch);
        all.push(of_sketch.unwrap_or_else(|| space.sample(rng)));
    }
    all
}

/// Draws a config of the Winograd sketch.
pub fn sample_winograd<R: Rng>(space: &ScheduleSpace, rng: &mut R) -> Config {
    sample_sketch(space, winograd::SKETCH, rng)
}

/// True if the Winograd sketch applies to the space's workload.
pub fn has_winograd(space: &ScheduleSpace) -> bool {
    space.sketches().iter().any(|sketch| sketch.name() == winograd::SKETCH)
}

/// Draws a config of a sketch in the space.
pub fn sample_sketch<R: Rng>(space: &ScheduleSpace, sketch: &str, rng: &mut R) -> Config {
    let drawn = (0..200).map(|_| space.sample(rng).config().clone()).find(|config| config.sketch == sketch);
    drawn.unwrap_or_else(|| panic!("no {sketch} config of {}", space.workload()))
}

/// Draws a map or reduction of images, with a config in which input, output or both are
/// channel-blocked.
pub fn random_blocked<R: Rng>(target: &Target, rng: &mut R) -> (Workload, Config) {
    loop {
        let (n, c) = (pick(rng, &[1, 1, 2]), 8 * pick(rng, &[1, 2, 2, 3, 4, 6, 10]));
        let workload = match rng.random_range(0..5) {
            0 => {
                let n = rng.random_range(1..50);
                let op = pick(rng, &["copy", "gelu", "neg"]);
                format!("pointwise:b={b},m={c},n={n},op={op},channels=column", b = pick(rng, &[1, 1, 2])).parse()
            }
            1 => {
                let (h, w) = (rng.random_range(1..6), rng.random_range(1..9));
                let scale = [pick(rng, &[1, 2, 3]), pick(rng, &[1, 2, 5])];
                Workload::new(ResizeWorkload { n, c, h, w, scale, mode: ResizeMode::Nearest })
            }
            _ => Workload::new(Pool2d { n, c, ..random_pool(rng) }),
        };
        let epilogue = random_epilogue(rng);
        let Ok(workload) = workload.map(|workload| workload.with_epilogue(epilogue)) else { continue };
        let space = ScheduleSpace::new(&workload, target);
        let blocked = KnobValue::Choice("blocked".into());
        let mut drawn = (0..if workload.flops() < 5e5 { 50 } else { 0 }).map(|_| space.sample(rng).config().clone());
        if let Some(config) = drawn.find(|config| config.knobs.values().any(|value| *value == blocked)) {
            return (workload, config);
        }
    }
}

/// Draws a workload that the Winograd sketch applies to on a CPU, with a number of input or output
/// channels, or both, that is not a multiple of the block.
pub fn random_odd_winograd<R: Rng>(rng: &mut R, target: &Target) -> Workload {
    let block = target.cpu().unwrap().lanes().max(8);
    let odd = [1, 2, 3, 3, 4, 5, 7, 12, 17, 20, 24, 29, 58];
    let whole = [block, 2 * block];
    let (taps, stride) = pick(rng, &[(3, 1), (3, 1), (3, 2), (2, 1), (4, 1), (5, 1), (5, 2), (7, 2), (5, 3), (11, 4)]);
    let sides = rng.random_range(0..3);
    let channels = |rng: &mut R, is_odd: bool| if is_odd { pick(rng, &odd) } else { pick(rng, &whole) };
    let image = [4, 5, 6, 7, 8, 11, 13, 14, 17];
    let conv = Conv2d {
        n: pick(rng, &[1, 1, 2]),
        c: channels(rng, sides != 1),
        h: stride * pick(rng, &image),
        w: stride * pick(rng, &image),
        o: channels(rng, sides != 2),
        kh: taps,
        kw: taps,
        stride: [stride, stride],
        pad: [pick(rng, &[0, taps / 2, taps - 1]), pick(rng, &[0, taps / 2, taps - 1])],
        dilation: [1, 1],
        groups: 1,
    };
    // Some kernels do not fit the image.
    let Ok(workload) = Workload::new(conv) else { return random_odd_winograd(rng, target) };
    let workload = workload.with_epilogue(random_epilogue(rng));

    let space = ScheduleSpace::new(&workload, target);
    match has_winograd(&space) {
        true => workload,
        false => random_odd_winograd(rng, target),
    }
}

/// Draws a workload for which panels of the data operand may pay, and a config with panels. It is a
/// matrix product with many columns, or a convolution with a stride along the width whose channels
/// are not whole vectors.
pub fn random_panel<R: Rng>(target: &Target, rng: &mut R) -> (Workload, Config) {
    loop {
        let workload = if rng.random_bool(0.7) {
            let mut conv = random_conv(rng);
            conv.stride[1] = pick(rng, &[2, 2, 3, 4]);
            conv.o = conv.groups * pick(rng, &[17, 20, 23, 36]);
            Workload::new(conv)
        } else {
            let mut matmul = random_matmul(rng);
            matmul.n = pick(rng, &[1024, 1031, 1100]);
            Workload::new(matmul)
        };

        let epilogue = random_epilogue(rng);
        let Ok(workload) = workload.map(|workload| with_random_prologue(workload, rng).with_epilogue(epilogue)) else {
            continue;
        };

        let space = ScheduleSpace::new(&workload, target);
        for _ in 0..if workload.flops() < 2e6 { 50 } else { 0 } {
            let mut config = space.sample(rng).config().clone();
            let layout = config.knobs.get("layout.in").cloned();
            let mut set = |knob: &str, value: KnobValue| {
                config.knobs.entry(knob.into()).and_modify(|old| *old = value);
            };
            set("data", KnobValue::Choice("panel".into()));
            if let Some(layout) = layout {
                set("layout.data", layout);
                set("vector", KnobValue::Choice("ow".into()));
            }
            if space.contains(&config) {
                return (workload, config);
            }
        }
    }
}
