//! Workloads, schedule spaces, loop nests and code generators.
//!
//! | module | what it holds |
//! |---|---|
//! | [`workload`] | what is to be computed: operator, sizes, epilogue; the text form |
//! | [`target`] | the machine that code is made for |
//! | [`contraction`] | the one description that every operator is lowered from |
//! | [`sketch`] | kinds of schedules, behind one trait, in one registry |
//! | [`space`], [`config`] | every schedule of a workload on a target; one of them |
//! | [`direct`], [`tiled`], [`mma`] | the sketches for CPUs, for GPUs (implicit GEMM included) and for their tensor cores: knobs, their rules, typed form |
//! | [`winograd`] | the Winograd sketches for CPUs and GPUs: their knobs, their rules, their matrices |
//! | [`lower`](mod@lower) | from a config to loop nests |
//! | [`program`], [`affine`] | the loop nests, the hub that everything below reads |
//! | [`verify`](mod@verify), [`interp`], [`print`](mod@print) | independent proof, slow execution, text |
//! | [`codegen`], [`plan`], [`launch`] | C, machine code, CUDA or OpenCL, and the interface of the kernel built from it |
//! | [`tensor`], [`reference`](mod@reference) | operands and layouts, the result that kernels are checked against |
//!
//! From a workload to C source:
//!
//! ```
//! use autotune_schedules::{CpuTarget, Operands, ScheduleSpace, Target, Workload};
//! use autotune_schedules::{codegen::c, interpret, lower, max_rel_error, reference, tolerance};
//! use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
//!
//! let workload: Workload = "conv2d:c=8,h=6,w=6,o=8,k=3,p=1,bias,act=relu".parse()?;
//! let target = Target::Cpu(CpuTarget::generic_avx2(1));
//! let space = ScheduleSpace::new(&workload, &target);
//! let config = space.sample(&mut ChaCha8Rng::seed_from_u64(0));
//! let program = lower(&workload, &target, &config)?;
//! println!("{program}\n{}", c::generate(&program, &target));
//!
//! let operands = Operands::random(&workload, 0);
//! let output = interpret(&program, &operands)?;
//! assert!(max_rel_error(&output, &reference(&workload, &operands)) <= tolerance(&workload, &config));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod affine;
pub mod codegen;
pub mod config;
pub mod contraction;
pub mod direct;
pub mod interp;
pub mod launch;
pub mod lower;
pub mod mma;
pub mod plan;
pub mod print;
pub mod program;
pub mod reference;
pub mod sketch;
pub mod space;
pub mod target;
pub mod tensor;
pub mod tiled;
pub mod verify;
pub mod winograd;
pub mod workload;

pub use affine::{Affine, VarId};
pub use config::{Config, Value};
pub use interp::{InterpError, interpret};
pub use launch::Launch;
pub use lower::{LOWERING_VERSION, LowerError, lower};
pub use plan::KernelPlan;
pub use program::Program;
pub use reference::{EXACT_TOLERANCE, Reference, ReferenceError, max_rel_error, reference, tolerance};
pub use space::{ScheduleSpace, UnfitError};
pub use target::{CpuTarget, GpuApi, GpuTarget, Isa, Target, TargetError};
pub use tensor::{Operands, OutOfMemory};
pub use verify::{VerifyError, verify};
pub use workload::{Conv2d, DType, Matmul, Operator, Workload, WorkloadError};
