//! Operations as operators of files.

use autotune_ir::DType;
use autotune_ir::program::UnaryOp;
use autotune_workloads::{Activation, Coordinates, Function, PadMode, PoolKind, ReduceOp, Rounding, Sampling};
use rten_onnx::onnx::{AttributeProto, DataType};

use super::attribute::{float, int, ints, word};
use super::{Export, data_type};
use crate::graph::{Node, NodeId};
use crate::onnx::ExportError;
use crate::op::{Binary, Op, Range, Sliding};
use crate::tensor::{Element, Tensor};

/// Writes what computes a node's tensor.
pub(super) fn write(export: &mut Export, id: NodeId, node: &Node) -> Result<(), ExportError> {
    let mut inputs = export.operands(node);
    let (operator, attributes) = match &node.op {
        Op::Input => {
            export.input(id, node);
            return Ok(());
        }
        Op::Constant(constant) => {
            let tensor = constant.read().map_err(|source| export.wrong(id, source.to_string()))?;
            export.constant(export.name(id), &tensor);
            return Ok(());
        }
        Op::Map(function) => return map(export, id, inputs, *function),
        Op::Attention { scale } => return attention(export, id, node, *scale),

        Op::Conv { window, groups } => ("Conv", [windows(window), vec![int("group", *groups)]].concat()),
        Op::ConvTranspose { window, output_pad, groups } => {
            let more = vec![ints("output_padding", output_pad.iter().copied()), int("group", *groups)];
            ("ConvTranspose", [windows(window), more].concat())
        }
        Op::Pool { window, ceil, kind } => pool(window, *ceil, *kind),
        Op::MatMul => ("MatMul", vec![]),

        Op::Prelu => ("PRelu", vec![]),
        Op::Binary(binary) => (operator(*binary), vec![]),
        Op::Not => ("Not", vec![]),
        Op::Where => ("Where", vec![]),

        Op::Reduce { op, axes, keep_axes } => {
            inputs.push(integers(export, id, axes.iter().map(|&axis| axis as i64))?);
            let noop = int("noop_with_empty_axes", 1);
            (reduction(*op), vec![int("keepdims", (*keep_axes).into()), noop])
        }
        Op::Softmax { axis, log } => (if *log { "LogSoftmax" } else { "Softmax" }, vec![int("axis", *axis)]),
        Op::LayerNorm { axis, eps } => ("LayerNormalization", vec![int("axis", *axis), float("epsilon", *eps)]),
        Op::GroupNorm { groups, eps } => {
            ("GroupNormalization", vec![int("num_groups", *groups), float("epsilon", *eps)])
        }
        Op::LocalResponseNorm { size, alpha, beta, bias } => {
            let numbers = [float("alpha", *alpha), float("beta", *beta), float("bias", *bias)];
            ("LRN", [vec![int("size", *size)], numbers.to_vec()].concat())
        }

        Op::Concat { axis } => ("Concat", vec![int("axis", *axis)]),
        Op::Slice(ranges) => {
            let extents = export.graph.node(node.operands[0]).shape.clone();
            let ends = ranges.iter().zip(extents).map(|(range, extent)| end(range, extent));
            inputs.push(integers(export, id, ranges.iter().map(|range| range.start as i64))?);
            inputs.push(integers(export, id, ends)?);
            inputs.push(integers(export, id, 0..ranges.len() as i64)?);
            inputs.push(integers(export, id, ranges.iter().map(|range| range.step as i64))?);
            ("Slice", vec![])
        }
        Op::Reshape(shape) => {
            inputs.push(integers(export, id, shape.iter().map(|&extent| extent as i64))?);
            ("Reshape", vec![int("allowzero", 1)])
        }
        Op::Transpose(perm) => ("Transpose", vec![ints("perm", perm.iter().copied())]),
        Op::Expand(shape) => {
            inputs.push(integers(export, id, shape.iter().map(|&extent| extent as i64))?);
            ("Expand", vec![])
        }

        Op::Pad { pad, mode, value } => {
            let ends = [0, 1].into_iter().flat_map(|end| pad.iter().map(move |pad| pad[end] as i64));
            inputs.push(integers(export, id, ends)?);
            inputs.push(number(export, id, *value));
            ("Pad", vec![word("mode", pad_mode(*mode))])
        }
        Op::Resize { size, coordinates, sampling } => {
            let extents: Vec<i64> = node.shape[..2].iter().chain(size).map(|&extent| extent as i64).collect();
            inputs.extend([String::new(), String::new()]);
            inputs.push(integers(export, id, extents)?);
            ("Resize", resize(*coordinates, *sampling))
        }
        Op::Gather { axis } => ("Gather", vec![int("axis", *axis)]),
        Op::Cast(element) => ("Cast", vec![to(data_type(*element))]),
    };

    let output = export.name(id);
    export.node(operator, inputs, &output, attributes);
    Ok(())
}

