//! One time step of a recurrent layer.

use autotune_ir::DType;
use autotune_workloads::Activation;

use crate::onnx::call::{Call, ImportValue, Result};
use crate::onnx::error::NodeError;
use crate::operators::binary::Binary;
use crate::operators::concat::Concat;
use crate::operators::integers::MatMulInteger;
use crate::operators::matmul::MatMul;
use crate::operators::quantise::quantised_in_its_range;
use crate::tensor::Tensor;

/// Positions of the bias input, common to all kinds, and of the LSTM's peepholes.
const BIAS: usize = 3;
const PEEPHOLES: usize = 7;

/// Kinds of recurrent layers, by how they update the state.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum CellKind {
    /// Elman network: `state = f(x w + state r)`.
    Plain,
    /// Gated recurrent unit: update gate, reset gate and a candidate.
    Gated {
        /// True if the reset gate scales the product with the state, false if it scales the state.
        resets_product: bool,
    },
    /// Long short-term memory: input, output and forget gates, and a candidate.
    LongShort,
}

impl CellKind {
    /// Returns the number of gates and candidates, each with its own weights.
    pub(super) fn gates(self) -> usize {
        match self {
            CellKind::Plain => 1,
            CellKind::Gated { .. } => 3,
            CellKind::LongShort => 4,
        }
    }

    /// Returns the maximum number of inputs.
    pub(super) fn inputs(self) -> usize {
        if self == CellKind::LongShort { 8 } else { 6 }
    }

    /// Returns the inputs with the initial states: the output state, then the cell state.
    pub(super) fn states(self) -> &'static [usize] {
        if self == CellKind::LongShort { &[5, 6] } else { &[5] }
    }

    /// Returns the default activations of one direction.
    pub(super) fn activations(self) -> &'static [Activation] {
        match self {
            CellKind::Plain => &[Activation::Tanh],
            CellKind::Gated { .. } => &[Activation::Sigmoid, Activation::Tanh],
            CellKind::LongShort => &[Activation::Sigmoid, Activation::Tanh, Activation::Tanh],
        }
    }
}

/// One direction of a layer. Weights multiply rows from the right: `[inputs, gates * hidden]` and
/// `[hidden, gates * hidden]`.
pub(super) struct Cell {
    kind: CellKind,
    hidden: usize,
    activations: Vec<Activation>,
    pub(super) of_input: ImportValue,
    of_state: StateWeights,
    /// Bias of the products with the inputs, `[gates * hidden]`.
    pub(super) bias: Option<ImportValue>,
    /// Bias of the candidate's product with the state, added before the reset, `[hidden]`.
    reset_bias: Option<ImportValue>,
    /// Weights of the cell state in the input, output and forget gates, `[3 * hidden]`.
    peepholes: Option<ImportValue>,
}

/// Weights of the state, `[hidden, gates * hidden]`.
#[derive(Clone, Copy)]
enum StateWeights {
    Numbers(ImportValue),
    /// Integers, their scale and their zero point. The state is quantised in each time step.
    Integers([ImportValue; 3]),
}

impl StateWeights {
    /// Returns the product of a state, `[images, hidden]`, with the weights of `count` columns from
    /// `first` on.
    fn product(self, call: &mut Call, state: ImportValue, [first, count]: [usize; 2]) -> Result<ImportValue> {
        match self {
            Self::Numbers(weights) => {
                let weights = call.part(weights, 1, [first, count])?;
                call.add(MatMul, &[state, weights])
            }
            Self::Integers([weights, scale, zero]) => {
                let weights = call.part(weights, 1, [first, count])?;
                let [state, own_scale, own_zero] = quantised_in_its_range(call, state)?;
                let sums = call.add(MatMulInteger, &[state, weights, own_zero, zero])?;
                let sums = call.cast(DType::F32, sums)?;
                let scale = call.binary(Binary::Mul, own_scale, scale)?;
                call.binary(Binary::Mul, sums, scale)
            }
        }
    }
}

/// Returns one slice along the first axis, without that axis.
pub(super) fn one(call: &mut Call, x: ImportValue, at: usize) -> Result<ImportValue> {
    let one = call.part(x, 0, [at, 1])?;
    let shape = call.shape(one)[1..].to_vec();
    call.reshape(&shape, one)
}

/// Returns one direction of an optional input `[directions, extent]`.
fn row(call: &mut Call, input: usize, extent: usize, direction: usize) -> Result<Option<ImportValue>> {
    let Some(given) = call.optional(input) else { return Ok(None) };
    match call.shape(given)[..] {
        [directions, own] if direction < directions && own == extent => one(call, given, direction).map(Some),
        ref shape => Err(NodeError::Input { input, reason: format!("unexpected shape {shape:?}") }),
    }
}

