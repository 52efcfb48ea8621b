//! Keys of the storage engine: one ordered space, told apart by the first byte. Texts hold no NUL.
//!
//! ```text
//! r TARGET 0 WORKLOAD 0 place   -> the record, one line of JSON    (place: 8 bytes, big-endian, from 0 per task)
//! i TARGET 0 WORKLOAD 0         -> the task's index, JSON
//! c TARGET 0 WORKLOAD 0 hash    -> nothing; the config with this stable hash was measured
//! l hash                        -> key of the record whose line has this hash
//! ```

use autotune_schedules::Workload;

/// What a key leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Space {
    Record,
    Index,
    Config,
    Line,
}

impl Space {
    fn byte(self) -> u8 {
        match self {
            Space::Record => b'r',
            Space::Index => b'i',
            Space::Config => b'c',
            Space::Line => b'l',
        }
    }
}

/// Prefix of every key of a space. Ends in NUL so that no other key (`meta/...`) starts with it.
pub(crate) fn space(space: Space) -> Vec<u8> {
    vec![space.byte(), 0]
}

/// Prefix of every key of a target.
pub(crate) fn target(in_space: Space, target: &str) -> Vec<u8> {
    let mut key = space(in_space);
    key.extend_from_slice(target.as_bytes());
    key.push(0);
    key
}

/// Prefix of every key of a task, and the whole key of its index.
pub(crate) fn task(in_space: Space, target_key: &str, workload: &Workload) -> Vec<u8> {
    let mut key = target(in_space, target_key);
    key.extend_from_slice(workload.to_string().as_bytes());
    key.push(0);
    key
}

/// Key of one record (by place) or config (by hash) of a task.
pub(crate) fn member(in_space: Space, target: &str, workload: &Workload, number: u64) -> Vec<u8> {
    let mut key = task(in_space, target, workload);
    key.extend_from_slice(&number.to_be_bytes());
    key
}

/// Key under which a record is known by the hash of its line.
pub(crate) fn line(hash: u64) -> Vec<u8> {
    let mut key = space(Space::Line);
    key.extend_from_slice(&hash.to_be_bytes());
    key
}

/// Target and workload of the key of a task's index.
pub(crate) fn parse_task(key: &[u8]) -> Option<(String, Workload)> {
    let text = std::str::from_utf8(key.get(2..)?).ok()?;
    let (target, workload) = text.strip_suffix('\0')?.split_once('\0')?;
    Some((target.to_string(), workload.parse().ok()?))
}

/// The key in words, for messages.
pub(crate) fn readable(key: &[u8]) -> String {
    let mut parts = key.splitn(4, |&b| b == 0);
    let mut text = || String::from_utf8_lossy(parts.next().unwrap_or_default()).into_owned();
    let (kind, target, workload) = (text(), text(), text());
    let mut words = format!("{kind} {target} {workload}").trim_end().to_string();
    if let Some(place) = parts.next().and_then(|n| <[u8; 8]>::try_from(n).ok()) {
        words += &format!(" #{}", u64::from_be_bytes(place));
    }
    words
}
