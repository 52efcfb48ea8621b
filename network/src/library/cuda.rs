//! Libraries for CUDA devices. They are made without a device, and need only the driver at run
//! time.
//!
//! A network is compiled for a device that records what it would do ([`RecordingDevice`]): the
//! machine code that it loads, the content of memory, the launches that pack constants, and those
//! of a run. The library is a driver in C (`driver.c`), which repeats this on a device, and the
//! recording as its data.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use autotune::Tuned;
use autotune::measure::scratch::ScratchDir;
use autotune::measure::{Compiler, MeasureError};
use autotune::measurement::CandidateError;
use autotune_db::Source;
use autotune_ir::{GpuApi, Target};
use autotune_runtime::DeviceError;
use thiserror::Error;

use super::description::{Described, described};
use crate::compiled::Compiled;
use crate::device::{GpuOrigin, NetworkOps};
use crate::error::CompileError;
use autotune_graph::Graph;
use data::{CudaContents, LibraryData, LibraryTensor};
use recorder::{RecordedMemory, RecordingDevice};

mod data;
mod header;
mod recorder;

/// Driver of a library in C.
const DRIVER: &str = include_str!("cuda/driver.c");

/// Time limit of the C compiler.
const COMPILE_LIMIT: Duration = Duration::from_secs(600);

/// Largest size of the data, which code addresses by signed 32-bit offsets.
const MOST_BYTES: usize = i32::MAX as usize;

