//! Workloads, schedule spaces, loop nests and code generators.
#![warn(missing_docs)]

pub mod affine;
pub mod codegen;
pub mod config;
pub mod contraction;
pub mod direct;
pub mod interp;
pub mod lower;
pub mod plan;
pub mod print;
pub mod program;
pub mod reference;
pub mod space;
pub mod target;
pub mod tensor;
pub mod verify;
pub mod workload;

pub use affine::{Affine, VarId};
pub use config::{Config, Value};
pub use interp::{InterpError, interpret};
pub use lower::{LowerError, lower};
pub use plan::KernelPlan;
pub use program::Program;
pub use reference::{max_rel_error, reference, tolerance};
pub use space::ScheduleSpace;
pub use target::{CpuTarget, Isa, Target, TargetError};
pub use tensor::Operands;
pub use verify::{VerifyError, verify};
pub use workload::{Conv2d, Matmul, Operator, Workload, WorkloadError};
