//! Lock that allows one writer per database.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::Path;

use crate::error::DbError;
use crate::holder::Holder;

/// Exclusive lock of a database. The lock on the file counts, and it is released when the process
/// ends, however that happens. The file's text only names the holder, so text of a killed process
/// does no harm.
#[derive(Debug)]
pub(crate) struct Hold {
    file: File,
}

impl Hold {
    /// Locks the database at `db_path` through the file `holder_path`.
    pub(crate) fn take(db_path: &Path, holder_path: &Path) -> Result<Self, DbError> {
        let failed = |action| move |cause: io::Error| DbError::Io { action, path: holder_path.to_path_buf(), cause };
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(holder_path)
            .map_err(failed("cannot write"))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(DbError::Held { path: db_path.to_path_buf(), holder: read_holder(&mut file) });
            }
            Err(TryLockError::Error(e)) => return Err(failed("cannot lock")(e)),
        }
        write_holder(&mut file).map_err(failed("cannot write"))?;
        Ok(Self { file })
    }
}

impl Drop for Hold {
    /// Unlocks explicitly. A process that another thread is just starting shares the open file
    /// until it executes its program, so closing the file here might leave it locked.
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

/// Reads the holder from the file; unknown if the holder has not written it yet.
fn read_holder(file: &mut File) -> Holder {
    let mut text = String::new();
    let read = file.take(1 << 16).read_to_string(&mut text);
    read.ok().and_then(|_| serde_json::from_str(&text).ok()).unwrap_or_else(Holder::unknown)
}

fn write_holder(file: &mut File) -> io::Result<()> {
    let text = serde_json::to_string(&Holder::this_process())?;
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(text.as_bytes())
}
