//! Valid models with random changes of bytes or messages. A failing change is shrunk.
//! `AUTOTUNE_CASES` sets the number of cases.

use std::cell::Cell;
use std::path::Path;
use std::{env, fs};

use autotune_graph::operators::Cast;
use autotune_graph::{DType, Operator, Tensor};
use rand::{Rng, RngExt};
use rten_onnx::onnx::ModelProto;

use crate::build::{Model, counted, f32s, float, floats, i64s, initializer, int, ints, tensor, word};
use crate::cases::{cases, for_cases};
use crate::import;

/// Default number of changed models in each test.
const USUAL_CASES: u64 = 20_000;

/// Returns models with all kinds of messages, and with operators that inspect their operands.
fn models() -> Vec<Vec<u8>> {
    let image = Model::new(13)
        .input("x", &[1, 2, 6, 6])
        .constant("w", &counted(&[4, 1, 3, 3]))
        .constant("shape", &i64s(&[0, -1]))
        .constant("axes", &i64s(&[1]))
        .node("Conv", "x w", "a", vec![int("group", 2), ints("pads", &[1; 4]), ints("strides", &[2, 2])])
        .node(
            "MaxPool",
            "a",
            "b",
            vec![ints("kernel_shape", &[2, 2]), int("ceil_mode", 1), word("auto_pad", "SAME_UPPER")],
        )
        .node("Reshape", "b shape", "c", vec![])
        .node("Softmax", "c", "d", vec![int("axis", 1)])
        .node("ReduceSum", "d axes", "y", vec![int("keepdims", 0)])
        .output("y");

    let shapes = Model::new(13)
        .input("x", &[1, 3, 4])
        .constant("one", &i64s(&[1]))
        .constant("two", &i64s(&[2]))
        .constant("none", &Tensor::f32(&[0], vec![]).unwrap())
        .constant("scales", &f32s(&[4], &[1.0, 1.0, 2.0, 2.0]))
        .node("Shape", "x", "shape", vec![])
        .node("Slice", "shape one two", "part", vec![])
        .node("Concat", "one part two two", "image", vec![int("axis", 0)])
        .node("Reshape", "x image", "a", vec![])
        .node("Resize", "a _ scales", "b", vec![word("mode", "linear")])
        .node("Pad", "b pads", "c", vec![word("mode", "reflect")])
        .constant("pads", &i64s(&[0, 0, 1, 1, 0, 0, 1, 1]))
        .node("ConstantOfShape", "image", "d", vec![tensor("value", initializer("value", &f32s(&[1], &[2.0])))])
        .node("Tile", "d image", "e", vec![])
        .node("Split", "c", "f g", vec![int("axis", 3)])
        .output("f")
        .output("e");

    let old = Model::new(7)
        .input("x", &[1, 3, 4, 4])
        .constant("c", &f32s(&[3], &[1.0, 2.0, 3.0]))
        .node("BatchNormalization", "x c c c c", "a", vec![float("epsilon", 1e-3)])
        .node("Upsample", "a", "b", vec![floats("scales", &[1.0, 1.0, 2.0, 2.0])])
        .node("ConvTranspose", "b w", "d", vec![ints("output_shape", &[9, 9])])
        .constant("w", &counted(&[3, 2, 2, 2]))
        .node("LRN", "d", "e", vec![int("size", 3)])
        .node("Gather", "e zero", "y", vec![int("axis", 1)])
        .constant("zero", &Tensor::i64(&[], vec![0]).unwrap())
        .output("y");

    let elements = Model::new(24)
        .input("x", &[2, 3, 4])
        .constant("places", &Tensor::i64(&[2, 3, 2], vec![0; 12]).unwrap())
        .constant("rows", &Tensor::i64(&[2, 1], vec![0, -1]).unwrap())
        .constant("two", &i64s(&[2]))
        .constant("lengths", &i64s(&[1, 2]))
        .node("GatherElements", "x places", "a", vec![int("axis", 2)])
        .node("GatherND", "x rows", "b", vec![int("batch_dims", 1)])
        .node("ScatterND", "x rows x", "c", vec![word("reduction", "add")])
        .node("ScatterElements", "c places a", "s", vec![int("axis", 2)])
        .node("TensorScatter", "s a lengths", "d", vec![word("mode", "circular"), int("axis", 2)])
        .node("TopK", "d two", "e f", vec![int("largest", 0)])
        .node("OneHot", "f two values", "g", vec![int("axis", 1)])
        .constant("values", &f32s(&[2], &[0.0, 1.0]))
        .node("Trilu", "g two", "h", vec![int("upper", 0)])
        .node("ReverseSequence", "h lengths", "i", vec![int("time_axis", 2), int("batch_axis", 0)])
        .node("Einsum", "d i", "j", vec![word("equation", "bij,b...ik->...bjk")])
        .node("Hardmax", "j", "y", vec![])
        .output("b")
        .output("y");

    let heads = Model::new(23)
        .input("x", &[1, 4, 8])
        .constant("angles", &counted(&[1, 4, 2]))
        .constant("grid", &f32s(&[1, 2, 2, 2], &[0.5; 8]))
        .node("RotaryEmbedding", "x angles angles", "q", vec![int("num_heads", 2), int("interleaved", 1)])
        .node("LayerNormalization", "x scale", "k mean", vec![])
        .constant("scale", &f32s(&[8], &[1.0; 8]))
        .node("Attention", "q k x", "a", vec![int("q_num_heads", 2), int("kv_num_heads", 2), int("is_causal", 1)])
        .node("Unsqueeze", "a zero", "images", vec![])
        .constant("zero", &i64s(&[0]))
        .node("GridSample", "images grid", "b", vec![word("mode", "cubic"), word("padding_mode", "reflection")])
        .node("LpPool", "b", "y", vec![ints("kernel_shape", &[1, 2]), int("p", 3)])
        .output("y")
        .output("mean");
    let all = [image, shapes, old, elements, heads, of_runtime(), of_groups(), signals(), regions()];
    all.iter().map(Model::bytes).collect()
}

