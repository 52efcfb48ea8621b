//! What a compiler does at deploy time: look up the best schedule of an operator, build its kernel, run it in its own process.
//!
//! `cargo run --release -p autotune-examples --example query_database [DATABASE]`
//!
//! Without a database the schedule is the untuned one, which is also what a compiler falls back to on a miss.

use autotune::Tuned;
use autotune_codegen as codegen;
use autotune_db::TuningDb;
use autotune_ir::layout::{from_layout, to_layout};
use autotune_ir::program::Role;
use autotune_ir::{KernelPlan, Target};
use autotune_measure::{Buffers, Code, Compiler, Kernel, Team};
use autotune_schedules::{Operands, Workload, max_rel_error, reference};

fn main() -> anyhow::Result<()> {
    let workload: Workload = "conv2d:c=32,h=28,w=28,o=32,k=3,p=1,bias,act=relu".parse()?;
    let target = Target::detect("cpu", Some(1))?;
    let tuned = match std::env::args().nth(1) {
        Some(path) => Tuned::lookup(&TuningDb::open_reading(path)?, &workload, &target)?,
        None => Tuned::untuned(&workload, &target)?,
    };
    println!(
        "{}",
        if tuned.is_tuned() { "found in the database:" } else { "not in a database, the untuned schedule:" }
    );
    println!("{}", tuned.config());

    let program = tuned.program();
    let dir = tempfile::tempdir()?;
    let code = match codegen::asm::assemble(program, &target) {
        Ok(code) => Code::Machine(code),
        // Not an x86-64 with AVX2 or AVX-512: a C compiler it is.
        Err(_) => {
            let library = dir.path().join("kernel.so");
            let limit = std::time::Duration::from_secs(60);
            Compiler::find()?.compile(&codegen::c::generate(program, &target), &library, limit)?;
            Code::Library(library)
        }
    };

    let plan = KernelPlan::of(program);
    let mut team = Team::new(target.threads());
    let mut buffers = Buffers::new(&plan, team.threads())?;
    let operands = Operands::random(&workload.spec(), 0);
    let mut output = 0;
    for (i, buffer) in plan.buffers.iter().enumerate() {
        if buffer.role == Role::Output {
            output = i;
        }
        if let Some(tensor) = operands.find(buffer.role) {
            buffers.buffer_mut(i).copy_from_slice(&to_layout(tensor, buffer.layout)?);
        }
    }
    // SAFETY: the code was just generated for this very plan and processor.
    let kernel = unsafe { Kernel::new(&code, plan.clone())? };
    kernel.prepare(&mut team, &mut buffers);
    kernel.run(&mut team, &mut buffers);

    let result = from_layout(buffers.buffer(output), &workload.output_shape(), plan.buffers[output].layout)?;
    println!("largest relative error: {:.1e}", max_rel_error(&result, &reference(&workload, &operands)));
    Ok(())
}
