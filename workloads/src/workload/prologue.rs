//! Prologue: operations on data before it is multiplied or combined.

use std::fmt;

use autotune_ir::program::{Access, BufferId, Expr};
use autotune_ir::spec::{Axis, AxisId, Reduction, axis_vars};
use autotune_ir::{Affine, VarId};

use super::operator::element;
use super::{Activation, Computed, OperandTensor, OperatorFormula, activation};

/// Operations on each element of the data of a convolution, matrix product or reduction:
/// `act(scale * x + bias) * gate`.
///
/// Elements outside the data are zero after the prologue: padding is applied to its result, not to
/// the data.
///
///
/// The text form joins the present parts with `+`: `scale+bias+relu`, `gate`, `gelu`. A reduction
/// can only have an activation, and only if it does not read outside the data.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct Prologue {
    /// Multiply by one value per input channel (convolutions) or reduction step (matrix products).
    pub scale: bool,
    /// Add one value per input channel.
    pub bias: bool,
    /// Function that is applied to that; not one with slopes.
    pub activation: Activation,
    /// Multiply the result by one value per image and input channel (convolutions only).
    pub gate: bool,
}

/// Names of the dimensions of the data.
const DIMS: [&str; 8] = ["d0", "d1", "d2", "d3", "d4", "d5", "d6", "d7"];
const SCALE: &str = "scale";
const BIAS: &str = "bias";
const GATE: &str = "gate";

impl Prologue {
    /// True if there are no operations.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Reads the text form. Fails with a description of valid texts.
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        const EXPECTED: &str =
            "a list of operations (scale, bias, an activation without slopes, gate; in this order, joined by +)";
        let mut rest = Some(text);
        let mut take = |word: &str| {
            let (first, behind) = rest.map(|text| text.split_once('+').map_or((text, None), |(a, b)| (a, Some(b))))?;
            (first == word).then(|| rest = behind)
        };
        let [scale, bias] = [SCALE, BIAS].map(|word| take(word).is_some());
        let (function, gate) = match rest {
            Some(GATE) => (None, true),
            Some(text) => text.strip_suffix("+gate").map_or((Some(text), false), |function| (Some(function), true)),
            None => (None, false),
        };

