//! Recurrent layers, unrolled into nodes for each time step.

use autotune_workloads::Activation;

use super::binary::Binary;
use super::choose::Where;
use super::concat::Concat;
use super::matmul::MatMul;
use super::prelude::*;
use super::quantise::{Dequantize, quantised_in_its_range};
use crate::onnx::call::Result;
use crate::onnx::error::unfit;
use crate::onnx::{LAYER_LENGTHS, MICROSOFT, ROUNDED_INPUTS};

mod cell;

use cell::{Cell, CellKind};

pub(super) static IMPORTS: &[OnnxOperator] = &[
    OnnxOperator::many("LSTM", |call, _| lstm(call, None)),
    OnnxOperator::many("GRU", |call, _| gru(call)),
    OnnxOperator::many("RNN", |call, _| layer(call, CellKind::Plain, None)),
    OnnxOperator::many("DynamicQuantizeLSTM", |call, _| of_bytes(call)).in_domain(MICROSOFT).of_bytes(),
];

fn lstm(call: &mut Call, integers: Option<[ImportValue; 3]>) -> Result<Vec<ImportValue>> {
    if call.flag("input_forget", false)? {
        return Err(attribute("input_forget", "is not supported"));
    }
    layer(call, CellKind::LongShort, integers)
}

fn gru(call: &mut Call) -> Result<Vec<ImportValue>> {
    let resets_product = call.flag("linear_before_reset", false)?;
    layer(call, CellKind::Gated { resets_product }, None)
}

/// Imports a layer of ONNX Runtime with weights of 8 bits. Inputs and states are quantised, as
/// there: the inputs of all time steps at once, and so before a layer in parts, and the state in
/// each.
fn of_bytes(call: &mut Call) -> Result<Vec<ImportValue>> {
    call.check_most(12)?;
    let integers = [call.operand(2)?, call.operand(10)?, call.operand(11)?];
    let w = weights_of_bytes(call, [1, 8, 9])?;
    let r = weights_of_bytes(call, [2, 10, 11])?;
    let mut x = call.operand(0)?;
    if !call.flag(ROUNDED_INPUTS, false)? {
        let quantised = quantised_in_its_range(call, x)?;
        x = call.add(Dequantize { axis: 0 }, &quantised)?;
    }
    let mut operands = vec![Some(x), Some(w), Some(r)];
    operands.extend((3..8).map(|input| call.optional(input)));
    let _ = call.given(operands);
    lstm(call, Some(integers))
}

/// Adds weights `[directions, gates, inputs]` from integers `[directions, inputs, gates]` with
/// scale and zero point of a direction, or of each gate.
fn weights_of_bytes(call: &mut Call, [weights, scale, zero]: [usize; 3]) -> Result<ImportValue> {
    let [weights, scale, zero] = [weights, scale, zero].map(|input| {
        let number = call.operand(input)?;
        call.cast(DType::F32, number)
    });
    let [scale, zero] = [scale?, zero?].map(|x| match call.shape(x)[..] {
        [directions] => call.reshape(&[directions, 1, 1], x),
        [directions, gates] => call.reshape(&[directions, 1, gates], x),
        ref shape => unfit(format!("scales or zero points of shape {shape:?}; expected one or two axes")),
    });
    let steps = call.binary(Binary::Sub, weights?, zero?)?;
    let numbers = call.binary(Binary::Mul, steps, scale?)?;
    match call.rank(numbers) {
        3 => call.transpose(&[0, 2, 1], numbers),
        _ => unfit(format!("weights of shape {:?}; expected three axes", call.shape(numbers))),
    }
}

/// Extents of a layer's states, `[images, hidden]`.
#[derive(Clone, Copy)]
struct Sizes {
    images: usize,
    hidden: usize,
}

