//! Networks quantised by ONNX Runtime in all of its forms, compared with its results.

use std::path::Path;

use autotune_ir::Target;
use autotune_network::cut::{Cut, StepWork};
use autotune_network::onnx::{self, ImportOptions};
use autotune_network::{Compiled, DType, Graph, Tensor, dequantised, rewrite};
use rten_onnx::onnx::{DataType, Dimension, TensorProto};

use super::conformance::{entries, folder, numbered};
use crate::build::{Model, f32s, i64s, info, int, node, raw};

/// Largest difference of whole networks from ONNX Runtime, relative to the largest output. Values
/// halfway between two steps may round either way, and later layers amplify that.
const BESIDE_ONNX_RUNTIME: f32 = 0.03;
/// Largest difference of dequantised networks from the original ones; the quantiser derived weights
/// and ranges from few inputs.
const BESIDE_FLOAT: f32 = 0.2;

fn difference(a: &Tensor, b: &Tensor) -> f32 {
    assert_eq!((a.shape(), a.dtype()), (b.shape(), b.dtype()));
    let (a, b) = (a.to_numbers(), b.to_numbers());
    let largest = b.iter().fold(0f32, |most, x| most.max(x.abs()));
    a.iter().zip(&b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max) / largest
}

fn read(path: &Path) -> Graph {
    onnx::read(path, &ImportOptions::default()).unwrap()
}

fn run(graph: &Graph, inputs: &[Tensor]) -> Tensor {
    let target = Target::detect("cpu", Some(1)).unwrap();
    let network = Compiled::new(&rewrite(graph).unwrap(), None, &target).unwrap();
    network.workspace().unwrap().run_tensors(inputs).unwrap().remove(0)
}

/// Counts the steps that multiply integers.
fn of_integers(graph: &Graph) -> usize {
    let steps = Cut::of(&rewrite(graph).unwrap()).steps.into_iter();
    let multiplies = |work: &StepWork| match work {
        StepWork::Kernel(workload) => workload.spec().is_contraction() && workload.dtype() == DType::U8,
        _ => false,
    };
    steps.filter(|step| multiplies(&step.work)).count()
}

#[test]
fn quantised_networks_compute_what_onnx_runtime_does() {
    let Some(models) = folder("onnx_quantised", "AUTOTUNE_ONNX_QUANTISED") else { return };
    let models = entries(&models);
    assert_eq!(models.len(), 2 * 2 * (6 + 2));
    for model in models {
        let name = model.file_name().unwrap().to_string_lossy().into_owned();
        let graph = read(&model.join("model.onnx"));
        let data = model.join("test_data_set_0");
        let inputs: Vec<Tensor> = numbered(&data, "input").into_iter().map(|input| input.tensor).collect();
        let wanted = &numbered(&data, "output")[0].tensor;

        for (how, found) in [("reference", graph.evaluate(&inputs).unwrap().remove(0)), ("run", run(&graph, &inputs))] {
            let off = difference(&found, wanted);
            assert!(off <= BESIDE_ONNX_RUNTIME, "{name}, {how}: off by {off}");
        }
        // Weights of u8 with arbitrary zero points do not fit i8.
        let of_bytes = ["quint8-quint8", "dynamic-quint8"].iter().any(|weights| name.contains(weights));
        assert!(of_integers(&graph) > 0 || of_bytes, "{name}");

        let numbers = dequantised(&graph).unwrap();
        let before = read(&model.join("float.onnx")).evaluate(&inputs).unwrap().remove(0);
        let off = difference(&run(&numbers, &inputs), &before);
        assert!(off <= BESIDE_FLOAT && of_integers(&numbers) == 0, "{name}, as numbers: off by {off}");
    }
}

fn bytes(name: &str, data_type: DataType, dims: &[i64], bytes: &[u8]) -> TensorProto {
    raw(name, data_type, dims, bytes.to_vec())
}

/// Imports a model of one node, whose inputs after the first are constants; returns the error.
fn refusal(operator: &str, constants: Vec<TensorProto>, attributes: Vec<rten_onnx::onnx::AttributeProto>) -> String {
    let names: Vec<String> = constants.iter().map(|tensor| tensor.name.clone().unwrap()).collect();
    let mut model = Model::new(21).input("x", &[2, 3]).output("y");
    model.graph().initializer.extend(constants);
    model.graph().node.push(node(operator, &format!("x {}", names.join(" ")), "y", attributes));
    model.import().map(drop).unwrap_err().to_string()
}

fn scale(numbers: &[f32]) -> TensorProto {
    let bytes = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
    let dims: Vec<i64> = if numbers.len() == 1 { vec![] } else { vec![numbers.len() as i64] };
    raw("scale", DataType::FLOAT, &dims, bytes)
}

