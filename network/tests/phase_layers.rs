//! Recurrent layers in parts, compared with the same layers as one graph.

use autotune_network::{DType, Session, SessionOptions, Tensor, onnx};
use rten_onnx::onnx::DataType;

use crate::build::{Model, difference, i64s, word};
use crate::family::random;
use crate::phases::{open, session};
use crate::session::options;

const HIDDEN: usize = 5;

/// A recurrent layer, with the number of its gates and states.
#[derive(Clone, Copy, Debug)]
struct RecurrentLayer {
    operator: &'static str,
    direction: &'static str,
    gates: usize,
    states: usize,
    /// True if the sequences have lengths of their own.
    is_ragged: bool,
}

impl RecurrentLayer {
    fn directions(self) -> usize {
        if self.direction == "bidirectional" { 2 } else { 1 }
    }

    /// Returns the model of the layer. Its inputs are the sequences, their lengths and the states.
    fn model(self) -> Model {
        let Self { operator, direction, gates, states, is_ragged } = self;
        let (count, rows) = (self.directions(), gates * HIDDEN);
        let mut model = Model::new(14).constant("b", &random(&[count, 2 * rows], 3));
        model.graph().input.push(open("x", DataType::FLOAT, &[0, 0, 3]));
        if is_ragged {
            model.graph().input.push(open("lengths", DataType::INT64, &[0]));
        }
        let names = &["h", "c"][..states];
        model.graph().input.extend(names.iter().map(|name| open(name, DataType::FLOAT, &[0, 0, 0])));

        let mut model = match operator == "DynamicQuantizeLSTM" {
            true => {
                let weights = |shape: &[usize], seed: u64| {
                    let numbers: Vec<f32> =
                        random(shape, seed).to_numbers().iter().map(|x| (x * 99.0).trunc()).collect();
                    Tensor::of_numbers(shape, DType::I8, &numbers).unwrap()
                };
                let model = model.constant("w", &weights(&[count, 3, rows], 1));
                let model = model.constant("r", &weights(&[count, HIDDEN, rows], 2));
                let model = model.constant("scale", &Tensor::f32(&[count], vec![0.01; count]).unwrap());
                model.constant("zero", &Tensor::of_numbers(&[count], DType::I8, &vec![2.0; count]).unwrap())
            }
            false => {
                let model = model.constant("w", &random(&[count, rows, 3], 1));
                model.constant("r", &random(&[count, rows, HIDDEN], 2))
            }
        };
        let lengths = if is_ragged { "lengths" } else { "_" };
        let scales = if operator == "DynamicQuantizeLSTM" { "_ scale zero scale zero" } else { "" };
        let inputs = format!("x w r b {lengths} {} {scales}", names.join(" "));
        let outputs = &["y", "h2", "c2"][..=states];
        model = model.node(operator, &inputs, &outputs.join(" "), vec![word("direction", direction)]);
        if !scales.is_empty() {
            model.graph().node[0].domain = Some("com.microsoft".into());
        }
        outputs.iter().fold(model, |model, output| model.output(output))
    }

    /// Returns the inputs for sequences of some lengths, the longest of which is `steps`.
    fn inputs(self, steps: usize, lengths: &[i64]) -> Vec<Tensor> {
        let images = lengths.len();
        let mut inputs = vec![random(&[steps, images, 3], 4)];
        inputs.extend(self.is_ragged.then(|| i64s(lengths)));
        inputs.extend((0..self.states).map(|state| random(&[self.directions(), images, HIDDEN], 5 + state as u64)));
        inputs
    }
}

const LAYERS: [RecurrentLayer; 4] = {
    let forward = RecurrentLayer { operator: "GRU", direction: "forward", gates: 3, states: 1, is_ragged: true };
    [
        forward,
        RecurrentLayer { operator: "LSTM", direction: "bidirectional", gates: 4, states: 2, ..forward },
        RecurrentLayer { operator: "RNN", direction: "reverse", gates: 1, ..forward },
        RecurrentLayer {
            operator: "DynamicQuantizeLSTM",
            direction: "bidirectional",
            gates: 4,
            states: 2,
            is_ragged: false,
        },
    ]
};

/// Opens a model for the shapes of some inputs only, so that layers become nodes.
fn fixed(model: &Model, inputs: &[Tensor]) -> Session {
    let model = onnx::Model::of_vec(model.bytes()).unwrap();
    let shape = |tensor: &Tensor| {
        let extents: Vec<String> = tensor.shape().iter().map(ToString::to_string).collect();
        extents.join("x").parse().unwrap()
    };
    let names: Vec<String> = model.inputs().unwrap().into_iter().map(|input| input.name).collect();
    let shapes = names.into_iter().zip(inputs.iter().map(shape)).collect();
    Session::of_model(model, SessionOptions { shapes, ..options() }).unwrap()
}

