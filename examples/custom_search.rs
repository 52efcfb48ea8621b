//! A search loop of one's own, on the parts of the autotuner: draw many schedules, let the cost model pick which to measure,
//! learn from what they took, repeat.
//!
//! `cargo run --release -p autotune-examples --example custom_search [ROUNDS]`

use std::ops::ControlFlow;

use autotune_cost_model::{CostModel, Sample, XgbModel, features, relative_throughputs};
use autotune_ir::{Program, Target};
use autotune_measure::{Candidate, Measurer};
use autotune_schedules::{Config, ScheduleSpace, Workload, lower};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

/// Schedules drawn, and schedules measured, per round.
const DRAWN: usize = 512;
const MEASURED: usize = 8;

fn main() -> anyhow::Result<()> {
    autotune::serve_if_worker();
    let rounds: usize = std::env::args().nth(1).map_or(Ok(4), |r| r.parse())?;
    let workload: Workload = "matmul:m=128,n=256,k=256".parse()?;
    let target = Target::detect("cpu", Some(1))?;
    let space = ScheduleSpace::new(&workload, &target);
    let mut measurer = autotune_examples::measurer(&target)?;
    let mut model = XgbModel::default();
    let mut rng = ChaCha8Rng::seed_from_u64(0);
    let mut measured: Vec<(Vec<f32>, Option<f64>)> = Vec::new();

    for round in 0..rounds {
        let configs: Vec<Config> = (0..DRAWN).map(|_| space.sample(&mut rng)).collect();
        let programs = configs.iter().map(|c| lower(&workload, &target, c)).collect::<Result<Vec<Program>, _>>()?;
        let rows = features::extract_all(&programs, &target);
        let scores = model.predict(rows.view());
        let mut ranked: Vec<usize> = (0..configs.len()).collect();
        ranked.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));

        let chosen = &ranked[..MEASURED];
        let candidates: Vec<Candidate> = chosen
            .iter()
            .map(|&i| Candidate { workload, target: target.clone(), config: configs[i].clone() })
            .collect();
        measurer.measure(&candidates, &mut |i, measurement| {
            measured.push((rows.row(chosen[i]).to_vec(), measurement.run_secs()));
            ControlFlow::Continue(())
        })?;

        let run_secs: Vec<Option<f64>> = measured.iter().map(|m| m.1).collect();
        let samples: Vec<Sample> = measured
            .iter()
            .zip(relative_throughputs(&run_secs))
            .map(|((features, _), score)| Sample { features: features.clone(), score, group: 0 })
            .collect();
        model.fit(&samples)?;
        let best = run_secs.iter().flatten().copied().fold(f64::INFINITY, f64::min);
        println!("round {round}: {} measured, best {:.1} GFLOP/s", measured.len(), workload.flops() / best * 1e-9);
    }
    Ok(())
}
