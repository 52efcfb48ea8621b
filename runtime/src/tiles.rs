//! Permission to use the tile registers of a CPU (AMX).
//!
//! Linux gives a process these registers only if it asks (Documentation/arch/x86/xstate.rst). The
//! permission holds for all its threads, and for its children until they execute another program.

use std::io;

/// Asks the system for the tile registers, once per process, and returns its answer.
pub fn request() -> io::Result<()> {
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    return linux::request();
    #[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod linux {
    use std::io;
    use std::sync::OnceLock;

    /// Operation of `arch_prctl` that asks for a register state.
    const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
    /// Number of the state of tile registers.
    const XFEATURE_XTILEDATA: libc::c_long = 18;

    pub(super) fn request() -> io::Result<()> {
        // The number of the error, since errors of the system cannot be copied.
        static REFUSAL: OnceLock<Option<i32>> = OnceLock::new();
        let ask = || {
            // SAFETY: this operation of `arch_prctl` has no pointers and only adds a permission.
            let status = unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) };
            (status != 0).then(|| io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL))
        };
        REFUSAL.get_or_init(ask).map_or(Ok(()), |number| Err(io::Error::from_raw_os_error(number)))
    }
}
