//! Checks that no file of the crate uses one that comes after it in the list of `lib.rs`, so that
//! there are no cycles.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};

/// Returns the files in the order of the list.
fn order(lib: &str) -> Vec<&str> {
    let list = lib.split("```text").nth(1).unwrap().split("```").next().unwrap();
    let lines = list.lines().map(|line| line.trim_start_matches("//!").split_whitespace().skip(1));
    lines.flatten().collect()
}

/// Returns all files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    paths.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// Returns the modules that code outside of tests uses by `crate::`.
fn used(text: &str) -> Vec<String> {
    let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    let names = lines.flat_map(|line| line.split("crate::").skip(1));
    names.map(|name| name.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()).collect()
}

#[test]
fn files_use_only_what_stands_before_them() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let lib = fs::read_to_string(source.join("lib.rs")).unwrap();
    let order = order(&lib);
    let place = |name: &str| order.iter().position(|known| *known == name);
    for path in files(&source) {
        let relative = path.strip_prefix(&source).unwrap().with_extension("");
        let module = relative.iter().next().unwrap().to_str().unwrap().to_string();
        if module == "lib" {
            continue;
        }
        let own = place(&module).unwrap_or_else(|| panic!("{module} is not in the list of lib.rs"));
        for used in used(&fs::read_to_string(&path).unwrap()).iter().filter(|used| **used != module) {
            let before = place(used).unwrap_or_else(|| panic!("{}: no module 'crate::{used}'", path.display()));
            assert!(before < own, "{} uses {used}, which stands behind it in lib.rs", path.display());
        }
    }
}
