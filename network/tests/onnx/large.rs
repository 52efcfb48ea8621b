//! Files with tens of thousands of nodes, inputs and outputs take time proportional to their size.

use autotune_ir::Target;
use autotune_network::{Compiled, Tensor, rewrite, tasks};

use crate::build::{Model, int};
use crate::long::or_long;

/// Returns the number of nodes, inputs or outputs.
fn many() -> usize {
    or_long([20_000, 50_000])
}

/// Runs a network on inputs of one element each; quadratic time would take minutes.
fn run(model: &Model, inputs: usize) -> Vec<Tensor> {
    let graph = rewrite(&model.import().unwrap()).unwrap();
    let target = Target::detect("cpu", Some(1)).unwrap();
    assert!(tasks([&graph], &target).len() < 10);
    let network = Compiled::new(&graph, None, &target).unwrap();
    let beside = network.untuned_sharing(&target).unwrap();
    assert_eq!(beside.schedules().len(), network.schedules().len());
    let mut workspace = network.workspace().unwrap();
    let brought = |number: usize| Tensor::f32(&[1], vec![(number % 7) as f32 - 3.0]).unwrap();
    workspace.run_tensors(&(0..inputs).map(brought).collect::<Vec<_>>()).unwrap()
}

fn names(word: &str) -> Vec<String> {
    (0..many()).map(|number| format!("{word}{number}")).collect()
}

#[test]
fn one_tensor_again_and_again() {
    let all = vec!["x"; many()].join(" ");
    let by = |operator: &str, attributes| {
        let model = Model::new(17).input("x", &[1]).node(operator, &all, "y", attributes).output("y");
        run(&model, 1).remove(0).to_numbers()
    };
    assert_eq!(by("Concat", vec![int("axis", 0)]), vec![-3.0; many()]);
    assert_eq!(by("Sum", vec![]), [-3.0 * many() as f32]);
    assert_eq!(by("Max", vec![]), [-3.0]);
}

#[test]
fn many_inputs() {
    let inputs = names("x");
    let by = |operator: &str, attributes| {
        let model = inputs.iter().fold(Model::new(17), |model, name| model.input(name, &[1]));
        run(&model.node(operator, &inputs.join(" "), "y", attributes).output("y"), many()).remove(0).to_numbers()
    };
    let wanted: Vec<f32> = (0..many()).map(|number| (number % 7) as f32 - 3.0).collect();
    assert_eq!(by("Sum", vec![]), [wanted.iter().sum::<f32>()]);
    assert_eq!(by("Concat", vec![int("axis", 0)]), wanted);
}

#[test]
fn many_constants() {
    let (constants, outputs) = (names("c"), names("y"));
    let one = Tensor::f32(&[1], vec![1.0]).unwrap();
    let model = constants.iter().fold(Model::new(17).input("x", &[1]), |model, name| model.constant(name, &one));
    let model = constants.iter().zip(&outputs).fold(model, |model, (constant, output)| {
        model.node("Add", &format!("x {constant}"), output, vec![]).output(output)
    });
    assert!(run(&model, 1).iter().all(|tensor| tensor.to_numbers() == [-2.0]));
}

#[test]
fn many_nodes_and_outputs() {
    let outputs = names("y");
    let model = Model::new(17).input("x", &[1]);
    let model = outputs.iter().fold(model, |model, name| model.node("Neg", "x", name, vec![]).output(name));
    assert!(run(&model, 1).iter().all(|tensor| tensor.to_numbers() == [3.0]));

    // Each tensor is a part of the previous one.
    let chain = names("t");
    let mut model = Model::new(17).input("x", &[1]).node("Neg", "x", &chain[0], vec![]);
    for (number, pair) in chain.windows(2).enumerate() {
        let operator = ["Relu", "Flatten", "Neg"][number % 3];
        model = model.node(operator, &pair[0], &pair[1], vec![]);
    }
    let last = run(&model.output(&chain[many() - 1]), 1);
    assert_eq!(last[0].to_numbers().len(), 1);
}
