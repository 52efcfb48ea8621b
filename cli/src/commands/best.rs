//! `autotune best WORKLOAD`.

use anyhow::{Result, bail};
use autotune_db::Standing;
use autotune_ir::Target;
use autotune_schedules::Workload;

use super::lookup::{claim, look_up, look_up_db};
use crate::args::DbArgs;
use crate::output::{print, say};

pub(super) fn run(workload: &Workload, target: &Target, db: &DbArgs) -> Result<()> {
    let db = look_up_db(db)?;
    let tuned = look_up(db.as_ref(), workload, target)?;
    let Some(best) = tuned.best() else {
        let known = db.map_or(Ok(None), |db| db.best(workload, &target.key(), &|_| true))?;
        bail!(match known {
            None => format!("no schedule is known for {workload} on {target}: tune it first"),
            Some(_) => format!(
                "no schedule known for {workload} on {target} fits today's schedule space: tune it again \
                 (autotune {workload})"
            ),
        });
    };

    if best.standing == Standing::Claimed {
        say(format_args!("autotune: this is a claim, {}: tuning measures it", claim(&best.record, target)));
    }
    print(&serde_json::to_string_pretty(best)?)
}
