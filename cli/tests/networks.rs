//! Networks on the command line: runs and their figures, input and output files, and errors.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::ffi::c_int;
use std::path::Path;
use std::{fs, ptr};

use crate::sandbox::{Sandbox, finish};

/// Fastest of the built-in networks.
const NETWORK: &str = "dqn";

/// Encodes an array of `count` f32 numbers as a `.npy` file.
fn npy(extents: &str, count: usize) -> Vec<u8> {
    let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({extents}), }}");
    let padded = format!("{header:<117}\n");
    let mut bytes = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
    bytes.extend(padded.as_bytes());
    bytes.extend((0..count).flat_map(|i| ((i % 7) as f32 / 7.0 - 0.4).to_le_bytes()));
    bytes
}

#[test]
fn a_network_runs_and_tells_its_figures() {
    let sandbox = Sandbox::new();
    let run = sandbox.run(&format!("run {NETWORK} --threads 2 --repeat 3 --check --json figures.json")).expect(0);
    assert!(run.stdout.starts_with("dqn: ") && run.stdout.contains(" ms (p10 "), "{}", run.stdout);
    assert!(run.stderr.contains("kernels are not tuned on cpu:"), "{}", run.stderr);
    assert!(run.stderr.contains("conversions compared with the reference"), "{}", run.stderr);
    assert!(run.stderr.contains("tensors compared with the network before rewriting"), "{}", run.stderr);

    let figures = fs::read_to_string(sandbox.path("figures.json")).unwrap();
    let figures: serde_json::Value = serde_json::from_str(&figures).unwrap();
    let latency = |name: &str| figures["latency_secs"][name].as_f64().unwrap();
    assert!(0.0 < latency("p10") && latency("p10") <= latency("median") && latency("median") <= latency("p90"));
    assert!(figures["peak_bytes"].as_u64().unwrap() > 1 << 20 && figures["load_secs"].as_f64().unwrap() > 0.0);
    assert_eq!(figures["tuned_tasks"], 0);
    assert!(figures["untuned_tasks"].as_u64().unwrap() >= 5);

    // Other programs may run on this machine, so that both results are right.
    let load = &figures["load"];
    assert!(cfg!(not(target_os = "linux")) || load["other_cores"].is_f64(), "{load}");
    let is_disturbed = load["taken"].as_f64().is_some_and(|taken| taken > 0.1);
    assert_eq!(figures["timing"], if is_disturbed { "disturbed" } else { "raced" });
    assert_eq!(run.stdout.contains("dqn: ≈ "), is_disturbed, "{}", run.stdout);
    assert_eq!(run.stdout.contains("the machine was disturbed ("), is_disturbed, "{}", run.stdout);
}

/// A network in bf16 passes the check of every step, reports its error against f32, has its own
/// tasks and can be tuned.
#[test]
fn a_network_rounds_to_bf16() {
    let sandbox = Sandbox::new();
    let run = sandbox.run(&format!("run {NETWORK} --threads 1 --precision bf16 --check --json figures.json")).expect(0);
    assert!(run.stdout.contains("bf16: largest error of outputs is "), "{}", run.stdout);
    let json = |file: &str| -> serde_json::Value {
        serde_json::from_str(&fs::read_to_string(sandbox.path(file)).unwrap()).unwrap()
    };
    let of_run = json("figures.json")["rounding"]["max_rel_error"].as_f64().unwrap();
    assert!((1e-5..0.05).contains(&of_run), "{of_run}");

    let tasks = |precision: &str| sandbox.run(&format!("tasks {NETWORK} --precision {precision}")).expect(0).stdout;
    assert!(tasks("bf16").contains("data=bf16,weights=bf16") && !tasks("f32").contains("bf16"));

    let tune = format!("{NETWORK} --threads 1 --precision bf16 --trials 12 --json tuned.json");
    let tuned = sandbox.run(&tune).expect(0);
    assert!(tuned.stdout.contains("in f32, with the schedules known for it: "), "{}", tuned.stdout);
    assert!(json("tuned.json")["network"]["f32_secs"].as_f64().unwrap() > 0.0);

    let auto = |most: &str| {
        let words = format!("run {NETWORK} --threads 1 --precision auto --max-error {most} --json auto.json");
        sandbox.run(&words).expect(0).stderr
    };
    let exactly = auto("0");
    assert!(exactly.contains(" within an error of 0: timed interleaved, f32 "), "{exactly}");
    // The choice is f32, or bf16 with every rounding step left in f32 if that is faster.
    let rounding = &json("auto.json")["rounding"];
    assert!(rounding.is_null() || rounding["max_rel_error"] == 0.0, "{rounding}");
    assert!(auto("0.1").contains(" within an error of 0.1: timed interleaved, f32 "), "{}", auto("0.1"));
    let compile = format!("compile {NETWORK} --threads 1 --precision auto -o net.so");
    assert!(sandbox.run(&compile).expect(0).stderr.contains(" within an error of 0.01: "));

    let exact = sandbox.run(&format!("run {NETWORK} --threads 1 --json exact.json")).expect(0);
    assert!(!exact.stdout.contains("bf16") && json("exact.json").get("rounding").is_none(), "{}", exact.stdout);
}

