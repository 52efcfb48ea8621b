//! Writes a built-in network as an ONNX file for other runtimes.
//!
//! ```text
//! cargo run --release -p autotune-examples --example export_onnx -- resnet18 resnet18.onnx
//! ```

use std::fs;

use anyhow::{Context, Result};
use autotune_network::{onnx, zoo};

fn main() -> Result<()> {
    let [name, file] = std::env::args().skip(1).collect::<Vec<_>>().try_into().ok().context("usage: NETWORK FILE")?;
    let bytes = onnx::write(&zoo::graph(&name)?)?;
    fs::write(&file, &bytes).with_context(|| format!("{file} cannot be written"))?;
    println!("{file}: {:.1} MB", bytes.len() as f64 / 1e6);
    Ok(())
}
