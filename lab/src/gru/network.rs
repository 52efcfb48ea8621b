//! The network: a chain of loops, embedded, read by a gated recurrent unit, scattered over slots,
//! summed up.

use autotune_cost_model::features;
use ndarray::{Array2, ArrayView1, ArrayView2, s};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::tape::{Tape, Var};

/// Elements of a state and of an embedding, and slots that states are scattered over.
const STATE: usize = 32;
const SLOTS: usize = 8;

/// Standard deviations from their mean at which numbers are clipped.
const CLIP: f32 = 4.0;

/// The weights, and how rows are read.
#[derive(Clone, Debug)]
pub(super) struct Network {
    pub(super) weights: Vec<Array2<f32>>,
    /// Mean and inverse standard deviation of each column; 0 of one that is always the same.
    scale: Vec<[f32; 2]>,
    nest: Nest,
}

/// Columns of the loops, outermost first, each with that of its kind last; and all others.
#[derive(Clone, Debug)]
pub(super) struct Nest {
    pub(super) loops: Vec<Vec<usize>>,
    pub(super) rest: Vec<usize>,
}

/// The kinds of loops, from 1: see [`features`].
pub(super) const KINDS: usize = 4;
pub(super) const OF_LOOP: [&str; 5] =
    ["extent.log2_count", "working_set.log2_bytes", "data_reuse.log2_count", "weight_reuse.log2_count", "kind.code"];
const INPUTS: usize = OF_LOOP.len() - 1 + KINDS;

impl Nest {
    /// Of rows of today's features; others have no loops.
    pub(super) fn of(columns: usize) -> Self {
        let names = if columns == features::FEATURE_COUNT { features::names() } else { &[] };
        let position = |name: String| names.iter().position(|it| *it == name);
        let of_slot = |slot| OF_LOOP.iter().map(|what| position(format!("loop.{slot}.{what}"))).collect();
        let mut loops: Vec<Vec<usize>> = (0..).map_while(of_slot).collect();
        loops.reverse();
        let rest = (0..columns).filter(|column| !loops.iter().flatten().any(|it| it == column)).collect();
        Self { loops, rest }
    }
}

impl Network {
    pub(super) fn new(rows: ArrayView2<f32>, rng: &mut ChaCha8Rng) -> Self {
        let nest = Nest::of(rows.ncols());
        let mut draw = |inputs: usize, outputs: usize| {
            let limit = (6.0 / (inputs + outputs) as f32).sqrt();
            Array2::from_shape_simple_fn((inputs, outputs), || rng.random_range(-limit..=limit))
        };
        let bias = || Array2::zeros((1, STATE));
        let mut weights = vec![draw(INPUTS, STATE), bias(), draw(nest.rest.len(), STATE), bias()];
        for _gate in 0..3 {
            weights.extend([draw(STATE, STATE), draw(STATE, STATE), bias()]);
        }
        // The network begins with what is taken for granted alone.
        weights.extend([draw(STATE, SLOTS), Array2::zeros((STATE, SLOTS))]);

        let scale = |column: ArrayView1<f32>| {
            let known: Vec<f32> = column.iter().copied().filter(|value| value.is_finite()).collect();
            let mean = known.iter().sum::<f32>() / known.len().max(1) as f32;
            let variance = known.iter().map(|value| (value - mean).powi(2)).sum::<f32>() / known.len().max(1) as f32;
            [mean, if variance > 1e-8 { variance.sqrt().recip() } else { 0.0 }]
        };
        Self { weights, scale: rows.columns().into_iter().map(scale).collect(), nest }
    }

    /// The columns of the rows that it reads.
    pub(super) fn columns(&self) -> usize {
        self.scale.len()
    }

