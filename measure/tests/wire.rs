//! Kernels and results that are sent to another process and back.

use autotune_ir::Target;
use autotune_measure::protocol::{Job, receive, send};
use autotune_measure::{Built, InProcessMeasurer, KernelBuilder, MeasureOptions};
use autotune_measurement::{Backend, CandidateError, Measurement};
use autotune_schedules::ScheduleSpace;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Workload with two stages, packed weights and a bias.
const WORKLOAD: &str = "conv2d:n=1,c=16,h=12,w=12,o=32,k=3,p=1,bias,act=relu";

fn through_json<T: Serialize + DeserializeOwned>(value: &T) -> T {
    serde_json::from_str(&serde_json::to_string(value).unwrap()).unwrap()
}

fn through_job(built: &Built) -> Built {
    let (mut wire, mut code) = (Vec::new(), Vec::new());
    let job = Job::new(built, &mut code);
    send(&mut wire, &job, &code).unwrap();
    let (job, code): (Job, _) = receive(&mut wire.as_slice()).unwrap().unwrap();
    job.built(&code).unwrap()
}

#[test]
fn kernels_and_results_are_unchanged_by_the_protocol() {
    let target = Target::detect("cpu", Some(1)).unwrap();
    let space = ScheduleSpace::new(&WORKLOAD.parse().unwrap(), &target);
    let mut builder = KernelBuilder::new(Backend::Assembler, 20.0);
    let build = builder.build(&[space.default_candidate().clone()]).unwrap().swap_remove(0);
    let built = build.outcome.unwrap();
    assert_eq!((through_json(&built), through_job(&built)), (built.clone(), built.clone()));

    // SAFETY: the kernel was built here from a schedule of the present space.
    let mut measurer = unsafe { InProcessMeasurer::new(MeasureOptions::default()) };
    let measured = measurer.run_built(&through_job(&built)).unwrap();
    let result = Measurement { toolchain: build.toolchain, build_secs: build.build_secs, ..measured };
    assert!(result.outcome.is_ok() && result.toolchain.is_some(), "{result:?}");
    assert_eq!(through_json(&result), result);

    let failed = CandidateError::WrongResult { max_rel_error: f64::INFINITY, tolerance: 1e-4 };
    let failed = Measurement { outcome: Err(failed), ..result };
    assert_eq!(through_json(&failed), failed);
}

#[test]
fn gpu_code_is_unchanged_by_the_protocol() {
    let target = Target::detect("opencl", None).unwrap();
    let space = ScheduleSpace::new(&"matmul:m=64,n=64,k=64".parse().unwrap(), &target);
    let mut builder = KernelBuilder::new(Backend::Assembler, 20.0);
    let built = builder.build(&[space.default_candidate().clone()]).unwrap().swap_remove(0).outcome.unwrap();
    assert_eq!((through_json(&built), through_job(&built)), (built.clone(), built));
}
