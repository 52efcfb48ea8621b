//! Checks the dependencies between the files of each crate: cycles are small, and no file uses its
//! parent module if the parent uses the file. Declarations and re-exports by a parent do not count
//! as use.

mod files;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use files::{Files, Names};

/// Maximum number of files in a cycle.
const MOST: usize = 4;

type Uses = BTreeMap<Names, BTreeSet<Names>>;

/// Returns the crates of the workspace: folder name and source folder.
fn crates() -> Vec<(String, PathBuf)> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let folders = fs::read_dir(workspace).unwrap().map(|entry| entry.unwrap().path());
    let crates = folders.filter(|folder| folder.join("Cargo.toml").exists() && folder.join("src").exists());
    crates.map(|folder| (folder.file_name().unwrap().to_string_lossy().into_owned(), folder.join("src"))).collect()
}

/// Returns the files that use their parent module and are used by it.
fn pairs(uses: &Uses) -> Vec<String> {
    let parent = |module: &Names| module.split_last().map(|(_, parent)| parent.to_vec());
    let is_mutual = |module: &&Names| {
        parent(module).is_some_and(|parent| uses[*module].contains(&parent) && uses[&parent].contains(*module))
    };
    uses.keys().filter(is_mutual).map(|module| module.join("::")).collect()
}

/// Returns the files that are reachable from a file in any number of steps.
fn reached<'u>(uses: &'u Uses, from: &'u Names) -> BTreeSet<&'u Names> {
    let (mut reached, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(module) = open.pop() {
        open.extend(uses[module].iter().filter(|used| reached.insert(*used)));
    }
    reached
}

/// Returns the largest cycle: files that all reach each other.
fn largest_circle(uses: &Uses) -> Vec<String> {
    let reached: BTreeMap<&Names, _> = uses.keys().map(|module| (module, reached(uses, module))).collect();
    let circle = |module: &&Names| -> Vec<String> {
        let all = reached[*module].iter().filter(|other| reached[**other].contains(*module));
        all.map(|other| other.join("::")).collect()
    };
    uses.keys().map(|module| circle(&module)).max_by_key(Vec::len).unwrap_or_default()
}

#[test]
fn circles_of_files_are_small() {
    for (name, source) in crates() {
        let circle = largest_circle(&Files::read(&source).uses());
        assert!(circle.len() <= MOST, "{name}: {} files use each other in a circle: {circle:#?}", circle.len());
    }
}

#[test]
fn arrows_inside_a_crate_go_down() {
    for (name, source) in crates() {
        let pairs = pairs(&Files::read(&source).uses());
        assert!(pairs.is_empty(), "{name}: files that their parents use, and that use these: {pairs:#?}");
    }
}

#[test]
fn circles_are_found_through_re_exports_and_not_where_there_are_none() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let found = || {
        let uses = Files::read(folder.path()).uses();
        (largest_circle(&uses).join(" "), pairs(&uses).join(" "))
    };
    write("lib.rs", "mod a;\nmod b;\npub use a::{A, inner::C as D};\n");
    write("a.rs", "mod inner;\npub use inner::C;\npub struct A; // crate::b::B\n");
    write("a/inner.rs", "use super::A;\npub struct C(A);\n#[cfg(test)]\nmod tests {\n    use crate::b::B;\n}\n");
    write("b.rs", "use crate::{D, a};\npub struct B(D, a::A);\n");
    assert_eq!(found(), (String::new(), String::new()));

    write("a.rs", "mod inner;\npub use inner::C;\npub struct A(Option<Box<C>>);\n");
    assert_eq!(found(), ("a a::inner".into(), "a::inner".into()));

    write("a/inner.rs", "pub(in super::super) struct C(crate::b::B);\n");
    assert_eq!(found(), ("a a::inner b".into(), String::new()));
}