/// Returns a model with attention to earlier keys and a layer with integer weights.
fn of_groups() -> Model {
    let integers = |shape: &[usize]| {
        let count = shape.iter().product();
        Cast(DType::I8).evaluate(&[&Tensor::i64(shape, vec![3; count]).unwrap()]).unwrap()
    };
    let mut model = Model::new(17)
        .input("x", &[2, 1, 16])
        .input("past", &[2, 1, 5, 4])
        .constant("last", &i64s(&[3, 2]))
        .constant("total", &i64s(&[4]))
        .constant("angles", &counted(&[8, 2]))
        .constant("w", &integers(&[1, 8, 16]))
        .constant("r", &integers(&[1, 4, 16]))
        .constant("scale", &f32s(&[1], &[0.25]))
        .constant("zero", &integers(&[1]));
    model = model
        .node(
            "GroupQueryAttention",
            "x _ _ past past last total angles angles",
            "a k v",
            vec![int("num_heads", 2), int("kv_num_heads", 1), int("do_rotary", 1), int("local_window_size", 2)],
        )
        .node("DynamicQuantizeLSTM", "a w r _ _ _ _ _ scale zero scale zero", "_ y", vec![int("hidden_size", 4)])
        .output("y")
        .output("k");

    for node in &mut model.graph().node {
        node.domain = Some("com.microsoft".into());
    }
    model
}

/// Returns a model with transforms and their windows.
fn signals() -> Model {
    let number = |number| Tensor::i64(&[], vec![number]).unwrap();
    Model::new(20)
        .input("x", &[1, 12, 1])
        .constant("four", &number(4))
        .constant("two", &number(2))
        .constant("one", &number(1))
        .constant("low", &Tensor::scalar(20.0))
        .constant("high", &Tensor::scalar(900.0))
        .constant("rate", &number(2000))
        .node("HannWindow", "four", "window", vec![int("periodic", 0)])
        .node("STFT", "x two window four", "a", vec![int("onesided", 0)])
        .node("DFT", "a four one", "b", vec![int("inverse", 1)])
        .node("MelWeightMatrix", "two four rate low high", "bands", vec![int("output_datatype", 1)])
        .node("DFT", "x _ one", "c", vec![int("onesided", 1)])
        .node("Resize", "b _ scales", "y", vec![word("mode", "cubic"), int("antialias", 1), int("exclude_outside", 1)])
        .constant("scales", &f32s(&[4], &[1.0, 1.3, 0.6, 1.0]))
        .output("bands")
        .output("c")
        .output("y")
}

