//! Python bindings: [`Session`](autotune_network::Session) as the class `_autotune.Session`, on
//! arrays of f32.
//!
//! The Python files of the package convert other arrays, and start the command `autotune` for what
//! takes longer than a run: tuning, profiles, libraries.

mod error;
mod session;

use pyo3::prelude::*;

/// Loops of kernels are made from trees of small nodes; the system's allocator would take almost
/// half of that time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Native part of the package `autotune`.
#[pymodule]
fn _autotune(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("NETWORKS", autotune_network::zoo::NAMES.to_vec())?;
    module.add_class::<session::PySession>()
}
