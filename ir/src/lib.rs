//! Loop nests, their specifications and target machines, and their analysis, verification and
//! interpretation.
//!
//! | module | contents |
//! |---|---|
//! | [`spec`] | specification of a computation: equations over named tensors |
//! | [`target`] | the machine that code is generated for |
//! | [`program`], [`affine`] | loop nests, the central representation |
//! | [`formula`] | exact definitions of elementwise operations by vector primitives |
//! | [`instruction`], [`vector`] | instructions that execute loop nests, vector accesses |
//! | [`verify`](mod@verify), [`interp`] | static proof and reference execution of programs |
//! | [`print`](mod@print) | text form of programs |
//! | [`problem`] | faults that the verifier and the interpreter find |
//! | [`analyse`], [`machine`] | cost analysis of programs, and the hardware parameters that it uses |
//! | [`plan`], [`launch`], [`artifact`] | interface, launch and code of compiled kernels |
//! | [`dtype`], [`layout`] | element types with their rounding, and layouts of tensors in memory |
#![warn(missing_docs)]

pub mod affine;
pub mod analyse;
pub mod artifact;
pub mod dtype;
pub mod formula;
pub mod instruction;
pub mod interp;
pub mod launch;
pub mod layout;
pub mod machine;
pub mod plan;
pub mod print;
pub mod problem;
pub mod program;
mod sets;
pub mod spec;
pub mod target;
pub mod vector;
pub mod verify;

pub use affine::{Affine, VarId};
pub use artifact::{Artifact, Code, MachineCode};
pub use dtype::DType;
pub use interp::{InterpError, interpret};
pub use launch::Launch;
pub use plan::KernelPlan;
pub use problem::{Problem, ProgramError};
pub use program::Program;
pub use spec::Spec;
pub use target::{CpuTarget, GpuApi, GpuTarget, Isa, KeyParts, KeyScope, Rates, Target, TargetError};
pub use verify::{may_overwrite, verify};
