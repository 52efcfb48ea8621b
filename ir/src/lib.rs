//! Loop nests: what they compute, the machines they are for, and what can be said of them without
//! running them.
//!
//! | module | what it holds |
//! |---|---|
//! | [`spec`] | what is to be computed: equations over named tensors |
//! | [`target`] | the machine that code is made for |
//! | [`program`], [`affine`] | the loop nests, the hub that everything else reads |
//! | [`formula`] | what the operations of values compute: straight programs of what vector units do |
//! | [`instruction`], [`vector`] | instructions that do whole loop nests, and accesses of several elements at once |
//! | [`verify`](mod@verify), [`interp`], [`print`](mod@print) | independent proof, slow execution, text |
//! | [`problem`] | what the verifier and the interpreter may find wrong |
//! | [`analyse`], [`machine`] | footprints, registers and cycles of a program, and the hardware numbers that they are counted by |
//! | [`plan`], [`launch`], [`artifact`] | the interface of a kernel built from a program, and both code and interface |
//! | [`dtype`], [`layout`] | element types and how they round, how tensors lie in memory |
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
pub use target::{CpuTarget, GpuApi, GpuTarget, Isa, KeyParts, Rates, Reach, Target, TargetError};
pub use verify::{may_overwrite, verify};
