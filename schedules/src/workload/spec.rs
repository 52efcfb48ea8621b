//! What workloads mean.

use autotune_ir::DType;
use autotune_ir::program::{Access, BufferId, Expr};
use autotune_ir::spec::{Equation, Reduction, Source, Spec, Tensor};

use super::{Activation, Epilogue, Formula};

/// `sum = Σ value`, then `output = act(sum + bias + residual)`.
pub(super) fn of(formula: Formula, name: &str, dtype: DType, epilogue: &Epilogue) -> Spec {
    let Formula { axes, operands, value, reduction, shape, index, channel } = formula;
    let mut tensors = Vec::new();
    let mut add = |name: &'static str, shape: &[usize], dtype, source| {
        tensors.push(Tensor { name: name.into(), shape: shape.to_vec(), dtype, source });
        BufferId(tensors.len() as u32 - 1)
    };
    let given = |is_constant| Source::Given { is_constant };
    for operand in &operands {
        add(operand.name, &operand.shape, dtype, given(operand.is_constant));
    }
    let bias = epilogue.bias.then(|| add("bias", &shape[channel..=channel], dtype, given(false)));
    let residual = epilogue.residual.then(|| add("residual", &shape, dtype, given(false)));
    let sum = add("sum", &shape, DType::F32, Source::Computed);
    let output = add("output", &shape, dtype, Source::Computed);

    let at = |buffer| Access { buffer, index: index.clone() };
    let mut result = Expr::Load(at(sum));
    if let Some(bias) = bias {
        let access = Access { buffer: bias, index: vec![index[channel].clone()] };
        result = Expr::sum(result, Expr::Load(access));
    }
    if let Some(residual) = residual {
        result = Expr::sum(result, Expr::Load(at(residual)));
    }
    if epilogue.activation == Activation::Relu {
        result = Expr::max(result, Expr::Const(0.0));
    }

    let spatial = axes.iter().filter(|axis| !axis.reduce).cloned().collect();
    let main = Equation { axes, output: at(sum), value, reduction };
    let tail = Equation { axes: spatial, output: at(output), value: result, reduction: Reduction::Sum };
    Spec { name: name.into(), tensors, equations: vec![main, tail], main: 0 }
}