fn to(data_type: DataType) -> AttributeProto {
    int("to", data_type.0 as usize)
}

/// A list of integers as a constant.
fn integers(export: &mut Export, id: NodeId, numbers: impl IntoIterator<Item = i64>) -> Result<String, ExportError> {
    let numbers: Vec<i64> = numbers.into_iter().collect();
    let tensor = Tensor::i64(&[numbers.len()], numbers).map_err(|source| export.wrong(id, source.to_string()))?;
    let name = export.fresh(id);
    Ok(export.constant(name, &tensor))
}

fn number(export: &mut Export, id: NodeId, number: f32) -> String {
    let name = export.fresh(id);
    export.constant(name, &Tensor::scalar(number))
}

impl Export<'_> {
    fn wrong(&self, id: NodeId, reason: impl Into<String>) -> ExportError {
        let node = self.graph.node(id);
        ExportError::Node { node: node.name.clone(), op: node.op.name(), reason: reason.into() }
    }

    /// Operators one behind the other, each with the output of the one before; the last one's is the node's.
    fn chain(&mut self, id: NodeId, mut input: String, operators: &[(&str, Vec<AttributeProto>)]) {
        for (index, (operator, attributes)) in operators.iter().enumerate() {
            let output = if index + 1 == operators.len() { self.name(id) } else { self.fresh(id) };
            self.node(operator, vec![input], &output, attributes.clone());
            input = output;
        }
    }
}

/// Strides, distances and padding, all before the images and then all behind them.
fn windows(window: &[Sliding]) -> Vec<AttributeProto> {
    let each = |name: &str, of: fn(&Sliding) -> usize| ints(name, window.iter().map(of));
    let pads = window.iter().map(|window| window.pad[0]).chain(window.iter().map(|window| window.pad[1]));
    vec![
        each("kernel_shape", |window| window.kernel),
        each("strides", |window| window.stride),
        each("dilations", |window| window.dilation),
        ints("pads", pads),
    ]
}

fn pool(window: &[Sliding], ceil: bool, kind: PoolKind) -> (&'static str, Vec<AttributeProto>) {
    let all = [windows(window), vec![int("ceil_mode", ceil.into())]].concat();
    match kind {
        PoolKind::Max => ("MaxPool", all),
        kind => {
            let counts = int("count_include_pad", (kind == PoolKind::Average).into());
            ("AveragePool", [all, vec![counts]].concat())
        }
    }
}

fn operator(binary: Binary) -> &'static str {
    match binary {
        Binary::Add => "Add",
        Binary::Sub => "Sub",
        Binary::Mul => "Mul",
        Binary::Div => "Div",
        Binary::Max => "Max",
        Binary::Min => "Min",
        Binary::Pow => "Pow",
        Binary::Equal => "Equal",
        Binary::Less => "Less",
        Binary::And => "And",
    }
}

