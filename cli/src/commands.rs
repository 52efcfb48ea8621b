//! The subcommands, with one module each.

mod bench;
mod best;
mod compile;
mod compile_cuda;
mod conversions;
mod file;
mod fleet;
mod kinds;
mod log;
mod lookup;
mod phases;
mod planned;
mod profile;
mod quantize;
mod report;
mod rounded;
mod run;
mod shapes;
mod shared;
mod show;
mod snapshot;
mod targets;
mod tasks;
mod trials;
mod tune;
mod variants;

use std::process::ExitCode;

use anyhow::Result;
use autotune_measure::scratch;

use crate::args::{Cli, Command};
use crate::interrupt;

/// Runs the command of the command line. First removes the temporary files that killed runs left
/// behind.
pub(crate) fn run(cli: Cli) -> Result<ExitCode> {
    if !matches!(cli.command, Some(Command::Worker)) {
        interrupt::watch()?;
        scratch::remove_stale();
    }

    match cli.command {
        None => tune::run(cli.tune)?,
        Some(Command::Tasks { subject, target }) => {
            let network = subject.tasks(&target)?;
            tasks::run(&network, &target.detect(&network.workloads())?)?;
        }
        Some(Command::Best { workload, target, db }) => {
            best::run(&workload, &target.detect(std::slice::from_ref(&workload))?, &db)?
        }
        Some(Command::Log { action }) => log::run(action)?,
        Some(Command::Bench { subject, target, db, profile: true, spin, json, .. }) => {
            profile::run(&subject, &target, spin, &db, json)?
        }
        Some(Command::Bench { subject, target, db, variant, backend, json, profile: false, .. }) => {
            let network = variant.of(subject.tasks(&target)?)?;
            bench::run(&network, &target, &db, backend, json)?;
        }
        Some(Command::Show { workload, config, target, db, backend }) => {
            show::run(&workload, config, &target.detect(std::slice::from_ref(&workload))?, &db, backend)?;
        }
        Some(Command::Run(args)) => run::run(args)?,
        Some(Command::Compile(args)) if !args.target.is_cpu() => compile_cuda::run(&args)?,
        Some(Command::Compile(args)) => compile::run(args)?,
        Some(Command::Quantize(args)) => quantize::run(args)?,
        Some(Command::Report(args)) => report::run(args)?,
        Some(Command::Snapshot { action }) => snapshot::run(action)?,
        Some(Command::Fleet { action }) => fleet::run(action)?,
        Some(Command::Targets) => targets::run()?,
        Some(Command::Worker) => return Ok(autotune_measure::worker::serve()),
    }

    Ok(ExitCode::SUCCESS)
}
