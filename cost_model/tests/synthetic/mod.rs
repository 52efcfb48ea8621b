//! Synthetic samples that resemble measurements: throughput of a matrix product by its tiling, with
//! noise and failures.

use autotune_cost_model::{Sample, relative_throughputs};
use rand::{Rng, RngExt};

/// Number of features per sample.
pub(crate) const COLUMNS: usize = 120;

/// Returns `len` candidates of task `group`; tasks differ in size. One candidate in twenty fails.
pub(crate) fn samples(random: &mut impl Rng, len: usize, group: u32) -> Vec<Sample> {
    let mut features = Vec::with_capacity(len);
    let mut run_secs = Vec::with_capacity(len);
    for _ in 0..len {
        let (row, secs) = candidate(random, group);
        features.push(row);
        run_secs.push((random.random_range(0..20) != 0).then_some(secs));
    }
    let scores = relative_throughputs(&run_secs);
    features.into_iter().zip(scores).map(|(features, score)| Sample { features, score, group }).collect()
}

fn candidate(random: &mut impl Rng, group: u32) -> (Vec<f32>, f64) {
    let mut power = |max: i32| 2f64.powi(random.random_range(0..=max));
    let (m, n, k) = (512.0, 512.0 * f64::from(1 + group % 4), 256.0);
    // Register tile, cache tile, unrolled steps, lanes, threads.
    let (rm, rn, cm, cn, ck) = (power(4), power(5), power(5), power(5), power(8));
    let (unroll, lanes, threads) = (power(5), power(3), power(3));

    let registers = rm * rn / lanes + rm + rn / lanes;
    let inner_bytes = 4.0 * (cm * rm * ck + cn * rn * ck);
    let reuse = rm * rn / (rm + rn);
    let tasks = (m / (cm * rm)).ceil() * (n / (cn * rn)).ceil();
    let balance = tasks / ((tasks / threads).ceil() * threads);
    let mut efficiency = lanes.min(rn) / 8.0;
    efficiency *= (reuse / (reuse + 1.5)) * if registers > 16.0 { 12.0 / registers } else { 1.0 };
    efficiency *= 1.0 / (1.0 + (inner_bytes / 32_768.0).powi(2) * 0.3 + (inner_bytes / 524_288.0).powi(2));
    efficiency *= balance * threads / 8.0 * (1.0 - 0.03 * threads / 8.0);
    efficiency *= 1.0 / (1.0 + 1.5 / (unroll * reuse)) * if unroll * rm * rn > 2048.0 { 0.7 } else { 1.0 };
    let noise = 1.0 + 0.02 * (random.random_range(-1.0..1.0) + random.random_range(-1.0..1.0));
    let secs = 2.0 * m * n * k / (8e11 * efficiency) * noise;

    let knobs = [rm, rn, cm, cn, ck, unroll, lanes, threads];
    let mut row: Vec<f32> = knobs.iter().map(|knob| knob.log2() as f32).collect();
    let derived = [registers, inner_bytes, cm * rm, cn * rn, tasks, 4.0 * rm * rn, 4.0 * cm * rm * cn * rn, m * n * k];
    row.extend(derived.iter().map(|value| (1.0 + value).log2() as f32));
    // Products of pairs are correlated like the footprints and strides of loops.
    for (i, a) in knobs.iter().enumerate() {
        row.extend(knobs[i + 1..].iter().map(|b| (a * b).log2() as f32));
        row.extend(knobs[i + 1..].iter().map(|b| (a / b) as f32));
    }
    // Features of a loop that does not exist are missing.
    row.extend((0..8).map(|i| if unroll > 4.0 { (unroll * f64::from(i + 1)) as f32 } else { f32::NAN }));
    row.resize_with(COLUMNS, || random.random_range(0.0..1.0));
    (row, secs)
}
