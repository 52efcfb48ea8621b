//! Search for the most similar workloads in a snapshot. For each key, operator and element type
//! there is a table of [shape vectors](Workload::shape_vector), and a directory of the tables.

use std::cmp::Ordering;

use autotune_ir::KeyScope;
use autotune_workloads::{Workload, shape_distance};

use super::layout::{self, u32_at, u64_at};
use super::{Entry, KeyChain, Snapshot};
use crate::error::SnapshotError;

/// Maximum number of workloads in a table; of more workloads, it has a sample.
pub(super) const MAX_ROWS: usize = 2048;

/// Bytes of a row of the directory: a table's hash and its offset.
const DIRECTORY_ROW: usize = 16;

/// Returns the text that the workloads of one table share, in addition to the key: operator and
/// element type.
pub(super) fn group_of(workload: &Workload) -> String {
    format!("{} {}", workload.operator().kind().name, workload.dtype().word())
}

/// Returns the content of a table: the number of columns, then rows of a record's number and its
/// workload's shape vector. Omits rows of another length than the first.
pub(super) fn table(rows: &[(u32, Vec<f32>)]) -> Vec<u8> {
    let columns = rows.first().map_or(0, |(_, vector)| vector.len());
    let mut content = (columns as u32).to_le_bytes().to_vec();
    for (number, vector) in rows.iter().filter(|(_, vector)| vector.len() == columns) {
        content.extend(number.to_le_bytes());
        content.extend(vector.iter().flat_map(|value| value.to_le_bytes()));
    }
    content
}

/// Returns the content of the directory: hashes and offsets of tables, sorted by hash.
pub(super) fn directory(tables: &[(u64, u64)]) -> Vec<u8> {
    tables.iter().flat_map(|(hash, at)| [hash.to_le_bytes(), at.to_le_bytes()]).flatten().collect()
}

/// Parsed view of a table.
struct NearTable<'a> {
    columns: usize,
    rows: &'a [u8],
}

impl<'a> NearTable<'a> {
    fn parse(content: &'a [u8]) -> Option<Self> {
        let columns = usize::try_from(u32_at(content, 0)?).ok()?;
        let rows = content.get(4..)?;
        let is_whole = rows.len().is_multiple_of(columns.checked_add(1)?.checked_mul(4)?);
        is_whole.then_some(Self { columns, rows })
    }

    /// Iterates over the records' numbers and their workloads' shape vectors.
    fn rows(&self) -> impl Iterator<Item = (u32, impl Iterator<Item = f32> + 'a)> {
        let word = |word: &[u8]| u32_at(word, 0).unwrap_or_default();
        self.rows.chunks_exact(4 * (self.columns + 1)).map(move |row| {
            let (number, vector) = row.split_at(4);
            (word(number), vector.chunks_exact(4).map(move |value| f32::from_bits(word(value))))
        })
    }

    /// Returns the numbers of the `n` records with the nearest shapes, nearest first; empty if the
    /// vectors have another length.
    fn nearest(&self, to: &[f32], n: usize) -> Vec<u32> {
        if self.columns != to.len() || n == 0 {
            return Vec::new();
        }
        let mut vector = Vec::with_capacity(to.len());
        let distance = |(number, row)| {
            vector.clear();
            vector.extend(row);
            (shape_distance(&vector, to), number)
        };
        let mut rows: Vec<(f32, u32)> = self.rows().map(distance).collect();

        let order = |a: &(f32, u32), b: &(f32, u32)| -> Ordering { a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)) };
        if rows.len() > n {
            rows.select_nth_unstable_by(n - 1, order);
            rows.truncate(n);
        }
        rows.sort_unstable_by(order);
        rows.into_iter().map(|(_, number)| number).collect()
    }
}

/// Finds the offset of the table of a hash by binary search.
fn find(directory: &[u8], hash: u64) -> Option<u64> {
    let row = |number: usize| u64_at(directory, number * DIRECTORY_ROW);
    let (mut low, mut high) = (0, directory.len() / DIRECTORY_ROW);
    while low < high {
        let middle = (low + high) / 2;
        match row(middle)?.cmp(&hash) {
            Ordering::Less => low = middle + 1,
            Ordering::Equal => return u64_at(directory, middle * DIRECTORY_ROW + 8),
            Ordering::Greater => high = middle,
        }
    }
    None
}

