//! Writing of a snapshot from records.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use autotune_ir::{KeyParts, KeyScope};
use autotune_schedules::{Config, ScheduleSpace};
use autotune_workloads::Workload;

use super::check::target_of;
use super::entry::{details_of, record_content};
use super::layout::{self, ALIGNMENT, Bucket, Header, KeyLabel, RECORDS_PER_BUCKET, SLOTS};
use super::near;
use super::replace::replace;
use crate::check::check_values;
use crate::error::{DbError, RecordError, SnapshotError};
use crate::record::{RECORD_VERSION, TuningRecord};
use crate::store::TuningDb;

/// Builds a snapshot from records.
#[derive(Debug, Default)]
pub struct SnapshotWriter {
    /// Sections of the file.
    records: Vec<u8>,
    details: Vec<u8>,
    /// Texts stored once: keys of targets, in `records`, and shared provenance, in `details`.
    targets: SharedTexts,
    provenances: SharedTexts,
    added: Vec<Added>,
    keys: Vec<Key>,
}

/// Properties of an added record that decide which of several is served.
#[derive(Debug)]
struct Added {
    target_at: u64,
    workload: String,
    is_untrusted: bool,
    run_secs: f64,
    /// Offset of the record in its section.
    at: u64,
}

/// Key under which a record may be served.
#[derive(Clone, Copy, Debug)]
struct Key {
    /// Hash of the workload with the seed of the widest key.
    place: u64,
    seed: u64,
    reach: KeyScope,
    /// Hash of the table of shapes that contains its workload.
    table_hash: u64,
    /// Index of the record among those added.
    added: usize,
}

impl Key {
    fn hash(&self) -> (u64, u64) {
        (self.place, self.seed)
    }
}

/// Texts that many records share, each stored once in a section.
#[derive(Debug, Default)]
struct SharedTexts {
    positions: HashMap<String, u64>,
}

impl SharedTexts {
    fn position(&mut self, section: &mut Vec<u8>, text: &str) -> Option<u64> {
        if let Some(&at) = self.positions.get(text) {
            return Some(at);
        }
        let at = layout::push_block(section, text.as_bytes())?;
        self.positions.insert(text.to_string(), at);
        Some(at)
    }
}

/// Condition for a task, given its workload and the key of its target.
pub type KeepsTask<'a> = &'a dyn Fn(&Workload, &str) -> bool;

/// Task for which a snapshot has no schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// Key of the machine.
    pub target: String,
    /// Workload of the task.
    pub workload: Workload,
    /// Reason for the omission.
    pub reason: &'static str,
}

/// Summary of a written snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Number of schedules in the file.
    pub schedules: u64,
    /// Number of machines that they are of.
    pub targets: usize,
    /// Size of the file in bytes.
    pub file_bytes: u64,
}

impl SnapshotWriter {
    /// Adds the record to be served for its task. If records share a wider key or a task, one is
    /// served: measured records before untrusted ones, then the fastest.
    ///
    /// # Errors
    /// Fails for a record that no measurement can produce, or that has no time.
    pub fn add(&mut self, record: &TuningRecord) -> Result<(), RecordError> {
        check_values(record)?;
        let no_time = || RecordError::Invalid { field: "run_secs", reason: "the candidate did not run".into() };
        let run_secs = record.measurement.run_secs().ok_or_else(no_time)?;

        let too_long = || RecordError::Malformed("it is too long for a snapshot".into());
        let shared = |text: &str| self.provenances.position(&mut self.details, text);
        let details = details_of(record, shared).ok_or_else(too_long)?;
        let details_at = layout::push_block(&mut self.details, &details).ok_or_else(too_long)?;
        let target_at = self.targets.position(&mut self.records, &record.target).ok_or_else(too_long)?;
        let config = serde_json::to_vec(&record.config).map_err(|error| RecordError::Malformed(error.to_string()))?;
        let config_at = layout::push_block(&mut self.details, &config).ok_or_else(too_long)?;
        let content = record_content(record, run_secs, [target_at, config_at, details_at]);
        let at = layout::push_block(&mut self.records, &content).ok_or_else(too_long)?;

        let (parts, workload) = (KeyParts::of(&record.target), record.workload.to_string());
        let group = near::group_of(&record.workload);
        let place = layout::place(layout::key_seeds(parts).last().map(|(_, seed)| seed), &workload);
        for (reach, seed) in layout::key_seeds(parts) {
            let table_hash = layout::key_hash(seed, &group);
            self.keys.push(Key { place, seed, reach, table_hash, added: self.added.len() });
        }
        self.added.push(Added { target_at, workload, is_untrusted: record.is_untrusted(), run_secs, at });
        Ok(())
    }

