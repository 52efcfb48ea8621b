//! Which process tunes a task, so that others need not.

use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use autotune_schedules::config::fnv1a;
use autotune_workloads::Workload;

use crate::error::DbError;
use crate::files::io_error;
use crate::lock_file::LockFile;

/// Pause between two looks at who has a hold.
const PAUSE: Duration = Duration::from_millis(20);

/// The hold on a task of a database: one handle at a time has it, of all threads and processes. It
/// ends with the value, and with the process, however that ends.
///
/// It keeps nobody from writing; it is for those who would do the same work twice. It is a lock on
/// a file `holder.HASH` in the database's folder, of the key and the workload, that goes with the
/// hold; what a killed process leaves there goes with the next hold.
#[derive(Debug)]
pub struct TaskHold {
    file: LockFile,
}

impl TaskHold {
    /// Takes the hold on a task of the database at `path`, which need not exist yet, and waits for
    /// it so long; `None` if another has it still.
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
        // A file that stays is no hold.
        let _ = self.file.remove();
    }
}
