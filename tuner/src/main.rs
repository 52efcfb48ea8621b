//! The `autotune` command.

mod cli;
mod commands;
mod progress;

use std::process::ExitCode;

use cli::Failure;

/// Loop nests are trees of small nodes, thousands of them a second: the system's allocator takes almost half of the time of lowering.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = match cli::parse(std::env::args_os()) {
        Ok(cli) => cli,
        Err((text, 0)) => {
            print!("{text}");
            return ExitCode::SUCCESS;
        }
        Err((message, code)) => {
            eprintln!("autotune: {message}");
            return ExitCode::from(code);
        }
    };
    commands::run(cli).unwrap_or_else(|error| {
        eprintln!("autotune: {error:#}");
        ExitCode::from(error.downcast_ref::<Failure>().map_or(1, Failure::exit_code))
    })
}
