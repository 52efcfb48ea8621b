//! Tests instructions that one GPU API has and another lacks.

use autotune_codegen::gpu;
use autotune_ir::{GpuApi, Target};
use autotune_schedules::{Config, ScheduleSpace, lower};
use autotune_workloads::Workload;

#[test]
fn instructions_that_an_api_lacks_are_errors_in_its_source() {
    let target = Target::detect("cuda:sm_90", None).unwrap();
    let workload: Workload = "matmul:m=256,n=256,k=256,dtype=f16".parse().unwrap();
    let space = ScheduleSpace::new(&workload, &target);
    let source = |config: &Config, api| gpu::generate(&lower(&workload, &target, config).unwrap(), api);
    for sketch in ["mma", "wgmma"] {
        let config = space.iter().find(|config| config.sketch == sketch).unwrap();
        assert!(!source(&config, GpuApi::Cuda { sm: 90 }).contains("#error"), "{config}");
        assert!(source(&config, GpuApi::OpenCl).contains("#error \"instruction"), "{config}");
    }
}
