//! The memory of one kernel instance, in which stray writes show.

use std::alloc::{self, Layout};
use std::ffi::c_char;
use std::ptr::NonNull;

use autotune_ir::KernelPlan;
use thiserror::Error;

use crate::allocation_cache::AllocationCache;
use crate::fixed::Placed;
use crate::measurement::CandidateError;

/// f32 elements of a cache line, to which every buffer is aligned.
const LINE: usize = 16;
/// f32 elements of the guard before and behind every buffer.
pub(crate) const GUARD: usize = 4 * LINE;
/// What guards hold: a bit pattern that no arithmetic yields.
pub(crate) const GUARD_BITS: u32 = 0x7fa5_c3a5;
/// Alignment of the whole, a page, so that equal plans get equally placed buffers.
const PAGE: usize = 4096;
/// The same for memory of at least [`HUGE_BYTES`], for which the system is asked for pages of this size: kernels that stream
/// through megabytes of weights then miss fewer translations, and hardware prefetching goes on for longer.
const HUGE_PAGE: usize = 2 << 20;
const HUGE_BYTES: usize = 256 << 10;

/// Memory for a plan that cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the kernel's buffers need {bytes} bytes, which cannot be had")]
pub struct NoMemory {
    /// What was asked for (`usize::MAX` if it overflows).
    pub bytes: usize,
}

impl NoMemory {
    /// What that is for a candidate.
    pub(crate) fn candidate_error(self) -> CandidateError {
        CandidateError::OutOfMemory { message: self.to_string() }
    }
}

/// Every buffer of a plan and the thread-private memory of `threads` threads: one block, 64-byte aligned parts, a
/// guard around each. Everything is NaN at first.
pub struct Buffers {
    memory: Memory,
    /// Elements of the memory that are in use.
    len: usize,
    /// One per buffer of the plan; null for thread-private ones.
    pointers: Vec<*mut f32>,
    /// Elements of each buffer; 0 for thread-private ones.
    lens: Vec<usize>,
    /// One per thread.
    locals: Vec<*mut c_char>,
    /// First element and length of every guard.
    guards: Vec<(usize, usize)>,
    /// Buffers that lie elsewhere.
    fixed: Placed,
}

// SAFETY: the pointers are into the memory, which belongs to this value alone and is reached only through it, and into what is
// fixed, which nobody writes.
unsafe impl Send for Buffers {}

/// Initialised memory at a page's start.
pub(crate) struct Memory {
    start: NonNull<f32>,
    layout: Layout,
}

// SAFETY: the memory belongs to this value alone.
unsafe impl Send for Memory {}
// SAFETY: through a shared reference Rust code only reads it. Kernels that get a pointer run while nobody else uses it.
unsafe impl Sync for Memory {}

impl Memory {
    /// At least so many bytes, whole pages.
    pub(crate) fn new(bytes: usize) -> Result<Self, NoMemory> {
        let no_memory = NoMemory { bytes };
        let page = if bytes < HUGE_BYTES { PAGE } else { HUGE_PAGE };
        let size = bytes.max(1).checked_next_multiple_of(page).ok_or(no_memory.clone())?;
        let layout = Layout::from_size_align(size, page).map_err(|_| no_memory.clone())?;
        // SAFETY: the layout is not empty.
        let start = NonNull::new(unsafe { alloc::alloc(layout) }).ok_or(no_memory)?.cast::<f32>();
        if page == HUGE_PAGE {
            prefer_huge_pages(start.cast(), size);
        }
        // SAFETY: so many bytes were allocated.
        unsafe { start.write_bytes(0, size / 4) };
        Ok(Self { start, layout })
    }

    /// Its size.
    pub(crate) fn bytes(&self) -> usize {
        self.layout.size()
    }

    /// Everything in it.
    pub(crate) fn elements(&self) -> &[f32] {
        // SAFETY: the memory has so many elements, all initialised, and lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.layout.size() / 4) }
    }

    /// The same, to be written.
    pub(crate) fn elements_mut(&mut self) -> &mut [f32] {
        // SAFETY: as in `elements`, and `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.layout.size() / 4) }
    }

    /// The address of an element that it has.
    pub(crate) fn at(&self, element: usize) -> *mut f32 {
        debug_assert!(4 * element < self.layout.size());
        self.start.as_ptr().wrapping_add(element)
    }
}

/// Asks for huge pages before memory is touched. A system without them goes on with small ones.
fn prefer_huge_pages(start: NonNull<u8>, bytes: usize) {
    #[cfg(target_os = "linux")]
    // SAFETY: advice about whole pages that were just allocated changes nothing of what they hold.
    unsafe {
        libc::madvise(start.as_ptr().cast(), bytes / HUGE_PAGE * HUGE_PAGE, libc::MADV_HUGEPAGE);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (start, bytes);
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { alloc::dealloc(self.start.as_ptr().cast(), self.layout) };
    }
}