#[test]
fn tensors_come_from_files_and_go_to_files() {
    let sandbox = Sandbox::new();
    fs::write(sandbox.path("image.npy"), npy("1, 4, 84, 84", 4 * 84 * 84)).unwrap();
    sandbox.run(&format!("run {NETWORK} --input image.npy --output first --repeat 1 --threads 1")).expect(0);
    let output = fs::read_dir(sandbox.path("first")).unwrap().next().unwrap().unwrap().file_name();
    let name = output.to_str().unwrap();
    let first = fs::read(sandbox.path(&format!("first/{name}"))).unwrap();
    assert!(first.starts_with(b"\x93NUMPY") && first.len() == 128 + 18 * 4, "{name}: {} bytes", first.len());

    // Equal inputs give equal outputs; a random input gives others.
    sandbox.run(&format!("run {NETWORK} --input image.npy --output second --repeat 1 --threads 1")).expect(0);
    assert_eq!(fs::read(sandbox.path(&format!("second/{name}"))).unwrap(), first);
    sandbox.run(&format!("run {NETWORK} --output third --repeat 1 --threads 1")).expect(0);
    assert_ne!(fs::read(sandbox.path(&format!("third/{name}"))).unwrap(), first);
}

/// A network compiles to a library, whatever the name of its file, and the library's functions
/// compute what `autotune run` does.
#[test]
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn a_network_becomes_a_library() {
    let sandbox = Sandbox::new();
    fs::write(sandbox.path("image.npy"), npy("1, 4, 84, 84", 4 * 84 * 84)).unwrap();
    sandbox.run(&format!("run {NETWORK} --input image.npy --output out --repeat 1 --threads 1")).expect(0);
    let output = fs::read_dir(sandbox.path("out")).unwrap().next().unwrap().unwrap().path();
    let wanted = fs::read(output).unwrap()[128..].to_vec();

    let mut command = sandbox.command(&format!("compile {NETWORK} --threads 1 -o"));
    command.arg("lib1-weird name.so");
    let made = finish(command).expect(0);
    let words = "wrote lib1-weird name.so and 1-weird name.h: functions network_1_weird_name_*, code ";
    assert!(made.stdout.starts_with(words) && made.stdout.lines().count() == 1, "{}", made.stdout);
    assert!(made.stderr.contains("kernels are not tuned on cpu:"), "{}", made.stderr);
    let header = fs::read_to_string(sandbox.path("1-weird name.h")).unwrap();
    assert!(header.contains("int network_1_weird_name_run(void *workspace,"), "{header}");
    // No other file is left in the folder.
    assert_eq!(fs::read_dir(sandbox.dir.path()).unwrap().count(), 4);

    let image: Vec<f32> = (0..4 * 84 * 84).map(|i| (i % 7) as f32 / 7.0 - 0.4).collect();
    let found = called(&sandbox.path("lib1-weird name.so"), "network_1_weird_name", &image, 18);
    let found: Vec<u8> = found.iter().flat_map(|x| x.to_le_bytes()).collect();
    assert_eq!(found, wanted);

    // Replaces an older library in another folder.
    fs::create_dir(sandbox.path("folder")).unwrap();
    fs::write(sandbox.path("folder/dqn.so"), "\x7fELF old").unwrap();
    sandbox.run(&format!("compile {NETWORK} --threads 1 -o folder/dqn.so")).expect(0);
    assert_eq!(called(&sandbox.path("folder/dqn.so"), "dqn", &image, 18).len(), 18);
}

