//! Search for NVRTC libraries.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// Environment variable that names the library's folder.
pub(super) const FOLDER: &str = "AUTOTUNE_NVRTC";

/// Names under which the dynamic loader may find the library, newest first.
const NAMES: [&str; 3] = ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"];

/// Environment variables that name a toolkit's folder, and the folder in which toolkits are
/// installed by default.
const TOOLKITS: [&str; 2] = ["CUDA_HOME", "CUDA_PATH"];
const INSTALLED: &str = "/usr/local";

/// Returns the names and paths to try, in order. If [`FOLDER`] is set, only the libraries of that
/// folder; else the names that the dynamic loader knows, then the libraries of the toolkits'
/// folders.
pub(super) fn all() -> Result<Vec<PathBuf>, String> {
    if let Some(folder) = env::var_os(FOLDER).map(PathBuf::from) {
        let found = in_folder(&folder)
            .map_err(|e| format!("{FOLDER} names {}, which cannot be read: {e}", folder.display()))?;
        return match found.is_empty() {
            true => Err(format!(
                "{FOLDER} names {}, which has no libnvrtc.so: install Python's nvidia-cuda-nvrtc-cu12, which has one in \
                 nvidia/cuda_nvrtc/lib",
                folder.display()
            )),
            false => Ok(found),
        };
    }
    let installed = fs::read_dir(INSTALLED).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_toolkit = |path: &PathBuf| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"cuda"));
    let mut installed: Vec<PathBuf> = installed.filter(is_toolkit).collect();
    installed.sort_by(|a, b| b.cmp(a));
    let toolkits = TOOLKITS.iter().filter_map(env::var_os).map(PathBuf::from).chain(installed);

    let mut paths: Vec<PathBuf> = NAMES.iter().map(PathBuf::from).collect();
    for path in toolkits.flat_map(|toolkit| in_folder(&toolkit.join("lib64")).unwrap_or_default()) {
        if !paths.contains(&path) {
            paths.push(path);
        }
    }
    Ok(paths)
}

/// Returns the libraries of a folder, newest first. Links to the same file count once.
fn in_folder(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let versioned = |path: PathBuf| {
        let version = version_in_name(path.file_name()?.to_str()?)?;
        Some((version, path.canonicalize().unwrap_or(path)))
    };
    let mut found: Vec<(Vec<u32>, PathBuf)> =
        fs::read_dir(folder)?.flatten().filter_map(|entry| versioned(entry.path())).collect();
    found.sort_by(|a, b| b.cmp(a));
    let mut paths = Vec::new();
    for (_, path) in found {
        if !paths.contains(&path) {
            paths.push(path);
        }
    }
    Ok(paths)
}

/// Parses the version, as in `libnvrtc.so.12.9`; empty for `libnvrtc.so`, `None` for any other
/// file.
fn version_in_name(name: &str) -> Option<Vec<u32>> {
    match name.strip_prefix("libnvrtc.so")? {
        "" => Some(Vec::new()),
        version => version.strip_prefix('.')?.split('.').map(|number| number.parse().ok()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_a_folder_are_tried_newest_first_and_once() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        let others = ["libnvrtc.alt.so.12", "libnvrtc-builtins.so.12.9", "libnvrtc.so.old", "libnvrtc_static.a"];
        for name in ["libnvrtc.so.9.2", "libnvrtc.so.12.9.86", "libnvrtc.so.13", "libnvrtc.so"].iter().chain(&others) {
            fs::write(folder.join(name), "").unwrap();
        }
        std::os::unix::fs::symlink("libnvrtc.so.12.9.86", folder.join("libnvrtc.so.12")).unwrap();
        let expected = ["libnvrtc.so.13", "libnvrtc.so.12.9.86", "libnvrtc.so.9.2", "libnvrtc.so"];
        assert_eq!(in_folder(&folder).unwrap(), expected.map(|name| folder.join(name)));
        assert!(in_folder(&folder.join("none")).is_err());
    }
}