impl Buffers {
    /// Memory for `plan`, run by up to `threads` threads.
    pub fn new(plan: &KernelPlan, threads: usize) -> Result<Self, NoMemory> {
        Self::around(Vec::new(), None, plan, threads)
    }

    /// The same but for those buffers that are `fixed`, in memory that was kept, if there is some.
    pub(crate) fn around(
        fixed: Placed,
        cache: Option<&mut AllocationCache>,
        plan: &KernelPlan,
        threads: usize,
    ) -> Result<Self, NoMemory> {
        let (lens, local_len) = part_lens(plan)?;
        let mut own_lens = lens.clone();
        fixed.iter().for_each(|(position, _)| own_lens[*position] = 0);
        let parts = || own_lens.iter().copied().chain(std::iter::repeat_n(local_len, threads));
        let (starts, total) = place(parts())?;
        let bytes = total.checked_mul(4).ok_or(NoMemory { bytes: usize::MAX })?;
        let memory = cache.map_or_else(|| Memory::new(bytes), |cache| cache.memory(bytes))?;
        let (buffer_starts, local_starts) = starts.split_at(lens.len());
        let pointers = buffer_starts.iter().zip(&plan.buffers);
        let pointers = pointers.map(|(&s, b)| if b.global { memory.at(s) } else { std::ptr::null_mut() });
        let mut pointers: Vec<*mut f32> = pointers.collect();
        fixed.iter().for_each(|(position, elements)| pointers[*position] = elements.start());
        let locals = local_starts.iter().map(|&s| memory.at(s).cast()).collect();
        let mut guards = Vec::with_capacity(starts.len() + 1);
        let mut end = 0;
        for (&start, len) in starts.iter().zip(parts()) {
            guards.push((end, start - end));
            end = start + len;
        }
        guards.push((end, total - end));
        let mut buffers = Self { memory, len: total, pointers, lens, locals, guards, fixed };
        buffers.block_mut().fill(f32::NAN);
        for (start, len) in buffers.guards.clone() {
            buffers.block_mut()[start..start + len].fill(f32::from_bits(GUARD_BITS));
        }
        Ok(buffers)
    }

    /// Positions and elements of the buffers that lie elsewhere.
    pub(crate) fn fixed(&self) -> &Placed {
        &self.fixed
    }

    /// Size of the memory, and of all that is fixed.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.memory.bytes() + self.fixed.iter().map(|(_, fixed)| fixed.bytes()).sum::<usize>()
    }

    /// The memory, to be used again, and what was fixed.
    pub(crate) fn into_parts(self) -> (Memory, Placed) {
        (self.memory, self.fixed)
    }

    /// Bytes that [`Buffers::new`] asks for.
    pub fn bytes(plan: &KernelPlan, threads: usize) -> Result<usize, NoMemory> {
        let (buffer_lens, local_len) = part_lens(plan)?;
        let parts = buffer_lens.into_iter().chain(std::iter::repeat_n(local_len, threads));
        place(parts)?.1.checked_mul(4).ok_or(NoMemory { bytes: usize::MAX })
    }

    /// The elements of buffer `index` of the plan, in physical order; empty for thread-private ones.
    ///
    /// # Panics
    ///
    /// If the plan has no such buffer.
    pub fn buffer(&self, index: usize) -> &[f32] {
        if self.lens[index] == 0 {
            return &[];
        }
        // SAFETY: the pointer and length describe a part of the block that lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.pointers[index], self.lens[index]) }
    }

    /// The elements of buffer `index`, to be filled.
    ///
    /// # Panics
    ///
    /// If the plan has no such buffer.
    pub fn buffer_mut(&mut self, index: usize) -> &mut [f32] {
        if self.lens[index] == 0 {
            return &mut [];
        }
        assert!(self.fixed.iter().all(|(position, _)| *position != index), "a buffer that is fixed");
        // SAFETY: as in `buffer`, and `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.pointers[index], self.lens[index]) }
    }

    /// False if something wrote between the buffers.
    pub fn guards_intact(&self) -> bool {
        let guard = |&(start, len): &(usize, usize)| &self.block()[start..start + len];
        self.guards.iter().map(guard).all(|g| g.iter().all(|x| x.to_bits() == GUARD_BITS))
    }

    /// Elements of each buffer, 0 for thread-private ones.
    pub(crate) fn lens(&self) -> &[usize] {
        &self.lens
    }

    /// What a kernel gets: a pointer per buffer, and one to the private memory of each thread.
    pub(crate) fn arguments(&mut self) -> (&[*mut f32], &[*mut c_char]) {
        (&self.pointers, &self.locals)
    }

    fn block(&self) -> &[f32] {
        &self.memory.elements()[..self.len]
    }

    fn block_mut(&mut self) -> &mut [f32] {
        &mut self.memory.elements_mut()[..self.len]
    }
}

