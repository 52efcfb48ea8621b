//! The command `autotune tasks NETWORK`: lists the tasks of a network.

use anyhow::Result;
use autotune::Network;
use autotune_ir::Target;
use autotune_schedules::ScheduleSpace;
use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{CellAlignment, Table};

use crate::output::print;

pub(super) fn run(network: &Network, target: &Target) -> Result<()> {
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN).set_header(["task", "times", "MFLOP", "schedules", "workload"]);
    for task in &network.tasks {
        let space = ScheduleSpace::new(&task.workload, target);
        table.add_row([
            task.name.clone(),
            task.count.to_string(),
            format!("{:.2}", task.workload.flops() / 1e6),
            format!("{:.1e}", space.len() as f64),
            task.workload.to_string(),
        ]);
    }
    for column in table.column_iter_mut().skip(1).take(3) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let total: f64 = network.tasks.iter().map(|task| task.count as f64 * task.workload.flops()).sum();
    print(&format!("{table}\n{}: {:.3} GFLOP in total", network.name, total / 1e9))
}
