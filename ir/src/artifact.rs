//! Built kernels, ready to be loaded.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::plan::KernelPlan;
use crate::target::Target;

/// A kernel for one machine: code and the interface that it keeps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Artifact {
    /// The machine it is made for.
    pub target: Target,
    /// Its interface.
    pub plan: KernelPlan,
    /// The code.
    pub code: Code,
}

/// A kernel's code.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Code {
    /// In a shared object of this machine, under the names of the plan's stages.
    Library(PathBuf),
    /// In hand, one entry per stage of the plan.
    Machine(MachineCode),
    /// Of a CUDA device, under the names of the plan's stages.
    Cubin(Vec<u8>),
    /// Source that the OpenCL device compiles when it loads it.
    OpenCl(String),
}

/// Machine code of a CPU. It is position independent and refers to nothing outside itself; a stage
/// refers to nothing behind the entry of the next but to constants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineCode {
    /// Code, then constants.
    pub bytes: Vec<u8>,
    /// How many of the bytes are code.
    pub code_bytes: usize,
    /// Offset of each stage's function, in the order of [`KernelPlan::stages`]; its interface is
    /// that of [`crate::plan::PlanStage::symbol`] under the C ABI of the target (System V on
    /// x86-64).
    pub entries: Vec<usize>,
}
