//! Files that are locked while something is under way. The lock goes with the process, however it
//! ends; the file may stay.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The lock on the file that has a name.
#[derive(Debug)]
pub(crate) struct LockFile {
    pub(crate) file: File,
    path: PathBuf,
}

impl LockFile {
    /// Takes the lock, which whoever has it may keep for as long as it takes; makes the file where
    /// there is none.
    pub(crate) fn wait_for(path: &Path) -> io::Result<Self> {
        loop {
            let file = open(path)?;
            file.lock()?;
            if is_at(&file, path)? {
                return Ok(Self { file, path: path.to_path_buf() });
            }
        }
    }

    /// Takes the lock; `None` if somebody has it.
    pub(crate) fn try_take(path: &Path) -> io::Result<Option<Self>> {
        loop {
            let file = open(path)?;
            match file.try_lock() {
                Ok(()) if is_at(&file, path)? => return Ok(Some(Self { file, path: path.to_path_buf() })),
                // Whoever had the lock removed or renamed the file.
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
    }

    /// Removes the file. Who waits for its lock finds that the name is free.
    pub(crate) fn remove(&self) -> io::Result<()> {
        fs::remove_file(&self.path)
    }
}

impl Drop for LockFile {
    /// Unlocks expressly: while another thread starts a process, the new one shares the open file
    /// until it executes.
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

fn open(path: &Path) -> io::Result<File> {
    if fs::symlink_metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
        return Err(io::Error::new(ErrorKind::InvalidInput, "it is no plain file"));
    }
    OpenOptions::new().create(true).truncate(false).read(true).write(true).open(path)
}

/// True if the file still has the name.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let there = match fs::symlink_metadata(path) {
        Ok(there) => there,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    let own = file.metadata()?;
    Ok((own.dev(), own.ino()) == (there.dev(), there.ino()))
}
