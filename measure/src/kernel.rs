//! A built kernel in this process.

use std::path::{Path, PathBuf};

use autotune_codegen::asm::MachineCode;
use autotune_ir::KernelPlan;
use autotune_ir::program::When;
use libloading::Library;
use thiserror::Error;

use crate::buffers::{Buffers, part_lens};
use crate::builder::Code;
use crate::executable::Executable;
use crate::team::{StageFn, Team, Work};

/// A kernel that cannot be loaded.
#[derive(Debug, Error)]
pub enum KernelError {
    /// The library cannot be opened.
    #[error("cannot load {path}: {source}")]
    Open {
        /// The library.
        path: PathBuf,
        /// The loader's words.
        source: libloading::Error,
    },
    /// An entry point of the plan is missing.
    #[error("{path} has no function '{symbol}'")]
    Symbol {
        /// The library.
        path: PathBuf,
        /// The entry point.
        symbol: String,
    },
    /// Machine code that does not begin where a stage of the plan should.
    #[error("machine code with {entries} entries in {code_bytes} bytes does not fit a plan of {stages} stages")]
    Entries {
        /// Entries that it has.
        entries: usize,
        /// Its length.
        code_bytes: usize,
        /// Stages of the plan.
        stages: usize,
    },
    /// Code of another processor than this, or of a GPU.
    #[error("it is not code for {}", std::env::consts::ARCH)]
    Architecture,
    /// Memory for machine code cannot be had.
    #[error("no executable memory: {0}")]
    Memory(std::io::Error),
    /// The plan's sizes overflow.
    #[error("the plan's buffers overflow the address space")]
    Overflow,
}

/// Native code for a plan, loaded into this process.
///
/// ```no_run
/// use autotune_measure::{Buffers, Kernel, Team};
/// # fn run(plan: autotune_ir::KernelPlan, input: &[f32]) -> Result<(), Box<dyn std::error::Error>> {
/// // SAFETY: the library was built from this plan's program.
/// let kernel = unsafe { Kernel::load("kernel.so".as_ref(), plan)? };
/// let mut team = Team::new(2);
/// let mut buffers = Buffers::new(kernel.plan(), team.threads())?;
/// buffers.buffer_mut(0).copy_from_slice(input); // and the other operands
/// kernel.prepare(&mut team, &mut buffers); // once per set of weights
/// kernel.run(&mut team, &mut buffers); // for every input
/// # Ok(()) }
/// ```
pub struct Kernel {
    plan: KernelPlan,
    lens: Vec<usize>,
    stages: Vec<(StageFn, When, usize)>,
    /// Keeps the code of `stages` in memory.
    _code: Option<Loaded>,
}

/// What holds a kernel's code; only its end matters.
#[expect(dead_code, reason = "functions of the kernel point into them")]
enum Loaded {
    Library(Library),
    Memory(Executable),
}

impl Kernel {
    /// Loads code for `plan`.
    ///
    /// # Safety
    ///
    /// The code runs in this process with its rights. The caller vouches that it is for this processor, that a library's
    /// initialisers are harmless, and that the functions keep the contract of
    /// [`autotune_ir::plan::PlanStage`] for `plan`: they touch only the plan's buffers and thread-private memory,
    /// within their bounds, and disjoint tasks may run at once. Then [`Kernel::prepare`] and [`Kernel::run`] are safe.
    /// To run code that nobody vouches for, measure it in a worker.
    pub unsafe fn new(code: &Code, plan: KernelPlan) -> Result<Self, KernelError> {
        match code {
            // SAFETY: the caller vouches for the code.
            Code::Library(path) => unsafe { Self::load(path, plan) },
            // SAFETY: as above.
            Code::Machine(code) => unsafe { Self::from_machine_code(code, plan) },
            Code::Cubin(_) | Code::OpenCl(_) => Err(KernelError::Architecture),
        }
    }

