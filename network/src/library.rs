//! Export of a network as a shared library: machine code, packed weights, and a C interface
//! ([`Library`]).
//!
//! | file | contents |
//! |---|---|
//! | `steps`, `weights` | code and memory of the plan's actions; deduplicated weights |
//! | `driver`, `stage`, `copy` | code around kernels, which implements the library's functions |
//! | `workspace` | initialisation and checks of workspaces |
//! | `processor` | required instructions, the check for them, and the request for tile registers |
//! | `export`, `description` | exported functions; descriptions of inputs and outputs |
//! | `format`, `elf` | interface of a file format; ELF |
//! | `relocatable` | object files and static libraries |
//! | `header`, `name` | C header and identifiers |
//! | `cuda` | libraries for CUDA devices |

use std::cmp::Reverse;
use std::collections::HashSet;
use std::io::{self, Write};
use std::mem;

use crate::compiled::Compiled;
use description::{Data, Described, described};
use driver::{Distances, DriverCode, DriverJob, LibrarySet, LibraryVariant};
use elf::Elf;
use error::LibraryError;
use export::{Export, Fault, Side};
use format::{Format, FunctionRange, LibraryContents, LibraryParts, PartOffsets};
use processor::Instructions;
use steps::{LibraryKernels, LibrarySteps};
use weights::LibraryWeights;
use workspace::HEADER_BYTES;

mod copy;
pub(crate) mod cuda;
mod description;
mod driver;
mod elf;
pub(crate) mod error;
mod export;
mod format;
mod header;
mod name;
mod processor;
mod relocatable;
mod stage;
mod steps;
#[cfg(all(test, target_arch = "x86_64", target_os = "linux"))]
#[allow(clippy::unwrap_used)]
mod tests;
mod weights;
mod workspace;

pub use format::LibraryFormat;
pub use name::identifier;

/// Maximum size of the file: addresses are signed 32-bit offsets.
const MOST_BYTES: usize = i32::MAX as usize;

/// File format of libraries.
const FORMAT: Elf = Elf;

/// A network as a shared library for x86-64 Linux. It needs no other library, allocates no memory
/// and makes no system calls, except for one at initialisation if kernels use tile registers (AMX).
///
/// ```no_run
/// use autotune_ir::Target;
/// use autotune_network::{Compiled, Library, LibraryFormat, zoo};
///
/// let network = Compiled::new(&zoo::graph("dqn")?, None, &Target::detect("cpu", None)?)?;
/// let library = Library::of(&network, "dqn", "dqn.so")?;
/// library.write(LibraryFormat::Shared, &mut std::fs::File::create("dqn.so")?)?;
/// std::fs::write("dqn.h", library.header())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Library<'a> {
    name: String,
    soname: String,
    /// Instructions of each set, the widest first.
    instructions: Vec<Instructions>,
    /// Inputs and outputs of each variant.
    tensors: Vec<[Vec<Described>; 2]>,
    workspace_bytes: usize,
    rodata: Vec<u8>,
    weights: LibraryWeights<'a>,
    text: Vec<u8>,
    functions: Vec<FunctionRange>,
    /// Offsets of displacements in the code to other parts.
    references: Vec<usize>,
}

/// Offsets of texts and records in the read-only data.
struct Texts {
    data: Data,
    records: [usize; 2],
    instruction_sets: Vec<usize>,
    faults: [usize; Fault::ALL.len()],
}

impl<'a> Library<'a> {
    /// Builds the library of a network. Names of its functions start with `name`, an
    /// [`identifier`]; `soname` is the file name that programs linked with it look for at run time.
    pub fn of(network: &'a Compiled, name: &str, soname: &str) -> Result<Self, LibraryError> {
        Self::of_variants(&[network], name, soname)
    }