/// A library for several instruction sets says which it has, and computes what `autotune run` does.
#[test]
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn a_library_has_code_for_several_instruction_sets() {
    let sandbox = Sandbox::new();
    let made = |targets: &str| sandbox.run(&format!("compile {NETWORK} --threads 1 --target {targets} -o both.so"));
    let same = "--target cpu:avx2,cpu:avx2: code for two targets of the library needs the same instructions";
    made("cpu:avx2,cpu:avx2").expect_line(2, same);
    made("cpu:avx2,cuda").expect_line(2, "unknown target 'cpu:avx2,cuda'");
    if !is_x86_feature_detected!("avx512f") || !is_x86_feature_detected!("avx512vl") {
        return made("cpu:avx2,cpu:avx512").expect_line(2, "target 'cpu:avx512': this machine's instruction set is");
    }
    let both = made("cpu:avx2,cpu:avx512").expect(0);
    let words = "for x86-64 with AVX-512 F and VL, or x86-64 with AVX2 and FMA, 1 thread(s)";
    assert!(both.stdout.contains(words), "{}", both.stdout);
    assert_eq!(both.stderr.matches("kernels are not tuned on cpu:").count(), 2, "{}", both.stderr);

    fs::write(sandbox.path("image.npy"), npy("1, 4, 84, 84", 4 * 84 * 84)).unwrap();
    let line = "run dqn --target cpu:avx512 --input image.npy --output out --repeat 1 --threads 1";
    sandbox.run(line).expect(0);
    let output = fs::read_dir(sandbox.path("out")).unwrap().next().unwrap().unwrap().path();
    let image: Vec<f32> = (0..4 * 84 * 84).map(|i| (i % 7) as f32 / 7.0 - 0.4).collect();
    let found = called(&sandbox.path("both.so"), "both", &image, 18);
    assert_eq!(found.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>(), fs::read(output).unwrap()[128..]);
}

/// Loads a library and runs its network on one input.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn called(file: &Path, name: &str, input: &[f32], elements: usize) -> Vec<f32> {
    type Init = unsafe extern "C" fn(*mut u8) -> c_int;
    type Run = unsafe extern "C" fn(*mut u8, *const *const f32, *const *mut f32, *const u8, *const u8) -> c_int;
    let mut output = vec![0.0; elements];
    // SAFETY: the library was just compiled by this test and has no initialisers. The function
    // types are those of its header, and all memory has the sizes that its functions return.
    unsafe {
        let library = libloading::Library::new(file).unwrap();
        let symbol = |word: &str| format!("{name}_{word}");
        let bytes = library.get::<unsafe extern "C" fn() -> usize>(symbol("workspace_bytes").as_bytes()).unwrap()();
        let mut memory = vec![0u8; bytes + 63];
        let workspace = memory.as_mut_ptr().wrapping_add(memory.as_ptr().align_offset(64));
        assert_eq!(library.get::<Init>(symbol("init").as_bytes()).unwrap()(workspace), 0);
        let run = library.get::<Run>(symbol("run").as_bytes()).unwrap();
        let (inputs, outputs) = ([input.as_ptr()], [output.as_mut_ptr()]);
        assert_eq!(run(workspace, inputs.as_ptr(), outputs.as_ptr(), ptr::null(), ptr::null()), 0);
    }
    output
}

