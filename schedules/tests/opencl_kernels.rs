//! Generated OpenCL against the reference, for random workloads and configs, and in a simulator
//! that detects races.
//!
//! Without an OpenCL device or a simulator, these tests print a notice and pass;
//! `AUTOTUNE_REQUIRE=opencl,oclgrind` makes that a failure.

#![cfg(unix)]

use std::path::Path;
use std::process::Command;
use std::{env, panic};

use autotune_ir::program::Node;
use autotune_ir::{Program, Target};
use autotune_schedules::{ScheduleSpace, lower, tolerance};
use autotune_workloads::{Operands, Workload, max_rel_error, reference};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use crate::common::opencl::OpenCl;
use crate::common::spaces::sample_sketch;
use crate::common::workloads::random_workload;
use crate::common::{missing, or_long};

/// Path of the simulator in Debian.
const OCLGRIND: &str = "/usr/lib/oclgrind/liboclgrind-rt.so";
/// Environment variable that tells the simulated process what to run: `all`, or `racing` for a
/// kernel without its barriers.
const SIMULATED: &str = "AUTOTUNE_SIMULATED";

fn check(device: &OpenCl, workload: &Workload, seed: u64, configs: usize) {
    let target = Target::detect("opencl", None).unwrap();
    let space = ScheduleSpace::new(workload, &target);
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let operands = Operands::random(workload.spec(), seed);
    let expected = reference(workload, &operands);
    for i in 0..configs {
        let sketch = space.sketches()[i % space.sketches().len()].name();
        let config = if i == 0 { space.default_config() } else { sample_sketch(&space, sketch, &mut rng) };
        let program = lower(workload, &target, &config).unwrap();
        let context = format!("seed {seed}: {workload} on {}\n{config}\n{program}", device.name);
        let output = device.run(&program, &operands).unwrap_or_else(|e| panic!("{context}\n{e}"));
        let error = max_rel_error(&output, &expected);
        assert!(error <= tolerance(workload, &config), "{context}\nerror {error}");
    }
}

#[test]
fn kernels_agree_with_the_reference() {
    if env::var_os(SIMULATED).is_some() {
        return;
    }
    let device = match OpenCl::find() {
        Ok(device) => device,
        Err(reason) => return missing("opencl", &reason),
    };

    for seed in 0..or_long([2, 10]) {
        check(&device, &random_workload(&mut ChaCha8Rng::seed_from_u64(seed)), seed, 2);
    }
    for (seed, text) in [
        "conv2d:n=2,c=7,h=9,w=14,o=13,k=3,p=1,bias,add,act=relu",
        "conv2d:c=16,h=16,w=12,o=9,k=3,p=2",
        "conv2d:c=16,h=16,w=12,o=9,k=3,p=1,scale,bias,add,act=gelu_tanh",
        "matmul:b=2,m=33,n=20,k=40,ta,tb,bias,act=prelu",
        "conv_transpose2d:n=2,c=6,h=5,w=7,o=5,k=8,s=4,p=2,bias,act=relu",
        "conv_transpose2d:c=7,h=5,w=3,o=11,k=3,s=2,p=1,op=1,add",
    ]
    .into_iter()
    .enumerate()
    {
        check(&device, &text.parse().unwrap(), seed as u64, or_long([1, 6]));
    }
}

fn without_barriers(nodes: &mut Vec<Node>) {
    nodes.retain(|node| *node != Node::Barrier);
    nodes.iter_mut().filter_map(Node::body_mut).for_each(without_barriers);
}

/// Runs in a child process that has the simulator as its OpenCL.
#[test]
fn in_the_simulator() {
    let Some(what) = env::var_os(SIMULATED) else {
        return;
    };
    let device = OpenCl::find().unwrap();
    if what == "all" {
        for (seed, text) in [
            "matmul:m=17,n=20,k=12,bias,act=relu",
            "matmul:m=17,n=20,k=12,ta,tb,scale,act=gelu",
            "conv2d:c=5,h=6,w=7,o=9,k=3,p=1",
            "conv2d:c=8,h=5,w=5,o=8,k=3,p=1,s=2,g=8",
            "conv2d:n=2,c=3,h=7,w=7,o=5,k=3,p=1,bias,add",
            "conv_transpose2d:c=5,h=4,w=3,o=6,k=4,s=2,p=1",
            "attention:m=9,n=20,k=8,causal,mask=row",
            "mlp:m=9,n=8,k=7,h=20,mid=relu,bias",
            "separable_conv2d:c=6,h=5,w=6,o=5,k=3,p=1,mid_bias",
        ]
        .into_iter()
        .enumerate()
        {
            check(&device, &text.parse().unwrap(), seed as u64, or_long([1, 4]));
        }
        return;
    }

    let workload: Workload = "matmul:m=16,n=16,k=32".parse().unwrap();
    let target = Target::detect("opencl", None).unwrap();
    let config = ScheduleSpace::new(&workload, &target).default_config();
    let mut program: Program = lower(&workload, &target, &config).unwrap();
    program.stages.iter_mut().for_each(|stage| without_barriers(&mut stage.body));
    device.run(&program, &Operands::random(workload.spec(), 0)).unwrap();
}

/// Returns the simulator's output for the kernels.
fn simulate(what: &str) -> String {
    let output = Command::new(env::current_exe().unwrap())
        .args(["--exact", "opencl_kernels::in_the_simulator", "--nocapture"])
        .env(SIMULATED, what)
        .env("OPENCL_DYLIB_PATH", OCLGRIND)
        .env("OCLGRIND_DATA_RACES", "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{}\n{text}", String::from_utf8_lossy(&output.stdout));
    text
}

#[test]
fn the_simulator_finds_no_fault_but_a_planted_one() {
    if env::var_os(SIMULATED).is_some() {
        return;
    }
    if !Path::new(OCLGRIND).exists() {
        return missing("oclgrind", &format!("no {OCLGRIND}"));
    }
    let faults = ["race", "Invalid", "Uninitialized", "divergence"];
    let says = |text: &str| faults.iter().any(|word| text.contains(word));
    let text = simulate("all");
    assert!(!says(&text), "{text}");
    let text = simulate("racing");
    assert!(text.contains("race"), "{text}");
}
