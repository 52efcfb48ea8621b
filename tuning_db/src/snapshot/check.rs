//! Verification of a complete snapshot.

use std::collections::BTreeSet;

use autotune_ir::{KeyScope, Target};
use autotune_schedules::ScheduleSpace;
use autotune_workloads::Workload;

use super::layout::{self, HEADER_BYTES};
use super::{Entry, KeyChain, Snapshot};
use crate::error::SnapshotError;
use crate::lookup::TimeProvenance;

/// Findings of [`Snapshot::check`] in a whole snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapshotReport {
    /// Number of schedules that can be looked up.
    pub schedules: u64,
    /// Number of untrusted ones among them: imported, or of another version's lowering.
    pub untrusted: u64,
    /// Keys of the machines that they are of.
    pub targets: BTreeSet<String>,
    /// Schedules that a look-up would reject.
    pub flaws: Vec<SnapshotFlaw>,
}

/// Schedule that a look-up would reject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotFlaw {
    /// Key of the machine.
    pub target: String,
    /// Text of the workload.
    pub workload: String,
    /// Reason for the rejection.
    pub reason: String,
}

impl Snapshot {
    /// Verifies all checksums, and checks of every schedule that its key finds it, that it is in
    /// the present schedule space, and that its loop nest is proven correct. Takes about a
    /// millisecond per schedule.
    ///
    /// Spaces are those of this machine if it has the schedule's key, else of a target as far as
    /// the [key describes it](Target::of_key).
    ///
    /// # Errors
    /// [`Corrupt`](SnapshotError::Corrupt) if the file is not what was written.
    pub fn check(&self) -> Result<SnapshotReport, SnapshotError> {
        if layout::checksum(&self.bytes[HEADER_BYTES..], 0) != self.header.body_checksum {
            return Err(self.corrupt("its content"));
        }
        self.check_tables()?;
        let mut report = SnapshotReport::default();
        for entry in self.all()? {
            let entry = entry?;
            report.schedules += 1;
            report.untrusted += u64::from(entry.provenance() == TimeProvenance::Claimed);
            report.targets.insert(entry.target().to_string());
            if let Err(reason) = self.check_entry(&entry)? {
                let (target, workload) = (entry.target().to_string(), entry.workload().to_string());
                report.flaws.push(SnapshotFlaw { target, workload, reason });
            }
        }
        Ok(report)
    }

    /// Returns all schedules, as the machines that measured them find them.
    pub(crate) fn all(&self) -> Result<impl Iterator<Item = Result<Entry<'_>, SnapshotError>>, SnapshotError> {
        Ok(self.numbers()?.into_iter().map(|number| Entry::of(self, number, KeyScope::Machine, true)))
    }

    /// Returns the numbers of all records in the index.
    fn numbers(&self) -> Result<BTreeSet<u32>, SnapshotError> {
        let mut numbers = BTreeSet::new();
        for bucket in 0..self.header.buckets {
            let slots = self.bucket(bucket)?.slots;
            numbers.extend(slots.into_iter().map(|(_, record)| record).filter(|&record| record != 0));
        }
        Ok(numbers)
    }

    fn check_entry(&self, entry: &Entry<'_>) -> Result<Result<(), String>, SnapshotError> {
        let found = self.get(&KeyChain::of(entry.target()), entry.workload())?;
        if found.is_none_or(|found| found.key_scope() != KeyScope::Machine || found.number() != entry.number()) {
            return Ok(Err("a look-up of its key does not find it".into()));
        }
        let best = entry.best()?;

        let workload: Workload = match entry.workload().parse() {
            Ok(workload) => workload,
            Err(error) => return Ok(Err(format!("{error}"))),
        };
        let Some(target) = target_of(entry.target()) else {
            return Ok(Err("this version does not know the target".into()));
        };
        let checked = ScheduleSpace::new(&workload, &target).checked(&best.record.config);
        Ok(checked.map(|_| ()).map_err(|error| error.to_string()))
    }
}

/// Returns the target of a key: this machine, if it has the key, else a target as far as the key
/// describes it.
pub(super) fn target_of(key: &str) -> Option<Target> {
    let told = Target::of_key(key)?;
    let here = Target::detect("cpu", Some(told.threads())).ok().filter(|here| here.key() == key);
    Some(here.unwrap_or(told))
}
