//! Questions to a collector and its answers: JSON objects, one a frame, after the greeting that
//! workers have, too.
//!
//! Every question may be asked again: a record that is stored twice is the same record, since
//! records are compared as a whole.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Most records in a question.
pub const MAX_RECORDS: usize = 1024;

/// Most bytes of records, or of a part of a snapshot, in a message. Encoded they are at most twice
/// as long, and shorter than [`crate::params::MAX_FRAME_BYTES`].
pub const MAX_PART_BYTES: usize = 400 << 10;

/// Hash of 128 bits (FNV-1a) of a record's line or of a snapshot, by which both sides compare what
/// they have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Fingerprint(u128);

impl Fingerprint {
    /// Returns the fingerprint of a content.
    pub fn of(content: &[u8]) -> Self {
        let step = |hash: u128, byte: &u8| (hash ^ u128::from(*byte)).wrapping_mul((1 << 88) + 0x13b);
        Self(content.iter().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, step))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl From<Fingerprint> for String {
    fn from(fingerprint: Fingerprint) -> Self {
        fingerprint.to_string()
    }
}

impl FromStr for Fingerprint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_hex = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = u128::from_str_radix(text, 16).ok().filter(|_| is_hex);
        number.map(Self).ok_or_else(|| format!("'{text}' is not a fingerprint"))
    }
}

impl TryFrom<String> for Fingerprint {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// Question, with the number that its answer has, too.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NumberedQuestion {
    /// Number of the question on its connection.
    pub number: u64,
    /// Content of the question.
    pub question: Question,
}

/// Question of a tuner or a follower to a collector.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Question {
    /// Records that the tuner has, answered by [`Answer::Lacking`].
    Offer {
        /// At most [`MAX_RECORDS`] fingerprints of lines.
        records: Vec<Fingerprint>,
    },
    /// Records to be stored, answered by [`Answer::Stored`] once they are durable.
    Store {
        /// At most [`MAX_RECORDS`] lines, as a database stores them.
        lines: Vec<String>,
    },
    /// Records of a task, answered by [`Answer::Records`].
    Recall {
        /// Key of the target.
        target: String,
        /// Workload in text form.
        workload: String,
        /// Position of the first record; 0 for all.
        from: u64,
    },
    /// Part of the present snapshot, answered by [`Answer::Snapshot`] or [`Answer::Current`].
    Snapshot {
        /// Snapshot that the follower has already.
        known: Option<Fingerprint>,
        /// Position of the first byte.
        from: u64,
    },
}

/// Answer, with the number of its question.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NumberedAnswer {
    /// Number of the question.
    pub number: u64,
    /// Content of the answer.
    pub answer: Answer,
}

/// Answer of a collector.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Answer {
    /// Records that the collector lacks.
    Lacking {
        /// Positions in the offer.
        positions: Vec<usize>,
    },
    /// Records that are durable now.
    Stored {
        /// Number of records that were new.
        new: usize,
        /// Number of lines that are no records of a measurement, with the reason for the first.
        refused: usize,
        /// Reason for the first refusal.
        reason: Option<String>,
    },
    /// Records of a task.
    Records {
        /// Lines in the order of storing.
        lines: Vec<String>,
        /// Position from which to ask for further records; `None` if there are none.
        next: Option<u64>,
    },
    /// Part of a snapshot.
    Snapshot {
        /// Fingerprint of the whole.
        snapshot: Fingerprint,
        /// Length of the whole in bytes.
        len: u64,
        /// Bytes from the position that was asked for on, two hexadecimal digits each.
        part: String,
    },
    /// The follower has the present snapshot, or there is none yet.
    Current,
    /// The question cannot be answered now, such as for lack of disk space.
    Failed {
        /// Reason for people.
        reason: String,
    },
}

/// Returns bytes as hexadecimal digits.
pub(crate) fn to_hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.map(|digit| DIGITS[usize::from(digit)] as char).collect()
}

/// Reads hexadecimal digits; `None` if the text is something else.
pub(crate) fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| (byte as char).to_digit(16).map(|digit| digit as u8);
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| Some(digit(pair[0])? << 4 | digit(*pair.get(1)?)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_are_those_of_fnv_1a() {
        assert_eq!(Fingerprint::of(b"").to_string(), "6c62272e07bb014262b821756295c58d");
        assert_eq!(Fingerprint::of(b"a").to_string(), "d228cb696f1a8caf78912b704e4a8964");
        let text = Fingerprint::of(b"a").to_string();
        assert_eq!(text.parse(), Ok(Fingerprint::of(b"a")));
        for bad in ["", "1", "+2345678901234567890123456789012", &format!("{text}0")] {
            assert!(bad.parse::<Fingerprint>().is_err(), "{bad}");
        }
    }

    #[test]
    fn bytes_are_read_back_from_hexadecimal_digits() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(from_hex(&to_hex(&bytes)), Some(bytes));
        assert_eq!([from_hex("0"), from_hex("0g"), from_hex("é")], [None, None, None]);
        assert_eq!(from_hex(""), Some(Vec::new()));
    }
}
