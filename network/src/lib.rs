//! Neural networks: a graph is imported or built, rewritten, cut into tasks, and run by tuned
//! kernels.
//!
//! # Files
//!
//! | file | what it owns |
//! |---|---|
//! | `cut`, `cut/` | a graph as steps: kernels of workloads, copies, what is the same memory |
//! | `choose`, `options` | schedules that steps may have, what they want of layouts, times of conversions |
//! | `layouts`, `minimise` | which layout every tensor has, and which schedule every step |
//! | `plan`, `conversion`, `conversions` | what runs on which memory, conversions between layouts |
//! | `arena`, `places`, `strided` | where tensors lie, copies of elements that lie apart |
//! | `compiled`, `constants` | a network that runs: [`Compiled`], [`Workspace`]; what its kernels have of constants |
//! | `device` | devices that networks run on: [`NetworkDevice`] |
//! | `compiled/check` | what it computes beside the reference, and beside the graph before rewriting |
//! | `library`, `library/` | networks as shared libraries: [`Library`] |
//! | `turns`, `quantile` | networks timed beside each other |
//! | `planned` | what would run on a target that this machine need not have |
//! | `decide` | the precision of a network, by running it |
//! | `race`, `race/` | schedules timed where they run, within the network |
//! | `testing` | networks and databases that are made up, for tests |
//! | `subject` | what users name, and its tasks: [`Subject`] |

pub mod cut;

mod arena;
mod choose;
mod compiled;
mod constants;
mod conversion;
mod conversions;
mod decide;
mod device;
mod error;
mod layouts;
mod library;
mod minimise;
mod options;
mod places;
mod plan;
mod planned;
mod quantile;
mod race;
mod strided;
mod subject;
#[cfg(test)]
mod testing;
mod turns;

pub use autotune_graph::{
    Builder, Constant, Conv, DType, EvaluateError, Fill, Graph, GraphError, Input, Listed, Node, NodeId, Op, OpError,
    Operator, Output, Precision, Seeded, Stored, Tensor, Trace, UnknownPrecision, Value, Weights, dequantised, listed,
    onnx, op, operators, printable, rewrite, zoo,
};
pub use compiled::{Checked, Compiled, StepError, StepTime, Workspace, output_error};
pub use conversions::{PlannedConversions, conversions};
pub use decide::{Contender, Decided, decide};
pub use device::NetworkDevice;
pub use error::{CheckError, CompileError, RunError};
pub use library::error::LibraryError;
pub use library::{Library, identifier};
pub use planned::{PlannedKernel, PlannedStep, planned};
pub use quantile::quantile;
pub use race::{RaceError, Raced, race};
pub use subject::{LoadError, Subject, SubjectError, tasks};
pub use turns::time_in_turns;
