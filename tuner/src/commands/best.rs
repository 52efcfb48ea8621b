//! `autotune best WORKLOAD`.

use anyhow::{Result, bail};
use autotune_schedules::{Target, Workload};

use super::{best, look_up_db, print};
use crate::cli::DbArgs;

pub(super) fn run(workload: &Workload, target: &Target, db: &DbArgs) -> Result<()> {
    let db = look_up_db(db)?;
    let Some(best) = db.as_ref().map_or(Ok(None), |db| best(db, workload, target))? else {
        let known = db.map_or(Ok(None), |db| db.best(workload, &target.key()))?;
        bail!(match known {
            None => format!("no schedule is known for {workload} on {target}: tune it first"),
            Some(_) =>
                format!("the best schedule known for {workload} no longer fits the schedule space: tune it again"),
        });
    };
    print(&serde_json::to_string_pretty(&best)?)
}
