//! Every workload that parses can be tuned on every target. Its default schedule and others drawn
//! from its space are verified and compiled. `AUTOTUNE_CASES` sets the number of workloads.

use autotune_codegen::asm::{AssembleError, assemble};
use autotune_codegen::{c, gpu};
use autotune_ir::{CpuTarget, DType, GpuTarget, Isa, Target, verify};
use autotune_schedules::{Config, LowerError, ScheduleSpace, UnfitError, lower};
use autotune_workloads::{Workload, operators};
use rand::SeedableRng;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;

use crate::common::cases::cases;
use crate::common::odd_workloads::{odd_operator, odd_workload};
use crate::common::or_long;
use crate::common::random_programs::check as check_values;
use crate::common::targets::{random_cpu, random_gpu};

/// Numbers of workloads in an ordinary and a long run; GPU defaults take longer to choose.
const CPU_CASES: [u64; 2] = [400, 1200];
const GPU_CASES: [u64; 2] = [80, 250];
/// One workload in this many also has random configs drawn, which takes longer than everything
/// else.
const SAMPLED_ONE_IN: u64 = 8;
/// Number of random configs for such a workload.
const SAMPLES: usize = 4;

/// Runs `case` for each seed, and fails with the first failure.
fn for_all_seeds(sizes: [u64; 2], case: impl Fn(u64) -> Result<(), String> + Sync) {
    let failures: Vec<String> = (0..cases(or_long(sizes)))
        .into_par_iter()
        .filter_map(|seed| Some(format!("seed {seed}: {}", case(seed).err()?)))
        .collect();
    let first: Vec<&str> = failures.iter().take(20).map(String::as_str).collect();
    assert!(failures.is_empty(), "{} fail, among them\n{}", failures.len(), first.join("\n"));
}

/// Verifies and compiles the default, and for some seeds random configs.
fn check(workload: &Workload, target: &Target, seed: u64) -> Result<(), String> {
    let space = ScheduleSpace::new(workload, target);
    let context = |config: &Config, problem: String| format!("{workload} on {target}\n  {config}\n  {problem}");
    let mut configs = vec![space.default_candidate().clone()];
    if seed.is_multiple_of(SAMPLED_ONE_IN) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        configs.extend((0..SAMPLES).map(|_| space.sample(&mut rng)));
        configs.push(space.neighbor(&configs[0], &mut rng));
    }

    for config in configs {
        let program = match (space.checked(&config), space.refusal()) {
            (Ok(candidate), None) => candidate.lower().unwrap(),
            (Err(UnfitError::Refused(_)), Some(LowerError::TooLarge { elements, .. })) if *elements >= 1 << 31 => {
                continue;
            }
            (Err(UnfitError::Refused(_)), Some(LowerError::Size { extent, .. })) if *extent >= 512 => continue,
            (result, refusal) => {
                return Err(context(&config, format!("{:?}, {refusal:?}", result.map(|_| "a program"))));
            }
        };

        let code = match target {
            Target::Gpu(device) => gpu::generate(&program, device.api),
            Target::Cpu(_) => match assemble(&program, target) {
                Ok(_) => continue,
                Err(AssembleError::Isa(_) | AssembleError::Displacement { .. }) => c::generate(&program, target),
                Err(AssembleError::Gather) if program.buffers.iter().any(|buffer| buffer.len() >= 1 << 31) => {
                    c::generate(&program, target)
                }
                Err(error) => return Err(context(&config, error.to_string())),
            },
        };
        if !code.contains("void ") {
            return Err(context(&config, "no code".into()));
        }
    }
    Ok(())
}

/// Draws a workload of a type that the target supports. One in three is a convolution of images or
/// a matrix product.
fn odd(seed: u64, target: &Target, rng: &mut ChaCha8Rng) -> Workload {
    let workload = if seed.is_multiple_of(3) { odd_workload(rng) } else { odd_operator(rng) };
    let dtypes: Vec<DType> = DType::ALL.into_iter().filter(|&d| target.supports(d)).collect();
    workload.with_dtype(*dtypes.choose(rng).unwrap()).unwrap()
}

#[test]
fn every_workload_can_be_tuned_on_cpus() {
    for_all_seeds(CPU_CASES, |seed| {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let target = random_cpu(&mut rng);
        check(&odd(seed, &target, &mut rng), &target, seed)
    });
}

#[test]
fn every_workload_can_be_tuned_on_gpus() {
    for_all_seeds(GPU_CASES, |seed| {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let target = random_gpu(&mut rng);
        check(&odd(seed, &target, &mut rng), &target, seed)
    });
}

