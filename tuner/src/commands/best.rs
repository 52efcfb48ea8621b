//! `autotune best WORKLOAD`.

use anyhow::{Result, bail};
use autotune_schedules::{ScheduleSpace, Target, Workload};

use super::{look_up_db, print};
use crate::cli::DbArgs;

pub(super) fn run(workload: &Workload, target: &Target, db: &DbArgs) -> Result<()> {
    let best = match look_up_db(db)? {
        Some(db) => db.best(workload, &target.key())?,
        None => None,
    };
    let Some(best) = best else {
        bail!("no schedule is known for {workload} on {target}: tune it first");
    };
    if !ScheduleSpace::new(workload, target).contains(&best.config) {
        bail!("the best schedule known for {workload} no longer fits the schedule space: tune it again");
    }
    print(&serde_json::to_string_pretty(&best)?)
}