fn reduction(op: ReduceOp) -> &'static str {
    match op {
        ReduceOp::Sum => "ReduceSum",
        ReduceOp::Max => "ReduceMax",
        ReduceOp::Min => "ReduceMin",
        ReduceOp::Prod => "ReduceProd",
        ReduceOp::Mean => "ReduceMean",
    }
}

fn pad_mode(mode: PadMode) -> &'static str {
    match mode {
        PadMode::Constant => "constant",
        PadMode::Reflect => "reflect",
        PadMode::Edge => "edge",
    }
}

/// Where a slice ends: the place behind its last element, which backwards may be that before the first.
fn end(range: &Range, extent: usize) -> i64 {
    match range.start as i64 + range.step as i64 * range.count as i64 {
        end if end < 0 => -1 - extent as i64,
        end => end,
    }
}

fn resize(coordinates: Coordinates, sampling: Sampling) -> Vec<AttributeProto> {
    let coordinates = match coordinates {
        Coordinates::HalfPixel => "half_pixel",
        Coordinates::AlignCorners => "align_corners",
        Coordinates::Asymmetric => "asymmetric",
    };
    let rounding = |rounding| match rounding {
        Rounding::PreferFloor => "round_prefer_floor",
        Rounding::PreferCeil => "round_prefer_ceil",
        Rounding::Floor => "floor",
        Rounding::Ceil => "ceil",
    };
    let mut attributes = vec![word("coordinate_transformation_mode", coordinates)];
    match sampling {
        Sampling::Nearest(nearest) => {
            attributes.extend([word("mode", "nearest"), word("nearest_mode", rounding(nearest))]);
        }
        Sampling::Linear => attributes.push(word("mode", "linear")),
    }
    attributes
}

/// A function of every element, where there is no operator of it as several.
fn map(export: &mut Export, id: NodeId, mut inputs: Vec<String>, function: Function) -> Result<(), ExportError> {
    let x = inputs.remove(0);
    let one = |operator| vec![(operator, vec![])];
    let chain = match function {
        Function::Activation(activation) => match activation {
            Activation::None => one("Identity"),
            Activation::Relu => one("Relu"),
            Activation::Sigmoid => one("Sigmoid"),
            Activation::Tanh => one("Tanh"),
            Activation::HardSwish => one("HardSwish"),
            Activation::Softplus => one("Softplus"),
            Activation::Mish => one("Mish"),
            Activation::Gelu => one("Gelu"),
            Activation::GeluTanh => gelu_tanh(),

            Activation::LeakyRelu { alpha, .. } => vec![("LeakyRelu", vec![float("alpha", alpha)])],
            Activation::Elu { alpha, .. } => vec![("Elu", vec![float("alpha", alpha)])],
            Activation::HardSigmoid { alpha, beta, .. } => {
                vec![("HardSigmoid", vec![float("alpha", alpha), float("beta", beta)])]
            }

            Activation::Clip { lo, hi, .. } => {
                let bounds = vec![number(export, id, lo), number(export, id, hi)];
                let output = export.name(id);
                export.node("Clip", [vec![x], bounds].concat(), &output, vec![]);
                return Ok(());
            }
            Activation::Silu => {
                silu(export, id, x);
                return Ok(());
            }

            Activation::Prelu => return Err(export.wrong(id, "slopes are an operand of Prelu")),
        },

        Function::Op(op) => match op {
            UnaryOp::Neg => one("Neg"),
            UnaryOp::Abs => one("Abs"),
            UnaryOp::Sqrt => one("Sqrt"),
            UnaryOp::Rsqrt => vec![("Sqrt", vec![]), ("Reciprocal", vec![])],
            UnaryOp::Floor => one("Floor"),

            UnaryOp::Exp => one("Exp"),
            UnaryOp::Log => one("Log"),
            UnaryOp::Tanh => one("Tanh"),
            UnaryOp::Erf => one("Erf"),
            UnaryOp::Sigmoid => one("Sigmoid"),
            UnaryOp::Gelu => one("Gelu"),
            UnaryOp::GeluTanh => gelu_tanh(),
            UnaryOp::Mish => one("Mish"),
            UnaryOp::Softplus => one("Softplus"),
            UnaryOp::Sign => one("Sign"),

            UnaryOp::Silu => {
                silu(export, id, x);
                return Ok(());
            }
            UnaryOp::Expm1 | UnaryOp::Log1p => {
                beside_one(export, id, x, op);
                return Ok(());
            }

            UnaryOp::Cast(DType::F32) => one("Identity"),
            UnaryOp::Cast(DType::F16) => rounded(DataType::FLOAT16),
            UnaryOp::Cast(DType::Bf16) => rounded(DataType::BFLOAT16),
            UnaryOp::Cast(_) => return Err(export.wrong(id, "there is no type that rounds so")),
        },
    };

    export.chain(id, x, &chain);
    Ok(())
}

