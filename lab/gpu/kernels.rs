//! Builds default GPU kernels and estimates them, for `sass.py` in this folder.
//!
//! `cargo run --release -p autotune-lab --example gpu_kernels -- FOLDER TARGET WORKLOAD..`
//!
//! Writes the machine code of each workload's default schedule for a CUDA target to
//! `FOLDER/NUMBER.cubin`, and prints one line of JSON per workload: schedule, resources, occupancy,
//! estimate, and the least estimate that a search in its space found.

use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use autotune_ir::analyse::analyse;
use autotune_ir::analyse::gpu::Kernels;
use autotune_ir::program::{Role, When};
use autotune_ir::spec::TensorSpec;
use autotune_ir::{Code, Target};
use autotune_lab::H200_HZ;
use autotune_measure::{Build, KernelBuilder, MeasureOptions};
use autotune_schedules::{Candidate, ScheduleSpace};
use autotune_workloads::Workload;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use serde_json::{Value, json};

/// Schedules of a space that are estimated: random ones, then neighbours of the best so far.
const SAMPLES: usize = 150;
const STEPS: usize = 250;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, target, workloads @ ..] = &arguments[..] else { bail!("wants FOLDER TARGET WORKLOAD..") };
    let target = Target::detect(target, None)?;
    let workloads: Vec<Workload> = workloads.iter().map(|text| text.parse()).collect::<Result<_, _>>()?;
    let spaces: Vec<ScheduleSpace> = workloads.iter().map(|workload| ScheduleSpace::new(workload, &target)).collect();
    let defaults: Vec<Candidate> = spaces.iter().map(|space| space.default_candidate().clone()).collect();

    let options = MeasureOptions::default();
    let builds = KernelBuilder::new(options.backend, options.build_limit_secs).build(&defaults)?;
    for (number, (space, build)) in spaces.iter().zip(builds).enumerate() {
        let file = Path::new(folder).join(format!("{number}.cubin"));
        let row = described(space, &build, &file).with_context(|| space.workload().to_string())?;
        println!("{row}");
    }
    Ok(())
}

/// Writes the code of a default schedule to a file, and describes it.
fn described(space: &ScheduleSpace, build: &Build, file: &Path) -> Result<Value> {
    let built = build.outcome.as_ref().map_err(|error| anyhow!("{error}"))?;
    let Code::Cubin(code) = &built.artifact.code else { bail!("the target has no machine code") };
    std::fs::write(file, code).with_context(|| file.display().to_string())?;
    let resources = build.resources.context("the compiler reports no resources")?;

    let default = space.default_candidate();
    let mut kernels = estimated(default)?;
    let micros = |cycles: f64| cycles / H200_HZ * 1e6;
    let (cycles, least) = (kernels.cycles, least(space)?);
    // Occupancy is that of the compiler's registers, not of the estimated ones.
    kernels.main.registers = resources.registers as f64;
    let resident = kernels.resident();

    let spec = space.workload().spec();
    let bytes = |tensor: &TensorSpec| tensor.shape.iter().product::<usize>() * tensor.dtype.bytes();
    let stages = built.artifact.plan.stages.iter().filter(|stage| stage.when == When::EveryRun);
    Ok(json!({
        "cubin": file,
        "config": default.config(),
        "symbols": stages.map(|stage| &stage.symbol).collect::<Vec<_>>(),
        "registers": resources.registers,
        "spill_bytes": resources.spill_bytes,
        "shared_bytes": resources.shared_bytes,
        "is_serialized": resources.is_serialized,
        "blocks": kernels.main.blocks,
        "threads": kernels.main.threads,
        "resident": resident,
        "occupancy": kernels.multiprocessor.occupancy(resident, kernels.main.warps),
        "flops": kernels.flops,
        "bytes": spec.operands().chain(spec.find(Role::Output)).map(bytes).sum::<usize>(),
        "micros": micros(cycles),
        "least_micros": micros(least.min(cycles)),
    }))
}

fn estimated(candidate: &Candidate) -> Result<Kernels> {
    analyse(&candidate.lower()?, candidate.target()).kernels.context("not a GPU kernel")
}

/// Returns the least cycles that a random search and a descent from its best find in a space.
fn least(space: &ScheduleSpace) -> Result<f64> {
    let mut rng = ChaCha8Rng::seed_from_u64(0);
    let mut best = (f64::INFINITY, space.default_candidate().clone());
    for step in 0..SAMPLES + STEPS {
        let other = if step < SAMPLES { space.sample(&mut rng) } else { space.neighbor(&best.1, &mut rng) };
        let cycles = estimated(&other)?.cycles;
        if cycles < best.0 {
            best = (cycles, other);
        }
    }
    Ok(best.0)
}
