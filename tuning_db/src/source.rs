//! What schedules are looked up in when they are deployed: a database or a snapshot, alike.

use std::path::Path;

use autotune_ir::{KeyParts, Reach, Target};
use autotune_schedules::{Config, ScheduleSpace, portfolio};
use autotune_workloads::Workload;
use serde::Serialize;

use crate::error::DbError;
use crate::lookup::{Best, Standing};
use crate::snapshot::{KeyChain, Snapshot};
use crate::store::TuningDb;
use crate::warning::Warning;

/// A record that was found for a target, and how.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Found {
    /// The record, and what its time is worth to the target.
    #[serde(flatten)]
    pub best: Best,
    /// How wide the key is that answered.
    pub reach: Reach,
}

/// What schedules are looked up in.
pub trait Source: Send + Sync {
    /// The best record for a workload and a target under the narrowest key that has one: its own,
    /// that of its model, of its family, of its instruction set ([`Reach`]). Records count whose
    /// config `fits`: whether it is in today's schedule space is the caller's to say.
    ///
    /// What a wider key answers is a claim: it was not measured on this machine. A GPU that is
    /// stated stands for every device of its kind, and what was measured on one counts as measured.
    fn find(
        &self,
        workload: &Workload,
        target: &Target,
        fits: &dyn Fn(&Config) -> bool,
    ) -> Result<Option<Found>, DbError>;

    /// Schedules to be carried over to a space whose workload there is no record of: of at most `n`
    /// workloads of its operator and element type, under the narrowest keys first, and under each
    /// of the workloads whose shapes are the nearest ([`Workload::distance`]). From a source that
    /// knows none, none.
    fn nearest(&self, space: &ScheduleSpace, n: usize) -> Result<Vec<portfolio::Entry>, DbError> {
        let _ = (space, n);
        Ok(Vec::new())
    }

    /// True if there is a record of the workload that ran under the target's own key, whether it
    /// fits today's space or not.
    fn knows(&self, workload: &Workload, target: &str) -> Result<bool, DbError>;

    /// What the user should be told of damage.
    fn warnings(&self) -> Vec<Warning> {
        Vec::new()
    }
}

/// What nothing is known in.
pub struct Empty;

impl Source for Empty {
    fn find(&self, _: &Workload, _: &Target, _: &dyn Fn(&Config) -> bool) -> Result<Option<Found>, DbError> {
        Ok(None)
    }

    fn knows(&self, _: &Workload, _: &str) -> Result<bool, DbError> {
        Ok(false)
    }
}

/// Opens what is at `path` for reading: a folder is a database, a file a snapshot.
pub fn open_source(path: impl AsRef<Path>) -> Result<Box<dyn Source>, DbError> {
    let path = path.as_ref();
    if path.is_file() {
        return Ok(Box::new(Snapshot::open(path)?));
    }
    Ok(Box::new(TuningDb::open_reading(path)?))
}

impl Source for TuningDb {
    fn find(
        &self,
        workload: &Workload,
        target: &Target,
        fits: &dyn Fn(&Config) -> bool,
    ) -> Result<Option<Found>, DbError> {
        let key = target.key();
        let own = KeyParts::of(&key);
        let targets = self.targets_of(workload);
        let reach_of = |target: &String| own.narrowest_shared(&KeyParts::of(target));

        for reach in Reach::ALL {
            let mut best: Option<Best> = None;
            for target in targets.iter().filter(|target| reach_of(target) == Some(reach)) {
                let of_target = self.best(workload, target, fits)?;
                best = best.into_iter().chain(of_target).min_by(Best::compare);
            }
            if let Some(mut best) = best {
                if !own.owns(reach) {
                    best.standing = Standing::Claimed;
                }
                return Ok(Some(Found { best, reach }));
            }
        }
        Ok(None)
    }

    fn nearest(&self, space: &ScheduleSpace, n: usize) -> Result<Vec<portfolio::Entry>, DbError> {
        let mut entries: Vec<portfolio::Entry> = Vec::new();
        for (workload, target) in self.nearest_tasks(space.workload(), &space.target().key()) {
            if entries.len() >= n {
                break;
            }
            if entries.iter().any(|known| known.workload == workload) {
                continue;
            }
            if let Some(best) = self.best(&workload, &target, &|_| true)? {
                entries.push(portfolio::Entry { workload, config: best.record.config });
            }
        }
        Ok(entries)
    }

    fn knows(&self, workload: &Workload, target: &str) -> Result<bool, DbError> {
        Ok(self.best(workload, target, &|_| true)?.is_some())
    }

    fn warnings(&self) -> Vec<Warning> {
        TuningDb::warnings(self)
    }
}

impl Source for Snapshot {
    fn find(
        &self,
        workload: &Workload,
        target: &Target,
        fits: &dyn Fn(&Config) -> bool,
    ) -> Result<Option<Found>, DbError> {
        let (keys, workload) = (KeyChain::of(&target.key()), workload.to_string());
        for entry in self.entries(&keys, &workload)? {
            let entry = entry?;
            let best = entry.best()?;
            if fits(&best.record.config) {
                return Ok(Some(Found { best, reach: entry.reach() }));
            }
        }
        Ok(None)
    }

    fn nearest(&self, space: &ScheduleSpace, n: usize) -> Result<Vec<portfolio::Entry>, DbError> {
        let mut entries = Vec::new();
        for entry in Snapshot::nearest(self, &KeyChain::of(&space.target().key()), space.workload(), n)? {
            // A newer version may have written operators that this one does not know.
            let Ok(workload) = entry.workload().parse() else { continue };
            entries.push(portfolio::Entry { workload, config: entry.config()? });
        }
        Ok(entries)
    }

    fn knows(&self, workload: &Workload, target: &str) -> Result<bool, DbError> {
        let entry = self.get(&KeyChain::of(target), &workload.to_string())?;
        Ok(entry.is_some_and(|entry| entry.reach() == Reach::Machine))
    }
}
