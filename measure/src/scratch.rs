//! Private temporary folders, and the removal of those that killed processes left behind.
//!
//! A scratch folder lies in the system's folder for temporary files. It has a file `owner` that
//! names the folder's own inode, which proves that this program made it: a folder that was moved,
//! copied or made by another program has a different inode. The maker holds a lock on that file.
//! The lock is released when the process ends, however it ends, and on whatever host or in whatever
//! pid namespace it runs. A folder with this proof and without a lock is therefore stale and is
//! removed. Everything else stays.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use tempfile::TempDir;

use crate::error::MeasureError;

/// Prefix of the names of scratch folders; a random part follows.
const PREFIX: &str = "autotune-scratch-";

/// File that proves that a folder is a scratch folder, locked as long as its maker lives.
const OWNER: &str = "owner";

/// Suffix of the names of scratch folders that are being removed.
const LEAVING: &str = "-leaving";

/// Content of the owner file up to the number of the folder's inode.
const MARK: &str = "autotune scratch folder, removed once nobody locks this file; inode ";

/// Scratch folder that is removed when the value is dropped.
pub struct ScratchDir {
    dir: TempDir,
    /// Locked file. Fields drop in order, so the lock is released after the folder is removed.
    _owner: File,
}

impl ScratchDir {
    /// Makes a scratch folder, after removing those that dead processes left behind.
    pub fn new() -> Result<Self, MeasureError> {
        remove_stale();
        let io = |source| MeasureError::Io { what: "cannot create a temporary folder".into(), source };
        Self::new_in(&std::env::temp_dir()).map_err(io)
    }

    fn new_in(parent: &Path) -> io::Result<Self> {
        // Only this user may enter it.
        let dir = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent)?;
        let mut owner = OpenOptions::new().write(true).create_new(true).open(dir.path().join(OWNER))?;

        // Lock before the proof is written, so that no other process finds the proof without a
        // lock.
        owner.lock()?;
        owner.write_all(proof(dir.path())?.as_bytes())?;
        Ok(Self { dir, _owner: owner })
    }

    /// Returns the folder's path.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }
}

/// Removes the scratch folders of processes that no longer live, as far as the proof and the lock
/// show it. Folders that cannot be read or removed, such as another user's, stay.
pub fn remove_stale() {
    remove_stale_in(&std::env::temp_dir());
}

fn remove_stale_in(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(PREFIX) {
            // A folder that stays does no harm.
            let _ = remove_if_stale(&entry.path());
        }
    }
}

/// Removes a folder if it proves to be a scratch folder of this user and no process holds its lock.
fn remove_if_stale(folder: &Path) -> io::Result<()> {
    // Do not follow a symbolic link, and do not block on a named pipe.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let mut owner = OpenOptions::new().read(true).custom_flags(flags).open(folder.join(OWNER))?;
    let metadata = owner.metadata()?;
    // SAFETY: geteuid only reads a number of this process.
    let is_own = metadata.is_file() && metadata.uid() == unsafe { libc::geteuid() };

    if !is_own || !folder.symlink_metadata()?.is_dir() || owner.try_lock().is_err() {
        return Ok(());
    }
    let mut text = String::new();
    (&mut owner).take(2 * MARK.len() as u64).read_to_string(&mut text)?;
    if text == proof(folder)? { remove(folder) } else { Ok(()) }
}

/// Removes a folder into which an orphaned compiler may still be writing. The folder is renamed
/// first, so that the compiler cannot add files to it. The owner file is removed last, so that an
/// interrupted or failed removal is repeated next time.
fn remove(folder: &Path) -> io::Result<()> {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let mut leaving = folder.to_path_buf();
    if !name.ends_with(LEAVING) {
        leaving.set_file_name(format!("{name}{LEAVING}"));
        fs::rename(folder, &leaving)?;
    }

    for entry in fs::read_dir(&leaving)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            _ if entry.file_name() == OWNER => {}
            true => fs::remove_dir_all(entry.path())?,
            false => fs::remove_file(entry.path())?,
        }
    }
    fs::remove_file(leaving.join(OWNER))?;
    fs::remove_dir(leaving)
}

