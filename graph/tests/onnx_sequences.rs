//! Imported sequences of tensors.

use std::mem::take;

use autotune_graph::Tensor;
use rand::RngExt;

use crate::build::{Model, f32s, i64s, int};
use crate::common::{numbers, rng};

fn scalar(number: i64) -> Tensor {
    Tensor::i64(&[], vec![number]).unwrap()
}

/// Returns rows of a matrix with three columns.
fn rows(matrix: &Tensor, range: std::ops::Range<usize>) -> Tensor {
    f32s(&[range.len(), 3], &matrix.to_numbers()[range.start * 3..range.end * 3])
}

#[test]
fn parts_of_a_tensor_are_elements() {
    let x = numbers(&mut rng(1), &[5, 3]);
    let model = || Model::new(17).input("x", &[5, 3]).constant("first", &scalar(0)).constant("last", &scalar(-1));
    let ends = |model: Model| {
        let model = model.node("SequenceAt", "s first", "a", vec![]).node("SequenceAt", "s last", "b", vec![]);
        model.node("SequenceLength", "s", "n", vec![]).output("a").output("b").output("n").run(std::slice::from_ref(&x))
    };

    // Parts of one size, the last of which is smaller; parts of given sizes; slices.
    let split = model().constant("size", &scalar(2)).node("SplitToSequence", "x size", "s", vec![int("axis", -2)]);
    assert_eq!(ends(split), [rows(&x, 0..2), rows(&x, 4..5), scalar(3)]);
    let split = model().constant("sizes", &i64s(&[1, 0, 4])).node("SplitToSequence", "x sizes", "s", vec![]);
    assert_eq!(ends(split), [rows(&x, 0..1), rows(&x, 1..5), scalar(3)]);
    let slices = model().node("SplitToSequence", "x", "s", vec![]);
    assert_eq!(ends(slices), [rows(&x, 0..1), rows(&x, 4..5), scalar(5)]);
    let slices = model().node("SplitToSequence", "x", "s", vec![int("keepdims", 0), int("axis", 1)]);
    let column = |column: usize| f32s(&[5], &x.to_numbers().into_iter().skip(column).step_by(3).collect::<Vec<_>>());
    assert_eq!(ends(slices), [column(0), column(2), scalar(3)]);
}

/// Random programs on sequences compute what lists of tensors do.
#[test]
fn random_programs_are_those_of_lists() {
    for seed in 0..200 {
        let mut any = rng(seed);
        let inputs: Vec<Tensor> = (0..3).map(|_| numbers(&mut any, &[1, 3])).collect();
        let mut model = (0..3).fold(Model::new(17), |model, number| model.input(&format!("x{number}"), &[1, 3]));
        let mut list: Vec<Tensor> = Vec::new();
        model = match any.random_bool(0.5) {
            true => model.node("SequenceEmpty", "", "s0", vec![]),
            false => {
                list = inputs.clone();
                model.node("SequenceConstruct", "x0 x1 x2", "s0", vec![])
            }
        };

        for step in 0..8 {
            let (from, to, at) = (format!("s{step}"), format!("s{}", step + 1), format!("p{step}"));
            let count = list.len() as i64;
            let states_position = any.random_bool(0.7);
            match any.random_range(0..3) {
                0 if count > 0 => {
                    let place = any.random_range(-count..count);
                    model = match states_position {
                        true => model.constant(&at, &scalar(place)).node(
                            "SequenceErase",
                            &format!("{from} {at}"),
                            &to,
                            vec![],
                        ),
                        false => model.node("SequenceErase", &from, &to, vec![]),
                    };
                    let place = if states_position { place } else { -1 };
                    list.remove(place.rem_euclid(count) as usize);
                }
                1 => model = model.node("Identity", &from, &to, vec![]),
                _ => {
                    let which = any.random_range(0..3);
                    let place = any.random_range(-count..=count);
                    let given = format!("{from} x{which}");
                    model = match states_position {
                        true => model.constant(&at, &scalar(place)).node(
                            "SequenceInsert",
                            &format!("{given} {at}"),
                            &to,
                            vec![],
                        ),
                        false => model.node("SequenceInsert", &given, &to, vec![]),
                    };
                    let place = if !states_position || place == count { count } else { place.rem_euclid(count) };
                    list.insert(place as usize, inputs[which].clone());
                }
            }
        }

        model = model.node("SequenceLength", "s8", "n", vec![]).output("n");
        let mut wanted = vec![scalar(list.len() as i64)];
        if !list.is_empty() {
            let all: Vec<f32> = take(&mut list).iter().flat_map(Tensor::to_numbers).collect();
            model = model.node("ConcatFromSequence", "s8", "y", vec![int("axis", -2)]).output("y");
            model = model.node("ConcatFromSequence", "s8", "z", vec![int("axis", 0), int("new_axis", 1)]).output("z");
            let count = all.len() / 3;
            wanted.extend([f32s(&[count, 3], &all), f32s(&[count, 1, 3], &all)]);
        }
        assert_eq!(model.run(&inputs), wanted, "seed {seed}");
    }
}

#[test]
fn misuse_is_refused_in_one_line() {
    let model = || {
        let model = Model::new(17).input("x", &[2, 3]).constant("two", &scalar(2)).constant("no", &scalar(0));
        model.node("SequenceConstruct", "x x", "s", vec![])
    };
    let refused = |operator: &str, inputs: &str| {
        let model =
            model().node("SequenceEmpty", "", "e", vec![]).node("ReduceSum", "x", "sum", vec![int("keepdims", 0)]);
        let attributes = if operator == "ConcatFromSequence" { vec![int("axis", 0)] } else { vec![] };
        let model = model.node("Cast", "sum", "unknown", vec![int("to", 7)]);
        model.node(operator, inputs, "y", attributes).output("y").import().unwrap_err().to_string()
    };

    let of = |operator: &str, reason: &str| format!("node '{}' ({operator}): {reason}", operator.to_lowercase());
    let range = "input 1: 2 is out of range for 2 elements";
    assert_eq!(refused("SequenceAt", "s two"), of("SequenceAt", range));
    assert_eq!(refused("SequenceErase", "s two"), of("SequenceErase", range));
    assert_eq!(refused("SequenceErase", "e"), of("SequenceErase", "the sequence is empty"));
    assert_eq!(refused("ConcatFromSequence", "e"), of("ConcatFromSequence", "the sequence is empty"));
    assert_eq!(refused("SequenceAt", "x two"), of("SequenceAt", "input 0: is no sequence"));
    assert_eq!(refused("Relu", "s"), of("Relu", "'s' is a sequence, which this operator does not read"));
    assert_eq!(refused("SplitToSequence", "x no"), of("SplitToSequence", "input 1: is not positive"));
    let constant = "input 1: must be a constant, as sequences exist only before a run";
    assert_eq!(refused("SequenceAt", "s unknown"), of("SequenceAt", constant));
    assert_eq!(refused("Identity", "s"), "output 'y': is a sequence; only tensors are supported");
    let twice = model().node("SequenceConstruct", "x", "s", vec![]).node("SequenceAt", "s no", "y", vec![]).output("y");
    let reason = of("SequenceConstruct", "tensor name 's' is already in use");
    assert_eq!(twice.import().unwrap_err().to_string(), reason);
}
