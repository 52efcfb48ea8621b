//! Tensor cores of a device: each matrix instruction alone, and every variant of the sketches at
//! full size. Every test reports all faults at its end.
//!
//! `AUTOTUNE_CASES=N` selects `N` of the large kernels, evenly spread; 0 selects none.

use std::env;
use std::ffi::c_void;
use std::fs::{self, File};
use std::ops::ControlFlow;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use autotune_ir::{GpuApi, GpuTarget, Target};
use autotune_measure::{KernelBuilder, MeasureOptions, Measurer, WorkerCommand, WorkerMeasurer};
use autotune_measure::{gpu, nvrtc};
use autotune_measurement::Measurement;
use autotune_schedules::Candidate;
use autotune_workloads::Workload;
use cudarc::driver::{CudaContext, DevicePtr, DeviceRepr, DriverError, LaunchConfig, PushKernelArg, sys};
use cudarc::nvrtc::Ptx;

use crate::gpu::missing;
use crate::kernels::options;
use crate::on_stub;
use instructions::Instruction;
use tiling::tiling;
use variants::Variant;

#[path = "../../../schedules/tests/common/instructions.rs"]
#[allow(unreachable_pub)]
mod instructions;
#[path = "../../../schedules/tests/common/tiling.rs"]
#[allow(unreachable_pub)]
mod tiling;
#[path = "../../../schedules/tests/common/variants.rs"]
#[allow(unreachable_pub)]
mod variants;

/// Tests that need a CUDA device.
pub(crate) const TESTS: &[(&str, fn())] = &[
    ("matrix_instructions_are_right", matrix_instructions_are_right),
    ("large_variants_are_right", large_variants_are_right),
];

/// Tests that need no device.
pub(crate) const COMPILER_TESTS: &[(&str, fn())] = &[("large_variants_compile", large_variants_compile)];

/// Large workloads. The flag is true to test all combinations of a variant's knobs, false for two
/// splits of each.
const WORKLOADS: [(&str, bool); 12] = [
    ("matmul:m=2048,n=2304,k=1024,dtype=f16", true),
    ("matmul:m=2048,n=2304,k=1024,dtype=bf16", false),
    ("matmul:m=2048,n=2304,k=1024,dtype=tf32", false),
    ("matmul:m=1000,n=520,k=4096,dtype=f16,bias,act=relu", false),
    ("matmul:m=1000,n=520,k=4096,dtype=bf16,add", false),
    ("matmul:m=1000,n=520,k=4096,dtype=tf32,bias,add", false),
    ("conv2d:n=8,c=64,h=56,w=56,o=64,k=3,p=1,dtype=f16,bias,act=relu", false),
    ("conv2d:n=8,c=64,h=56,w=56,o=64,k=3,p=1,dtype=tf32,add", false),
    ("conv2d:n=8,c=256,h=28,w=28,o=200,k=1,s=2,dtype=bf16,bias", false),
    ("conv2d:n=4,c=96,h=29,w=31,o=96,k=3,s=2,p=1,g=2,dtype=f16", false),
    ("matmul:b=4,m=384,n=200,k=576,dtype=f16,bias", false),
    ("matmul:b=4,m=384,n=200,k=576,dtype=tf32", false),
];

/// Workload that the stub can run, and the number of kernels tested on it.
const FOR_STUB: [(&str, bool); 1] = [("matmul:m=100,n=40,k=264,dtype=f16,bias", true)];
const STUB_CASES: usize = 4;