#[test]
fn every_operator_has_kernels_of_every_type() {
    let gpus = ["opencl", "cuda:sm_70", "cuda:sm_90"].map(|word| Target::Gpu(GpuTarget::stated(word).unwrap()));
    let cpus = [(Isa::Avx2, &[][..]), (Isa::Avx512, &["avx512bf16"])].map(|(isa, features)| {
        let features = features.iter().map(|feature: &&str| feature.to_string()).collect();
        Target::Cpu(CpuTarget { isa, features, ..CpuTarget::generic_avx2(1) })
    });
    for target in gpus.into_iter().chain(cpus) {
        for kind in operators() {
            let workload: Workload = kind.example.parse().unwrap();
            for dtype in DType::ALL.into_iter().filter(|&dtype| target.supports(dtype)) {
                check(&workload.with_dtype(dtype).unwrap(), &target, 1).unwrap_or_else(|problem| panic!("{problem}"));
            }
        }
    }
}

/// The fallbacks that make unusual workloads tunable compute the right result.
#[test]
fn schedules_of_odd_workloads_agree_with_the_reference() {
    let cpu = |isa, threads| Target::Cpu(CpuTarget { isa, ..CpuTarget::generic_avx2(threads) });
    let gpu = |word| Target::Gpu(GpuTarget::stated(word).unwrap());
    let targets = [
        cpu(Isa::Avx2, 2),
        cpu(Isa::Avx512, 16),
        cpu(Isa::Neon, 3),
        gpu("cuda:sm_70"),
        gpu("cuda:sm_90"),
        gpu("opencl"),
    ];
    for text in [
        "conv2d:c=2,h=6,w=5,o=8,k=9,p=5,exact",
        "conv2d:c=8,h=5,w=7,o=8,k=3,p=13,d=7,g=8,bias",
        "conv2d:c=2,h=1,w=260,o=1,kh=1,kw=3,s=7,bias",
        "conv2d:c=3,h=90,w=1,o=3,kh=4,kw=1,sh=9,sw=1,g=3,act=relu",
        "conv2d:c=64,h=9,w=1,o=8,kh=3,kw=1,g=8",
        "conv2d:n=2,c=14,h=1,w=1,o=2,k=1,g=2",
        "matmul:b=7,m=3,n=53,k=5,bias,act=relu",
    ] {
        for (seed, target) in targets.iter().enumerate() {
            check_values(&text.parse().unwrap(), target, seed as u64, 3);
        }
    }
}

/// Workloads with hardly any valid configs, or so large that partial sums do not fit in memory.
#[test]
fn large_workloads_that_leave_little_choice_have_a_default() {
    for (text, word) in [
        ("conv2d:n=300,c=17,h=75,w=60,o=17,kh=6,kw=2,s=1,ph=4,pw=2,g=17", "opencl"),
        ("conv2d:n=1,c=432,h=1009,w=257,o=108,k=3,sh=3,sw=4,ph=0,pw=1,g=108,dtype=f16,add,exact", "cuda:sm_70"),
        ("conv2d:n=1,c=48,h=128,w=4771,o=651,kh=37,kw=2,sh=1,sw=4,ph=37,pw=0,bias", "opencl"),
        (
            "conv2d:n=1,c=31,h=1024,w=44,o=2108,kh=28,kw=4,s=1,ph=28,pw=73,dh=1,dw=24,dtype=tf32,bias,exact",
            "cuda:sm_80",
        ),
        ("conv2d:n=1,c=4096,h=128,w=17,o=65024,kh=16,kw=6,s=1,ph=0,pw=3,g=512,dtype=f16,add,exact", "cuda:sm_89"),
    ] {
        // This seed also draws random configs.
        check(&text.parse().unwrap(), &Target::Gpu(GpuTarget::stated(word).unwrap()), 0).unwrap();
    }
}

#[test]
fn very_many_tiles_must_be_filled_by_whole_groups_of_steps() {
    let workload: Workload = "matmul:m=1,n=7,k=51658010,exact".parse().unwrap();
    let target = Target::Cpu(CpuTarget::generic_avx2(1));
    let config = |unroll: usize| {
        let text = format!(
            r#"{{"sketch":"direct","knobs":{{"data":"inplace","order":["n","k"],"order.inner":["n"],"order.reduce":["k"],"parallel":"1",
            "tile.k":[48],"tile.m":[1,1],"tile.n":[7,7],"unroll":"{unroll}","vector":"n","weights":"packed"}}}}"#
        );
        serde_json::from_str::<Config>(&text).unwrap()
    };
    let refused = lower(&workload, &target, &config(36)).unwrap_err().to_string();
    assert!(refused.contains("too many tiles with remainders"), "{refused}");
    let program = lower(&workload, &target, &config(24)).unwrap();
    verify(&program, &target).unwrap();
}
