//! Formatting of names and lists from files for messages: on one line and of limited length.

use std::fmt::{self, Debug, Display, Formatter, Write};

/// Maximum number of characters of a name.
const LONGEST_NAME: usize = 120;

/// Number of characters after which a list is truncated.
const LONGEST_LIST: usize = 120;

/// Returns a name on one line, truncated after 120 characters.
pub fn printable(name: &str) -> String {
    // Most names need no change.
    if name.len() <= LONGEST_NAME && name.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return name.into();
    }
    let mut shown: String = visible(name).take(LONGEST_NAME).collect();
    if name.chars().nth(LONGEST_NAME).is_some() {
        shown.push_str("..");
    }
    shown
}

/// Replaces the control characters of a name.
pub(crate) fn visible(name: &str) -> impl Iterator<Item = char> + '_ {
    name.chars().map(|c| if c.is_control() { '?' } else { c })
}

/// Formats a list on one line: `[1, 2, 3]` by its `Debug`, `a, b, c` by its `Display`. A long list
/// is truncated, with the number of its elements.
///
/// ```
/// use autotune_graph::listed;
/// assert_eq!(format!("{:?}", listed(&[1, 224, 224])), "[1, 224, 224]");
/// assert_eq!(listed(&["mask", "image"]).to_string(), "mask, image");
/// assert!(format!("{:?}", listed(&[0; 1000])).ends_with(", .. 1000 in total]"));
/// ```
pub fn listed<T>(elements: &[T]) -> Listed<'_, T> {
    Listed(elements)
}

/// A list formatted for messages ([`listed`]).
pub struct Listed<'a, T>(&'a [T]);

impl<T> Listed<'_, T> {
    fn write(&self, f: &mut Formatter, element: impl Fn(&T, &mut String) -> fmt::Result) -> fmt::Result {
        let mut text = String::new();
        for (number, item) in self.0.iter().enumerate() {
            if text.len() > LONGEST_LIST {
                write!(text, ", .. {} in total", self.0.len())?;
                break;
            }
            text.push_str(if number == 0 { "" } else { ", " });
            element(item, &mut text)?;
        }
        f.write_str(&text)
    }
}

impl<T: Debug> Debug for Listed<'_, T> {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        f.write_char('[')?;
        self.write(f, |item, text| write!(text, "{item:?}"))?;
        f.write_char(']')
    }
}

impl<T: AsRef<str>> Display for Listed<'_, T> {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        self.write(f, |item, text| text.write_str(&printable(item.as_ref())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_lists_are_a_line() {
        assert_eq!(printable("a\n\u{1b}[31mb"), "a??[31mb");
        let long = printable(&"\u{e9}".repeat(1_000_000));
        assert_eq!((long.chars().count(), long.ends_with("\u{e9}..")), (122, true));

        let empty: [usize; 0] = [];
        assert_eq!(format!("{:?}", listed(&empty)), "[]");
        assert_eq!(format!("{:?}", listed(&[1.0, 0.5])), "[1.0, 0.5]");
        assert_eq!(listed(&["x\t", "y"]).to_string(), "x?, y");
        for text in [format!("{:?}", listed(&[7; 1_000_000])), listed(&vec!["n".repeat(1000); 500]).to_string()] {
            assert!(text.len() < 300 && !text.contains('\n'), "{text}");
        }
    }
}
