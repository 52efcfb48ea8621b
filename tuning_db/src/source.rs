//! Uniform look-up of schedules for deployment, in a database or a snapshot.

use std::path::Path;

use autotune_ir::{KeyParts, KeyScope, Target};
use autotune_schedules::{Config, ScheduleSpace, portfolio};
use autotune_workloads::Workload;
use serde::Serialize;

use crate::error::DbError;
use crate::lookup::{Best, TimeProvenance};
use crate::snapshot::{KeepsTask, KeyChain, Snapshot, SnapshotWriter};
use crate::store::TuningDb;
use crate::warning::Warning;

/// Record that was found for a target, and the scope of the key that found it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Found {
    /// Record, and the provenance of its time from the target's point of view.
    #[serde(flatten)]
    pub best: Best,
    /// Scope of the key that found the record.
    pub reach: KeyScope,
}

/// Source of schedules for look-ups.
pub trait Source: Send + Sync {
    /// Returns the best record for a workload and target under the narrowest key that has one: the
    /// target's own, that of its model, of its family, or of its instruction set ([`KeyScope`]).
    /// Only records whose config `fits` count: the caller decides whether a config is in the
    /// present schedule space.
    ///
    /// A record found by a wider key is untrusted, because it was not measured on this machine. A
    /// stated GPU target stands for every device of its kind, and a measurement on any of them
    /// counts as measured.
    fn find(
        &self,
        workload: &Workload,
        target: &Target,
        fits: &dyn Fn(&Config) -> bool,
    ) -> Result<Option<Found>, DbError>;

    /// Returns schedules to transfer to a space whose workload has no record: those of at most `n`
    /// workloads with the same operator and element type, narrowest key scope first, then nearest
    /// shape ([`Workload::distance`]). The default implementation returns none.
    fn nearest(&self, space: &ScheduleSpace, n: usize) -> Result<Vec<portfolio::PortfolioEntry>, DbError> {
        let _ = (space, n);
        Ok(Vec::new())
    }

    /// Returns true if a record of the workload that ran exists under the target's own key, even if
    /// it does not fit the present schedule space.
    fn knows(&self, workload: &Workload, target: &str) -> Result<bool, DbError>;

    /// Adds the best schedules of tasks that satisfy `keeps` to a snapshot, such as those that a
    /// model needs. Tasks without a valid schedule are left out. The default implementation adds
    /// none.
    fn add_to(&self, snapshot: &mut SnapshotWriter, keeps: KeepsTask<'_>) -> Result<(), DbError> {
        let _ = (snapshot, keeps);
        Ok(())
    }

    /// Returns pending warnings for the user, such as about damage.
    fn warnings(&self) -> Vec<Warning> {
        Vec::new()
    }
}

/// Source that has no records.
pub struct EmptySource;

impl Source for EmptySource {
    fn find(&self, _: &Workload, _: &Target, _: &dyn Fn(&Config) -> bool) -> Result<Option<Found>, DbError> {
        Ok(None)
    }

    fn knows(&self, _: &Workload, _: &str) -> Result<bool, DbError> {
        Ok(false)
    }
}

/// Opens a source for reading: a folder is a database, a file a snapshot.
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

        for reach in KeyScope::ALL {
            let mut best: Option<Best> = None;
            for target in targets.iter().filter(|target| reach_of(target) == Some(reach)) {
                let of_target = self.best(workload, target, fits)?;
                best = best.into_iter().chain(of_target).min_by(Best::compare);
            }
            if let Some(mut best) = best {
                if !own.owns(reach) {
                    best.standing = TimeProvenance::Claimed;
                }
                return Ok(Some(Found { best, reach }));
            }
        }
        Ok(None)
    }

    fn nearest(&self, space: &ScheduleSpace, n: usize) -> Result<Vec<portfolio::PortfolioEntry>, DbError> {
        let mut entries: Vec<portfolio::PortfolioEntry> = Vec::new();
        for (workload, target) in self.nearest_tasks(space.workload(), &space.target().key()) {
            if entries.len() >= n {
                break;
            }
            if entries.iter().any(|known| known.workload == workload) {
                continue;
            }
            if let Some(best) = self.best(&workload, &target, &|_| true)? {
                entries.push(portfolio::PortfolioEntry { workload, config: best.record.config });
            }
        }
        Ok(entries)
    }

    fn knows(&self, workload: &Workload, target: &str) -> Result<bool, DbError> {
        Ok(self.best(workload, target, &|_| true)?.is_some())
    }

    fn add_to(&self, snapshot: &mut SnapshotWriter, keeps: KeepsTask<'_>) -> Result<(), DbError> {
        snapshot.add_tasks_of(self, keeps).map(drop)
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
                return Ok(Some(Found { best, reach: entry.key_scope() }));
            }
        }
        Ok(None)
    }

    fn nearest(&self, space: &ScheduleSpace, n: usize) -> Result<Vec<portfolio::PortfolioEntry>, DbError> {
        let mut entries = Vec::new();
        for entry in Snapshot::nearest(self, &KeyChain::of(&space.target().key()), space.workload(), n)? {
            // Skip operators that only a newer version knows.
            let Ok(workload) = entry.workload().parse() else { continue };
            entries.push(portfolio::PortfolioEntry { workload, config: entry.config()? });
        }
        Ok(entries)
    }

    fn knows(&self, workload: &Workload, target: &str) -> Result<bool, DbError> {
        let entry = self.get(&KeyChain::of(target), &workload.to_string())?;
        Ok(entry.is_some_and(|entry| entry.key_scope() == KeyScope::Machine))
    }

    fn add_to(&self, snapshot: &mut SnapshotWriter, keeps: KeepsTask<'_>) -> Result<(), DbError> {
        for entry in self.all()? {
            let entry = entry?;
            // Skip operators that only a newer version knows.
            let Ok(workload) = entry.workload().parse() else { continue };
            if keeps(&workload, entry.target()) {
                snapshot.add(&entry.best()?.record).map_err(DbError::Refused)?;
            }
        }
        Ok(())
    }
}