/// Returns a model with parts of images and a loss.
fn regions() -> Model {
    let model = Model::new(20)
        .input("x", &[1, 2, 6, 6])
        .constant("places", &f32s(&[2, 4], &[0.0, 1.0, 4.0, 5.0, -2.0, 0.0, 9.0, 3.0]))
        .constant("numbers", &i64s(&[0, 0]))
        .constant("image", &i64s(&[3, 4]))
        .constant("block", &i64s(&[2, 2]))
        .constant("size", &i64s(&[1, 2, 3, 3]))
        .constant("rows", &i64s(&[1, 12, 6]))
        .constant("maps", &counted(&[1, 2, 3]))
        .constant("classes", &Tensor::i64(&[2, 3, 1], vec![1, 0, -1, 0, 1, 1]).unwrap())
        .constant("region", &f32s(&[8], &[0.0, 0.0, 0.1, -0.2, 1.0, 1.0, 0.9, 1.4]));

    model
        .node("RoiAlign", "x places numbers", "a", vec![int("sampling_ratio", 2), int("output_height", 3)])
        .node("MaxPool", "x", "b i", vec![ints("kernel_shape", &[2, 2]), ints("strides", &[2, 2])])
        .node("MaxUnpool", "b i", "c", vec![ints("kernel_shape", &[2, 2]), ints("strides", &[2, 2])])
        .node("CenterCropPad", "c size", "d", vec![])
        .node("Reshape", "x rows", "e", vec![])
        .node("Col2Im", "e image block", "f", vec![])
        .node("AffineGrid", "maps size", "g", vec![int("align_corners", 1)])
        .node("SoftmaxCrossEntropyLoss", "a classes", "h logs", vec![int("ignore_index", -1)])
        .node("Resize", "d region _ size", "y", vec![word("coordinate_transformation_mode", "tf_crop_and_resize")])
        .node("Det", "x", "j", vec![])
        .node("RandomNormalLike", "j", "k", vec![float("seed", 1.0)])
        .output("f")
        .output("g")
        .output("h")
        .output("k")
        .output("y")
}

/// Returns a model with operators of ONNX Runtime.
fn of_runtime() -> Model {
    let mut model = Model::new(17)
        .input("x", &[1, 3, 32])
        .constant("bytes", &Cast(DType::U8).evaluate(&[&Tensor::i64(&[32, 2, 8], vec![0x47; 512]).unwrap()]).unwrap())
        .constant("scales", &f32s(&[64], &[0.5; 64]))
        .constant("weights", &counted(&[32, 96]))
        .constant("mask", &Tensor::i64(&[1, 3], vec![1, 1, 0]).unwrap())
        .constant("row", &f32s(&[32], &[1.0; 32]))
        .node("MatMulNBits", "x bytes scales", "a", vec![int("K", 32), int("N", 32), int("block_size", 16)])
        .node("Attention", "a weights _ mask", "b", vec![int("num_heads", 4), int("unidirectional", 1)])
        .node("MultiHeadAttention", "a b x _ mask", "c k v", vec![int("num_heads", 2)])
        .node("SkipLayerNormalization", "b c row", "d _ _ sum", vec![])
        .node("FusedMatMul", "d sum", "y", vec![int("transB", 1), float("alpha", 0.5)])
        .output("y")
        .output("k");
    for node in &mut model.graph().node {
        node.domain = Some("com.microsoft".into());
    }
    model
}

#[test]
fn changed_files() {
    let mut models = models();
    for bytes in &models {
        assert_eq!(import(bytes), None);
    }
    // Include small real models, if there are any.
    if let Some(folder) = env::var_os("AUTOTUNE_ONNX_DATA") {
        for entry in fs::read_dir(Path::new(&folder).join("pytorch-converted")).unwrap() {
            models.extend(fs::read(entry.unwrap().path().join("model.onnx")).ok().filter(|bytes| bytes.len() < 4096));
        }
    }

    for_cases(cases(USUAL_CASES), |_, choices| {
        let mut bytes = models[choices.random_range(0..models.len())].clone();
        for _ in 0..choices.random_range(1..4) {
            change(&mut bytes, &models, choices);
        }
        import(&bytes);
    });
    for bytes in models {
        (0..bytes.len().min(2048)).for_each(|end| drop(import(&bytes[..end])));
    }
}

/// Replaces a byte, some bytes, or a range by a part of another model.
fn change(bytes: &mut Vec<u8>, models: &[Vec<u8>], rng: &mut impl Rng) {
    if bytes.is_empty() {
        return;
    }
    let at = rng.random_range(0..bytes.len());
    match rng.random_range(0..6) {
        0 => bytes[at] ^= 1 << rng.random_range(0..8),
        1 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][rng.random_range(0..5)],
        2 => bytes.truncate(at),
        3 => drop(bytes.splice(at..at, [0xff; 9].into_iter().chain([1]).take(rng.random_range(1..11)))),
        4 => drop(bytes.drain(at..(at + rng.random_range(1..9)).min(bytes.len()))),
        _ => {
            let other = &models[rng.random_range(0..models.len())];
            let from = rng.random_range(0..other.len());
            let part = other[from..].iter().copied().take(rng.random_range(1..200));
            drop(bytes.splice(at..(at + 8).min(bytes.len()), part));
        }
    }
}

