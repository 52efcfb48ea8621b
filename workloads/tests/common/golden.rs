//! Comparison of texts with files under `tests/golden` of the crate under test.

use std::path::Path;
use std::{env, fs};

/// Asserts that `text` is the content of `tests/golden/{name}`. With `UPDATE_GOLDEN=1` in the
/// environment, writes the file instead.
pub fn assert_golden(name: &str, text: &str) {
    assert_golden_lines(name, text, |_| true);
}

/// Compares text with some lines of a golden file; `UPDATE_GOLDEN=1` writes the text as the whole
/// file.
pub fn assert_golden_lines(name: &str, text: &str, is_compared: impl Fn(&str) -> bool) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if env::var_os("UPDATE_GOLDEN").is_some_and(|value| value == "1") {
        fs::write(&path, text).unwrap();
        return;
    }
    let wanted =
        fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e} (UPDATE_GOLDEN=1 writes it)", path.display()));
    let wanted: String = wanted.split_inclusive('\n').filter(|line| is_compared(line)).collect();
    if text != wanted {
        let line = text.lines().zip(wanted.lines()).take_while(|(a, b)| a == b).count();
        panic!(
            "{} differs from line {} on (UPDATE_GOLDEN=1 rewrites it)\n  golden: {:?}\n  actual: {:?}",
            path.display(),
            line + 1,
            wanted.lines().nth(line),
            text.lines().nth(line)
        );
    }
}
