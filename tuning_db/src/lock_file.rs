//! Lock files. The lock is released when the process ends, however that happens; the file may
//! remain.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Lock on the file at a path.
#[derive(Debug)]
pub(crate) struct LockFile {
    pub(crate) file: File,
    path: PathBuf,
}

impl LockFile {
    /// Takes the lock, waiting as long as necessary; creates the file if it does not exist.
    pub(crate) fn wait_for(path: &Path) -> io::Result<Self> {
        loop {
            let file = open(path)?;
            file.lock()?;
            if is_at(&file, path)? {
                return Ok(Self { file, path: path.to_path_buf() });
            }
        }
    }

    /// Takes the lock; `None` if it is taken.
    pub(crate) fn try_take(path: &Path) -> io::Result<Option<Self>> {
        loop {
            let file = open(path)?;
            match file.try_lock() {
                Ok(()) if is_at(&file, path)? => return Ok(Some(Self { file, path: path.to_path_buf() })),
                // The previous owner removed or renamed the file, so this lock is on a file without
                // the name.
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
    }

    /// Removes the file. A process that waits for its lock finds that the name is free.
    pub(crate) fn remove(&self) -> io::Result<()> {
        fs::remove_file(&self.path)
    }
}

impl Drop for LockFile {
    /// Unlocks explicitly: a process that another thread is just starting shares the open file
    /// until it executes its program.
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

fn open(path: &Path) -> io::Result<File> {
    if fs::symlink_metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
        return Err(io::Error::new(ErrorKind::InvalidInput, "not a regular file"));
    }
    OpenOptions::new().create(true).truncate(false).read(true).write(true).open(path)
}

/// Returns true if the path still refers to this file.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let there = match fs::symlink_metadata(path) {
        Ok(there) => there,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    let own = file.metadata()?;
    Ok((own.dev(), own.ino()) == (there.dev(), there.ino()))
}
