//! Runs tuned kernels in the caller's process, on the caller's memory: what a compiler needs at run
//! time, and no more. There is no compiler, no search and no file format in it.
//!
//! | module | what it owns |
//! |---|---|
//! | [`kernel`], [`runner`] | [`Kernel`]: loaded code, run by any number of threads; [`Runner`]: one with all that a single caller needs |
//! | [`view`] | [`View`], [`ViewMut`]: tensors in the caller's memory, checked against the kernel's plan |
//! | [`device`] | [`Device`]: the seam between kernels and machines, for devices of others, too |
//! | [`cpu`], [`host_memory`] | [`Cpu`]: this machine's processor; its memory |
//! | `cuda`, `opencl`, `gpu` | GPUs of this machine, whose drivers are looked for at run time; features of these names |
//! | [`team`], [`affinity`] | threads that run a kernel together, and where |
//! | [`error`](mod@error) | what can go wrong: [`KernelError`], [`DeviceError`] |
//! | [`contract`] | the tests that every device must pass |
//!
//! Arrows between them go down the list: `kernel` knows `view` and `device`, no device knows
//! another.
#![warn(missing_docs)]

pub mod affinity;
mod cache;
pub mod contract;
pub mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
pub mod device;
mod element;
pub mod error;
mod executable;
#[cfg(any(feature = "cuda", feature = "opencl"))]
pub mod gpu;
pub mod host_memory;
pub mod kernel;
#[cfg(feature = "opencl")]
pub mod opencl;
pub mod runner;
pub mod team;
pub mod view;

pub use affinity::{allowed_cores, pin_to_core};
pub use cpu::{Cpu, CpuCall};
#[cfg(feature = "cuda")]
pub use cuda::CudaDevice;
pub use device::{Bound, Device, Extent};
pub use element::{Element, bytes_of, bytes_of_mut};
pub use error::{DeviceError, KernelError, LoadError, Misfit};
#[cfg(any(feature = "cuda", feature = "opencl"))]
pub use gpu::GpuInfo;
pub use host_memory::HostMemory;
pub use kernel::{Kernel, Packed, Run, STAGGER_BYTES, Scratch};
#[cfg(feature = "opencl")]
pub use opencl::OpenClDevice;
pub use runner::Runner;
pub use team::Team;
pub use view::{View, ViewMut};
