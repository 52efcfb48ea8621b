//! The command `autotune show WORKLOAD`: prints the code of a schedule.

use anyhow::Result;
use autotune::{Origin, Tuned};
use autotune_codegen::{asm, c, gpu};
use autotune_db::TimeProvenance;
use autotune_ir::{GpuApi, Target};
use autotune_measure::{Build, KernelBuilder, MeasureOptions};
use autotune_measurement::Backend;
use autotune_schedules::{Candidate, Config, ScheduleSpace, UnfitError};
use autotune_workloads::Workload;

use super::lookup::{look_up, look_up_source, untrusted_note};
use crate::args::{Failure, LookupArgs};
use crate::output::print;

pub(super) fn run(
    workload: &Workload,
    config: Option<Config>,
    target: &Target,
    db: &LookupArgs,
    backend: Backend,
) -> Result<()> {
    let (candidate, origin) = match config {
        Some(config) => {
            let candidate = ScheduleSpace::new(workload, target).checked(&config);
            let candidate = candidate.map_err(|error| match error {
                UnfitError::Refused(why) => Failure::Usage(format!("{workload}: {why}")),
                error => Failure::Usage(format!("--config: {error}")),
            })?;
            (candidate, "from --config".to_string())
        }
        None => {
            let tuned = look_up(look_up_source(db.place()?)?.as_deref(), workload, target)?;
            (tuned.candidate().clone(), origin(&tuned))
        }
    };
    let program = candidate.lower()?;

    // Processors without an assembler back end get C code.
    let code = match (target, backend) {
        (Target::Gpu(device), _) => Some(gpu::generate(&program, device.api)),
        (Target::Cpu(_), Backend::Assembler) => {
            asm::assemble(&program, target).map(|code| asm::x86::disassemble(&code)).ok()
        }
        (Target::Cpu(_), Backend::C) => None,
    };
    let json = serde_json::to_string(candidate.config())?;
    let resources = resources(&candidate);
    print(&format!(
        "// target {target}\n// schedule, {origin}: {candidate}\n// {json}\n{resources}\n{program}\n{}",
        code.unwrap_or_else(|| c::generate(&program, target)),
    ))
}

/// Returns a comment line with the registers and memory of a CUDA kernel as NVRTC reports them, or
/// with the reason for their absence. Empty for other targets.
fn resources(candidate: &Candidate) -> String {
    if !is_cuda(candidate.target()) {
        return String::new();
    }
    let options = MeasureOptions::default();
    let builds = KernelBuilder::new(options.backend, options.build_limit_secs).build(std::slice::from_ref(candidate));
    let why = match builds.as_deref() {
        Ok([Build { resources: Some(taken), .. }]) => {
            let serialized = if taken.is_serialized { "; its matrix instructions are serialized" } else { "" };
            return format!(
                "// uses {} registers per thread, {} bytes spilled, and {} bytes of shared memory per block{serialized}\n",
                taken.registers, taken.spill_bytes, taken.shared_bytes
            );
        }
        Ok([Build { outcome: Err(error), .. }]) => error.to_string(),
        Ok(_) => "the compiler does not report it".into(),
        Err(error) => error.to_string(),
    };
    format!("// resource use is unknown: {}\n", why.lines().next().unwrap_or_default())
}

fn is_cuda(target: &Target) -> bool {
    target.gpu().is_some_and(|gpu| matches!(gpu.api, GpuApi::Cuda { .. }))
}

/// Describes the origin of a schedule and the trust in its time.
fn origin(tuned: &Tuned) -> String {
    let found = match tuned.origin() {
        Origin::Tuned(found) => found,
        Origin::Predicted { expected_loss } => {
            return format!("predicted, not measured: expected to take {expected_loss:.2} times the best");
        }
        Origin::Default | Origin::Transferred => return "the default".into(),
    };
    let (record, target) = (&found.best.record, tuned.target());
    let ms = record.measurement.run_secs().unwrap_or(f64::NAN) * 1e3;
    let is_untrusted = found.best.standing == TimeProvenance::Claimed;
    let worth = if is_untrusted { format!(", {}", untrusted_note(found, target)) } else { String::new() };
    let is_alone = record.measurement.outcome.as_ref().is_ok_and(|run| run.graph_runs == 0);
    let timed = if is_alone && is_cuda(target) { ", each run launched separately" } else { "" };
    format!("the best in the database ({ms:.4} ms{timed}{worth})")
}
