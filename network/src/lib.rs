//! Neural networks: a graph is imported or built, rewritten, cut into tasks, and run by tuned kernels.
//!
//! # Files
//!
//! | file | what it owns |
//! |---|---|
//! | `tensor` | tensors of any element type, by value |
//! | `op`, `op/` | what a node computes: attributes, and the shape of its output |
//! | `op/evaluate` | what a node computes, as plain loops: the reference |
//! | `graph` | nodes over each other: [`Graph`] |
//! | `builder`, `builder/` | graphs layer by layer, and where their weights are from: [`Builder`] |
//! | `zoo`, `zoo/` | networks that come with the library |
//! | `evaluate` | the tensors of a graph, by reference |

pub mod op;
pub mod zoo;

mod builder;
mod error;
mod evaluate;
mod graph;
mod tensor;

pub use builder::{Builder, Conv, Fill, Seeded, Value, Weights};
pub use error::{GraphError, OpError};
pub use evaluate::EvaluateError;
pub use graph::{Graph, Node, NodeId, Output};
pub use op::Op;
pub use tensor::{Element, Tensor};
