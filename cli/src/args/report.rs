//! Arguments of `autotune report`.

use std::path::PathBuf;

use autotune_network::Subject;
use clap::Args;

use super::{InputArgs, RecordsArgs, TargetArgs, VariantArgs};

pub(super) const EXAMPLES: &str = "\
Examples:
  autotune report resnet18 -o report.html                    results of every task
  autotune report matmul:m=512,n=512,k=512 --threads 1 -o -  one workload, to standard output
  autotune report resnet18 --target cuda:sm_90 -o h100.html  of another machine: no roofline

The page loads nothing and has no JavaScript, follows the reader's preference for dark pages, and can be printed. The roofline uses the ceilings \
that tuning measured on this machine; if there are none, they are measured now.";

#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// Networks (resnet18) and workloads (conv2d:..., matmul:...)
    #[arg(value_name = "NETWORK|WORKLOAD", value_parser = Subject::of, required = true)]
    pub(crate) subjects: Vec<Subject>,
    #[command(flatten)]
    pub(crate) inputs: InputArgs,
    /// The file of the page, which is replaced as a whole ('-' for standard output)
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    #[command(flatten)]
    pub(crate) variant: VariantArgs,
    #[command(flatten)]
    pub(crate) db: RecordsArgs,
}