#[test]
fn kernels_of_an_absent_gpu_are_planned() {
    let sandbox = Sandbox::new();
    let run = sandbox.run("resnet18 --target cuda --trials 0");
    if run.stdout.contains("whole network") || !run.stderr.contains("nothing is measured") {
        // The machine has a CUDA device, which the command used.
        return;
    }
    let run = run.expect(0);
    assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
    assert!(run.stderr.contains("these steps would run on cuda:sm_90"), "{}", run.stderr);
    let step = |name: &str| run.stdout.lines().find(|line| line.contains(name)).unwrap_or_default().to_string();
    assert!(step("layer4.0.conv2").contains("conv2d:n=1,c=512,h=7,w=7,o=512,k=3"), "{}", run.stdout);
    assert!(step("fc").contains("matmul:m=1,n=1000,k=512") && !run.stdout.contains("cold"), "{}", run.stdout);
    let kernels = run.stdout.lines().filter(|line| line.contains("x") && line.contains("conv2d:")).count();
    assert!(kernels >= 20 && run.stdout.contains("of them kernels on cuda:sm_90"), "{}", run.stdout);
}

/// The plan shows the variant of the workloads that tuning would use.
#[test]
fn kernels_of_an_absent_gpu_are_planned_for_the_variant() {
    let sandbox = Sandbox::new();
    let plan = |variant: &str| {
        let run = sandbox.run(&format!("{NETWORK} --target cuda:sm_70 --trials 0 {variant}")).expect(0);
        assert!(run.stderr.contains("nothing is measured"), "{}", run.stderr);
        run.stdout
    };
    let workloads =
        |plan: &str| plan.lines().filter(|line| line.contains("conv2d:") || line.contains("matmul:")).count();
    for (variant, word) in [("--dtype f16", ",dtype=f16"), ("--exact", ",exact")] {
        let [default, asked] = ["", variant].map(plan);
        assert!(!default.contains(word), "{default}");
        let count = asked.lines().filter(|line| line.contains(word)).count();
        assert!(count > 0 && count == workloads(&default), "{variant}: {asked}");
    }
}

/// Encodes a length-delimited field of a protocol buffer: a message or a text of less than 128
/// bytes.
fn field(number: u8, body: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, body.len() as u8], body].concat()
}

/// Encodes an ONNX file of one node, `y = OPERATOR(x)`, that leaves the first and the last extent
/// of `x` open, both under the name `?`.
fn open_model(operator: &str) -> Vec<u8> {
    let open = field(1, &field(2, b"?"));
    let shape = [&open[..], &field(1, &[8, 3]), &open].concat();
    let tensor = [&[8, 1][..], &field(2, &shape)].concat();
    let input = [field(1, b"x"), field(2, &field(1, &tensor))].concat();
    let node = [field(1, b"x"), field(2, b"y"), field(3, b"only"), field(4, operator.as_bytes())].concat();
    let graph = [field(1, &node), field(11, &input), field(12, &field(1, b"y"))].concat();
    [&[8, 8][..], &field(8, &[16, 17]), &field(7, &graph)].concat()
}

