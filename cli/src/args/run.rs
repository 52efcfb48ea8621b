//! Arguments of `autotune run`.

use std::path::PathBuf;

use clap::Args;

use super::{LookupArgs, SubjectArgs, TargetArgs};

pub(super) const EXAMPLES: &str = "\
Examples:
  autotune run resnet18                                      on random inputs: how long it takes
  autotune run resnet18 --input image.npy --output out       out/logits.npy from image.npy
  autotune run bert_base --input input_ids=ids.npy --input mask=mask.npy
  autotune run model.onnx --shape image=1x3x480x640          extents that the file leaves open
  autotune run model.onnx --input pcm=a.npy --input sr=16000 an input that is the same in all runs
  autotune run resnet18 --repeat 100 --json latency.json     figures
  autotune run resnet18 --precision bf16                     faster and less exact: it says by how much
  autotune run resnet18 --precision auto --max-error 0.005   the fastest precision that is exact enough
  autotune run resnet18 --check                              every step beside the reference

What was not tuned runs by the schedules that are predicted to be the fastest, and it says how many.";

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) subject: SubjectArgs,
    /// Write every output to this folder, NAME.npy each
    #[arg(long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    /// How often to run it
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) repeat: u32,
    /// Compare what every step computes with the reference on the same operands, too, and its
    /// tensors with those of the network before it was rewritten. Kernels may have the error,
    /// relative to their largest sum, that tuning allows them (1e-4, large tiles of Winograd 4e-4)
    /// and 6e-8 for each product that is added up (in bf16 4e-3 and 4e-3 more where results are
    /// bf16), or what small changes of their operands make; copies and conversions of layouts none
    #[arg(long)]
    pub(crate) check: bool,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    #[command(flatten)]
    pub(crate) db: LookupArgs,
    /// Write the figures as one JSON object to this file ('-' for standard output)
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}
