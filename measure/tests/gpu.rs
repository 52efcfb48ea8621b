//! Kernels for GPUs, measured on whatever OpenCL device there is (PoCL is the CPU), and compiled for GPUs that are not there.
//!
//! Where there is no OpenCL device or no NVRTC, these tests say so and pass; `AUTOTUNE_REQUIRE=opencl,nvrtc` makes that a
//! failure.

#![allow(clippy::unwrap_used)]

use std::env;
use std::ops::ControlFlow;

use autotune_measure::gpu::cuda;
use autotune_measure::{Candidate, CandidateError, GpuMeasurer, MeasureError, Measurement, Measurer, TimingOptions};
use autotune_schedules::codegen::gpu::generate;
use autotune_schedules::{GpuApi, ScheduleSpace, Target, Workload, lower};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

fn missing(tool: &str, reason: &str) {
    let required = env::var("AUTOTUNE_REQUIRE").unwrap_or_default();
    assert!(required.split(',').all(|name| name != tool), "{tool} is required: {reason}");
    eprintln!("skipped, {tool} is missing: {reason}");
}

fn opencl() -> Option<GpuMeasurer> {
    // SAFETY: set before anything else of this process reads the environment; every test sets the same.
    unsafe { env::set_var("POCL_KERNEL_CACHE", "0") };
    let timing = TimingOptions { warmup_secs: 1e-4, floor_secs: 1e-3, max_repeats: 5, ..TimingOptions::default() };
    match GpuMeasurer::opencl(0, timing) {
        Ok(measurer) => Some(measurer),
        Err(MeasureError::Device { message }) => {
            missing("opencl", &message);
            None
        }
        Err(other) => panic!("{other}"),
    }
}

fn candidates(text: &str, target: &Target, count: usize) -> Vec<Candidate> {
    let workload: Workload = text.parse().unwrap();
    let space = ScheduleSpace::new(&workload, target);
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let configs = std::iter::once(space.default_config()).chain((1..count).map(|_| space.sample(&mut rng)));
    configs.map(|config| Candidate { workload, target: target.clone(), config }).collect()
}

fn measure(measurer: &mut GpuMeasurer, candidates: &[Candidate]) -> Vec<Measurement> {
    let mut all = Vec::new();
    let mut keep = |index: usize, measurement| {
        assert_eq!(index, all.len());
        all.push(measurement);
        ControlFlow::Continue(())
    };
    measurer.measure(candidates, &mut keep).unwrap();
    all
}

#[test]
fn candidates_are_checked_and_timed() {
    let Some(mut measurer) = opencl() else { return };
    // The stated limits: this device's own may allow more threads than any GPU.
    let target = Target::detect("opencl", None).unwrap();
    for text in ["matmul:m=40,n=33,k=20,bias", "conv2d:c=6,h=9,w=9,o=20,k=3,p=1,act=relu"] {
        let candidates = candidates(text, &target, 3);
        for measurement in measure(&mut measurer, &candidates) {
            let run = measurement.outcome.unwrap();
            assert!(run.run_secs > 0.0 && run.run_secs.is_finite() && run.max_rel_error < 1e-4, "{run:?}");
        }
        let race = measurer.race(&candidates).unwrap();
        assert!(race.len() == 3 && race.iter().all(|m| m.run_secs().is_some()), "{race:?}");
    }
}

#[test]
fn what_cannot_be_built_is_data() {
    let Some(mut measurer) = opencl() else { return };
    let target = Target::detect("opencl", None).unwrap();
    let mut candidates = candidates("matmul:m=40,n=33,k=20", &target, 3);
    candidates[0].target = Target::detect("cpu", Some(1)).unwrap();
    candidates[1].config.sketch = "none".into();
    let outcomes: Vec<_> = measure(&mut measurer, &candidates).into_iter().map(|m| m.outcome).collect();
    assert!(matches!(outcomes[0], Err(CandidateError::Lower { .. })), "{outcomes:?}");
    assert!(matches!(outcomes[1], Err(CandidateError::Lower { .. })), "{outcomes:?}");
    assert!(outcomes[2].is_ok(), "{outcomes:?}");
    assert!(matches!(measurer.race(&candidates), Err(MeasureError::MixedTargets)));
}

#[test]
fn cuda_is_compiled_without_a_device() {
    let target = Target::detect("cuda:sm_90", None).unwrap();
    let workload: Workload = "matmul:m=256,n=256,k=64,bias,act=relu".parse().unwrap();
    let config = ScheduleSpace::new(&workload, &target).default_config();
    let source = generate(&lower(&workload, &target, &config).unwrap(), GpuApi::Cuda { sm: 90 });
    match cuda::compile(&source, 90) {
        Ok(compiled) => {
            assert!(compiled.cubin.starts_with(b"\x7fELF"));
            assert!(compiled.log.contains("registers"), "{}", compiled.log);
            let broken = cuda::compile("__global__ void f() { int x = ; }", 90);
            assert!(
                matches!(&broken, Err(CandidateError::Build { message }) if message.contains("error")),
                "{broken:?}"
            );
        }
        Err(CandidateError::Build { message }) if message.contains("libnvrtc") => missing("nvrtc", &message),
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn a_machine_without_a_device_says_so() {
    let unlikely = 99;
    for opened in
        [GpuMeasurer::cuda(unlikely, TimingOptions::default()), GpuMeasurer::opencl(unlikely, TimingOptions::default())]
    {
        assert!(matches!(opened.err(), Some(MeasureError::Device { .. })));
    }
}
