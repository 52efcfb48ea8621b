//! Arguments of `autotune run`.

use std::path::PathBuf;

use autotune_network::Waiting;
use clap::Args;

use super::target::parse_spin;
use super::{LookupArgs, SubjectArgs, TargetArgs};

pub(super) const EXAMPLES: &str = "\
Examples:
  autotune run resnet18                                      run time on random inputs
  autotune run resnet18 --input image.npy --output out       out/logits.npy from image.npy
  autotune run bert_base --input input_ids=ids.npy --input mask=mask.npy
  autotune run model.onnx --shape image=1x3x480x640          extents that are open in the file
  autotune run model.onnx --input pcm=a.npy --input sr=16000 an input that is a constant
  autotune run resnet18 --repeat 100 --json latency.json     run times as JSON
  autotune run resnet18 --precision bf16                     faster, less exact; prints the error
  autotune run resnet18 --precision auto --max-error 0.005   the fastest precision within the error
  autotune run resnet18 --check                              compare every step with the reference

Kernels that were not tuned use the schedules that are predicted to be the fastest; their number is printed.";

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) subject: SubjectArgs,
    /// Folder to which every output is written as NAME.npy
    #[arg(long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    /// Number of runs
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) repeat: u32,
    /// Also compare the result of every step with the reference on the same operands, and its
    /// tensors with those of the network before rewriting. The allowed error of a kernel, relative
    /// to its largest sum, is that of tuning (1e-4, for large tiles of Winograd 4e-4) plus 6e-8 for
    /// each added product (in bf16 4e-3, and 4e-3 more if results are bf16), or the effect of small
    /// changes of its operands; copies and layout conversions must be exact
    #[arg(long)]
    pub(crate) check: bool,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    /// Spinning of a CPU's helper threads before they sleep: for some fifty microseconds between
    /// runs, with `brief` for ten, with `off` not at all. Less makes runs slower and leaves the
    /// cores to other programs [default: on]
    #[arg(long, value_name = "on|brief|off", value_parser = parse_spin)]
    pub(crate) spin: Option<Waiting>,
    #[command(flatten)]
    pub(crate) db: LookupArgs,
    /// Write the run times as one JSON object to this file ('-' for standard output)
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}
