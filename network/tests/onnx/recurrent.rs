//! Recurrent layers compared with ONNX's formulas, one time step at a time in double precision.

use autotune_network::Tensor;
use autotune_network::cut::{Cut, StepWork};
use autotune_network::rewrite;
use rten_onnx::onnx::{AttributeProto, AttributeType, DataType, Dimension};

use crate::build::{Model, i64s, info, int, word};

const HIDDEN: usize = 4;
const INPUTS: usize = 3;
const IMAGES: usize = 2;
const STEPS: usize = 5;

/// Weights of a direction as in the file: `[gates, hidden, inputs]`, `[gates, hidden, hidden]`,
/// `[2, gates, hidden]`, and `[3, hidden]` for peepholes.
struct Weights {
    w: Vec<f64>,
    r: Vec<f64>,
    b: Vec<f64>,
    p: Vec<f64>,
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// Returns the states after a time step: the output, and the cell state of an LSTM.
fn step(operator: &str, weights: &Weights, x: &[f64], [state, cells]: [&[f64]; 2]) -> [Vec<f64>; 2] {
    let gates = weights.w.len() / (HIDDEN * INPUTS);
    let row = |gate: usize, unit: usize| gate * HIDDEN + unit;
    let of_input = |gate: usize, unit: usize| {
        let products = (0..INPUTS).map(|i| weights.w[row(gate, unit) * INPUTS + i] * x[i]);
        products.sum::<f64>() + weights.b[row(gate, unit)]
    };
    let of_state = |gate: usize, unit: usize, state: &[f64]| {
        let products = (0..HIDDEN).map(|i| weights.r[row(gate, unit) * HIDDEN + i] * state[i]);
        products.sum::<f64>() + weights.b[gates * HIDDEN + row(gate, unit)]
    };
    let sum = |gate, unit| of_input(gate, unit) + of_state(gate, unit, state);
    let units = 0..HIDDEN;

    match operator {
        "RNN" => [units.map(|unit| sum(0, unit).tanh()).collect(), Vec::new()],
        "RNN of relu" => [units.map(|unit| sum(0, unit).max(0.0)).collect(), Vec::new()],
        "GRU" | "GRU that resets products" => {
            let reset: Vec<f64> = (0..HIDDEN).map(|unit| sigmoid(sum(1, unit))).collect();
            let left: Vec<f64> = state.iter().zip(&reset).map(|(state, reset)| state * reset).collect();
            let next = units.map(|unit| {
                let of_state = match operator {
                    "GRU" => of_state(2, unit, &left),
                    _ => reset[unit] * of_state(2, unit, state),
                };
                let (update, candidate) = (sigmoid(sum(0, unit)), (of_input(2, unit) + of_state).tanh());
                (1.0 - update) * candidate + update * state[unit]
            });
            [next.collect(), Vec::new()]
        }
        _ => {
            let (mut next, mut next_cells) = (Vec::new(), Vec::new());
            for unit in units {
                let peep = |gate: usize, cell: f64| weights.p[gate * HIDDEN + unit] * cell;
                let input = sigmoid(sum(0, unit) + peep(0, cells[unit]));
                let forget = sigmoid(sum(2, unit) + peep(2, cells[unit]));
                let cell = forget * cells[unit] + input * sum(3, unit).tanh();
                next.push(sigmoid(sum(1, unit) + peep(1, cell)) * cell.tanh());
                next_cells.push(cell);
            }
            [next, next_cells]
        }
    }
}

/// Returns pseudorandom numbers between -1 and 1.
fn tensor(shape: &[usize], seed: usize) -> Tensor {
    let number = |at: usize| ((at * 37 + seed * 11) % 23) as f32 / 11.5 - 1.0;
    Tensor::f32(shape, (0..shape.iter().product()).map(number).collect()).unwrap()
}

fn doubles(tensor: &Tensor) -> Vec<f64> {
    tensor.to_numbers().iter().map(|&x| f64::from(x)).collect()
}

fn words(name: &str, words: &[&str]) -> AttributeProto {
    let strings = words.iter().map(|word| (*word).into()).collect();
    AttributeProto { strings, name: Some(name.into()), r#type: Some(AttributeType::STRINGS), ..Default::default() }
}

/// Runs a bidirectional layer from given states, and compares all outputs with the formulas.
fn check(operator: &str, gates: usize, mut attributes: Vec<AttributeProto>, has_peepholes: bool) {
    let (name, has_cells) = (&operator[..operator.find(' ').unwrap_or(operator.len())], operator.starts_with("LSTM"));
    let x = tensor(&[STEPS, IMAGES, INPUTS], 1);
    let (w, r) = (tensor(&[2, gates * HIDDEN, INPUTS], 2), tensor(&[2, gates * HIDDEN, HIDDEN], 3));
    let (b, p) = (tensor(&[2, 2 * gates * HIDDEN], 4), tensor(&[2, 3 * HIDDEN], 5));
    let starts = [tensor(&[2, IMAGES, HIDDEN], 6), tensor(&[2, IMAGES, HIDDEN], 7)];
    attributes.extend([int("hidden_size", HIDDEN as i64), word("direction", "bidirectional")]);

    let mut model = Model::new(17).input("x", x.shape());
    for (name, constant) in ["w", "r", "b", "p", "h0", "c0"].iter().zip([&w, &r, &b, &p, &starts[0], &starts[1]]) {
        model = model.constant(name, constant);
    }
    let inputs = match (has_cells, has_peepholes) {
        (false, _) => "x w r b _ h0",
        (true, false) => "x w r b _ h0 c0",
        (true, true) => "x w r b _ h0 c0 p",
    };
    model = model.node(name, inputs, if has_cells { "y h c" } else { "y h" }, attributes).output("y").output("h");
    if has_cells {
        model = model.output("c");
    }
    let graph = rewrite(&model.import().unwrap()).unwrap();
    assert!(!Cut::of(&graph).steps.iter().any(|step| matches!(step.work, StepWork::Interpret(_))), "{operator}");
    let found: Vec<Vec<f64>> = graph.evaluate(std::slice::from_ref(&x)).unwrap().iter().map(doubles).collect();

    let x = doubles(&x);
    let near = |found: f64, wanted: f64, what: &str| {
        assert!((found - wanted).abs() < 1e-5, "{operator}, {what}: {found}, not {wanted}");
    };
    for (direction, image) in (0..2).flat_map(|direction| (0..IMAGES).map(move |image| (direction, image))) {
        let half = |all: &Tensor| doubles(all)[direction * all.to_numbers().len() / 2..].to_vec();
        let p = if has_peepholes { half(&p) } else { vec![0.0; 3 * HIDDEN] };
        let weights = Weights { w: half(&w)[..gates * HIDDEN * INPUTS].to_vec(), r: half(&r), b: half(&b), p };
        let at = (direction * IMAGES + image) * HIDDEN;
        let start = |number: usize| doubles(&starts[number])[at..at + HIDDEN].to_vec();
        let mut states = [start(0), start(1)];
        for number in 0..STEPS {
            let place = if direction == 1 { STEPS - 1 - number } else { number };
            let own = &x[(place * IMAGES + image) * INPUTS..][..INPUTS];
            states = step(operator, &weights, own, [&states[0], &states[1]]);
            let of_step = &found[0][((place * 2 + direction) * IMAGES + image) * HIDDEN..];
            states[0].iter().zip(of_step).for_each(|(&wanted, &found)| near(found, wanted, "outputs"));
        }
        for (number, states) in states.iter().enumerate().take(found.len() - 1) {
            let last = &found[number + 1][at..];
            states.iter().zip(last).for_each(|(&wanted, &found)| near(found, wanted, "last states"));
        }
    }
}

#[test]
fn layers_compute_what_their_formulas_say() {
    check("RNN", 1, vec![], false);
    check("RNN of relu", 1, vec![words("activations", &["Relu", "relu"])], false);
    check("GRU", 3, vec![words("activations", &["Sigmoid", "Tanh", "Sigmoid", "Tanh"])], false);
    check("GRU that resets products", 3, vec![int("linear_before_reset", 1)], false);
    check("LSTM", 4, vec![], false);
    check("LSTM with peepholes", 4, vec![], true);
}

/// Each sequence of a batch is computed as if it was alone; lengths are constants or data.
#[test]
fn sequences_have_their_own_lengths() {
    const LENGTHS: [usize; IMAGES] = [2, STEPS];
    for (operator, gates, outputs) in [("RNN", 1, "y h"), ("GRU", 3, "y h"), ("LSTM", 4, "y h c")] {
        let (w, r) = (tensor(&[2, gates * HIDDEN, INPUTS], 1), tensor(&[2, gates * HIDDEN, HIDDEN], 2));
        let model = |shape: &[usize], inputs: &str| {
            let model = Model::new(17).input("x", shape).constant("w", &w).constant("r", &r);
            let model = model.node(operator, inputs, outputs, vec![word("direction", "bidirectional")]);
            outputs.split(' ').fold(model, Model::output)
        };
        let numbers = |tensors: Vec<Tensor>| tensors.iter().map(Tensor::to_numbers).collect::<Vec<_>>();
        let (x, lengths) = (tensor(&[STEPS, IMAGES, INPUTS], 3), i64s(&LENGTHS.map(|length| length as i64)));
        let known = model(x.shape(), "x w r _ lengths").constant("lengths", &lengths);
        let mut given = model(x.shape(), "x w r _ lengths");
        let dims = vec![Dimension { dim_value: Some(IMAGES as i64), dim_param: None }];
        given.graph().input.push(info("lengths", DataType::INT32, dims));
        let found = numbers(known.run(std::slice::from_ref(&x)));
        assert_eq!(found, numbers(given.run(&[x.clone(), lengths])), "{operator}");

        for (image, length) in LENGTHS.into_iter().enumerate() {
            let all = x.to_numbers();
            let steps = all.chunks_exact(INPUTS).skip(image).step_by(IMAGES).take(length);
            let own = Tensor::f32(&[length, 1, INPUTS], steps.flatten().copied().collect()).unwrap();
            let mut alone = numbers(model(own.shape(), "x w r").run(&[own]));
            alone[0].resize(STEPS * 2 * HIDDEN, 0.0);
            for (found, alone) in found.iter().zip(&alone) {
                let found: Vec<&[f32]> = found.chunks_exact(HIDDEN).skip(image).step_by(IMAGES).collect();
                let alone: Vec<&[f32]> = alone.chunks_exact(HIDDEN).collect();
                assert_eq!(found, alone, "{operator}, sequence {image}");
            }
        }
    }
}

#[test]
fn unsupported_recurrent_layers_are_refused() {
    let model = |operator: &str, inputs: &str, attributes: Vec<AttributeProto>| {
        let (w, r) = (tensor(&[1, 3 * HIDDEN, INPUTS], 1), tensor(&[1, 3 * HIDDEN, HIDDEN], 2));
        let model = Model::new(17).input("x", &[STEPS, IMAGES, INPUTS]).constant("w", &w).constant("r", &r);
        let model = model.constant("b", &tensor(&[1, 3 * HIDDEN], 3));
        model.node(operator, inputs, "y", attributes).output("y").import().map(drop).unwrap_err().to_string()
    };
    for (error, wanted) in [
        (model("GRU", "x w r b", vec![]), "node 'gru' (GRU): input 3: unexpected shape [1, 12]"),
        (model("GRU", "x w r b b b b", vec![]), "node 'gru' (GRU): 7 inputs; at most 6 are supported"),
        (
            model("GRU", "x w r", vec![words("activations", &["Affine", "Tanh"])]),
            "node 'gru' (GRU): attribute 'activations': expected Sigmoid, Tanh or Relu",
        ),
        (
            model("GRU", "x w r", vec![words("activations", &["Tanh"])]),
            "node 'gru' (GRU): attribute 'activations': 1 activations do not match 1 direction(s)",
        ),
        (
            model("RNN", "x w r", vec![]),
            "node 'rnn' (RNN): weights [1, 12, 3] and [1, 12, 4] do not match inputs [5, 2, 3] in 1 direction(s)",
        ),
    ] {
        assert_eq!(error, wanted);
    }
}