impl Cell {
    pub(super) fn of(
        call: &mut Call,
        kind: CellKind,
        hidden: usize,
        direction: usize,
        activations: &[Activation],
        integers: Option<[ImportValue; 3]>,
    ) -> Result<Self> {
        // ONNX stores the weights as `[gates * hidden, inputs]`.
        let mut turned = [call.operand(1)?, call.operand(2)?];
        for weights in &mut turned {
            let own = one(call, *weights, direction)?;
            *weights = call.transpose(&[1, 0], own)?;
        }
        let of_state = match integers {
            Some(integers) => {
                let [weights, scale, zero] = integers.map(|of_all| one(call, of_all, direction));
                StateWeights::Integers([weights?, scale?, zero?])
            }
            None => StateWeights::Numbers(turned[1]),
        };

        let rows = kind.gates() * hidden;
        let (mut bias, mut reset_bias) = (None, None);
        if let Some(both) = row(call, BIAS, 2 * rows, direction)? {
            let (of_input, mut of_state) = (call.part(both, 0, [0, rows])?, call.part(both, 0, [rows, rows])?);
            // The reset must scale the state's bias too, so that part cannot be merged into the
            // input's bias.
            if kind == (CellKind::Gated { resets_product: true }) {
                let gates = call.part(of_state, 0, [0, 2 * hidden])?;
                let zeros = call.filled(&Tensor::scalar(0.0).into(), &[hidden])?;
                reset_bias = Some(call.part(of_state, 0, [2 * hidden, hidden])?);
                of_state = call.add(Concat { axis: 0 }, &[gates, zeros])?;
            }
            bias = Some(call.binary(Binary::Add, of_input, of_state)?);
        }
        let peepholes = match kind {
            CellKind::LongShort => row(call, PEEPHOLES, 3 * hidden, direction)?,
            _ => None,
        };
        let (of_input, activations) = (turned[0], activations.to_vec());
        Ok(Self { kind, hidden, activations, of_input, of_state, bias, reset_bias, peepholes })
    }

    /// Replaces the states by those after one time step. `of_input`, `[images, gates * hidden]`, is
    /// the inputs' part of all gates.
    pub(super) fn step(&self, call: &mut Call, of_input: ImportValue, states: &mut [ImportValue]) -> Result<()> {
        match (self.kind, states) {
            (CellKind::LongShort, [state, cells]) => {
                let sums = self.sums(call, of_input, *state)?;
                (*state, *cells) = self.lstm_state(call, sums, *cells)?;
            }
            (CellKind::Gated { resets_product }, [state]) => {
                *state = self.gru_state(call, of_input, *state, resets_product)?
            }
            (_, states) => {
                let sums = self.sums(call, of_input, states[0])?;
                states[0] = call.activation(self.activations[0], sums)?;
            }
        }
        Ok(())
    }

    /// Returns the sums of all gates from inputs and state.
    fn sums(&self, call: &mut Call, of_input: ImportValue, state: ImportValue) -> Result<ImportValue> {
        let of_state = self.of_state.product(call, state, [0, self.kind.gates() * self.hidden])?;
        call.binary(Binary::Add, of_state, of_input)
    }

    /// Returns the columns of `count` gates from `first` on.
    fn gates(&self, call: &mut Call, sums: ImportValue, first: usize, count: usize) -> Result<ImportValue> {
        call.part(sums, 1, [first * self.hidden, count * self.hidden])
    }

    /// Returns the next GRU state, `candidate + update * (state - candidate)`.
    fn gru_state(
        &self,
        call: &mut Call,
        of_input: ImportValue,
        state: ImportValue,
        resets_product: bool,
    ) -> Result<ImportValue> {
        // If the reset scales the state, the candidate cannot share the gates' matrix product.
        let count = if resets_product { 3 } else { 2 };
        let of_state = self.of_state.product(call, state, [0, count * self.hidden])?;
        let (of_gates, of_candidate) = (self.gates(call, of_input, 0, 2)?, self.gates(call, of_input, 2, 1)?);
        let own = self.gates(call, of_state, 0, 2)?;
        let gates = call.binary(Binary::Add, own, of_gates)?;
        let gates = call.activation(self.activations[0], gates)?;
        let (update, reset) = (self.gates(call, gates, 0, 1)?, self.gates(call, gates, 1, 1)?);

        let product = match resets_product {
            true => {
                let mut product = self.gates(call, of_state, 2, 1)?;
                if let Some(bias) = self.reset_bias {
                    product = call.binary(Binary::Add, product, bias)?;
                }
                call.binary(Binary::Mul, product, reset)?
            }
            false => {
                let left = call.binary(Binary::Mul, state, reset)?;
                self.of_state.product(call, left, [2 * self.hidden, self.hidden])?
            }
        };
        let candidate = call.binary(Binary::Add, product, of_candidate)?;
        let candidate = call.activation(self.activations[1], candidate)?;
        let change = call.binary(Binary::Sub, state, candidate)?;
        let change = call.binary(Binary::Mul, change, update)?;
        call.binary(Binary::Add, change, candidate)
    }

    /// Returns the LSTM's output and next cell state. The cell state is `forget * cells + input *
    /// candidate`; the output gate scales its activation.
    fn lstm_state(&self, call: &mut Call, sums: ImportValue, cells: ImportValue) -> Result<(ImportValue, ImportValue)> {
        let input = self.gate(call, sums, 0, cells)?;
        let forget = self.gate(call, sums, 2, cells)?;
        let candidate = self.gates(call, sums, 3, 1)?;
        let candidate = call.activation(self.activations[1], candidate)?;
        let kept = call.binary(Binary::Mul, forget, cells)?;
        let added = call.binary(Binary::Mul, input, candidate)?;
        let cells = call.binary(Binary::Add, kept, added)?;

        // The output gate's peephole reads the new cell state.
        let output = self.gate(call, sums, 1, cells)?;
        let bounded = call.activation(self.activations[2], cells)?;
        Ok((call.binary(Binary::Mul, output, bounded)?, cells))
    }

    /// Returns the gate with this number; with peepholes it also reads the cell state.
    fn gate(&self, call: &mut Call, sums: ImportValue, number: usize, cells: ImportValue) -> Result<ImportValue> {
        let mut sums = self.gates(call, sums, number, 1)?;
        if let Some(peepholes) = self.peepholes {
            let own = call.part(peepholes, 0, [number * self.hidden, self.hidden])?;
            let seen = call.binary(Binary::Mul, cells, own)?;
            sums = call.binary(Binary::Add, sums, seen)?;
        }
        call.activation(self.activations[0], sums)
    }
}
