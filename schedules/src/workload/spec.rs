//! What workloads mean.

use std::sync::Arc;

use autotune_ir::program::{Access, BufferId, Expr};
use autotune_ir::spec::{Axis, Equation, Source, Spec, Tensor};
use autotune_ir::{Affine, DType};

use super::{Activation, Workload};

impl Workload {
    /// What it means. The operands are `input`, `weight`, `bias` and `residual`, the latter two where the epilogue has them.
    pub fn spec(&self) -> Arc<Spec> {
        let contraction = self.definition().contraction();
        let mut tensors = Vec::new();
        let mut add = |name: &'static str, shape, dtype, source| {
            tensors.push(Tensor { name: name.into(), shape, dtype, source });
            BufferId(tensors.len() as u32 - 1)
        };
        let given = |is_constant| Source::Given { is_constant };
        let (dtype, epilogue) = (self.dtype, self.epilogue);
        let input = add("input", self.input_shape(), dtype, given(false));
        let weight = add("weight", self.weight_shape(), dtype, given(contraction.weight_is_constant));
        let bias = epilogue.bias.then(|| add("bias", vec![self.bias_len()], dtype, given(false)));
        let residual = epilogue.residual.then(|| add("residual", self.output_shape(), dtype, given(false)));
        let sum = add("sum", self.output_shape(), DType::F32, Source::Computed);
        let output = add("output", self.output_shape(), dtype, Source::Computed);

        let load = |buffer, index: &[Affine]| Expr::Load(Access { buffer, index: index.to_vec() });
        let result = &contraction.output[..];
        let mut value = load(sum, result);
        if let Some(bias) = bias {
            value = Expr::sum(value, load(bias, std::slice::from_ref(&contraction.channel)));
        }
        if let Some(residual) = residual {
            value = Expr::sum(value, load(residual, result));
        }
        if epilogue.activation == Activation::Relu {
            value = Expr::max(value, Expr::Const(0.0));
        }
        let axis = |&(name, extent, reduce): &_| Axis { name, extent, reduce };
        let axes: Vec<Axis> = contraction.axes.iter().map(axis).collect();
        let spatial = axes.iter().filter(|axis| !axis.reduce).cloned().collect();
        let tail = Equation { axes: spatial, output: Access { buffer: output, index: result.to_vec() }, value };
        let main = Equation {
            axes,
            output: Access { buffer: sum, index: tail.output.index.clone() },
            value: Expr::product(load(input, &contraction.data), load(weight, &contraction.weight)),
        };
        Arc::new(Spec { name: self.to_string(), tensors, equations: vec![main, tail], main: 0 })
    }
}
