//! Where tensors lie that do not live at the same time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::ops::RangeInclusive;

/// Memory that is needed from one step to another, both included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Need {
    pub(crate) bytes: usize,
    pub(crate) steps: RangeInclusive<usize>,
}

/// Tensors that are placed by size, at most: each is compared with all that have a place.
const MOST_BY_SIZE: usize = 1 << 12;

/// Every tensor's first byte, a multiple of `alignment`, and how many bytes there are in all;
/// `None` if that is too large a number.
///
/// Takes time in proportion to the number of tensors, up to a logarithm, for any number of them.
pub(crate) fn offsets(needs: &[Need], alignment: usize) -> Option<(Vec<usize>, usize)> {
    match needs.iter().filter(|need| need.bytes > 0).count() <= MOST_BY_SIZE {
        true => by_size(needs, alignment),
        false => in_order(needs, alignment),
    }
}

/// The larger come first, each at the lowest place where it overlaps none that lives with it:
/// Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference" (2020), section
/// 5.2, greedy by size.
fn by_size(needs: &[Need], alignment: usize) -> Option<(Vec<usize>, usize)> {
    let mut order: Vec<usize> = (0..needs.len()).filter(|&number| needs[number].bytes > 0).collect();
    order.sort_by_key(|&number| Reverse(needs[number].bytes));

    let (mut firsts, mut end) = (vec![0; needs.len()], 0);
    // Those that have a place, by where it begins.
    let mut placed: Vec<usize> = Vec::new();
    for number in order {
        let need = &needs[number];
        let bytes = need.bytes.checked_next_multiple_of(alignment)?;
        let mut first = 0;
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

/// In the order in which they are first needed, each in the smallest free piece that it fits in.
fn in_order(needs: &[Need], alignment: usize) -> Option<(Vec<usize>, usize)> {
    let mut order: Vec<usize> = (0..needs.len()).filter(|&number| needs[number].bytes > 0).collect();
    order.sort_by_key(|&number| *needs[number].steps.start());

    let (mut firsts, mut free) = (vec![0; needs.len()], Free::default());
    // Those that are needed, by the last step at which they are.
    let mut needed: BinaryHeap<Reverse<(usize, usize)>> = BinaryHeap::new();
    for number in order {
        let need = &needs[number];
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

/// Pieces of memory that nothing lies in.
#[derive(Default)]
struct Free {
    /// Their bytes by their first byte.
    by_place: BTreeMap<usize, usize>,
    /// Bytes and first byte.
    by_size: BTreeSet<(usize, usize)>,
    /// Bytes of all memory.
    end: usize,
}

impl Free {
    /// The first byte of the smallest piece of at least as many bytes; memory grows where there is
    /// none.
    fn take(&mut self, bytes: usize) -> Option<usize> {
        if let Some(&(found, first)) = self.by_size.range((bytes, 0)..).next() {
            self.remove(first, found);
            if found > bytes {
                self.insert(first + bytes, found - bytes);
            }
            return Some(first);
        }

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

    /// Joins a piece with those beside it.
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
    fn what_lives_together_does_not_overlap() {
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

    /// Of a hundred thousand tensors, too, memory is used again, whole and in pieces.
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