impl Snapshot {
    /// Returns the schedules of at most `n` most similar workloads with the same operator and
    /// element type: narrowest key scope first, then nearest shape ([`Workload::distance`]).
    ///
    /// For a key, operator and element type with more than 2048 workloads the result is the nearest
    /// of a sample of 2048.
    ///
    /// # Errors
    /// [`Corrupt`](SnapshotError::Corrupt) if a table or record that is read is damaged.
    pub fn nearest(&self, keys: &KeyChain, workload: &Workload, n: usize) -> Result<Vec<Entry<'_>>, SnapshotError> {
        let group = group_of(workload);
        let directory = self.near_block(self.header.directory_at)?;
        let mut nearest: Vec<Entry<'_>> = Vec::new();
        for key in &keys.keys {
            let Some(at) = find(directory, layout::key_hash(key.seed, &group)) else { continue };
            // Ask for more than `n`: some of them may already be found under a narrower key.
            for number in self.table(at)?.nearest(workload.shape_vector(), n + nearest.len()) {
                if nearest.len() >= n {
                    return Ok(nearest);
                }
                let entry = self.row_entry(number, at, key.reach, key.is_of_target)?;
                let is_new = nearest.iter().all(|known| known.workload() != entry.workload());
                if is_new && key.matches(entry.target()) {
                    nearest.push(entry);
                }
            }
        }
        Ok(nearest)
    }

    fn table(&self, at: u64) -> Result<NearTable<'_>, SnapshotError> {
        NearTable::parse(self.near_block(at)?).ok_or_else(|| self.corrupt_table(at))
    }

    /// Reads the schedule of a table's row. `number` is the record's, counted from 1.
    fn row_entry(&self, number: u32, table_at: u64, reach: KeyScope, is_own: bool) -> Result<Entry<'_>, SnapshotError> {
        if number == 0 {
            return Err(self.corrupt_table(table_at));
        }
        Entry::of(self, number, reach, is_own)
    }

    fn corrupt_table(&self, at: u64) -> SnapshotError {
        self.corrupt(format!("the table of shapes at {at}"))
    }

    /// Fails if a row of a table does not match its record.
    pub(super) fn check_tables(&self) -> Result<(), SnapshotError> {
        let directory = self.near_block(self.header.directory_at)?;
        for row in directory.chunks_exact(DIRECTORY_ROW) {
            let at = u64_at(row, 8).unwrap_or_default();
            for (number, vector) in self.table(at)?.rows() {
                // Only the workload is compared, so any scope will do.
                let entry = self.row_entry(number, at, KeyScope::Machine, true)?;
                let Ok(workload) = entry.workload().parse::<Workload>() else { continue };
                if !vector.eq(workload.shape_vector().iter().copied()) {
                    return Err(self.corrupt_table(at));
                }
            }
        }
        Ok(())
    }

    /// Returns the content of the block of tables at an offset in its section.
    fn near_block(&self, at: u64) -> Result<&[u8], SnapshotError> {
        let (start, end) = (self.header.near_start(), self.header.file_bytes());
        self.block(start, end, at).ok_or_else(|| self.corrupt_table(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_rows_come_first_and_only_whole_tables_are_read() {
        let rows = [(7, vec![0.0, 3.0]), (5, vec![1.0, 1.0]), (9, vec![0.5, 0.5]), (4, vec![1.0]), (3, vec![0.5, 0.5])];
        let content = table(&rows);
        let read = NearTable::parse(&content).unwrap();
        assert_eq!(read.rows().map(|(number, _)| number).collect::<Vec<_>>(), [7, 5, 9, 3]);
        assert_eq!(read.nearest(&[0.0, 0.0], 3), [3, 9, 5]);
        assert_eq!(read.nearest(&[0.0, 0.0], 9), [3, 9, 5, 7]);
        assert!(read.nearest(&[0.0], 9).is_empty() && read.nearest(&[0.0, 0.0], 0).is_empty());
        assert!((0..content.len()).all(|len| len % 12 == 4 || NearTable::parse(&content[..len]).is_none()));
        assert!(NearTable::parse(&u32::MAX.to_le_bytes()).is_some(), "no rows of any width");
    }

    #[test]
    fn tables_are_found_by_their_hashes() {
        let tables: Vec<(u64, u64)> = (0..9).map(|i| (10 * i, i)).collect();
        let content = directory(&tables);
        assert!(tables.iter().all(|&(hash, at)| find(&content, hash) == Some(at)));
        assert!([5, 85, u64::MAX].iter().all(|&hash| find(&content, hash).is_none()));
        assert_eq!(find(&[], 0), None);
    }
}
