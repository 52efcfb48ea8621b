//! Recurrent layers of many time steps, as repetitions of a short layer.
//!
//! A layer of one direction is the same for every part of the sequence but for its initial state,
//! so that one graph, of [`PART_STEPS`] time steps or fewer, serves all parts. Products of gates
//! with the inputs are still computed for all steps of a part at once.

use std::collections::HashMap;

use rten_onnx::onnx::{AttributeProto, AttributeType, DataType, GraphProto, NodeProto, TensorProto, ValueInfoProto};

use super::alone::find;
use super::limits::{LAYER_LENGTHS, LAYER_STATES, MICROSOFT, ROUNDED_INPUTS};
use super::nodes::is_default;
use super::phase::GraphPath;

/// Number of time steps of a part.
pub const PART_STEPS: usize = 32;

/// Inputs which directions have a part of: weights, biases and peepholes, then scales and zero
/// points of integer weights.
const OF_DIRECTION: [usize; 8] = [1, 2, 3, 7, 8, 9, 10, 11];

/// Names inside of the graphs. They contain a space, which no name of an outer tensor should.
const SEQUENCE: &str = "the sequence";

/// Returns the short layers of all recurrent nodes of a graph, and of the graphs inside.
pub(super) fn short_layers(graph: &GraphProto, version: i64) -> HashMap<GraphPath, GraphProto> {
    let mut layers = HashMap::new();
    add(graph, &GraphPath::default(), version, &mut layers);
    layers
}

fn add(graph: &GraphProto, path: &GraphPath, version: i64, layers: &mut HashMap<GraphPath, GraphProto>) {
    for (number, node) in graph.node.iter().enumerate() {
        for (attribute, inner) in node.attribute.iter().enumerate() {
            if let Some(inner) = &inner.g {
                add(inner, &path.inner(number, attribute), version, layers);
            }
        }
        if is_layer(node) {
            let directions = directions(node);
            let of = |(at, &direction)| (path.layer(number, at), short(node, at, directions.len(), direction, version));
            layers.extend(directions.iter().enumerate().map(of));
        }
    }
}

/// True for a recurrent layer.
pub(super) fn is_layer(node: &NodeProto) -> bool {
    match node.op_type.as_deref() {
        Some("LSTM" | "GRU" | "RNN") => is_default(node),
        Some("DynamicQuantizeLSTM") => node.domain.as_deref() == Some(MICROSOFT),
        _ => false,
    }
}

/// True if a layer quantises its inputs.
pub(super) fn rounds_inputs(node: &NodeProto) -> bool {
    node.op_type.as_deref() == Some("DynamicQuantizeLSTM")
}

/// Returns the directions of a layer, in the order of its weights.
pub(super) fn directions(node: &NodeProto) -> &'static [&'static str] {
    match find(node, "direction").and_then(|attribute| attribute.s.as_deref()) {
        Some("bidirectional") => &["forward", "reverse"],
        Some("reverse") => &["reverse"],
        _ => &["forward"],
    }
}

/// Returns the graph of one direction. Inputs are the sequence and the states; outputs are those of
/// the layer.
fn short(node: &NodeProto, at: usize, count: usize, direction: &str, version: i64) -> GraphProto {
    let mut graph = GraphProto::default();
    let state = |number: usize| format!("the state {number}");
    let mut inputs = Vec::new();
    for (number, name) in node.input.iter().enumerate() {
        inputs.push(match number {
            0 => SEQUENCE.into(),
            // All sequences have the length of the part.
            LAYER_LENGTHS => String::new(),
            number if OF_DIRECTION.contains(&number) && count > 1 && !name.is_empty() => {
                part(&mut graph, (number, name), at, version)
            }
            number if LAYER_STATES.contains(&number) => state(number),
            _ => name.clone(),
        });
    }
    let has_cells = node.op_type.as_deref().is_some_and(|operator| operator.ends_with("LSTM"));
    let states = if has_cells { 2 } else { 1 };
    for number in LAYER_STATES.into_iter().take(states).filter(|number| *number >= inputs.len()).collect::<Vec<_>>() {
        inputs.resize(number, String::new());
        inputs.push(state(number));
    }

    let output: Vec<String> = (0..=states).map(|number| format!("the output {number}")).collect();
    let value = |name: String| ValueInfoProto { name: Some(name), r#type: None };
    graph.input = std::iter::once(SEQUENCE.to_string())
        .chain(LAYER_STATES.into_iter().take(states).map(state))
        .map(value)
        .collect();
    graph.output = output.iter().cloned().map(value).collect();
    let own = node.attribute.iter().filter_map(|attribute| of_direction(attribute, at, count, direction));
    let rounded = AttributeProto {
        name: Some(ROUNDED_INPUTS.into()),
        r#type: Some(AttributeType::INT),
        i: Some(1),
        ..Default::default()
    };
    let attribute = own.chain(rounds_inputs(node).then_some(rounded));
    graph.node.push(NodeProto {
        name: node.name.clone(),
        op_type: node.op_type.clone(),
        domain: node.domain.clone(),
        input: inputs,
        output,
        attribute: attribute.collect(),
    });
    graph
}

/// Returns an attribute of a layer for one of its directions.
fn of_direction(attribute: &AttributeProto, at: usize, count: usize, direction: &str) -> Option<AttributeProto> {
    let mut changed = attribute.clone();
    match attribute.name.as_deref() {
        // Parts have the axes of the default layout.
        Some("layout") => return None,
        Some("direction") => changed.s = Some(direction.into()),
        Some("activations") => {
            let each = changed.strings.len() / count;
            changed.strings = changed.strings[at * each..][..each].to_vec();
        }
        _ => {}
    }
    Some(changed)
}

/// Adds the part of an input for one direction, and returns its name.
fn part(graph: &mut GraphProto, (number, name): (usize, &str), at: usize, version: i64) -> String {
    // Several inputs may be one tensor.
    let output = format!("input {number} of direction {at}");
    let mut slice = NodeProto {
        name: Some(output.clone()),
        op_type: Some("Slice".into()),
        input: vec![name.into()],
        output: vec![output.clone()],
        ..Default::default()
    };
    let ranges = [("starts", at), ("ends", at + 1), ("axes", 0)].map(|(range, number)| (range, number as i64));

    for (range, number) in ranges {
        // The range is an attribute before version 10, and inputs from then on.
        if version < 10 {
            slice.attribute.push(AttributeProto {
                name: Some(range.into()),
                r#type: Some(AttributeType::INTS),
                ints: vec![number],
                ..Default::default()
            });
            continue;
        }
        let constant = format!("{output}: {range}");
        slice.input.push(constant.clone());
        graph.initializer.push(TensorProto {
            name: Some(constant),
            dims: vec![1],
            data_type: Some(DataType::INT64),
            int64_data: vec![number],
            ..Default::default()
        });
    }
    graph.node.push(slice);
    output
}
