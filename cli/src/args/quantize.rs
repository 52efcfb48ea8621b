//! Arguments of `autotune quantize`.

use std::path::PathBuf;

use autotune_network::Subject;
use autotune_network::quantisation::RangeMethod;
use clap::Args;

use super::subject::parse_error;
use super::{GivenArgs, LookupArgs, TargetArgs};

pub(super) const EXAMPLES: &str = "\
Examples:
  autotune quantize model.onnx --data images -o model.int8.onnx       all .npy files of a folder
  autotune quantize model.onnx --data a.npy b.npy -o model.int8.onnx  several examples in a file, along its first axis
  autotune quantize bert.onnx --data ids=ids.npy --data mask=mask.npy -o bert.int8.onnx
  autotune quantize model.onnx --data images --max-error 0.02 -o model.int8.onnx
                                                       worst layers in floating point until the error holds
  autotune quantize model.onnx --data images --chart front.svg --json front.json -o model.int8.onnx
  autotune quantize model.onnx -o model.int8.onnx      by random inputs: a guess
  autotune run model.int8.onnx                         the result; also runs elsewhere

Data are unsigned with a scale and a zero point for each tensor, weights signed with a scale for each channel. Errors are the largest difference of \
an output element from the network in f32, relative to the largest element of the output, on the examples.";

#[derive(Debug, Args)]
pub(crate) struct QuantizeArgs {
    /// A network (resnet18, model.onnx) in floating point
    #[arg(value_name = "NETWORK", value_parser = Subject::of)]
    pub(crate) subject: Subject,
    #[command(flatten)]
    pub(crate) inputs: GivenArgs,
    /// Examples of an input: NumPy files, or folders of them in the order of their names. A file
    /// has one example, or several along the outermost axis. The name of a single input may be
    /// omitted; with several inputs, all have equally many examples. Without this, examples are
    /// random numbers from -1 to 1, and the scales a guess: larger inputs are clipped
    #[arg(long, value_name = "[NAME=]DIR|FILE.npy", num_args = 1..)]
    pub(crate) data: Vec<String>,
    /// The ONNX file to write, which is replaced as a whole
    #[arg(short, long, value_name = "FILE.onnx")]
    pub(crate) output: PathBuf,
    /// Choice of a tensor's range: min-max, percentile, entropy or mse [default: the one with the
    /// least error of min-max, percentile and mse]
    #[arg(long, value_name = "METHOD", value_parser = parse_method)]
    pub(crate) calibration: Option<RangeMethod>,
    /// Largest error of outputs, relative to the largest element of each: the layers with the
    /// largest errors stay in floating point until it holds
    #[arg(long, value_name = "ERROR", value_parser = parse_error)]
    pub(crate) max_error: Option<f64>,
    /// Write a picture of error against run time, with more and more layers in floating point
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) chart: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    #[command(flatten)]
    pub(crate) db: LookupArgs,
    /// Write the result as one JSON object to this file ('-' for standard output)
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

fn parse_method(text: &str) -> Result<RangeMethod, String> {
    let found = RangeMethod::ALL.into_iter().find(|method| method.word() == text);
    let words = RangeMethod::ALL.map(RangeMethod::word).join(", ");
    found.ok_or_else(|| format!("--calibration '{text}' is not a method ({words})"))
}
