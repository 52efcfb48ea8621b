//! Files of a crate and the dependencies between them, found by a simple parser of `use` items and
//! paths.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::literals::lines_in_literals;

/// Path of modules from the crate's root; an item's name may follow.
pub(crate) type Names = Vec<String>;

/// Name that a file imports with `use`.
struct Import {
    path: Names,
    /// Name within the file; `*` for a glob import.
    alias: String,
    is_public: bool,
}

/// Imports and names of a file, without its comments, strings and tests.
struct File {
    imports: Vec<Import>,
    /// Paths outside `use` items that begin at a module.
    paths: Vec<Names>,
    words: BTreeSet<String>,
}

/// Files of a crate by module path; the path of `lib.rs` or `main.rs` is empty.
pub(crate) struct Files(BTreeMap<Names, File>);

impl Files {
    /// Reads the sources of a crate from a folder.
    pub(crate) fn read(source: &Path) -> Self {
        let mut files = BTreeMap::new();
        let root = ["lib.rs", "main.rs"].map(|name| source.join(name)).into_iter().find(|path| path.exists());
        read(&root.unwrap(), source, Vec::new(), &mut files);
        Self(files)
    }

    /// Returns the files that each file uses, without itself. An unused re-export does not count:
    /// the file that imports the name uses the file that defines it.
    pub(crate) fn uses(&self) -> BTreeMap<Names, BTreeSet<Names>> {
        self.0.iter().map(|(module, file)| (module.clone(), self.used_by(module, file))).collect()
    }

    fn used_by(&self, module: &Names, file: &File) -> BTreeSet<Names> {
        let imported = file.imports.iter().filter(|import| !import.is_public || file.words.contains(&import.alias));
        let paths = imported.map(|import| &import.path).chain(&file.paths);
        paths.filter_map(|path| self.definer(path, 0)).filter(|used| used != module).collect()
    }

    /// Returns the file that defines the target of a path, through re-exports.
    fn definer(&self, path: &[String], depth: usize) -> Option<Names> {
        let known = (0..=path.len()).rev().find(|&known| self.0.contains_key(&path[..known]))?;
        let (module, rest) = path.split_at(known);
        let [name, below @ ..] = rest else { return Some(module.to_vec()) };
        let imports = &self.0[module].imports;
        // Modules may re-export each other: the depth limit ends such cycles.
        let import = imports.iter().find(|import| import.alias == *name && depth < 8);
        match import {
            Some(import) => self.definer(&[&import.path, below].concat(), depth + 1),
            None => Some(module.to_vec()),
        }
    }
}

/// Reads a file and, recursively, the modules that it declares outside its tests.
fn read(path: &Path, folder: &Path, module: Names, files: &mut BTreeMap<Names, File>) {
    let text = code(&fs::read_to_string(path).unwrap());
    let children = declared(&text);
    for child in &children {
        let (file, inner) = (folder.join(format!("{child}.rs")), folder.join(child));
        let file = if file.exists() { file } else { inner.join("mod.rs") };
        if file.exists() {
            read(&file, &inner, [&module[..], std::slice::from_ref(child)].concat(), files);
        }
    }
    files.insert(module.clone(), parsed(&text, &module, &children));
}

/// Splits the code of a file into imports, and paths and names in the rest.
fn parsed(text: &str, module: &Names, children: &[String]) -> File {
    let (mut imports, mut rest, mut from) = (Vec::new(), String::new(), 0);
    for (at, _) in text.match_indices("use ").filter(|&(at, _)| starts_item(&text[..at])) {
        if at < from {
            continue;
        }
        rest.push_str(&text[from..at]);
        from = at + text[at..].find(';').unwrap();
        let is_public = text[..at].rsplit('\n').next().is_some_and(|line| line.trim_start().starts_with("pub"));
        for (path, alias) in expanded("", &text[at + 4..from]) {
            imports.extend(absolute(&path, module, children).map(|path| Import { path, alias, is_public }));
        }
    }

    rest.push_str(&text[from..]);
    let rest: String = rest.lines().filter(|line| module_of(line).is_none()).map(|line| format!("{line}\n")).collect();

    let is_of_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let tokens = rest.split(|c| !is_of_path(c)).filter(|token| token.contains("::"));
    let paths = tokens.filter_map(|token| absolute(token.trim_matches(':'), module, children)).collect();
    let first = |token: &str| token.split("::").next().unwrap_or_default().to_string();
    let words = rest.split(|c| !is_of_path(c)).map(first).collect();
    File { imports, paths, words }
}

/// True if an item may begin after the text `before`.
fn starts_item(before: &str) -> bool {
    let line = before.rsplit('\n').next().unwrap_or_default().trim();
    line.is_empty() || line == "pub"
}

/// Expands a tree of `use` into its paths, each with the name that it declares.
fn expanded(prefix: &str, tree: &str) -> Vec<(String, String)> {
    let tree = tree.trim();
    let Some((before, rest)) = tree.split_once('{') else {
        let (path, alias) = tree.split_once(" as ").unwrap_or((tree, tree.rsplit("::").next().unwrap()));
        let path = format!("{prefix}{}", path.trim());
        return match path.strip_suffix("::self") {
            Some(module) => vec![(module.to_string(), module.rsplit("::").next().unwrap().to_string())],
            None => vec![(path, alias.trim().to_string())],
        };
    };
    let (prefix, inner) = (format!("{prefix}{before}"), rest.rsplit_once('}').unwrap().0);
    let mut depth = 0;
    let parts = inner.split(|c| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        c == ',' && depth == 0
    });
    parts.filter(|part| !part.trim().is_empty()).flat_map(|part| expanded(&prefix, part)).collect()
}

/// Resolves a path from the crate's root; `None` for a path into another crate.
fn absolute(path: &str, module: &Names, children: &[String]) -> Option<Names> {
    let mut names: Vec<String> = path.split("::").map(String::from).collect();
    let ups = names.iter().take_while(|name| *name == "super").count();
    let base = match names[0].as_str() {
        "crate" => &module[..0],
        "super" => module.get(..module.len().checked_sub(ups)?)?,
        name if name == "self" || children.iter().any(|child| child == name) => &module[..],
        _ => return None,
    };
    names.drain(..if names[0] == "self" || names[0] == "crate" { 1 } else { ups });
    Some([base, &names].concat())
}

/// Returns the modules that the file declares in files of their own, except test modules.
fn declared(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let is_test = |number: usize| number > 0 && lines[number - 1].starts_with("#[cfg(test)]");
    let declared = lines.iter().enumerate().filter(|(number, _)| !is_test(*number));
    declared.filter_map(|(_, line)| module_of(line)).collect()
}

/// Returns the module that a line declares.
fn module_of(line: &str) -> Option<String> {
    let (before, name) = line.trim().strip_suffix(';')?.rsplit_once("mod ")?;
    (before.is_empty() || before.starts_with("pub")).then(|| name.to_string())
}

/// Returns the code of a file without comments, tests and lines within literals, and with
/// `pub(in path)` simplified to `pub`.
fn code(text: &str) -> String {
    let text = text.split("\nmod tests {").next().unwrap_or_default();
    let lines = text.lines().zip(lines_in_literals(text)).filter(|(_, is_in_literal)| !is_in_literal);
    let lines = lines.map(|(line, _)| line.split("//").next().unwrap_or_default());
    let code = lines.collect::<Vec<_>>().join("\n");
    let mut parts = code.split("pub(");
    let first = parts.next().unwrap_or_default().to_string();
    parts.fold(first, |code, part| code + "pub" + part.split_once(')').map_or(part, |(_, rest)| rest))
}
