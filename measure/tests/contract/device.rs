//! Contract tests of the runtime on CUDA devices. They are here because their kernels need a
//! compiler, which the runtime does not have.

use autotune_ir::{Artifact, Code, GpuApi, Launch, Target};
use autotune_measure::{gpu, nvrtc};
use autotune_runtime::{CudaDevice, Device, Kernel, View, ViewMut, bytes_of, contract};

pub(crate) const TESTS: &[(&str, fn())] = &[("cuda_devices_keep_the_contract", cuda_devices_keep_the_contract)];

const THREADS: usize = 32;

const SOURCE: &str = r#"
#define BUFFERS const float *input, const float *weight, float *output, float *packed, float *scratch
#define I (blockIdx.x * blockDim.x + threadIdx.x)
extern "C" __global__ void contract_pack(BUFFERS) { packed[I] = 2.0f * weight[I]; }
extern "C" __global__ void contract_add(BUFFERS) { scratch[I] = input[I] + packed[I]; }
extern "C" __global__ void contract_square(BUFFERS) { output[I] = scratch[I] * scratch[I]; }
"#;

fn cuda_devices_keep_the_contract() {
    let target = gpu::find("cuda").unwrap().target;
    let GpuApi::Cuda { sm } = target.api else { panic!("{target:?}") };
    let launch = Launch { blocks: contract::LEN / THREADS, threads: THREADS, shared_bytes: 0 };
    let artifact = Artifact {
        target: Target::Gpu(target.clone()),
        plan: contract::plan(launch.blocks, Some(launch)),
        code: Code::Cubin(nvrtc::compile(SOURCE, sm).unwrap().cubin),
    };
    let device = CudaDevice::open(&target).unwrap();
    // SAFETY: the source accesses only the buffers of this plan.
    let load = || unsafe { Kernel::load(&device, &artifact) }.unwrap();
    let (kernel, other) = (load(), load());
    contract::memory(&device);
    contract::kernels(&device, &kernel);
    contract::other_kernels(&device, [&kernel, &other]);
    contract::threads(|| device.new_stream().unwrap(), &kernel);
    memory_of_the_caller_is_used_where_it_is(&device, &kernel);
}

/// Checks that memory of the caller, given by its address as another library would, is used in
/// place.
fn memory_of_the_caller_is_used_where_it_is(device: &CudaDevice, kernel: &Kernel<CudaDevice>) {
    const BYTES: usize = 4 * contract::LEN;
    let arena = device.allocate(3 * BYTES).unwrap();
    let wrap = |index: usize| {
        // SAFETY: the ranges do not overlap, and the arena outlives them.
        unsafe { device.wrap(arena.address() + (index * BYTES) as u64, BYTES) }
    };
    let [mut input, mut weight, mut output] = [wrap(0), wrap(1), wrap(2)];
    for (memory, value) in [(&mut input, 1.0f32), (&mut weight, 2.0)] {
        device.write(memory, 0, bytes_of(&[value; contract::LEN])).unwrap();
    }

    let shape = &kernel.plan().buffers[0].shape;
    let packed = kernel.pack(device, &[View::of(&weight, Default::default(), shape)]).unwrap();
    let mut scratch = kernel.scratch(device).unwrap();
    let operands = [View::of(&input, Default::default(), shape), View::of(&weight, Default::default(), shape)];
    let mut outputs = [ViewMut::of(&mut output, Default::default(), shape)];
    kernel.run(device, &packed, &mut scratch, &operands, &mut outputs).unwrap();

    let mut found = [0.0f32; 3 * contract::LEN];
    device.download(&arena, &mut found).unwrap();
    let expected = [1.0, 2.0, 25.0].map(|value| [value; contract::LEN]);
    assert_eq!(found[..], *expected.as_flattened());
}
