//! Literals and block comments of Rust files, whose lines are not code.

/// Returns for each line whether it begins within a literal or a block comment.
pub(crate) fn lines_in_literals(text: &str) -> Vec<bool> {
    let bytes = text.as_bytes();
    let mut begins = vec![false];
    let (mut at, mut is_word) = (0, false);
    while at < bytes.len() {
        let rest = &text[at..];
        let (len, is_literal) = match bytes[at] {
            b'/' if rest.starts_with("//") => (rest.find('\n').unwrap_or(rest.len()), false),
            b'/' if rest.starts_with("/*") => (rest.find("*/").map_or(rest.len(), |end| end + 2), true),
            b'r' if !is_word && raw_len(rest).is_some() => (raw_len(rest).unwrap_or(1), true),
            b'"' => (quoted_len(rest), true),
            b'\'' => (char_len(rest), false),
            _ => (rest.chars().next().map_or(1, char::len_utf8), false),
        };
        let part = &text[at..at + len];
        begins.extend(part.matches('\n').map(|_| is_literal));
        is_word = part.ends_with(|c: char| c.is_alphanumeric() && c != 'b' && c != 'c' || c == '_');
        at += len;
    }
    begins
}

/// Returns the bytes of a raw string that a text begins with.
fn raw_len(text: &str) -> Option<usize> {
    let hashes = text[1..].bytes().take_while(|byte| *byte == b'#').count();
    let inner = text[1 + hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    Some(1 + hashes + 1 + inner.find(&end)? + end.len())
}

/// Returns the bytes of a string that a text begins with.
fn quoted_len(text: &str) -> usize {
    let mut is_escaped = false;
    let end = text[1..].bytes().position(|byte| {
        let is_end = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        is_end
    });
    end.map_or(text.len(), |end| end + 2)
}

/// Returns the bytes of a character that a text begins with, or 1 for a lifetime.
fn char_len(text: &str) -> usize {
    let inner = &text[1..];
    let first = inner.chars().next().map_or(0, char::len_utf8);
    match inner.strip_prefix('\\') {
        // The escaped character may be a quote.
        Some(escaped) => escaped.get(1..).and_then(|rest| rest.find('\'')).map_or(1, |end| end + 4),
        None if inner[first..].starts_with('\'') && first > 0 => first + 2,
        None => 1,
    }
}
