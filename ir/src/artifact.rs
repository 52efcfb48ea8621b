//! Compiled kernels in a form that can be stored and loaded.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::plan::KernelPlan;
use crate::target::Target;

/// A kernel compiled for one target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Artifact {
    /// Target that the code was generated for.
    pub target: Target,
    /// Interface of the kernel: buffers and stages.
    pub plan: KernelPlan,
    /// The compiled code, or source that the device compiles.
    pub code: Code,
}

/// Code of a kernel, by format.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Code {
    /// Shared object on this machine; its symbols are the names of the plan's stages.
    Library(PathBuf),
    /// Machine code of a CPU, with one entry point per stage of the plan.
    Machine(MachineCode),
    /// CUDA binary (cubin); its symbols are the names of the plan's stages.
    Cubin(Vec<u8>),
    /// OpenCL C source, which the driver compiles when the kernel is loaded.
    OpenCl(String),
}

/// Machine code of a CPU, position independent and self-contained. The code of a stage refers only
/// to itself and to the constants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineCode {
    /// Code, followed by constants.
    pub bytes: Vec<u8>,
    /// Number of leading bytes that are code.
    pub code_bytes: usize,
    /// Byte offset of each stage's function, in the order of [`KernelPlan::stages`]. Its signature
    /// is that of [`crate::plan::PlanStage::symbol`], by the target's C ABI (System V on x86-64).
    pub entries: Vec<usize>,
}
