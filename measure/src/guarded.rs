//! Kernel memory in which stray writes are detected: guard words before, between and after the
//! buffers must not change.

use std::ops::Range;

use autotune_measurement::CandidateError;
use autotune_runtime::{Device, bytes_of, bytes_of_mut};

/// Least number of 32-bit words in a guard.
pub(crate) const GUARD: usize = 1024;
/// Content of guard words: a NaN that no kernel computes.
pub(crate) const GUARD_BITS: u32 = 0xffc0_dead;
/// Initial content of parts: a NaN as f32, and each half a NaN as f16 or bf16.
pub(crate) const UNDEFINED: u32 = u32::MAX;
/// Alignment of parts in words (one cache line); the device may require more.
const LINE: usize = 16;

/// One memory divided into parts (buffers) with guards around them.
pub(crate) struct Guarded<D: Device> {
    memory: D::Memory,
    /// Word ranges of the parts.
    parts: Vec<Range<usize>>,
    /// Number of words of guards and parts together.
    words: usize,
}

impl<D: Device> Guarded<D> {
    /// Divides `memory`, which has at least [`bytes`] bytes of any content, into undefined parts of
    /// `lens` words.
    pub(crate) fn new(device: &D, mut memory: D::Memory, lens: &[usize]) -> Result<Self, CandidateError> {
        let (parts, words) = place(device, lens).ok_or_else(no_memory)?;
        device.fill(&mut memory, 0..words, UNDEFINED)?;
        let mut guarded = Self { memory, parts, words };
        for guard in guarded.guards() {
            device.fill(&mut guarded.memory, guard, GUARD_BITS)?;
        }
        Ok(guarded)
    }

    /// Returns a part as device memory, without a copy.
    ///
    /// # Safety
    ///
    /// As [`Device::part`].
    pub(crate) unsafe fn part(&self, device: &D, index: usize) -> Result<D::Memory, CandidateError> {
        let Range { start, end } = self.parts[index];
        // SAFETY: the caller keeps the promise of [`Device::part`].
        Ok(unsafe { device.part(&self.memory, 4 * start..4 * end) }?)
    }

    /// Writes `content` to the start of a part.
    pub(crate) fn write(&mut self, device: &D, index: usize, content: &[u8]) -> Result<(), CandidateError> {
        Ok(device.write(&mut self.memory, 4 * self.parts[index].start, content)?)
    }

    /// Fills a part with undefined values.
    pub(crate) fn clear(&mut self, device: &D, index: usize) -> Result<(), CandidateError> {
        Ok(device.fill(&mut self.memory, self.parts[index].clone(), UNDEFINED)?)
    }

