//! The `autotune` command.

mod args;
mod commands;
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

/// Loop nests are trees of small nodes, thousands of them a second: the system's allocator takes
/// almost half of the time of lowering.
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

/// Tells an error in one line: what it says itself, and causes that it does not.
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