/// Returns the text of a folder's owner file.
fn proof(folder: &Path) -> io::Result<String> {
    Ok(format!("{MARK}{}\n", folder.symlink_metadata()?.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    /// Makes a folder with a file in it.
    fn folder(parent: &Path, name: &str) -> PathBuf {
        let path = parent.join(name);
        fs::create_dir(&path).unwrap();
        fs::write(path.join("data"), "text").unwrap();
        path
    }

    /// Makes a scratch folder whose maker has died.
    fn stale_folder(parent: &Path) -> PathBuf {
        let ScratchDir { dir, _owner: owner } = ScratchDir::new_in(parent).unwrap();
        drop(owner);
        fs::write(dir.path().join("kernel.so"), "code").unwrap();
        dir.keep()
    }

    #[test]
    fn a_scratch_folder_goes_with_its_value_and_stays_while_it_lives() {
        let parent = tempfile::tempdir().unwrap();
        let scratch = ScratchDir::new_in(parent.path()).unwrap();
        let path = scratch.path().to_path_buf();
        fs::write(path.join("kernel.so"), "code").unwrap();
        remove_stale_in(parent.path());
        assert!(path.join("kernel.so").exists(), "its owner lives");
        drop(scratch);
        assert!(!path.exists());
    }

    #[test]
    fn folders_of_ended_processes_are_removed() {
        let parent = tempfile::tempdir().unwrap();
        let paths: Vec<PathBuf> = (0..3).map(|_| stale_folder(parent.path())).collect();
        fs::create_dir_all(paths[0].join("deep/er")).unwrap();
        remove_stale_in(parent.path());
        assert!(paths.iter().all(|path| !path.exists()));
    }

    /// A compiler may outlive the process that started it and write its output while the folder is
    /// being removed.
    #[test]
    fn folders_that_an_orphan_writes_to_are_removed() {
        let parent = tempfile::tempdir().unwrap();
        let stop = std::sync::atomic::AtomicBool::new(false);
        let folders: Vec<PathBuf> = (0..50).map(|_| stale_folder(parent.path())).collect();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut number = 0;
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    folders.iter().for_each(|folder| drop(fs::write(folder.join(format!("{number}.o")), "code")));
                    number += 1;
                }
            });
            for _ in 0..20 {
                std::thread::sleep(std::time::Duration::from_millis(1));
                remove_stale_in(parent.path());
            }
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    }

    #[test]
    fn user_data_stays_under_any_name() {
        let parent = tempfile::tempdir().unwrap();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let names = [
            format!("autotune-{}-results", child.id()),
            "autotune-2026-results".into(),
            "autotune-2026-db".into(),
            "autotune-scratch-".into(),
            "autotune-scratch-mine".into(),
        ];
        let mut kept: Vec<PathBuf> = names.iter().map(|name| folder(parent.path(), name)).collect();

        // Owner files that prove nothing: empty, of another folder, truncated, with extra text, a
        // folder, and a symbolic link.
        let stale = stale_folder(parent.path());
        let proven = fs::read_to_string(stale.join(OWNER)).unwrap();
        for (name, text) in [("a", ""), ("b", proven.as_str()), ("c", MARK)] {
            let path = folder(parent.path(), &format!("{PREFIX}{name}"));
            fs::write(path.join(OWNER), text).unwrap();
            kept.push(path);
        }
        let longer = folder(parent.path(), &format!("{PREFIX}longer"));
        fs::write(longer.join(OWNER), proof(&longer).unwrap() + "and a note of mine").unwrap();
        let nested = folder(parent.path(), &format!("{PREFIX}nested"));
        fs::create_dir(nested.join(OWNER)).unwrap();
        let linked = folder(parent.path(), &format!("{PREFIX}linked"));
        symlink(stale.join(OWNER), linked.join(OWNER)).unwrap();
        kept.extend([longer, nested, linked]);

        // A symbolic link to a stale scratch folder in another place.
        let elsewhere = tempfile::tempdir().unwrap();
        let far = stale_folder(elsewhere.path());
        symlink(&far, parent.path().join(format!("{PREFIX}link"))).unwrap();

        remove_stale_in(parent.path());
        assert!(!stale.exists());
        assert!(kept.iter().all(|path| path.join("data").exists()), "{kept:?}");
        assert!(far.exists());
    }

    #[test]
    fn a_copied_scratch_folder_belongs_to_another_process() {
        let parent = tempfile::tempdir().unwrap();
        let stale = stale_folder(parent.path());
        let copy = folder(parent.path(), &format!("{PREFIX}copy"));
        fs::copy(stale.join(OWNER), copy.join(OWNER)).unwrap();
        remove_stale_in(parent.path());
        assert!(copy.exists() && !stale.exists());
    }
}