/// Operators and numbers that replace others.
const OPERATORS: &[&str] = &[
    "Add",
    "AffineGrid",
    "Attention",
    "AveragePool",
    "BatchNormalization",
    "Bernoulli",
    "Cast",
    "CenterCropPad",
    "Clip",
    "Col2Im",
    "Concat",
    "ConstantOfShape",
    "Conv",
    "ConvTranspose",
    "DFT",
    "DepthToSpace",
    "Det",
    "DynamicQuantizeLSTM",
    "Einsum",
    "Expand",
    "EyeLike",
    "Flatten",
    "FusedConv",
    "Gather",
    "GatherElements",
    "GatherND",
    "Gemm",
    "GlobalMaxPool",
    "GridSample",
    "GroupNormalization",
    "GroupQueryAttention",
    "HannWindow",
    "HardSigmoid",
    "Hardmax",
    "IsInf",
    "LRN",
    "LayerNormalization",
    "LpNormalization",
    "LpPool",
    "MatMul",
    "MatMulNBits",
    "MaxPool",
    "MaxUnpool",
    "MeanVarianceNormalization",
    "MelWeightMatrix",
    "Mod",
    "MultiHeadAttention",
    "NegativeLogLikelihoodLoss",
    "OneHot",
    "PRelu",
    "Pad",
    "Pow",
    "RandomNormal",
    "RandomUniformLike",
    "Range",
    "ReduceLogSumExp",
    "ReduceMean",
    "Reshape",
    "Resize",
    "ReverseSequence",
    "RoiAlign",
    "RotaryEmbedding",
    "STFT",
    "ScatterElements",
    "ScatterND",
    "Shape",
    "SkipLayerNormalization",
    "Slice",
    "Softmax",
    "SoftmaxCrossEntropyLoss",
    "SpaceToDepth",
    "Split",
    "Squeeze",
    "Sum",
    "TensorScatter",
    "Tile",
    "TopK",
    "Transpose",
    "Trilu",
    "Unsqueeze",
    "Upsample",
    "Where",
];
const NUMBERS: &[i64] =
    &[0, 1, 2, 3, -1, -2, -7, 1 << 15, 1 << 31, 1 << 40, (1 << 62) + 1, i64::MAX, i64::MIN, i64::MIN + 1];

/// Models that parse, with changes that operators see.
#[test]
fn changed_messages() {
    let models = models();
    let read = Cell::new(0);
    for_cases(cases(USUAL_CASES), |_, choices| {
        let mut model = ModelProto::parse_buf(&models[choices.random_range(0..models.len())]).unwrap();
        for _ in 0..choices.random_range(1..4) {
            change_message(&mut model, choices);
        }
        read.set(read.get() + u64::from(import(&model.write_buf().unwrap()).is_none()));
    });
    let read = read.get();
    // Enough of the changed models must be valid.
    assert!(read > cases(USUAL_CASES) / 40, "{read}");
    println!("{read} of {} models were read", cases(USUAL_CASES));
}

fn change_message(model: &mut ModelProto, rng: &mut impl Rng) {
    let number = NUMBERS[rng.random_range(0..NUMBERS.len())];
    let graph = model.graph.as_mut().unwrap();
    let nodes = graph.node.len();
    let name = graph.node[rng.random_range(0..nodes)].output[0].clone();
    let changed = &mut graph.node[rng.random_range(0..nodes)];

    match rng.random_range(0..7) {
        0 => model.opset_import[0].version = Some(rng.random_range(6..25)),
        1 => changed.op_type = Some(OPERATORS[rng.random_range(0..OPERATORS.len())].into()),
        2 => changed.attribute.clear(),
        3 => {
            let at = rng.random_range(0..changed.input.len());
            changed.input[at] = name;
        }
        4 => {
            for attribute in &mut changed.attribute {
                attribute.i = attribute.i.map(|_| number);
                if let Some(first) = attribute.ints.first_mut() {
                    *first = number;
                }
            }
        }
        5 => {
            let tensors = graph.initializer.len();
            let mut bytes = graph.initializer[rng.random_range(0..tensors)].raw_data.as_ref().unwrap().borrow_mut();
            let length = bytes.len();
            if length >= 8 {
                let at = 8 * rng.random_range(0..length / 8);
                bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
            }
        }
        _ => {
            let tensor = graph.input[0].r#type.as_mut().unwrap().tensor_type.as_mut().unwrap();
            let dims = &mut tensor.shape.as_mut().unwrap().dim;
            let at = rng.random_range(0..dims.len());
            dims[at].dim_value = Some(number);
        }
    }
}
