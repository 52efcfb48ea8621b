//! Errors of devices and kernels.

use std::path::PathBuf;

use autotune_ir::DType;
use autotune_ir::program::Layout;
use thiserror::Error;

/// Error of a device.
#[derive(Debug, Error)]
pub enum DeviceError {
    /// The device or its driver is missing; the message says what to do.
    #[error("{0}")]
    Absent(String),
    /// The device rejects the code.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The device is out of memory.
    #[error("{message}")]
    OutOfMemory {
        /// Message of the device or of the system.
        message: String,
    },
    /// A range is not within a memory.
    #[error("bytes {first_byte}..{end} are out of bounds: the memory has {bytes} bytes")]
    OutOfBounds {
        /// First byte of the range.
        first_byte: usize,
        /// Exclusive end of the range, in bytes.
        end: usize,
        /// Size of the memory, in bytes.
        bytes: usize,
    },
    /// The device failed; the content of its memory may be lost.
    #[error("{message}")]
    Fault {
        /// Message of the driver.
        message: String,
    },
}

impl DeviceError {
    /// Creates a [`DeviceError::Fault`] with a message.
    pub fn fault(message: impl ToString) -> Self {
        Self::Fault { message: message.to_string() }
    }
}

/// Error of loading code.
#[derive(Debug, Error)]
pub enum LoadError {
    /// The library cannot be opened.
    #[error("cannot load {path}: {source}")]
    Open {
        /// Path of the library.
        path: PathBuf,
        /// Error of the dynamic loader.
        source: libloading::Error,
    },
    /// An entry point of the plan is missing.
    #[error("{path} has no function '{symbol}'")]
    Symbol {
        /// Path of the library.
        path: PathBuf,
        /// Name of the entry point.
        symbol: String,
    },
    /// The entry points of machine code do not match the stages of the plan.
    #[error("machine code with {entries} entries in {code_bytes} bytes does not match a plan of {stages} stages")]
    Entries {
        /// Number of entry points.
        entries: usize,
        /// Length of the code in bytes.
        code_bytes: usize,
        /// Number of stages in the plan.
        stages: usize,
    },
    /// The code is for another kind of device.
    #[error("the code is not for {device}")]
    Kind {
        /// Name of the device.
        device: String,
    },
    /// No memory for machine code could be mapped.
    #[error("cannot map executable memory: {0}")]
    NoMemory(std::io::Error),
    /// The system refuses the tile registers of the CPU, which the code uses.
    #[error(
        "the system refuses tile registers (AMX) to this process: {0}. It needs Linux 5.16 or newer, and \
         AT_MINSIGSTKSZ bytes in every signal stack; kernels for the target cpu:avx2 need no tile registers"
    )]
    Tiles(std::io::Error),
    /// The driver rejects the code.
    #[error("{0}")]
    Refused(String),
}

/// Incorrect use of a kernel. Nothing was executed, except on [`KernelError::Device`].
#[derive(Debug, Error)]
pub enum KernelError {
    /// The number of operands or outputs is wrong.
    #[error("got {found} {what}, expected {wanted}: {names}")]
    Count {
        /// `operands`, `constants` or `outputs`.
        what: &'static str,
        /// Number that was passed.
        found: usize,
        /// Number that the kernel has.
        wanted: usize,
        /// Names of those that the kernel has, separated by commas.
        names: String,
    },
    /// An operand does not match the plan.
    #[error("'{name}': {misfit}")]
    Operand {
        /// Name of the operand in the plan.
        name: String,
        /// Difference from the plan.
        misfit: ViewMismatch,
    },
    /// Packed constants or scratch belong to another kernel.
    #[error("cannot use {what} of another kernel")]
    OtherKernel {
        /// `packed constants` or `scratch`.
        what: &'static str,
    },
    /// Memory is too small or insufficiently aligned, or scratch is for fewer threads.
    #[error(
        "{found} bytes for {what} are too few or misaligned: the kernel needs {needed} on this device, aligned to 64"
    )]
    Memory {
        /// `packed constants` or `scratch`.
        what: &'static str,
        /// Size of the memory in bytes.
        found: usize,
        /// Required size: [`crate::Kernel::scratch_bytes`] or [`crate::Kernel::packed_bytes`].
        needed: usize,
    },
    /// The sizes in the plan overflow.
    #[error("the plan's buffers overflow the address space")]
    Overflow,
    /// The device reported an error.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// Difference between a view and the buffer of the plan.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ViewMismatch {
    /// The operand is [`crate::View::packed`], but runs read it.
    #[error("it has no memory, but runs read it")]
    Absent,
    /// The element types differ in size or kind.
    #[error("its element type is {}, expected {}", found.word(), wanted.word())]
    DType {
        /// Type of the view.
        found: DType,
        /// Type in the plan.
        wanted: DType,
    },
    /// The physical shapes differ.
    #[error("its physical shape is {found:?}, expected {wanted:?}")]
    Shape {
        /// Shape of the view.
        found: Vec<usize>,
        /// Shape in the plan.
        wanted: Vec<usize>,
    },
    /// The layouts of the logical tensor differ.
    #[error("its layout is {found:?}, expected {wanted:?}")]
    Layout {
        /// Layout of the view.
        found: Layout,
        /// Layout in the plan.
        wanted: Layout,
    },
    /// The memory is too small for the shape.
    #[error("its memory has {found} bytes, its shape needs {wanted}")]
    Size {
        /// Bytes of the memory.
        found: usize,
        /// Bytes that the shape needs.
        wanted: usize,
    },
    /// The address is insufficiently aligned for kernels.
    #[error("its address is aligned to {found} bytes, the device needs {wanted}")]
    Alignment {
        /// Largest power of two that divides the address.
        found: usize,
        /// Required alignment in bytes.
        wanted: usize,
    },
    /// The memory belongs to another device.
    #[error("it is in the memory of another device")]
    Elsewhere,
}
