//! Numbers of things in the order in which they are first met.

/// Finds what was met before by hashes; the things themselves are kept by whoever numbers them.
#[derive(Default)]
pub(super) struct Numbers {
    /// A round and the number that was given in it. The length is a power of two, and at most half of it is in use.
    slots: Vec<(u32, u32)>,
    round: u32,
    count: u32,
}

impl Numbers {
    /// Starts again at 0.
    pub(super) fn clear(&mut self) {
        self.count = 0;
        self.round = self.round.wrapping_add(1);
        if self.round == 0 {
            self.slots.fill((0, 0));
            self.round = 1;
        }
    }

    /// The number of what has this hash, `is` telling if it is what has another number; the next number if there is none.
    /// `hash_of` is the hash of what has a number.
    pub(super) fn number(&mut self, hash: u64, is: impl Fn(u32) -> bool, hash_of: impl Fn(u32) -> u64) -> u32 {
        if self.slots.len() <= 2 * self.count as usize {
            let len = (4 * self.count as usize).next_power_of_two().max(64);
            self.slots = vec![(self.round.wrapping_sub(1), 0); len];
            for number in 0..self.count {
                let at = self.find(hash_of(number), |_| false);
                self.slots[at] = (self.round, number);
            }
        }
        let at = self.find(hash, is);
        if self.slots[at].0 != self.round {
            self.slots[at] = (self.round, self.count);
            self.count += 1;
        }
        self.slots[at].1
    }

    /// The slot of what has this hash, or a free one.
    fn find(&self, hash: u64, is: impl Fn(u32) -> bool) -> usize {
        let mask = self.slots.len() - 1;
        // Fibonacci hashing (Knuth, "The art of computer programming", volume 3, section 6.4).
        let mut at = (hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & mask;
        while self.slots[at].0 == self.round && !is(self.slots[at].1) {
            at = (at + 1) & mask;
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    #[test]
    fn equal_things_have_equal_numbers_in_every_round() {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let mut numbers = Numbers::default();
        for round in 0..50 {
            numbers.clear();
            let mut known: Vec<u64> = Vec::new();
            for _ in 0..rng.random_range(0..400) {
                let thing = rng.random_range(0..300u64);
                // Few hashes, so that many things have the same.
                let hash = |thing: u64| thing % 70;
                let of = |number: u32| hash(known[number as usize]);
                let number = numbers.number(hash(thing), |number| known[number as usize] == thing, of) as usize;
                let expected = known.iter().position(|&k| k == thing).unwrap_or(known.len());
                assert_eq!(number, expected, "round {round}");
                if number == known.len() {
                    known.push(thing);
                }
            }
        }
    }
}
