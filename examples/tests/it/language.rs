//! Sources are in plain English: comments begin with a verb or a noun and are not wider than a
//! page, functions show their steps, and no two types of the workspace share a name.

mod source;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use source::{Doc, Source};

/// First words of relative clauses and of pronouns without a noun.
const CLAUSES: &[&str] = &[
    "What", "Which", "Those", "The same", "Of", "By", "How", "Where", "Who", "Whose", "As", "That", "Whether", "When",
    "Than",
];

/// Words of a documentation comment that says no more than the name of its item, at most.
const STUB_WORDS: usize = 2;

/// Columns of a line that is a comment, at most.
const COLUMNS: usize = 100;

/// Lines of a function without an empty one, at most.
const AIRLESS_LINES: usize = 25;

/// Returns the Rust files of the workspace with their paths below it.
fn sources() -> Vec<(String, Source)> {
    fn collect(folder: &Path, is_skipped: impl Fn(&Path) -> bool + Copy, files: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !is_skipped(&path) {
                collect(&path, is_skipped, files);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let is_skipped = |path: &Path| path == workspace.join("target") || path == workspace.join(".git");
    let mut files = Vec::new();
    collect(workspace, is_skipped, &mut files);
    assert!(files.len() > 500, "{} files", files.len());

    let read = |path: PathBuf| {
        let name = path.strip_prefix(workspace).unwrap().display().to_string();
        (name, Source::of(&fs::read_to_string(path).unwrap()))
    };
    files.into_iter().map(read).collect()
}

/// Fails with all faults that a rule finds in the workspace, each by its file and line.
fn assert_none(what: &str, faults: impl Fn(&Source) -> Vec<(usize, String)>) {
    let of_file = |(name, source): (String, Source)| {
        faults(&source).into_iter().map(move |(line, fault)| format!("{name}:{}: {fault}", line + 1))
    };
    let found: Vec<String> = sources().into_iter().flat_map(of_file).collect();
    assert!(found.is_empty(), "{what}:\n{}", found.join("\n"));
}

/// True if a documentation comment begins with a clause or a pronoun.
fn is_clause(doc: &Doc) -> bool {
    let begins = |clause: &&str| doc.text.strip_prefix(*clause).is_some_and(|rest| rest.starts_with([' ', ',']));
    CLAUSES.iter().any(begins)
}

/// True if the documentation of an item has few words, none of which is code or a link. That of a
/// module may be a title.
fn is_stub(doc: &Doc) -> bool {
    !doc.is_of_module && doc.text.split_whitespace().count() <= STUB_WORDS && !doc.text.contains(['`', '['])
}

#[test]
fn documentation_begins_with_a_verb_or_a_noun() {
    assert_none("comments that begin with a clause or a pronoun", |source| {
        source.docs.iter().filter(|doc| is_clause(doc)).map(|doc| (doc.line, doc.text.clone())).collect()
    });
}

#[test]
fn documentation_says_more_than_the_name() {
    assert_none("comments without content: delete them, or give units, range or meaning", |source| {
        source.docs.iter().filter(|doc| is_stub(doc)).map(|doc| (doc.line, doc.text.clone())).collect()
    });
}

#[test]
fn comments_are_not_wider_than_a_page() {
    assert_none("comments of more than 100 columns", |source| {
        let wide = source.comments.iter().filter(|(_, columns)| *columns > COLUMNS);
        wide.map(|(line, columns)| (*line, format!("{columns} columns"))).collect()
    });
}

#[test]
fn long_functions_show_their_steps() {
    assert_none("functions of more than 25 lines without an empty one", |source| {
        let airless = source.functions.iter().filter(|each| each.lines > AIRLESS_LINES && !each.has_empty_line);
        airless.map(|each| (each.line, format!("{} has {} lines", each.name, each.lines))).collect()
    });
}

#[test]
fn types_of_the_workspace_have_names_of_their_own() {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (file, source) in sources().into_iter().filter(|(file, _)| file.contains("/src/")) {
        for (line, name) in source.types {
            places.entry(name).or_default().push(format!("{file}:{}", line + 1));
        }
    }
    let shared: Vec<String> =
        places.iter().filter(|(_, at)| at.len() > 1).map(|(name, at)| format!("{name}: {}", at.join(", "))).collect();
    assert!(shared.is_empty(), "names of several types:\n{}", shared.join("\n"));
}

#[test]
fn faults_are_found_and_nothing_else() {
    let text = concat!(
        "//! Of nothing.\n\n/// Returns the number of lanes, which is a power of two.\nfn short() {}\n\n",
        "/// A row.\npub struct Row;\n\nconst TEXT: &str = \"\n/// What is no comment\n//",
        "...................................................................................................\n\";\n",
        "/// The code `a`.\n///\n/// | a table may be as wide as its cells are, and these are wide on purpose, as they are in tables |\n",
    );
    let source = Source::of(text);
    let lines = |is_fault: fn(&Doc) -> bool| -> Vec<usize> {
        source.docs.iter().filter(|doc| is_fault(doc)).map(|doc| doc.line).collect()
    };
    assert_eq!((lines(is_clause), lines(is_stub)), (vec![0], vec![5]));
    assert_eq!(source.types, [(6, "Row".to_string())]);
    assert!(source.comments.iter().all(|(_, columns)| *columns <= COLUMNS), "{:?}", source.comments);

    let lines = |filler: &str| format!("fn long() {{\n{}{filler}}}\nfn next() {{}}\n", "    step();\n".repeat(30));
    let functions = |text: &str| {
        let of = |each: &source::Function| (each.name.clone(), each.lines, each.has_empty_line);
        Source::of(text).functions.iter().map(of).collect::<Vec<_>>()
    };
    assert_eq!(functions(&lines(""))[0], ("long".to_string(), 31, false));
    assert_eq!(functions(&lines("\n"))[0], ("long".to_string(), 32, true));
    // A brace in a text does not end the function.
    assert_eq!(functions(&lines("    text(\"\n}\n\");\n"))[0], ("long".to_string(), 34, false));
}
