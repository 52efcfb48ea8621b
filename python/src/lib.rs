//! Python bindings: [`Session`](autotune_network::Session) as the class `_autotune.Session`, on
//! arrays of f32.
//!
//! The Python files of the package convert other arrays, and start the command `autotune` for what
//! takes longer than a run: tuning, profiles, libraries.
//!
//! The library also has the functions of ONNX Runtime's execution provider, since a second library
//! would contain most of the code again.

mod error;
mod session;

// It exports the provider's functions, and defines the allocator.
use autotune_ep as _;
use pyo3::prelude::*;

/// Native part of the package `autotune`.
#[pymodule]
fn _autotune(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("NETWORKS", autotune_network::zoo::NAMES.to_vec())?;
    module.add_class::<session::PySession>()
}
