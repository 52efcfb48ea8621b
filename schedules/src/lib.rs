//! Schedule spaces, and lowering: from a workload and a config to loop nests.
//!
//! | module | what it holds |
//! |---|---|
//! | [`contraction`] | the main equation of a workload's spec, as it is scheduled |
//! | [`sketch`] | kinds of schedules, behind one trait; a registry has those of each kind of target |
//! | [`space`], [`Candidate`], [`config`] | every schedule of a workload on a target; one of them; its text |
//! | [`direct`] | the sketch for CPUs: knobs, their rules, typed form |
//! | [`fused`] | the sketch for CPUs of two contractions, what is between them in cache |
//! | [`map_reduce`] | the sketch for CPUs of maps, and of reductions that are no contraction |
//! | [`gpu`] | the one composition for GPUs: tiles, stagings, pipelines, inner kernels, limits; its sketches |
//! | [`rows`] | the sketch for GPUs of maps, reductions that are no contraction, and chains of both |
//! | [`winograd`] | the Winograd sketches for CPUs and GPUs: their knobs, their rules, their matrices |
//! | [`lower()`] | from a config to loop nests |
//! | [`contract`] | tests for sketches from outside |
//!
//! From a workload to C source:
//!
//! ```
//! use autotune_codegen::c;
//! use autotune_ir::{CpuTarget, Target, interpret};
//! use autotune_schedules::{ScheduleSpace, lower, tolerance};
//! use autotune_workloads::{Operands, Workload, max_rel_error, reference};
//! use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
//!
//! let workload: Workload = "conv2d:c=8,h=6,w=6,o=8,k=3,p=1,bias,act=relu".parse()?;
//! let target = Target::Cpu(CpuTarget::generic_avx2(1));
//! let space = ScheduleSpace::new(&workload, &target);
//! let config = space.sample(&mut ChaCha8Rng::seed_from_u64(0));
//! let program = lower(&workload, &target, &config)?;
//! println!("{program}\n{}", c::generate(&program, &target));
//!
//! let operands = Operands::random(workload.spec(), 0);
//! let output = interpret(&program, &operands)?;
//! assert!(max_rel_error(&output, &reference(&workload, &operands)) <= tolerance(&workload, &config));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod candidate;
pub mod config;
pub mod contract;
pub mod contraction;
pub mod direct;
mod error;
pub mod fused;
pub mod gpu;
mod knob_space;
mod lower;
pub mod map_reduce;
mod point;
pub mod portfolio;
mod registry;
pub mod rows;
pub mod sketch;
pub mod space;
mod tolerance;
pub mod winograd;

pub use candidate::Candidate;
pub use config::{Config, KnobValues, Value};
pub use error::LowerError;
pub use knob_space::{Knob, KnobSpace};
pub use point::Point;
pub use portfolio::Portfolio;
pub use registry::{LOWERING_VERSION, lower, register_sketch};
pub use sketch::EXACT_TOLERANCE;
pub use space::{ScheduleSpace, UnfitError};
pub use tolerance::tolerance;
