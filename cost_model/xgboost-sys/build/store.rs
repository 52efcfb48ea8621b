//! Cache of compiled units, shared by all builds of one target folder.
//!
//! Cargo runs this build script once per profile, and again for clippy, with the same result each
//! time. The first run compiles a unit, and the others find it here.

use std::ffi::OsString;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use crate::unit::{Unit, include_path};

pub(crate) struct Store {
    dir: PathBuf,
}

impl Store {
    /// Opens the cache in the target folder around `out_dir`, which cargo marks if it has made that
    /// folder itself. Otherwise it is the folder around that of the profile, since `out_dir` is
    /// `PROFILE/build/PACKAGE/out`.
    pub(crate) fn open(out_dir: &Path) -> Option<Self> {
        let marked = out_dir.ancestors().find(|dir| dir.join("CACHEDIR.TAG").is_file());
        let target_dir = marked.or_else(|| out_dir.ancestors().nth(4))?;
        let dir = target_dir.join("autotune-xgboost");
        fs::create_dir_all(&dir).ok()?;
        Some(Self { dir })
    }

    /// Returns the path of the object of `unit` compiled by `compiler`, whether it exists or not;
    /// `None` if the compiler cannot be identified or a file cannot be read.
    pub(crate) fn path(&self, unit: &Unit, compiler: &cc::Build) -> Option<PathBuf> {
        let tool = compiler.try_get_compiler().ok()?;
        let version = tool.to_command().arg("--version").output().ok()?;
        let mut hasher = DefaultHasher::new();
        (std::env::var_os("TARGET"), tool.path(), tool.args(), version.stdout).hash(&mut hasher);
        // Files of this crate count by their content: another clone has them at other paths.
        let mut text = fs::read_to_string(&unit.path).ok()?;
        for native in &unit.native {
            text = text.replace(&include_path(native), "");
            fs::read(native).ok()?.hash(&mut hasher);
        }
        text.hash(&mut hasher);
        let stem = unit.path.file_stem()?.to_str()?;
        Some(self.dir.join(format!("{stem}-{:016x}.o", hasher.finish())))
    }

    /// Copies `object` to `path` atomically, so that other processes see the whole file or none.
    /// Errors are ignored: the unit is then compiled again.
    pub(crate) fn keep(&self, object: &Path, path: &Path) {
        let mut partial = OsString::from(path);
        partial.push(format!(".{}", std::process::id()));
        if fs::copy(object, &partial).is_err() || fs::rename(&partial, path).is_err() {
            let _ = fs::remove_file(&partial);
        }
    }
}
