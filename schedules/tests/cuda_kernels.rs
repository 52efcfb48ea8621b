//! Generated CUDA through the compiler, for several generations of GPUs: no GPU is needed.
//!
//! Where there is no NVRTC, these tests say so and pass; `AUTOTUNE_REQUIRE=nvrtc` makes that a failure.

#![cfg(unix)]
#![allow(clippy::unwrap_used)]

mod common;

use autotune_schedules::mma::{self, Mma};
use autotune_schedules::tiled::Tiled;
use autotune_schedules::winograd::{self, gpu::GpuWinograd};
use autotune_schedules::{Config, GpuApi, GpuTarget, Launch, ScheduleSpace, Target, Workload, codegen, lower};
use common::missing;
use common::nvrtc::Nvrtc;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

const WORKLOADS: [&str; 4] = [
    "matmul:m=1000,n=512,k=768,bias,act=relu",
    "conv2d:n=4,c=64,h=56,w=56,o=64,k=3,p=1,bias,add,act=relu",
    "conv2d:n=2,c=128,h=28,w=28,o=256,k=1,s=2",
    "conv2d:n=1,c=96,h=28,w=28,o=96,k=5,p=2,g=96",
];

const FOR_TENSOR_CORES: [&str; 6] = [
    "matmul:m=4096,n=4096,k=4096,dtype=f16",
    "matmul:m=1000,n=520,k=777,dtype=f16,bias,add,act=relu",
    "matmul:b=4,m=384,n=200,k=96,dtype=tf32",
    "conv2d:n=8,c=64,h=56,w=56,o=64,k=3,p=1,dtype=f16,bias,add,act=relu",
    "conv2d:n=8,c=128,h=28,w=28,o=256,k=1,s=2,dtype=bf16",
    "conv2d:n=4,c=3,h=224,w=224,o=64,k=7,s=2,p=3,dtype=tf32,bias",
];

const FOR_WARP_GROUPS: [&str; 3] = [
    "matmul:m=4096,n=4096,k=4096,dtype=f16",
    "matmul:m=1000,n=520,k=776,dtype=bf16,bias,add,act=relu",
    "matmul:m=70,n=100,k=8192,dtype=f16,bias",
];

/// The compiler and those of the architectures that it knows.
fn compiler() -> Option<(Nvrtc, Vec<u32>)> {
    match Nvrtc::find() {
        Ok(nvrtc) => {
            let known = |sm: &u32| nvrtc.architectures.contains(&(*sm as i32));
            // The oldest that a compiler knows differs.
            let oldest = [70, 75].into_iter().find(known);
            let all = oldest.into_iter().chain([80, 90].into_iter().filter(known)).collect();
            Some((nvrtc, all))
        }
        Err(reason) => {
            missing("nvrtc", &reason);
            None
        }
    }
}

/// Bytes of spills that count. The compiler at times spills a few registers of a kernel far below its limit.
const SPILL_BYTES: usize = 128;
/// Registers beyond the estimate that count: the compiler keeps addresses where it has registers to spare.
const SLACK: usize = 40;

/// Registers that a sketch expects its kernel to need.
fn registers(workload: &Workload, gpu: &GpuTarget, config: &Config) -> usize {
    match config.sketch.as_str() {
        mma::SKETCH | mma::GROUP_SKETCH => Mma::new(workload, gpu, config).unwrap().registers(),
        winograd::SKETCH => GpuWinograd::new(workload, gpu, config).unwrap().product.registers(),
        _ => Tiled::new(workload, gpu, config).unwrap().registers(),
    }
}

fn survey(workloads: &[&str], oldest: u32, configs: usize, seed: u64) -> [usize; 3] {
    survey_of(workloads, oldest, configs, seed, |_| true)
}