    /// Adds, for each task of a database, the best schedule that is in the present schedule space
    /// and proven correct. Only targets whose keys satisfy `keeps` are included. Returns the tasks
    /// without such a schedule.
    pub fn add_best_of(&mut self, db: &TuningDb, keeps: &dyn Fn(&str) -> bool) -> Result<Vec<LeftOut>, DbError> {
        self.add_tasks_of(db, &|_, target| keeps(target))
    }

    /// Adds schedules of those tasks of a database whose workloads and targets satisfy `keeps`, as
    /// [`add_best_of`](Self::add_best_of) does.
    pub(crate) fn add_tasks_of(&mut self, db: &TuningDb, keeps: KeepsTask<'_>) -> Result<Vec<LeftOut>, DbError> {
        let mut left_out = Vec::new();
        for task in db.tasks()?.into_iter().filter(|task| keeps(&task.workload, &task.target)) {
            if let Err(reason) = self.add_task(db, &task.workload, &task.target)? {
                left_out.push(LeftOut { target: task.target, workload: task.workload, reason });
            }
        }
        Ok(left_out)
    }

    /// Adds the best schedule of a task, or returns the reason that there is none.
    fn add_task(&mut self, db: &TuningDb, workload: &Workload, key: &str) -> Result<Result<(), &'static str>, DbError> {
        let Some(target) = target_of(key) else {
            return Ok(Err("this version does not know the target"));
        };
        let space = ScheduleSpace::new(workload, &target);
        // Schedules that are in the space but fail verification.
        let mut wrong: Vec<Config> = Vec::new();
        loop {
            let fits = |config: &Config| space.contains(config) && !wrong.contains(config);
            let Some(best) = db.best(workload, key, &fits)? else {
                return Ok(Err("no measured schedule is in the current schedule space"));
            };
            if space.checked(&best.record.config).is_ok() {
                return Ok(Ok(self.add(&best.record).map_err(DbError::Refused)?));
            }
            wrong.push(best.record.config);
        }
    }

    /// Returns true if nothing was added.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty()
    }

    /// Writes the snapshot to a file and atomically replaces an older snapshot at `path`: even if
    /// the process is killed, there is always either the old file or the complete new one. A
    /// process that has the old one open continues to read it. The file is made read-only.
    ///
    /// The file is first written under `path` with the suffix `.new`; a file that a killed writer
    /// left there is overwritten. Writers of the same path wait for one another.
    ///
    /// # Errors
    /// [`InTheWay`](SnapshotError::InTheWay) if something else is there;
    /// [`TooLarge`](SnapshotError::TooLarge), [`Io`](SnapshotError::Io).
    pub fn write(self, path: impl AsRef<Path>) -> Result<Written, SnapshotError> {
        let (schedules, targets) = (self.added.len() as u64, self.targets.positions.len());
        let bytes = self.into_bytes()?;
        replace(path.as_ref(), &bytes)?;
        Ok(Written { schedules, targets, file_bytes: bytes.len() as u64 })
    }

    /// Returns the snapshot in memory, for [`Snapshot::from_bytes`](super::Snapshot::from_bytes).
    pub fn into_bytes(mut self) -> Result<Vec<u8>, SnapshotError> {
        let keys = self.served_keys();
        let (buckets, max_probes) = self.index(&keys)?;
        let (near, directory_at) = self.tables(&keys)?;
        let Self { records, details, added, .. } = self;

        let header = Header {
            record_version: RECORD_VERSION,
            schedules: added.len() as u64,
            buckets: buckets.len() as u64,
            max_probes,
            records_bytes: records.len() as u64,
            details_bytes: details.len() as u64,
            written_unix_secs: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            body_checksum: 0,
            near_bytes: near.len() as u64,
            directory_at,
        };
        let mut bytes = vec![0; layout::HEADER_BYTES];
        for (bucket, number) in buckets.into_iter().zip(0..) {
            bytes.extend_from_slice(&bucket.to_bytes(number));
        }
        bytes.extend(records);
        bytes.extend(details);
        bytes.extend(near);

        let body_checksum = layout::checksum(&bytes[layout::HEADER_BYTES..], 0);
        bytes[..layout::HEADER_BYTES].copy_from_slice(&Header { body_checksum, ..header }.to_bytes());
        Ok(bytes)
    }

    /// Returns, of equal keys, the one whose record is served.
    fn served_keys(&mut self) -> Vec<Key> {
        let mut keys = std::mem::take(&mut self.keys);
        keys.sort_unstable_by(|a, b| a.hash().cmp(&b.hash()).then_with(|| self.preference(*a, *b)));

        let texts: HashMap<u64, &str> = self.targets.positions.iter().map(|(text, &at)| (at, text.as_str())).collect();
        let target =
            |key: &Key| texts.get(&self.added[key.added].target_at).map_or(KeyParts::of(""), |t| KeyParts::of(t));
        let is_alike = |a: &Key, b: &Key| {
            let workload = |key: &Key| &self.added[key.added].workload;
            a.reach == b.reach && workload(a) == workload(b) && target(a).shares(&target(b), a.reach)
        };

        // Keys with the same hash are adjacent, and nearly always equal.
        let mut served: Vec<Key> = Vec::with_capacity(keys.len());
        for key in keys {
            let mut rivals = served.iter().rev().take_while(|other| other.hash() == key.hash());
            if !rivals.any(|other| is_alike(other, &key)) {
                served.push(key);
            }
        }
        served
    }

    /// Orders equal keys by preference: the lesser is served. Ties are resolved in favour of the
    /// record added first.
    fn preference(&self, a: Key, b: Key) -> Ordering {
        let of = |key: Key| (&self.added[key.added], key.added);
        let ((a, first), (b, second)) = (of(a), of(b));
        let by_worth = a.is_untrusted.cmp(&b.is_untrusted).then(a.run_secs.total_cmp(&b.run_secs));
        by_worth.then(first.cmp(&second))
    }

    /// Builds the buckets with references to the served records. Also returns the most buckets that
    /// a look-up probes.
    fn index(&self, keys: &[Key]) -> Result<(Vec<Bucket>, u64), SnapshotError> {
        let mut keys: Vec<&Key> = keys.iter().collect();
        keys.sort_unstable_by_key(|key| (key.place, key.added));
        let records: Vec<&[&Key]> = keys.chunk_by(|a, b| a.added == b.added).collect();

        let count = records.len().div_ceil(RECORDS_PER_BUCKET).max(1);
        let mut buckets = vec![Bucket::default(); count];
        let mut used = vec![0; count];
        let mut max_probes = 1;

        for keys in records {
            let (place, number) = (keys[0].place, self.number(keys[0].added)?);
            let label = keys.iter().fold(KeyLabel::of(place), |label, key| label.with(key.reach, key.seed));
            let first = layout::first_bucket(place, count as u64) as usize;
            // A free slot always exists, because there are more slots than records.
            let free = (0..count).find(|probe| used[(first + probe) % count] < SLOTS).unwrap_or_default();
            let bucket = (first + free) % count;

            buckets[bucket].slots[used[bucket]] = (label, number);
            used[bucket] += 1;
            max_probes = max_probes.max(free as u64 + 1);
        }
        Ok((buckets, max_probes))
    }

    /// Returns the number of a record in the file.
    fn number(&self, added: usize) -> Result<u32, SnapshotError> {
        let number = u32::try_from(self.added[added].at / ALIGNMENT as u64 + 1);
        number.map_err(|_| SnapshotError::TooLarge { what: "its records exceed 64 GiB" })
    }

    /// Builds the tables of shapes of the served records. Also returns the offset of their
    /// directory.
    fn tables(&self, keys: &[Key]) -> Result<(Vec<u8>, u64), SnapshotError> {
        let mut keys: Vec<&Key> = keys.iter().collect();
        keys.sort_unstable_by_key(|key| (key.table_hash, key.hash(), key.added));

        let (mut section, mut tables) = (Vec::new(), Vec::new());
        let too_large = || SnapshotError::TooLarge { what: "a table of shapes exceeds its limit" };
        for of_table in keys.chunk_by(|a, b| a.table_hash == b.table_hash) {
            // The keys are sorted by hash, so the first ones are a deterministic sample.
            let mut rows = Vec::new();
            for key in of_table.iter().take(near::MAX_ROWS) {
                // Workloads within a network are omitted: their schedules suit that network only.
                let workload = self.added[key.added].workload.parse::<Workload>().ok();
                if let Some(workload) = workload.filter(|workload| workload.network().is_none()) {
                    rows.push((self.number(key.added)?, workload.shape_vector().to_vec()));
                }
            }
            let at = layout::push_block(&mut section, &near::table(&rows)).ok_or_else(too_large)?;
            tables.push((of_table[0].table_hash, at));
        }
        let directory_at = layout::push_block(&mut section, &near::directory(&tables)).ok_or_else(too_large)?;
        Ok((section, directory_at))
    }
}
