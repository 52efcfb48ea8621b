//! Lock of a task while a process tunes it, so that other processes do not tune it as well.

use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use autotune_schedules::config::fnv1a;
use autotune_workloads::Workload;

use crate::error::DbError;
use crate::files::io_error;
use crate::lock_file::LockFile;

/// Pause between two attempts to take a lock.
const PAUSE: Duration = Duration::from_millis(20);

/// Lock of a task of a database. One handle at a time has it, among all threads and processes. It
/// is released when the value is dropped or the process ends.
///
/// It does not prevent writing; it only avoids doing the same work twice. It is a lock on a file
/// `holder.HASH` in the database's folder, with the hash of target key and workload. The file is
/// removed with the lock; the next lock removes a file left by a killed process.
#[derive(Debug)]
pub struct TaskHold {
    file: LockFile,
}

impl TaskHold {
    /// Takes the lock of a task of the database at `path`, which need not exist yet, and waits for
    /// it at most `wait`; `None` if another handle still has it then.
    pub fn take(
        path: impl AsRef<Path>,
        workload: &Workload,
        target: &str,
        wait: Duration,
    ) -> Result<Option<Self>, DbError> {
        let (path, start) = (path.as_ref(), Instant::now());
        fs::create_dir_all(path).map_err(io_error("cannot create", path))?;
        let hash = fnv1a(format!("{target}\0{workload}").as_bytes());
        let file_path = path.join(format!("holder.{hash:016x}"));
        loop {
            if let Some(file) = LockFile::try_take(&file_path).map_err(io_error("cannot lock", &file_path))? {
                return Ok(Some(Self { file }));
            }
            if start.elapsed() >= wait {
                return Ok(None);
            }
            sleep(PAUSE.min(wait));
        }
    }
}

impl Drop for TaskHold {
    fn drop(&mut self) {
        // A file that remains is not locked.
        let _ = self.file.remove();
    }
}
