//! Recurrent layers, as the nodes of all their steps.

use autotune_schedules::workload::Activation;

use super::Convert::{self, Many};
use crate::onnx::NodeError;
use crate::onnx::call::{Call, Result, attribute};
use crate::onnx::draft::Value;
use crate::onnx::error::unfit;
use crate::op::{Binary, Op, Range};

pub(super) const OPERATORS: &[(&str, Convert)] = &[("LSTM", Many(|call, _| lstm(call)))];

/// Steps of a layer, at most: each becomes about twenty nodes.
const MOST_STEPS: usize = 256;

/// Weights of one direction, for rows on the left: `[inputs, 4h]`, `[h, 4h]` and perhaps `[4h]`; gates are in the order input, output, forget, cell.
struct Cell {
    of_input: Value,
    of_state: Value,
    bias: Option<Value>,
    hidden: usize,
}

/// Elements of an axis from one on.
fn part(call: &mut Call, x: Value, axis: usize, [start, count]: [usize; 2]) -> Result<Value> {
    let whole = call.shape(x).into_iter().map(|count| Range { start: 0, step: 1, count });
    let mut ranges: Vec<Range> = whole.collect();
    ranges[axis] = Range { start, step: 1, count };
    call.add(Op::Slice(ranges), &[x])
}

/// One of the first axis, which is left out.
fn one(call: &mut Call, x: Value, at: usize) -> Result<Value> {
    let one = part(call, x, 0, [at, 1])?;
    let shape = call.shape(one)[1..].to_vec();
    call.reshape(&shape, one)
}

fn joined(call: &mut Call, axis: usize, parts: &[Value]) -> Result<Value> {
    match parts {
        [only] => Ok(*only),
        _ => call.add(Op::Concat { axis }, parts),
    }
}

/// Extents of a layer: inputs are `[steps, images, inputs]`.
#[derive(Clone, Copy)]
struct Sizes {
    steps: usize,
    images: usize,
    hidden: usize,
}

impl Sizes {
    fn of(call: &Call, x: Value, [w, r]: [Value; 2], directions: usize) -> Result<Self> {
        let [x, w, r] = [x, w, r].map(|value| call.shape(value));
        let (&[steps, images, inputs], &[_, _, hidden]) = (&x[..], &r[..]) else {
            return unfit(format!("inputs of shape {x:?}, states' weights of {r:?}"));
        };
        let wanted = [[directions, 4 * hidden, inputs], [directions, 4 * hidden, hidden]];
        if w != wanted[0] || r != wanted[1] {
            return unfit(format!("weights of shapes {w:?} and {r:?} for inputs of {x:?} in {directions} directions"));
        }
        if !(1..=MOST_STEPS).contains(&steps) || x.contains(&0) || hidden == 0 {
            return unfit(format!("inputs of shape {x:?}, where 1 to {MOST_STEPS} steps are supported"));
        }
        if call.int("hidden_size")?.is_some_and(|size| size != hidden as i64) {
            return Err(attribute("hidden_size", format!("the weights are for {hidden}")));
        }
        if call.known_integers(4)?.is_some_and(|lengths| lengths.iter().any(|&length| length != steps as i64)) {
            let reason = "sequences that are shorter than others are not supported".into();
            return Err(NodeError::Input { input: 4, reason });
        }
        Ok(Self { steps, images, hidden })
    }
}

/// For each direction whether it is from the last step to the first.
fn directions(call: &Call) -> Result<&'static [bool]> {
    match call.word_or("direction", "forward")? {
        "forward" => Ok(&[false]),
        "reverse" => Ok(&[true]),
        "bidirectional" => Ok(&[false, true]),
        _ => Err(attribute("direction", "it is none of forward, reverse and bidirectional")),
    }
}

/// All outputs of each step, the last ones, and the last cells.
fn lstm(call: &mut Call) -> Result<Vec<Value>> {
    call.check_most(7)?;
    let (mut x, images_first) = (call.operand(0)?, call.flag("layout", false)?);
    if call.flag("input_forget", false)? {
        return Err(attribute("input_forget", "it is not supported"));
    }
    if images_first && call.rank(x) == 3 {
        x = call.transpose(&[1, 0, 2], x)?;
    }
    let (weights, directions) = ([call.operand(1)?, call.operand(2)?], directions(call)?);
    let sizes = Sizes::of(call, x, weights, directions.len())?;
    let Sizes { steps, images, hidden } = sizes;

    let (mut all, mut last, mut cells) = (Vec::new(), Vec::new(), Vec::new());
    for (direction, &is_backwards) in directions.iter().enumerate() {
        let cell = Cell::of(call, weights, hidden, direction)?;
        let states = [start(call, 5, sizes, direction, images_first)?, start(call, 6, sizes, direction, images_first)?];
        let (outputs, last_cells) = cell.run(call, x, states, is_backwards)?;
        let of_last = if is_backwards { outputs[0] } else { outputs[steps - 1] };
        let rows = outputs.into_iter().map(|output| call.reshape(&[1, 1, images, hidden], output));
        let rows = rows.collect::<Result<Vec<Value>>>()?;
        all.push(joined(call, 0, &rows)?);
        last.push(call.reshape(&[1, images, hidden], of_last)?);
        cells.push(call.reshape(&[1, images, hidden], last_cells)?);
    }

    let (all, last, cells) = (joined(call, 1, &all)?, joined(call, 0, &last)?, joined(call, 0, &cells)?);
    match images_first {
        false => Ok(vec![all, last, cells]),
        true => Ok(vec![
            call.transpose(&[2, 0, 1, 3], all)?,
            call.transpose(&[1, 0, 2], last)?,
            call.transpose(&[1, 0, 2], cells)?,
        ]),
    }
}