/// A file with open shapes is refused until the command line gives them.
#[test]
fn open_shapes_are_given_by_the_user() {
    let sandbox = Sandbox::new();
    fs::write(sandbox.path("open.onnx"), open_model("Relu")).unwrap();
    fs::write(sandbox.path("unknown.onnx"), open_model("Frobnicate")).unwrap();
    let run = sandbox.run("run open.onnx --shape x=2x3x4 --output out --repeat 1 --check").expect(0);
    assert!(run.stderr.contains("1 steps and 0 conversions compared"), "{}", run.stderr);
    assert!(fs::read(sandbox.path("out/y.npy")).unwrap().windows(9).any(|text| text == b"(2, 3, 4)"));

    let not_fixed = "autotune: --shape: open.onnx: input 'x': shape ?x3x? is not fixed: specify one, such as x=?x3x?";
    let refused = "autotune: unknown.onnx: node 'only' (Frobnicate): the operator is not supported";

    for (line, code, expected) in [
        ("run open.onnx", 2, not_fixed),
        ("tasks open.onnx", 2, not_fixed),
        ("compile open.onnx -o open.so", 2, not_fixed),
        ("run open.onnx --shape y=2x3x4", 2, "'y': no such input; the inputs are x"),
        ("run open.onnx --shape x=3x4", 2, "'x': shape 3x4 does not fit the model's ?x3x?"),
        ("run open.onnx --shape x=2x4x4", 2, "'x': shape 2x4x4 does not fit the model's ?x3x?"),
        ("run unknown.onnx --shape x=2x3x4", 1, refused),
    ] {
        let run = sandbox.run(line).expect(code);
        assert!(run.stderr.trim_end().ends_with(expected), "{line}: {}", run.stderr);
        assert_eq!(run.stderr.lines().count(), 1, "{line}: {}", run.stderr);
    }
}

/// A network without tasks has nothing to tune; that is not an error.
#[test]
fn a_network_without_tasks_is_timed_as_a_whole() {
    let sandbox = Sandbox::new();
    fs::write(sandbox.path("flat.onnx"), open_model("Flatten")).unwrap();
    for limit in ["--trials 4", "--time-budget 2s", ""] {
        let run = sandbox.run(&format!("flat.onnx --shape x=2x3x4 --threads 1 {limit} --json out.json")).expect(0);
        assert!(run.stderr.contains("has no tasks"), "{limit}: {}", run.stderr);
        assert!(run.stdout.contains("whole network, run: default"), "{limit}: {}", run.stdout);
        assert_eq!(sandbox.json("out.json")["tasks"].as_array().map(Vec::len), Some(0));
    }
    sandbox.run("report flat.onnx --shape x=2x3x4 -o page.html").expect_line(1, "has no tasks");
}

/// If the time is too short for a race, the times of the search are shown with a mark everywhere.
#[test]
fn times_taken_once_are_marked() {
    let sandbox = Sandbox::new();
    let run = sandbox.run(&format!("{NETWORK} --threads 1 --time-budget 1ms --json out.json")).expect(0);
    let tasks = sandbox.json("out.json")["tasks"].as_array().unwrap().clone();
    assert!(tasks.len() >= 5 && tasks.iter().all(|task| task["timing"] == "once"), "{tasks:?}");
    let total = run.stdout.lines().find(|line| line.starts_with("network: ")).unwrap();
    assert_eq!(total.matches('≈').count(), 3, "{total}");
    assert!(run.stdout.contains(&format!("≈: {} task(s) were timed once", tasks.len())), "{}", run.stdout);

    let page = sandbox.run(&format!("report {NETWORK} --threads 1 -o -")).expect(0).stdout;
    assert!(page.matches("≈ ").count() >= 3 * tasks.len(), "{}", page.matches("≈ ").count());
}