/// Returns every variant of the sketches for tensor cores, limited to the number in the environment
/// or to `most`.
fn large_variants(target: &Target, most: usize) -> Vec<Candidate> {
    let gpu: &GpuTarget = target.gpu().unwrap();
    let mut all = Vec::new();
    let workloads = if on_stub::is_here() { &FOR_STUB[..] } else { &WORKLOADS };
    for &(text, every_split) in workloads {
        let workload: Workload = text.parse().unwrap();
        for sketch in variants::SKETCHES {
            let combinations = variants::combinations(&workload, target, sketch);
            let wanted = if every_split { combinations } else { variants::spread(combinations) };
            let config = |(turn, variant): (usize, &Variant)| {
                variants::config(&workload, gpu, (sketch, variant), turn, |_| true)
            };
            let configs: Vec<_> = wanted.iter().enumerate().filter_map(config).collect();
            eprintln!("{text}, {sketch}: {} kernels", configs.len());
            all.extend(configs.into_iter().map(|config| Candidate::new(&workload, target, config)));
        }
    }
    let most = env::var("AUTOTUNE_CASES").map_or(most, |count| count.parse().unwrap()).min(all.len());
    eprintln!("{most} of {} kernels", all.len());
    (0..most).map(|i| all[i * all.len() / most].clone()).collect()
}

fn large_variants_are_right() {
    let target = crate::kernels::target(1);
    let all = large_variants(&target, if on_stub::is_here() { STUB_CASES } else { usize::MAX });
    let begin = Instant::now();
    let (mut failures, mut count) = (Vec::new(), 0);
    let mut on_result = |index: usize, measurement: Measurement| {
        count += 1;
        if let Err(error) = measurement.outcome {
            let candidate = &all[index];
            failures.push(format!("{}\n    {candidate}\n    {error}", candidate.workload()));
        }
        ControlFlow::Continue(())
    };
    let mut measurer = WorkerMeasurer::with(WorkerCommand::find().unwrap(), options()).unwrap();
    measurer.measure(&all, &mut on_result).unwrap();
    eprintln!("{count} kernels in {:.0} s", begin.elapsed().as_secs_f64());
    assert_eq!(count, all.len());
    assert!(failures.is_empty(), "{} of {count} kernels are wrong:\n{}", failures.len(), failures.join("\n"));
}

/// Compiles only a few of them: all take minutes on few cores.
fn large_variants_compile() {
    if let Err(reason) = nvrtc::compiler_for(90) {
        return missing("nvrtc", &reason);
    }
    let all = large_variants(&Target::detect("cuda:sm_90", None).unwrap(), 12);
    let builds = KernelBuilder::new(MeasureOptions::default().backend, 60.0).build(&all).unwrap();
    let mut failures = Vec::new();
    for (candidate, build) in all.iter().zip(builds) {
        if let Err(error) = build.outcome {
            failures.push(format!("{}\n    {candidate}\n    {error}", candidate.workload()));
        }
    }
    assert!(failures.is_empty(), "{} do not compile:\n{}", failures.len(), failures.join("\n"));
}

/// Argument with which this program runs the instructions from a number on, in a separate process,
/// until one breaks the device's context.
pub(crate) const INSTRUCTIONS_ARGUMENT: &str = "instructions";

/// Time limit of such a process, including its start and compilations: enough for a C++ compiler on
/// a busy machine.
const LIMIT: Duration = Duration::from_secs(300);

