//! `autotune targets`.

use anyhow::Result;
use autotune_measure::{Backend, Ceilings, Compiler};
use autotune_schedules::{CpuTarget, Target};

use super::{device_name, print};

pub(super) fn run() -> Result<()> {
    let cpu = CpuTarget::detect(None)?;
    let target = Target::Cpu(cpu.clone());
    let ceilings = Ceilings::measure(&target)?;
    let compiler = Compiler::find().map_or("none found".into(), |compiler| compiler.version);
    print(&format!(
        "cpu: {}\n  key       {target}\n  cores     {}, {} vectors of {} f32\n  caches    {} KiB L1d, {} KiB L2 a core, {} KiB L3\n  \
         code      {}, C compiler: {compiler}\n  ceilings  {:.1} GFLOP/s f32 on one core, {:.1} on {} thread(s), {:.1} GB/s copied in memory\n  threads   fork and join {:.2} us",
        device_name().unwrap_or_else(|| cpu.model.clone()),
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
        ceilings.flops_per_sec / 1e9,
        cpu.threads,
        ceilings.bytes_per_sec / 1e9,
        ceilings.fork_join_secs * 1e6,
    ))
}
