//! Whether everything in a snapshot is sound.

use std::collections::BTreeSet;

use autotune_ir::{Reach, Target};
use autotune_schedules::ScheduleSpace;
use autotune_workloads::Workload;

use super::layout::{self, HEADER_BYTES};
use super::{Entry, KeyChain, Snapshot};
use crate::error::SnapshotError;
use crate::lookup::Standing;

/// What [`Snapshot::check`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapshotReport {
    /// Schedules that can be looked up.
    pub schedules: u64,
    /// Of these, claims: imported, or of another version's lowering.
    pub claims: u64,
    /// Keys of the machines that they are of.
    pub targets: BTreeSet<String>,
    /// Those that would not be served.
    pub flaws: Vec<SnapshotFlaw>,
}

/// A schedule that would not be served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotFlaw {
    /// Key of the machine.
    pub target: String,
    /// What is computed, as text.
    pub workload: String,
    /// What is wrong.
    pub reason: String,
}

impl Snapshot {
    /// Compares every byte with the checksums, and checks of every schedule that it is found under
    /// its key, is in today's schedule space, and is right by proof. It takes a millisecond a
    /// schedule.
    ///
    /// Spaces are those of this machine where it has the key, else what the [key
    /// tells](Target::of_key).
    ///
    /// # Errors
    /// [`Corrupt`](SnapshotError::Corrupt) if the file is not what was written.
    pub fn check(&self) -> Result<SnapshotReport, SnapshotError> {
        if layout::checksum(&self.bytes[HEADER_BYTES..], 0) != self.header.body_checksum {
            return Err(self.corrupt("its content"));
        }
        self.check_tables()?;
        let mut report = SnapshotReport::default();
        for number in self.numbers()? {
            let entry = Entry::of(self, number, Reach::Machine, true)?;
            report.schedules += 1;
            report.claims += u64::from(entry.standing() == Standing::Claimed);
            report.targets.insert(entry.target().to_string());
            if let Err(reason) = self.check_entry(&entry)? {
                let (target, workload) = (entry.target().to_string(), entry.workload().to_string());
                report.flaws.push(SnapshotFlaw { target, workload, reason });
            }
        }
        Ok(report)
    }

    /// Numbers of the records in the index, each once.
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
        if found.is_none_or(|found| found.reach() != Reach::Machine || found.number() != entry.number()) {
            return Ok(Err("it is not found under its key".into()));
        }
        let best = entry.best()?;

        let workload: Workload = match entry.workload().parse() {
            Ok(workload) => workload,
            Err(error) => return Ok(Err(format!("{error}"))),
        };
        let Some(target) = target_of(entry.target()) else {
            return Ok(Err("this version does not know such targets".into()));
        };
        let checked = ScheduleSpace::new(&workload, &target).checked(&best.record.config);
        Ok(checked.map(|_| ()).map_err(|error| error.to_string()))
    }
}

/// The target of a key: this machine, if the key is its, else as far as the key tells.
pub(super) fn target_of(key: &str) -> Option<Target> {
    let told = Target::of_key(key)?;
    let here = Target::detect("cpu", Some(told.threads())).ok().filter(|here| here.key() == key);
    Some(here.unwrap_or(told))
}
