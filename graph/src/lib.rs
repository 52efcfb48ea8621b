//! Graphs of neural networks: imported from ONNX files or built layer by layer, rewritten to graphs
//! that compute the same with fewer nodes, exported, and evaluated by reference.
//!
//! Nothing here knows schedules, devices or how a network runs; the crate `autotune-network` does.
//!
//! ```
//! use autotune_graph::operators::MatMul;
//! use autotune_graph::{DType, Graph, Tensor, rewrite};
//! let mut graph = Graph::new("double");
//! let x = graph.input("x", DType::F32, &[1, 2])?;
//! let two = graph.constant("two", Tensor::f32(&[2, 1], vec![2.0, 2.0])?);
//! let y = graph.add("y", MatMul, &[x, two])?;
//! graph.output("y", y);
//! let rewritten = rewrite(&graph)?;
//! let y = rewritten.evaluate(&[Tensor::f32(&[1, 2], vec![3.0, 4.0])?])?;
//! assert_eq!(y, [Tensor::f32(&[1, 1], vec![14.0])?]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Files
//!
//! Each uses only those above it.
//!
//! | file | content |
//! |---|---|
//! | `text` | names and lists in messages: [`listed`], [`printable`] |
//! | `error` | errors of operators, nodes and evaluation |
//! | `tensor`, `typed`, `walk` | tensors of any element type; elements by type, in the order of other tensors |
//! | `memory`, `precision` | types of tensors in memory; precision of a network |
//! | `op` | computation of a node: [`Operator`] |
//! | `constant`, `mapped` | tensors that are the same in all runs: in memory, in a file, or computed on demand |
//! | [`operators`] | operators, a file each: ONNX import and export, shapes, reference, workload; registry |
//! | `graph` | nodes and their operands: [`Graph`] |
//! | `evaluate` | reference evaluation of a graph |
//! | [`onnx`] | graphs of ONNX files |
//! | `builder`, `builder/` | graphs layer by layer, and sources of their weights: [`Builder`] |
//! | [`zoo`] | networks that come with the library |
//! | [`rewrite`](mod@rewrite) | rules that simplify graphs |
//! | [`quantisation`], `quantisation/` | roundings and integer weights from statistics of a float graph |

pub mod onnx;
pub mod op;
pub mod operators;
pub mod quantisation;
pub mod rewrite;
pub mod zoo;

mod builder;
mod constant;
mod error;
mod evaluate;
mod graph;
mod mapped;
mod memory;
mod precision;
mod tensor;
mod text;
mod typed;
mod walk;

pub use autotune_ir::DType;
pub use builder::{Builder, ConvLayer, Fill, Seeded, Value, Weights};
pub use constant::{Constant, Identity};
pub use error::{EvaluateError, GraphError, OpError};
pub use graph::{Graph, GraphNode, Input, NodeId, Output};
pub use memory::{is_of_bytes, memory_dtype};
pub use op::{Op, Operator};
pub use precision::{Precision, UnknownPrecision};
pub use rewrite::{Trace, dequantised, rewrite};
pub use tensor::{DeclaredType, Tensor};
pub use text::{Listed, listed, printable};
pub use walk::strides;
