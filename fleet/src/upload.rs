//! Upload of a tuner's records: a thread passes what the database gets to the collector.
//!
//! The tuner does not wait for it. What was not acknowledged is in the tuner's database, and is
//! offered again by its next run.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use autotune_db::{DbCursor, TuningDb, TuningRecord};

use crate::collector_message::{Fingerprint, MAX_RECORDS};
use crate::error::FleetError;
use crate::team::{StoredRecords, TeamMemory};

/// Interval at which the database is looked at for further records.
const TICK: Duration = Duration::from_millis(250);

/// Pause after the collector could not be reached.
const RETRY: Duration = Duration::from_secs(1);

/// Time for which a collector that does not take records is waited for at the end.
pub const LOST_LIMIT: Duration = Duration::from_secs(2);

/// Upload that runs in a thread of its own. Dropping it gives it up.
pub struct Upload {
    ending: Option<Sender<()>>,
    is_given_up: Arc<AtomicBool>,
    progress: Arc<UploadProgress>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct UploadProgress {
    stored: Mutex<StoredRecords>,
    is_complete: AtomicBool,
    /// True while the collector does not take records.
    is_lost: AtomicBool,
}

/// Result of an upload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uploaded {
    /// Records that the collector stored or refused.
    pub stored: StoredRecords,
    /// False if the collector does not have all records yet.
    pub is_complete: bool,
}

impl Upload {
    /// Starts to pass the trusted records of a database to a collector, those that it has first.
    /// `notice` receives lines for people.
    pub fn start(memory: TeamMemory, db: Arc<TuningDb>, notice: impl Fn(String) + Send + 'static) -> Self {
        let (ending, ended) = mpsc::channel();
        let (progress, is_given_up) = (Arc::new(UploadProgress::default()), Arc::new(AtomicBool::new(false)));
        let (told, given_up) = (Arc::clone(&progress), Arc::clone(&is_given_up));
        let thread = thread::spawn(move || {
            let mut uploading = Uploading { memory, db, cursor: DbCursor::default(), progress: told };
            let mut is_ending = false;
            while !given_up.load(Ordering::SeqCst) {
                let wait = match uploading.pass_on(&notice) {
                    Ok(true) => continue,
                    Ok(false) if is_ending => return uploading.progress.is_complete.store(true, Ordering::SeqCst),
                    Ok(false) => TICK,
                    Err(()) => RETRY,
                };
                match is_ending {
                    true => thread::sleep(TICK),
                    false => is_ending = !matches!(ended.recv_timeout(wait), Err(RecvTimeoutError::Timeout)),
                }
            }
        });
        Self { ending: Some(ending), is_given_up, progress, thread: Some(thread) }
    }

    /// Passes on the last records, for at most the time `limit`, or [`LOST_LIMIT`] while the
    /// collector does not take records.
    pub fn finish(mut self, limit: Duration) -> Uploaded {
        drop(self.ending.take());
        let start = Instant::now();
        let is_over = |thread: &Option<JoinHandle<()>>| thread.as_ref().is_none_or(JoinHandle::is_finished);
        while start.elapsed() < limit && !is_over(&self.thread) {
            if self.progress.is_lost.load(Ordering::SeqCst) && start.elapsed() > LOST_LIMIT {
                break;
            }
            thread::sleep(Duration::from_millis(5));
        }
        let stored = self.progress.stored.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Uploaded { stored, is_complete: self.progress.is_complete.load(Ordering::SeqCst) }
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        self.is_given_up.store(true, Ordering::SeqCst);
        drop(self.ending.take());
    }
}

/// State of the thread.
struct Uploading {
    memory: TeamMemory,
    db: Arc<TuningDb>,
    cursor: DbCursor,
    progress: Arc<UploadProgress>,
}

impl Uploading {
    /// Passes on the next records. Returns false if there were none, and an error if the collector
    /// did not take them.
    fn pass_on(&mut self, notice: &dyn Fn(String)) -> Result<bool, ()> {
        let mut cursor = self.cursor.clone();
        let lines = self.db.lines_since(&mut cursor, MAX_RECORDS);
        if lines.is_empty() {
            return Ok(false);
        }
        let is_own = |line: &String| TuningRecord::from_line(line).is_ok_and(|record| !record.is_untrusted());
        let own: Vec<String> = lines.into_iter().filter(is_own).collect();

        match self.send(&own) {
            Ok(stored) => {
                if self.progress.is_lost.swap(false, Ordering::SeqCst) {
                    notice(format!("collector {} takes records again", self.memory.name()));
                }
                if let Some(reason) = &stored.reason {
                    notice(format!("collector {} refused {} record(s): {reason}", self.memory.name(), stored.refused));
                }
                self.cursor = cursor;
                self.count(stored);
                Ok(true)
            }
            Err(error) => {
                if !self.progress.is_lost.swap(true, Ordering::SeqCst) {
                    notice(format!("{error}; records wait in the database of this tuner"));
                }
                Err(())
            }
        }
    }

    /// Sends the records that the collector lacks.
    fn send(&mut self, own: &[String]) -> Result<StoredRecords, FleetError> {
        let prints: Vec<Fingerprint> = own.iter().map(|line| Fingerprint::of(line.as_bytes())).collect();
        let lacking: Vec<String> = self.memory.lacking(&prints)?.into_iter().map(|at| own[at].clone()).collect();
        self.memory.store(&lacking)
    }

    fn count(&self, stored: StoredRecords) {
        let mut all = self.progress.stored.lock().unwrap_or_else(PoisonError::into_inner);
        all.new += stored.new;
        all.refused += stored.refused;
        all.reason = all.reason.take().or(stored.reason);
    }
}
