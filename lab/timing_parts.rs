//! Measures the effect of each part of the timing method on this machine; docs/timing.md has the
//! figures of one machine.
//!
//! `cargo run --release -p autotune-lab --example timing_parts [WORKLOAD] [THREADS]`
//!
//! First, the fastest of some schedules of a workload are timed in many interleaved rounds. The
//! true relative time of a kernel is the median over the rounds of its time over that of one
//! reference kernel.
//!
//! Then each kernel is timed alone, as in a search, in one pass after another. Each estimator is
//! judged by its share of wrongly ordered pairs, over pairs of kernels that are at least 2 % apart
//! and timed in two different passes.

use std::time::Instant;

use anyhow::{Context, Result};
use autotune_ir::Target;
use autotune_measure::{Bench, KernelBuilder, MeasureOptions};
use autotune_runtime::{allowed_cores, pin_to_core};
use autotune_schedules::{Candidate, ScheduleSpace};
use autotune_workloads::Workload;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

const SAMPLES: usize = 60;
const KERNELS: usize = 12;
const ROUNDS: usize = 40;
const PASSES: usize = 25;
/// Minimum seconds of a kernel's turn, and of a run of the reference kernel before and after it.
const FLOOR_SECS: f64 = 0.004;
const LOOK_SECS: f64 = 0.002;
/// Least ratio of two kernels' times for which their order is judged.
const APART: f64 = 1.02;
/// Slowdown above which a kernel is timed again, and the maximum number of attempts.
const QUIET: f64 = 1.03;
const ATTEMPTS: usize = 3;

/// One turn of a kernel, between two runs of the reference kernel.
struct Turn {
    repeats: Vec<f64>,
    slowdown: f64,
    secs: f64,
}