    /// Builds the library of one network for several shapes of its inputs, and its names as
    /// [`of`](Self::of) does. Runs state the shapes, and find the variant that was compiled for
    /// them. Equal weights and kernels are in the library once.
    ///
    /// # Errors
    /// If the networks have other inputs or outputs, or two of them the same shapes.
    pub fn of_variants(networks: &[&'a Compiled], name: &str, soname: &str) -> Result<Self, LibraryError> {
        Self::of_sets(&[networks.to_vec()], name, soname)
    }

    /// Builds the library of networks that were compiled for several instruction sets: for each,
    /// the same network in the same order of shapes. A run uses the widest that the CPU has, or
    /// the one for which its workspace was initialised. Equal weights are in the library once.
    ///
    /// # Errors
    /// If inputs or outputs differ, or the code of two sets needs the same instructions.
    pub fn of_sets(sets: &[Vec<&'a Compiled>], name: &str, soname: &str) -> Result<Self, LibraryError> {
        let tensors = tensors_of_sets(sets)?;
        let mut kernels = LibraryKernels::default();
        let sets_of = sets.iter().map(|networks| SetSteps::of(networks, &mut kernels));
        let plans = SetSteps::widest_first(sets_of.collect::<Result<_, _>>()?)?;
        let LibraryKernels { text: mut kernels, weights, .. } = kernels;

        let networks = || sets.iter().flatten();
        let tensor_bytes = networks().map(|network| network.workspace_bytes()).max().unwrap_or(0);
        let workspace_bytes = HEADER_BYTES + tensor_bytes;
        // Code addresses data by signed 32-bit offsets.
        if workspace_bytes > MOST_BYTES || weights.bytes() > MOST_BYTES {
            return Err(LibraryError::TooLarge);
        }

        let instructions: Vec<Instructions> = plans.iter().map(|set| set.instructions.clone()).collect();
        let texts = Texts::of(&instructions, &tensors);
        let (name, soname) = (name.into(), soname.into());
        let rodata = texts.data.bytes.clone();
        let (text, functions, references) = (Vec::new(), Vec::new(), Vec::new());
        let mut library =
            Self { name, soname, instructions, tensors, workspace_bytes, rodata, weights, text, functions, references };

        // The driver follows the kernels and contains their addresses.
        // `int3` as padding traps if execution runs into it.
        kernels.resize(kernels.len().next_multiple_of(64), 0xcc);
        let places = FORMAT.places(&library.contents(&library.names()))?;
        let driver_at = places.text as i64 + kernels.len() as i64;
        let job = DriverJob {
            sets: plans.iter().map(|set| set.with(&library.tensors)).collect(),
            // The private memory of each network is for as many threads as it has.
            threads: networks().map(|network| network.threads()).min().unwrap_or(1),
            workspace_bytes,
            weights_bytes: library.weights.bytes(),
            at: texts.distances(&places, driver_at),
        };
        let DriverCode { bytes, functions, references } = driver::driver(&job)?;
        // Function offsets count from the start of the kernels' code.
        library.functions =
            functions.into_iter().map(|f| FunctionRange { first: kernels.len() + f.first, ..f }).collect();
        library.references = references.into_iter().map(|at| kernels.len() + at).collect();
        kernels.extend(bytes);
        library.text = kernels;
        if places.text as usize + library.text.len() > MOST_BYTES {
            return Err(LibraryError::TooLarge);
        }
        Ok(library)
    }

    /// Returns the size of the machine code in bytes.
    pub fn code_bytes(&self) -> usize {
        self.text.len()
    }

    /// Returns the size of the weights in bytes.
    pub fn weight_bytes(&self) -> usize {
        self.weights.bytes()
    }

    /// Returns the size in bytes of the workspace that each concurrent run needs.
    pub fn workspace_bytes(&self) -> usize {
        self.workspace_bytes
    }

    /// Returns the prefix of the library's function names.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the required instruction set and its extensions, in words; several are alternatives.
    pub fn instruction_set(&self) -> String {
        self.instructions.iter().map(Instructions::words).collect::<Vec<_>>().join(", or ")
    }

    /// Writes a file sequentially. Object files are first made in memory.
    pub fn write(&self, format: LibraryFormat, out: &mut dyn Write) -> io::Result<()> {
        let names = self.names();
        let contents = self.contents(&names);
        let (rodata, text) = (&self.rodata[..], &self.text[..]);
        let (functions, references) = (&self.functions[..], &self.references[..]);
        let parts = LibraryParts { rodata, weights: Box::new(self.weights.pieces()), text, functions, references };
        if format == LibraryFormat::Shared {
            return FORMAT.write(&contents, parts, out);
        }

        let places = FORMAT.places(&contents).map_err(io::Error::other)?;
        let object = relocatable::object(&contents, parts, places).map_err(io::Error::other)?;
        match format {
            LibraryFormat::Archive => relocatable::write_archive(&format!("{}.o", self.name), &names, &object, out),
            _ => out.write_all(&object),
        }
    }

    /// Returns the names of the exported functions.
    fn names(&self) -> Vec<String> {
        let exports = Export::all(self.tensors.len() > 1, self.instructions.len() > 1).into_iter();
        exports.map(|export| format!("{}_{}", self.name, export.word())).collect()
    }

    fn contents<'n>(&'n self, functions: &'n [String]) -> LibraryContents<'n> {
        LibraryContents { soname: &self.soname, functions, rodata: self.rodata.len(), weights: self.weights.bytes() }
    }
}

/// Steps of the networks for one instruction set.
struct SetSteps {
    instructions: Instructions,
    plans: Vec<LibrarySteps>,
}

impl SetSteps {
    /// Returns the steps of networks; adds their kernels and constants to those of the library.
    fn of<'a>(networks: &[&'a Compiled], kernels: &mut LibraryKernels<'a>) -> Result<Self, LibraryError> {
        let plans = networks.iter().map(|network| LibrarySteps::of(network, kernels)).collect::<Result<_, _>>()?;
        Ok(Self { instructions: mem::take(&mut kernels.instructions), plans })
    }

