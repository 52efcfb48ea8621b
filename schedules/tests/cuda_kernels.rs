//! Generated CUDA through the compiler, for several generations of GPUs. No GPU is needed.
//!
//! Without NVRTC, or for a generation that it no longer or does not yet support, these tests print
//! a notice and pass; `AUTOTUNE_REQUIRE=nvrtc,sm_70,sm_80,sm_90,sm_100,sm_103,sm_120` makes that a
//! failure.

#![cfg(unix)]

use autotune_codegen as codegen;
use autotune_ir::{GpuApi, Launch, Target};
use autotune_schedules::gpu::{MMA, WGMMA};
use autotune_schedules::{Config, ScheduleSpace, lower};
use autotune_workloads::Workload;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use crate::common::nvrtc::Nvrtc;
use crate::common::pipelines::group_config;
use crate::common::{missing, or_long, tiling};

const WORKLOADS: [&str; 7] = [
    "matmul:m=1000,n=512,k=768,bias,act=relu",
    "conv2d:n=4,c=64,h=56,w=56,o=64,k=3,p=1,bias,add,act=relu",
    "conv2d:n=2,c=128,h=28,w=28,o=256,k=1,s=2",
    "conv2d:n=1,c=96,h=28,w=28,o=96,k=5,p=2,g=96",
    "matmul:m=1000,n=512,k=768,ta,tb,bias,act=gelu",
    "conv2d:n=4,c=64,h=56,w=56,o=64,k=3,p=1,scale,bias,act=hard_swish",
    "conv_transpose2d:n=2,c=256,h=16,w=16,o=128,k=4,s=2,p=1,bias,act=relu",
];

const FOR_TENSOR_CORES: [&str; 9] = [
    "matmul:m=4096,n=4096,k=4096,dtype=f16",
    "matmul:m=1000,n=520,k=777,dtype=f16,bias,add,act=relu",
    "matmul:b=4,m=384,n=200,k=96,dtype=tf32",
    "conv2d:n=8,c=64,h=56,w=56,o=64,k=3,p=1,dtype=f16,bias,add,act=relu",
    "conv2d:n=8,c=128,h=28,w=28,o=256,k=1,s=2,dtype=bf16",
    "conv2d:n=4,c=3,h=224,w=224,o=64,k=7,s=2,p=3,dtype=tf32,bias",
    "matmul:m=1000,n=520,k=776,tb,weights=data,dtype=f16,scale,bias,act=gelu",
    "conv2d:n=8,c=64,h=56,w=56,o=64,k=3,p=1,dtype=bf16,bias,act=prelu",
    "conv_transpose2d:n=4,c=256,h=16,w=16,o=128,k=4,s=2,p=1,dtype=f16,bias,act=relu",
];

const FOR_WARP_GROUPS: [&str; 4] = [
    "matmul:m=4096,n=4096,k=4096,dtype=f16",
    "matmul:m=1000,n=520,k=776,dtype=bf16,bias,add,act=relu",
    "matmul:m=70,n=100,k=8192,dtype=f16,bias",
    "matmul:m=1000,n=520,k=776,tb,dtype=f16,scale,bias,act=silu",
];

/// Volta, Ampere and Hopper: without asynchronous copies, with them, and with warp groups.
const ARCHITECTURES: [u32; 3] = [70, 80, 90];
/// Blackwell, whose tensor cores are programmed like Ampere's.
const LATER: [u32; 3] = [100, 103, 120];

/// Returns the compiler and those of the wanted architectures that it supports. If it supports none
/// as old as the first, its own oldest one replaces that.
fn compiler(wanted: &[u32]) -> Option<(Nvrtc, Vec<u32>)> {
    let nvrtc = Nvrtc::find().map_err(|reason| missing("nvrtc", &reason)).ok()?;
    let (mut architectures, (major, minor)) = (Vec::new(), nvrtc.version);
    for &sm in wanted {
        if nvrtc.architectures.contains(&sm) {
            architectures.push(sm);
            continue;
        }
        let (oldest, newest) = (nvrtc.architectures[0], nvrtc.architectures[nvrtc.architectures.len() - 1]);
        missing(&format!("sm_{sm}"), &format!("NVRTC {major}.{minor} compiles for sm_{oldest} to sm_{newest}"));
        if sm < oldest {
            architectures.push(oldest);
        }
    }
    architectures.dedup();
    Some((nvrtc, architectures))
}

