//! Invalid files, and files that demand excessive resources, are rejected with a one-line message
//! and little memory.
#![allow(unreachable_pub, clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};

use autotune_graph::Tensor;
use autotune_graph::onnx::{self, ImportOptions};
use rten_onnx::onnx::{DataType, Dimension, GraphProto, StringStringEntryProto};

#[path = "../common/build.rs"]
mod build;
#[path = "../../../workloads/tests/common/cases.rs"]
#[allow(dead_code)]
mod cases;
mod changed;

use build::{Model, counted, f32s, floats, i64s, info, int, ints, node, raw, subgraph, word};

/// Allocator that counts the allocated bytes.
struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is forwarded to the system's allocator with the same arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = LIVE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(live, Ordering::Relaxed);
        // SAFETY: guaranteed by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: guaranteed by the caller.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Maximum number of bytes that a small file may cost.
const MOST_BYTES: usize = 256 << 20;

/// Maximum number of characters of a message, including some names and lists.
const MOST_CHARACTERS: usize = 800;

/// Imports bytes with a small budget of evaluation; returns the one-line error, if any.
fn import(bytes: &[u8]) -> Option<String> {
    let options = ImportOptions { max_folded: 1 << 16, ..ImportOptions::default() };
    let message = onnx::read_bytes(bytes, &options).err().map(|e| e.to_string());
    if let Some(message) = &message {
        assert!(!message.is_empty() && !message.contains(char::is_control), "{message:?}");
        assert!(message.chars().count() < MOST_CHARACTERS, "{message}");
    }
    let most = MOST.load(Ordering::Relaxed);
    assert!(most < MOST_BYTES, "{most} bytes: {message:?}");
    message
}

fn refused(model: Model) -> String {
    import(&model.bytes()).unwrap()
}

/// Encodes a length-delimited field.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![number << 3 | 2];
    let mut length = content.len();
    while length >= 0x80 {
        bytes.push(length as u8 | 0x80);
        length >>= 7;
    }
    bytes.push(length as u8);
    [&bytes, content].concat()
}

