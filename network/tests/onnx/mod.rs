//! Import and export of ONNX files.
//!
//! The conformance models are those of the Python package `onnx` 1.23.2; `cases.py` in this folder
//! extracts them, and `AUTOTUNE_ONNX_DATA` names their folder. Without it these tests are skipped
//! with a message; `AUTOTUNE_REQUIRE=onnx` makes that a failure. Users' models work alike with
//! `users.py`, `AUTOTUNE_ONNX_MODELS` and `onnx_models`, and quantised ones with `quantised.py`,
//! `AUTOTUNE_ONNX_QUANTISED` and `onnx_quantised`.
#![allow(unreachable_pub, clippy::unwrap_used)]

mod conformance;
mod devices;
mod files;
mod large;
mod phases;
mod quantised;
mod recurrent;
mod running;
mod sizes;
mod special;
mod special_rows;
mod steps;
mod users;