        let activation = match function.map(Activation::parse).transpose() {
            Ok(Some(Activation::None | Activation::Prelu)) | Err(activation::EXPECTED) => return Err(EXPECTED),
            Ok(activation) => activation.unwrap_or_default(),
            Err(expected) => return Err(expected),
        };
        Ok(Self { scale, bias, activation, gate })
    }

    /// Applies the prologue to the data of a formula. Fails with the reason if the operator cannot
    /// have it.
    ///
    /// The prologue's operands follow those of the formula: `pre_scale`, `pre_bias`, `pre_gate`.
    ///
    /// ```text
    /// sum[n, o, y, x] = Σ input[n, c, y + j, x + k] * weight[o, c, j, k]
    ///   →  mapped[d0, d1, d2, d3] = max(input[d0, d1, d2, d3] * pre_scale[d1] + pre_bias[d1], 0)
    ///      sum[n, o, y, x] = Σ mapped[n, c, y + j, x + k] * weight[o, c, j, k]
    /// sum[m] = Σ input[m, n]  →  sum[m] = Σ max(input[m, n], 0)
    /// ```
    pub(super) fn apply_to(&self, formula: OperatorFormula) -> Result<OperatorFormula, &'static str> {
        if self.is_none() {
            return Ok(formula);
        }
        if !self.activation.can_precede() {
            return Err("an activation with slopes or steps, such as prelu or round, is not supported here");
        }
        let combines = formula.axes.iter().any(|axis| axis.reduce) && formula.computed.is_empty();
        let mut loads = Vec::new();
        formula.value.for_each_load(&mut |access| loads.push(access.clone()));
        match &loads[..] {
            [data, weight] if combines && is_product(&formula, data, weight) => self.of_product(formula, data, weight),
            [data] if combines && formula.operands.len() == 1 => self.of_reduction(formula, data),
            _ => Err("needs an operator that multiplies two tensors or reduces one"),
        }
    }

    fn of_reduction(&self, formula: OperatorFormula, data: &Access) -> Result<OperatorFormula, &'static str> {
        if self.scale || self.bias || self.gate {
            return Err("a reduction has no channels to scale, bias or gate");
        }
        let extent = |axis: VarId| formula.axes[axis.0 as usize].extent;
        let is_inside = |(index, extent_of): (&Affine, &usize)| {
            let (low, high) = index.range(extent);
            low >= 0 && high < *extent_of as i64
        };
        if !data.index.iter().zip(&formula.operands[0].shape).all(is_inside) {
            return Err("not supported for an operator that reads padding");
        }
        let mapped = |access: &Access| self.activation.of(Expr::Load(access.clone()), None);
        Ok(OperatorFormula { value: formula.value.replaced(&mut { mapped }), ..formula })
    }

    fn of_product(
        &self,
        formula: OperatorFormula,
        data: &Access,
        weight: &Access,
    ) -> Result<OperatorFormula, &'static str> {
        let shape = formula.operands[0].shape.clone();
        let is_used = |index: &[Affine], axis: AxisId| index.iter().any(|index| index.uses(VarId(axis as u32)));
        let axes_of = |dim: usize| data.index[dim].terms.iter().map(|term| term.0.0 as usize);

        // The channel dimension is indexed by reduction axes that the weights have, too. The image
        // dimension is indexed by neither.
        let is_channel = |dim: &usize| {
            axes_of(*dim).any(|axis| formula.axes[axis].reduce)
                && axes_of(*dim).all(|axis| is_used(&weight.index, axis))
        };
        let channel = (0..shape.len()).find(is_channel).ok_or("the data has no channels")?;
        let has_images =
            channel == 1 && !axes_of(0).any(|axis| is_used(&weight.index, axis) || formula.axes[axis].reduce);
        if self.gate && !has_images {
            return Err("gate needs images as data");
        }

        let OperatorFormula { mut operands, value, .. } = formula;
        let index: [Affine; DIMS.len()] = axis_vars();
        let index = &index[..shape.len()];
        let mut read = |name: &'static str, dims: &[usize]| {
            let shape = dims.iter().map(|&dim| shape[dim]).collect();
            operands.push(OperandTensor { name, shape, is_constant: false });
            element(operands.len() - 1, &dims.iter().map(|&dim| index[dim].clone()).collect::<Vec<_>>())
        };
        let mut mapped = element(0, index);
        if self.scale {
            mapped = Expr::product(mapped, read("pre_scale", &[channel]));
        }
        if self.bias {
            mapped = Expr::sum(mapped, read("pre_bias", &[channel]));
        }
        mapped = self.activation.of(mapped, None);
        if self.gate {
            mapped = Expr::product(mapped, read("pre_gate", &[0, channel]));
        }

        let axes = DIMS.iter().zip(&shape).map(|(&name, &extent)| Axis { name, extent, reduce: false });
        let (reduction, dims) = (Reduction::Sum, (0..shape.len()).collect());
        let computed = vec![Computed { name: "mapped", axes: axes.collect(), value: mapped, reduction, dims }];
        let made = operands.len();
        let of_mapped = |access: &Access| match access.buffer {
            BufferId(0) => element(made, &access.index),
            _ => Expr::Load(access.clone()),
        };
        Ok(OperatorFormula { value: value.replaced(&mut { of_mapped }), operands, computed, ..formula })
    }
}

/// True if a formula sums products of its first operand, unmodified, and its second, and the number
/// of dimensions is supported.
fn is_product(formula: &OperatorFormula, data: &Access, weight: &Access) -> bool {
    let product = Expr::product(Expr::Load(data.clone()), Expr::Load(weight.clone()));
    formula.reduction == Reduction::Sum
        && formula.value == product
        && (data.buffer, weight.buffer) == (BufferId(0), BufferId(1))
        && formula.operands.len() == 2
        && data.index.len() <= DIMS.len()
}

impl fmt::Display for Prologue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let activation = (self.activation != Activation::None).then(|| self.activation.to_string());
        let parts = [
            self.scale.then(|| SCALE.into()),
            self.bias.then(|| BIAS.into()),
            activation,
            self.gate.then(|| GATE.into()),
        ];
        f.write_str(&parts.into_iter().flatten().collect::<Vec<String>>().join("+"))
    }
}
