//! Shows what a compiler does at deploy time if a schedule determines the layouts of tensors: asks
//! the kernel's plan, and converts its tensors to those layouts.
//!
//! `cargo run --release -p autotune-examples --example query_database [DATABASE]`
//!
//! Without a database, the untuned schedule is used, which is also the fallback on a miss.

use std::sync::Arc;

use autotune::ir::layout::{from_layout, to_layout};
use autotune::ir::plan::Binding;
use autotune::{Operands, Query, Target, TuningDb, View, ViewMut, Workload, max_rel_error, reference};

fn main() -> anyhow::Result<()> {
    let workload: Workload = "conv2d:c=32,h=28,w=28,o=32,k=3,p=1,bias,act=relu".parse()?;
    let target = Target::detect("cpu", Some(1))?;
    let query = Query::new(&workload, &target);
    let tuned = match std::env::args().nth(1) {
        Some(path) => query.source(&TuningDb::open_reading(path)?).best()?,
        None => query.best()?,
    };
    let origin = if tuned.is_tuned() { "found in the database:" } else { "not in a database, the untuned schedule:" };
    println!("{origin}");
    println!("{}", tuned.config());

    let mut runner = tuned.build()?;

    // Converts the caller's tensors to the layouts that the schedule requires.
    let operands = Operands::random(workload.spec(), 0);
    let kernel = Arc::clone(runner.kernel());
    let buffers = &kernel.plan().buffers;
    let given = buffers.iter().filter_map(|buffer| Some((operands.find(buffer.role)?, buffer)));
    let given = given.map(|(tensor, buffer)| Ok((to_layout(tensor, buffer.layout)?, buffer)));
    let given = given.collect::<anyhow::Result<Vec<_>>>()?;
    let [output] = &buffers.iter().filter(|buffer| buffer.binding == Binding::Output).collect::<Vec<_>>()[..] else {
        anyhow::bail!("the kernel has not one output")
    };
    let mut result = vec![0.0; output.shape.iter().product()];

    let views: Vec<View<'_>> =
        given.iter().map(|(elements, buffer)| View::new(elements, &buffer.shape).in_layout(buffer.layout)).collect();
    runner.pack(&views[1..2])?; // the weights, once
    runner.run(&views, &mut [ViewMut::new(&mut result, &output.shape).in_layout(output.layout)])?;

    let result = from_layout(&result, workload.output_shape(), output.layout)?;
    println!("largest relative error: {:.1e}", max_rel_error(&result, &reference(&workload, &operands)));
    Ok(())
}
