//! Shows what a compiler does at deploy time, on a CPU or a GPU: looks up the best schedule, builds
//! its kernel and runs it on the caller's memory.
//!
//! ```sh
//! cargo run --release -p autotune-examples --example deploy \
//!     [DATABASE|SNAPSHOT [cpu|cuda|opencl]]
//! ```
//!
//! Deployed programs look up schedules in a snapshot (`autotune snapshot write FILE`), a file that
//! any number of processes can read; a database works as well. Without either, the untuned schedule
//! is used, which is also the fallback on a miss. The example `query_database` shows schedules that
//! determine the layouts of the tensors, too.

use autotune::{
    CudaDevice, DType, Device, OpenClDevice, Operands, Origin, Query, Target, Tuned, View, ViewMut, Workload,
    max_rel_error, measure, open_source, reference,
};
use ndarray::ArrayD;

/// Shapes of the operands and of the result, `[batch, rows, columns]`.
const X: [usize; 3] = [1, 197, 768];
const W: [usize; 3] = [1, 768, 512];
const Y: [usize; 3] = [1, 197, 512];

/// Runs the kernel on the caller's slices.
fn on_cpu(tuned: &Tuned, x: &[f32], w: &[f32], y: &mut [f32]) -> anyhow::Result<()> {
    let mut kernel = tuned.build()?;
    let operands = [View::new(x, &X), View::new(w, &W)];
    kernel.pack(&operands[1..])?; // the weights, once
    kernel.run(&operands, &mut [ViewMut::new(y, &Y)])?; // as often as there is a new x
    Ok(())
}

/// Runs the kernel in the device's memory, with uploads before and a download after.
fn on_gpu<D: Device>(tuned: &Tuned, device: D, x: &[f32], w: &[f32], y: &mut [f32]) -> anyhow::Result<()> {
    let (x, w, mut result) = (device.upload(x)?, device.upload(w)?, device.allocate(size_of_val(y))?);
    let mut kernel = tuned.build_on(device)?;
    let operands = [View::of(&x, DType::F32, &X), View::of(&w, DType::F32, &W)];
    kernel.pack(&operands[1..])?;
    kernel.run(&operands, &mut [ViewMut::of(&mut result, DType::F32, &Y)])?;
    Ok(kernel.device().download(&result, y)?)
}

fn main() -> anyhow::Result<()> {
    let workload: Workload = "matmul:m=197,n=512,k=768".parse()?;
    let words: Vec<String> = std::env::args().skip(1).collect();
    let word = words.get(1).map_or("cpu", String::as_str);
    let target = match measure::gpu::find(word).ok().filter(|_| word != "cpu") {
        Some(info) => Target::Gpu(info.target),
        None => Target::detect(word, None)?,
    };

    let query = Query::new(&workload, &target);
    let tuned = match words.first() {
        Some(path) => query.source(&*open_source(path)?).best()?,
        None => query.best()?,
    };
    let origin = match tuned.origin() {
        Origin::Tuned(found) => format!("tuned, {:?}, found under the key of the {}", found.best.standing, found.reach),
        Origin::Predicted { expected_loss } => format!("predicted, expected to take {expected_loss:.2} times the best"),
        Origin::Default | Origin::Transferred => "the untuned schedule".into(),
    };
    println!("{origin}: {}", tuned.config());

    let operands = Operands::random(workload.spec(), 0);
    let [x, w] = [0, 1].map(|which| operands[which].iter().copied().collect::<Vec<f32>>());
    let mut y = vec![0.0; Y.iter().product()];
    match target.gpu() {
        None => on_cpu(&tuned, &x, &w, &mut y)?,
        Some(gpu) if word.starts_with("cuda") => on_gpu(&tuned, CudaDevice::open(gpu)?, &x, &w, &mut y)?,
        Some(gpu) => on_gpu(&tuned, OpenClDevice::open(gpu)?, &x, &w, &mut y)?,
    }

    let result = ArrayD::from_shape_vec(Y.to_vec(), y)?;
    println!("largest relative error: {:.1e}", max_rel_error(&result, &reference(&workload, &operands)));
    Ok(())
}