#[test]
fn errors_are_one_line() {
    let sandbox = Sandbox::new();
    fs::write(sandbox.path("small.npy"), npy("1, 4, 8, 8", 256)).unwrap();
    fs::write(sandbox.path("text.npy"), "not an array").unwrap();
    fs::write(sandbox.path("broken.onnx"), "no model").unwrap();

    for (line, code, expected) in [
        (format!("run {NETWORK} --input small.npy"), 2, "shape [1, 4, 8, 8], but"),
        (format!("run {NETWORK} --input text.npy"), 2, "not an array of numbers"),
        (format!("run {NETWORK} --input nothing.npy"), 2, "nothing.npy"),
        (format!("run {NETWORK} --input other=small.npy"), 2, "one of the inputs"),
        (format!("run {NETWORK} --precision bf16 --target opencl"), 2, "run in f32"),
        (format!("run {NETWORK} --precision f16"), 2, "run in f32, bf16"),
        (format!("run {NETWORK} --shape image=1x3"), 2, "the shapes of dqn are fixed"),
        (format!("run {NETWORK} --shape image"), 2, "--shape 'image'"),
        (
            format!("run {NETWORK} --precision bf15"),
            2,
            "unknown precision 'bf15': expected f32, tf32, f16, bf16 or auto",
        ),
        (format!("run {NETWORK} --max-error 0.1"), 2, "--max-error: only supported with --precision auto"),
        (format!("run {NETWORK} --spin maybe"), 2, "--spin 'maybe' is none of on, brief, off"),
        (format!("run {NETWORK} --spin off --target opencl"), 2, "--spin: only runs on CPUs have helper threads"),
        (format!("bench {NETWORK} --spin off"), 2, "--profile"),
        (format!("run {NETWORK} --precision auto --max-error=-1"), 2, "is not a relative error"),
        (format!("{NETWORK} --precision auto"), 2, "--precision auto: not supported here, since it requires running"),
        (
            format!("tasks {NETWORK} --precision auto"),
            2,
            "--precision auto: not supported here, since it requires running",
        ),
        (format!("run {NETWORK} --precision auto --target opencl"), 2, "run in f32"),
        (format!("tasks {NETWORK} --precision bf16 --target cuda:sm_70"), 2, "cuda:sm_70:any run in f32, f16"),
        ("matmul:m=4,n=4,k=4 --precision bf16".into(), 2, "contains its element type, such as ',dtype=bf16'"),
        ("run matmul:m=4,n=4,k=4".into(), 2, "a workload cannot be run"),
        ("compile matmul:m=4,n=4,k=4 -o x.so".into(), 2, "a workload cannot be run"),
        (format!("compile {NETWORK}"), 2, "--output"),
        (format!("compile {NETWORK} -o missing/x.so"), 2, "the folder does not exist"),
        (format!("compile {NETWORK} -o ."), 2, "is a folder"),
        (format!("compile {NETWORK} -o x.h"), 2, "the library and its header would be the same file"),
        (format!("compile {NETWORK} -o -"), 2, "cannot be written to standard output"),
        (
            format!("compile {NETWORK} -o x.so --target cuda"),
            1,
            "without a device, state its compute capability, such as --target cuda:sm_90",
        ),
        (format!("compile {NETWORK} -o x.so --threads 100000"), 2, "--threads 100000"),
        ("compile broken.onnx -o x.so".into(), 1, "not an ONNX model"),
        ("run resnet19".into(), 2, "unknown network 'resnet19'"),
        // Output paths are checked before any input is read.
        ("compile broken.onnx -o /proc/x.so".into(), 2, "-o /proc/x.so: "),
        ("run broken.onnx --output /proc/x".into(), 2, "--output /proc/x: "),
        ("run broken.onnx --output broken.onnx".into(), 2, "--output broken.onnx: "),
        ("run missing.onnx".into(), 1, "missing.onnx"),
        ("run broken.onnx".into(), 1, "not an ONNX model"),
        ("broken.onnx --trials 1".into(), 1, "not an ONNX model"),
    ] {
        let run = sandbox.run(&line).expect(code);
        assert!(run.stderr.contains(expected), "{line}: {}", run.stderr);
        assert_eq!(run.stderr.lines().count(), 1, "{line}: {}", run.stderr);
        assert!(run.stdout.is_empty(), "{line}: {}", run.stdout);
    }
}

#[test]
fn a_network_is_tuned_runs_faster_or_as_fast_and_is_told_step_by_step() {
    let sandbox = Sandbox::new();
    let tuned = sandbox.run(&format!("{NETWORK} --threads 1 --trials 12 --json tuned.json")).expect(0);
    assert!(tuned.stdout.contains("whole network, run: default"), "{}", tuned.stdout);
    let report: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(sandbox.path("tuned.json")).unwrap()).unwrap();
    assert!(report["network"]["best_secs"].as_f64().unwrap() > 0.0 && report["tasks"].is_array());

    let run = sandbox.run(&format!("run {NETWORK} --threads 1 --repeat 1 --check --json -")).expect(0);
    let figures: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    assert!(figures["tuned_tasks"].as_u64().unwrap() >= 5, "{figures}");

    let profile = sandbox.run(&format!("bench {NETWORK} --threads 1 --profile --spin off")).expect(0).stdout;
    let is_chosen =
        ["fastest whole network", "won a race", "fastest of a search"].iter().any(|why| profile.contains(why));
    assert!(is_chosen && profile.contains("of roofline") && profile.contains("sum of its steps"), "{profile}");
}