impl Sizes {
    /// Reads the sizes of a layer with inputs `[steps, images, inputs]`; fails if the operands do
    /// not fit each other.
    fn of(call: &Call, kind: CellKind, x: ImportValue, [w, r]: [ImportValue; 2], directions: usize) -> Result<Self> {
        let [x, w, r] = [x, w, r].map(|value| call.shape(value));
        let (&[steps, images, inputs], &[_, _, hidden]) = (&x[..], &r[..]) else {
            return unfit(format!("expected three axes each, found inputs {x:?} and recurrent weights {r:?}"));
        };
        let rows = hidden.checked_mul(kind.gates()).unwrap_or(0);
        let wanted = [[directions, rows, inputs], [directions, rows, hidden]];
        if w != wanted[0] || r != wanted[1] {
            return unfit(format!("weights {w:?} and {r:?} do not match inputs {x:?} in {directions} direction(s)"));
        }
        if x.contains(&0) || hidden == 0 {
            return unfit(format!("inputs of shape {x:?} and {hidden} hidden units; empty tensors are not supported"));
        }
        let most = call.draft.max_unrolled();
        if steps > most {
            return Err(NodeError::TooLong { steps, most });
        }
        if call.int("hidden_size")?.is_some_and(|size| size != hidden as i64) {
            return Err(attribute("hidden_size", format!("the weights have {hidden}")));
        }
        Ok(Self { images, hidden })
    }
}

/// Returns whether a sequence has a time step, `[steps, images, 1]`, unless all have all.
fn within(call: &mut Call, steps: usize, images: usize) -> Result<Option<ImportValue>> {
    let Some(lengths) = call.optional(LAYER_LENGTHS) else { return Ok(None) };
    let wrong = |reason: String| Err(NodeError::Input { input: LAYER_LENGTHS, reason });
    let shape = call.shape(lengths);
    if shape[..] != [images] {
        return wrong(format!("unexpected shape {shape:?}"));
    }
    if call.constant_of(lengths).is_some() {
        let known = call.known_integers(LAYER_LENGTHS)?.unwrap_or_default();
        if known.iter().all(|&length| length == steps as i64) {
            return Ok(None);
        }
        if let Some(length) = known.iter().find(|length| !(0..=steps as i64).contains(length)) {
            return wrong(format!("a length of {length}, expected 0 to {steps}"));
        }
    }
    let places = call.positions(0, steps, [0, 3])?;
    let lengths = call.reshape(&[images, 1], lengths)?;
    call.binary(Binary::Less, places, lengths).map(Some)
}

/// Returns for each direction whether it runs from the last time step to the first.
fn directions(call: &Call) -> Result<&'static [bool]> {
    match call.word_or("direction", "forward")? {
        "forward" => Ok(&[false]),
        "reverse" => Ok(&[true]),
        "bidirectional" => Ok(&[false, true]),
        _ => Err(attribute("direction", "expected forward, reverse or bidirectional")),
    }
}

/// Returns the activations of a layer, those of the second direction after those of the first.
fn activations(call: &Call, kind: CellKind, directions: usize) -> Result<Vec<Activation>> {
    let defaults = kind.activations();
    let Some(words) = call.words("activations")? else { return Ok(defaults.repeat(directions)) };
    if words.len() != directions * defaults.len() {
        return Err(attribute(
            "activations",
            format!("{} activations do not match {directions} direction(s)", words.len()),
        ));
    }
    let read = |word: &str| match &*word.to_ascii_lowercase() {
        "sigmoid" => Ok(Activation::Sigmoid),
        "tanh" => Ok(Activation::Tanh),
        "relu" => Ok(Activation::Relu),
        _ => Err(attribute("activations", "expected Sigmoid, Tanh or Relu")),
    };
    words.into_iter().map(read).collect()
}

