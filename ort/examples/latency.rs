//! Runs an ONNX file through the crate `ort`, on autotune's kernels, and prints the median time of
//! a run. But for one line, it is a program of any backend.
//!
//! ```text
//! cargo run --release -p ort-autotune --example latency -- model.onnx THREADS RUNS [1x3x320x320]
//! ```

use std::env;
use std::error::Error;
use std::time::Instant;

use ort::session::{Session, SessionInputValue};
use ort::value::{DynValue, Tensor, TensorElementType, ValueType};

fn main() -> Result<(), Box<dyn Error>> {
    ort::set_api(ort_autotune::api());

    let words: Vec<String> = env::args().skip(1).collect();
    let [path, threads, runs, rest @ ..] = &words[..] else { return Err("usage: FILE THREADS RUNS [SHAPE]".into()) };
    let environment = ort::init().build()?;
    let builder = Session::builder(&environment)?.with_intra_threads(threads.parse()?)?;
    let mut session = { builder }.commit_from_file(path)?;
    let given = rest.first().map(|shape| shape.split('x').map(str::parse::<i64>).collect::<Result<Vec<_>, _>>());
    let given = given.transpose()?;
    let tensors = tensors(&session, given.as_deref())?;

    let mut secs = Vec::new();
    for _ in 0..runs.parse::<usize>()? + 1 {
        let inputs: Vec<(&str, SessionInputValue)> =
            tensors.iter().map(|(name, tensor)| (&**name, tensor.into())).collect();
        let start = Instant::now();
        session.run(inputs)?;
        secs.push(start.elapsed().as_secs_f64());
    }
    // The first run makes the network for these shapes.
    secs.remove(0);
    secs.sort_by(f64::total_cmp);
    println!("{path}: median {:.3} ms of {} runs", secs[secs.len() / 2] * 1e3, secs.len());
    Ok(())
}

/// Returns a tensor for each input: ones for integers, else numbers within -1 and 1. Open extents
/// are one, or those of a given shape.
fn tensors(session: &Session, given: Option<&[i64]>) -> Result<Vec<(String, DynValue)>, Box<dyn Error>> {
    let mut tensors = Vec::new();
    for input in session.inputs() {
        let ValueType::Tensor { ty, shape, .. } = input.dtype() else { return Err("an input is no tensor".into()) };
        let is_open = shape.iter().any(|&extent| extent < 0);
        let shape: Vec<i64> = match given {
            Some(given) if is_open => given.to_vec(),
            _ => shape.iter().map(|&extent| extent.max(1)).collect(),
        };
        let count = shape.iter().product::<i64>() as usize;
        let tensor = match ty {
            TensorElementType::Int64 => Tensor::from_array((shape, vec![1i64; count]))?.into_dyn(),
            _ => {
                let numbers = (0..count).map(|number| ((number * 7919) % 2001) as f32 / 1000.0 - 1.0);
                Tensor::from_array((shape, numbers.collect::<Vec<f32>>()))?.into_dyn()
            }
        };
        tensors.push((input.name().to_string(), tensor));
    }
    Ok(tensors)
}
