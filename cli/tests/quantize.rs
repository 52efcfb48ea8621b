//! Quantisation on the command line: the written model, figures, and errors of data and paths.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::build::Model;
use crate::sandbox::Sandbox;
use autotune_network::Tensor;

/// Encodes an array of f32 numbers as a `.npy` file.
fn npy(shape: &str, numbers: impl IntoIterator<Item = f32>) -> Vec<u8> {
    let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({shape}), }}");
    let mut bytes = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
    bytes.extend(format!("{header:<117}\n").as_bytes());
    bytes.extend(numbers.into_iter().flat_map(f32::to_le_bytes));
    bytes
}

fn varied(count: usize, seed: usize) -> impl Iterator<Item = f32> {
    (0..count).map(move |at| ((at * 37 + seed * 11) % 101) as f32 / 50.0 - 1.0)
}

/// A convolution with a normalisation behind it, a pooling, and a product.
fn model() -> Model {
    model_of(0.1)
}

/// Returns the model with `first` as the first weight of the product.
fn model_of(first: f32) -> Model {
    let weights = |shape: &[usize], seed| {
        let count = shape.iter().product();
        Tensor::f32(shape, varied(count, seed).map(|x| x / 3.0).collect()).unwrap()
    };
    let columns: Vec<f32> = [first].into_iter().chain(varied(39, 2)).collect();
    let columns = Tensor::f32(&[8, 5], columns).unwrap();
    let each = |from: f32| Tensor::f32(&[8], (0..8).map(|c| from + c as f32 / 8.0).collect()).unwrap();
    Model::new(17)
        .input("image", &[1, 3, 8, 8])
        .constant("filters", &weights(&[8, 3, 3, 3], 1))
        .constant("scale", &each(0.5))
        .constant("bias", &each(-0.5))
        .constant("mean", &each(-0.2))
        .constant("variance", &each(0.6))
        .constant("columns", &columns)
        .node("Conv", "image filters", "a", vec![crate::build::ints("pads", &[1; 4])])
        .node("BatchNormalization", "a scale bias mean variance", "b", vec![])
        .node("Relu", "b", "c", vec![])
        .node("GlobalAveragePool", "c", "d", vec![])
        .node("Flatten", "d", "e", vec![])
        .node("MatMul", "e columns", "classes", vec![])
        .output("classes")
}

/// Returns a sandbox with a model, a folder of examples and a file of several.
fn sandbox() -> Sandbox {
    let sandbox = Sandbox::new();
    fs::write(sandbox.path("model.onnx"), model().bytes()).unwrap();
    fs::create_dir(sandbox.path("images")).unwrap();
    for seed in 0..3 {
        fs::write(sandbox.path(&format!("images/{seed}.npy")), npy("1, 3, 8, 8", varied(192, seed))).unwrap();
    }
    fs::write(sandbox.path("several.npy"), npy("4, 3, 8, 8", varied(4 * 192, 5))).unwrap();
    sandbox
}

#[test]
fn a_model_is_quantised_and_runs() {
    let sandbox = sandbox();
    let line =
        "quantize model.onnx --data images several.npy --threads 1 -o int8.onnx --chart front.svg --json front.json";
    let ended = sandbox.run(line).expect(0);
    assert!(ended.stdout.contains("2 of 2 layers in integers") && !ended.stderr.contains("guess"), "{}", ended.stdout);
    let figures = sandbox.json("front.json");
    let error = figures["mixes"][0]["max_rel_error"].as_f64().unwrap();
    assert!(error > 0.0 && error < 0.05, "{figures}");
    assert_eq!(figures["compared"].as_array().unwrap().len(), 3);
    assert_eq!(figures["layers"][0]["is_float"], false);
    let svg = fs::read_to_string(sandbox.path("front.svg")).unwrap();
    assert!(
        roxmltree::Document::parse(&svg).unwrap().root_element().has_tag_name(("http://www.w3.org/2000/svg", "svg"))
    );

    sandbox.run("run int8.onnx --threads 1 --repeat 1 --check --input several.npy=bad").expect(2);
    sandbox.run("run int8.onnx --threads 1 --repeat 1 --check --input images/0.npy").expect(0);
    sandbox.run("quantize int8.onnx -o again.onnx").expect_line(2, "is quantised already");

    // A bound that no layer in integers keeps leaves all of them in floating point.
    let line = "quantize model.onnx --data images --threads 1 -o int8.onnx --max-error 0 --calibration min-max --json front.json";
    assert!(sandbox.run(line).expect(0).stdout.contains("0 of 2 layers in integers"));
    assert_eq!(sandbox.json("front.json")["compared"].as_array().unwrap().len(), 1);
}

