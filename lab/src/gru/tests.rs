use autotune::contract;
use autotune_cost_model::features;
use autotune_cost_model::metrics::pairwise_accuracy;
use rand::RngExt;

use super::network::{KINDS, Nest, OF_LOOP};
use super::*;

/// Samples of some groups with a score that is the larger the nearer the product of two columns is
/// to a third.
fn samples(groups: u32, of_each: usize, columns: usize, seed: u64) -> Vec<Sample> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let sample = |group| {
        let features: Vec<f32> = (0..columns).map(|_| rng.random_range(-1.0..1.0)).collect();
        let score = (-(features[0] * features[1] - features[2]).abs()).exp();
        Sample { features, score, group }
    };
    (0..groups).flat_map(|group| vec![group; of_each]).map(sample).collect()
}

fn matrix(samples: &[Sample]) -> Array2<f32> {
    let columns = samples.first().map_or(0, |sample| sample.features.len());
    Array2::from_shape_fn((samples.len(), columns), |(row, column)| samples[row].features[column])
}

/// Rows of today's features that are loop nests of different depths; of the rest of the program,
/// every eighth column says something.
fn nests(rows: usize, seed: u64) -> Array2<f32> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut nests = Array2::from_shape_simple_fn((rows, features::FEATURE_COUNT), || rng.random_range(0.0..4.0));
    let nest = Nest::of(features::FEATURE_COUNT);
    for &column in nest.rest.iter().filter(|column| *column % 8 != 0) {
        nests.column_mut(column).fill(0.0);
    }
    for (row, mut values) in nests.rows_mut().into_iter().enumerate() {
        for (at, columns) in nest.loops.iter().enumerate() {
            let is_there = at >= row % nest.loops.len();
            let kind = columns[OF_LOOP.len() - 1];
            columns.iter().for_each(|&column| values[column] *= f32::from(is_there));
            values[kind] = if is_there { (1 + (row + at) % KINDS) as f32 } else { 0.0 };
        }
    }
    nests
}

#[test]
fn a_gru_is_a_cost_model() {
    contract::cost_model(|| Gru::new(GruParams { epochs: 2, least_steps: 5, ..GruParams::default() }));
    let prior = Some(Prior { column: 3, weight: 2.0 });
    contract::cost_model(|| Gru::new(GruParams { epochs: 2, least_steps: 5, prior, ..GruParams::default() }));
}

#[test]
fn loops_are_read_from_the_outermost_to_the_innermost() {
    let nest = Nest::of(features::FEATURE_COUNT);
    assert_eq!((nest.loops.len(), nest.loops.concat().len()), (7, 35));
    assert_eq!(nest.loops.concat().len() + nest.rest.len(), features::FEATURE_COUNT);
    let innermost = &nest.loops[6];
    assert_eq!(features::names()[innermost[0]], "loop.0.extent.log2_count");
    assert_eq!(features::names()[innermost[4]], "loop.0.kind.code");
    assert!(Nest::of(12).loops.is_empty() && Nest::of(12).rest.len() == 12);
}

#[test]
fn gradients_are_those_of_finite_differences() {
    for seed in 0..3 {
        let rows = nests(6, seed);
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut network = Network::new(rows.view(), &mut rng);
        // No weight is 0: behind one, nothing could be wrong.
        for weight in network.weights.iter_mut().flatten() {
            *weight += rng.random_range(-0.3..0.3);
        }
        let samples: Vec<Sample> = rows
            .rows()
            .into_iter()
            .enumerate()
            .map(|(i, row)| Sample { features: row.to_vec(), score: ((i * 5) % 6) as f32, group: 0 })
            .collect();
        let parts = [vec![0, 1, 2], vec![3, 4, 5]];

        let mut tape = Tape::default();
        let (weights, scores) = network.scores(&mut tape, rows.view());
        let found: Vec<f32> = tape.value(scores).iter().copied().collect();
        let gradients = tape.gradients(scores, pair_gradients(&samples, &parts, &found), &weights);

        for (number, gradient) in gradients.iter().enumerate() {
            for (at, &found) in gradient.indexed_iter().filter(|((row, column), _)| (row * 7 + column) % 11 == 0) {
                let mut loss_with = |change: f32| {
                    network.weights[number][at] += change;
                    let mut tape = Tape::default();
                    let (_, scores) = network.scores(&mut tape, rows.view());
                    network.weights[number][at] -= change;
                    loss(&samples, &parts, tape.value(scores))
                };
                let expected = (loss_with(1e-2) - loss_with(-1e-2)) / 2e-2;
                let error = (f64::from(found) - expected).abs();
                assert!(error < 1e-3 + 0.02 * expected.abs(), "seed {seed}: {number} {at:?}: {found} {expected}");
            }
        }
    }
}

