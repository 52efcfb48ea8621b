//! Binary layout of a snapshot, see docs/snapshot.md: header, index, records, details, tables of
//! shapes. Numbers are little-endian.

use autotune_ir::{KeyParts, KeyScope};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// Magic number of snapshots of any format.
pub(super) const MAGIC: [u8; 8] = *b"autosnap";
/// Format version of the file. It is increased when an older version of this library would misread
/// it.
pub(super) const FORMAT: u32 = 3;

pub(super) const HEADER_BYTES: usize = 128;
/// Bytes of the header that its checksum, which follows them, covers.
const HEADER_CHECKED: usize = HEADER_BYTES - 8;

/// Bytes of a bucket of the index: one cache line of a CPU.
pub(super) const BUCKET_BYTES: usize = 64;
/// Slots per bucket, 8 bytes each; a checksum follows.
pub(super) const SLOTS: usize = 7;
const BUCKET_CHECKED: usize = 8 * SLOTS;
/// Average number of records per bucket.
pub(super) const RECORDS_PER_BUCKET: usize = 4;

/// Alignment of records and details in bytes.
pub(super) const ALIGNMENT: usize = 16;
/// Bytes of checksum and length before a block's content.
pub(super) const BLOCK_HEADER: usize = 12;

/// Bytes of a record before the text of its workload.
pub(super) const RECORD_FIELDS: usize = 48;
/// Flags of a record: measured in a race, imported.
pub(super) const RACED: u32 = 1;
pub(super) const IMPORTED: u32 = 2;

/// Header of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) record_version: u32,
    pub(super) schedules: u64,
    pub(super) buckets: u64,
    /// Most buckets that a look-up probes, beginning with the one that the hash selects.
    pub(super) max_probes: u64,
    pub(super) records_bytes: u64,
    pub(super) details_bytes: u64,
    pub(super) written_unix_secs: u64,
    /// Checksum of everything after the header.
    pub(super) body_checksum: u64,
    /// Bytes of the tables of shapes, and the offset of their directory.
    pub(super) near_bytes: u64,
    pub(super) directory_at: u64,
}

/// Reason that a header is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum HeaderFlaw {
    Magic,
    Format(u32),
    Corrupt(String),
}

impl Header {
    pub(super) fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.record_version.to_le_bytes());
        let numbers = [
            self.schedules,
            self.buckets,
            self.max_probes,
            self.records_bytes,
            self.details_bytes,
            self.written_unix_secs,
            self.body_checksum,
            self.near_bytes,
            self.directory_at,
        ];
        for (field, number) in bytes[16..].chunks_exact_mut(8).zip(numbers) {
            field.copy_from_slice(&number.to_le_bytes());
        }
        let sum = checksum(&bytes[..HEADER_CHECKED], 0);
        bytes[HEADER_CHECKED..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Parses the header of a whole file.
    pub(super) fn parse(file: &[u8]) -> Result<Self, HeaderFlaw> {
        let corrupt = |detail: &str| HeaderFlaw::Corrupt(detail.into());
        if !file.starts_with(&MAGIC) {
            return Err(HeaderFlaw::Magic);
        }
        let [format, record_version] = [8, 12].map(|at| u32_at(file, at));
        let (Some(format), Some(record_version)) = (format, record_version) else {
            return Err(corrupt("it ends within its header"));
        };
        if format != FORMAT {
            return Err(HeaderFlaw::Format(format));
        }
        let bytes = file.get(..HEADER_BYTES).ok_or_else(|| corrupt("it ends within its header"))?;
        if u64_at(bytes, HEADER_CHECKED) != Some(checksum(&bytes[..HEADER_CHECKED], 0)) {
            return Err(corrupt("its header is damaged"));
        }

        let number = |field: usize| u64_at(bytes, 16 + 8 * field).unwrap_or_default();
        let header = Self {
            record_version,
            schedules: number(0),
            buckets: number(1),
            max_probes: number(2),
            records_bytes: number(3),
            details_bytes: number(4),
            written_unix_secs: number(5),
            body_checksum: number(6),
            near_bytes: number(7),
            directory_at: number(8),
        };
        match header.file_bytes() {
            Some(bytes) if bytes == file.len() as u64 && header.buckets > 0 => Ok(header),
            Some(bytes) => Err(HeaderFlaw::Corrupt(format!("it has {} bytes, expected {bytes}", file.len()))),
            None => Err(corrupt("its header is invalid")),
        }
    }

    /// Returns the size of the whole file in bytes; `None` on overflow.
    pub(super) fn file_bytes(&self) -> Option<u64> {
        self.near_start()?.checked_add(self.near_bytes)
    }

    pub(super) fn records_start(&self) -> Option<u64> {
        self.buckets.checked_mul(BUCKET_BYTES as u64)?.checked_add(HEADER_BYTES as u64)
    }

    pub(super) fn details_start(&self) -> Option<u64> {
        self.records_start()?.checked_add(self.records_bytes)
    }

    pub(super) fn near_start(&self) -> Option<u64> {
        self.details_start()?.checked_add(self.details_bytes)
    }
}

