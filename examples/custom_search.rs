//! Adds a searcher and a cost model from outside the library, without changing it.
//!
//! `cargo run --release -p autotune-examples --example custom_search [TRIALS]`
//!
//! The searcher is a hill climber: it changes single knobs of the best candidate so far. The cost
//! model predicts the mean score of the nearest neighbours. Both pass the contracts that the tuner
//! relies on, then they tune a matrix product.

use autotune::cost_model::{CostModel, ModelError, Sample};
use autotune::measurement::Measurement;
use autotune::search::{Ask, CandidateBatch, Searcher};
use autotune::{Candidate, Target, Task, Tuner, contract};
use ndarray::{ArrayView1, ArrayView2};

/// Number of neighbours that are scored for each wanted candidate.
const SCORED_PER_CONFIG: usize = 8;

/// Number of nearest samples whose mean is the score.
const NEAREST: usize = 5;

/// Searcher that proposes neighbours of the best candidate, the highest predicted scores first.
#[derive(Default)]
struct HillClimber {
    best: Option<(Candidate, f64)>,
}

impl Searcher for HillClimber {
    fn ask(&mut self, ask: Ask<'_>) -> Vec<Candidate> {
        let mut batch = CandidateBatch::new(ask.seen, ask.n);
        if let Some((best, _)) = &self.best {
            let neighbors = (0..SCORED_PER_CONFIG * ask.n).map(|_| ask.space.neighbor(best, ask.rng));
            let neighbors: Vec<Candidate> = neighbors.collect();
            let scores = (ask.score)(&neighbors);

            // Candidates without a score cannot be lowered.
            let mut scored: Vec<_> = neighbors.into_iter().zip(scores).filter(|(_, score)| score.is_some()).collect();
            scored.sort_by(|a, b| b.1.unwrap_or(0.0).total_cmp(&a.1.unwrap_or(0.0)));
            // The share `explore` of the batch stays random, so that the search does not settle in
            // one basin.
            let explored = (ask.explore * ask.n as f64) as usize;
            for (candidate, _) in scored.into_iter().take(ask.n - explored) {
                batch.push(candidate);
            }
        }
        batch.fill(ask.space, ask.rng);
        batch.into_candidates()
    }

    fn tell(&mut self, results: &[(Candidate, Measurement)]) {
        for (candidate, measurement) in results {
            let best_secs = self.best.as_ref().map_or(f64::INFINITY, |(_, secs)| *secs);
            if let Some(secs) = measurement.run_secs().filter(|&secs| secs < best_secs) {
                self.best = Some((candidate.clone(), secs));
            }
        }
    }
}

/// Cost model that predicts the mean score of the nearest samples in feature space.
#[derive(Default)]
struct Neighbors(Vec<Sample>);

impl Neighbors {
    fn score(&self, row: ArrayView1<f32>) -> f32 {
        // Missing features (NaN) add nothing to the distance.
        let difference = |(a, b): (&f32, &f32)| if a.is_nan() || b.is_nan() { 0.0 } else { (a - b).powi(2) };
        let distance = |sample: &Sample| sample.features.iter().zip(row).map(difference).sum::<f32>();
        let mut near: Vec<(f32, f32)> = self.0.iter().map(|sample| (distance(sample), sample.score)).collect();
        near.sort_by(|a, b| a.0.total_cmp(&b.0));
        near.truncate(NEAREST);
        near.iter().map(|(_, score)| score).sum::<f32>() / near.len().max(1) as f32
    }
}

impl CostModel for Neighbors {
    fn fit(&mut self, samples: &[Sample]) -> Result<(), ModelError> {
        self.0 = samples.to_vec();
        Ok(())
    }

    fn predict(&self, features: ArrayView2<f32>) -> Vec<f32> {
        features.rows().into_iter().map(|row| self.score(row)).collect()
    }

    fn feature_count(&self) -> Option<usize> {
        self.0.first().map(|sample| sample.features.len())
    }
}

fn main() -> anyhow::Result<()> {
    autotune::serve_if_worker();
    contract::searcher(|_| HillClimber::default());
    contract::cost_model(Neighbors::default);

    let trials: usize = std::env::args().nth(1).map_or(Ok(32), |trials| trials.parse())?;
    let target = Target::detect("cpu", Some(1))?;
    let tasks = [Task::single("matmul:m=128,n=256,k=256".parse()?)];
    let tuner = Tuner::new(&target).searcher(|_| HillClimber::default()).cost_model(Neighbors::default());
    let report = tuner.trials(trials).tune(&tasks)?;
    println!("best {:?} s, untuned {:?} s", report.tasks[0].best_secs, report.tasks[0].default_secs);
    Ok(())
}
