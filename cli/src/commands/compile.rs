//! The command `autotune compile NETWORK -o FILE.so`: writes a network as a shared library with its
//! C header.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use autotune_ir::Target;
use autotune_network::{Compiled, Library, LibraryError, LibraryFormat, identifier};
use autotune_runtime::Cpu;

use super::file::{NewFile, check_ours, check_output};
use super::lookup::network_source;
use super::rounded::decided;
use super::run::{inputs, network, say_untuned};
use super::shared::warn;
use super::variants::compiled;
use crate::args::{CompileArgs, Failure, TargetArgs, check_precision};
use crate::output::print;

pub(super) fn run(args: CompileArgs) -> Result<()> {
    let (LibraryName { soname, name, header }, format) = checked(&args)?;
    let targets = args.target.each();
    let all = targets.iter().map(|target| TargetNetworks::of(&args, target)).collect::<Result<Vec<_>>>()?;
    let sets: Vec<Vec<&Compiled>> = all.iter().map(TargetNetworks::all).collect();
    let library = Library::of_sets(&sets, &name, &soname).map_err(|error| match error {
        LibraryError::SameInstructions { .. } => args.target.wrong(error).into(),
        _ => anyhow::Error::from(error),
    })?;
    let to = |file: &mut NewFile| Ok(library.write(format, file)?);
    write(&args.output, &header, &library.header(), to).with_context(|| format!("-o {}", args.output.display()))?;

    all.iter().for_each(TargetNetworks::say_untuned);
    let [code, weights, workspace] =
        [library.code_bytes(), library.weight_bytes(), library.workspace_bytes()].map(bytes);
    let variants = match sets.first().map_or(0, Vec::len) {
        1 => String::new(),
        count => format!("{count} variants by the shapes of the inputs, "),
    };
    let threads = all.first().map_or(1, |of_target| of_target.target.threads());
    print(&format!(
        "wrote {} and {}: functions {name}_*, {variants}code {code}, weights {weights}, workspace {workspace}; for {}, {} thread(s)",
        args.output.display(),
        header.display(),
        library.instruction_set(),
        threads,
    ))
}

/// Returns the names and the format of a library, after a check that its files may be written.
pub(super) fn checked(args: &CompileArgs) -> Result<(LibraryName, LibraryFormat)> {
    let names = LibraryName::of(&args.output)?;
    let format = args.format.map_or_else(|| format_of(&args.output), LibraryFormat::from);
    check_output("-o", &args.output, "library", |start| format.is_start(start))?;
    check_ours("-o: the header", &names.header, "header of a network", Library::is_header)?;
    Ok((names, format))
}

/// Networks of a target, one for every shape of the inputs.
struct TargetNetworks {
    target: Target,
    networks: Vec<Arc<Compiled>>,
}

impl TargetNetworks {
    /// Compiles the network for a target.
    fn of(args: &CompileArgs, target: &TargetArgs) -> Result<Self> {
        if let Some(model) = args.subject.inputs.of_shapes(&args.subject.subject)? {
            let target = target.device(&[])?;
            check_precision(Some(model.types.precision), &target)?;
            let source = Arc::from(network_source(args.db.place()?)?);
            let networks = compiled(model, &source, &target)?;
            warn(&*source);
            return Ok(Self { target, networks });
        }

        let (loaded, target) = network(&args.subject, target)?;
        let source = network_source(args.db.place()?)?;
        let graph = match loaded.max_error {
            Some(_) => decided::<Cpu>(loaded.graph.clone(), loaded.max_error, &*source, &target, &inputs(&loaded)?)?,
            None => loaded.graph,
        };
        let network = Compiled::new(&graph, Some(&*source), &target)?;
        warn(&*source);
        Ok(Self { target, networks: vec![network] })
    }

    fn all(&self) -> Vec<&Compiled> {
        self.networks.iter().map(|network| &**network).collect()
    }

    fn say_untuned(&self) {
        say_untuned(self.networks.iter().flat_map(|network| network.schedules()), &self.target);
    }
}