/// Each error is one line that names node and input.
#[test]
fn scales_and_zero_points_that_make_no_sense_are_refused() {
    let zero = |data_type, count: usize| {
        let dims: Vec<i64> = if count == 1 { vec![] } else { vec![count as i64] };
        let size = if data_type == DataType::UINT8 || data_type == DataType::INT8 { 1 } else { 2 };
        bytes("zero", data_type, &dims, &vec![0; count * size])
    };
    let cases = [
        (scale(&[0.0]), zero(DataType::UINT8, 1), "input 1: scale is 0, expected a positive number"),
        (scale(&[-0.5]), zero(DataType::UINT8, 1), "input 1: scale is -0.5"),
        (scale(&[f32::NAN]), zero(DataType::UINT8, 1), "input 1: scale is NaN"),
        (scale(&[f32::INFINITY]), zero(DataType::UINT8, 1), "input 1: scale is inf"),
        (scale(&[0.1]), zero(DataType::UINT16, 1), "input 2: zero point is another integer type, expected u8"),
        (
            scale(&[0.1, 0.2]),
            zero(DataType::UINT8, 2),
            "scale of shape [2] and zero point of shape [2] do not match 3 elements",
        ),
        (scale(&[0.1, 0.2, 0.3]), zero(DataType::INT8, 2), "scale of shape [3] and zero point of shape [2]"),
    ];
    for (scale, zero, wanted) in cases {
        let told = refusal("QuantizeLinear", vec![scale, zero], vec![]);
        let is_line = told.starts_with("node 'quantizelinear' (QuantizeLinear): ") && !told.contains('\n');
        assert!(is_line && told.contains(wanted), "{told}");
    }

    let told = refusal("QuantizeLinear", vec![scale(&[0.1, 0.2, 0.3])], vec![int("axis", 2)]);
    assert!(told.ends_with("axis 2 is out of range for a tensor of rank 2"), "{told}");
    let told = refusal("QuantizeLinear", vec![scale(&[0.1])], vec![int("block_size", 16)]);
    assert!(told.ends_with("attribute 'block_size': blocked scales are not supported"), "{told}");
    let told = refusal("QuantizeLinear", vec![scale(&[0.1])], vec![int("output_dtype", 4)]);
    assert!(told.ends_with("attribute 'output_dtype': expected uint8 or int8"), "{told}");
    let told = refusal("DequantizeLinear", vec![scale(&[0.1])], vec![]);
    assert!(told.ends_with("input 0: f32, expected integers"), "{told}");
}

/// Halfway cases round to even, and values out of range saturate.
#[test]
fn numbers_are_rounded_to_even_and_saturate() {
    let mut model = Model::new(21).input("x", &[8]).output("y");
    model.graph().initializer.extend([scale(&[2.0]), bytes("zero", DataType::INT8, &[], &[1])]);
    let model = model.node("QuantizeLinear", "x scale zero", "y", vec![]);
    let x = f32s(&[8], &[1.0, 3.0, 5.0, -1.0, -3.0, 1000.0, -1000.0, f32::NAN]);
    assert_eq!(model.run(&[x]), [i64s(&[1, 3, 3, 1, -1, 127, -128, 0])]);
}

/// Integer weights that the model casts and scales are imported as float constants.
#[test]
fn weights_that_are_cast_and_scaled_are_constants() {
    let mut model = Model::new(21).input("x", &[1, 2]).output("y");
    model.graph().initializer.extend([scale(&[0.5]), bytes("w", DataType::INT8, &[2, 1], &[3, 0xfe])]);
    let model = model
        .node("Cast", "w", "numbers", vec![int("to", 1)])
        .node("Mul", "numbers scale", "weights", vec![])
        .node("MatMul", "x weights", "y", vec![]);
    assert_eq!(model.run(&[f32s(&[1, 2], &[4.0, 1.0])]), [f32s(&[1, 1], &[5.0])]);
}

/// Embeddings of 8 bits: rows are looked up before they are dequantised.
#[test]
fn rows_of_a_quantised_table_are_dequantised() {
    let mut model = Model::new(21).output("y");
    let dims = vec![Dimension { dim_value: Some(2), dim_param: None }];
    model.graph().input.push(info("ids", DataType::INT64, dims));
    let table = bytes("table", DataType::INT8, &[3, 2], &[1, 2, 3, 4, 0xfb, 0x80]);
    model.graph().initializer.extend([table, scale(&[0.5]), bytes("zero", DataType::INT8, &[], &[0xff])]);
    let model =
        model.node("Gather", "table ids", "rows", vec![]).node("DequantizeLinear", "rows scale zero", "y", vec![]);
    assert_eq!(model.run(&[i64s(&[2, 0])]), [f32s(&[2, 2], &[-2.0, -63.5, 1.0, 1.5])]);
}