type Estimator = (&'static str, fn(&[Turn]) -> f64);

const ESTIMATORS: [Estimator; 5] = [
    ("median", |turns| quantile(&turns[0].repeats, 0.5)),
    ("fastest repeat", |turns| quantile(&turns[0].repeats, 0.0)),
    ("low quantile", |turns| quantile(&turns[0].repeats, 0.1)),
    ("low quantile over slowdown", |turns| corrected(&turns[0])),
    ("the same, timed again if disturbed", |turns| {
        turns.iter().min_by(|a, b| a.slowdown.total_cmp(&b.slowdown)).map_or(f64::NAN, corrected)
    }),
];

fn corrected(turn: &Turn) -> f64 {
    quantile(&turn.repeats, 0.1) / turn.slowdown
}

fn main() -> Result<()> {
    let mut words = std::env::args().skip(1);
    let workload: Workload = words.next().unwrap_or("conv2d:c=128,h=28,w=28,o=128,k=3,p=1".into()).parse()?;
    let threads = words.next().map(|word| word.parse()).transpose()?;
    allowed_cores();
    pin_to_core(0);
    let mut kernels = kernels(&workload, &Target::detect("cpu", Some(threads.unwrap_or(1)))?)?;

    // The first kernel, the fastest, is the reference kernel.
    let mut ratios = vec![Vec::new(); kernels.len()];
    for _ in 0..ROUNDS {
        let secs = kernels.iter_mut().map(|kernel| low(kernel, FLOOR_SECS)).collect::<Result<Vec<f64>>>()?;
        ratios.iter_mut().zip(&secs).for_each(|(ratios, kernel)| ratios.push(kernel / secs[0]));
    }
    let truth: Vec<f64> = ratios.iter().map(|ratios| quantile(ratios, 0.5)).collect();
    println!("{workload}: {} kernels, up to {:.2} times the fastest", kernels.len(), max(&truth));

    let mut looks = Vec::new();
    let (mut once_secs, mut again_secs, mut slowdowns) = (0.0, 0.0, Vec::new());
    let mut passes: Vec<Vec<Vec<Turn>>> = Vec::new();
    for _ in 0..PASSES {
        let turns = (1..kernels.len()).map(|kernel| turns(&mut kernels, kernel, &mut looks));
        let turns = turns.collect::<Result<Vec<_>>>()?;
        once_secs += turns.iter().map(|turns| turns[0].secs).sum::<f64>();
        again_secs += turns.iter().flatten().map(|turn| turn.secs).sum::<f64>();
        slowdowns.extend(turns.iter().map(|turns| turns[0].slowdown));
        passes.push(turns);
    }

    // Pairs are taken across passes, as a search compares times from different moments.
    let mut wrong = [0usize; ESTIMATORS.len()];
    let mut pairs = 0;
    for (first, second) in passes.iter().flat_map(|first| passes.iter().map(move |second| (first, second))) {
        for (a, b) in (0..first.len()).flat_map(|a| (a + 1..first.len()).map(move |b| (a, b))) {
            let ratio = truth[a + 1] / truth[b + 1];
            if std::ptr::eq(first, second) || ratio.max(1.0 / ratio) < APART {
                continue;
            }
            pairs += 1;
            for (wrong, (_, estimate)) in wrong.iter_mut().zip(&ESTIMATORS) {
                *wrong += usize::from((estimate(&first[a]) < estimate(&second[b])) != (ratio < 1.0));
            }
        }
    }
    let slow = |q| quantile(&slowdowns, q);
    println!("slowdown: median {:.3}, nine in ten below {:.3}", slow(0.5), slow(0.9));
    println!("seconds with second and third turns: {:.2} times those of first ones", again_secs / once_secs);
    for (wrong, (name, _)) in wrong.iter().zip(&ESTIMATORS) {
        println!("{:5.2} % of {pairs} pairs wrong: {name}", 100.0 * *wrong as f64 / pairs as f64);
    }
    Ok(())
}

/// Returns the fastest kernels of some schedules, loaded.
fn kernels(workload: &Workload, target: &Target) -> Result<Vec<Bench>> {
    let space = ScheduleSpace::new(workload, target);
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let default = space.default_candidate().clone();
    let samples = (1..SAMPLES).map(|_| space.sample(&mut rng));
    let candidates: Vec<Candidate> = std::iter::once(default).chain(samples).collect();
    let MeasureOptions { backend, build_limit_secs, .. } = MeasureOptions::default();
    let mut found = Vec::new();
    for build in KernelBuilder::new(backend, build_limit_secs).build(&candidates)? {
        // SAFETY: the kernels are built by this process's own code generator, from schedules of the
        // space, and their outputs are checked.
        let mut bench = unsafe { Bench::new(&build.outcome?) }?;
        found.push((low(&mut bench, FLOOR_SECS)?, bench));
    }
    found.sort_by(|a, b| a.0.total_cmp(&b.0));
    found.truncate(KERNELS);
    Ok(found.into_iter().map(|(_, bench)| bench).collect())
}

/// Times a kernel: once, or several times while the machine is disturbed.
fn turns(kernels: &mut [Bench], kernel: usize, looks: &mut Vec<f64>) -> Result<Vec<Turn>> {
    let mut turns: Vec<Turn> = Vec::new();
    while turns.len() < ATTEMPTS && turns.last().is_none_or(|turn| turn.slowdown > QUIET) {
        let start = Instant::now();
        let before = low(&mut kernels[0], LOOK_SECS)?;
        let repeats = kernels[kernel].turn(FLOOR_SECS)?;
        let after = low(&mut kernels[0], LOOK_SECS)?;
        looks.extend([before, after]);
        let slowdown = (before.min(after) / quantile(looks, 0.1)).max(1.0);
        turns.push(Turn { repeats, slowdown, secs: start.elapsed().as_secs_f64() });
    }
    Ok(turns)
}

/// Returns the low quantile of a kernel's repeats, in seconds per run.
fn low(kernel: &mut Bench, floor_secs: f64) -> Result<f64> {
    Ok(quantile(&kernel.turn(floor_secs).context("a kernel failed")?, 0.1))
}

fn quantile(values: &[f64], q: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get((q * (sorted.len().max(1) - 1) as f64).round() as usize).copied().unwrap_or(f64::NAN)
}

fn max(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}
