//! The `autotune` command: parses the command line, runs the subcommand and reports errors.

mod args;
mod commands;
mod device_limit;
mod interrupt;
mod npy;
mod output;
mod page;
mod progress;
mod report;
mod search_kind;

use std::process::ExitCode;

use args::Failure;
use output::{print, say};

/// Lowering builds trees of small nodes, thousands of them per second. The system's allocator would
/// take almost half of that time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = match args::parse(std::env::args_os()) {
        Ok(cli) => cli,
        Err((text, 0)) => return print(&text).map_or_else(|error| failed(&error), |()| ExitCode::SUCCESS),
        Err((message, code)) => {
            say(format_args!("autotune: {message}"));
            return ExitCode::from(code);
        }
    };
    commands::run(cli).unwrap_or_else(|error| failed(&error))
}

/// Prints an error with its causes in one line, without the causes that its message already ends
/// with.
fn failed(error: &anyhow::Error) -> ExitCode {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.ends_with(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    say(format_args!("autotune: {text}"));
    ExitCode::from(error.downcast_ref::<Failure>().map_or(1, Failure::exit_code))
}