#[test]
fn bytes_that_are_no_model() {
    let cases: [(&[u8], &str); 6] = [
        (b"", "not an ONNX model: the opset version is missing"),
        (b"not a model", "not an ONNX model: unknown wire type (byte 1)"),
        // A length of almost 2^64.
        (
            &[0x3a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
            "not an ONNX model: a length exceeds the enclosing message (byte 11)",
        ),
        (&[0xff; 20], "not an ONNX model: unterminated varint (byte 0)"),
        (&[0x08], "not an ONNX model: unterminated varint (byte 1)"),
        (&[0x0d, 1, 2], "not an ONNX model: truncated message (byte 1)"),
    ];
    for (bytes, message) in cases {
        assert_eq!(import(bytes).as_deref(), Some(message));
    }

    // Graphs in attributes of nodes of graphs, and so on.
    let mut nested = Vec::new();
    for _ in 0..10_000 {
        nested = field(1, &field(5, &field(6, &nested)));
    }
    assert!(import(&field(7, &nested)).unwrap().starts_with("not an ONNX model: too many messages"));
    let many = field(7, &field(1, &[]).repeat(2 << 20));
    assert!(import(&many).unwrap().starts_with("not an ONNX model: too many messages"));
    let names = field(7, &field(1, &field(1, b"x").repeat((1 << 20) + 1)));
    assert!(import(&names).unwrap().starts_with("not an ONNX model: too many inputs and outputs of nodes"));
    // Half a number at the end of packed ones.
    let halved = field(7, &field(5, &field(4, &[0; 6])));
    assert!(import(&halved).unwrap().starts_with("not an ONNX model: a packed field ends within a number"));
}

#[test]
fn tensors_that_are_too_large() {
    let large = || Model::new(13).constant("shape", &i64s(&[1 << 15, 1 << 15])).output("y");
    let message = "node 'constantofshape' (ConstantOfShape): tensor of shape [32768, 32768] is too large";
    assert_eq!(refused(large().node("ConstantOfShape", "shape", "y", vec![])), message);

    // Tensors that are not evaluated at import are still limited in size.
    let tiled =
        Model::new(13).input("x", &[1 << 10]).constant("times", &i64s(&[1 << 40])).node("Tile", "x times", "y", vec![]);
    let message = "node 'tile' (Tile): tensor of shape [1099511627776, 1024] is too large";
    assert_eq!(refused(tiled.output("y")), message);

    let mut model = Model::new(13).output("y");
    model.graph().initializer.push(raw("y", DataType::FLOAT, &[1 << 20, 1 << 20, 1 << 20], vec![]));
    let message = "tensor 'y': tensor of shape [1048576, 1048576, 1048576] is too large";
    assert_eq!(refused(model), message);

    let mut model = Model::new(13).output("y");
    model.graph().initializer.push(raw("y", DataType::FLOAT, &[1 << 30], vec![0; 8]));
    assert_eq!(refused(model), "tensor 'y': 8 bytes do not match 1073741824 elements of FLOAT");

    let range = Model::new(13)
        .constant("zero", &Tensor::scalar(0.0))
        .constant("one", &Tensor::scalar(1.0))
        .node("Range", "zero one zero", "y", vec![])
        .output("y");
    let message = "node 'range' (Range): the range is endless or has more than 2^24 numbers";
    assert_eq!(refused(range), message);
}

#[test]
fn graphs_that_make_no_sense() {
    let relu = |inputs, outputs| Model::new(13).input("x", &[2]).node("Relu", inputs, outputs, vec![]);
    let cases = [
        (relu("x", "y"), "not an ONNX model: the graph has no outputs"),
        (relu("x", "y").output("z"), "output 'z': no node computes it"),
        (relu("x", "y").output("y").output("y"), "output 'y': duplicate name"),
        (relu("y", "y").output("y"), "node 'relu' (Relu): input 0: no earlier node computes 'y'"),
        (relu("_", "y").output("y"), "node 'relu' (Relu): input 0: is missing"),
        (relu("x x", "y").output("y"), "node 'relu' (Relu): 2 inputs; at most 1 are supported"),
        (relu("x", "x").output("x"), "node 'relu' (Relu): tensor name 'x' is already in use"),
        (relu("x", "y").input("x", &[2]).output("y"), "input 'x': duplicate input name"),
        (
            relu("x", "y").node("Relu", "x", "y", vec![]).output("y"),
            "node 'relu' (Relu): tensor name 'y' is already in use",
        ),
        (
            relu("x", "y")
                .constant("c", &i64s(&[1]))
                .constant("c", &i64s(&[1]))
                .node("Sum", "y c", "z", vec![])
                .output("z"),
            "tensor 'c': duplicate name",
        ),
        // A cycle.
        (
            Model::new(13).node("Relu", "b", "a", vec![]).node("Abs", "a", "b", vec![]).output("b"),
            "node 'relu' (Relu): input 0: no earlier node computes 'b'",
        ),
        (
            relu("x", "a").node("If", "a", "y", vec![subgraph("then_branch", GraphProto::default())]).output("y"),
            "node 'if' (If): input 0: must be a constant: give the input that it depends on as a number",
        ),
        (
            relu("x", "a").node("Frobnicate\n\u{1b}[31m", "a", "y", vec![]).output("y"),
            "node 'frobnicate??[31m' (Frobnicate??[31m): the operator is not supported",
        ),
        (Model::new(5).output("y"), "opset 5 is not supported (supported: 6 to 24)"),
        (Model::new(99).output("y"), "opset 99 is not supported (supported: 6 to 24)"),
    ];
    for (model, message) in cases {
        assert_eq!(refused(model), message);
    }

    let mut other = relu("x", "y").output("y");
    other.graph().node[0].domain = Some("com.example".into());
    assert_eq!(refused(other), "node 'relu' (com.example.Relu): the operator is not supported");
}

#[test]
fn attributes_that_make_no_sense() {
    let conv = |attributes| {
        let model = Model::new(13).input("x", &[1, 2, 5, 5]).constant("w", &counted(&[2, 2, 3, 3]));
        refused(model.node("Conv", "x w", "y", attributes).output("y"))
    };

    assert_eq!(conv(vec![ints("pads", &[1, 1])]), "node 'conv' (Conv): attribute 'pads': expected 4 numbers");
    assert_eq!(
        conv(vec![ints("pads", &[-1, 0, 0, 0])]),
        "node 'conv' (Conv): attribute 'pads': contains a negative number"
    );
    assert_eq!(conv(vec![ints("strides", &[0, 1])]), "node 'conv' (Conv): attribute 'strides': must not contain 0");
    assert_eq!(conv(vec![int("group", 0)]), "node 'conv' (Conv): attribute 'group': is not positive");
    assert_eq!(conv(vec![int("group", 1), int("group", 1)]), "node 'conv' (Conv): attribute 'group': occurs twice");
    assert_eq!(conv(vec![int("colour", 3)]), "node 'conv' (Conv): attribute 'colour': is not supported");
    assert_eq!(
        conv(vec![int("strides", 1)]),
        "node 'conv' (Conv): attribute 'strides': has the wrong type for this operator"
    );
    assert_eq!(
        conv(vec![ints("kernel_shape", &[5, 5])]),
        "node 'conv' (Conv): attribute 'kernel_shape': the weights have [3, 3]"
    );
    assert_eq!(
        conv(vec![word("auto_pad", "SOME")]),
        "node 'conv' (Conv): attribute 'auto_pad': expected NOTSET, VALID, SAME_UPPER or SAME_LOWER"
    );
    assert_eq!(
        conv(vec![ints("dilations", &[i64::MAX, 1])]),
        "node 'conv' (Conv): the window of 3 elements exceeds the image of 5"
    );
}

/// Names and lists of thousands of characters or numbers are truncated to a line.
#[test]
fn names_and_lists_that_are_too_long() {
    let name = "n".repeat(1 << 14);
    let many = [7; 1 << 14];
    let relu = |inputs: &str, outputs: &str| Model::new(13).input("x", &[2]).node("Relu", inputs, outputs, vec![]);
    let dims = vec![Dimension { dim_value: Some(2), dim_param: None }; 1000];
    let mut deep = Model::new(13).output("x");
    deep.graph().input.push(info("x", DataType::FLOAT, dims));
    let mut open = Model::new(13).node("Relu", "x", "y", vec![]).output("y");
    let long = Dimension { dim_value: None, dim_param: Some(name.clone()) };
    open.graph().input.push(info("x", DataType::FLOAT, vec![long.clone(), long.clone(), long]));

    let on_image = |operator: &str, version, attributes| {
        let model = Model::new(version).input("x", &[1, 1, 5, 5]).constant("w", &counted(&[1, 1, 3, 3]));
        let inputs = if operator.starts_with("Conv") { "x w" } else { "x" };
        model.node(operator, inputs, "y", attributes).output("y")
    };
    let by_constant = |operator: &str, attributes| {
        Model::new(13)
            .input("x", &[6])
            .constant("many", &i64s(&many))
            .node(operator, "x many", "y", attributes)
            .output("y")
    };
    let mut cases = vec![
        relu("x", "y").output(&name),
        relu(&name, "y").output("y"),
        relu("x", "y").node(&name, "y", "z", vec![]).output("z"),
        relu("x", "y").node("Relu", "y", &name, vec![int(&name, 1)]).output(&name),
        deep,
        open,
    ];
    for operator in ["Conv", "ConvTranspose", "MaxPool", "AveragePool"] {
        for word in ["pads", "strides", "dilations", "kernel_shape", "output_shape", "output_padding"] {
            cases.push(on_image(operator, 13, vec![ints("kernel_shape", &[3, 3]), ints(word, &many)]));
            cases.push(on_image(operator, 13, vec![ints(word, &many)]));
        }
    }
    for (operator, word, version) in [
        ("Transpose", "perm", 13),
        ("Squeeze", "axes", 11),
        ("Unsqueeze", "axes", 11),
        ("ReduceSum", "axes", 11),
        ("Split", "split", 11),
        ("Slice", "starts", 9),
        ("Pad", "pads", 10),
        ("Constant", "value_ints", 13),
    ] {
        cases.push(on_image(operator, version, vec![ints(word, &many)]));
    }
    for operator in
        ["Reshape", "Expand", "Tile", "Squeeze", "Unsqueeze", "Split", "Pad", "ReduceSum", "ConstantOfShape"]
    {
        cases.push(by_constant(operator, vec![]));
    }
    cases.push(on_image("Upsample", 8, vec![floats("scales", &[1.5; 1 << 14])]));
    for model in cases {
        import(&model.bytes());
    }
    let perm = refused(on_image("Transpose", 13, vec![ints("perm", &many)]));
    assert!(perm.ends_with(", .. 16384 in total] is not a permutation of the axes of [1, 1, 5, 5]"), "{perm}");
}

#[test]
fn inputs_that_are_open() {
    let open = |name: &str, dims: &[&str]| {
        let dimension = |text: &&str| match text.parse() {
            Ok(extent) => Dimension { dim_value: Some(extent), dim_param: None },
            Err(_) => Dimension { dim_value: None, dim_param: Some((*text).into()) },
        };
        info(name, DataType::FLOAT, dims.iter().map(dimension).collect())
    };
    let model = |dims: &[&[&str]]| {
        let mut model = Model::new(13);
        for (index, dims) in dims.iter().enumerate() {
            let (input, output) = (format!("x{index}"), format!("y{index}"));
            model.graph().input.push(open(&input, dims));
            model = model.node("Relu", &input, &output, vec![]).output(&output);
        }
        model.bytes()
    };
    let shapes = |dims: &[&[&str]], given: &[(&str, &[usize])]| {
        let shapes = given.iter().map(|(name, shape)| (name.to_string(), shape.to_vec())).collect();
        let graph = onnx::read_bytes(&model(dims), &ImportOptions { shapes, ..ImportOptions::default() });
        let shapes = |graph: &autotune_graph::Graph| -> Vec<Vec<usize>> {
            graph.inputs().iter().map(|&id| graph.node(id).shape.clone()).collect()
        };
        graph.map(|graph| shapes(&graph)).map_err(|e| e.to_string())
    };

    assert_eq!(shapes(&[&["N", "3"]], &[]), Ok(vec![vec![1, 3]]));
    assert_eq!(shapes(&[&["-1", "3"]], &[]), Ok(vec![vec![1, 3]]));
    assert_eq!(shapes(&[&["N", "3"]], &[("x0", &[8, 3])]), Ok(vec![vec![8, 3]]));
    // Extents of the same name are equal.
    assert_eq!(
        shapes(&[&["N", "3"], &["N", "H"]], &[("x0", &[8, 3]), ("x1", &[8, 5])]),
        Ok(vec![vec![8, 3], vec![8, 5]])
    );
    assert_eq!(shapes(&[&["N", "W"], &["N", "W", "2"]], &[("x1", &[8, 3, 2])]), Ok(vec![vec![8, 3], vec![8, 3, 2]]));

    let message = "input 'x0': shape NxHx4 is not fixed: specify one, such as x0=?x?x4";
    assert_eq!(shapes(&[&["N", "H", "4"]], &[]), Err(message.into()));
    let message = "input 'x0': shape 2x5 does not fit the model's Nx3";
    assert_eq!(shapes(&[&["N", "3"]], &[("x0", &[2, 5])]), Err(message.into()));
    // Runtimes do not check names: inputs may disagree, unless another input's shape depends on the
    // name.
    let given: [(&str, &[usize]); 2] = [("x0", &[8, 3]), ("x1", &[9, 3])];
    assert_eq!(shapes(&[&["N", "3"], &["N", "3"]], &given), Ok(vec![vec![8, 3], vec![9, 3]]));
    assert_eq!(shapes(&[&["N", "N"]], &[("x0", &[2, 5])]), Ok(vec![vec![2, 5]]));
    let message = "input 'x2': extent N is 8 in 'x0' and 9 in 'x1': specify one, such as x2=?x4";
    assert_eq!(shapes(&[&["N", "3"], &["N", "3"], &["N", "4"]], &given), Err(message.into()));
    let three = [&given[..], &[("x2", &[7, 4])]].concat();
    assert_eq!(shapes(&[&["N", "3"], &["N", "3"], &["N", "4"]], &three), Ok(vec![vec![8, 3], vec![9, 3], vec![7, 4]]));
    let message = "input 'image': no such input; the inputs are x0";
    assert_eq!(shapes(&[&["N", "3"]], &[("image", &[2, 5])]), Err(message.into()));
    let message = "input 'x0': tensor of shape [1, 1099511627776, 2147483647] is too large";
    assert_eq!(shapes(&[&["N", "1099511627776", "2147483647"]], &[]), Err(message.into()));
}

#[test]
fn data_in_other_files() {
    let folder = tempfile::tempdir().unwrap();
    let inside = folder.path().join("model");
    fs::create_dir(&inside).unwrap();
    fs::write(inside.join("weights.bin"), [0u8; 3].iter().copied().chain(1.5f32.to_le_bytes()).collect::<Vec<u8>>())
        .unwrap();
    fs::write(folder.path().join("secret.bin"), [0; 4]).unwrap();
    let model = |entries: &[(&str, &str)]| {
        let mut model = Model::new(13).output("w");
        let mut weights = raw("w", DataType::FLOAT, &[1], vec![]);
        weights.raw_data = None;
        weights.data_location = Some(rten_onnx::onnx::DataLocation::EXTERNAL);
        let entry =
            |&(key, value): &(&str, &str)| StringStringEntryProto { key: Some(key.into()), value: Some(value.into()) };
        weights.external_data = entries.iter().map(entry).collect();
        model.graph().initializer.push(weights);
        model
    };
    let read = |entries: &[(&str, &str)]| {
        let path = inside.join("model.onnx");
        fs::write(&path, model(entries).bytes()).unwrap();
        onnx::read(&path, &ImportOptions::default())
            .map(|graph| graph.evaluate(&[]).unwrap().remove(0))
            .map_err(|e| e.to_string())
    };

    assert_eq!(read(&[("location", "weights.bin"), ("offset", "3"), ("length", "4")]), Ok(f32s(&[1], &[1.5])));
    assert_eq!(read(&[("location", "./weights.bin"), ("offset", "3")]), Ok(f32s(&[1], &[1.5])));
    let outside = |name: &str| Err(format!("tensor 'w': external data in '{name}': outside the folder of the model"));
    assert_eq!(read(&[("location", "../secret.bin")]), outside("../secret.bin"));
    assert_eq!(read(&[("location", "/etc/hostname")]), outside("/etc/hostname"));
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(folder.path().join("secret.bin"), inside.join("link.bin")).unwrap();
        assert_eq!(read(&[("location", "link.bin")]), outside("link.bin"));
    }
    let wrong = |message: &str| Err(format!("tensor 'w': {message}"));
    assert_eq!(read(&[]), wrong("the location of the external data is missing"));
    assert_eq!(
        read(&[("location", "weights.bin"), ("offset", "x")]),
        wrong("the offset of the external data is not a number")
    );
    assert_eq!(
        read(&[("location", "weights.bin"), ("length", "5")]),
        wrong("the length of the external data is not the 4 bytes of the shape")
    );
    let message = "external data in 'weights.bin': 4 bytes at offset 18446744073709551615 exceed the file size 7";
    assert_eq!(read(&[("location", "weights.bin"), ("offset", "18446744073709551615")]), wrong(message));
    assert!(
        read(&[("location", "nothing.bin")]).unwrap_err().starts_with("tensor 'w': external data in 'nothing.bin': ")
    );
    assert!(read(&[("location", ".")]).is_err());

    let alone = refused(model(&[("location", "weights.bin")]));
    assert_eq!(alone, "tensor 'w': external data cannot be read from a model in memory");
    assert_eq!(node("Relu", "x _", "y", vec![]).input, ["x", ""]);
}
