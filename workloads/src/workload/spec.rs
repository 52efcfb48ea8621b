//! Equations of workloads: operator, prologue and epilogue as one spec.

use autotune_ir::program::{Access, BufferId, Expr, TABLE_LEN, UnaryOp};
use autotune_ir::spec::{Equation, Reduction, Spec, TensorSource, TensorSpec};
use autotune_ir::{Affine, DType, VarId};

use super::operator::{Computed, Table};
use super::{OperatorFormula, Terms, WorkloadOperator};

/// Returns the equations of a workload: those of intermediate tensors, `sum = Σ value`, then
/// `output = act(share * output_scale * sum + bias + residual) * post_scale + post_bias`, plus
/// `residual_scale * post_residual`, or the element of a table at that index.
///
/// The formula is the operator's, after its prologue has been applied.
pub(super) fn of(op: &dyn WorkloadOperator, name: &str, terms: &Terms, formula: OperatorFormula) -> Spec {
    let Terms { weights, types, prologue, epilogue, .. } = *terms;
    let OperatorFormula { operands, computed, axes, value, reduction, share, shape, index, channel } = formula;
    let mut tensors = Tensors(Vec::new());
    let given = |is_constant| TensorSource::Given { is_constant };
    for (number, operand) in operands.iter().enumerate() {
        // Indices are integers, of which other types than f32 represent only few.
        let is_index = computed.iter().map(|computed| &computed.value).chain([&value]).any(|of| indexes(number, of));
        let (own, is_constant) = match is_weight(operand) {
            true => (types.weights, weights.unwrap_or(operand.is_constant)),
            false => (types.data, false),
        };
        tensors.add(operand.name, &operand.shape, if is_index { DType::F32 } else { own }, given(is_constant));
    }
    let mut equations: Vec<Equation> = Vec::new();
    for Computed { name, axes, value, reduction, dims } in computed {
        let shape: Vec<usize> = dims.iter().map(|&axis| axes[axis].extent).collect();
        let index = dims.iter().map(|&axis| Affine::var(VarId(axis as u32))).collect();
        // Operands of a product have the data's type, also after a prologue.
        let dtype = if prologue.is_none() { tensors.dtype_of_sums(&value) } else { types.data };
        let output = Access { buffer: tensors.add(name, &shape, dtype, TensorSource::Computed), index };
        equations.push(Equation { axes, output, value, reduction });
    }
    for Table { name, elements } in op.tables() {
        tensors.add(name, &[elements.len()], DType::F32, TensorSource::Known(elements));
    }

    let of_channels = &shape[channel..=channel];
    let sums = tensors.dtype_of_sums(&value);
    let mut read =
        |is_read: bool, name, shape: &[usize], dtype| is_read.then(|| tensors.add(name, shape, dtype, given(false)));
    let scale = read(epilogue.scale, "output_scale", of_channels, types.scale);
    let bias = read(epilogue.bias, "bias", of_channels, types.bias);
    let residual = read(epilogue.residual, "residual", &shape, types.residual);
    let slope = read(epilogue.activation.has_slopes(), "slope", of_channels, types.scale);
    let post_scale = read(epilogue.post_scale, "post_scale", of_channels, types.scale);
    let post_bias = read(epilogue.post_bias, "post_bias", of_channels, types.bias);
    let residual_scale = read(epilogue.post_residual, "residual_scale", of_channels, types.scale);
    let post_residual = read(epilogue.post_residual, "post_residual", &shape, types.residual);
    let table = read(epilogue.table, "table", &[TABLE_LEN], types.out);

    let sum = tensors.add("sum", &shape, sums, TensorSource::Computed);
    let output = tensors.add("output", &shape, op.result_dtype().unwrap_or(types.out), TensorSource::Computed);

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
    let scaled = post_residual.zip(residual_scale);
    let scaled = scaled.map(|(residual, scale)| Expr::product(Expr::Load(at(residual)), of_channel(scale)));
    let result = scaled.into_iter().fold(result, Expr::sum);
    let result = match table {
        Some(table) => tensors.looked_up(table, result),
        None => result,
    };

    let spatial = axes.iter().filter(|axis| !axis.reduce).cloned().collect();
    let last = Equation { axes, output: at(sum), value, reduction };
    let tail = Equation { axes: spatial, output: at(output), value: result, reduction: Reduction::Sum };
    equations.push(last);
    let main = main(&equations);
    equations.push(tail);
    Spec { name: name.into(), tensors: tensors.0, equations, main }
}

/// Tensors of a spec under construction.
struct Tensors(Vec<TensorSpec>);

impl Tensors {
    fn add(&mut self, name: &'static str, shape: &[usize], dtype: DType, source: TensorSource) -> BufferId {
        self.0.push(TensorSpec { name: name.into(), shape: shape.to_vec(), dtype, source });
        BufferId(self.0.len() as u32 - 1)
    }

    /// Returns the type in which values are accumulated.
    fn dtype_of_sums(&self, value: &Expr) -> DType {
        let is_integer = |id: BufferId| self.0.get(id.0 as usize).is_some_and(|tensor| tensor.dtype.is_integer());
        if value.is_integer(&is_integer) { DType::I32 } else { DType::F32 }
    }

    /// Returns the element of a table at the index that a value is rounded to.
    fn looked_up(&self, table: BufferId, value: Expr) -> Expr {
        let index = match self.dtype_of_sums(&value) {
            // Indices are clamped to the table anyway.
            DType::I32 => value,
            _ => Expr::unary(UnaryOp::Cast(DType::U8), value),
        };
        Expr::gather(Access { buffer: table, index: [Affine::default()].into() }, vec![0], vec![index])
    }
}

/// True if an operand is a weight, constant or not.
pub(super) fn is_weight(operand: &super::OperandTensor) -> bool {
    operand.is_constant || operand.name == "weight"
}

/// Returns whether weights are constant, if that differs from the operator's default. Fails with
/// the reason if there are no weights.
pub(super) fn unusual_weights(formula: &OperatorFormula, is_constant: bool) -> Result<Option<bool>, &'static str> {
    if !formula.operands.iter().any(is_weight) {
        return Err("the operator has no weights");
    }
    let is_usual = is_constant == formula.operands.iter().any(|operand| operand.is_constant);
    Ok((!is_usual).then_some(is_constant))
}

/// True if a value uses elements of an operand as indices.
fn indexes(operand: usize, value: &Expr) -> bool {
    let is_it = |expr: &Expr| matches!(expr, Expr::Load(access) if access.buffer.0 as usize == operand);
    value.any(&|expr| matches!(expr, Expr::Gather(gather) if gather.at.iter().any(|at| at.any(&is_it))))
}

/// Returns the reduction with the most iterations, the last one of several; the last equation if
/// there is no reduction.
fn main(equations: &[Equation]) -> usize {
    let iterations = |equation: &Equation| equation.axes.iter().map(|axis| axis.extent as f64).product::<f64>();
    let combining = (0..equations.len()).filter(|&number| equations[number].reduces());
    let most = combining.max_by(|&a, &b| iterations(&equations[a]).total_cmp(&iterations(&equations[b])));
    most.unwrap_or(equations.len() - 1)
}
