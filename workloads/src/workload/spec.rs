//! What workloads mean.

use autotune_ir::program::{Access, BufferId, Expr};
use autotune_ir::spec::{Equation, Reduction, Source, Spec, Tensor};
use autotune_ir::{Affine, DType, VarId};

use super::operator::{Computed, Table};
use super::{Formula, Operator, Terms};

/// What is computed on the way, `sum = Σ value`, then `output = act(share * output_scale * sum + bias + residual) * post_scale + post_bias`.
/// The formula is the operator's, behind the prologue.
pub(super) fn of(op: &dyn Operator, name: &str, terms: &Terms, formula: Formula) -> Spec {
    let Terms { weights, dtype, prologue, epilogue, .. } = *terms;
    let Formula { operands, computed, axes, value, reduction, share, shape, index, channel } = formula;
    let mut tensors = Vec::new();
    let mut add = |name: &'static str, shape: &[usize], dtype, source| {
        tensors.push(Tensor { name: name.into(), shape: shape.to_vec(), dtype, source });
        BufferId(tensors.len() as u32 - 1)
    };
    let given = |is_constant| Source::Given { is_constant };
    for (number, operand) in operands.iter().enumerate() {
        let is_index = computed.iter().map(|computed| &computed.value).chain([&value]).any(|of| indexes(number, of));
        let dtype = if is_index { DType::F32 } else { dtype };
        let is_constant = if is_weight(operand) { weights.unwrap_or(operand.is_constant) } else { false };
        add(operand.name, &operand.shape, dtype, given(is_constant));
    }
    let mut equations: Vec<Equation> = Vec::new();
    for Computed { name, axes, value, reduction, dims } in computed {
        let shape: Vec<usize> = dims.iter().map(|&axis| axes[axis].extent).collect();
        let index = dims.iter().map(|&axis| Affine::var(VarId(axis as u32))).collect();
        // What is multiplied has the data's type.
        let dtype = if prologue.is_none() { DType::F32 } else { dtype };
        let output = Access { buffer: add(name, &shape, dtype, Source::Computed), index };
        equations.push(Equation { axes, output, value, reduction });
    }
    for Table { name, elements } in op.tables() {
        add(name, &[elements.len()], DType::F32, Source::Known(elements));
    }
    let of_channels = &shape[channel..=channel];
    let scale = epilogue.scale.then(|| add("output_scale", of_channels, dtype, given(false)));
    let bias = epilogue.bias.then(|| add("bias", of_channels, dtype, given(false)));
    let residual = epilogue.residual.then(|| add("residual", &shape, dtype, given(false)));
    let slope = epilogue.activation.has_slopes().then(|| add("slope", of_channels, dtype, given(false)));
    let post_scale = epilogue.post_scale.then(|| add("post_scale", of_channels, dtype, given(false)));
    let post_bias = epilogue.post_bias.then(|| add("post_bias", of_channels, dtype, given(false)));
    let sum = add("sum", &shape, DType::F32, Source::Computed);
    let output = add("output", &shape, op.result_dtype().unwrap_or(dtype), Source::Computed);

    let at = |buffer| Access { buffer, index: index.clone().into() };
    let of_channel = |buffer| Expr::Load(Access { buffer, index: [index[channel].clone()].into() });
    let mut result = share.into_iter().fold(Expr::Load(at(sum)), Expr::product);
    if let Some(scale) = scale {
        result = Expr::product(result, of_channel(scale));
    }
    if let Some(bias) = bias {
        result = Expr::sum(result, of_channel(bias));
    }
    if let Some(residual) = residual {
        result = Expr::sum(result, Expr::Load(at(residual)));
    }
    let result = epilogue.activation.of(result, slope.map(of_channel));
    let result = post_scale.map(of_channel).into_iter().fold(result, Expr::product);
    let result = post_bias.map(of_channel).into_iter().fold(result, Expr::sum);

    let spatial = axes.iter().filter(|axis| !axis.reduce).cloned().collect();
    let last = Equation { axes, output: at(sum), value, reduction };
    let tail = Equation { axes: spatial, output: at(output), value: result, reduction: Reduction::Sum };
    equations.push(last);
    let main = main(&equations);
    equations.push(tail);
    Spec { name: name.into(), tensors, equations, main }
}

/// True if an operand is what others are multiplied by, the same in every run or not.
pub(super) fn is_weight(operand: &super::Tensor) -> bool {
    operand.is_constant || operand.name == "weight"
}

/// Whether weights are constant, if that is not as it is with the operator alone. Fails with the reason if there are no weights.
pub(super) fn unusual_weights(formula: &Formula, is_constant: bool) -> Result<Option<bool>, &'static str> {
    if !formula.operands.iter().any(is_weight) {
        return Err("the operator has none");
    }
    let is_usual = is_constant == formula.operands.iter().any(|operand| operand.is_constant);
    Ok((!is_usual).then_some(is_constant))
}

/// True if a value finds elements by those of an operand: whole numbers, which other types than f32 have few of.
fn indexes(operand: usize, value: &Expr) -> bool {
    let is_it = |expr: &Expr| matches!(expr, Expr::Load(access) if access.buffer.0 as usize == operand);
    value.any(&|expr| matches!(expr, Expr::Gather(gather) if gather.at.iter().any(|at| at.any(&is_it))))
}

/// The equation that combines most values, the last of them; the last one if nothing is combined.
fn main(equations: &[Equation]) -> usize {
    let iterations = |equation: &Equation| equation.axes.iter().map(|axis| axis.extent as f64).product::<f64>();
    let combining = (0..equations.len()).filter(|&number| equations[number].reduces());
    let most = combining.max_by(|&a, &b| iterations(&equations[a]).total_cmp(&iterations(&equations[b])));
    most.unwrap_or(equations.len() - 1)
}
