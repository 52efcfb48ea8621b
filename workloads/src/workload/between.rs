//! Two products, of which the second reads a map of the first one's sums.

use std::fmt;

use autotune_ir::program::{Access, BufferId, Expr};
use autotune_ir::spec::{Axis, AxisId, Reduction};

use super::{Activation, Computed, Fields, OperandTensor, OperatorFormula, WorkloadError};

/// Operations between two products: `mid = act(sum + bias)`, with the bias along the channels of
/// the first.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Between {
    /// Add one value per channel.
    pub bias: bool,
    /// Function that is applied to that; not one with slopes, since these would be another operand.
    pub activation: Activation,
}

impl Between {
    /// Reads the fields `mid` and `mid_bias`.
    pub(super) fn read(fields: &Fields) -> Result<Self, WorkloadError> {
        let activation = fields.read("mid", Activation::parse)?.unwrap_or_default();
        Ok(Self { bias: fields.flag("mid_bias")?, activation })
    }

    /// Writes the fields that [`Between::read`] reads.
    pub(super) fn write(&self, f: &mut dyn fmt::Write) -> fmt::Result {
        if self.activation != Activation::None {
            write!(f, ",mid={}", self.activation)?;
        }
        if self.bias { f.write_str(",mid_bias") } else { Ok(()) }
    }

    /// Fails if the activation has slopes or steps.
    pub(super) fn check(&self, op: &'static str) -> Result<(), WorkloadError> {
        let reason = || "an activation with slopes or steps, such as prelu or round, is not supported here".into();
        match self.activation.can_precede() {
            true => Ok(()),
            false => Err(WorkloadError::Unfit { op, field: "mid", reason: reason() }),
        }
    }

    /// Returns the formula of two products of data and weights each. The data of the second is the
    /// mapped result of the first.
    ///
    /// The result of the first has one axis per dimension. The operands are the data, the first
    /// weights, the bias if there is one, and the second weights.
    pub(super) fn formula(&self, first: OperatorFormula, second: OperatorFormula) -> OperatorFormula {
        let mut operands = first.operands;
        let bias = self.bias.then(|| {
            let shape = vec![first.shape[first.channel]];
            operands.push(OperandTensor { name: "mid_bias", shape, is_constant: false });
            operands.len() - 1
        });
        let weight = operands.len();
        operands.extend(second.operands.into_iter().skip(1));
        let (sums, mid) = (operands.len(), operands.len() + 1);

        let load = |number: usize, index| Expr::Load(Access { buffer: BufferId(number as u32), index });
        let mut value = load(sums, first.index.clone().into());
        if let Some(bias) = bias {
            value = Expr::sum(value, load(bias, [first.index[first.channel].clone()].into()));
        }
        let value = self.activation.of(value, None);

        let spatial: Vec<Axis> = first.axes.iter().filter(|axis| !axis.reduce).cloned().collect();
        let dims = first.index.iter().flat_map(|index| &index.terms).map(|term| term.0.0 as usize);
        let dims: Vec<AxisId> = dims.collect();
        debug_assert!(dims.len() == first.shape.len() && first.axes.starts_with(&spatial));
        let computed = |name, axes, value, reduction| Computed { name, axes, value, reduction, dims: dims.clone() };
        let of_second = |access: &Access| {
            let number = if access.buffer == BufferId(0) { mid } else { weight };
            load(number, access.index.clone())
        };
        OperatorFormula {
            operands,
            computed: vec![
                computed("mid_sum", first.axes, first.value, first.reduction),
                computed("mid", spatial, value, Reduction::Sum),
            ],
            value: second.value.replaced(&mut { of_second }),
            ..second
        }
    }
}