/// Minimum bytes of spills, stores and loads together, that count as spilling. The compiler at
/// times spills a few registers of a kernel far below its limit.
const SPILL_BYTES: usize = 128;
/// One kernel in this many may spill more; no default schedule may.
const SPILL_ONCE_IN: usize = 50;
/// Registers above the estimate that are tolerated: the compiler keeps addresses in registers that
/// it can spare.
const SLACK: usize = 40;

fn survey(workloads: &[&str], oldest: u32, configs: usize, seed: u64) -> [usize; 3] {
    let architectures: Vec<u32> = ARCHITECTURES.into_iter().filter(|&sm| sm >= oldest).collect();
    survey_of(workloads, &architectures, configs, seed, |_| true)
}

/// Compiles the default config and other accepted ones. Returns the numbers of kernels compiled,
/// spilled, and above the estimated registers.
fn survey_of(
    workloads: &[&str],
    architectures: &[u32],
    configs: usize,
    seed: u64,
    is_wanted: fn(&Config) -> bool,
) -> [usize; 3] {
    let Some((nvrtc, architectures)) = compiler(architectures) else {
        return [0; 3];
    };

    let (mut compiled, mut spilled, mut beyond) = (0, 0, 0);
    for (generation, &sm) in architectures.iter().enumerate() {
        let target = Target::detect(&format!("cuda:sm_{sm}"), None).unwrap();
        let gpu = target.gpu().unwrap();
        for (number, text) in workloads.iter().enumerate() {
            // An ordinary run compiles each for one generation.
            if or_long([number % architectures.len() != generation, false]) {
                continue;
            }
            let workload: Workload = text.parse().unwrap();
            let space = ScheduleSpace::new(&workload, &target);
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let mut config = space.default_candidate().clone();
            for i in 0..configs {
                config = match i {
                    0 => config,
                    _ => {
                        let next =
                            |_| if i % 2 == 0 { space.neighbor(&config, &mut rng) } else { space.sample(&mut rng) };
                        (0..1000).map(next).find(|config| is_wanted(config)).unwrap()
                    }
                };

                let estimate = tiling(&workload, gpu, &config).unwrap().registers();
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
                // With registers moving between roles, the compiler reports the number at the
                // launch.
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
    assert!(spilled * SPILL_ONCE_IN <= compiled && beyond * 5 <= compiled, "{spilled} and {beyond} of {compiled}");
}

#[test]
fn kernels_for_tensor_cores_compile_without_spills() {
    let [compiled, spilled, beyond] = survey(&FOR_TENSOR_CORES, 80, 3, 1);
    assert!(spilled * SPILL_ONCE_IN <= compiled && beyond * 5 <= compiled, "{spilled} and {beyond} of {compiled}");
}

/// True for configs of the sketch for warp groups.
fn is_for_groups(config: &Config) -> bool {
    config.sketch == WGMMA.name
}

#[test]
fn kernels_for_warp_groups_compile_without_spills() {
    let [compiled, spilled, beyond] = survey_of(&FOR_WARP_GROUPS, &[90], or_long([3, 5]), 3, is_for_groups);
    assert!(spilled == 0 && beyond * 5 <= compiled, "{spilled} and {beyond} of {compiled}");
}

#[test]
fn kernels_for_later_generations_compile_without_spills() {
    let [compiled, spilled, beyond] = survey_of(&FOR_TENSOR_CORES[1..4], &LATER, 2, 1, |_| true);
    assert!(spilled * SPILL_ONCE_IN <= compiled && beyond * 5 <= compiled, "{spilled} and {beyond} of {compiled}");
}

/// Returns the source for a workload, with some knobs of the sketch for warp groups.
fn group_source(text: &str, knobs: &str) -> String {
    let workload: Workload = text.parse().unwrap();
    let target = Target::detect("cuda:sm_90", None).unwrap();
    let config = group_config(&workload, knobs);
    codegen::gpu::generate(&lower(&workload, &target, &config).unwrap(), GpuApi::Cuda { sm: 90 })
}

const PRODUCERS: [&str; 3] = ["producer=inline", "producer=group", "producer=group grid=persistent"];

#[test]
fn fences_are_where_hardware_wants_them() {
    for knobs in PRODUCERS {
        let source = group_source(FOR_WARP_GROUPS[0], &format!("tile.m=128x64 tile.n=128x128 stages=4 {knobs}"));
        let place = |text: &str| source.find(text).unwrap_or_else(|| panic!("no {text}\n{source}"));
        // The initial phase must be visible to the copy engine and to other threads.
        let begun =
            ["mbarrier.init", "fence.mbarrier_init.release.cluster", "fence.proxy.async.shared::cta", "__syncthreads"];
        assert!(begun.map(place).is_sorted(), "{source}");
        assert!(place("start % 1024 != 0) __trap()") < place("mbarrier.init"));
        // Accumulators may not be written after the first instruction, nor read before the last has
        // completed.
        let compute = &source[place("autotune_compute(")..];
        let place = |text: &str| compute.find(text).unwrap();
        let order = ["= 0.0f", "fence_sums(acc)", "begin_products()", "await_products<0>();\n"];
        assert!(order.map(place).is_sorted(), "{compute}");
        let ended = &compute[place("await_products<0>();\n")..];
        assert!(ended.find("fence_sums(acc)").unwrap() < ended.find("acc[").unwrap(), "{compute}");
    }
    let workload: Workload = FOR_TENSOR_CORES[0].parse().unwrap();
    let target = Target::detect("cuda:sm_80", None).unwrap();
    let program = lower(&workload, &target, &ScheduleSpace::new(&workload, &target).default_config()).unwrap();
    let source = codegen::gpu::generate(&program, GpuApi::Cuda { sm: 80 });
    for load in source.split("ldmatrix.sync").skip(1) {
        assert!(load[..load.find(");\n").unwrap()].ends_with(": \"memory\""), "{load}");
    }
}

#[test]
fn kernels_whose_waits_are_bounded_compile() {
    let Some((nvrtc, _)) = compiler(&[90]) else { return };
    for knobs in PRODUCERS {
        let source = group_source(FOR_WARP_GROUPS[0], &format!("tile.m=128x64 tile.n=128x128 stages=4 {knobs}"));
        let [plain, bounded] =
            ["", "#define AUTOTUNE_CHECKED\n"].map(|head| nvrtc.compile(&format!("{head}{source}"), 90).unwrap());
        assert!(bounded.iter().chain(&plain).all(|kernel| kernel.spill_bytes == 0), "{plain:?} {bounded:?}");
    }
}

#[test]
fn half_precision_compiles_where_there_are_no_tensor_cores_for_it() {
    let workload = "conv2d:n=2,c=32,h=28,w=28,o=64,k=3,p=1,dtype=f16,bias,act=relu";
    let [compiled, spilled, _] = survey(&[workload], 70, 2, 1);
    assert!(spilled * SPILL_ONCE_IN <= compiled, "{spilled} of {compiled}");
    let target = Target::detect("cuda:sm_70", None).unwrap();
    let space = ScheduleSpace::new(&workload.parse().unwrap(), &target);
    assert!(space.sketches().iter().all(|sketch| sketch.name() != MMA.name));
}

/// Checks many kernels for refusals and spills, which takes a minute or two.
#[test]
#[ignore = "minutes of compiling"]
fn few_kernels_of_many_spill() {
    let [compiled, spilled, _] = survey(&WORKLOADS, 70, 40, 2);
    assert!(spilled * SPILL_ONCE_IN <= compiled, "{spilled} of {compiled}");
}

/// Checks many kernels for tensor cores.
#[test]
#[ignore = "minutes of compiling"]
fn few_kernels_for_tensor_cores_of_many_spill() {
    let [compiled, spilled, _] = survey(&FOR_TENSOR_CORES, 80, 20, 2);
    assert!(spilled * SPILL_ONCE_IN <= compiled, "{spilled} of {compiled}");
}

/// Checks many kernels for warp groups.
#[test]
#[ignore = "minutes of compiling"]
fn no_kernel_for_warp_groups_of_many_spills() {
    let [compiled, spilled, _] = survey_of(&FOR_WARP_GROUPS, &[90], 60, 4, is_for_groups);
    assert!(spilled == 0, "{spilled} of {compiled}");
}
