//! Eviction of memory from the processor's caches.

/// Writes bytes back to memory and evicts them from the caches of all cores. Returns false if this
/// is not implemented for the architecture.
#[cfg(target_arch = "x86_64")]
pub(crate) fn evict(bytes: &[u8]) -> bool {
    use std::arch::asm;
    use std::arch::x86_64::{__cpuid_count, _mm_clflush, _mm_mfence};
    use std::sync::LazyLock;

    const LINE_BYTES: usize = 64;
    // CLFLUSHOPT (Intel SDM, CPUID leaf 7, EBX bit 23) does not serialise the flushes, as CLFLUSH
    // does.
    static HAS_CLFLUSHOPT: LazyLock<bool> = LazyLock::new(|| __cpuid_count(7, 0).ebx & 1 << 23 != 0);

    let waits = !*HAS_CLFLUSHOPT;
    for line in bytes.chunks(LINE_BYTES) {
        let line = line.as_ptr();
        // SAFETY: the address is that of a readable byte, and a flush does not change memory.
        unsafe {
            match waits {
                true => _mm_clflush(line),
                false => asm!("clflushopt [{}]", in(reg) line, options(nostack, preserves_flags)),
            }
        }
    }
    if let Some(last) = bytes.last() {
        // The slice may end in a line that no chunk begins in.
        // SAFETY: as above; every x86-64 processor has both instructions.
        unsafe {
            _mm_clflush(last);
            _mm_mfence();
        }
    }
    true
}

#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn evict(_: &[u8]) -> bool {
    false
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn evicted_memory_keeps_its_content() {
        let bytes: Vec<u8> = (0..1000).map(|i| (i % 251) as u8).collect();
        for first in [0, 1, 63, 64, 999, 1000] {
            assert!(evict(&bytes[first..]));
        }
        assert!(bytes.iter().enumerate().all(|(i, &byte)| byte == (i % 251) as u8));
    }
}
