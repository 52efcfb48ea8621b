//! Checksums of texts in files: XXH3 with 64 bits, as 16 hexadecimal digits. Earlier versions wrote
//! FNV-1a hashes, which are still accepted.

use autotune_schedules::config::fnv1a;
use xxhash_rust::xxh3::xxh3_64;

/// Returns the checksum of a text.
pub(crate) fn checksum(text: &str) -> String {
    format!("{:016x}", xxh3_64(text.as_bytes()))
}

/// Returns true if `digits` is the text's checksum, of this version or an earlier one.
pub(crate) fn is_checksum(digits: &str, text: &[u8]) -> bool {
    matches(digits, xxh3_64(text)) || matches(digits, fnv1a(text))
}

/// Returns true if `digits` is the hash in 16 lower-case hexadecimal digits.
fn matches(digits: &str, hash: u64) -> bool {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let wanted: [u8; 16] = std::array::from_fn(|at| DIGITS[(hash >> (60 - 4 * at) & 15) as usize]);
    digits.as_bytes() == wanted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_those_of_the_checksum_alone() {
        for text in ["", "a", "record"] {
            let earlier = format!("{:016x}", fnv1a(text.as_bytes()));
            for digits in [checksum(text), earlier] {
                assert!(is_checksum(&digits, text.as_bytes()) && !is_checksum(&digits, b"another"), "{digits}");
                assert!(!is_checksum(&digits.to_uppercase(), text.as_bytes()), "{digits}");
                assert!(!is_checksum(&digits[1..], text.as_bytes()), "{digits}");
            }
        }
        assert_eq!(checksum(""), "2d06800538d394c2", "of the specification");
    }
}
