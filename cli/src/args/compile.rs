//! Arguments of `autotune compile`.

use std::path::PathBuf;

use autotune_network::LibraryFormat;
use clap::{Args, ValueEnum};

use super::{LookupArgs, SubjectArgs, TargetArgs};

pub(super) const EXAMPLES: &str = "\
Examples:
  autotune compile resnet18 -o resnet18.so               resnet18.so and resnet18.h
  autotune compile model.onnx -o lib/libmodel.so         for cc program.c -Llib -lmodel
  autotune compile model.onnx -o model.o                 for programs that contain the network
  autotune compile model.onnx --shape image=1x3x480x640 -o model.so
  autotune compile model.onnx --shape ids=1x{16,32,64} -o model.so   one variant for each shape
  autotune compile resnet18 -o resnet18.so --threads 1   with the best schedules for one thread
  autotune compile resnet18 --target cpu:avx2,cpu:avx512 -o resnet18.so          for both; the processor decides at run time
  autotune compile resnet18 --target cuda:sm_90 --precision f16 -o resnet18.so   for a GPU, which need not be here

The library depends on no other library or file; the header describes its functions. Their names begin with the file's name, as in \
model_run(..). The library runs on processors with this machine's instruction set, or with one of those that --target lists, and returns an error on others. Kernels that were not tuned use \
the schedules that are predicted to be the fastest; their number is printed. A library for CUDA devices needs the CUDA driver at run time, and here NVRTC and a C compiler.";

/// Format of a library's file on the command line.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum FileFormat {
    /// Shared library, which programs load or are linked with.
    So,
    /// Object file, which a linker adds to a program.
    O,
    /// Static library, an archive of the object file.
    A,
}

impl From<FileFormat> for LibraryFormat {
    fn from(format: FileFormat) -> Self {
        match format {
            FileFormat::So => Self::Shared,
            FileFormat::O => Self::Object,
            FileFormat::A => Self::Archive,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct CompileArgs {
    #[command(flatten)]
    pub(crate) subject: SubjectArgs,
    /// The library's file, which is replaced as a whole; the header is written next to it
    #[arg(short, long, value_name = "FILE.so|.o|.a")]
    pub(crate) output: PathBuf,
    /// Shared library, object file, or static library [default: by the file's name, else so]
    #[arg(long, value_name = "FORMAT", value_enum)]
    pub(crate) format: Option<FileFormat>,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    #[command(flatten)]
    pub(crate) db: LookupArgs,
}
