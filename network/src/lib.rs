//! Neural networks: a graph is imported or built, rewritten, cut into tasks, and run by tuned kernels.
//!
//! # Files
//!
//! | file | what it owns |
//! |---|---|
//! | `tensor` | tensors of any element type, by value |
//! | `op`, `op/` | what a node computes: attributes, and the shape of its output |
//! | `graph` | nodes over each other: [`Graph`] |
//! | `builder`, `builder/` | graphs layer by layer, and where their weights are from: [`Builder`] |
//! | `zoo`, `zoo/` | networks that come with the library |

pub mod op;
pub mod zoo;

mod builder;
mod error;
mod graph;
mod tensor;

pub use builder::{Builder, Conv, Fill, Seeded, Value, Weights};
pub use error::{GraphError, OpError};
pub use graph::{Graph, Node, NodeId, Output};
pub use op::Op;
pub use tensor::{Element, Tensor};