/// The third shape of a session, and others after it, run in parts.
#[test]
fn layers_in_parts_compute_the_same_as_nodes() {
    for layer in LAYERS {
        let model = layer.model();
        let session = session(&model).unwrap();
        for steps in [9, 10, 75, 32, 64, 11] {
            let (all, half) = (steps as i64, steps as i64 / 2);
            for lengths in [&[all][..], &[half], &[all, half, 0, all], &[half, half]] {
                if !layer.is_ragged && lengths.iter().any(|&length| length != all) {
                    continue;
                }
                let inputs = layer.inputs(steps, lengths);
                let wanted = fixed(&model, &inputs).run(&inputs).unwrap();
                let found = session.run(&inputs).unwrap();
                // Numbers halfway between two integers may be rounded to either.
                let most = if layer.operator == "DynamicQuantizeLSTM" { 3e-3 } else { 1e-5 };
                for (found, wanted) in found.iter().zip(&wanted) {
                    assert_eq!(difference(found, wanted, most, most), None, "{layer:?}: {steps}, {lengths:?}");
                }
            }
        }
        assert!(!session.phases().is_empty(), "{layer:?} did not run in parts");
    }
}

/// Parts of sequences have few lengths, so that most shapes need no new network.
#[test]
fn shapes_share_the_networks_of_parts() {
    let layer = RecurrentLayer { is_ragged: false, ..LAYERS[0] };
    let session = session(&layer.model()).unwrap();
    for steps in 1..=200 {
        session.run(&layer.inputs(steps, &[steps as i64])).unwrap();
    }
    let of_parts = session.phases().len();
    // The interpreter computes the shortest.
    assert!((1..=6).contains(&of_parts), "{of_parts} networks");
}

/// Layers of more steps than become nodes in any case.
#[test]
fn long_layers_run_in_parts() {
    for layer in LAYERS {
        let model = layer.model();
        let session = session(&model).unwrap();
        let steps = 300;
        let inputs = layer.inputs(steps, &[steps as i64, 290]);
        let found = session.run(&inputs).unwrap();
        let wanted = session.run_reference(&inputs).unwrap();
        let most = if layer.operator == "DynamicQuantizeLSTM" { 3e-3 } else { 1e-5 };
        for (found, wanted) in found.iter().zip(&wanted) {
            assert_eq!(difference(found, wanted, 10.0 * most, most), None, "{layer:?}");
        }
    }
}

/// The states of parts are those of the whole sequence, in all directions.
#[test]
fn long_recurrent_layers_run_in_parts() {
    for direction in ["forward", "reverse", "bidirectional"] {
        let layer = RecurrentLayer { operator: "LSTM", direction, gates: 4, states: 2, is_ragged: false };
        let (model, steps) = (layer.model(), 300);
        let [x, states @ ..] = &layer.inputs(steps, &[0, 0])[..] else { panic!("no inputs") };
        let whole = session(&model).unwrap().run(&layer.inputs(steps, &[0, 0])).unwrap();
        assert_eq!(whole[0].shape(), [steps, layer.directions(), 2, HIDDEN]);
        if layer.directions() == 2 {
            continue;
        }

        // Halves are short enough to be unrolled: the other way of computing the same.
        let half = |at: usize| Tensor::f32(&[150, 2, 3], x.to_numbers()[at * 900..][..900].to_vec()).unwrap();
        let run = |at: usize, states: &[Tensor]| {
            let inputs = [&[half(at)], states].concat();
            fixed(&model, &inputs).run(&inputs).unwrap()
        };
        let order = if direction == "forward" { [0, 1] } else { [1, 0] };
        let first = run(order[0], states);
        let second = run(order[1], &first[1..]);
        for (found, wanted) in whole[1..].iter().zip(&second[1..]) {
            assert_eq!(difference(found, wanted, 1e-5, 1e-5), None, "{direction}");
        }
        let parts = if direction == "forward" { [&first[0], &second[0]] } else { [&second[0], &first[0]] };
        let joined = Tensor::f32(whole[0].shape(), [parts[0].to_numbers(), parts[1].to_numbers()].concat()).unwrap();
        assert_eq!(difference(&whole[0], &joined, 1e-5, 1e-5), None, "{direction}");
    }
}

#[test]
fn lengths_outside_of_the_sequence_are_refused() {
    let layer = LAYERS[0];
    let session = session(&layer.model()).unwrap();
    for lengths in [[301, 1], [-1, 1]] {
        let reason = session.run(&layer.inputs(300, &lengths)).unwrap_err().to_string();
        assert!(reason.ends_with("expected lengths of 2 sequences, each from 0 to 300"), "{reason}");
    }
}
