//! The lock that decides who has a database open.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::Path;

use crate::error::DbError;
use crate::holder::Holder;

/// The exclusive hold on a database. The lock on the file decides and ends with the process,
/// however it ends; the file's text only tells who holds it, so text left behind by a killed
/// process is harmless.
#[derive(Debug)]
pub(crate) struct Hold {
    file: File,
}

impl Hold {
    /// Takes the hold on the database at `db_path` through the file `holder_path`.
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
    /// Unlocks expressly: while another thread starts a process, the new one shares the open file
    /// until it executes, and closing the file here would leave the lock with it.
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

/// The holder as the file tells it. The holder may be about to write it, hence the unknown.
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
