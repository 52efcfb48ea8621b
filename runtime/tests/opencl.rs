//! Contract tests of this machine's OpenCL device.

use autotune_ir::{Artifact, Code, GpuTarget, Launch, Target};
use autotune_runtime::{Cpu, Device, Kernel, OpenClDevice, contract};

/// Number of elements per task.
const PER_TASK: usize = 8;

/// OpenCL C source of the contract's kernel.
const OPENCL: &str = r#"
#define BUFFERS __global float *input, __global float *weight, __global float *output, __global float *packed, __global float *scratch
__kernel void contract_pack(BUFFERS) { const int i = get_global_id(0); packed[i] = 2.0f * weight[i]; }
__kernel void contract_add(BUFFERS) { const int i = get_global_id(0); scratch[i] = input[i] + packed[i]; }
__kernel void contract_square(BUFFERS) { const int i = get_global_id(0); output[i] = scratch[i] * scratch[i]; }
"#;

#[test]
fn opencl_devices_keep_the_contract() {
    let device = match OpenClDevice::first() {
        Ok(device) => device,
        Err(reason) => {
            let required = std::env::var("AUTOTUNE_REQUIRE").unwrap_or_default();
            assert!(required.split(',').all(|name| name != "opencl"), "opencl is required: {reason}");
            return eprintln!("skipped, opencl is missing: {reason}");
        }
    };
    let launch = Launch { blocks: contract::LEN / PER_TASK, threads: PER_TASK, shared_bytes: 0 };
    let artifact = Artifact {
        target: Target::Gpu(GpuTarget::stated("opencl").unwrap()),
        plan: contract::plan(launch.blocks, Some(launch)),
        code: Code::OpenCl(OPENCL.into()),
    };
    // SAFETY: the source implements the plan.
    let load = || unsafe { Kernel::load(&device, &artifact) }.unwrap();
    let (kernel, other) = (load(), load());
    contract::memory(&device);
    contract::kernels(&device, &kernel);
    contract::other_kernels(&device, [&kernel, &other]);
    contract::other_devices(&device, &OpenClDevice::first().unwrap(), &kernel);
    contract::threads(|| device.new_queue().unwrap(), &kernel);

    // SAFETY: loading fails before any code is used.
    let refused = unsafe { Cpu::new(1).load(&artifact) }.err().unwrap().to_string();
    assert!(refused.starts_with("the code is not for "), "{refused}");
}
