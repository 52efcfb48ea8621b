//! Neural networks: a graph is imported or built, rewritten, partitioned into steps, and run by
//! tuned kernels.
//!
//! Graphs, operators, rewriting and ONNX files are in the crate `autotune_graph`, whose public
//! items are re-exported here.
//!
//! # Files
//!
//! | file | what it owns |
//! |---|---|
//! | `cut`, `cut/` | a graph as steps: kernels of workloads, copies, aliased memory |
//! | `choose`, `options` | candidate schedules of steps, layout constraints, conversion times |
//! | `layouts`, `minimise` | choice of every tensor's layout and every step's schedule |
//! | `plan`, `conversion`, `conversions` | actions on memory, layout conversions |
//! | `arena`, `places`, `strided`, `memory_need` | placement and size of tensors in memory, strided copies |
//! | `compiled`, `constants` | compiled networks and their constants: [`Compiled`], [`Workspace`] |
//! | `device` | devices that networks run on: [`NetworkDevice`] |
//! | `compiled/check` | comparison of results with the reference |
//! | `compiled/profile`, `compiled/spans` | times of steps |
//! | `example` | random tensors for inputs |
//! | `family`, `family/` | networks whose input shapes change: [`Family`] |
//! | `library`, `library/` | networks as shared libraries: [`Library`] |
//! | `interleaved`, `quantile` | interleaved timing of networks |
//! | `phased`, `phase_plan` | networks whose shapes depend on data |
//! | `phase_control`, `phase_layer` | loops, branches, and long recurrent layers |
//! | `pinned` | plans as data, for other processes: [`PinnedNetwork`] |
//! | `planned` | planned kernels for a target that need not be present |
//! | `decide` | choice of the precision by measurement |
//! | `quantise`, `quantise/` | quantisation of a float network by measurement: [`quantise()`] |
//! | `race`, `race/` | choice of schedules by timing them within the network |
//! | `testing` | random networks and databases for tests |
//! | `session`, `session/`, `session_phases` | a model that runs on tensors of any shape: [`Session`] |
//! | `subject` | names that users give, and their tasks: [`Subject`] |
//! | `switched` | a workspace that changes between networks |

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
mod example;
mod family;
mod interleaved;
mod layouts;
mod library;
mod memory_need;
mod minimise;
mod options;
mod phase_control;
mod phase_layer;
mod phase_plan;
mod phased;
mod pinned;
mod places;
mod plan;
mod planned;
mod quantile;
mod quantise;
mod race;
mod session;
mod session_phases;
mod similar;
mod strided;
mod subject;
mod switched;
#[cfg(test)]
mod testing;

pub use autotune_graph::{
    Builder, Constant, ConvLayer, DType, DeclaredType, EvaluateError, Fill, Graph, GraphError, GraphNode, Input,
    Listed, NodeId, Op, OpError, Operator, Output, Precision, Seeded, Tensor, Trace, UnknownPrecision, Value, Weights,
    dequantised, listed, onnx, op, operators, printable, quantisation, rewrite, zoo,
};
pub use autotune_runtime::Waiting;
pub use compiled::{Checked, Compiled, StepError, StepSpan, StepTime, Workspace, output_error};
pub use conversions::{PlannedConversions, conversions};
pub use decide::{Contender, Decided, decide};
pub use device::NetworkDevice;
pub use error::{CheckError, CompileError, RunError};
pub use example::random_input;
pub use family::{
    Extents, Family, FamilyError, FamilyOptions, FamilyWorkspace, InputShapes, MakeGraph, OutsideError, ShapeRange,
    ShapeRangeError,
};
pub use interleaved::time_interleaved;
pub use library::cuda::{CudaLibrary, CudaLibraryError};
pub use library::error::LibraryError;
pub use library::{Library, LibraryFormat, identifier};
pub use pinned::{PinnedMismatch, PinnedNetwork};
pub use planned::{PlannedKernel, PlannedStep, planned};
pub use quantile::quantile;
pub use quantise::{LayerError, PrecisionMix, QuantiseError, QuantiseOptions, QuantisedNetwork, quantise};
pub use race::{RaceError, RaceOutcome, race};
pub use session::{Session, SessionError, SessionOptions, SessionOutput, SessionPrecision, SessionRun};
pub use subject::{Subject, SubjectError, SubjectLoadError, tasks};
