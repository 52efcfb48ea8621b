//! Network inputs on the command line: files of every type, open shapes and constants of ONNX
//! files, and output files.

#![allow(unreachable_pub, clippy::unwrap_used, clippy::expect_used)]

use std::fs;

use crate::build::{Model, counted, i64s, info, int, node, subgraph};
use rten_onnx::onnx::{DataType, Dimension, GraphProto, ValueInfoProto};

use crate::sandbox::Sandbox;

/// Encodes a `.npy` file from its type, shape and bytes.
fn npy(descr: &str, shape: &str, bytes: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape}), }}");
    let padded = format!("{header:<117}\n");
    [&b"\x93NUMPY\x01\x00\x76\x00"[..], padded.as_bytes(), bytes].concat()
}

/// Reads the element type and the bytes of the elements of a `.npy` file.
fn read(sandbox: &Sandbox, name: &str) -> (String, Vec<u8>) {
    let bytes = fs::read(sandbox.path(name)).unwrap();
    let header = String::from_utf8_lossy(&bytes[10..128]).into_owned();
    let descr = header.split("'descr': '").nth(1).unwrap().split('\'').next().unwrap();
    (descr.into(), bytes[128..].to_vec())
}

fn f32s(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// Reads the elements of a `.npy` file of f32 numbers.
fn floats(sandbox: &Sandbox, name: &str) -> Vec<f32> {
    let (descr, bytes) = read(sandbox, name);
    assert_eq!(descr, "<f4");
    bytes.as_chunks().0.iter().map(|&number| f32::from_le_bytes(number)).collect()
}

fn write(sandbox: &Sandbox, name: &str, model: &Model) {
    fs::write(sandbox.path(name), model.bytes()).unwrap();
}

fn extents(all: &[&str]) -> Vec<Dimension> {
    let of = |text: &&str| match text.parse() {
        Ok(extent) => Dimension { dim_value: Some(extent), dim_param: None },
        Err(_) => Dimension { dim_value: None, dim_param: Some((*text).into()) },
    };
    all.iter().map(of).collect()
}

/// Returns a model that negates its input and casts the result to another type.
fn negated(input: DataType, shape: &[&str], output: DataType) -> Model {
    let mut model = Model::new(17);
    model.graph().input.push(info("x", input, extents(shape)));
    let cast = |to: DataType| vec![int("to", to.0.into())];
    let model = model.node("Cast", "x", "number", cast(DataType::FLOAT)).node("Neg", "number", "n", vec![]);
    let mut model = model.node("Cast", "n", "y", cast(output));
    model.graph().output.push(info("y", output, vec![]));
    model
}

/// Files of every numeric type are converted exactly, or refused with the number that cannot be
/// represented.
#[test]
fn files_of_every_type() {
    let sandbox = Sandbox::new();
    write(&sandbox, "float.onnx", &negated(DataType::FLOAT, &["3"], DataType::FLOAT));
    write(&sandbox, "integer.onnx", &negated(DataType::INT64, &["3"], DataType::FLOAT));
    write(&sandbox, "bool.onnx", &negated(DataType::BOOL, &["3"], DataType::FLOAT));
    let files = |numbers: [i8; 3]| {
        let of = |bytes: fn(i8) -> Vec<u8>| numbers.iter().flat_map(|&number| bytes(number)).collect::<Vec<u8>>();
        [
            ("|u1", of(|n| vec![n as u8])),
            ("|i1", of(|n| n.to_le_bytes().into())),
            ("<i2", of(|n| i16::from(n).to_le_bytes().into())),
            ("<u2", of(|n| (n as u16).to_le_bytes().into())),
            ("<i4", of(|n| i32::from(n).to_le_bytes().into())),
            (">i4", of(|n| i32::from(n).to_be_bytes().into())),
            ("<u4", of(|n| (n as u32).to_le_bytes().into())),
            ("<i8", of(|n| i64::from(n).to_le_bytes().into())),
            ("<u8", of(|n| (n as u64).to_le_bytes().into())),
            ("<f2", of(|n| half::f16::from_f32(n.into()).to_le_bytes().into())),
            ("<f4", of(|n| f32::from(n).to_le_bytes().into())),
            (">f8", of(|n| f64::from(n).to_be_bytes().into())),
        ]
    };
    for (model, numbers) in [("float", [0, 1, 100]), ("integer", [0, 1, 100]), ("bool", [0, 1, 1])] {
        for (descr, bytes) in files(numbers) {
            fs::write(sandbox.path("x.npy"), npy(descr, "3,", &bytes)).unwrap();
            sandbox.run(&format!("run {model}.onnx --input x.npy --output out --repeat 1 --threads 1")).expect(0);
            assert_eq!(floats(&sandbox, "out/y.npy"), numbers.map(|number| -f32::from(number)), "{model} {descr}");
        }
    }
    fs::write(sandbox.path("x.npy"), npy("|b1", "3,", &[0, 1, 1])).unwrap();
    sandbox.run("run integer.onnx --input x.npy --output out --repeat 1 --threads 1").expect(0);
    assert_eq!(floats(&sandbox, "out/y.npy"), [0.0, -1.0, -1.0]);

    let f64s = |numbers: [f64; 3]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>();
    let i64s = |numbers: [i64; 3]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>();
    let refused = |model: &str, descr: &str, bytes: Vec<u8>, words: &str| {
        fs::write(sandbox.path("x.npy"), npy(descr, "3,", &bytes)).unwrap();
        sandbox.run(&format!("run {model}.onnx --input x.npy")).expect_line(2, words);
    };
    refused("integer", "<f8", f64s([1.0, 2.5, 3.0]), "--input x.npy: 2.5 is not int64");
    refused("integer", "<f4", f32s(&[1.0, f32::NAN, 3.0]), "--input x.npy: NaN is not int64");
    refused("integer", "<u8", u64::MAX.to_le_bytes().repeat(3), "--input x.npy: 18446744073709551615 is not int64");
    refused(
        "integer",
        "<i8",
        i64s([0, (1 << 24) + 1, 0]),
        "--input x.npy: 16777217 is not an exact integer of networks",
    );
    refused("float", "<i8", i64s([0, (1 << 24) + 1, 0]), "--input x.npy: 16777217 is not float32");
    refused("float", "<f8", f64s([0.0, 1e300, 0.0]), "is not float32");
    refused("bool", "|u1", vec![0, 1, 2], "--input x.npy: 2 is not bool");
    refused("float", "<U1", vec![0; 12], "elements of type");
    refused("float", "<f4", vec![0; 11], "not an array of numbers");

    // Input that is exact in f32 but beyond the range in which all integers are: results may be
    // rounded.
    fs::write(sandbox.path("x.npy"), npy("<i8", "3,", &i64s([0, 1 << 25, 0]))).unwrap();
    let run = sandbox.run("run integer.onnx --input x.npy --repeat 1 --threads 1").expect(0);
    assert!(run.stderr.contains("warning: --input x.npy: 33554432 exceeds 2^24"), "{}", run.stderr);
}

#[test]
fn outputs_are_files_of_the_types_of_the_model() {
    let sandbox = Sandbox::new();
    fs::write(sandbox.path("x.npy"), npy("<f4", "3,", &f32s(&[-1.0, -0.0, -200.0]))).unwrap();
    let run = |output: DataType, name: &str| {
        write(&sandbox, "model.onnx", &negated(DataType::FLOAT, &["3"], output));
        sandbox.run(&format!("run model.onnx --input x.npy --output {name} --repeat 1 --threads 1"))
    };
    let i32s = [1i32, 0, 200].map(i32::to_le_bytes).concat();
    let f16s = [1.0, 0.0, 200.0].map(|x| half::f16::from_f32(x).to_le_bytes()).concat();
    for (output, descr, bytes) in [
        (DataType::INT32, "<i4", i32s),
        (DataType::INT64, "<i8", [1i64, 0, 200].map(i64::to_le_bytes).concat()),
        (DataType::UINT8, "|u1", vec![1, 0, 200]),
        (DataType::BOOL, "|b1", vec![1, 0, 1]),
        (DataType::FLOAT16, "<f2", f16s),
        (DataType::FLOAT, "<f4", f32s(&[1.0, 0.0, 200.0])),
        (DataType::DOUBLE, "<f8", [1f64, 0.0, 200.0].map(f64::to_le_bytes).concat()),
    ] {
        run(output, "out").expect(0);
        assert_eq!(read(&sandbox, "out/y.npy"), (descr.into(), bytes), "{output}");
    }
}

#[test]
fn extents_that_are_open_are_those_of_the_file() {
    let sandbox = Sandbox::new();
    write(&sandbox, "open.onnx", &negated(DataType::FLOAT, &["batch", "width"], DataType::FLOAT));
    fs::write(sandbox.path("x.npy"), npy("<f4", "2, 3", &f32s(&[1.0; 6]))).unwrap();
    for line in ["--input x.npy", "--input x=x.npy", "--input x.npy --shape x=2x3"] {
        sandbox.run(&format!("run open.onnx {line} --output out --repeat 1 --threads 1")).expect(0);
        assert_eq!(floats(&sandbox, "out/y.npy"), [-1.0; 6], "{line}");
    }
    let tasks = sandbox.run("tasks open.onnx --input x.npy").expect(0).stdout;
    assert!(tasks.contains("pointwise:m=2,n=3"), "{tasks}");

    sandbox.run("run open.onnx").expect_line(2, "--shape: open.onnx: input 'x': shape batchxwidth is not fixed");
    sandbox.run("run open.onnx --input x.npy --shape x=2x4").expect_line(2, "--input x.npy: shape [2, 3], but 'x' has");
    sandbox
        .run("run open.onnx --shape x=2x3 --shape x=2x4")
        .expect_line(2, "the shape of input 'x' is specified twice");
    fs::write(sandbox.path("x.npy"), npy("<f4", "6,", &f32s(&[1.0; 6]))).unwrap();
    let message = "--input x.npy: open.onnx: input 'x': shape 6 does not fit the model's batchxwidth";
    sandbox.run("run open.onnx --input x.npy").expect_line(2, message);
}

/// Inputs may differ in extents that share a name, as in other ONNX runtimes.
#[test]
fn extents_of_one_name_may_differ() {
    let sandbox = Sandbox::new();
    let mut model = Model::new(17);
    for input in ["a", "b"] {
        model.graph().input.push(info(input, DataType::FLOAT, extents(&["batch", "height", "width"])));
    }
    let model = model.node("Concat", "a b", "y", vec![int("axis", 2)]).output("y");
    write(&sandbox, "two.onnx", &model);
    fs::write(sandbox.path("a.npy"), npy("<f4", "1, 2, 3", &f32s(&[1.0; 6]))).unwrap();
    fs::write(sandbox.path("b.npy"), npy("<f4", "1, 2, 1", &f32s(&[2.0; 2]))).unwrap();
    let wanted = [1.0, 1.0, 1.0, 2.0, 1.0, 1.0, 1.0, 2.0];
    sandbox.run("run two.onnx --input a=a.npy --input b=b.npy --output out --repeat 1 --threads 1").expect(0);
    assert_eq!(floats(&sandbox, "out/y.npy"), wanted);
    sandbox.run("run two.onnx --shape a=1x2x3 --shape b=1x2x1 --repeat 1 --threads 1").expect(0);
}

#[test]
fn names_may_have_equals_signs() {
    let sandbox = Sandbox::new();
    let mut model = Model::new(17);
    for input in ["a", "a=b", "a=b=c"] {
        model.graph().input.push(info(input, DataType::FLOAT, extents(&["1"])));
    }
    let model = model.node("Sub", "a=b a", "d", vec![]).node("Sub", "d a=b=c", "y", vec![]).output("y");
    write(&sandbox, "names.onnx", &model);
    for (file, number) in [("1.npy", 1.0), ("2.npy", 2.0), ("b=4.npy", 4.0)] {
        fs::write(sandbox.path(file), npy("<f4", "1,", &f32s(&[number]))).unwrap();
    }
    let run = |line: &str| sandbox.run(&format!("run names.onnx {line} --output out --repeat 1 --threads 1"));
    run("--input a=1.npy --input a=b=2.npy --input a=b=c=b=4.npy").expect(0);
    assert_eq!(floats(&sandbox, "out/y.npy"), [2.0 - 1.0 - 4.0]);
    run("--input d=1.npy").expect_line(2, "one of the inputs a, a=b, a=b=c");
    run("--input a=1.npy --input a=2.npy").expect_line(2, "input a is specified twice");
}

/// The condition of an `If` may be given as a constant in every command.
#[test]
fn a_number_that_is_the_same_in_all_runs() {
    let sandbox = Sandbox::new();
    let branch = |operator: &str| {
        let output = vec![ValueInfoProto { name: Some("inner".into()), r#type: None }];
        GraphProto { node: vec![node(operator, "x x", "inner", vec![])], output, ..Default::default() }
    };
    let branches = vec![subgraph("then_branch", branch("Add")), subgraph("else_branch", branch("Mul"))];
    let mut model = Model::new(17).input("x", &[2]).constant("wide", &i64s(&[16000]));
    model.graph().input.push(info("sr", DataType::INT64, vec![]));
    let model = model.node("Equal", "sr wide", "is_wide", vec![]).node("If", "is_wide", "y", branches).output("y");
    write(&sandbox, "detector.onnx", &model);
    fs::write(sandbox.path("x.npy"), npy("<f4", "2,", &f32s(&[3.0, 5.0]))).unwrap();

    for (rate, wanted) in [(16000, [6.0, 10.0]), (8000, [9.0, 25.0])] {
        let given = format!("--input sr={rate} --threads 1");
        sandbox.run(&format!("run detector.onnx {given} --input x=x.npy --output out --repeat 1")).expect(0);
        assert_eq!(floats(&sandbox, "out/y.npy"), wanted);
        sandbox.run(&format!("tasks detector.onnx {given}")).expect(0);
        sandbox.run(&format!("compile detector.onnx {given} -o detector.so")).expect(0);
        sandbox.run(&format!("detector.onnx {given} --trials 0")).expect(0);
    }

    let unknown = "node 'if' (If): input 0: must be a constant: give the input that it depends on";
    sandbox.run("compile detector.onnx -o other.so").expect_line(1, unknown);
    // A run chooses the branch by its data.
    let run = sandbox.run("run detector.onnx --input x=x.npy --threads 1 --check --output out --repeat 1").expect(0);
    assert!(run.stdout.contains("runs in phases"), "{}", run.stdout);
    assert_eq!(floats(&sandbox, "out/y.npy"), [9.0, 25.0]);
    sandbox.run("run detector.onnx --input sr=1.5").expect_line(2, "--input sr=1.5: the input is i64");
    sandbox.run("run detector.onnx --input x=1").expect_line(2, "--input x=1: the input has more than one element");
    sandbox.run("run dqn --input 5").expect_line(2, "more than one element");
    sandbox.run("matmul:m=4,n=4,k=4 --input x=5").expect_line(2, "a workload has no inputs");
}

/// Phases are parts of one run, so their times are added.
#[test]
fn tuning_adds_the_times_of_phases() {
    let sandbox = Sandbox::new();
    let branch = |weights: &str| {
        let output = vec![ValueInfoProto { name: Some("inner".into()), r#type: None }];
        GraphProto {
            node: vec![node("MatMul", &format!("a {weights}"), "inner", vec![])],
            output,
            ..Default::default()
        }
    };
    let branches = vec![subgraph("then_branch", branch("w")), subgraph("else_branch", branch("v"))];
    let mut model = Model::new(17).input("x", &[48, 48]).constant("wide", &i64s(&[16000]));
    model = model.constant("w", &counted(&[48, 48])).constant("v", &counted(&[48, 48]));
    model.graph().input.push(info("sr", DataType::INT64, vec![]));
    let model = model.node("Equal", "sr wide", "is_wide", vec![]).node("MatMul", "x w", "a", vec![]);
    write(&sandbox, "phased.onnx", &model.node("If", "is_wide", "y", branches).output("y"));

    let tuned = sandbox.run("phased.onnx --trials 0 --threads 1").expect(0).stdout;
    assert!(tuned.contains("sum of 2 phases, each run once: "), "{tuned}");
}

/// Returns a model of a product of `a[n, 4]` and `b[4, n]`, where `n` is open.
fn open_product() -> Model {
    let mut model = Model::new(17);
    model.graph().input.push(info("a", DataType::FLOAT, extents(&["n", "4"])));
    model.graph().input.push(info("b", DataType::FLOAT, extents(&["4", "n"])));
    model.node("MatMul", "a b", "y", vec![]).output("y")
}

/// Several shapes of an input are drawn, and each runs with a network of its own. Inputs whose
/// extents have the same name follow.
#[test]
fn several_shapes_run_one_after_the_other() {
    let sandbox = Sandbox::new();
    write(&sandbox, "open.onnx", &open_product());

    let run = sandbox.run("run open.onnx --shape a=2..9x4 --repeat 30 --threads 1 --json out.json").expect(0);
    assert!(run.stdout.contains("of 30 runs with"), "{}", run.stdout);
    let json: serde_json::Value = serde_json::from_slice(&fs::read(sandbox.path("out.json")).unwrap()).unwrap();
    let runs = json["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 30);
    let mut lengths = std::collections::BTreeSet::new();
    for run in runs {
        let n = run["shapes"][0][0].as_u64().unwrap();
        assert_eq!(run["shapes"], serde_json::json!([[n, 4], [4, n]]));
        assert!((2..=9).contains(&n) && run["secs"].as_f64().unwrap() > 0.0, "{run}");
        // A network is made the first time only.
        assert_eq!(lengths.insert(n), run["new_secs"].as_f64().unwrap() > 0.0, "{run}");
    }
    assert_eq!(json["shapes"].as_u64().unwrap() as usize, lengths.len());
    assert!(lengths.len() > 3, "{lengths:?}");

    let run = sandbox.run("run open.onnx --shape a={3}x4 --repeat 2 --threads 1").expect(0);
    assert!(!run.stdout.contains("different shapes"), "one shape is not a family: {}", run.stdout);
    for (arguments, words) in [
        ("run open.onnx --shape a=2..9x5", "x5 does not fit the model's nx4"),
        ("run open.onnx --shape c=2..9x4", "--shape c=2..9x4: the inputs are a, b"),
        ("run open.onnx --shape a=?x4", "--shape a=?x4: axis 0 needs a range"),
        ("run open.onnx --shape a=9..2x4", "is not an input and its extents"),
        ("run open.onnx --shape a=2..9x4 --check", "several shapes are supported by tuning"),
        ("bench open.onnx --shape a=2..9x4 --profile", "several shapes are supported by tuning"),
        ("run resnet18 --shape image=1..2x3x224x224", "several shapes are supported by tuning"),
    ] {
        sandbox.run(arguments).expect_line(2, words);
    }
}

/// Calls in a file are tuned by the number of those that a shape stands for.
#[test]
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn calls_of_a_file_are_tuned_and_run() {
    let sandbox = Sandbox::new();
    write(&sandbox, "open.onnx", &open_product());
    let lengths = [8, 8, 8, 9, 3, 3, 40];
    let text: String = lengths.iter().map(|n| format!("a={n}x4\n")).collect();
    fs::write(sandbox.path("calls.txt"), format!("# lengths\n{text}")).unwrap();

    let count = |tasks: &str, n: usize| {
        let line = tasks.lines().find(|line| line.contains(&format!("matmul:m={n},n={n},k=4")))?;
        line.split('|').find_map(|cell| cell.trim().parse::<usize>().ok())
    };
    let tasks = sandbox.run("tasks open.onnx --shapes calls.txt").expect(0).stdout;
    assert_eq!([8, 9, 3, 40].map(|n| count(&tasks, n)), [Some(3), Some(1), Some(2), Some(1)], "{tasks}");

    let tuned = sandbox.run("open.onnx --shapes calls.txt --trials 8 --threads 1 --db log").expect(0).stdout;
    assert!(tuned.contains("whole network, run, mean of 7 calls, for which 4 shapes stand: "), "{tuned}");
    let run = sandbox.run("run open.onnx --shapes calls.txt --repeat 40 --threads 1 --json out.json").expect(0);
    assert!(run.stdout.contains("of 40 runs with 4 different shapes"), "{}", run.stdout);
    let compiled = sandbox.run("compile open.onnx --shapes calls.txt --threads 1 -o open.so").expect(0);
    assert!(compiled.stdout.contains("4 variants by the shapes"), "{}", compiled.stdout);

    fs::write(sandbox.path("wrong.txt"), "a=8x4\nc=8x4\n").unwrap();
    fs::write(sandbox.path("unknown.txt"), "c=8x4\n").unwrap();
    for (arguments, words) in [
        ("tasks open.onnx --shapes wrong.txt", "--shapes wrong.txt: line 2: other inputs or numbers of axes"),
        ("tasks open.onnx --shapes unknown.txt", "--shapes unknown.txt: 'c': the inputs are a, b"),
        ("tasks open.onnx --shapes none.txt", "--shapes none.txt: No such file"),
        ("run open.onnx --shapes calls.txt --check", "--shapes calls.txt: several shapes are supported by tuning"),
        ("tasks resnet18 --shapes calls.txt", "--shapes calls.txt: several shapes are supported by tuning"),
        ("tasks open.onnx --shape a=8x4 --shapes calls.txt", "cannot be used with '--shapes <FILE>'"),
    ] {
        sandbox.run(arguments).expect_line(2, words);
    }
}

/// Several shapes of an input are tuned together, and a library has a variant for each.
#[test]
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn several_shapes_are_tuned_and_compiled() {
    let sandbox = Sandbox::new();
    write(&sandbox, "open.onnx", &open_product());

    let tasks = sandbox.run("tasks open.onnx --shape a={3,8}x4").expect(0).stdout;
    assert!(tasks.contains("matmul:m=3,n=3,k=4") && tasks.contains("matmul:m=8,n=8,k=4"), "{tasks}");
    // Of more shapes, some at equal distances stand for all.
    let tasks = sandbox.run("tasks open.onnx --shape a=1..60x4").expect(0).stdout;
    let of = |n: usize| tasks.contains(&format!("matmul:m={n},n={n},k=4"));
    assert!([6, 16, 26, 36, 46, 56].into_iter().all(of), "{tasks}");

    let tuned = "open.onnx --shape a={3,8}x4 --trials 6 --threads 1 --db log";
    let tuned = sandbox.run(tuned).expect(0).stdout;
    assert!(tuned.contains("whole network, run, mean of 2 shapes: "), "{tuned}");
    let known = sandbox.run("compile open.onnx --shape a={3,8}x4 --threads 1 --db log -o open.so").expect(0);
    assert!(known.stdout.contains("2 variants by the shapes of the inputs, code"), "{}", known.stdout);
    assert!(!known.stderr.contains("not tuned"), "{}", known.stderr);
    let header = fs::read_to_string(sandbox.path("open.h")).unwrap();
    assert!(header.contains("inputs[1]: f32 4 x 8, 32 float: b") && header.contains("open_variant("), "{header}");

    for (arguments, words) in [
        ("compile open.onnx --shape a=1..99x4 -o a.so", "--shape a=1..99x4: more than 64 shapes"),
        ("compile open.onnx --shape a=?x4 -o a.so", "--shape a=?x4: axis 0 needs extents"),
        ("compile open.onnx --shape a={2,3}x4 --precision auto -o a.so", "several shapes are supported by tuning"),
        ("open.onnx --shape c={2,3}x4 --trials 1", "--shape c={2,3}x4: the inputs are a, b"),
        ("tasks open.onnx --shape a={2,3}x5", "does not fit the model's nx4"),
    ] {
        sandbox.run(arguments).expect_line(2, words);
        assert!(!sandbox.path("a.so").exists());
    }
}
