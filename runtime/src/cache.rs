//! What is in the processor's caches.

/// Writes bytes back and drives them out of the caches of all cores; false on an architecture for
/// which that is not known.
#[cfg(target_arch = "x86_64")]
pub(crate) fn evict(bytes: &[u8]) -> bool {
    use std::arch::asm;
    use std::arch::x86_64::{__cpuid_count, _mm_clflush, _mm_mfence};
    use std::sync::LazyLock;

    const LINE_BYTES: usize = 64;
    // CLFLUSHOPT: Intel SDM, CPUID leaf 7, EBX bit 23. Unlike CLFLUSH, lines do not wait for each
    // other.
    static HAS_CLFLUSHOPT: LazyLock<bool> = LazyLock::new(|| __cpuid_count(7, 0).ebx & 1 << 23 != 0);

    let waits = !*HAS_CLFLUSHOPT;
    for line in bytes.chunks(LINE_BYTES) {
        let line = line.as_ptr();
        // SAFETY: the byte may be read, and no memory changes.
        unsafe {
            match waits {
                true => _mm_clflush(line),
                false => asm!("clflushopt [{}]", in(reg) line, options(nostack, preserves_flags)),
            }
        }
    }
    if let Some(last) = bytes.last() {
        // A line that begins between two of the above.
        // SAFETY: as above; every processor of this architecture has both.
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
    fn what_is_driven_out_stays_as_it_is() {
        let bytes: Vec<u8> = (0..1000).map(|i| (i % 251) as u8).collect();
        for first in [0, 1, 63, 64, 999, 1000] {
            assert!(evict(&bytes[first..]));
        }
        assert!(bytes.iter().enumerate().all(|(i, &byte)| byte == (i % 251) as u8));
    }
}
