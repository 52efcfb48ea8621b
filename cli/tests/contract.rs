//! Contract suite for measurers, run on `WorkerMeasurer` with the command as its worker process.

use autotune::contract;
use autotune_ir::Target;
use autotune_measure::{MeasureOptions, WorkerCommand, WorkerMeasurer};

#[test]
fn the_measurer_with_worker_processes_keeps_the_contract() -> Result<(), Box<dyn std::error::Error>> {
    let command = WorkerCommand::new(env!("CARGO_BIN_EXE_autotune"));
    let mut measurer = WorkerMeasurer::with(command, MeasureOptions::default())?;
    contract::measurer(&mut measurer, &Target::detect("cpu", Some(1))?);
    Ok(())
}