/// Bucket of the index: references to records, most of which hash to this bucket.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bucket {
    /// Label and number of each record. The number is the record's offset in units of
    /// [`ALIGNMENT`], counted from 1; 0 marks free slots, which come last.
    pub(super) slots: [(KeyLabel, u32); SLOTS],
}

/// Compact fingerprint of the keys under which a record is served. It rules out nearly all wrong
/// records without reading them.
///
/// | bits | content |
/// |---|---|
/// | 0 to 3 | for each key scope, whether the record is served under it |
/// | 4 to 11, 12 to 15, 16 to 19 | lowest bits of the seeds of its machine, model and family key |
/// | 20 to 31 | lowest bits of the workload's hash |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct KeyLabel(pub(super) u32);

impl KeyLabel {
    const PLACE: u32 = 0xfff << 20;

    /// Returns the label of a workload's hash, without any key.
    pub(super) fn of(place: u64) -> Self {
        Self((place as u32) << 20)
    }

    /// Adds a key by its scope and seed.
    pub(super) fn with(self, reach: KeyScope, seed: u64) -> Self {
        let [bit, shift, low] = Self::of_reach(reach);
        Self(self.0 | bit | (seed as u32 & low) << shift)
    }

    /// Returns true if a record with this label may be served under the key that `sought` has, its
    /// only one.
    pub(super) fn serves(self, sought: Self, reach: KeyScope) -> bool {
        let [bit, shift, low] = Self::of_reach(reach);
        (self.0 ^ sought.0) & (Self::PLACE | bit | low << shift) == 0
    }

    /// Returns, for a key scope, its bit, and the shift and mask of its seed's bits.
    fn of_reach(reach: KeyScope) -> [u32; 3] {
        match reach {
            KeyScope::Machine => [1, 4, 0xff],
            KeyScope::Model => [2, 12, 0xf],
            KeyScope::Family => [4, 16, 0xf],
            KeyScope::Isa => [8, 0, 0],
        }
    }
}

