//! Backend of the crate [`ort`](https://docs.rs/ort): its sessions run on autotune's kernels.
//!
//! A program enables the feature `alternative-backend` of `ort`, and calls one function before any
//! other of `ort`:
//!
//! ```no_run
//! use ort::session::Session;
//!
//! ort::set_api(ort_autotune::api());
//! let environment = ort::init().build()?;
//! let session = Session::builder(&environment)?.commit_from_file("model.onnx")?;
//! # Ok::<(), ort::Error>(())
//! ```
//!
//! Sessions from files and from memory, named inputs and outputs, tensors of numbers, preallocated
//! outputs, IO bindings, run options and metadata work as with ONNX Runtime. A session runs any
//! shapes that its model permits. Other functions return `ORT_NOT_IMPLEMENTED`.
//!
//! # Session options
//!
//! - The number of threads within operators is that of a run.
//! - Without optimisation (`GraphOptimizationLevel::Disable`), runs use the reference
//!   implementation of every operator: slow, for comparisons.
//! - The configuration entries `autotune.db` (path of a database or snapshot of schedules; by
//!   default the user's database) or `autotune.snapshot` (path of a snapshot), `autotune.precision`
//!   (`f32`, `bf16`, or `auto` for the fastest on random inputs) and `autotune.max_error` (largest
//!   relative error for `auto`; by default 0.01).
//! - The configuration entry `autotune.spin`: with `brief`, helper threads spin for some ten
//!   microseconds between runs instead of fifty, and with `off` never.
//! - Execution providers are refused, but for the CPU's; `ort` then goes on without them.

pub mod element;
pub mod text_options;

mod binding;
mod environment;
mod handle;
mod memory;
mod metadata;
mod options;
mod session;
mod status;
mod tensor;
mod type_info;

use ort_sys::OrtApi;

/// Returns the functions of ONNX Runtime's C API. Those that are not implemented return a status
/// that says so.
pub fn api() -> OrtApi {
    let mut api = ort_sys::stub::api();
    environment::add_to(&mut api);
    memory::add_to(&mut api);
    options::add_to(&mut api);
    session::add_to(&mut api);
    tensor::add_to(&mut api);
    type_info::add_to(&mut api);
    binding::add_to(&mut api);
    metadata::add_to(&mut api);
    api
}
