//! Database of a collector: stores the records of tuners, and publishes snapshots of it.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use autotune_db::{DbCursor, DbError, Snapshot, SnapshotWriter, TuningDb, TuningRecord};

use crate::collector_message::{Answer, Fingerprint, MAX_PART_BYTES, MAX_RECORDS, Question, to_hex};
use crate::message::implausible;

/// Number of lines that are read from the database at once.
const LINES: usize = 4096;

/// Pause between two snapshots of large databases, in multiples of the time that one takes.
const WORK_SHARE: u32 = 10;

/// Records of a team, in a database that is the truth: what is acknowledged is durable in it.
pub struct Collected {
    db: TuningDb,
    index: Mutex<RecordIndex>,
    published: Mutex<Published>,
    /// Shortest time between two snapshots.
    publish_every: Duration,
}

/// Fingerprints of the records up to a position of the database.
#[derive(Default)]
struct RecordIndex {
    records: HashSet<Fingerprint>,
    cursor: DbCursor,
    /// Number of records that tuners brought since the start.
    new: u64,
}

/// Snapshot that followers get.
#[derive(Default)]
struct Published {
    snapshot: Option<(Fingerprint, Snapshot)>,
    /// Number of records of the database when the last snapshot was made, the time of it, and how
    /// long it took.
    made: Option<(u64, Instant, Duration)>,
}

impl Collected {
    /// Takes over a database that is open for writing.
    pub fn new(db: TuningDb, publish_every: Duration) -> Self {
        let collected = Self { db, index: Mutex::default(), published: Mutex::default(), publish_every };
        collected.read_new(&mut collected.lock());
        collected
    }

    fn lock(&self) -> MutexGuard<'_, RecordIndex> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of records, and of those that tuners brought since the start.
    pub fn counts(&self) -> (u64, u64) {
        (self.db.len(), self.lock().new)
    }

    /// Adds the records to the index that the database got since.
    fn read_new(&self, index: &mut RecordIndex) {
        loop {
            let lines = self.db.lines_since(&mut index.cursor, LINES);
            if lines.is_empty() {
                return;
            }
            index.records.extend(lines.iter().map(|line| Fingerprint::of(line.as_bytes())));
        }
    }

    /// Answers a question of a tuner or follower.
    ///
    /// # Errors
    /// With the reason if no tuner asks such a question.
    pub(crate) fn answer(&self, question: Question) -> Result<Answer, String> {
        let failed = |error: DbError| Answer::Failed { reason: error.to_string() };
        let count = match &question {
            Question::Offer { records } => records.len(),
            Question::Store { lines } => lines.len(),
            _ => 0,
        };
        if count > MAX_RECORDS {
            return Err(format!("a question about {count} records, more than {MAX_RECORDS}"));
        }

        Ok(match question {
            Question::Offer { records } => {
                let index = self.lock();
                let lacking = records.iter().enumerate().filter(|(_, record)| !index.records.contains(record));
                Answer::Lacking { positions: lacking.map(|(position, _)| position).collect() }
            }
            Question::Store { lines } => self.store(&lines).unwrap_or_else(failed),
            Question::Recall { target, workload, from } => {
                let found = self.db.lines_of(&workload, &target, from, MAX_PART_BYTES);
                let next = found.last().map(|(place, _)| place.saturating_add(1));
                Answer::Records { lines: found.into_iter().map(|(_, line)| line).collect(), next }
            }
            Question::Snapshot { known, from } => self.snapshot_part(known, from).unwrap_or_else(failed),
        })
    }

    /// Stores records durably. A line that is no record of a measurement is refused, and the others
    /// are stored.
    fn store(&self, lines: &[String]) -> Result<Answer, DbError> {
        let mut index = self.lock();
        let before = self.db.len();
        let (mut refused, mut first) = (0, None);
        for line in lines {
            let stored = match measured(line) {
                Ok(record) => match self.db.append(&record) {
                    Err(DbError::Refused(error)) => Err(error.to_string()),
                    other => Ok(other?),
                },
                Err(reason) => Err(reason),
            };
            if let Err(reason) = stored {
                refused += 1;
                first.get_or_insert(reason);
            }
        }

        self.db.flush()?;
        self.read_new(&mut index);
        let new = self.db.len() - before;
        index.new += new;
        Ok(Answer::Stored { new: new as usize, refused, reason: first })
    }

    /// Returns a part of the present snapshot, which is made anew if there are further records.
    fn snapshot_part(&self, known: Option<Fingerprint>, from: u64) -> Result<Answer, DbError> {
        let mut published = self.published.lock().unwrap_or_else(PoisonError::into_inner);
        // A snapshot that is being fetched stays the same as long as possible.
        if from == 0 {
            self.publish(&mut published)?;
        }
        let Some((fingerprint, snapshot)) = &published.snapshot else { return Ok(Answer::Current) };
        if known == Some(*fingerprint) {
            return Ok(Answer::Current);
        }

        let bytes = snapshot.as_bytes();
        let start = usize::try_from(from).map_or(bytes.len(), |from| from.min(bytes.len()));
        let part = &bytes[start..bytes.len().min(start + MAX_PART_BYTES)];
        Ok(Answer::Snapshot { snapshot: *fingerprint, len: bytes.len() as u64, part: to_hex(part) })
    }

    /// Makes a snapshot if the database has other records than the last one was made of, and
    /// enough time has passed. One with the same schedules as the present is dropped.
    fn publish(&self, published: &mut Published) -> Result<(), DbError> {
        let records = self.db.len();
        let is_recent = |(seen, at, took): (u64, Instant, Duration)| {
            seen == records || at.elapsed() < self.publish_every.max(took * WORK_SHARE)
        };
        if published.made.is_some_and(is_recent) {
            return Ok(());
        }
        let (start, mut writer) = (Instant::now(), SnapshotWriter::default());
        writer.add_best_of(&self.db, &|_| true)?;
        published.made = Some((records, Instant::now(), start.elapsed()));
        if writer.is_empty() {
            return Ok(());
        }

        let snapshot = Snapshot::from_bytes(writer.into_bytes()?)?;
        if published.snapshot.as_ref().is_none_or(|(_, old)| !old.is_alike(&snapshot)) {
            published.snapshot = Some((Fingerprint::of(snapshot.as_bytes()), snapshot));
        }
        Ok(())
    }
}

/// Reads a line as a record that a tuner measured, or returns the reason that it is none.
pub(crate) fn measured(line: &str) -> Result<TuningRecord, String> {
    let record = TuningRecord::from_line(line).map_err(|error| error.to_string())?;
    if record.imported {
        return Err("an imported record, which no tuner of the fleet measured".into());
    }
    match implausible(&record.measurement) {
        Some(reason) => Err(reason),
        None => Ok(record),
    }
}
