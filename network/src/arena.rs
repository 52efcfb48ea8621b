//! Where tensors lie that do not live at the same time.

use std::ops::RangeInclusive;

/// Memory that is needed from one step to another, both included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Need {
    pub(crate) bytes: usize,
    pub(crate) steps: RangeInclusive<usize>,
}

/// Every tensor's first byte, a multiple of `alignment`, and how many bytes there are in all; `None` if that is too large a number.
///
/// The larger come first, each at the lowest place where it overlaps none that lives with it: Pisarchyk and Lee, "Efficient Memory Management
/// for Deep Neural Net Inference" (2020), section 5.2, greedy by size.
pub(crate) fn offsets(needs: &[Need], alignment: usize) -> Option<(Vec<usize>, usize)> {
    let mut order: Vec<usize> = (0..needs.len()).collect();
    order.sort_by_key(|&number| std::cmp::Reverse(needs[number].bytes));

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

fn overlap(a: &RangeInclusive<usize>, b: &RangeInclusive<usize>) -> bool {
    a.start() <= b.end() && b.start() <= a.end()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};

    #[test]
    fn what_lives_together_does_not_overlap() {
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(7);
        for round in 0..200 {
            let need = |_| {
                let first = rng.random_range(0..30);
                Need { bytes: rng.random_range(0..1000), steps: first..=first + rng.random_range(0..8) }
            };
            let needs: Vec<Need> = (0..round % 40).map(need).collect();
            let (firsts, end) = offsets(&needs, 64).unwrap();
            for (a, need) in needs.iter().enumerate() {
                assert!(firsts[a].is_multiple_of(64) && firsts[a] + need.bytes <= end);
                for (b, other) in needs.iter().enumerate().take(a) {
                    let apart = firsts[a] + need.bytes <= firsts[b] || firsts[b] + other.bytes <= firsts[a];
                    assert!(apart || !overlap(&need.steps, &other.steps), "round {round}: {a} and {b}");
                }
            }
        }
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