    /// Returns false if anything was written outside the parts.
    pub(crate) fn is_intact(&self, device: &D) -> Result<bool, CandidateError> {
        if let Some(bytes) = device.host_bytes(&self.memory) {
            let is_whole = |guard: Range<usize>| is_guard(&bytes[4 * guard.start..4 * guard.end]);
            return Ok(self.guards().into_iter().all(is_whole));
        }
        for guard in self.guards() {
            let mut found = vec![0u32; guard.len()];
            device.read(&self.memory, 4 * guard.start, bytes_of_mut(&mut found))?;
            if !is_guard(bytes_of(&found)) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the whole memory and its number of words, guards included.
    pub(crate) fn memory(&self) -> (&D::Memory, usize) {
        (&self.memory, self.words)
    }

    /// Returns the memory for reuse.
    pub(crate) fn into_memory(self) -> D::Memory {
        self.memory
    }

    fn guards(&self) -> Vec<Range<usize>> {
        let starts = std::iter::once(0).chain(self.parts.iter().map(|part| part.end));
        let ends = self.parts.iter().map(|part| part.start).chain([self.words]);
        starts.zip(ends).map(|(start, end)| start..end).collect()
    }
}

/// Returns the bytes of memory needed for parts of `lens` words; `None` on overflow.
pub(crate) fn bytes<D: Device>(device: &D, lens: &[usize]) -> Option<usize> {
    place(device, lens)?.1.checked_mul(4)
}

/// Returns the word ranges of the parts and the number of words of the whole.
fn place<D: Device>(device: &D, lens: &[usize]) -> Option<(Vec<Range<usize>>, usize)> {
    let step = LINE.max(device.alignment().div_ceil(4));
    let mut end = GUARD.next_multiple_of(step);
    let mut parts = Vec::with_capacity(lens.len());
    for len in lens {
        let behind = end.checked_add(*len)?;
        parts.push(end..behind);
        end = behind.checked_add(GUARD)?.checked_next_multiple_of(step)?;
    }
    Some((parts, end))
}

fn is_guard(bytes: &[u8]) -> bool {
    bytes.chunks_exact(4).all(|word| word == GUARD_BITS.to_ne_bytes())
}

/// Returns the error for sizes that overflow.
pub(crate) fn no_memory() -> CandidateError {
    CandidateError::OutOfMemory { message: "its buffers need more memory than can be addressed".into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use autotune_runtime::{Cpu, HostMemory};

    fn guarded(cpu: &Cpu, lens: &[usize]) -> Guarded<Cpu> {
        Guarded::new(cpu, HostMemory::new(bytes(cpu, lens).unwrap()).unwrap(), lens).unwrap()
    }

    #[test]
    fn parts_are_aligned_apart_and_undefined() {
        let cpu = Cpu::new(1);
        let lens = [15, 1, 64, 0, 25];
        let mut guarded = guarded(&cpu, &lens);
        for (index, len) in lens.into_iter().enumerate() {
            // SAFETY: the part is only read while nothing writes to it.
            let part = unsafe { guarded.part(&cpu, index) }.unwrap();
            assert!(part.elements::<u32>().len() == len && part.start().addr().is_multiple_of(64));
            assert!(part.elements::<f32>().iter().all(|x| x.is_nan()));
            assert!(part.elements::<u16>().iter().all(|&half| half == u16::MAX));
            guarded.write(&cpu, index, bytes_of(&vec![index as f32; len])).unwrap();
            assert!(part.elements::<f32>().iter().all(|&x| x == index as f32));
        }
        assert!(guarded.is_intact(&cpu).unwrap());
        guarded.clear(&cpu, 2).unwrap();
        // SAFETY: nothing writes to the part.
        assert!(unsafe { guarded.part(&cpu, 2) }.unwrap().elements::<f32>().iter().all(|x| x.is_nan()));
    }

    #[test]
    fn every_write_just_outside_a_part_shows() {
        let cpu = Cpu::new(1);
        let lens = [15, 16, 1];
        for (index, len) in lens.into_iter().enumerate() {
            for offset in [-(GUARD as isize), -64, -1, len as isize, len as isize + GUARD as isize - 1] {
                let guarded = guarded(&cpu, &lens);
                // SAFETY: the word lies in the memory, inside a guard.
                unsafe { guarded.part(&cpu, index).unwrap().start().cast::<u32>().offset(offset).write(0) };
                assert!(!guarded.is_intact(&cpu).unwrap(), "part {index}, offset {offset}");
            }
        }
    }

    #[test]
    fn used_memory_shows_nothing_of_its_past_and_impossible_sizes_are_none() {
        let cpu = Cpu::new(1);
        let mut memory = guarded(&cpu, &[3000, 70]).into_memory();
        memory.elements_mut::<f32>().fill(1.0);
        let guarded = Guarded::<Cpu>::new(&cpu, memory, &[16, 33, 5]).unwrap();
        assert!(guarded.is_intact(&cpu).unwrap());
        // SAFETY: nothing writes to the parts.
        let part = |index| unsafe { guarded.part(&cpu, index) }.unwrap();
        assert!((0..3).all(|index| part(index).elements::<f32>().iter().all(|x| x.is_nan())));
        assert!(bytes(&cpu, &[usize::MAX]).is_none() && bytes(&cpu, &[usize::MAX / 4]).is_none());
    }
}
