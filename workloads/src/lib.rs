//! Operators, and the reference outputs that kernels are checked against.
//!
//! A workload describes a computation by a text form and by equations.
//!
//! | module | contents |
//! |---|---|
//! | `workload` | [`Workload`]: an operator with sizes, types and epilogue; see [`WorkloadOperator`] |
//! | [`axes`] | axes of a contraction, by the operands that they index |
//! | [`operands`], [`reference`](mod@reference) | random operands, reference outputs |
//! | [`Once`] | per-workload memoisation of derived values |
//! | [`contract`] | tests that external operators must pass |
//!
//! The text form of a workload is its database key and its name on the command line:
//!
//! ```
//! use autotune_workloads::{Operands, Workload, reference};
//!
//! let workload: Workload = "conv2d:n=1,c=8,h=6,w=6,o=8,k=3,s=1,p=1,bias,act=relu".parse()?;
//! assert_eq!(workload.to_string(), "conv2d:n=1,c=8,h=6,w=6,o=8,k=3,s=1,p=1,bias,act=relu");
//! assert_eq!(workload.output_shape(), [1, 8, 6, 6]);
//!
//! let output = reference(&workload, &Operands::random(workload.spec(), 0));
//! assert_eq!(output.shape(), workload.output_shape());
//! # Ok::<(), autotune_workloads::WorkloadError>(())
//! ```

pub mod axes;
pub mod contract;
mod once;
pub mod operands;
mod parallel;
pub mod reference;
mod workload;

pub use once::Once;
pub use operands::{Operands, OutOfMemory};
pub use reference::{Reference, ReferenceError, max_rel_error, reference};
pub use workload::*;