#[test]
fn without_data_the_scales_are_called_a_guess() {
    let sandbox = Sandbox::new();
    fs::write(sandbox.path("model.onnx"), model().bytes()).unwrap();
    let ended = sandbox.run("quantize model.onnx --threads 1 -o int8.onnx").expect(0);
    assert!(
        ended.stderr.contains("no --data: scales and errors are of random inputs from -1 to 1, and a guess"),
        "{}",
        ended.stderr
    );
}

#[test]
fn bad_data_and_paths_are_one_line_and_write_nothing() {
    let sandbox = sandbox();
    let mut bad: Vec<f32> = varied(192, 0).collect();
    bad[7] = f32::NAN;
    fs::write(sandbox.path("nan.npy"), npy("1, 3, 8, 8", bad)).unwrap();
    fs::write(sandbox.path("other.npy"), npy("1, 3, 8, 9", varied(216, 0))).unwrap();
    fs::write(sandbox.path("text.npy"), "text").unwrap();
    fs::write(sandbox.path("text"), "text").unwrap();
    fs::create_dir(sandbox.path("empty")).unwrap();

    for (rest, words) in [
        ("--data nan.npy -o int8.onnx", "--data nan.npy: element 7 is NaN"),
        ("--data other.npy -o int8.onnx", "--data other.npy: shape [1, 3, 8, 9], but 'image' has [1, 3, 8, 8]"),
        ("--data text.npy -o int8.onnx", "--data text.npy: not an array of numbers"),
        ("--data missing.npy -o int8.onnx", "--data missing.npy: No such file"),
        ("--data empty -o int8.onnx", "--data empty: the folder has no .npy file"),
        ("--data x=images -o int8.onnx", "--data x=images: No such file"),
        ("--data images -o text", "-o text: exists and is not a model"),
        ("--data images -o model.onnx", "is the network to quantise"),
        ("--data images -o -", "-o -: specify a file"),
        ("--data images -o int8.onnx --calibration best", "--calibration 'best' is not a method"),
        ("--data images -o int8.onnx --max-error=-1", "--max-error '-1' is not a relative error"),
        ("--data images -o int8.onnx --target cuda", "networks are quantised for CPUs only"),
    ] {
        sandbox.run(&format!("quantize model.onnx {rest}")).expect_line(2, words);
        assert!(!sandbox.path("int8.onnx").exists(), "{rest}");
    }
    for number in [f32::NAN, f32::INFINITY] {
        fs::write(sandbox.path("wrong.onnx"), model_of(number).bytes()).unwrap();
        let words = "wrong.onnx: node 'matmul': a weight or bias is infinite or not a number";
        sandbox.run("quantize wrong.onnx --data images -o int8.onnx").expect_line(1, words);
    }
    assert!(!sandbox.path("int8.onnx").exists());

    sandbox.run("quantize matmul:m=4,n=4,k=4 -o int8.onnx").expect_line(2, "a workload cannot be quantised");
    sandbox.run("quantize model.onnx").expect_line(2, "--output");
    assert_eq!(fs::read(sandbox.path("model.onnx")).unwrap(), model().bytes());
}

/// Interpreter with the packages `onnxruntime` and, optionally, `openvino`.
fn python() -> Option<String> {
    let found = std::env::var("AUTOTUNE_ONNX_PYTHON").ok();
    if found.is_none() {
        let required = std::env::var("AUTOTUNE_REQUIRE").unwrap_or_default();
        assert!(!required.split(',').any(|word| word == "onnx_python"), "AUTOTUNE_ONNX_PYTHON is not set");
        eprintln!("skipped: AUTOTUNE_ONNX_PYTHON names no interpreter with onnxruntime");
    }
    found
}

/// ONNX Runtime and OpenVINO compute with the written model what `autotune run` does.
#[test]
fn other_runtimes_compute_the_same() {
    let Some(python) = python() else { return };
    let sandbox = sandbox();
    sandbox.run("quantize model.onnx --data images --threads 1 -o int8.onnx").expect(0);
    sandbox.run("run int8.onnx --threads 1 --repeat 1 --input images/1.npy --output out").expect(0);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/other_runtimes.py");
    let ended = Command::new(python)
        .arg(script)
        .args(["int8.onnx", "images/1.npy", "out/classes.npy"])
        .current_dir(sandbox.dir.path())
        .output()
        .unwrap();
    assert!(
        ended.status.success(),
        "{}{}",
        String::from_utf8_lossy(&ended.stdout),
        String::from_utf8_lossy(&ended.stderr)
    );
}
