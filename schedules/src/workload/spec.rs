//! What workloads mean.

use std::sync::Arc;

use autotune_ir::program::{Access, BufferId, Expr, Role};
use autotune_ir::spec::{Axis, Equation, Source, Spec, Tensor};
use autotune_ir::{Affine, DType, VarId};

use super::{Activation, Conv2d, Matmul, Operator, Workload};

/// An equation that sums products of two tensors, without epilogue; spatial axes first. Tensors are the data (0), the weights (1) and
/// the result (2).
struct Contraction {
    axes: Vec<Axis>,
    data: Vec<Affine>,
    weight: Vec<Affine>,
    output: Vec<Affine>,
    /// Index of the bias.
    channel: Affine,
    weight_is_constant: bool,
}

impl Workload {
    /// What it means. The operands are `input`, `weight`, `bias` and `residual`, the latter two where the epilogue has them.
    pub fn spec(&self) -> Arc<Spec> {
        let contraction = match &self.op {
            Operator::Conv2d(conv) => contraction_of_conv2d(conv),
            Operator::Matmul(matmul) => contraction_of_matmul(matmul),
        };
        let mut tensors = Vec::new();
        let mut add = |name: &'static str, role, shape, dtype, source| {
            tensors.push(Tensor { name: name.into(), role, shape, dtype, source });
            BufferId(tensors.len() as u32 - 1)
        };
        let given = |is_constant| Source::Given { is_constant };
        let (dtype, epilogue) = (self.dtype, self.epilogue);
        let input = add("input", Role::Input, self.input_shape(), dtype, given(false));
        let weight = add("weight", Role::Weight, self.weight_shape(), dtype, given(contraction.weight_is_constant));
        let bias = epilogue.bias.then(|| add("bias", Role::Bias, vec![self.bias_len()], dtype, given(false)));
        let residual =
            epilogue.residual.then(|| add("residual", Role::Residual, self.output_shape(), dtype, given(false)));
        let sum = add("sum", Role::Accumulator, self.output_shape(), DType::F32, Source::Computed);
        let output = add("output", Role::Output, self.output_shape(), dtype, Source::Computed);

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
        let spatial = contraction.axes.iter().filter(|axis| !axis.reduce).cloned().collect();
        let tail = Equation { axes: spatial, output: Access { buffer: output, index: result.to_vec() }, value };
        let main = Equation {
            axes: contraction.axes,
            output: Access { buffer: sum, index: tail.output.index.clone() },
            value: Expr::product(load(input, &contraction.data), load(weight, &contraction.weight)),
        };
        Arc::new(Spec { name: self.to_string(), tensors, equations: vec![main, tail], main: 0 })
    }
}

fn axis((name, extent, reduce): (&'static str, usize, bool)) -> Axis {
    Axis { name, extent, reduce }
}

fn vars<const N: usize>() -> [Affine; N] {
    std::array::from_fn(|axis| Affine::var(VarId(axis as u32)))
}

/// Axes `n, g, o, oh, ow | c, kh, kw`, with `o` and `c` counted within a group.
fn contraction_of_conv2d(conv: &Conv2d) -> Contraction {
    let [oh, ow] = conv.output_hw();
    let (group_o, group_c) = (conv.o / conv.groups, conv.c / conv.groups);
    let axes = [
        ("n", conv.n, false),
        ("g", conv.groups, false),
        ("o", group_o, false),
        ("oh", oh, false),
        ("ow", ow, false),
        ("c", group_c, true),
        ("kh", conv.kh, true),
        ("kw", conv.kw, true),
    ];
    let [n, g, o, y, x, c, kh, kw] = vars();
    let tap = |at: &Affine, k: &Affine, d: usize| {
        at.clone() * conv.stride[d] as i64 + k.clone() * conv.dilation[d] as i64 + -(conv.pad[d] as i64)
    };
    let channel = g.clone() * group_o as i64 + o;
    Contraction {
        axes: axes.map(axis).to_vec(),
        data: vec![n.clone(), g * group_c as i64 + c.clone(), tap(&y, &kh, 0), tap(&x, &kw, 1)],
        weight: vec![channel.clone(), c, kh, kw],
        output: vec![n, channel.clone(), y, x],
        channel,
        weight_is_constant: true,
    }
}

/// Axes `b, m, n | k`.
fn contraction_of_matmul(mm: &Matmul) -> Contraction {
    let axes = [("b", mm.b, false), ("m", mm.m, false), ("n", mm.n, false), ("k", mm.k, true)];
    let [b, m, n, k] = vars();
    Contraction {
        axes: axes.map(axis).to_vec(),
        data: vec![b.clone(), m.clone(), k.clone()],
        weight: vec![b.clone(), k, n.clone()],
        output: vec![b, m, n.clone()],
        channel: n,
        weight_is_constant: mm.b == 1,
    }
}
