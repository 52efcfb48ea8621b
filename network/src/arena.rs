//! Placement of tensors in one block of memory, such that tensors share bytes if their lifetimes do
//! not overlap.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::ops::RangeInclusive;

/// Bytes of a tensor, and the steps during which it is live, both ends included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Need {
    pub(crate) bytes: usize,
    pub(crate) steps: RangeInclusive<usize>,
}

/// Maximum number of tensors placed by [`by_size`], which takes quadratic time.
const MOST_BY_SIZE: usize = 1 << 12;

/// Returns each tensor's offset, a multiple of `alignment`, and the total size in bytes; `None` on
/// overflow.
///
/// Up to [`MOST_BY_SIZE`] tensors are placed by size, which wastes less memory but takes quadratic
/// time; more are placed in order of use, in O(n log n).
pub(crate) fn offsets(needs: &[Need], alignment: usize) -> Option<(Vec<usize>, usize)> {
    match needs.iter().filter(|need| need.bytes > 0).count() <= MOST_BY_SIZE {
        true => by_size(needs, alignment),
        false => in_order(needs, alignment),
    }
}

/// Places tensors in order of decreasing size, each at the lowest offset where it overlaps no
/// tensor that is live at the same time. This is "greedy by size" of Pisarchyk and Lee, "Efficient
/// Memory Management for Deep Neural Net Inference" (2020), section 5.2.
fn by_size(needs: &[Need], alignment: usize) -> Option<(Vec<usize>, usize)> {
    let mut order: Vec<usize> = (0..needs.len()).filter(|&number| needs[number].bytes > 0).collect();
    order.sort_by_key(|&number| Reverse(needs[number].bytes));

    let (mut firsts, mut end) = (vec![0; needs.len()], 0);
    // Tensors already placed, sorted by offset.
    let mut placed: Vec<usize> = Vec::new();
    for number in order {
        let need = &needs[number];
        let bytes = need.bytes.checked_next_multiple_of(alignment)?;
        let mut first = 0;
        // Placed tensors are sorted by offset, so the first sufficient gap is the lowest.
        for &other in placed.iter().filter(|&&other| overlap(&needs[other].steps, &need.steps)) {
            if firsts[other] >= first + bytes {
                break;
            }
            first = first.max(firsts[other].checked_add(needs[other].bytes.next_multiple_of(alignment))?);
        }
        firsts[number] = first;
        end = end.max(first.checked_add(bytes)?);
        let at = placed.partition_point(|&other| firsts[other] <= first);
        placed.insert(at, number);
    }
    Some((firsts, end))
}

/// Places tensors in order of first use, each in the smallest free block that it fits in (best
/// fit).
fn in_order(needs: &[Need], alignment: usize) -> Option<(Vec<usize>, usize)> {
    let mut order: Vec<usize> = (0..needs.len()).filter(|&number| needs[number].bytes > 0).collect();
    order.sort_by_key(|&number| *needs[number].steps.start());

    let (mut firsts, mut free) = (vec![0; needs.len()], Free::default());
    // Live tensors by their last step.
    let mut needed: BinaryHeap<Reverse<(usize, usize)>> = BinaryHeap::new();
    for number in order {
        let need = &needs[number];
        // Tensors that are no longer live return their blocks.
        while let Some(&Reverse((last, other))) = needed.peek()
            && last < *need.steps.start()
        {
            needed.pop();
            free.give(firsts[other], needs[other].bytes.next_multiple_of(alignment));
        }
        firsts[number] = free.take(need.bytes.checked_next_multiple_of(alignment)?)?;
        needed.push(Reverse((*need.steps.end(), number)));
    }
    Some((firsts, free.end))
}

/// Free blocks of the arena, and its size.
#[derive(Default)]
struct Free {
    /// Sizes of free ranges in bytes, by offset.
    by_place: BTreeMap<usize, usize>,
    /// Pairs of size and offset, for best fit.
    by_size: BTreeSet<(usize, usize)>,
    /// Total size so far.
    end: usize,
}

