//! Neural networks: a graph is imported or built, rewritten, cut into tasks, and run by tuned
//! kernels.
//!
//! # Files
//!
//! | file | what it owns |
//! |---|---|
//! | `tensor` | tensors of any element type, by value |
//! | `text` | names and lists in messages: [`listed`], [`printable`] |
//! | `constant`, `mapped` | tensors that are the same in all runs: in memory, in a file, or computed when they are packed |
//! | `op` | what a node computes: [`Operator`] |
//! | [`operators`] | operators, a file each: ONNX import and export, shapes, reference, workload; registry |
//! | `typed`, `walk`, `memory` | elements by their types, in the order of other tensors, and as they lie in memory |
//! | `graph` | nodes over each other: [`Graph`] |
//! | `cut`, `cut/` | a graph as steps: kernels of workloads, copies, what is the same memory |
//! | `choose`, `options` | schedules that steps may have, what they want of layouts, times of conversions |
//! | `layouts`, `minimise` | which layout every tensor has, and which schedule every step |
//! | `plan`, `conversion`, `conversions` | what runs on which memory, conversions between layouts |
//! | `arena`, `places`, `strided` | where tensors lie, copies of elements that lie apart |
//! | `compiled`, `constants` | a network that runs: [`Compiled`], [`Workspace`]; what its kernels have of constants |
//! | `device` | devices that networks run on: [`NetworkDevice`] |
//! | `compiled/check` | what it computes beside the reference, and beside the graph before rewriting |
//! | `library`, `library/` | networks as shared libraries: [`Library`] |
//! | `builder`, `builder/` | graphs layer by layer, and where their weights are from: [`Builder`] |
//! | `zoo`, `zoo/` | networks that come with the library |
//! | `turns`, `quantile` | networks timed beside each other |
//! | `planned` | what would run on a target that this machine need not have |
//! | `decide` | the precision of a network, by running it |
//! | `race`, `race/` | schedules timed where they run, within the network |
//! | `testing` | networks and databases that are made up, for tests |
//! | `subject` | what users name, and its tasks: [`Subject`] |
//! | `evaluate` | the tensors of a graph, by reference |
//! | `onnx`, `onnx/` | graphs of ONNX files |
//! | `rewrite`, `rewrite/` | graphs that compute the same with fewer nodes |

pub mod cut;
pub mod onnx;
pub mod op;
pub mod operators;
pub mod rewrite;
pub mod zoo;

mod arena;
mod builder;
mod choose;
mod compiled;
mod constant;
mod constants;
mod conversion;
mod conversions;
mod decide;
mod device;
mod error;
mod evaluate;
mod graph;
mod layouts;
mod library;
mod mapped;
mod memory;
mod minimise;
mod options;
mod places;
mod plan;
mod planned;
mod precision;
mod quantile;
mod race;
mod strided;
mod subject;
mod tensor;
#[cfg(test)]
mod testing;
mod text;
mod turns;
mod typed;
mod walk;

pub use autotune_ir::DType;
pub use builder::{Builder, Conv, Fill, Seeded, Value, Weights};
pub use compiled::{Checked, Compiled, StepError, StepTime, Workspace, output_error};
pub use constant::Constant;
pub use conversions::{PlannedConversions, conversions};
pub use decide::{Contender, Decided, decide};
pub use device::NetworkDevice;
pub use error::{CheckError, CompileError, EvaluateError, GraphError, OpError, RunError};
pub use graph::{Graph, Input, Node, NodeId, Output};
pub use library::error::LibraryError;
pub use library::{Library, identifier};
pub use op::{Op, Operator};
pub use planned::{PlannedKernel, PlannedStep, planned};
pub use precision::{Precision, UnknownPrecision};
pub use quantile::quantile;
pub use race::{RaceError, Raced, race};
pub use rewrite::{Trace, dequantised, rewrite};
pub use subject::{LoadError, Subject, SubjectError, tasks};
pub use tensor::{Stored, Tensor};
pub use text::{Listed, listed, printable};
pub use turns::time_in_turns;