    /// Sorts sets by what a CPU must have, most first, so that the first that it has is the best.
    fn widest_first(mut sets: Vec<Self>) -> Result<Vec<Self>, LibraryError> {
        sets.sort_by_key(|set| Reverse((set.instructions.rank(), set.instructions.words())));
        let words: Vec<String> = sets.iter().map(|set| set.instructions.words()).collect();
        match words.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(LibraryError::SameInstructions { words: pair[0].clone() }),
            None => Ok(sets),
        }
    }

    /// Returns the set with the inputs and outputs of its networks.
    fn with<'s>(&'s self, tensors: &'s [[Vec<Described>; 2]]) -> LibrarySet<'s> {
        let variants = self.plans.iter().zip(tensors).map(|(plan, tensors)| LibraryVariant { plan, tensors });
        LibrarySet { features: self.instructions.features(), variants: variants.collect() }
    }
}

/// Returns the inputs and outputs of each variant, which must be the same in all sets.
fn tensors_of_sets(sets: &[Vec<&Compiled>]) -> Result<Vec<[Vec<Described>; 2]>, LibraryError> {
    let mut all = sets.iter().map(|networks| networks.iter().map(|network| described(network)).collect::<Vec<_>>());
    let first = all.next().unwrap_or_default();
    if all.any(|other| other != first) {
        return Err(LibraryError::Sets);
    }
    check_variants(&first)?;
    Ok(first)
}

/// Checks that variants have the same inputs and outputs, and different shapes of the inputs.
fn check_variants(tensors: &[[Vec<Described>; 2]]) -> Result<(), LibraryError> {
    let kind = |tensor: &Described| (tensor.name.clone(), tensor.dtype, tensor.memory, tensor.shape.len());
    let kinds =
        |tensors: &[Vec<Described>; 2]| tensors.each_ref().map(|side| side.iter().map(kind).collect::<Vec<_>>());
    let first = tensors.first().map(kinds);
    if first.is_none() || tensors.iter().any(|other| Some(kinds(other)) != first) {
        return Err(LibraryError::Variants);
    }

    let mut known = HashSet::new();
    let shapes = |[inputs, _]: &[Vec<Described>; 2]| inputs.iter().map(|input| input.shape.clone()).collect::<Vec<_>>();
    match tensors.iter().map(shapes).find(|shapes| !known.insert(shapes.clone())) {
        Some(shapes) => Err(LibraryError::SameShapes { shapes }),
        None => Ok(()),
    }
}

impl Texts {
    fn of(instructions: &[Instructions], variants: &[[Vec<Described>; 2]]) -> Self {
        let mut data = Data::default();
        let instruction_sets = instructions.iter().map(|set| data.text(&set.words())).collect();
        let faults = Fault::ALL.map(|fault| data.text(fault.words().1));
        let records = Side::ALL.map(|side| {
            let tensors = variants.iter().flat_map(|tensors| &tensors[side as usize]);
            data.records(&tensors.collect::<Vec<_>>())
        });
        Self { data, records, instruction_sets, faults }
    }

    fn distances(&self, places: &PartOffsets, driver: i64) -> Distances {
        let text = |at: usize| places.rodata as i64 + at as i64 - driver;
        Distances {
            weights: places.weights as i64 - driver,
            text: places.text as i64 - driver,
            records: self.records.map(text),
            instruction_sets: self.instruction_sets.iter().map(|&at| text(at)).collect(),
            faults: self.faults.map(text),
        }
    }
}
