//! GPU kernels against the reference: as CUDA built for the CPU, and as OpenCL.

use autotune_ir::{Program, Target};
use autotune_schedules::{Config, ScheduleSpace, lower, tolerance};
use autotune_workloads::{Operands, Workload, max_rel_error, reference};
use ndarray::ArrayD;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::cuda_on_cpu::OnCpu;
use super::missing;
use super::opencl::OpenCl;

/// Returns the default schedule and others of a workload, each with its program.
pub fn programs(workload: &Workload, target: &Target, count: usize, seed: u64) -> Vec<(Config, Program)> {
    let space = ScheduleSpace::new(workload, target);
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let drawn = (1..count).map(|_| space.sample(&mut rng).config().clone());
    let configs: Vec<Config> = std::iter::once(space.default_config()).chain(drawn).collect();
    configs.into_iter().map(|config| (config.clone(), lower(workload, target, &config).unwrap())).collect()
}

/// Asserts that the output is near the reference.
fn assert_right(output: &ArrayD<f32>, expected: &ArrayD<f32>, workload: &Workload, config: &Config, context: &str) {
    let error = max_rel_error(output, expected);
    assert!(error <= tolerance(workload, config), "{context}: {workload}\n{config}\nerror {error}");
}

/// Asserts that `count` programs of each workload compute the reference as CUDA, with their threads
/// in both orders.
pub fn assert_cuda_agrees(workloads: &[Workload], count: usize) {
    let target = Target::detect("cuda:sm_90", None).unwrap();
    let mut all: Vec<(&Workload, Config, Program)> = Vec::new();
    for (seed, workload) in (0..).zip(workloads) {
        let programs = programs(workload, &target, count, seed);
        all.extend(programs.into_iter().map(|(config, program)| (workload, config, program)));
    }
    let built = match OnCpu::build(all.iter().map(|(.., program)| program.clone()).collect(), |_, text| text) {
        Ok(built) => built,
        Err(reason) => return missing("g++", &reason),
    };

    for (number, (workload, config, program)) in all.iter().enumerate() {
        let operands = Operands::random(workload.spec(), number as u64);
        let expected = reference(workload, &operands);
        for backwards in [false, true] {
            let output = built.run(number, &operands, backwards).unwrap_or_else(|e| panic!("{config}\n{program}\n{e}"));
            assert_right(&output, &expected, workload, config, "as CUDA");
        }
    }
}

/// Asserts that `count` programs of each workload compute the reference as OpenCL on this machine's
/// device.
pub fn assert_opencl_agrees(workloads: &[Workload], count: usize) {
    let device = match OpenCl::find() {
        Ok(device) => device,
        Err(reason) => return missing("opencl", &reason),
    };

    let target = Target::detect("opencl", None).unwrap();
    for (seed, workload) in (0..).zip(workloads) {
        let operands = Operands::random(workload.spec(), seed);
        let expected = reference(workload, &operands);
        for (config, program) in programs(workload, &target, count, seed) {
            let output = device.run(&program, &operands).unwrap_or_else(|e| panic!("{config}\n{program}\n{e}"));
            assert_right(&output, &expected, workload, &config, "as OpenCL");
        }
    }
}