    /// Loads the shared object at `path`.
    ///
    /// # Safety
    ///
    /// As [`Kernel::new`].
    pub unsafe fn load(path: &Path, plan: KernelPlan) -> Result<Self, KernelError> {
        // SAFETY: the caller vouches for the library's initialisers.
        let library =
            unsafe { Library::new(path) }.map_err(|source| KernelError::Open { path: path.into(), source })?;
        let mut functions = Vec::with_capacity(plan.stages.len());
        for stage in &plan.stages {
            // SAFETY: the caller vouches for the type; the pointer is used only while the library is loaded.
            let function = unsafe { library.get::<StageFn>(stage.symbol.as_bytes()) };
            let missing = |_| KernelError::Symbol { path: path.into(), symbol: stage.symbol.clone() };
            functions.push(*function.map_err(missing)?);
        }
        Self::of(functions, Some(Loaded::Library(library)), plan)
    }

    /// Copies machine code into memory that is executable and not writable.
    ///
    /// # Safety
    ///
    /// As [`Kernel::new`].
    pub unsafe fn from_machine_code(code: &MachineCode, plan: KernelPlan) -> Result<Self, KernelError> {
        if !cfg!(target_arch = "x86_64") {
            return Err(KernelError::Architecture);
        }
        let (entries, code_bytes, stages) = (code.entries.len(), code.code_bytes, plan.stages.len());
        let cut_off = code_bytes > code.bytes.len();
        if cut_off || entries != stages || code.entries.iter().any(|&entry| entry >= code_bytes) {
            return Err(KernelError::Entries { entries, code_bytes, stages });
        }
        let executable = Executable::new(code).map_err(KernelError::Memory)?;
        let function = |&entry: &usize| {
            let address = executable.at(entry)?;
            // SAFETY: the caller vouches that a function of this type begins there; the pointer is used only while the
            // memory is mapped.
            Some(unsafe { std::mem::transmute::<*const u8, StageFn>(address) })
        };
        let functions: Option<Vec<StageFn>> = code.entries.iter().map(function).collect();
        let functions = functions.ok_or(KernelError::Entries { entries, code_bytes, stages })?;
        Self::of(functions, Some(Loaded::Memory(executable)), plan)
    }

    /// Takes functions of this program, one per stage.
    ///
    /// # Safety
    ///
    /// As [`Kernel::new`].
    pub(crate) unsafe fn of_functions(functions: Vec<StageFn>, plan: KernelPlan) -> Result<Self, KernelError> {
        Self::of(functions, None, plan)
    }

    /// A kernel of one function per stage, kept in memory by `code`.
    fn of(functions: Vec<StageFn>, code: Option<Loaded>, plan: KernelPlan) -> Result<Self, KernelError> {
        let (lens, _) = part_lens(&plan).map_err(|_| KernelError::Overflow)?;
        let stages = functions.into_iter().zip(&plan.stages).map(|(f, stage)| (f, stage.when, stage.tasks)).collect();
        Ok(Self { plan, lens, stages, _code: code })
    }

    /// The interface the kernel was loaded with.
    pub fn plan(&self) -> &KernelPlan {
        &self.plan
    }

    /// Runs the stages that run ahead of time; the weights must be in place.
    ///
    /// # Panics
    ///
    /// If the buffers are not [`Buffers::new`] of this kernel's plan with the team's threads.
    pub fn prepare(&self, team: &mut Team, buffers: &mut Buffers) {
        self.run_stages(When::AheadOfTime, team, buffers);
    }

    /// Runs the kernel once: every stage that is not ahead of time.
    ///
    /// # Panics
    ///
    /// If the buffers are not [`Buffers::new`] of this kernel's plan with the team's threads.
    pub fn run(&self, team: &mut Team, buffers: &mut Buffers) {
        self.run_stages(When::EveryRun, team, buffers);
    }

    fn run_stages(&self, now: When, team: &mut Team, buffers: &mut Buffers) {
        assert_eq!(buffers.lens(), self.lens, "buffers of another plan");
        for &(function, _, tasks) in self.stages.iter().filter(|(_, when, _)| *when == now) {
            let (pointers, locals) = buffers.arguments();
            let work = Work { function, buffers: pointers, locals, tasks };
            // SAFETY: `new`'s caller vouched for the function; the pointers are of the plan's buffers and threads.
            unsafe { team.run(work) };
        }
    }
}
