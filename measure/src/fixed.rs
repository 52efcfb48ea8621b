//! Tensors that kernels read and none may write: operands, the output that is right, and what was
//! packed ahead of time.

use std::rc::Rc;

use autotune_measurement::CandidateError;
use autotune_runtime::{Device, Extent};

use crate::checks::Checks;
use crate::guarded::{self, Guarded};

/// A tensor that lies in place for one kernel after the other, between guards, with a checksum by
/// which it shows whether one of its elements, or a guard, changed.
pub(crate) struct Fixed<D: Device> {
    block: Guarded<D>,
    words: usize,
    /// Of tensor and guards; `None` if they are more than can be summed.
    checksum: Option<u64>,
}

/// Positions among a plan's buffers, and what lies there.
pub(crate) type Placed<D> = Vec<(usize, Rc<Fixed<D>>)>;

impl<D: Device> Fixed<D> {
    /// Bytes of memory that `words` words need.
    pub(crate) fn bytes_of(device: &D, words: usize) -> Result<usize, CandidateError> {
        guarded::bytes(device, &[words]).ok_or_else(guarded::no_memory)
    }

    /// `words` undefined words in memory that is large enough, to be written by a kernel and then
    /// sealed.
    pub(crate) fn blank(device: &D, memory: D::Memory, words: usize) -> Result<Self, CandidateError> {
        Ok(Self { block: Guarded::new(device, memory, &[words])?, words, checksum: None })
    }

    /// A copy of a tensor in memory that is large enough.
    pub(crate) fn of(
        device: &D,
        checks: &dyn Checks<D>,
        memory: D::Memory,
        content: &[u8],
    ) -> Result<Self, CandidateError> {
        let mut fixed = Self::blank(device, memory, content.len().div_ceil(4))?;
        fixed.block.write(device, 0, content)?;
        fixed.seal(device, checks)?;
        Ok(fixed)
    }

    /// From now on nothing may change.
    pub(crate) fn seal(&mut self, device: &D, checks: &dyn Checks<D>) -> Result<(), CandidateError> {
        self.checksum = self.sum(device, checks)?;
        Ok(())
    }

    /// True if nothing changed since it was sealed.
    pub(crate) fn is_intact(&self, device: &D, checks: &dyn Checks<D>) -> Result<bool, CandidateError> {
        match self.checksum {
            Some(_) => Ok(self.sum(device, checks)? == self.checksum),
            None => self.block.is_intact(device),
        }
    }

    /// True if something wrote beside the tensor.
    pub(crate) fn is_guard_broken(&self, device: &D) -> Result<bool, CandidateError> {
        Ok(!self.block.is_intact(device)?)
    }

    fn sum(&self, device: &D, checks: &dyn Checks<D>) -> Result<Option<u64>, CandidateError> {
        let (memory, words) = self.block.memory();
        checks.checksum(device, memory, words)
    }

    /// Number of its 32-bit words.
    pub(crate) fn words(&self) -> usize {
        self.words
    }

    /// True if a change of any element shows.
    pub(crate) fn is_summed(&self) -> bool {
        self.checksum.is_some()
    }

    /// A hold on the tensor.
    ///
    /// # Safety
    ///
    /// Kernels that get it may read it only, but for the one that writes what is to be sealed.
    pub(crate) unsafe fn tensor(&self, device: &D) -> Result<D::Memory, CandidateError> {
        // SAFETY: the caller's promise.
        unsafe { self.block.part(device, 0) }
    }

    /// The memory, to be used again.
    pub(crate) fn into_memory(self) -> D::Memory {
        self.block.into_memory()
    }

    /// Size of the memory.
    pub(crate) fn bytes(&self, device: &D) -> usize {
        let Extent { bytes, .. } = device.extent(self.block.memory().0);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::HostChecks;
    use crate::guarded::GUARD;
    use autotune_runtime::{Cpu, HostMemory, bytes_of};
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    /// Words that the checks sum at once.
    const BLOCK: usize = 4096;

    fn fixed(cpu: &Cpu, elements: &[f32]) -> Fixed<Cpu> {
        let memory = HostMemory::new(Fixed::bytes_of(cpu, elements.len()).unwrap()).unwrap();
        Fixed::of(cpu, &HostChecks, memory, bytes_of(elements)).unwrap()
    }

    fn random(rng: &mut ChaCha8Rng, len: usize) -> Vec<f32> {
        (0..len).map(|_| rng.random_range(-1.0..1.0)).collect()
    }

    #[test]
    fn every_change_inside_and_beside_it_shows() {
        let mut rng = ChaCha8Rng::seed_from_u64(41);
        for threads in [1, 2, 3] {
            let cpu = Cpu::new(threads);
            for len in [1, 15, 31, 33, BLOCK - 2 * GUARD, BLOCK, 3 * BLOCK + 77] {
                let elements = random(&mut rng, len);
                let fixed = fixed(&cpu, &elements);
                // SAFETY: nobody writes meanwhile.
                let tensor = unsafe { fixed.tensor(&cpu) }.unwrap();
                assert_eq!(tensor.elements::<f32>(), elements);
                let is_intact = |cpu: &Cpu| fixed.is_intact(cpu, &HostChecks).unwrap();
                assert!(is_intact(&cpu) && is_intact(&Cpu::new(1)));

                for _ in 0..50 {
                    let at = rng.random_range(0..len + 2 * GUARD) as isize - GUARD as isize;
                    let place = tensor.start().cast::<u32>().wrapping_offset(at);
                    let bit = 1u32 << rng.random_range(0..32);
                    // SAFETY: the word lies in the memory.
                    unsafe { *place ^= bit };
                    assert!(!is_intact(&cpu), "{len}: element {at}, bit {bit:#x}");
                    assert_eq!(fixed.is_guard_broken(&cpu).unwrap(), !(0..len as isize).contains(&at));
                    // SAFETY: as above.
                    unsafe { *place ^= bit };
                }
                assert!(is_intact(&cpu) && !fixed.is_guard_broken(&cpu).unwrap());
            }
        }
    }

    #[test]
    fn elements_that_change_places_show() {
        let mut rng = ChaCha8Rng::seed_from_u64(43);
        let cpu = Cpu::new(2);
        let len = 3 * BLOCK;
        let elements = random(&mut rng, len);
        for _ in 0..200 {
            let fixed = fixed(&cpu, &elements);
            let (a, b) = (rng.random_range(0..len), rng.random_range(0..len));
            // SAFETY: it is the only hold that is used.
            unsafe { fixed.tensor(&cpu) }.unwrap().elements_mut::<f32>().swap(a, b);
            assert_eq!(fixed.is_intact(&cpu, &HostChecks).unwrap(), elements[a] == elements[b], "{a} and {b}");
        }
    }
}
