//! A built kernel in this process.

use std::path::{Path, PathBuf};

use autotune_schedules::KernelPlan;
use autotune_schedules::program::When;
use libloading::Library;
use thiserror::Error;

use crate::buffers::{Buffers, part_lens};
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
    /// The plan's sizes overflow.
    #[error("the plan's buffers overflow the address space")]
    Overflow,
}

/// Native code for a plan, loaded into this process.
///
/// ```no_run
/// use autotune_measure::{Buffers, Kernel, Team};
/// # fn run(plan: autotune_schedules::KernelPlan, input: &[f32]) -> Result<(), Box<dyn std::error::Error>> {
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
    _library: Library,
}

impl Kernel {
    /// Loads the shared object at `path`.
    ///
    /// # Safety
    ///
    /// The code runs in this process with its rights. The caller vouches that the library's initialisers are harmless
    /// and that its functions keep the contract of [`autotune_schedules::plan::PlanStage`] for `plan`: they touch only
    /// the plan's buffers and thread-private memory, within their bounds, and disjoint tasks may run at once. Then
    /// [`Kernel::prepare`] and [`Kernel::run`] are safe. To run code that nobody vouches for, measure it in a worker.
    pub unsafe fn load(path: &Path, plan: KernelPlan) -> Result<Self, KernelError> {
        let (lens, _) = part_lens(&plan).map_err(|_| KernelError::Overflow)?;
        // SAFETY: the caller vouches for the library's initialisers.
        let library =
            unsafe { Library::new(path) }.map_err(|source| KernelError::Open { path: path.into(), source })?;
        let mut stages = Vec::with_capacity(plan.stages.len());
        for stage in &plan.stages {
            // SAFETY: the caller vouches for the type; the pointer is used only while `_library` lives.
            let function = unsafe { library.get::<StageFn>(stage.symbol.as_bytes()) };
            let missing = |_| KernelError::Symbol { path: path.into(), symbol: stage.symbol.clone() };
            stages.push((*function.map_err(missing)?, stage.when, stage.tasks));
        }
        Ok(Self { plan, lens, stages, _library: library })
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
            // SAFETY: `load`'s caller vouched for the function; the pointers are of the plan's buffers and threads.
            unsafe { team.run(work) };
        }
    }
}
