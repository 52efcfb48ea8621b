//! Graphs of ONNX files, and files of graphs.
//!
//! The conformance models of ONNX are in the wheel `onnx` of the Python Package Index; `AUTOTUNE_ONNX_DATA` names the folder
//! `onnx/backend/test/data` of one that is unpacked. Without it these tests say so and pass; `AUTOTUNE_REQUIRE=onnx` makes that a failure.
#![allow(unreachable_pub, clippy::unwrap_used)]

mod build;
mod conformance;
