//! Folder in which this crate caches results that take long to compute: measured ceilings, and
//! machine code of its own GPU kernels.

use std::env;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Returns `$AUTOTUNE_CACHE`, else `autotune` in `$XDG_CACHE_HOME` or in `~/.cache`; `None` if none
/// of these variables is set.
pub(crate) fn find() -> Option<PathBuf> {
    let named = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = || named("XDG_CACHE_HOME").or_else(|| Some(named("HOME")?.join(".cache")));
    named("AUTOTUNE_CACHE").or_else(|| Some(cache()?.join("autotune")))
}

/// Replaces a file of the folder atomically: a reader finds either the old content or the new. Does
/// nothing if the folder is not writable.
pub(crate) fn keep(path: &Path, content: &[u8]) {
    let write = || -> io::Result<()> {
        let folder = path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder)?;
        let mut new = tempfile::NamedTempFile::new_in(folder)?;
        new.write_all(content)?;
        new.persist(path)?;
        Ok(())
    };
    let _ = write();
}
