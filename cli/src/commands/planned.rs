//! The command `autotune NETWORK --target cuda` on a machine without such a device: prints the
//! kernels that a network would run.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use anyhow::Result;
use autotune_db::Source;
use autotune_ir::Target;
use autotune_network::{Graph, PlannedKernel, PlannedStep, planned};
use comfy_table::Table;
use comfy_table::presets::ASCII_MARKDOWN;

use super::lookup::{look_up_db, origin_word};
use crate::args::{DatabasePath, DbArgs, VariantArgs};
use crate::output::{print, say};

/// Prints the execution plan of a network's variant; `absent` says why nothing can be measured.
pub(super) fn run(graph: &Graph, target: &Target, variant: &VariantArgs, db: &DbArgs, absent: &str) -> Result<()> {
    say(format_args!("autotune: {absent}: nothing is measured; these steps would run on {target}"));
    // Tuning would create a missing database, so its absence is not an error here either.
    let db = look_up_db(DatabasePath { is_given: false, ..db.place()? })?;
    let source = db.as_ref().map(|db| db as &dyn Source);
    // The callback of `planned` cannot fail, so the first error is kept and returned afterwards.
    let unfit = OnceCell::new();
    let steps = planned(graph, source, target, |workload| {
        variant.of_workload(workload).unwrap_or_else(|error| {
            unfit.get_or_init(|| error);
            workload.clone()
        })
    })?;
    if let Some(error) = unfit.into_inner() {
        return Err(error.into());
    }

    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN).set_header(["step", "sketch", "schedule", "launches", "workload"]);
    for step in &steps {
        table.add_row(row(step)?);
    }
    let mut types: BTreeMap<&str, usize> = BTreeMap::new();
    for step in &steps {
        if let PlannedKernel::Of(tuned) = &step.kernel {
            *types.entry(tuned.workload().dtype().word()).or_default() += 1;
        }
    }
    let kernels: usize = types.values().sum();
    let types: Vec<String> = types.iter().map(|(word, count)| format!("{count} in {word}")).collect();
    let (name, steps, types) = (graph.name(), steps.len(), types.join(", "));
    print(&format!("{table}\n{name}: {steps} steps, {kernels} of them kernels on {target}: {types}"))
}

fn row(step: &PlannedStep) -> Result<[String; 5]> {
    let name = step.name.clone();
    let without = |what: &str, workload: String| [name.clone(), "-".into(), what.into(), "-".into(), workload];
    Ok(match &step.kernel {
        PlannedKernel::Of(tuned) => {
            let launches = tuned.plan()?.stages.iter().filter_map(|stage| stage.launch);
            let launches: Vec<String> =
                launches.map(|launch| format!("{}x{}", launch.blocks, launch.threads)).collect();
            let (sketch, workload) = (tuned.config().sketch.clone(), tuned.workload().to_string());
            [name, sketch, origin_word(tuned).into(), launches.join(" "), workload]
        }
        PlannedKernel::Refused(workload, why) => without(&format!("none: {why}"), workload.to_string()),
        PlannedKernel::Copy => without("copy", "-".into()),
        PlannedKernel::None => without("interpreter", "-".into()),
    })
}