/// Imports a layer. Its outputs are the outputs of all time steps, the last state, and for LSTM the
/// last cell state. `integers` are weights of the states, `[directions, hidden, gates * hidden]`,
/// with their scales and zero points for each direction, in place of the second operand.
fn layer(call: &mut Call, kind: CellKind, integers: Option<[ImportValue; 3]>) -> Result<Vec<ImportValue>> {
    call.check_most(kind.inputs())?;
    let (mut x, images_first) = (call.operand(0)?, call.flag("layout", false)?);
    // With `layout` = 1 the batch is the first axis.
    if images_first && call.rank(x) == 3 {
        x = call.transpose(&[1, 0, 2], x)?;
    }
    let (weights, directions) = ([call.operand(1)?, call.operand(2)?], directions(call)?);
    let sizes = Sizes::of(call, kind, x, weights, directions.len())?;
    let Sizes { images, hidden } = sizes;
    let steps = call.shape(x)[0];
    let within = within(call, steps, images)?;
    let activations = activations(call, kind, directions.len())?;
    let of_direction = activations.chunks_exact(kind.activations().len());

    // The last states of each direction follow the outputs of all time steps.
    let (mut all, mut last) = (Vec::new(), vec![Vec::new(); kind.states().len()]);
    for (direction, (&is_backwards, activations)) in directions.iter().zip(of_direction).enumerate() {
        let cell = Cell::of(call, kind, hidden, direction, activations, integers)?;
        let starts = kind.states().iter().map(|&input| start(call, input, sizes, direction, images_first));
        let mut states = starts.collect::<Result<Vec<ImportValue>>>()?;
        let outputs = run(call, &cell, x, &mut states, is_backwards, within)?;
        // Outputs in ONNX are `[steps, directions, images, hidden]`.
        let rows = outputs.into_iter().map(|output| call.reshape(&[1, 1, images, hidden], output));
        let rows = rows.collect::<Result<Vec<ImportValue>>>()?;
        let mut rows = joined(call, 0, &rows)?;
        // Beyond the end of a sequence, outputs are zeros.
        if let Some(within) = within {
            let within = call.reshape(&[steps, 1, images, 1], within)?;
            let zero = call.number(0.0, rows)?;
            rows = call.add(Where, &[within, rows, zero])?;
        }
        all.push(rows);
        for (last, state) in last.iter_mut().zip(states) {
            last.push(call.reshape(&[1, images, hidden], state)?);
        }
    }

    let mut outputs = vec![joined(call, 1, &all)?];
    for states in last {
        outputs.push(joined(call, 0, &states)?);
    }
    // With `layout` = 1 the batch is the first axis of outputs and states, too.
    if images_first {
        outputs[0] = call.transpose(&[2, 0, 1, 3], outputs[0])?;
        for state in &mut outputs[1..] {
            *state = call.transpose(&[1, 0, 2], *state)?;
        }
    }
    Ok(outputs)
}

fn joined(call: &mut Call, axis: usize, parts: &[ImportValue]) -> Result<ImportValue> {
    match parts {
        [only] => Ok(*only),
        _ => call.add(Concat { axis }, parts),
    }
}

/// Returns the outputs of all time steps in sequence order; `states` is updated to the last ones.
/// States stay the same in time steps that a sequence does not have.
fn run(
    call: &mut Call,
    cell: &Cell,
    x: ImportValue,
    states: &mut [ImportValue],
    backwards: bool,
    within: Option<ImportValue>,
) -> Result<Vec<ImportValue>> {
    let (steps, images) = (call.shape(x)[0], call.shape(x)[1]);
    // The gates' products with all inputs are independent of the state: one product for all time
    // steps.
    let rows = call.reshape(&[steps * images, call.shape(x)[2]], x)?;
    let mut gates = call.add(MatMul, &[rows, cell.of_input])?;
    if let Some(bias) = cell.bias {
        gates = call.binary(Binary::Add, gates, bias)?;
    }

    let mut outputs = vec![x; steps];
    for step in 0..steps {
        let place = if backwards { steps - 1 - step } else { step };
        let of_input = call.part(gates, 0, [place * images, images])?;
        let before = states.to_vec();
        cell.step(call, of_input, states)?;
        if let Some(within) = within {
            let within = cell::one(call, within, place)?;
            for (state, before) in states.iter_mut().zip(before) {
                *state = call.add(Where, &[within, *state, before])?;
            }
        }
        outputs[place] = states[0];
    }
    Ok(outputs)
}

/// Returns a direction's initial state, `[images, hidden]`: zeros if the input is absent.
fn start(call: &mut Call, input: usize, sizes: Sizes, direction: usize, images_first: bool) -> Result<ImportValue> {
    let Sizes { images, hidden } = sizes;
    let Some(mut given) = call.optional(input) else {
        return call.filled(&Tensor::scalar(0.0).into(), &[images, hidden]);
    };
    if images_first && call.rank(given) == 3 {
        given = call.transpose(&[1, 0, 2], given)?;
    }
    match call.shape(given)[..] {
        [directions, n, h] if direction < directions && [n, h] == [images, hidden] => cell::one(call, given, direction),
        ref shape => Err(NodeError::Input { input, reason: format!("unexpected shape {shape:?}") }),
    }
}
