//! Location of XGBoost's C++ sources.
//!
//! The default is a crates.io package, which cargo downloads into its own cache: the manifest in
//! `source/` names the package, and its lock file pins the checksum. The environment variable
//! `XGBOOST_SOURCE_DIR` replaces it by an XGBoost source tree at an absolute path, which must
//! have its submodule `dmlc-core` checked out.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const OVERRIDE: &str = "XGBOOST_SOURCE_DIR";
const PACKAGE: &str = "xgboost_lib-sys";
/// Major and minor version of the C++ sources whose files `unit` lists.
const VERSION: (&str, &str) = ("3", "4");

pub(crate) struct Source {
    /// Root of the source tree, with `include/`, `src/` and `dmlc-core/`.
    pub(crate) dir: PathBuf,
    /// True if the files at this path never change, since another version has another path.
    pub(crate) immutable: bool,
}

pub(crate) fn locate(crate_dir: &Path) -> Result<Source, String> {
    println!("cargo::rerun-if-env-changed={OVERRIDE}");
    let manifest = crate_dir.join("source").join("Cargo.toml");
    println!("cargo::rerun-if-changed={}", manifest.display());
    println!("cargo::rerun-if-changed={}", manifest.with_file_name("Cargo.lock").display());

    if let Some(dir) = env::var_os(OVERRIDE).filter(|dir| !dir.is_empty()) {
        let dir = PathBuf::from(dir);
        let absolute = dir.canonicalize().map_err(|error| error.to_string());
        return absolute
            .and_then(|absolute| check(&absolute).map(|()| Source { dir: absolute, immutable: false }))
            .map_err(|reason| format!("{OVERRIDE}={}: {reason}", dir.display()));
    }
    let dir = downloaded(&manifest, crate_dir)?;
    println!("cargo::rerun-if-changed={}", dir.join("include/xgboost/version_config.h").display());
    check(&dir).map_err(|reason| {
        format!("{}: {reason}\nremove this folder so that cargo unpacks the package again", dir.display())
    })?;
    Ok(Source { dir, immutable: true })
}

/// Makes cargo download the package if it is not in cargo's cache.
fn downloaded(manifest: &Path, crate_dir: &Path) -> Result<PathBuf, String> {
    let mut output = metadata(manifest, crate_dir, true)?;
    if !output.status.success() {
        output = metadata(manifest, crate_dir, false)?;
    }
    if !output.status.success() {
        return Err(format!(
            "cargo could not download the package {PACKAGE}, which contains XGBoost's C++ sources:\n{}\n\
             If this machine has no network: run `cargo fetch --locked --manifest-path {}` where there is one and \
             bring the cargo home along, or unpack XGBoost {}.{} with its submodule dmlc-core and set {OVERRIDE} to \
             that folder",
            String::from_utf8_lossy(&output.stderr).trim_end(),
            manifest.display(),
            VERSION.0,
            VERSION.1,
        ));
    }
    manifest_path(&String::from_utf8_lossy(&output.stdout))
        .map(|path| path.with_file_name("xgboost"))
        .ok_or_else(|| format!("cargo metadata of {} does not list {PACKAGE}", manifest.display()))
}

/// Returns the path of the package's manifest from cargo's JSON. It searches for one kind of
/// string: a JSON parser would be a dependency whose updates recompile all of XGBoost.
fn manifest_path(json: &str) -> Option<PathBuf> {
    json.split("\"manifest_path\":\"").skip(1).find_map(|rest| {
        let mut path = String::new();
        let mut characters = rest.chars();
        loop {
            match characters.next()? {
                '"' => break,
                '\\' => path.push(characters.next()?),
                character => path.push(character),
            }
        }
        let path = PathBuf::from(path);
        // The folder is named after the package: with the version in cargo's cache, without it if
        // vendored.
        let folder = path.parent()?.file_name()?.to_str()?;
        folder.starts_with(PACKAGE).then_some(path)
    })
}

fn metadata(manifest: &Path, crate_dir: &Path, offline: bool) -> Result<Output, String> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(&cargo);
    command
        .args(["metadata", "--locked", "--format-version", "1", "--manifest-path"])
        .arg(manifest)
        .current_dir(crate_dir)
        // This query must not run through the rustc wrappers of the outer build.
        .env_remove("RUSTC_WRAPPER")
        .env_remove("RUSTC_WORKSPACE_WRAPPER");
    if offline {
        command.arg("--offline");
    }
    command.output().map_err(|error| format!("cannot run {}: {error}", Path::new(&cargo).display()))
}

/// Checks that `dir` is a source tree of the required version.
fn check(dir: &Path) -> Result<(), String> {
    let header = dir.join("include/xgboost/version_config.h");
    let text = std::fs::read_to_string(&header)
        .map_err(|error| format!("this is no source tree of XGBoost: {}: {error}", header.display()))?;
    let define = |name: &str| {
        text.lines().find_map(|line| {
            let mut words = line.split_whitespace();
            (words.next() == Some("#define") && words.next() == Some(name)).then(|| words.next())?
        })
    };
    let version = (define("XGBOOST_VER_MAJOR"), define("XGBOOST_VER_MINOR"));
    if version != (Some(VERSION.0), Some(VERSION.1)) {
        return Err(format!(
            "this is XGBoost {}.{}; version {}.{} is needed",
            version.0.unwrap_or("?"),
            version.1.unwrap_or("?"),
            VERSION.0,
            VERSION.1
        ));
    }
    if !dir.join("dmlc-core/include/dmlc/base.h").is_file() {
        return Err("the submodule dmlc-core is missing (git submodule update --init)".to_owned());
    }
    Ok(())
}
