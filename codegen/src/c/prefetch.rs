//! Prefetches, by a compiler builtin.

use super::writer::CWriter;
use crate::formula;
use autotune_ir::program::{Access, PrefetchLevel, Role};

impl CWriter<'_, '_> {
    /// Writes a prefetch of the element `ahead` elements further on.
    ///
    /// The address is computed as an integer, because C forbids pointers beyond a buffer's end.
    pub(super) fn prefetch(&mut self, access: &Access, ahead: usize, level: PrefetchLevel) {
        let (pointer, offset, _) = self.address(access);
        let buffer = self.generator.program.buffer(access.buffer);
        let bytes = formula::memory_dtype(buffer).bytes() * ahead;
        // The second argument is 1 for a write; the third is the locality, where 2 means the
        // Access (1 = write), and locality: 3 is the first-level cache, 2 the second-level one.
        let hints = match level {
            _ if buffer.role == Role::Output => "1, 3",
            PrefetchLevel::L1 => "0, 3",
            PrefetchLevel::L2 => "0, 2",
        };
        let address = format!("(const void *)((__UINTPTR_TYPE__)({pointer} + {offset}) + {bytes})");
        self.line(&format!("__builtin_prefetch({address}, {hints});"));
    }
}