/// Reason that a network cannot be exported as a library for a CUDA device.
#[derive(Debug, Error)]
pub enum CudaLibraryError {
    /// The target is not a CUDA device.
    #[error("{0} is not a CUDA device: libraries are for CPUs and CUDA devices")]
    Target(String),
    /// The network cannot be compiled.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// An input or output is not f32 in memory.
    #[error("'{0}' is not f32 in memory")]
    Type(String),
    /// Code and constants exceed the range of 32-bit offsets.
    #[error("code and constants are 2 GiB or more; a library must have less")]
    TooLarge,
    /// There is no C compiler, which links a library's driver with its data.
    #[error(transparent)]
    Compiler(#[from] MeasureError),
    /// The C compiler fails.
    #[error("the library's driver: {0}")]
    Driver(#[from] CandidateError),
    /// A file of the library cannot be written.
    #[error("{0}")]
    File(#[from] std::io::Error),
}

/// A network as a shared library for CUDA devices of a compute capability.
///
/// ```no_run
/// use autotune_ir::Target;
/// use autotune_network::{CudaLibrary, zoo};
///
/// let target = Target::detect("cuda:sm_90", None)?;
/// let library = CudaLibrary::of(&zoo::graph("dqn")?, None, &target, "dqn", "dqn.so")?;
/// library.write(&mut std::fs::File::create("dqn.so")?)?;
/// std::fs::write("dqn.h", library.header())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct CudaLibrary {
    name: String,
    soname: String,
    sm: u32,
    network: Arc<Compiled<RecordingDevice>>,
    tensors: [Vec<Described>; 2],
    data: LibraryData,
}

impl CudaLibrary {
    /// Builds the library of a network by the best schedules of a source. Names of its functions
    /// start with `name`, an [`identifier`](crate::identifier); `soname` is the file name that
    /// programs linked with it look for at run time. NVRTC compiles the kernels.
    pub fn of(
        graph: &Graph,
        source: Option<&dyn Source>,
        target: &Target,
        name: &str,
        soname: &str,
    ) -> Result<Self, CudaLibraryError> {
        let Some(GpuApi::Cuda { sm }) = target.gpu().map(|gpu| gpu.api) else {
            return Err(CudaLibraryError::Target(target.key()));
        };
        let network = Compiled::<RecordingDevice>::on_device(graph, source, target)?;
        let workspace = network.workspace()?;
        let tensors = described(&network);
        if let Some(other) = tensors.iter().flatten().find(|tensor| !tensor.memory.is_word()) {
            return Err(CudaLibraryError::Type(other.name.clone()));
        }

        let [inputs, outputs] = workspace.ends();
        let end = |(tensor, (memory, first)): (&Described, (&RecordedMemory, usize))| LibraryTensor {
            buffer: memory.buffer,
            first_byte: memory.first + first,
            name: tensor.name.clone(),
            dtype: tensor.dtype.to_string(),
            shape: tensor.shape.clone(),
        };
        let inputs = tensors[0].iter().zip(inputs).map(end).collect();
        let outputs = tensors[1].iter().zip(outputs).map(end).collect();
        let launches: Vec<_> = workspace.calls().iter().flat_map(|call| call.0.iter().cloned()).collect();
        let (arena, launches) = (workspace.memory().buffer, &launches[..]);
        let data = workspace
            .device()
            .recorded(|recorded| CudaContents { sm, recorded, arena, launches, inputs, outputs }.data());
        if data.bytes.len() > MOST_BYTES {
            return Err(CudaLibraryError::TooLarge);
        }
        drop(workspace);
        Ok(Self { name: name.into(), soname: soname.into(), sm, network, tensors, data })
    }

    /// Returns the size of the machine code in bytes.
    pub fn code_bytes(&self) -> usize {
        self.data.code_bytes
    }

    /// Returns the size of the constants in bytes, before they are packed.
    pub fn weight_bytes(&self) -> usize {
        self.data.constant_bytes
    }

    /// Returns the bytes on the device that each concurrent run needs.
    pub fn workspace_bytes(&self) -> usize {
        self.network.workspace_bytes()
    }

    /// Returns the schedules of the kernels.
    pub fn schedules(&self) -> &[Tuned] {
        self.network.schedules()
    }

    /// Returns the required device in words.
    pub fn instruction_set(&self) -> String {
        format!("a CUDA device of compute capability {}.{}", self.sm / 10, self.sm % 10)
    }

    /// Returns the header for C and C++.
    pub fn header(&self) -> String {
        header::header(&self.name, &self.instruction_set(), &self.tensors)
    }

    /// Builds the shared library by the C compiler of this machine, and writes it.
    pub fn write(&self, out: &mut dyn Write) -> Result<(), CudaLibraryError> {
        let compiler = Compiler::find()?;
        let folder = ScratchDir::new()?;
        let [data, library] = ["library.data", "library.so"].map(|name| folder.path().join(name));
        fs::write(&data, &self.data.bytes)?;
        self.compile(compiler, &data, &library)?;
        io::copy(&mut File::open(&library)?, out)?;
        Ok(())
    }

    fn compile(&self, mut compiler: Compiler, data: &Path, file: &Path) -> Result<(), CudaLibraryError> {
        // The driver runs on other processors than this one.
        compiler.flags.retain(|flag| !flag.starts_with("-march"));
        let own = ["-fvisibility=hidden", "-pthread", "-Wl,--as-needed"].map(String::from);
        compiler.flags.extend(own.into_iter().chain([format!("-Wl,-soname,{}", self.soname)]));
        let messages: Vec<String> = header::FAULTS.iter().map(|(_, meaning)| format!("\"{meaning}\"")).collect();
        let source = DRIVER.replace("@DATA@", &escaped(&escaped(&data.display().to_string())));
        let source = source.replace("@MESSAGES@", &messages.join(", "));
        let source = source.replace("@INSTRUCTIONS@", &self.instruction_set()).replace("@NAME@", &self.name);
        Ok(compiler.compile(&source, file, COMPILE_LIMIT)?)
    }
}

/// Escapes a text within a literal of C or of the assembler.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

impl NetworkOps for RecordingDevice {
    type Origin = Arc<GpuOrigin<Self>>;

    const READS_CALLERS_MEMORY: bool = false;

    fn origin(target: &Target) -> Result<Self::Origin, DeviceError> {
        GpuOrigin::open(target, |_| Ok(Self::default()))
    }

    fn of(origin: &Self::Origin) -> Result<Self, DeviceError> {
        origin.queue(|device| Ok(device.clone()))
    }

    /// Returns none: calls are recorded already, and starting them would record them as packing.
    fn recorded(&self, _: &[Self::Call]) -> Result<Option<Self::Recording>, DeviceError> {
        Ok(None)
    }
}
