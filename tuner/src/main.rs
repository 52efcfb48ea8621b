//! The `autotune` command.
mod cli;

fn main() {
    let _ = cli::parse(std::env::args_os());
}
