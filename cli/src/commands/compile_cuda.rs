//! The command `autotune compile NETWORK --target cuda:sm_90 -o FILE.so`.

use anyhow::{Context, Result, anyhow};
use autotune_ir::GpuApi;
use autotune_measure::MeasureError;
use autotune_network::{CudaLibrary, LibraryFormat};

use super::compile::{LibraryName, bytes, checked, write};
use super::file::NewFile;
use super::lookup::network_source;
use super::run::{a_network, say_untuned};
use super::shared::warn;
use crate::args::{CompileArgs, Failure};
use crate::output::print;

/// Writes the library of a network for CUDA devices, and its header. No device is needed.
pub(super) fn run(args: &CompileArgs) -> Result<()> {
    let (LibraryName { soname, name, header }, format) = checked(args)?;
    let usage = |message: String| anyhow::Error::from(Failure::Usage(message));
    if format != LibraryFormat::Shared {
        let why = "libraries for CUDA devices are shared libraries: specify a file that ends in .so";
        return Err(usage(format!("-o {}: {why}", args.output.display())));
    }
    if args.subject.inputs.of_shapes(&args.subject.subject)?.is_some() {
        return Err(usage("--shape: libraries for CUDA devices have one shape of each input".into()));
    }
    let loaded = a_network(args.subject.load()?)?;
    args.target.check_types(&loaded.graph)?;
    loaded.check_precision()?;
    let stated = "without a device, state its compute capability, such as --target cuda:sm_90";
    let target = args.target.detect(&[]).map_err(|error| match error.is::<MeasureError>() {
        true => anyhow!("{error}; {stated}"),
        false => error,
    })?;
    if !matches!(target.gpu().map(|gpu| gpu.api), Some(GpuApi::Cuda { .. })) {
        return Err(usage(format!("--target {}: libraries are for CPUs and CUDA devices", target.key())));
    }

    let source = network_source(args.db.place()?)?;
    let library = CudaLibrary::of(&loaded.graph, Some(&*source), &target, &name, &soname)?;
    warn(&*source);
    let to = |file: &mut NewFile| Ok(library.write(file)?);
    write(&args.output, &header, &library.header(), to).with_context(|| format!("-o {}", args.output.display()))?;

    say_untuned(library.schedules(), &target);
    let [code, weights, workspace] =
        [library.code_bytes(), library.weight_bytes(), library.workspace_bytes()].map(bytes);
    print(&format!(
        "wrote {} and {}: functions {name}_*, code {code}, weights {weights}, on the device {workspace} for each \
         workspace; for {}",
        args.output.display(),
        header.display(),
        library.instruction_set(),
    ))
}
