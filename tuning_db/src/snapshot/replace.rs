//! One file in another's place, at once.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::path::{Path, PathBuf};

use super::layout::MAGIC;
use crate::error::SnapshotError;
use crate::lock_file::LockFile;

/// Makes a snapshot's bytes the content of the file at `path`. At every moment there is the old
/// file or the new one, whole, and the new one is durable when this returns.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> Result<(), SnapshotError> {
    let in_the_way = |path: &Path, reason| SnapshotError::InTheWay { path: path.to_path_buf(), reason };
    let failed = |path: &Path| {
        let path = path.to_path_buf();
        move |cause| SnapshotError::Io { action: "cannot write", path, cause }
    };
    if !is_ours(path).map_err(failed(path))? {
        return Err(in_the_way(path, "is no snapshot"));
    }

    // The lock is on the new file, and goes with its name: who waits for it begins with a file of
    // its own.
    let new_path = new_path(path);
    if !is_ours(&new_path).map_err(failed(&new_path))? {
        return Err(in_the_way(&new_path, "is no unfinished snapshot"));
    }
    let mut new = LockFile::wait_for(&new_path).map_err(failed(&new_path))?;
    let written = write(&mut new.file, bytes).and_then(|()| fs::rename(&new_path, path));
    if let Err(cause) = written {
        // What is left of it is overwritten the next time, too.
        let _ = new.remove();
        return Err(failed(path)(cause));
    }

    // Against programs that would overwrite it in place, under those who have it open. Where that
    // cannot be done it is a snapshot all the same.
    let _ = make_read_only(&new.file);
    sync_folder(path).map_err(failed(path))
}

fn write(file: &mut File, bytes: &[u8]) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// The file that is written before it takes the place of `path`.
fn new_path(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".new");
    name.into()
}

/// True if nothing would be lost but a snapshot, or the beginning of one, if the file went.
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
