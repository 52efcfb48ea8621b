//! Tensors that kernels read and must not write: operands, the expected output and packed
//! constants.

use std::rc::Rc;

use autotune_measurement::CandidateError;
use autotune_runtime::{Device, MemoryExtent};

use crate::checks::Checks;
use crate::guarded::{self, Guarded};

/// Tensor that many kernels use in turn. It is allocated between guards, and a checksum
/// shows whether an element or a guard changed.
pub(crate) struct Fixed<D: Device> {
    block: Guarded<D>,
    words: usize,
    /// Checksum of tensor and guards; `None` if there are too many words to sum.
    checksum: Option<u64>,
}

/// Tensors with their positions among a plan's buffers.
pub(crate) type FixedTensors<D> = Vec<(usize, Rc<Fixed<D>>)>;

impl<D: Device> Fixed<D> {
    /// Returns the bytes of memory that `words` words need, guards included.
    pub(crate) fn bytes_of(device: &D, words: usize) -> Result<usize, CandidateError> {
        guarded::bytes(device, &[words]).ok_or_else(guarded::no_memory)
    }

    /// Makes a tensor of `words` undefined words in memory that is large enough. A kernel is to
    /// write it before it is sealed.
    pub(crate) fn blank(device: &D, memory: D::Memory, words: usize) -> Result<Self, CandidateError> {
        Ok(Self { block: Guarded::new(device, memory, &[words])?, words, checksum: None })
    }

    /// Copies a tensor to memory that is large enough, and seals it.
    pub(crate) fn of(
        device: &D,
        checks: &dyn Checks<D>,
        memory: D::Memory,
        content: &[u8],
    ) -> Result<Self, CandidateError> {
        let mut fixed = Self::blank(device, memory, content.len().div_ceil(4))?;
        fixed.block.write(device, 0, content)?;
        fixed.set_checksum(device, checks)?;
        Ok(fixed)
    }

    /// Computes the checksum; from now on nothing may change.
    pub(crate) fn set_checksum(&mut self, device: &D, checks: &dyn Checks<D>) -> Result<(), CandidateError> {
        self.checksum = self.sum(device, checks)?;
        Ok(())
    }

    /// Returns true if nothing changed since the tensor was sealed. Without a checksum only the
    /// guards are compared.
    pub(crate) fn is_intact(&self, device: &D, checks: &dyn Checks<D>) -> Result<bool, CandidateError> {
        match self.checksum {
            Some(_) => Ok(self.sum(device, checks)? == self.checksum),
            None => self.block.is_intact(device),
        }
    }

    /// Returns true if a guard changed.
    pub(crate) fn is_guard_broken(&self, device: &D) -> Result<bool, CandidateError> {
        Ok(!self.block.is_intact(device)?)
    }

    fn sum(&self, device: &D, checks: &dyn Checks<D>) -> Result<Option<u64>, CandidateError> {
        let (memory, words) = self.block.memory();
        checks.checksum(device, memory, words)
    }

    /// Returns the number of 32-bit words of the tensor.
    pub(crate) fn words(&self) -> usize {
        self.words
    }

    /// Returns true if the checksum detects a change of any element.
    pub(crate) fn has_checksum(&self) -> bool {
        self.checksum.is_some()
    }

    /// Returns the tensor as memory.
    ///
    /// # Safety
    ///
    /// Kernels must only read it, except the one that writes it before it is sealed.
    pub(crate) unsafe fn tensor(&self, device: &D) -> Result<D::Memory, CandidateError> {
        // SAFETY: the caller keeps the promise above.
        unsafe { self.block.part(device, 0) }
    }

    /// Returns the memory for reuse.
    pub(crate) fn into_memory(self) -> D::Memory {
        self.block.into_memory()
    }

    /// Returns the bytes of the memory.
    pub(crate) fn bytes(&self, device: &D) -> usize {
        let MemoryExtent { bytes, .. } = device.extent(self.block.memory().0);
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

    /// Words per block of the checksum.
    const BLOCK: usize = 4096;

    fn fixed(cpu: &Cpu, elements: &[f32]) -> Fixed<Cpu> {
        let memory = HostMemory::new(Fixed::bytes_of(cpu, elements.len()).unwrap()).unwrap();
        Fixed::of(cpu, &HostChecks, memory, bytes_of(elements)).unwrap()
    }

    fn random(rng: &mut ChaCha8Rng, len: usize) -> Vec<f32> {
        (0..len).map(|_| rng.random_range(-1.0..1.0)).collect()
    }

    #[test]
    fn every_change_inside_and_outside_is_detected() {
        let mut rng = ChaCha8Rng::seed_from_u64(41);
        for threads in [1, 2, 3] {
            let cpu = Cpu::new(threads);
            for len in [1, 15, 31, 33, BLOCK - 2 * GUARD, BLOCK, 3 * BLOCK + 77] {
                let elements = random(&mut rng, len);
                let fixed = fixed(&cpu, &elements);
                // SAFETY: the tensor is only read while nothing writes to it.
                let tensor = unsafe { fixed.tensor(&cpu) }.unwrap();
                assert_eq!(tensor.elements::<f32>(), elements);
                let is_intact = |cpu: &Cpu| fixed.is_intact(cpu, &HostChecks).unwrap();
                assert!(is_intact(&cpu) && is_intact(&Cpu::new(1)));

                for _ in 0..50 {
                    let at = rng.random_range(0..len + 2 * GUARD) as isize - GUARD as isize;
                    let place = tensor.start().cast::<u32>().wrapping_offset(at);
                    let bit = 1u32 << rng.random_range(0..32);
                    // SAFETY: the word lies inside the memory.
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
            // SAFETY: no other part of this memory is in use.
            unsafe { fixed.tensor(&cpu) }.unwrap().elements_mut::<f32>().swap(a, b);
            assert_eq!(fixed.is_intact(&cpu, &HostChecks).unwrap(), elements[a] == elements[b], "{a} and {b}");
        }
    }
}
