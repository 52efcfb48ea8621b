//! Libraries for CUDA devices, on the stub of the CUDA driver: a program in C runs them in threads,
//! and failures of the driver are error codes.

use std::fs;
use std::process::Command;

use autotune_graph::operators::Sliding;
use autotune_graph::{Builder, ConvLayer, Seeded, Tensor, onnx};

use crate::sandbox::{Ended, Sandbox, finish};
use crate::stub_device::stub::Stub;
use crate::stub_device::{run, stub};

/// Writes a small network on images, whose parts are copied, and returns an input and the output.
fn network(sandbox: &Sandbox) -> (Vec<f32>, Vec<f32>) {
    let net = Builder::new("small", Seeded { seed: 1 });
    let window = |k: usize| Sliding::new(k).pad(k / 2);
    let x = net.input("x", &[2, 16, 6, 6]).conv("first", ConvLayer::new(16, window(3)).bias()).relu();
    let both = x.conv("narrow", ConvLayer::new(16, window(1))).concat(&[x], 1);
    net.output("y", both.conv("both", ConvLayer::new(16, window(3))).global_average_pool().linear("fc", 10));
    let graph = net.finish().unwrap();
    fs::write(sandbox.path("small.onnx"), onnx::write(&graph).unwrap()).unwrap();

    let x: Vec<f32> = (0..2 * 16 * 6 * 6).map(|i| (i * 37 % 101) as f32 / 50.0 - 1.0).collect();
    let bytes: Vec<u8> = x.iter().flat_map(|x| x.to_le_bytes()).collect();
    fs::write(sandbox.path("x"), bytes).unwrap();
    let tensor = Tensor::f32(&[2, 16, 6, 6], x.clone()).unwrap();
    (x, graph.evaluate(&[tensor]).unwrap()[0].to_numbers())
}

/// Builds the program that runs the library.
fn program(sandbox: &Sandbox) {
    fs::write(sandbox.path("program.c"), include_str!("cuda_library.c")).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-Wall", "-Werror", "program.c", "-o", "program", "./small.so", "-pthread", "-Wl,-rpath,$ORIGIN"]);
    let built = compiler.current_dir(sandbox.path(".")).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
}

/// Runs the program with a fault of the driver.
fn ran(stub: &Stub, sandbox: &Sandbox, fault: &str) -> Ended {
    let mut command = Command::new(sandbox.path("program"));
    command.args(["x", "found"]).current_dir(sandbox.path(".")).env("STUB_CUDA_FAULT", fault);
    stub.set(&mut command);
    finish(command)
}

#[test]
fn a_library_for_cuda_runs_with_the_driver_alone() {
    let Some(stub) = stub() else { return };
    for (precision, most) in [("f32", 1e-5), ("f16", 5e-3)] {
        let sandbox = Sandbox::new();
        let (_, wanted) = network(&sandbox);
        let line = format!("compile small.onnx --target cuda:sm_90 --precision {precision} -o small.so");
        let compiled = run(stub, &sandbox, &line, &[]).expect(0);
        for words in ["wrote small.so and small.h: functions small_*", "for a CUDA device of compute capability 9.0"] {
            assert!(compiled.stdout.contains(words), "{}", compiled.stdout);
        }

        program(&sandbox);
        let told = ran(stub, &sandbox, "").expect(0).stdout;
        assert_eq!(told, "x f32 16, y: a CUDA device of compute capability 9.0\n");
        let found = fs::read(sandbox.path("found")).unwrap();
        let found: Vec<f32> = found.chunks_exact(4).map(|x| f32::from_le_bytes(x.try_into().unwrap())).collect();
        assert_eq!(found.len(), 4 * wanted.len());
        let largest = wanted.iter().fold(0f32, |most, x| most.max(x.abs()));
        for (found, wanted) in found.iter().zip(wanted.iter().cycle()) {
            assert!((found - wanted).abs() <= most * largest, "{precision}: {found}, {wanted}");
        }
    }
}

#[test]
fn failures_of_the_driver_are_codes() {
    let Some(stub) = stub() else { return };
    let sandbox = Sandbox::new();
    network(&sandbox);
    run(stub, &sandbox, "compile small.onnx --target cuda:sm_90 -o small.so", &[]).expect(0);
    program(&sandbox);
    for (fault, words) in [
        ("cuInit:1+:999", "the CUDA driver reports an error"),
        ("cuInit:1+:100", "there is no CUDA device"),
        ("cuModuleLoadData:1+:209", "refuses the library's code"),
        ("cuMemAlloc_v2:2+:2", "too little free memory"),
        ("cuLaunchKernel:2:700:sticky", "the CUDA driver reports an error"),
        ("cuGraphLaunch:2:702:sticky", "the CUDA driver reports an error"),
        ("cuMemcpyHtoDAsync_v2:1:700:sticky", "the CUDA driver reports an error"),
        ("cuStreamSynchronize:1:719:sticky", "the CUDA driver reports an error"),
    ] {
        let ended = ran(stub, &sandbox, fault).expect(1);
        assert!(ended.stderr.contains(words), "{fault}: {}", ended.stderr);
    }
    // Without a recording, runs launch their kernels.
    ran(stub, &sandbox, "cuStreamBeginCapture_v2:1+:900").expect(0);
    ran(stub, &sandbox, "cuGraphInstantiateWithFlags:1+:801").expect(0);

    // Without a driver, and for a device of another compute capability.
    let mut command = Command::new(sandbox.path("program"));
    command.args(["x", "found"]).current_dir(sandbox.path(".")).env("LD_LIBRARY_PATH", "");
    assert!(finish(command).expect(1).stderr.contains("there is no CUDA driver (libcuda.so.1)"));
    let mut command = Command::new(sandbox.path("program"));
    command.args(["x", "found"]).current_dir(sandbox.path(".")).env("STUB_CUDA_SM", "80");
    stub.set(&mut command);
    assert!(finish(command).expect(1).stderr.contains("no CUDA device of the library's compute capability"));
}

#[test]
fn what_cannot_become_a_library_for_cuda_is_one_line() {
    let Some(stub) = stub() else { return };
    let sandbox = Sandbox::new();
    for (line, code, words) in [
        ("compile dqn --target opencl -o dqn.so", 2, "libraries are for CPUs and CUDA devices"),
        ("compile dqn --target cuda:sm_90 -o dqn.a", 2, "are shared libraries: specify a file that ends in .so"),
        ("compile dqn --target cuda:sm_70 --precision bf16 -o dqn.so", 2, "run in f32, f16"),
        ("compile dqn --target cuda:sm_90 --precision auto -o dqn.so", 2, "--precision auto: not supported here"),
        ("compile matmul:m=4,n=4,k=4 --target cuda:sm_90 -o x.so", 2, "a workload cannot be run"),
    ] {
        run(stub, &sandbox, line, &[]).expect_line(code, words);
    }
    let compiler = [("CC", "no-such-compiler".into())];
    let line = "compile dqn --target cuda:sm_90 -o dqn.so";
    run(stub, &sandbox, line, &compiler).expect_line(1, "no-such-compiler");
    assert!(!sandbox.path("dqn.so").exists() && !sandbox.path("dqn.h").exists());
}
