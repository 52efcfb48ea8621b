//! Look-up of a schedule: the keys of a target, and the positions of their records.

use autotune_ir::{KeyParts, KeyScope};

use super::layout::{self, Bucket, KeyLabel};
use super::{Entry, Snapshot};
use crate::error::SnapshotError;

/// Keys under which a target's schedules are looked up, narrowest scope first: its own key, then
/// those of less and less similar machines. Construct it once to make look-ups cheap.
#[derive(Clone, Debug)]
pub struct KeyChain {
    pub(super) keys: Vec<ChainKey>,
}

#[derive(Clone, Debug)]
pub(super) struct ChainKey {
    pub(super) reach: KeyScope,
    pub(super) seed: u64,
    words: [String; 4],
    /// True if records found by this key count as the target's own.
    pub(super) is_of_target: bool,
}

impl ChainKey {
    pub(super) fn matches(&self, target: &str) -> bool {
        match self.reach {
            KeyScope::Machine => self.words[0] == target,
            reach => KeyParts::of(target).words(reach).is_some_and(|words| self.words == words),
        }
    }
}

impl KeyChain {
    /// Derives the keys from a target's [key](autotune_ir::Target::key).
    pub fn of(key: &str) -> Self {
        let parts = KeyParts::of(key);
        let chain_key = |(reach, seed)| {
            let words = parts.words(reach)?;
            Some(ChainKey { reach, seed, words: words.map(str::to_string), is_of_target: parts.owns(reach) })
        };
        Self { keys: layout::key_seeds(parts).filter_map(chain_key).collect() }
    }

    /// Returns the hash of a workload that determines its first bucket.
    fn place(&self, workload: &str) -> u64 {
        layout::place(self.keys.last().map(|key| key.seed), workload)
    }
}

impl Snapshot {
    /// Looks up the schedule of a workload's text under the narrowest key that has one;
    /// [`Entry::key_scope`] tells the scope of that key.
    ///
    /// # Errors
    /// [`Corrupt`](SnapshotError::Corrupt) if what it was looked up in is not what was written.
    pub fn get<'a>(&'a self, keys: &KeyChain, workload: &str) -> Result<Option<Entry<'a>>, SnapshotError> {
        self.entries(keys, workload)?.next().transpose()
    }

    /// Looks up the schedules of a workload's text under every key that has one, narrowest scope
    /// first.
    ///
    /// # Errors
    /// As of [`get`](Self::get).
    pub fn entries<'a>(
        &'a self,
        keys: &KeyChain,
        workload: &str,
    ) -> Result<impl Iterator<Item = Result<Entry<'a>, SnapshotError>>, SnapshotError> {
        // All keys of a target probe from the same bucket on.
        let place = keys.place(workload);
        let number = layout::first_bucket(place, self.header.buckets);
        let first = (number, self.bucket(number)?);
        Ok(keys.keys.iter().filter_map(move |key| self.probe(key, place, first, workload).transpose()))
    }

    /// Looks up the schedule under one key, probing from the bucket `first` on.
    fn probe(
        &self,
        key: &ChainKey,
        place: u64,
        first: (u64, Bucket),
        workload: &str,
    ) -> Result<Option<Entry<'_>>, SnapshotError> {
        let (sought, (mut number, mut bucket)) = (KeyLabel::of(place).with(key.reach, key.seed), first);
        let mut left = self.header.max_probes.min(self.header.buckets);
        loop {
            for (label, record) in bucket.slots {
                if record == 0 {
                    return Ok(None);
                }
                if label.serves(sought, key.reach) {
                    let entry = Entry::of(self, record, key.reach, key.is_of_target)?;
                    if entry.workload() == workload && key.matches(entry.target()) {
                        return Ok(Some(entry));
                    }
                }
            }

            left = left.saturating_sub(1);
            if left == 0 {
                return Ok(None);
            }
            number = (number + 1) % self.header.buckets;
            bucket = self.bucket(number)?;
        }
    }
}
