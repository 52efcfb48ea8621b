//! The command `autotune best WORKLOAD`: prints the best record of a workload as JSON.

use anyhow::{Result, bail};
use autotune::Origin;
use autotune_db::TimeProvenance;
use autotune_ir::Target;
use autotune_workloads::Workload;

use super::lookup::{look_up, look_up_source, untrusted_note};
use crate::args::LookupArgs;
use crate::output::{print, say};

pub(super) fn run(workload: &Workload, target: &Target, db: &LookupArgs) -> Result<()> {
    let source = look_up_source(db.place()?)?;
    let tuned = look_up(source.as_deref(), workload, target)?;
    let Origin::Tuned(found) = tuned.origin() else {
        // Tells a workload that was never tuned from one whose records no longer fit the schedule
        // space.
        let is_known = source.map_or(Ok(false), |source| source.knows(workload, &target.key()))?;
        bail!(match is_known {
            false => format!("no schedule is known for {workload} on {target}: tune it first"),
            true => format!(
                "no known schedule for {workload} on {target} is in the current schedule space: tune it again \
                 (autotune {workload})"
            ),
        });
    };

    if found.best.standing == TimeProvenance::Claimed {
        say(format_args!("autotune: untrusted record ({}): tuning will measure it", untrusted_note(found, target)));
    }
    print(&serde_json::to_string_pretty(found)?)
}
