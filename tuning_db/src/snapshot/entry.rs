//! Schedule in a snapshot: a view of the file that is decoded on demand.

use autotune_ir::KeyScope;
use autotune_schedules::{Config, LOWERING_VERSION};
use serde_json::{Map, Value};

use super::Snapshot;
use super::layout::{ALIGNMENT, IMPORTED, RACED, RECORD_FIELDS, u32_at, u64_at};
use crate::check::check_values;
use crate::error::SnapshotError;
use crate::lookup::{Best, TimeProvenance};
use crate::record::{Phase, TuningRecord};

/// Schedule in a snapshot. Its key, time and provenance were verified; nothing was copied.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    snapshot: &'a Snapshot,
    record: u32,
    fields: EntryFields,
    workload: &'a str,
    target: &'a str,
    reach: KeyScope,
    /// True if the key that found it counts as the target's own.
    is_own: bool,
}

#[derive(Clone, Copy, Debug)]
struct EntryFields {
    run_secs: f64,
    target_at: u64,
    config_at: u64,
    details_at: u64,
    lowering: u32,
    flags: u32,
}

impl EntryFields {
    fn to_bytes(self) -> [u8; RECORD_FIELDS] {
        let mut bytes = [0; RECORD_FIELDS];
        let numbers = [self.run_secs.to_bits(), self.target_at, self.config_at, self.details_at];
        for (field, number) in bytes.chunks_exact_mut(8).zip(numbers) {
            field.copy_from_slice(&number.to_le_bytes());
        }
        bytes[32..36].copy_from_slice(&self.lowering.to_le_bytes());
        bytes[36..40].copy_from_slice(&self.flags.to_le_bytes());
        bytes
    }

    /// Parses the fields of a record, and its workload's text.
    fn parse(content: &[u8]) -> Option<(Self, &str)> {
        let fields = Self {
            run_secs: f64::from_bits(u64_at(content, 0)?),
            target_at: u64_at(content, 8)?,
            config_at: u64_at(content, 16)?,
            details_at: u64_at(content, 24)?,
            lowering: u32_at(content, 32)?,
            flags: u32_at(content, 36)?,
        };
        Some((fields, str::from_utf8(content.get(RECORD_FIELDS..)?).ok()?))
    }
}

/// Returns the content of a record's block, which [`Entry::of`] reads: the record's time, and the
/// positions of its target's key, its config and its details.
pub(super) fn record_content(
    record: &TuningRecord,
    run_secs: f64,
    [target_at, config_at, details_at]: [u64; 3],
) -> Vec<u8> {
    let is_raced = record.phase != Phase::Search;
    let flags = if is_raced { RACED } else { 0 } | if record.imported { IMPORTED } else { 0 };
    let fields =
        EntryFields { run_secs, target_at, config_at, details_at, lowering: record.provenance.lowering, flags };
    [&fields.to_bytes(), record.workload.to_string().as_bytes()].concat()
}

/// Returns the content of a record's details, which [`Entry::best`] reads: the fields of this
/// record that its block does not have. Fields that many records share are stored once, by
/// `shared`.
pub(super) fn details_of(record: &TuningRecord, shared: impl FnOnce(&str) -> Option<u64>) -> Option<Vec<u8>> {
    let Value::Object(mut fields) = serde_json::to_value(record).ok()? else { return None };
    for known in ["workload", "target", "config"] {
        fields.remove(known);
    }
    let Some(Value::Object(provenance)) = fields.get_mut("provenance") else { return None };
    let own: Map<String, Value> =
        ["seed", "unix_secs"].into_iter().filter_map(|name| provenance.remove_entry(name)).collect();
    let rest = std::mem::replace(provenance, own);
    let shared_at = shared(&serde_json::to_string(&rest).ok()?)?;

    let mut content = shared_at.to_le_bytes().to_vec();
    content.extend(serde_json::to_vec(&fields).ok()?);
    Some(content)
}