/// Elements of each buffer (0 if thread-private), and of the thread-private memory of a thread.
pub(crate) fn part_lens(plan: &KernelPlan) -> Result<(Vec<usize>, usize), NoMemory> {
    let lens = plan.buffers.iter().map(|b| if b.global { b.elements() } else { Some(0) });
    let lens: Option<Vec<usize>> = lens.collect();
    Ok((lens.ok_or(NoMemory { bytes: usize::MAX })?, plan.local_bytes.div_ceil(4)))
}

/// First element of each part, each on a line of its own with a guard before it, and the length of the whole.
fn place(lens: impl Iterator<Item = usize>) -> Result<(Vec<usize>, usize), NoMemory> {
    let mut starts = Vec::new();
    let mut end = GUARD;
    for len in lens {
        starts.push(end);
        let behind = len.checked_add(GUARD).and_then(|e| e.checked_next_multiple_of(LINE));
        end = behind.and_then(|e| e.checked_add(end)).ok_or(NoMemory { bytes: usize::MAX })?;
    }
    Ok((starts, end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use autotune_ir::plan::PlanBuffer;
    use autotune_ir::program::{Layout as Lie, Role};

    fn plan(shapes: &[&[usize]], local_bytes: usize) -> KernelPlan {
        let buffer = |shape: &&[usize]| PlanBuffer {
            role: Role::Input,
            global: true,
            shape: shape.to_vec(),
            layout: Lie::Plain,
            dtype: Default::default(),
        };
        KernelPlan { buffers: shapes.iter().map(buffer).collect(), stages: vec![], local_bytes }
    }

    #[test]
    fn parts_are_aligned_apart_and_nan() {
        let plan = plan(&[&[3, 5], &[1], &[64]], 100);
        let mut buffers = Buffers::new(&plan, 2).unwrap();
        for i in 0..3 {
            assert_eq!(buffers.buffer(i).len(), plan.buffers[i].shape.iter().product::<usize>());
            assert_eq!(buffers.buffer(i).as_ptr() as usize % 64, 0);
            assert!(buffers.buffer(i).iter().all(|x| x.is_nan()));
            buffers.buffer_mut(i).fill(i as f32);
        }
        assert_eq!(buffers.buffer(0), [0.0; 15]);
        assert_eq!(buffers.buffer(1), [1.0]);
        let (_, locals) = buffers.arguments();
        assert!(locals.iter().all(|&l| (l as usize).is_multiple_of(64)));
        assert!((locals[1] as usize).abs_diff(locals[0] as usize) >= 100);
        assert!(buffers.guards_intact());
    }

    #[test]
    fn memory_used_again_shows_nothing_of_its_past() {
        let (large, small) = (plan(&[&[3000], &[70]], 5000), plan(&[&[16], &[33], &[5]], 8));
        let mut buffers = Buffers::new(&large, 2).unwrap();
        buffers.block_mut().fill(1.0);
        let memory = buffers.into_parts().0;
        let (bytes, start) = (memory.bytes(), memory.start);
        let mut cache = AllocationCache::default();
        cache.give(memory);
        let mut buffers = Buffers::around(Vec::new(), Some(&mut cache), &small, 2).unwrap();
        assert_eq!(buffers.memory.start, start);
        assert!((0..3).all(|i| buffers.buffer(i).iter().all(|x| x.is_nan())));
        assert!(buffers.guards_intact());
        let bits: Vec<u32> = buffers.block_mut().iter().map(|x| x.to_bits()).collect();
        assert!(!bits.contains(&1f32.to_bits()), "thread-private memory is NaN too");
        cache.give(buffers.into_parts().0);
        let again = Buffers::around(Vec::new(), Some(&mut cache), &large, 3).unwrap();
        assert!(again.memory.bytes() > bytes && again.guards_intact());
    }

    #[test]
    fn every_write_just_outside_a_buffer_shows() {
        let plan = plan(&[&[15], &[16], &[1]], 4);
        for buffer in 0..3 {
            for offset in [-64isize, -1, plan.buffers[buffer].shape[0] as isize, 60] {
                let mut buffers = Buffers::new(&plan, 1).unwrap();
                // SAFETY: the element lies in the block, inside a guard.
                unsafe { buffers.buffer_mut(buffer).as_mut_ptr().offset(offset).write(0.0) };
                assert!(!buffers.guards_intact(), "buffer {buffer}, offset {offset}");
            }
        }
    }

    #[test]
    fn impossible_sizes_are_errors() {
        assert!(Buffers::new(&plan(&[&[usize::MAX, 2]], 0), 1).is_err());
        assert!(Buffers::new(&plan(&[&[usize::MAX / 8]], 0), 1).is_err());
        assert_eq!(Buffers::bytes(&plan(&[&[16]], 0), 1), Ok(4 * (64 + 16 + 64 + 64)));
    }
}
