//! Where XGBoost's C++ sources lie.
//!
//! By default they are those contained in a crates.io package, which cargo itself downloads into
//! its own cache: the manifest in `source/` names the package, its lock file pins the checksum.
//! `XGBOOST_SOURCE_DIR` replaces them with a source tree of XGBoost, named by an absolute path,
//! that has its submodule `dmlc-core` checked out.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const OVERRIDE: &str = "XGBOOST_SOURCE_DIR";
const PACKAGE: &str = "xgboost_lib-sys";
/// Major and minor version of the C++ sources that `unit` knows the files of.
const VERSION: (&str, &str) = ("3", "4");

pub(crate) struct Source {
    /// The root of a source tree: it holds `include/`, `src/` and `dmlc-core/`.
    pub(crate) dir: PathBuf,
    /// Whether nobody edits it: another version would lie in another folder.
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

/// Has cargo download the package, unless it already lies in cargo's cache.
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

/// The manifest of the package in cargo's JSON. Looks for one kind of string only: a parser of JSON
/// would be one more dependency whose updates have all of XGBoost compiled again.
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
        // The folder bears the package's name, with the version in cargo's cache, without where it
        // is vendored.
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
        // Wrappers that the outer build runs rustc through are no concern of this query.
        .env_remove("RUSTC_WRAPPER")
        .env_remove("RUSTC_WORKSPACE_WRAPPER");
    if offline {
        command.arg("--offline");
    }
    command.output().map_err(|error| format!("cannot run {}: {error}", Path::new(&cargo).display()))
}

/// Whether `dir` holds the sources that the units are made of.
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