impl Bucket {
    pub(super) fn to_bytes(self, number: u64) -> [u8; BUCKET_BYTES] {
        let mut bytes = [0; BUCKET_BYTES];
        for (field, (label, record)) in bytes.chunks_exact_mut(8).zip(self.slots) {
            field[..4].copy_from_slice(&label.0.to_le_bytes());
            field[4..].copy_from_slice(&record.to_le_bytes());
        }
        let sum = checksum(&bytes[..BUCKET_CHECKED], number);
        bytes[BUCKET_CHECKED..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Parses a bucket; `None` if its checksum does not match.
    pub(super) fn parse(file: &[u8], number: u64) -> Option<Self> {
        let start = usize::try_from(number).ok()?.checked_mul(BUCKET_BYTES)?.checked_add(HEADER_BYTES)?;
        let bytes: &[u8; BUCKET_BYTES] = file.get(start..)?.first_chunk()?;
        if u64_at(bytes, BUCKET_CHECKED)? != checksum(&bytes[..BUCKET_CHECKED], number) {
            return None;
        }
        let slot = |number: usize| Some((KeyLabel(u32_at(bytes, 8 * number)?), u32_at(bytes, 8 * number + 4)?));
        let mut bucket = Self::default();
        for (number, place) in bucket.slots.iter_mut().enumerate() {
            *place = slot(number)?;
        }
        Some(bucket)
    }
}

/// Appends an aligned block: checksum, length, content. Returns its offset; `None` if it is too
/// long.
pub(super) fn push_block(section: &mut Vec<u8>, content: &[u8]) -> Option<u64> {
    section.resize(section.len().next_multiple_of(ALIGNMENT), 0);
    let at = section.len();
    section.extend([0; 8]);
    section.extend(u32::try_from(content.len()).ok()?.to_le_bytes());
    section.extend(content);
    let sum = checksum(&section[at + 8..], at as u64);
    section[at..at + 8].copy_from_slice(&sum.to_le_bytes());
    Some(at as u64)
}

/// Returns the content of the block at an offset of a section; `None` if its checksum does not
/// match.
pub(super) fn block(section: &[u8], at: u64) -> Option<&[u8]> {
    let block = section.get(usize::try_from(at).ok()?..)?;
    let (sum, len) = (u64_at(block, 0)?, u32_at(block, 8)? as usize);
    let checked = block.get(8..BLOCK_HEADER.checked_add(len)?)?;
    (checksum(checked, at) == sum).then(|| &checked[4..])
}

/// Returns the 64-bit XXH3 hash of the bytes plus their position, so that a block copied to another
/// position does not match.
pub(super) fn checksum(bytes: &[u8], place: u64) -> u64 {
    xxh3_64(bytes).wrapping_add(place)
}

/// Returns a target's keys, narrowest scope first, with the seeds of their hashes.
pub(super) fn key_seeds(parts: KeyParts<'_>) -> impl Iterator<Item = (KeyScope, u64)> {
    KeyScope::ALL.into_iter().filter_map(move |reach| Some((reach, key_seed(&parts, reach)?)))
}

fn key_seed(parts: &KeyParts<'_>, reach: KeyScope) -> Option<u64> {
    let words = parts.words(reach)?;
    let start = match reach {
        KeyScope::Machine => 0,
        KeyScope::Model => 1,
        KeyScope::Family => 2,
        KeyScope::Isa => 3,
    };
    Some(words.iter().fold(start, |seed, word| xxh3_64_with_seed(word.as_bytes(), seed)))
}

/// Hashes a text of the index, such as a workload's, with the seed of a key.
pub(super) fn key_hash(seed: u64, text: &str) -> u64 {
    xxh3_64_with_seed(text.as_bytes(), seed)
}

/// Hashes a workload's text with the seed of the target's widest key.
pub(super) fn place(widest_seed: Option<u64>, workload: &str) -> u64 {
    key_hash(widest_seed.unwrap_or(0), workload)
}

/// Returns the first bucket of a hash. All keys of a target for a workload begin there, so that a
/// look-up usually needs one cache line, whichever key finds it.
pub(super) fn first_bucket(place: u64, buckets: u64) -> u64 {
    ((u128::from(place) * u128::from(buckets)) >> 64) as u64
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_back_and_fits_only_its_file() {
        let header = Header {
            record_version: 1,
            schedules: 3,
            buckets: 2,
            max_probes: 1,
            records_bytes: 32,
            details_bytes: 16,
            written_unix_secs: 1_760_000_000,
            body_checksum: 7,
            near_bytes: 48,
            directory_at: 16,
        };
        let mut file = header.to_bytes().to_vec();
        assert!(matches!(Header::parse(&file), Err(HeaderFlaw::Corrupt(_))));
        file.resize(128 + 2 * 64 + 32 + 16 + 48, 0);
        assert_eq!(Header::parse(&file), Ok(header));
        file.push(0);
        assert!(matches!(Header::parse(&file), Err(HeaderFlaw::Corrupt(_))));

        let huge = Header { buckets: u64::MAX / 64, records_bytes: u64::MAX, ..header };
        assert!(matches!(Header::parse(&huge.to_bytes()), Err(HeaderFlaw::Corrupt(_))));
    }

    #[test]
    fn blocks_are_read_back_only_where_they_were_written() {
        let mut section = Vec::new();
        let positions = ["", "a", "0123456789abcdefg"].map(|text| push_block(&mut section, text.as_bytes()).unwrap());
        assert_eq!(positions, [0, 16, 32]);
        assert_eq!(block(&section, 32), Some(&b"0123456789abcdefg"[..]));
        assert_eq!(block(&section[16..], 0), None);
        for at in [1, 8, 48, 1000, u64::MAX] {
            assert_eq!(block(&section, at), None, "{at}");
        }
    }

    /// The hash is part of the format: files already written must stay readable.
    #[test]
    fn hashes_are_those_of_the_format() {
        assert_eq!(xxh3_64(b""), 0x2d06_8005_38d3_94c2);
        assert_eq!(first_bucket(u64::MAX, 10), 9);
        assert_eq!(first_bucket(0, 10), 0);
    }
}
