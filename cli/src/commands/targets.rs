//! The command `autotune targets`: describes the CPU and the GPUs of this machine.

use anyhow::Result;
use autotune::device_name;
use autotune_ir::DType;
use autotune_ir::{CpuTarget, GpuApi, Target};
use autotune_measure::nvrtc;
use autotune_measure::{Ceilings, Compiler, MeasureError, MeasureOptions, WorkerMeasurer};
use autotune_measurement::Backend;
use autotune_runtime::{GpuInfo, cuda, opencl};

use crate::output::print;

pub(super) fn run() -> Result<()> {
    print(&cpu()?)?;
    let mut measurer = WorkerMeasurer::new(MeasureOptions::default())?;
    for (word, devices) in [("cuda", cuda::devices()), ("opencl", opencl::devices())] {
        match devices {
            Ok(devices) => devices.iter().try_for_each(|info| print(&gpu(word, info, &mut measurer)))?,
            Err(reason) => print(&format!("{word}: none: {reason}"))?,
        }
    }
    Ok(())
}

fn cpu() -> Result<String> {
    let cpu = CpuTarget::detect(None)?;
    let target = Target::Cpu(cpu.clone());
    let ceilings = Ceilings::measure(&target)?;
    let compiler = Compiler::find().map_or("none found".into(), |compiler| compiler.version);

    Ok(format!(
        "cpu: {}\n  key       {target}\n  cores     {}, {} vectors of {} f32\n  caches    {} KiB L1d, {} KiB L2 a core, {} KiB L3\n  \
         code      {}, C compiler: {compiler}\n  ceilings  {:.1} GFLOP/s f32 on one core, on {} thread(s) {}, {:.1} GB/s copied in memory\n  threads   fork and join {:.2} us",
        device_name(&target).unwrap_or_else(|| cpu.model.clone()),
        cpu.cores,
        cpu.isa,
        cpu.lanes(),
        cpu.l1d_bytes >> 10,
        cpu.l2_bytes >> 10,
        cpu.l3_bytes >> 10,
        match Backend::default_for(cpu.isa) {
            Backend::Assembler => "assembled in this process",
            Backend::C => "compiled from C",
        },
        ceilings.core_flops_per_sec / 1e9,
        cpu.threads,
        speeds(&target, &ceilings),
        ceilings.bytes_per_sec / 1e9,
        ceilings.fork_join_secs * 1e6,
    ))
}

/// Describes a GPU; without measured ceilings, with the reason for their absence.
fn gpu(word: &str, info: &GpuInfo, measurer: &mut WorkerMeasurer) -> String {
    let target = &info.target;
    let code = match target.api {
        GpuApi::Cuda { sm } => match nvrtc::compiler_for(sm) {
            Ok(version) => format!("CUDA C, {version}"),
            Err(reason) => format!("CUDA C, but {reason}"),
        },
        GpuApi::OpenCl => "OpenCL C, compiled by the driver".into(),
    };

    let measured = |ceilings: Ceilings| {
        format!(
            "{}, {:.1} GB/s copied in memory, {:.1} GB/s read from cache\n  launches  {:.2} us each",
            speeds(&Target::Gpu(target.clone()), &ceilings),
            ceilings.bytes_per_sec / 1e9,
            ceilings.read_bytes_per_sec[0] / 1e9,
            ceilings.fork_join_secs * 1e6,
        )
    };
    let ceilings = measurer.measure_ceilings(&Target::Gpu(target.clone()));

    format!(
        "{word}: {}\n  key       {}\n  limits    {} multiprocessors, {} threads and {} KiB of shared memory a block, {} KiB L2\n  \
         code      {code}\n  ceilings  {}",
        info.title(),
        target.key(),
        target.multiprocessors,
        target.threads_per_block,
        target.shared_bytes_per_block >> 10,
        target.l2_bytes >> 10,
        ceilings.map_or_else(|error: MeasureError| error.to_string(), measured),
    )
}

/// Formats the multiply-add rate for each type that the target has kernels for.
fn speeds(target: &Target, ceilings: &Ceilings) -> String {
    let dtypes = DType::ALL.into_iter().filter(|&dtype| target.multiplies(dtype));
    let speed = |dtype: DType| format!("{:.1} GFLOP/s {}", ceilings.dtype_flops_per_sec(dtype) / 1e9, dtype.word());
    dtypes.map(speed).collect::<Vec<_>>().join(", ")
}
