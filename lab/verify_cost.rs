//! Compares the cost of verifying a schedule's loop nests with that of lowering it.
//!
//! `cargo run --release -p autotune-lab --example verify_cost`
//!
//! Prints, for some workloads over random configs, the median and the ninth decile in microseconds,
//! and of the ratio of the two.

use std::hint::black_box;
use std::time::Instant;

use autotune_ir::{CpuTarget, Isa, Target, verify};
use autotune_schedules::{ScheduleSpace, lower};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

const CONFIGS: usize = 300;

fn main() -> anyhow::Result<()> {
    let cpu = |isa| Ok(Target::Cpu(CpuTarget { isa, ..CpuTarget::generic_avx2(2) }));
    let gpu = |word| Target::detect(word, None);
    for (name, text, sketch, target) in [
        ("conv2d", "conv2d:c=64,h=56,w=56,o=64,k=3,p=1,bias,act=relu,exact", "direct", cpu(Isa::Avx2)),
        ("matmul", "matmul:m=512,n=512,k=512", "direct", cpu(Isa::Avx512)),
        ("winograd", "conv2d:c=64,h=56,w=56,o=64,k=3,p=1,bias,act=relu", "winograd", cpu(Isa::Avx2)),
        ("GPU", "conv2d:c=64,h=56,w=56,o=64,k=3,p=1,bias,act=relu,exact", "tiled", gpu("cuda:sm_80")),
        ("GPU mma", "matmul:m=512,n=512,k=512,dtype=f16", "mma", gpu("cuda:sm_80")),
    ] {
        let target = target?;
        let space = ScheduleSpace::new(&text.parse()?, &target);
        let mut rng = ChaCha8Rng::seed_from_u64(0);

        let configs = std::iter::repeat_with(|| space.sample(&mut rng)).filter(|config| config.sketch == sketch);
        let mut times: Vec<[f64; 2]> = Vec::new();
        for config in configs.take(CONFIGS) {
            // The least of several times: other processes can only add time.
            let times_of = |run: &dyn Fn()| {
                let micros = (0..7).map(|_| {
                    let start = Instant::now();
                    run();
                    start.elapsed().as_secs_f64() * 1e6
                });
                micros.fold(f64::INFINITY, f64::min)
            };
            let program = lower(space.workload(), &target, &config)?;
            let lowering = times_of(&|| drop(black_box(lower(space.workload(), &target, &config))));
            let verifying = times_of(&|| drop(black_box(verify(black_box(&program), &target))));
            times.push([lowering, verifying]);
        }

        let quantile = |of: &dyn Fn(&[f64; 2]) -> f64, share: f64| {
            let mut values: Vec<f64> = times.iter().map(of).collect();
            values.sort_by(f64::total_cmp);
            values[(values.len() as f64 * share) as usize]
        };
        println!(
            "{name:8} lowering {:5.0} µs (90 %: {:5.0}), verifying {:5.0} µs (90 %: {:5.0}), ratio {:4.1} (90 %: {:4.1})",
            quantile(&|t| t[0], 0.5),
            quantile(&|t| t[0], 0.9),
            quantile(&|t| t[1], 0.5),
            quantile(&|t| t[1], 0.9),
            quantile(&|t| t[1] / t[0], 0.5),
            quantile(&|t| t[1] / t[0], 0.9),
        );
    }
    Ok(())
}
