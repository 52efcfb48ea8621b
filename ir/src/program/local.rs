//! Layout of thread-private memory.

use std::cmp::Reverse;
use std::ops::Range;

use super::{BufferId, Node, Program, Scope, Stage, preorder};

/// Alignment of thread-private buffers in bytes: a cache line.
const LOCAL_ALIGNMENT: usize = 64;

impl Program {
    /// Returns the byte range of each buffer that a stage allocates in thread-private memory.
    /// Ranges are contiguous and consist of whole cache lines. The largest buffer is first and thus
    /// begins at a page, as tensors do. This avoids 4 KiB aliasing: a load that is mistaken for a
    /// recent store at the same offset in another page.
    pub fn local_places(&self, stage: &Stage) -> Vec<(BufferId, Range<usize>)> {
        let allocated = preorder(&stage.body).filter_map(|node| match node {
            Node::Alloc { buffer, .. } if self.buffer(*buffer).scope == Scope::Local => Some(*buffer),
            _ => None,
        });
        let mut allocated: Vec<BufferId> = allocated.collect();
        allocated.sort_unstable();
        allocated.dedup();
        allocated.sort_by_key(|&id| Reverse(self.buffer(id).bytes()));

        let mut end = 0;
        let places = allocated.into_iter().map(|id| {
            let first = end;
            end += self.buffer(id).bytes().next_multiple_of(LOCAL_ALIGNMENT);
            (id, first..end)
        });
        places.collect()
    }

    /// Returns the bytes of private memory that each thread needs.
    pub fn local_bytes(&self) -> usize {
        let ends = self.stages.iter().filter_map(|stage| self.local_places(stage).last().map(|(_, place)| place.end));
        ends.max().unwrap_or(0)
    }
}