/// The default config and others that are wanted: compiled, spilled, with more registers than expected.
fn survey_of(workloads: &[&str], oldest: u32, configs: usize, seed: u64, is_wanted: fn(&Config) -> bool) -> [usize; 3] {
    let Some((nvrtc, architectures)) = compiler() else {
        return [0; 3];
    };
    assert!(architectures.len() >= 2, "NVRTC {:?} knows {:?}", nvrtc.version, nvrtc.architectures);
    let (mut compiled, mut spilled, mut beyond) = (0, 0, 0);
    for &sm in architectures.iter().filter(|&&sm| sm >= oldest) {
        let target = Target::detect(&format!("cuda:sm_{sm}"), None).unwrap();
        let gpu = target.gpu().unwrap();
        for text in workloads {
            let workload: Workload = text.parse().unwrap();
            let space = ScheduleSpace::new(&workload, &target);
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let mut config = space.default_config();
            for i in 0..configs {
                config = match i {
                    0 => space.default_config(),
                    _ => {
                        let next =
                            |_| if i % 2 == 0 { space.neighbor(&config, &mut rng) } else { space.sample(&mut rng) };
                        (0..1000).map(next).find(is_wanted).unwrap()
                    }
                };
                let estimate = registers(&workload, gpu, &config);
                let program = lower(&workload, &target, &config).unwrap();
                let source = codegen::gpu::generate(&program, GpuApi::Cuda { sm });
                let usage = nvrtc.compile(&source, sm).unwrap_or_else(|e| panic!("{config}\n{source}\n{e}"));
                let compute = usage.iter().find(|u| u.symbol == "autotune_compute").unwrap();
                compiled += 1;
                if usage.iter().any(|kernel| kernel.spill_bytes > SPILL_BYTES) {
                    spilled += 1;
                    eprintln!("sm_{sm}, {workload}, {config}: {usage:?}, estimate {estimate}");
                    assert!(i > 0, "the default schedule spills");
                }
                for stage in &program.stages {
                    let launch = Launch::of(&program, stage).unwrap();
                    let symbol = format!("autotune_{}", stage.name);
                    let kernel = usage.iter().find(|u| u.symbol == symbol).unwrap();
                    let dealt = kernel.registers.next_multiple_of(8) * launch.threads.next_multiple_of(128);
                    let fits =
                        dealt <= gpu.registers_per_multiprocessor && launch.shared_bytes <= gpu.shared_bytes_per_block;
                    assert!(fits, "{workload}, {config}: {kernel:?} {launch:?}");
                }
                // Where registers go from threads to others, the compiler tells of what all begin with.
                let moved = source.contains("setmaxnreg");
                beyond += usize::from(!moved && compute.registers > estimate + SLACK);
            }
        }
    }
    eprintln!(
        "NVRTC {:?}, sm {architectures:?}: {compiled} compiled, {spilled} spill, {beyond} beyond the estimate",
        nvrtc.version
    );
    [compiled, spilled, beyond]
}

#[test]
fn kernels_compile_without_spills() {
    let [compiled, spilled, beyond] = survey(&WORKLOADS, 70, 3, 1);
    assert!(spilled * 50 <= compiled && beyond * 5 <= compiled, "{spilled} and {beyond} of {compiled}");
}

#[test]
fn kernels_for_tensor_cores_compile_without_spills() {
    let [compiled, spilled, beyond] = survey(&FOR_TENSOR_CORES, 80, 3, 1);
    assert!(spilled * 20 <= compiled && beyond * 5 <= compiled, "{spilled} and {beyond} of {compiled}");
}

/// The config is for warp groups.
fn is_for_groups(config: &Config) -> bool {
    config.sketch == mma::GROUP_SKETCH
}

#[test]
fn kernels_for_warp_groups_compile_without_spills() {
    let [compiled, spilled, beyond] = survey_of(&FOR_WARP_GROUPS, 90, 5, 3, is_for_groups);
    assert!(spilled == 0 && beyond * 5 <= compiled, "{spilled} and {beyond} of {compiled}");
}

#[test]
fn half_precision_compiles_where_there_are_no_tensor_cores_for_it() {
    let workload = "conv2d:n=2,c=32,h=28,w=28,o=64,k=3,p=1,dtype=f16,bias,act=relu";
    let [compiled, spilled, _] = survey(&[workload], 70, 2, 1);
    assert!(spilled * 4 <= compiled, "{spilled} of {compiled}");
    let target = Target::detect("cuda:sm_70", None).unwrap();
    let space = ScheduleSpace::new(&workload.parse().unwrap(), &target);
    assert!(space.sketches().iter().all(|sketch| sketch.name != mma::SKETCH));
}

/// What is refused or spilled among many: a minute or two.
#[test]
#[ignore = "minutes of compiling"]
fn few_kernels_of_many_spill() {
    let [compiled, spilled, _] = survey(&WORKLOADS, 70, 40, 2);
    assert!(spilled * 50 <= compiled, "{spilled} of {compiled}");
}

/// The same for tensor cores.
#[test]
#[ignore = "minutes of compiling"]
fn few_kernels_for_tensor_cores_of_many_spill() {
    let [compiled, spilled, _] = survey(&FOR_TENSOR_CORES, 80, 20, 2);
    assert!(spilled * 50 <= compiled, "{spilled} of {compiled}");
}

/// The same for warp groups.
#[test]
#[ignore = "minutes of compiling"]
fn no_kernel_for_warp_groups_of_many_spills() {
    let [compiled, spilled, _] = survey_of(&FOR_WARP_GROUPS, 90, 60, 4, is_for_groups);
    assert!(spilled == 0, "{spilled} of {compiled}");
}
