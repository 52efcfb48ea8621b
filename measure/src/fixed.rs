//! Elements that kernels read and none may write: operands, and what was packed ahead of time.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::buffers::{GUARD, GUARD_BITS, Memory, NoMemory};
use crate::team::Team;

/// Elements of a block, the unit in which the team reads them.
const BLOCK: usize = 4096;

/// Elements that lie in place for one kernel after the other, a guard before and behind them, with a checksum by which it shows
/// whether one of them, or a guard, changed.
pub(crate) struct Fixed {
    memory: Memory,
    len: usize,
    checksum: u64,
}

/// Positions in a plan, and what lies there.
pub(crate) type Placed = Vec<(usize, Arc<Fixed>)>;

impl Fixed {
    /// Bytes that so many elements need.
    pub(crate) fn bytes_of(len: usize) -> Result<usize, NoMemory> {
        let bytes = len.checked_add(2 * GUARD).and_then(|elements| elements.checked_mul(4));
        bytes.ok_or(NoMemory { bytes: usize::MAX })
    }

    /// So many NaN in memory that is large enough, to be written through [`Fixed::start`] and then sealed.
    pub(crate) fn blank(len: usize, mut memory: Memory) -> Self {
        let elements = memory.elements_mut();
        let (guard, rest) = elements.split_at_mut(GUARD);
        let (inside, behind) = rest.split_at_mut(len);
        inside.fill(f32::NAN);
        guard.fill(f32::from_bits(GUARD_BITS));
        behind[..GUARD].fill(f32::from_bits(GUARD_BITS));
        Self { memory, len, checksum: 0 }
    }

    /// A copy of elements.
    pub(crate) fn of(elements: &[f32], team: &mut Team) -> Result<Self, NoMemory> {
        Self::made(elements.len(), |to| to.copy_from_slice(elements), team)
    }

    /// So many elements as `fill` makes them.
    pub(crate) fn made(len: usize, fill: impl FnOnce(&mut [f32]), team: &mut Team) -> Result<Self, NoMemory> {
        let mut fixed = Self::blank(len, Memory::new(Self::bytes_of(len)?)?);
        fill(&mut fixed.memory.elements_mut()[GUARD..][..len]);
        fixed.seal(team);
        Ok(fixed)
    }

    /// From now on nothing may change.
    pub(crate) fn seal(&mut self, team: &mut Team) {
        self.checksum = checksum(self.guarded(), team);
    }

    /// True if nothing changed since it was sealed.
    pub(crate) fn is_intact(&self, team: &mut Team) -> bool {
        checksum(self.guarded(), team) == self.checksum
    }

    /// The elements.
    pub(crate) fn elements(&self) -> &[f32] {
        &self.memory.elements()[GUARD..][..self.len]
    }

    /// True if something wrote beside the elements.
    pub(crate) fn guards_changed(&self) -> bool {
        let (before, rest) = self.guarded().split_at(GUARD);
        before.iter().chain(&rest[self.len..]).any(|x| x.to_bits() != GUARD_BITS)
    }

    /// The first element.
    pub(crate) fn start(&self) -> *mut f32 {
        self.memory.at(GUARD)
    }

    /// The elements and the guards.
    fn guarded(&self) -> &[f32] {
        &self.memory.elements()[..self.len + 2 * GUARD]
    }

    /// The memory, to be used again.
    pub(crate) fn into_memory(self) -> Memory {
        self.memory
    }

    /// Size of the memory.
    pub(crate) fn bytes(&self) -> usize {
        self.memory.bytes()
    }
}

/// A sum over blocks of what each holds and where it is. A single changed element always changes it.
fn checksum(elements: &[f32], team: &mut Team) -> u64 {
    let sum = AtomicU64::new(0);
    team.divide(elements.len().div_ceil(BLOCK), |blocks: Range<usize>| {
        let of_block = |block: usize| {
            let end = elements.len().min((block + 1) * BLOCK);
            block_checksum(&elements[block * BLOCK..end]).wrapping_mul(2 * block as u64 + 1)
        };
        sum.fetch_add(blocks.map(of_block).fold(0, u64::wrapping_add), Ordering::Relaxed);
    });
    sum.into_inner()
}

