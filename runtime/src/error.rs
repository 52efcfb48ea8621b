//! What can go wrong.

use std::path::PathBuf;

use autotune_ir::DType;
use autotune_ir::program::Layout;
use thiserror::Error;

/// What a device cannot do, or did not survive.
#[derive(Debug, Error)]
pub enum DeviceError {
    /// There is no such device, or no driver for it; what to do about it.
    #[error("{0}")]
    Absent(String),
    /// It does not take the code.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// It has no memory left.
    #[error("{message}")]
    OutOfMemory {
        /// Its words.
        message: String,
    },
    /// A range that is not within a memory.
    #[error("bytes {first_byte}..{end} of a memory of {bytes} bytes")]
    OutOfBounds {
        /// First byte of the range.
        first_byte: usize,
        /// Behind its last.
        end: usize,
        /// Size of the memory.
        bytes: usize,
    },
    /// It failed. What it holds may be lost.
    #[error("{message}")]
    Fault {
        /// Its words.
        message: String,
    },
}

impl DeviceError {
    /// [`DeviceError::Fault`] in some words.
    pub fn fault(message: impl ToString) -> Self {
        Self::Fault { message: message.to_string() }
    }
}

/// Code that cannot be loaded.
#[derive(Debug, Error)]
pub enum LoadError {
    /// The library cannot be opened.
    #[error("cannot load {path}: {source}")]
    Open {
        /// The library.
        path: PathBuf,
        /// The loader's words.
        source: libloading::Error,
    },
    /// An entry point of the plan is missing.
    #[error("{path} has no function '{symbol}'")]
    Symbol {
        /// The library.
        path: PathBuf,
        /// The entry point.
        symbol: String,
    },
    /// Machine code that does not begin where a stage of the plan should.
    #[error("machine code with {entries} entries in {code_bytes} bytes does not fit a plan of {stages} stages")]
    Entries {
        /// Entries that it has.
        entries: usize,
        /// Its length.
        code_bytes: usize,
        /// Stages of the plan.
        stages: usize,
    },
    /// Code of another kind of device.
    #[error("it is not code for {device}")]
    Kind {
        /// The device that was to take it.
        device: String,
    },
    /// Memory for machine code cannot be had.
    #[error("no executable memory: {0}")]
    NoMemory(std::io::Error),
    /// The driver refuses it.
    #[error("{0}")]
    Refused(String),
}

/// What is wrong with the use of a kernel. Nothing was run.
#[derive(Debug, Error)]
pub enum KernelError {
    /// Too few operands or outputs, or too many.
    #[error("{found} {what} were given, the kernel has {wanted}: {names}")]
    Count {
        /// Operands, constants or outputs.
        what: &'static str,
        /// How many were given.
        found: usize,
        /// How many there are.
        wanted: usize,
        /// Their names.
        names: String,
    },
    /// An operand that does not fit the plan.
    #[error("'{name}': {misfit}")]
    Operand {
        /// Its name in the plan.
        name: String,
        /// What is wrong with it.
        misfit: Misfit,
    },
    /// What was packed by, or scratch of, another kernel.
    #[error("{what} of another kernel")]
    OtherKernel {
        /// Packed constants, or scratch.
        what: &'static str,
    },
    /// Memory that is too small, scratch also if it is for fewer threads, or not aligned.
    #[error("{found} bytes for {what}: the kernel needs {needed} on this device, aligned to 64")]
    Memory {
        /// Scratch, or packed constants.
        what: &'static str,
        /// What there is.
        found: usize,
        /// [`crate::Kernel::scratch_bytes`], [`crate::Kernel::packed_bytes`].
        needed: usize,
    },
    /// The plan's sizes overflow.
    #[error("the plan's buffers overflow the address space")]
    Overflow,
    /// The device.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// Why a view is not the one that a kernel wants.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Misfit {
    /// [`crate::View::packed`] of an operand that runs read.
    #[error("it is absent, and runs read it")]
    Absent,
    /// Elements of another size or kind.
    #[error("its elements are {}, the kernel wants {}", found.word(), wanted.word())]
    DType {
        /// Of the view.
        found: DType,
        /// Of the plan.
        wanted: DType,
    },
    /// Another physical shape.
    #[error("its physical shape is {found:?}, the kernel wants {wanted:?}")]
    Shape {
        /// Of the view.
        found: Vec<usize>,
        /// Of the plan.
        wanted: Vec<usize>,
    },
    /// The logical tensor lies otherwise.
    #[error("its layout is {found:?}, the kernel wants {wanted:?}")]
    Layout {
        /// Of the view.
        found: Layout,
        /// Of the plan.
        wanted: Layout,
    },
    /// Memory that does not hold the shape.
    #[error("its memory has {found} bytes, its shape takes {wanted}")]
    Size {
        /// Of the memory.
        found: usize,
        /// Of the shape.
        wanted: usize,
    },
    /// An address that kernels cannot use.
    #[error("its address is a multiple of {found} bytes only, the device wants {wanted}")]
    Alignment {
        /// Largest power of two that the address is a multiple of.
        found: usize,
        /// What it has to be a multiple of.
        wanted: usize,
    },
    /// Memory of another device.
    #[error("it lies in the memory of another device")]
    Elsewhere,
}