fn matrix_instructions_are_right() {
    let all = instructions::all();
    let (mut next, mut failures) = (0, Vec::new());
    while next < all.len() {
        let (outcomes, ended) = outcomes_from(next);
        next += outcomes.len();
        failures.extend(outcomes.into_iter().flatten());
        if let Some(one) = all.get(next) {
            failures.push(format!("{}: {ended}", one.name));
            next += 1;
        }
    }
    eprintln!("{} instructions, {} fail", all.len(), failures.len());
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Returns the results of the instructions from number `first` on, as far as they got, and how
/// their process ended.
fn outcomes_from(first: usize) -> (Vec<Option<String>>, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("outcomes");
    let mut child = Command::new(env::current_exe().unwrap())
        .args([INSTRUCTIONS_ARGUMENT, &first.to_string()])
        .stdin(Stdio::null())
        .stdout(File::create(&path).unwrap())
        .spawn()
        .unwrap();
    let begin = Instant::now();
    let ended = loop {
        match child.try_wait().unwrap() {
            Some(status) => break format!("its process ended: {status}"),
            None if begin.elapsed() > LIMIT => {
                child.kill().unwrap();
                child.wait().unwrap();
                break format!("it takes longer than {} s", LIMIT.as_secs());
            }
            None => thread::sleep(Duration::from_millis(20)),
        }
    };
    let outcomes = fs::read_to_string(&path).unwrap();
    (outcomes.lines().map_while(|line| serde_json::from_str(line).ok()).collect(), ended)
}

/// Runs the instructions from a number on, and prints a line for each: `null`, or what is wrong
/// with it.
pub(crate) fn serve(first: Option<String>) -> ExitCode {
    let first = first.and_then(|number| number.parse().ok()).unwrap_or(0);
    let GpuApi::Cuda { sm } = gpu::find("cuda").unwrap().target.api else { return ExitCode::FAILURE };
    let context = CudaContext::new(0).unwrap();
    for one in instructions::all().iter().skip(first) {
        let ran = one.only.is_none_or(|only| only == sm).then(|| run(one, &context, sm));
        let broken = matches!(ran, Some(Err(_)));
        let outcome = match ran {
            None => None,
            Some(Ok(found)) => one.check(&found).err(),
            Some(Err(message)) => Some(format!("{}: {message}", one.name)),
        };
        println!("{}", serde_json::to_string(&outcome).unwrap());
        if broken {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// Tensor map, which a kernel takes by value.
#[repr(transparent)]
struct TensorMap(sys::CUtensorMap);

// SAFETY: plain data, which is passed to the kernel unchanged.
unsafe impl DeviceRepr for TensorMap {}

/// Runs an instruction's kernel with bounded waits. Returns its output, or the error of the
/// compiler or driver.
fn run(one: &Instruction, context: &Arc<CudaContext>, sm: u32) -> Result<Vec<u32>, String> {
    let compiled =
        nvrtc::compile(&format!("#define AUTOTUNE_CHECKED\n{}", one.source), sm).map_err(|e| e.to_string())?;

    let on_device = || {
        let function = context.load_module(Ptx::from_binary(compiled.cubin))?.load_function("try_it")?;
        let stream = context.default_stream();
        let given = stream.clone_htod(&one.given)?;
        let mut found = stream.clone_htod(&vec![u32::MAX; one.expected.len()])?;
        let map = one.map.map(|shapes| tensor_map(given.device_ptr(&stream).0, shapes)).transpose()?;
        let mut call = stream.launch_builder(&function);
        call.arg(&given).arg(&mut found);
        if let Some(map) = &map {
            call.arg(map);
        }
        let config = LaunchConfig {
            grid_dim: (1, 1, 1),
            block_dim: (one.threads as u32, 1, 1),
            shared_mem_bytes: one.shared_bytes as u32,
        };
        // SAFETY: the arguments match the kernel's parameters, and the kernel writes as many words
        // as `found` has.
        unsafe { call.launch(config) }?;
        let found = stream.clone_dtoh(&found)?;
        stream.synchronize()?;
        Ok(found)
    };

    on_device().map_err(|e: DriverError| format!("{e:?}"))
}

/// Returns the tensor map of a matrix of 16-bit elements at an address. Matrix and boxes are given
/// by rows and columns.
fn tensor_map(
    address: sys::CUdeviceptr,
    [[rows, columns], [box_rows, box_columns]]: [[usize; 2]; 2],
) -> Result<TensorMap, DriverError> {
    let mut map = TensorMap(sys::CUtensorMap { opaque: [0; 16] });
    let (extents, row_bytes) = ([columns as u64, rows as u64], 2 * columns as u64);
    let (shape, steps) = ([box_columns as u32, box_rows as u32], [1u32; 2]);

    // SAFETY: every pointer refers to as many numbers as the rank requires, and `map` is only
    // written.
    let result = unsafe {
        sys::cuTensorMapEncodeTiled(
            &mut map.0,
            sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_UINT16,
            2,
            address as *mut c_void,
            extents.as_ptr(),
            &row_bytes,
            shape.as_ptr(),
            steps.as_ptr(),
            sys::CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
            sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
            sys::CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            sys::CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    };
    result.result().map(|()| map)
}
