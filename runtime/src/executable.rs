//! Machine code in executable memory.

use std::io;
use std::ptr::{self, NonNull};

use autotune_ir::MachineCode;

/// A private copy of machine code. Its pages are writable until the copy is made and executable
/// afterwards, never both.
pub(crate) struct Executable {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: this value owns the memory, and nothing writes to it.
unsafe impl Send for Executable {}
// SAFETY: as above.
unsafe impl Sync for Executable {}

impl Executable {
    /// Maps memory and copies the code to it.
    pub(crate) fn new(code: &MachineCode) -> io::Result<Self> {
        let len = code.bytes.len();
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping at an address that the system chooses overlaps no other memory.
        let base = unsafe { libc::mmap(ptr::null_mut(), len, access, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base =
            NonNull::new(base.cast::<u8>()).ok_or_else(|| io::Error::other("the memory was mapped at address 0"))?;
        let executable = Self { base, len };
        // SAFETY: the mapping has `len` writable bytes that nothing else uses.
        unsafe { ptr::copy_nonoverlapping(code.bytes.as_ptr(), base.as_ptr(), len) };
        // SAFETY: the range is exactly the mapping.
        if unsafe { libc::mprotect(base.as_ptr().cast(), len, libc::PROT_READ | libc::PROT_EXEC) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(executable)
    }

    /// Returns the address of the byte at `offset`; `None` if it is out of range.
    pub(crate) fn at(&self, offset: usize) -> Option<*const u8> {
        // SAFETY: the offset is in the mapping.
        (offset < self.len).then(|| unsafe { self.base.as_ptr().add(offset) }.cast_const())
    }
}

impl Drop for Executable {
    fn drop(&mut self) {
        // SAFETY: the mapping was made in `new`, and nothing refers to it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;

    /// Returns the access rights, such as `r-xp`, of the mapping that contains an address; `None`
    /// if the address is not mapped.
    fn access_rights(address: usize) -> Option<String> {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let holds = |line: &&str| {
            let (from, to) = line.split(' ').next().unwrap().split_once('-').unwrap();
            let bound = |text| usize::from_str_radix(text, 16).unwrap();
            (bound(from)..bound(to)).contains(&address)
        };
        maps.lines().find(holds).map(|line| line.split(' ').nth(1).unwrap().to_string())
    }

    #[test]
    fn code_is_executable_and_not_writable_and_gone_in_the_end() {
        let bytes: Vec<u8> = (0..5000).map(|i| i as u8).collect();
        let code = MachineCode { bytes: bytes.clone(), code_bytes: 5000, entries: vec![0] };
        let executable = Executable::new(&code).unwrap();
        let address = executable.at(0).unwrap();
        // SAFETY: the mapping has that many readable bytes.
        assert_eq!(unsafe { std::slice::from_raw_parts(address, bytes.len()) }, bytes);
        assert_eq!(access_rights(address as usize).as_deref(), Some("r-xp"));
        assert_eq!(access_rights(executable.at(4999).unwrap() as usize).as_deref(), Some("r-xp"));
        assert!(executable.at(5000).is_none());
        drop(executable);
        assert_ne!(access_rights(address as usize).as_deref(), Some("r-xp"));
    }

    #[test]
    fn no_code_is_an_error() {
        assert!(Executable::new(&MachineCode { bytes: vec![], code_bytes: 0, entries: vec![] }).is_err());
    }
}