    /// The weights as they stand on the tape, and a column of scores of the rows.
    pub(super) fn scores(&self, tape: &mut Tape, rows: ArrayView2<f32>) -> (Vec<Var>, Var) {
        let weights: Vec<Var> = self.weights.iter().map(|weight| tape.weight(weight)).collect();
        let [of_loop, loop_bias, of_rest, rest_bias] = [0, 1, 2, 3].map(|at| weights[at]);
        let (gates, head) = weights[4..].split_at(9);
        let mut state = tape.constant(Array2::zeros((rows.nrows(), STATE)));
        let mut score = tape.constant(Array2::zeros((rows.nrows(), 1)));

        for columns in &self.nest.loops {
            // Where there is no such loop, the state stays as it is.
            let is_loop = tape.constant(rows.slice(s![.., columns[0]..=columns[0]]).mapv(|log2| f32::from(log2 > 0.0)));
            let input = tape.constant(self.context(rows, columns));
            let input = embedded(tape, input, of_loop, loop_bias);
            state = next_state(tape, gates, input, state, Some(is_loop));
            let part = slots(tape, head, state);
            let part = tape.multiply(part, is_loop);
            score = tape.add(score, part);
        }

        let rest = Array2::from_shape_fn((rows.nrows(), self.nest.rest.len()), |(row, i)| {
            self.standard(self.nest.rest[i], rows[[row, self.nest.rest[i]]])
        });
        let input = tape.constant(rest);
        let input = embedded(tape, input, of_rest, rest_bias);
        state = next_state(tape, gates, input, state, None);
        let part = slots(tape, head, state);
        let score = tape.add(score, part);
        (weights, score)
    }

    /// What the network sees of a loop: its numbers, and its kind as one of some switches.
    fn context(&self, rows: ArrayView2<f32>, columns: &[usize]) -> Array2<f32> {
        let numbers = columns.len() - 1;
        Array2::from_shape_fn((rows.nrows(), INPUTS), |(row, input)| {
            match columns.get(input).filter(|_| input < numbers) {
                Some(&column) => self.standard(column, rows[[row, column]]),
                None => f32::from(rows[[row, columns[numbers]]] == (input + 1 - numbers) as f32),
            }
        })
    }

    /// A value in standard deviations from the mean; 0 where it is missing.
    fn standard(&self, column: usize, value: f32) -> f32 {
        let [mean, inverse] = self.scale[column];
        let standard = (value - mean) * inverse;
        if standard.is_nan() { 0.0 } else { standard.clamp(-CLIP, CLIP) }
    }
}

fn embedded(tape: &mut Tape, input: Var, weight: Var, bias: Var) -> Var {
    let linear = tape.dot(input, weight);
    let linear = tape.add(linear, bias);
    tape.tanh(linear)
}

/// A step of the gated recurrent unit, of those rows only that `takes` it says 1 of.
fn next_state(tape: &mut Tape, gates: &[Var], input: Var, state: Var, takes: Option<Var>) -> Var {
    let gate = |tape: &mut Tape, number: usize, state: Var| {
        let of_input = tape.dot(input, gates[3 * number]);
        let of_state = tape.dot(state, gates[3 * number + 1]);
        let sum = tape.add(of_input, of_state);
        tape.add(sum, gates[3 * number + 2])
    };
    let update = gate(tape, 0, state);
    let update = tape.sigmoid(update);
    let keep = gate(tape, 1, state);
    let keep = tape.sigmoid(keep);
    let kept = tape.multiply(state, keep);
    let new = gate(tape, 2, kept);
    let new = tape.tanh(new);

    let change = tape.subtract(new, state);
    let mut change = tape.multiply(change, update);
    if let Some(takes) = takes {
        change = tape.multiply(change, takes);
    }
    tape.add(state, change)
}

/// What a state adds to the score: its share in each slot, weighed by the slot's linear layer.
fn slots(tape: &mut Tape, head: &[Var], state: Var) -> Var {
    let shares = tape.dot(state, head[0]);
    let shares = tape.softmax(shares);
    let linear = tape.dot(state, head[1]);
    let weighed = tape.multiply(linear, shares);
    tape.row_sums(weighed)
}