fn gelu_tanh() -> Vec<(&'static str, Vec<AttributeProto>)> {
    vec![("Gelu", vec![word("approximate", "tanh")])]
}

/// `x * sigmoid(x)`: the operator `Swish` is of a later version.
fn silu(export: &mut Export, id: NodeId, x: String) {
    let (sigmoid, output) = (export.fresh(id), export.name(id));
    export.node("Sigmoid", vec![x.clone()], &sigmoid, vec![]);
    export.node("Mul", vec![x, sigmoid], &output, vec![]);
}

/// `exp(x) - 1` and `log(1 + x)`, for which ONNX has no operators that keep the digits of small x.
fn beside_one(export: &mut Export, id: NodeId, x: String, op: UnaryOp) {
    let one = number(export, id, 1.0);
    let (inner, output) = (export.fresh(id), export.name(id));
    if op == UnaryOp::Expm1 {
        export.node("Exp", vec![x], &inner, vec![]);
        export.node("Sub", vec![inner, one], &output, vec![]);
    } else {
        export.node("Add", vec![x, one], &inner, vec![]);
        export.node("Log", vec![inner], &output, vec![]);
    }
}

/// To a type and back.
fn rounded(data_type: DataType) -> Vec<(&'static str, Vec<AttributeProto>)> {
    vec![("Cast", vec![to(data_type)]), ("Cast", vec![to(DataType::FLOAT)])]
}

/// The products, their softmax and its products.
fn attention(export: &mut Export, id: NodeId, node: &Node, scale: f32) -> Result<(), ExportError> {
    let operands = export.operands(node);
    let axes = node.shape.len();
    let mut perm: Vec<usize> = (0..axes).collect();
    perm.swap(axes - 2, axes - 1);
    let then = |export: &mut Export, operator: &str, inputs: &[&String], attributes| {
        let output = export.fresh(id);
        export.node(operator, inputs.iter().map(|&input| input.clone()).collect(), &output, attributes);
        output
    };

    let keys = then(export, "Transpose", &[&operands[1]], vec![ints("perm", perm)]);
    let products = then(export, "MatMul", &[&operands[0], &keys], vec![]);
    let scale = number(export, id, scale);
    let mut scores = then(export, "Mul", &[&products, &scale], vec![]);
    if let Some(mask) = operands.get(3) {
        scores = match export.graph.node(node.operands[3]).element {
            Element::Bool => {
                let never = number(export, id, f32::NEG_INFINITY);
                then(export, "Where", &[mask, &scores, &never], vec![])
            }
            _ => then(export, "Add", &[&scores, mask], vec![]),
        };
    }
    let weights = then(export, "Softmax", &[&scores], vec![int("axis", axes - 1)]);
    let output = export.name(id);
    export.node("MatMul", vec![weights, operands[2].clone()], &output, vec![]);
    Ok(())
}
