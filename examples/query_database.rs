//! What a compiler does at deploy time: look up the best schedule of an operator, build its kernel, run it in its own process, on its own
//! memory.
//!
//! `cargo run --release -p autotune-examples --example query_database [DATABASE]`
//!
//! Without a database the schedule is the untuned one, which is also what a compiler falls back to on a miss.

use autotune_db::TuningDb;
use autotune_ir::layout::{from_layout, to_layout};
use autotune_ir::plan::Binding;
use autotune_ir::{Artifact, Code, KernelPlan, Target};
use autotune_measure::Compiler;
use autotune_runtime::{Cpu, Kernel, Runner, View, ViewMut};
use autotune_schedules::{Config, Operands, ScheduleSpace, Workload, max_rel_error, reference};

fn main() -> anyhow::Result<()> {
    let workload: Workload = "conv2d:c=32,h=28,w=28,o=32,k=3,p=1,bias,act=relu".parse()?;
    let target = Target::detect("cpu", Some(1))?;
    let space = ScheduleSpace::new(&workload, &target);
    let fits = |config: &Config| space.contains(config);
    let best = match std::env::args().nth(1) {
        Some(path) => TuningDb::open_reading(path)?.best(&workload, &target.key(), &fits)?,
        None => None,
    };
    let hit = best.map(|best| best.record.config);
    println!("{}", if hit.is_some() { "found in the database:" } else { "not in a database, the untuned schedule:" });
    let config = hit.unwrap_or_else(|| space.default_config());
    println!("{config}");

    // Whoever wrote the database: the loop nests are proven before their code runs.
    let program = space.checked_program(&config)?;
    let dir = tempfile::tempdir()?;
    let code = match autotune_codegen::asm::assemble(&program, &target) {
        Ok(code) => Code::Machine(code),
        // Not an x86-64 with AVX2 or AVX-512: a C compiler it is.
        Err(_) => {
            let library = dir.path().join("kernel.so");
            let limit = std::time::Duration::from_secs(60);
            Compiler::find()?.compile(&autotune_codegen::c::generate(&program, &target), &library, limit)?;
            Code::Library(library)
        }
    };
    let cpu = Cpu::new(target.threads());
    let artifact = Artifact { target, plan: KernelPlan::of(&program), code };
    // SAFETY: the code was just generated for this very plan and processor.
    let mut runner = Runner::new(unsafe { Kernel::load(&cpu, &artifact)? }, cpu)?;

    // The caller's tensors, in the layouts that the schedule wants them in.
    let operands = Operands::random(&workload.spec(), 0);
    let buffers = &artifact.plan.buffers;
    let given = buffers.iter().filter_map(|buffer| Some((operands.find(buffer.role)?, buffer)));
    let given = given.map(|(tensor, buffer)| Ok((to_layout(tensor, buffer.layout)?, buffer)));
    let given = given.collect::<anyhow::Result<Vec<_>>>()?;
    let [output] = &buffers.iter().filter(|buffer| buffer.binding == Binding::Output).collect::<Vec<_>>()[..] else {
        anyhow::bail!("the kernel has not one output")
    };
    let mut result = vec![0.0; output.shape.iter().product()];

    let views: Vec<View<'_>> =
        given.iter().map(|(elements, buffer)| View::new(elements, &buffer.shape).in_layout(buffer.layout)).collect();
    runner.pack(&views[1..])?; // weights and bias, once
    runner.run(&views, &mut [ViewMut::new(&mut result, &output.shape).in_layout(output.layout)])?;

    let result = from_layout(&result, &workload.output_shape(), output.layout)?;
    println!("largest relative error: {:.1e}", max_rel_error(&result, &reference(&workload, &operands)));
    Ok(())
}
