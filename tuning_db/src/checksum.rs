//! What tells whether a text of a file is still what was written: its FNV-1a hash in 16 hexadecimal digits.

use autotune_schedules::config::{FNV1A_START, fnv1a, fnv1a_step};

/// Texts whose hashes are computed side by side. A hash is a chain of multiplications, each of which waits for the one before: a core does as many of
/// several chains in the time of one.
pub(crate) const TOGETHER: usize = 4;

/// The checksum of a text.
pub(crate) fn checksum(text: &str) -> String {
    format!("{:016x}", fnv1a(text.as_bytes()))
}

/// The hashes of texts.
pub(crate) fn hashes(texts: [&[u8]; TOGETHER]) -> [u64; TOGETHER] {
    let common = texts.map(<[u8]>::len).into_iter().min().unwrap_or(0);
    let [a, b, c, d] = texts.map(|text| &text[..common]);
    let mut hashes = [FNV1A_START; TOGETHER];
    for (((&a, &b), &c), &d) in a.iter().zip(b).zip(c).zip(d) {
        for (hash, byte) in hashes.iter_mut().zip([a, b, c, d]) {
            *hash = fnv1a_step(*hash, byte);
        }
    }
    for (hash, text) in hashes.iter_mut().zip(texts) {
        *hash = text[common..].iter().fold(*hash, |hash, &byte| fnv1a_step(hash, byte));
    }
    hashes
}

/// True if these are a hash's digits.
pub(crate) fn tells(digits: &str, hash: u64) -> bool {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let wanted: [u8; 16] = std::array::from_fn(|at| DIGITS[(hash >> (60 - 4 * at) & 15) as usize]);
    digits.as_bytes() == wanted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_of_several_texts_are_those_of_each() {
        let text: Vec<u8> = (0..100u8).map(|i| i.wrapping_mul(89)).collect();
        for lens in [[0; 4], [1, 0, 7, 3], [100, 99, 98, 97], [5, 100, 100, 5], [40; 4]] {
            let texts = lens.map(|len| &text[100 - len..]);
            assert_eq!(hashes(texts), texts.map(fnv1a), "{lens:?}");
        }
    }

    #[test]
    fn digits_are_those_of_the_checksum_alone() {
        for text in ["", "a", "record"] {
            let (hash, digits) = (fnv1a(text.as_bytes()), checksum(text));
            assert!(tells(&digits, hash) && !tells(&digits, hash ^ 1), "{digits}");
            assert!(!tells(&digits.to_uppercase(), hash) && !tells(&digits[1..], hash), "{digits}");
        }
    }
}
