//! A Rust file as its comments, functions and types.

use crate::literals::lines_in_literals;

/// Comments, functions and types of a file; lines are counted from 0.
#[derive(Default)]
pub(crate) struct Source {
    pub(crate) docs: Vec<Doc>,
    /// Line and width of each line that is a comment, without tables, formulas and code.
    pub(crate) comments: Vec<(usize, usize)>,
    pub(crate) functions: Vec<Function>,
    /// Line and name of each struct, enum and trait.
    pub(crate) types: Vec<(usize, String)>,
}

/// A documentation comment, with all its lines joined.
pub(crate) struct Doc {
    pub(crate) line: usize,
    pub(crate) text: String,
    /// True if it begins with `//!`.
    pub(crate) is_of_module: bool,
}

/// A function with a body of several lines.
pub(crate) struct Function {
    pub(crate) line: usize,
    pub(crate) name: String,
    /// Lines from its first to the one that closes it, without that.
    pub(crate) lines: usize,
    pub(crate) has_empty_line: bool,
}

impl Source {
    /// Reads a file that is formatted by rustfmt.
    pub(crate) fn of(text: &str) -> Self {
        let in_literal = lines_in_literals(text);
        let lines: Vec<&str> = text.lines().collect();
        let mut source = Self::default();
        source.read_comments(&lines, &in_literal);
        source.read_items(&lines, &in_literal);
        source
    }

    fn read_comments(&mut self, lines: &[&str], in_literal: &[bool]) {
        let mut open: Option<(&str, bool)> = None;
        for (number, line) in lines.iter().enumerate() {
            let marker = ["///", "//!", "//"].into_iter().find(|marker| line.trim_start().starts_with(marker));
            let Some(marker) = marker.filter(|_| !in_literal[number]) else {
                open = None;
                continue;
            };
            let text = line.trim_start()[marker.len()..].trim();
            let (is_first, mut is_code) = match open {
                Some((before, is_code)) if before == marker => (false, is_code),
                _ => (true, false),
            };

            if is_first && marker != "//" {
                let more = lines[number + 1..].iter().map_while(|next| next.trim_start().strip_prefix(marker));
                let doc = more.fold(text.to_string(), |doc, next| doc + " " + next.trim());
                let text = doc.trim_end().to_string();
                self.docs.push(Doc { line: number, text, is_of_module: marker == "//!" });
            }
            let is_fence = text.starts_with("```");
            let is_formula = text.starts_with('`') && text.ends_with('`');
            if !is_code && !is_fence && !is_formula && !text.starts_with('|') {
                self.comments.push((number, line.chars().count()));
            }
            is_code ^= is_fence;
            open = Some((marker, is_code));
        }
    }

    fn read_items(&mut self, lines: &[&str], in_literal: &[bool]) {
        for (number, line) in lines.iter().enumerate().filter(|(number, _)| !in_literal[*number]) {
            let code = line.trim_start();
            let words: Vec<&str> = code.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
            let before = |at: usize| words[..at].iter().all(|word| QUALIFIERS.contains(word));
            let Some(at) = words.iter().position(|word| !QUALIFIERS.contains(word)).filter(|&at| before(at)) else {
                continue;
            };
            let Some(name) = words.get(at + 1).map(|name| name.to_string()).filter(|name| !name.is_empty()) else {
                continue;
            };

            match words[at] {
                "struct" | "enum" | "trait" => self.types.push((number, name)),
                "fn" => {
                    let end = format!("{}}}", &line[..line.len() - code.len()]);
                    let rest = lines[number..].iter().zip(&in_literal[number..]);
                    let body = rest.take_while(|(line, in_literal)| **in_literal || !line.starts_with(&end));
                    let has_empty_line = body.clone().any(|(line, _)| line.trim().is_empty());
                    let lines = if line.ends_with(['}', ';']) { 1 } else { body.count() };
                    self.functions.push(Function { line: number, name, lines, has_empty_line });
                }
                _ => {}
            }
        }
    }
}

/// Words before the keyword of an item.
const QUALIFIERS: [&str; 11] = ["pub", "crate", "super", "in", "const", "unsafe", "async", "extern", "C", "", "self"];
