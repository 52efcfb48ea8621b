//! Nodes whose values networks keep.
//!
//! Networks compute in f32, ONNX Runtime in the types of the file. Double precision and arithmetic
//! on large integers are therefore left to ONNX Runtime. Indices are taken, as f32 represents all
//! integers up to 2^24, and so are computations on shapes, which are done once, in 64 bits.

use std::collections::HashSet;

use ort_sys::ONNXTensorElementDataType;
use ort_sys::ONNXTensorElementDataType::*;

/// Operators that are always left to ONNX Runtime: random numbers, which are the same in every run
/// here, a layer that ONNX Runtime computes faster, and what it computes without comparing all
/// pairs of elements.
const LEFT: [&str; 7] = [
    "Bernoulli",
    "DynamicQuantizeLSTM",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
    "TopK",
];

/// Operators with results that are positions or numbers of elements.
const INDEX_RESULTS: [&str; 3] = ["ArgMax", "ArgMin", "NonZero"];

/// Operators that compute 8-bit integers as ONNX Runtime does: quantisation, and moves of elements.
/// Others wrap around at the ends of the range there.
const BYTE_OPERATORS: [&str; 19] = [
    "Concat",
    "DequantizeLinear",
    "Expand",
    "Flatten",
    "Gather",
    "Identity",
    "MaxPool",
    "Pad",
    "QLinearConv",
    "QLinearMatMul",
    "QuantizeLinear",
    "Reshape",
    "Resize",
    "Slice",
    "Split",
    "Squeeze",
    "Tile",
    "Transpose",
    "Unsqueeze",
];

/// Operands that are positions: operator and number of the operand.
const INDEX_OPERANDS: [(&str, usize); 7] = [
    ("Gather", 1),
    ("GatherElements", 1),
    ("GatherND", 1),
    ("OneHot", 0),
    ("ScatterElements", 1),
    ("ScatterND", 1),
    ("EmbedLayerNormalization", 0),
];

/// A value as the rules see it.
pub(crate) struct ValueFacts<'a> {
    pub(crate) name: &'a str,
    /// Element type; `None` for values that are no tensors.
    pub(crate) element: Option<ONNXTensorElementDataType>,
    pub(crate) is_constant: bool,
}

/// A node as the rules see it. Absent operands are `None`.
pub(crate) struct NodeFacts<'a> {
    pub(crate) operator: &'a str,
    pub(crate) inputs: Vec<Option<ValueFacts<'a>>>,
    pub(crate) outputs: Vec<ValueFacts<'a>>,
}

/// Returns for each node, in topological order, whether its values are kept.
pub(crate) fn keeps_values(nodes: &[NodeFacts]) -> Vec<bool> {
    // Values that depend on constants and shapes alone.
    let mut fixed: HashSet<&str> = HashSet::new();
    let mut keeps = Vec::new();
    for node in nodes {
        if LEFT.contains(&node.operator) {
            keeps.push(false);
            continue;
        }
        let is_fixed = |value: &ValueFacts| value.is_constant || fixed.contains(value.name);
        let depends_on_shapes = matches!(node.operator, "Shape" | "Size");
        if depends_on_shapes || node.inputs.iter().flatten().all(is_fixed) {
            keeps.push(node.outputs.iter().all(|output| output.element.is_some()));
            fixed.extend(node.outputs.iter().map(|output| output.name));
            continue;
        }

        let keeps_bytes = BYTE_OPERATORS.contains(&node.operator);
        let keeps_operand = |(number, value): (usize, &Option<ValueFacts>)| match value {
            Some(value) if !is_fixed(value) => match exactness(value.element) {
                Exactness::Kept => true,
                Exactness::Byte => keeps_bytes,
                Exactness::Integer => INDEX_OPERANDS.contains(&(node.operator, number)),
                Exactness::Other => false,
            },
            _ => true,
        };
        let keeps_result = |value: &ValueFacts| match exactness(value.element) {
            Exactness::Kept => true,
            Exactness::Byte => keeps_bytes,
            Exactness::Integer => INDEX_RESULTS.contains(&node.operator),
            Exactness::Other => false,
        };
        keeps.push(node.inputs.iter().enumerate().all(keeps_operand) && node.outputs.iter().all(keeps_result));
    }
    keeps
}

/// Kinds of element types.
enum Exactness {
    /// All values are f32 numbers.
    Kept,
    /// All values are f32 numbers, but arithmetic wraps around.
    Byte,
    /// Small integers are f32 numbers.
    Integer,
    Other,
}

fn exactness(element: Option<ONNXTensorElementDataType>) -> Exactness {
    match element {
        Some(
            ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT
            | ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16
            | ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16
            | ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL,
        ) => Exactness::Kept,
        Some(ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8 | ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8) => Exactness::Byte,
        Some(
            ONNX_TENSOR_ELEMENT_DATA_TYPE_INT16
            | ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT16
            | ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32
            | ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT32
            | ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64
            | ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT64,
        ) => Exactness::Integer,
        _ => Exactness::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(name: &'static str, element: ONNXTensorElementDataType) -> ValueFacts<'static> {
        ValueFacts { name, element: Some(element), is_constant: name == "constant" }
    }

    fn node(
        operator: &'static str,
        inputs: Vec<ValueFacts<'static>>,
        output: ValueFacts<'static>,
    ) -> NodeFacts<'static> {
        NodeFacts { operator, inputs: inputs.into_iter().map(Some).collect(), outputs: vec![output] }
    }

    #[test]
    fn double_precision_and_integer_arithmetic_are_not_kept() {
        let f32 = |name| value(name, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT);
        let f64 = |name| value(name, ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE);
        let i64 = |name| value(name, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64);
        let u8 = |name| value(name, ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8);
        let nodes = [
            (node("MatMul", vec![f32("x"), f32("constant")], f32("a")), true),
            (node("MatMul", vec![f64("d"), f64("constant")], f64("e")), false),
            (node("Cast", vec![f32("a")], f64("g")), false),
            (node("Add", vec![i64("ids"), i64("constant")], i64("more")), false),
            (node("Gather", vec![f32("constant"), i64("ids")], f32("rows")), true),
            (node("Gather", vec![i64("ids"), i64("constant")], i64("some")), false),
            (node("ArgMax", vec![f32("a")], i64("largest")), true),
            (node("Shape", vec![f64("d")], i64("shape")), true),
            (node("Mul", vec![i64("shape"), i64("constant")], i64("count")), true),
            (node("Reshape", vec![f32("a"), i64("count")], f32("b")), true),
            (node("Cast", vec![i64("ids")], f32("h")), false),
            (node("QuantizeLinear", vec![f32("a"), f32("constant")], u8("q")), true),
            (node("Transpose", vec![u8("q")], u8("t")), true),
            (node("Add", vec![u8("q"), u8("t")], u8("sum")), false),
            (node("Cast", vec![f32("a")], u8("c")), false),
            (node("RandomNormal", vec![], f32("noise")), false),
            (node("Add", vec![f32("noise"), f32("a")], f32("noisy")), true),
        ];

        let (nodes, wanted): (Vec<_>, Vec<bool>) = nodes.into_iter().unzip();
        assert_eq!(keeps_values(&nodes), wanted);
        let text = ValueFacts { name: "text", element: None, is_constant: false };
        assert_eq!(keeps_values(&[node("Cast", vec![text], f32("x"))]), [false]);
    }
}
