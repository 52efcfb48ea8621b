//! Schedule spaces, and lowering of a workload and a config to loop nests.
//!
//! | module | contents |
//! |---|---|
//! | [`contraction`] | the main equation of a workload's spec, in the form that is scheduled |
//! | [`sketch`] | the trait of a kind of schedule, which a registry lists per target kind |
//! | [`space`] | all schedules of a workload on a target |
//! | [`Candidate`], [`config`] | one schedule; its text form |
//! | [`direct`] | CPU sketch of contractions: knobs, their rules, typed form |
//! | [`fused`] | sketches of two fused contractions whose intermediate tensor stays in cache |
//! | [`map_reduce`] | CPU sketch of maps, non-contraction reductions, and chains of both |
//! | [`gpu`] | GPU contractions: tiles, staging, pipelines, inner kernels, limits, sketches |
//! | [`rows`] | GPU sketch of maps, non-contraction reductions, and chains of both |
//! | [`winograd`] | Winograd sketch for CPUs and GPUs: knobs, rules, transform matrices |
//! | [`lower()`] | lowers a config to loop nests |
//! | [`contract`] | tests for sketches from other crates |
//!
//! Example that lowers a workload to C source:
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
//! let error = max_rel_error(&output, &reference(&workload, &operands));
//! assert!(error <= tolerance(&workload, &config));
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
pub use config::{Config, KnobValue, KnobValues};
pub use error::LowerError;
pub use knob_space::{Knob, KnobSpace};
pub use point::KnobIndices;
pub use portfolio::Portfolio;
pub use registry::{LOWERING_VERSION, lower, register_sketch};
pub use sketch::EXACT_TOLERANCE;
pub use space::{ScheduleSpace, UnfitError};
pub use tolerance::tolerance;