/// What [`pair_gradients`] is the gradient of.
fn loss(samples: &[Sample], parts: &[Vec<usize>], scores: &Array2<f32>) -> f64 {
    let of_part = |part: &Vec<usize>| {
        let pairs = part.iter().flat_map(|&a| part.iter().map(move |&b| (a, b)));
        let pairs: Vec<(usize, usize)> = pairs.filter(|&(a, b)| samples[a].score > samples[b].score).collect();
        let of_pair = |&(a, b): &(usize, usize)| f64::from(scores[[b, 0]] - scores[[a, 0]]).exp().ln_1p();
        pairs.iter().map(of_pair).sum::<f64>() / pairs.len() as f64
    };
    parts.iter().map(of_part).sum()
}

#[test]
fn an_order_is_learnt_and_the_same_from_the_same_seed() {
    let (known, unknown) = (samples(4, 100, 8, 1), samples(1, 200, 8, 2));
    let actual: Vec<f32> = unknown.iter().map(|sample| sample.score).collect();
    let scores = |seed: u64| {
        let mut gru = Gru::new(GruParams { least_steps: 400, rate: 1e-2, seed, ..GruParams::default() });
        gru.fit(&known).unwrap();
        gru.predict(matrix(&unknown).view())
    };
    let first = scores(0);
    let accuracy = pairwise_accuracy(&first, &actual).unwrap();
    assert!(accuracy > 0.85, "{accuracy}");
    assert_eq!(first, scores(0));
    assert_ne!(first, scores(1));
}

#[test]
fn an_order_of_loops_is_learnt() {
    // Faster if the innermost loop is longer than the one outside of it.
    let order = |rows: &Array2<f32>, group| {
        let nest = Nest::of(features::FEATURE_COUNT);
        let extent = |row: ArrayView1<f32>, at: usize| row[nest.loops[at][0]];
        let sample =
            |row: ArrayView1<f32>| Sample { features: row.to_vec(), score: extent(row, 6) - extent(row, 5), group };
        rows.rows().into_iter().map(sample).collect::<Vec<Sample>>()
    };
    let (known, unknown) = (order(&nests(400, 3), 0), order(&nests(200, 4), 0));
    let mut gru = Gru::new(GruParams { least_steps: 300, rate: 1e-2, ..GruParams::default() });
    gru.fit(&known).unwrap();
    let actual: Vec<f32> = unknown.iter().map(|sample| sample.score).collect();
    let accuracy = pairwise_accuracy(&gru.predict(matrix(&unknown).view()), &actual).unwrap();
    assert!(accuracy > 0.8, "{accuracy}");
}

#[test]
fn what_cannot_be_learnt_from_is_refused_and_what_was_learnt_is_kept() {
    let mut known = samples(1, 20, 8, 5);
    let mut gru = Gru::new(GruParams { least_steps: 5, ..GruParams::default() });
    gru.fit(&known).unwrap();
    let before = gru.predict(matrix(&known).view());
    let rows = matrix(&known);
    known[3].features.pop();
    assert!(gru.fit(&known).unwrap_err().to_string().contains("sample 3 has 7 features"));
    assert_eq!(gru.predict(rows.view()), before);
}