#[test]
fn only_files_that_are_ours_are_replaced() {
    let sandbox = Sandbox::new();
    let foreign = ["model.onnx", "notes.so", "mine.h", "page.html"];
    foreign.iter().for_each(|name| std::fs::write(sandbox.path(name), "somebody's").unwrap());
    for line in [
        format!("compile {NETWORK} --threads 1 -o notes.so"),
        format!("compile {NETWORK} --threads 1 -o mine.so"),
        format!("run {NETWORK} --threads 1 --json model.onnx"),
        format!("{NETWORK} --threads 1 --trials 0 --json model.onnx"),
        format!("report {NETWORK} -o page.html"),
    ] {
        sandbox.run(&line).expect_line(2, "remove it or specify another file");
    }
    for name in foreign {
        assert_eq!(std::fs::read_to_string(sandbox.path(name)).unwrap(), "somebody's", "{name}");
    }

    // Empty files, and files that this command wrote, may be replaced.
    std::fs::write(sandbox.path("empty.json"), "").unwrap();
    for _ in 0..2 {
        sandbox.run(&format!("run {NETWORK} --threads 1 --json empty.json")).expect(0);
        sandbox.run(&format!("compile {NETWORK} --threads 1 -o own.so")).expect(0);
    }
}

/// Plans use estimated times of layout conversions until tuning has measured them. Measured times
/// are stored in the database and not measured again.
#[test]
fn conversions_between_layouts_are_measured_where_plans_need_them() {
    let sandbox = Sandbox::new();
    let conversions = || {
        let line = format!("bench {NETWORK} --threads 1 --profile --json -");
        let profile: serde_json::Value = serde_json::from_str(&sandbox.run(&line).expect(0).stdout).unwrap();
        let steps = profile["steps"].as_array().unwrap().clone();
        let time = |step: &serde_json::Value| step["conversion"].as_str().map(String::from);
        let named = |step: &serde_json::Value| step["workload"].as_str().unwrap_or_default().to_string();
        steps.iter().filter_map(|step| Some((named(step), time(step)?))).collect::<Vec<_>>()
    };
    let untuned = conversions();
    assert!(untuned.iter().all(|(workload, time)| workload.starts_with("transpose:") && time == "estimated"));

    let records = || {
        let log = sandbox.run("log export -").expect(0).stdout;
        log.lines().filter(|line| line.contains("\"transpose:")).map(String::from).collect::<Vec<_>>()
    };
    let tuned = sandbox.run(&format!("{NETWORK} --threads 1 --trials 0")).expect(0);
    assert!(tuned.stderr.contains("layout conversion(s) in the fastest plan"), "{}", tuned.stderr);
    let measured = records();
    let known = |workload: &str| measured.iter().any(|line| line.contains(&format!("\"{workload}\"")));
    for (workload, time) in conversions() {
        assert_eq!(time == "measured", known(&workload), "{workload} {measured:?}");
    }
    // The plan of the untuned schedules is unchanged, and its conversions are measured now.
    assert!(untuned.iter().all(|(workload, _)| known(workload)), "{untuned:?} {measured:?}");
    sandbox.run(&format!("{NETWORK} --threads 1 --trials 0")).expect(0);
    assert!(untuned.iter().all(|(workload, _)| {
        let of = |lines: &[String]| lines.iter().filter(|line| line.contains(&format!("\"{workload}\""))).count();
        of(&records()) == of(&measured)
    }));
}