impl Free {
    /// Allocates `bytes` from the smallest free block that is large enough, and returns the offset.
    /// If there is none, the total size grows; a free block at the end is used and extended.
    fn take(&mut self, bytes: usize) -> Option<usize> {
        if let Some(&(found, first)) = self.by_size.range((bytes, 0)..).next() {
            self.remove(first, found);
            if found > bytes {
                self.insert(first + bytes, found - bytes);
            }
            return Some(first);
        }

        // A free block at the end can grow.
        let last = self.by_place.last_key_value().map(|(&first, &found)| (first, found));
        let first = match last.filter(|(first, found)| first + found == self.end) {
            Some((first, found)) => {
                self.remove(first, found);
                first
            }
            None => self.end,
        };
        self.end = first.checked_add(bytes)?;
        Some(first)
    }

    /// Frees a block and merges it with adjacent free blocks.
    fn give(&mut self, mut first: usize, mut bytes: usize) {
        let before = self.by_place.range(..first).next_back().map(|(&at, &found)| (at, found));
        if let Some((at, found)) = before.filter(|(at, found)| at + found == first) {
            self.remove(at, found);
            (first, bytes) = (at, bytes + found);
        }
        if let Some(&found) = self.by_place.get(&(first + bytes)) {
            self.remove(first + bytes, found);
            bytes += found;
        }
        self.insert(first, bytes);
    }

    fn insert(&mut self, first: usize, bytes: usize) {
        self.by_place.insert(first, bytes);
        self.by_size.insert((bytes, first));
    }

    fn remove(&mut self, first: usize, bytes: usize) {
        self.by_place.remove(&first);
        self.by_size.remove(&(bytes, first));
    }
}

fn overlap(a: &RangeInclusive<usize>, b: &RangeInclusive<usize>) -> bool {
    a.start() <= b.end() && b.start() <= a.end()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::cases::for_cases;
    use rand::RngExt;

    #[test]
    fn simultaneous_values_do_not_overlap() {
        for_cases(200, |_, choices| {
            let count = choices.random_range(0..40);
            let need = |_| {
                let first = choices.random_range(0..30);
                Need { bytes: choices.random_range(0..1000), steps: first..=first + choices.random_range(0..8) }
            };
            let needs: Vec<Need> = (0..count).map(need).collect();
            for (firsts, end) in [by_size(&needs, 64).unwrap(), in_order(&needs, 64).unwrap()] {
                for (a, need) in needs.iter().enumerate() {
                    assert!(firsts[a].is_multiple_of(64) && firsts[a] + need.bytes <= end);
                    for (b, other) in needs.iter().enumerate().take(a) {
                        let apart = firsts[a] + need.bytes <= firsts[b] || firsts[b] + other.bytes <= firsts[a];
                        let is_nothing = need.bytes == 0 || other.bytes == 0;
                        let lives_with = overlap(&need.steps, &other.steps) && !is_nothing;
                        assert!(apart || !lives_with, "{a} and {b} of {needs:?}");
                    }
                }
            }
        });
    }

    /// Memory is reused, also in parts of blocks, for a hundred thousand tensors.
    #[test]
    fn many_tensors_share_memory() {
        let sizes = [64, 128, 640, 1280];
        let chain = |at: usize| Need { bytes: sizes[at % 4], steps: at..=at + 1 };
        let (firsts, end) = offsets(&(0..100_000).map(chain).collect::<Vec<_>>(), 64).unwrap();
        assert!(end <= 2 * (640 + 1280), "{end}");
        assert!(firsts.iter().all(|first| first + 64 <= end));

        let whole = |at: usize| Need { bytes: 64, steps: 0..=at };
        assert_eq!(offsets(&(0..100_000).map(whole).collect::<Vec<_>>(), 64).unwrap().1, 6_400_000);
    }

    #[test]
    fn a_chain_takes_its_two_largest_neighbours() {
        let sizes = [640, 128, 1280, 64, 320];
        let needs: Vec<Need> =
            sizes.iter().enumerate().map(|(step, &bytes)| Need { bytes, steps: step..=step + 1 }).collect();
        assert_eq!(offsets(&needs, 64).unwrap().1, 1280 + 128);
        assert_eq!(offsets(&[Need { bytes: usize::MAX, steps: 0..=0 }], 64), None);
    }
}
