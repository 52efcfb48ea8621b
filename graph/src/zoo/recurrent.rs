//! Recurrent networks from elementary operations.

use autotune_ir::DType;
use autotune_workloads::Activation;

use crate::builder::{Builder, Fill, Value};

const VOCABULARY: usize = 10_000;
const WIDTH: usize = 650;

/// Adds a language model for the Penn Treebank with two layers: one time step, whose states are
/// inputs and outputs.
pub(super) fn lstm(net: &Builder) {
    let token = net.input_of("token", DType::I64, &[1]);
    let mut x = net.weight("embedding", &[VOCABULARY, WIDTH], Fill::deviation(1.0)).gather(token);

    for layer in ["layer0", "layer1"] {
        let [hidden, cell] = ["h", "c"].map(|state| net.input(&format!("{layer}.{state}"), &[1, WIDTH]));
        let (next, cell) = lstm_cell(x, hidden, cell, layer);
        net.output(&format!("{layer}.next_h"), next);
        net.output(&format!("{layer}.next_c"), cell);
        x = next;
    }
    net.output("logits", x.linear("fc", VOCABULARY));
}

/// Returns the next output and the next cell state.
fn lstm_cell<'b>(x: Value<'b>, hidden: Value<'b>, cell: Value<'b>, name: &str) -> (Value<'b>, Value<'b>) {
    let of_hidden = hidden.linear(&format!("{name}.hidden"), 4 * WIDTH);
    let gates = x.linear(&format!("{name}.input"), 4 * WIDTH) + of_hidden;
    let gate = |number: usize, activation| gates.slice(1, number * WIDTH..(number + 1) * WIDTH).activation(activation);
    let (write, forget) = (gate(0, Activation::Sigmoid), gate(1, Activation::Sigmoid));
    let (candidate, output) = (gate(2, Activation::Tanh), gate(3, Activation::Sigmoid));

    let cell = forget * cell + write * candidate;
    (output * cell.activation(Activation::Tanh), cell)
}