impl<'a> Entry<'a> {
    /// Reads the entry of a record, by its number in the index.
    pub(super) fn of(
        snapshot: &'a Snapshot,
        record: u32,
        reach: KeyScope,
        is_own: bool,
    ) -> Result<Self, SnapshotError> {
        let at = (u64::from(record) - 1) * ALIGNMENT as u64;
        let content = snapshot.record_block(at)?;
        let senseless = || snapshot.corrupt(format!("the record at {at}"));
        let (fields, workload) = EntryFields::parse(content).ok_or_else(senseless)?;
        let target = str::from_utf8(snapshot.record_block(fields.target_at)?).map_err(|_| senseless())?;
        Ok(Self { snapshot, record, fields, workload, target, reach, is_own })
    }

    /// Returns the text of the workload.
    pub fn workload(&self) -> &'a str {
        self.workload
    }

    /// Returns the key of the machine that the record is of.
    pub fn target(&self) -> &'a str {
        self.target
    }

    /// Returns the scope of the key that found the record: how similar the asking machine is to the
    /// one that measured.
    pub fn key_scope(&self) -> KeyScope {
        self.reach
    }

    /// Returns the seconds per run on that machine.
    pub fn run_secs(&self) -> f64 {
        self.fields.run_secs
    }

    /// Returns the version of the lowering that made the code.
    pub fn lowering(&self) -> u32 {
        self.fields.lowering
    }

    /// Returns the provenance of the time from the asking machine's point of view. Records of
    /// another machine or of another version's lowering are untrusted.
    pub fn provenance(&self) -> TimeProvenance {
        let EntryFields { lowering, flags, .. } = self.fields;
        let is_untrusted = !self.is_own || flags & IMPORTED != 0 || lowering != LOWERING_VERSION;
        match (is_untrusted, flags & RACED != 0) {
            (true, _) => TimeProvenance::Claimed,
            (false, true) => TimeProvenance::Raced,
            (false, false) => TimeProvenance::Searched,
        }
    }

    /// Decodes the schedule.
    ///
    /// # Errors
    /// [`Corrupt`](SnapshotError::Corrupt) if it is not what was written.
    pub fn config(&self) -> Result<Config, SnapshotError> {
        let json = self.snapshot.details_block(self.fields.config_at)?;
        serde_json::from_slice(json).map_err(|error| self.invalid(error))
    }

    /// Decodes the whole record as the database had it, with the provenance of its time.
    ///
    /// # Errors
    /// [`Corrupt`](SnapshotError::Corrupt) if its details are not what was written.
    pub fn best(&self) -> Result<Best, SnapshotError> {
        let senseless = || self.invalid("its details are truncated");
        let (shared_at, own) =
            self.snapshot.details_block(self.fields.details_at)?.split_first_chunk().ok_or_else(senseless)?;
        let shared = self.snapshot.details_block(u64::from_le_bytes(*shared_at))?;
        let object = |json: &[u8]| serde_json::from_slice::<Map<String, Value>>(json).map_err(|e| self.invalid(e));

        let mut fields = object(own)?;
        if let Some(Value::Object(provenance)) = fields.get_mut("provenance") {
            provenance.extend(object(shared)?);
        }
        let config = serde_json::to_value(self.config()?).map_err(|error| self.invalid(error))?;
        fields.extend([
            ("workload".to_string(), self.workload.into()),
            ("target".to_string(), self.target.into()),
            ("config".to_string(), config),
        ]);
        let record: TuningRecord =
            serde_json::from_value(Value::Object(fields)).map_err(|error| self.invalid(error))?;
        check_values(&record).map_err(|error| self.invalid(error))?;
        Ok(Best { record, standing: self.provenance() })
    }

    /// Returns the number of the record in the index.
    pub(super) fn number(&self) -> u32 {
        self.record
    }

    fn invalid(&self, why: impl std::fmt::Display) -> SnapshotError {
        let Self { workload, target, .. } = self;
        SnapshotError::Corrupt {
            path: self.snapshot.path.clone(),
            detail: format!("its schedule of {workload} on {target} is invalid ({why})"),
        }
    }
}
