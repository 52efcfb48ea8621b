//! Arguments of `autotune compile`.

use std::path::PathBuf;

use clap::Args;

use super::{LookupArgs, SubjectArgs, TargetArgs};

pub(super) const EXAMPLES: &str = "\
Examples:
  autotune compile resnet18 -o resnet18.so               resnet18.so and resnet18.h
  autotune compile model.onnx -o lib/libmodel.so         for cc program.c -Llib -lmodel
  autotune compile model.onnx --shape image=1x3x480x640 -o model.so
  autotune compile resnet18 -o resnet18.so --threads 1   by what is the best for one thread

The library needs no other library and no file; the header says how it is called. Names of functions begin with the file's name, as in \
model_run(..). It runs on processors with this machine's instruction set, and says so on others. What was not tuned is compiled by the schedules \
that are predicted to be the fastest, and it says how many.";

#[derive(Debug, Args)]
pub(crate) struct CompileArgs {
    #[command(flatten)]
    pub(crate) subject: SubjectArgs,
    /// The library's file, which is replaced as a whole; the header is beside it
    #[arg(short, long, value_name = "FILE.so")]
    pub(crate) output: PathBuf,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    #[command(flatten)]
    pub(crate) db: LookupArgs,
}
