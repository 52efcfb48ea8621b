//! Sizes of suites that take long.

use std::env;

/// The first of two sizes in an ordinary run, the second with `AUTOTUNE_LONG_TESTS=1` in the
/// environment.
pub fn or_long<T>([usual, long]: [T; 2]) -> T {
    if env::var_os("AUTOTUNE_LONG_TESTS").is_some_and(|value| value == "1") { long } else { usual }
}
