//! Atomic replacement of a file.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::path::{Path, PathBuf};

use super::layout::MAGIC;
use crate::error::SnapshotError;
use crate::lock_file::LockFile;

/// Replaces the file at `path` by a snapshot, atomically: there is always either the old file or
/// the complete new one. The new one is durable when this returns.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> Result<(), SnapshotError> {
    let in_the_way = |path: &Path, reason| SnapshotError::InTheWay { path: path.to_path_buf(), reason };
    let failed = |path: &Path| {
        let path = path.to_path_buf();
        move |cause| SnapshotError::Io { action: "cannot write", path, cause }
    };
    if !is_ours(path).map_err(failed(path))? {
        return Err(in_the_way(path, "is not a snapshot"));
    }

    // The lock is on the new file and moves with its name, so the next writer that waits creates a
    // file of its own.
    let new_path = new_path(path);
    if !is_ours(&new_path).map_err(failed(&new_path))? {
        return Err(in_the_way(&new_path, "is not an unfinished snapshot"));
    }
    let mut new = LockFile::wait_for(&new_path).map_err(failed(&new_path))?;
    let written = write(&mut new.file, bytes).and_then(|()| fs::rename(&new_path, path));
    if let Err(cause) = written {
        // A remaining file does no harm: the next writer overwrites it.
        let _ = new.remove();
        return Err(failed(path)(cause));
    }

    // Protects readers from programs that would overwrite the file in place. Failure to set it does
    // not matter.
    let _ = make_read_only(&new.file);
    sync_folder(path).map_err(failed(path))
}

fn write(file: &mut File, bytes: &[u8]) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Returns the path under which the new file is written before it is renamed.
fn new_path(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".new");
    name.into()
}

/// Returns true if the path may be overwritten: it does not exist, or is a snapshot or the
/// beginning of one.
fn is_ours(path: &Path) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if !metadata.is_file() => return Ok(false),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(true),
        _ => {}
    }
    let mut start = Vec::new();
    match File::open(path) {
        Ok(file) => file.take(MAGIC.len() as u64).read_to_end(&mut start)?,
        // Another writer has just renamed it.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(true),
        Err(error) => return Err(error),
    };
    Ok(MAGIC.starts_with(&start))
}

fn make_read_only(file: &File) -> io::Result<()> {
    let mut permissions = file.metadata()?.permissions();
    permissions.set_readonly(true);
    file.set_permissions(permissions)
}

/// Makes the names in a file's folder durable.
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}