/// Sums, and sums of these (Fletcher, *An arithmetic checksum for serial transmissions*, 1982), of the bits in every so many lanes,
/// which vectors do side by side, then of what lanes have.
fn block_checksum(elements: &[f32]) -> u64 {
    const LANES: usize = 32;
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let (mut sums, mut sums_of_sums) = ([0u32; LANES], [0u32; LANES]);
    let rows = elements.chunks_exact(LANES);
    let rest = rows.remainder();
    for row in rows {
        for ((sum, of_sums), x) in sums.iter_mut().zip(&mut sums_of_sums).zip(row) {
            *sum = sum.wrapping_add(x.to_bits());
            *of_sums = of_sums.wrapping_add(*sum);
        }
    }
    let lanes = sums.iter().zip(&sums_of_sums).map(|(&sum, &of_sums)| u64::from(sum) << 32 | u64::from(of_sums));
    let rest = rest.iter().map(|x| u64::from(x.to_bits()));
    lanes.chain(rest).fold(0, |hash, x| (hash ^ x).wrapping_mul(ODD).rotate_left(29))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    #[test]
    fn every_change_inside_and_beside_it_shows() {
        let mut rng = ChaCha8Rng::seed_from_u64(41);
        for threads in [1, 2, 3] {
            let mut team = Team::new(threads);
            for len in [1, 15, 31, 33, BLOCK - 2 * GUARD, BLOCK, 3 * BLOCK + 77] {
                let elements: Vec<f32> = (0..len).map(|_| rng.random_range(-1.0..1.0)).collect();
                let fixed = Fixed::of(&elements, &mut team).unwrap();
                assert_eq!(fixed.elements(), elements);
                assert!(fixed.is_intact(&mut team) && fixed.is_intact(&mut Team::new(1)));
                for _ in 0..50 {
                    let at = rng.random_range(0..len + 2 * GUARD) as isize - GUARD as isize;
                    // SAFETY: the element lies in the memory.
                    let place = unsafe { &mut *fixed.start().offset(at) };
                    let (old, bit) = (place.to_bits(), rng.random_range(0..32));
                    *place = f32::from_bits(old ^ 1 << bit);
                    assert!(!fixed.is_intact(&mut team), "{len}: element {at}, bit {bit}");
                    assert_eq!(fixed.guards_changed(), !(0..len as isize).contains(&at));
                    *place = f32::from_bits(old);
                }
                assert!(fixed.is_intact(&mut team) && !fixed.guards_changed());
            }
        }
    }

    #[test]
    fn elements_that_change_places_show() {
        let mut rng = ChaCha8Rng::seed_from_u64(43);
        let mut team = Team::new(2);
        let len = 3 * BLOCK;
        let elements: Vec<f32> = (0..len).map(|_| rng.random_range(-1.0..1.0)).collect();
        for _ in 0..500 {
            let mut fixed = Fixed::of(&elements, &mut team).unwrap();
            let (a, b) = (rng.random_range(0..len), rng.random_range(0..len));
            fixed.memory.elements_mut()[GUARD..].swap(a, b);
            assert_eq!(fixed.is_intact(&mut team), elements[a] == elements[b], "{a} and {b}");
        }
    }

    #[test]
    fn used_memory_shows_nothing_of_its_past() {
        let mut team = Team::new(1);
        let memory = Fixed::of(&[1.0; 5000], &mut team).unwrap().into_memory();
        let blank = Fixed::blank(77, memory);
        assert!(blank.elements().iter().all(|x| x.is_nan()) && !blank.guards_changed());
        assert!(Fixed::bytes_of(usize::MAX).is_err() && Fixed::bytes_of(usize::MAX / 4).is_err());
    }
}
