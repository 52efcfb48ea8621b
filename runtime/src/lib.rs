//! Runs tuned kernels in the caller's process, on the caller's memory. Contains only what a
//! compiler needs at run time: no compiler, no search and no file format.
//!
//! | module | contents |
//! |---|---|
//! | [`kernel`], [`runner`] | [`Kernel`]: loaded code; [`Runner`]: code with device and scratch |
//! | [`view`] | [`View`], [`ViewMut`]: tensors in the caller's memory |
//! | [`device`] | [`Device`]: the interface between kernels and machines, open to extension |
//! | [`cpu`], [`host_memory`] | [`Cpu`]: this machine's processor; its memory |
//! | `cuda`, `opencl`, `gpu` | GPUs, by features of these names; drivers are loaded at run time |
//! | [`team`], [`affinity`] | threads that run a kernel together, and their pinning to cores |
//! | [`tiles`] | permission to use the tile registers of a CPU |
//! | [`error`](mod@error) | errors: [`KernelError`], [`DeviceError`] |
//! | [`contract`] | tests that every device must pass |
//!
//! Dependencies go down the list: `kernel` uses `view` and `device`; no device uses another.
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
pub mod tiles;
pub mod view;

pub use affinity::{allowed_cores, pin_to_core};
pub use cpu::{Cpu, CpuCall};
#[cfg(feature = "cuda")]
pub use cuda::CudaDevice;
pub use device::{Bound, Device, MemoryExtent};
pub use element::{Element, bytes_of, bytes_of_mut};
pub use error::{DeviceError, KernelError, LoadError, ViewMismatch};
#[cfg(any(feature = "cuda", feature = "opencl"))]
pub use gpu::GpuInfo;
pub use host_memory::HostMemory;
pub use kernel::{Kernel, Packed, Run, STAGGER_BYTES, Scratch};
#[cfg(feature = "opencl")]
pub use opencl::OpenClDevice;
pub use runner::Runner;
pub use team::{Team, Waiting};
pub use view::{View, ViewMut};