/// What a direction starts with, `[images, hidden]`: zeros where nothing is given.
fn start(call: &mut Call, input: usize, sizes: Sizes, direction: usize, images_first: bool) -> Result<Value> {
    let Sizes { images, hidden, .. } = sizes;
    let Some(mut given) = call.optional(input) else {
        let zero = crate::tensor::Tensor::scalar(0.0);
        return Ok(call.draft.filled(call.name, &zero, &[images, hidden])?);
    };
    if images_first && call.rank(given) == 3 {
        given = call.transpose(&[1, 0, 2], given)?;
    }
    match call.shape(given)[..] {
        [directions, n, h] if direction < directions && [n, h] == [images, hidden] => one(call, given, direction),
        ref shape => Err(NodeError::Input { input, reason: format!("its shape is {shape:?}") }),
    }
}

impl Cell {
    fn of(call: &mut Call, weights: [Value; 2], hidden: usize, direction: usize) -> Result<Self> {
        let mut turned = Vec::new();
        for weights in weights {
            let own = one(call, weights, direction)?;
            turned.push(call.transpose(&[1, 0], own)?);
        }
        let bias = match call.optional(3) {
            None => None,
            Some(bias)
                if call.rank(bias) == 2 && call.shape(bias)[1] == 8 * hidden && call.shape(bias)[0] > direction =>
            {
                let both = one(call, bias, direction)?;
                let (first, second) =
                    (part(call, both, 0, [0, 4 * hidden])?, part(call, both, 0, [4 * hidden, 4 * hidden])?);
                Some(call.binary(Binary::Add, first, second)?)
            }
            Some(bias) => {
                return Err(NodeError::Input { input: 3, reason: format!("its shape is {:?}", call.shape(bias)) });
            }
        };
        Ok(Self { of_input: turned[0], of_state: turned[1], bias, hidden })
    }

    /// The outputs of all steps by their places in the sequence, and the last cells.
    fn run(&self, call: &mut Call, x: Value, states: [Value; 2], backwards: bool) -> Result<(Vec<Value>, Value)> {
        let [mut state, mut cells] = states;
        let (steps, images) = (call.shape(x)[0], call.shape(x)[1]);
        // What the gates have of the inputs is one product for all steps.
        let rows = call.reshape(&[steps * images, call.shape(x)[2]], x)?;
        let mut gates = call.add(Op::MatMul, &[rows, self.of_input])?;
        if let Some(bias) = self.bias {
            gates = call.binary(Binary::Add, gates, bias)?;
        }

        let mut outputs = vec![state; steps];
        for step in 0..steps {
            let place = if backwards { steps - 1 - step } else { step };
            let of_input = part(call, gates, 0, [place * images, images])?;
            let of_state = call.add(Op::MatMul, &[state, self.of_state])?;
            let sums = call.binary(Binary::Add, of_state, of_input)?;
            (state, cells) = self.step(call, sums, cells)?;
            outputs[place] = state;
        }
        Ok((outputs, cells))
    }

    fn step(&self, call: &mut Call, sums: Value, cells: Value) -> Result<(Value, Value)> {
        let gate = |call: &mut Call, number: usize, activation: Activation| {
            let sums = part(call, sums, 1, [number * self.hidden, self.hidden])?;
            call.activation(activation, sums)
        };
        let (input, output) = (gate(call, 0, Activation::Sigmoid)?, gate(call, 1, Activation::Sigmoid)?);
        let (forget, new) = (gate(call, 2, Activation::Sigmoid)?, gate(call, 3, Activation::Tanh)?);
        let kept = call.binary(Binary::Mul, forget, cells)?;
        let added = call.binary(Binary::Mul, input, new)?;
        let cells = call.binary(Binary::Add, kept, added)?;
        let bounded = call.activation(Activation::Tanh, cells)?;
        Ok((call.binary(Binary::Mul, output, bounded)?, cells))
    }
}
