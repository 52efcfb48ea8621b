//! `autotune show WORKLOAD`.

use anyhow::Result;
use autotune_measure::Backend;
use autotune_schedules::codegen::{c, gpu, x86};
use autotune_schedules::{Config, ScheduleSpace, Target, Workload, lower};

use super::{best, look_up_db, print};
use crate::cli::{DbArgs, Failure};

pub(super) fn run(
    workload: &Workload,
    config: Option<Config>,
    target: &Target,
    db: &DbArgs,
    backend: Backend,
) -> Result<()> {
    let (config, origin) = match config {
        Some(config) => (config, "as given".to_string()),
        None => best_or_default(workload, target, db)?,
    };
    let program = lower(workload, target, &config).map_err(|e| Failure::Usage(format!("--config: {e}")))?;
    let code = match (target, backend) {
        (Target::Gpu(device), _) => Some(gpu::generate(&program, device.api)),
        (Target::Cpu(_), Backend::Assembler) => {
            x86::assemble(&program, target).map(|code| x86::disassemble(&code)).ok()
        }
        (Target::Cpu(_), Backend::C) => None,
    };
    print(&format!(
        "// target {target}\n// schedule, {origin}: {config}\n// {}\n\n{program}\n{}",
        serde_json::to_string(&config)?,
        code.unwrap_or_else(|| c::generate(&program, target)),
    ))
}

/// The best schedule in the database, else the default one, and where it comes from.
fn best_or_default(workload: &Workload, target: &Target, db: &DbArgs) -> Result<(Config, String)> {
    let best = look_up_db(db)?.map_or(Ok(None), |db| best(&db, workload, target))?;
    Ok(match best {
        Some(record) => {
            let ms = record.measurement.run_secs().unwrap_or(f64::NAN) * 1e3;
            (record.config, format!("the best in the database ({ms:.4} ms)"))
        }
        None => (ScheduleSpace::new(workload, target).default_config(), "the default".into()),
    })
}
