//! Graphs of ONNX files, and files of graphs.
//!
//! The conformance models of ONNX are those of the Python package `onnx` 1.23.2, as `cases.py`
//! beside this file writes them into a folder; `AUTOTUNE_ONNX_DATA` names it. Without it these
//! tests say so and pass; `AUTOTUNE_REQUIRE=onnx` makes that a failure. So it is with models that
//! users bring, by `users.py`, `AUTOTUNE_ONNX_MODELS` and `onnx_models`, and with quantised ones,
//! by `quantised.py`, `AUTOTUNE_ONNX_QUANTISED` and `onnx_quantised`.
#![allow(unreachable_pub, clippy::unwrap_used)]

mod conformance;
mod files;
mod large;
mod quantised;
mod recurrent;
mod running;
mod sizes;
mod special;
mod special_rows;
mod steps;
mod users;