/// Writes a library and its header; neither gets its final name before both are complete.
pub(super) fn write(
    file: &Path,
    header: &Path,
    text: &str,
    library: impl FnOnce(&mut NewFile) -> Result<()>,
) -> Result<()> {
    let mut files = [NewFile::create(file)?, NewFile::create(header)?];
    library(&mut files[0])?;
    files[1].write_all(text.as_bytes())?;
    Ok(NewFile::keep_all(files)?)
}

/// Returns the format of a file by its name; other names than `.o` and `.a` are of shared
/// libraries.
fn format_of(file: &Path) -> LibraryFormat {
    let extension = file.extension().unwrap_or_default();
    let of_name = |format: &LibraryFormat| extension == format.extension();
    LibraryFormat::ALL.into_iter().find(of_name).unwrap_or(LibraryFormat::Shared)
}

/// Names derived from the path of a library.
pub(super) struct LibraryName {
    /// Name by which the dynamic linker finds the library (`DT_SONAME`).
    pub(super) soname: String,
    /// Prefix of the exported functions, a C identifier.
    pub(super) name: String,
    pub(super) header: PathBuf,
}

impl LibraryName {
    /// Derives the names from the file name: `libmodel.so.1` is the library `model`. Fails for
    /// standard output, and for a file name that the header would have.
    fn of(file: &Path) -> Result<Self, Failure> {
        if file == Path::new("-") {
            return Err(Failure::Usage(
                "-o -: a library and its header cannot be written to standard output; specify a file such as model.so"
                    .into(),
            ));
        }
        let soname = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let stem = match soname.split_once(".so") {
            Some((stem, _)) => stem.into(),
            None => file.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
        };
        let stem = stem.strip_prefix("lib").filter(|rest| !rest.is_empty()).unwrap_or(&stem);
        let header = file.with_file_name(format!("{stem}.h"));
        if header == file {
            return Err(Failure::Usage(format!(
                "-o {}: the library and its header would be the same file",
                file.display()
            )));
        }
        Ok(Self { name: identifier(stem), header, soname })
    }
}

/// Formats a number of bytes in a unit that leaves at most four digits before the point.
pub(super) fn bytes(count: usize) -> String {
    match count {
        0..10_000 => format!("{count} B"),
        10_000..10_000_000 => format!("{} kB", count.div_ceil(1000)),
        _ => format!("{:.1} MB", count as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_from_the_file() {
        let names = |file: &str| {
            let LibraryName { soname, name, header } =
                LibraryName::of(Path::new(file)).map_err(|error| error.to_string()).unwrap();
            (soname, name, header.to_str().unwrap().to_string())
        };
        let of = |soname: &str, name: &str, header: &str| (soname.into(), name.into(), header.into());
        assert_eq!(names("resnet18.so"), of("resnet18.so", "resnet18", "resnet18.h"));
        assert_eq!(names("a.b/libmodel.so.1"), of("libmodel.so.1", "model", "a.b/model.h"));
        assert_eq!(names("1-weird name.so"), of("1-weird name.so", "network_1_weird_name", "1-weird name.h"));
        assert_eq!(names("a.b/libmodel.a"), of("libmodel.a", "model", "a.b/model.h"));
        assert_eq!(names("lib.so"), of("lib.so", "lib", "lib.h"));
        assert_eq!(names("plain"), of("plain", "plain", "plain.h"));
        assert_eq!(names(".so"), of(".so", "network_", ".h"));
        assert!(LibraryName::of(Path::new("model.h")).is_err() && LibraryName::of(Path::new("-")).is_err());
    }

    #[test]
    fn formats_are_from_the_file() {
        let of = |file: &str| format_of(Path::new(file));
        assert_eq!(["a.o", "a/libx.a"].map(of), [LibraryFormat::Object, LibraryFormat::Archive]);
        assert_eq!(["a.so", "a.so.1", "plain", "a.obj"].map(of), [LibraryFormat::Shared; 4]);
    }

    #[test]
    fn bytes_have_few_digits() {
        assert_eq!([0, 9_999, 10_000, 44_600_123].map(bytes), ["0 B", "9999 B", "10 kB", "44.6 MB"]);
    }
}
