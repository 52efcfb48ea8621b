//! A schedule to deploy, and its kernel.

use std::sync::OnceLock;

use autotune_codegen::{CompilerNeeded, artifact};
use autotune_db::{Best, DbError, Found};
use autotune_ir::{Isa, KernelPlan, Program, Reach, Target, TargetError};
use autotune_runtime::{Cpu, Device, DeviceError, Kernel, KernelError, Runner};
use autotune_schedules::{Candidate, Config, UnfitError};
use autotune_workloads::Workload;
use thiserror::Error;

use crate::predict;

/// The schedule to deploy for a workload on a target: the best that a database or a snapshot has,
/// if it fits today's schedule space, its loop nests proven right; else the default one, whose loop
/// nests are made and proven when they are first wanted.
#[derive(Clone, Debug)]
pub struct Tuned {
    candidate: Candidate,
    program: OnceLock<Program>,
    plan: OnceLock<KernelPlan>,
    origin: Origin,
}

/// Where a schedule is from.
#[derive(Clone, Debug, PartialEq)]
pub enum Origin {
    /// A record: what its time is worth, and whose it is.
    Tuned(Box<Found>),
    /// The default schedule, as the model that ships for the target predicted it to be the fastest.
    Predicted {
        /// How many times the best known time such a prediction takes, as
        /// [measured](autotune_cost_model::Pretrained::expected_loss) on workloads that the model
        /// was not trained on.
        expected_loss: f32,
    },
    /// The default schedule, as a fixed rule or the analysis chose it.
    Default,
}

/// Why there is no schedule.
#[derive(Debug, Error)]
#[allow(missing_docs)]
pub enum LookupError {
    /// The database, or the snapshot, cannot be read.
    #[error(transparent)]
    Db(#[from] DbError),
    /// The target has no kernels for the workload.
    #[error("{workload}: {why}")]
    Unfit { workload: Box<Workload>, why: UnfitError },
}

/// Why there is no kernel.
#[derive(Debug, Error)]
pub enum BuildError {
    /// The target is another kind of processor than this machine's.
    #[error(
        "code for {wanted} does not run on this machine; look the workload up for its own target, Target::detect(\"cpu\", ..)"
    )]
    Isa {
        /// The target's instruction set.
        wanted: Isa,
    },
    /// Its loop nests are not right.
    #[error(transparent)]
    Schedule(Box<LookupError>),
    /// The machine has no processor that there is code for.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// Its code takes a compiler, and the feature `compilers` is off.
    #[error("{workload}: {needed}: build with the feature 'compilers' of autotune-deploy")]
    CompilerNeeded {
        /// What is computed.
        workload: Box<Workload>,
        /// The compiler.
        needed: CompilerNeeded,
    },
    /// A compiler that is needed is missing.
    #[cfg(feature = "compilers")]
    #[error(transparent)]
    Compiler(#[from] autotune_measure::MeasureError),
    /// The schedule could not be made into code.
    #[cfg(feature = "compilers")]
    #[error(transparent)]
    Code(#[from] autotune_measurement::CandidateError),
    /// The builder built nothing.
    #[cfg(feature = "compilers")]
    #[error("nothing was built")]
    Nothing,
    /// The device cannot load it.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// There is no memory for it.
    #[error(transparent)]
    Kernel(#[from] KernelError),
}

impl From<LookupError> for BuildError {
    fn from(error: LookupError) -> Self {
        Self::Schedule(Box::new(error))
    }
}

/// Seconds that a C compiler may take, where there is no assembler for a target.
#[cfg(feature = "compilers")]
const COMPILE_SECS: f64 = 60.0;

impl Tuned {
    /// Returns a schedule of a record, with its proven loop nests.
    pub(crate) fn of_record(candidate: Candidate, program: Program, found: Found) -> Self {
        let program = OnceLock::from(program);
        Self { candidate, program, plan: OnceLock::new(), origin: Origin::Tuned(Box::new(found)) }
    }

    /// Returns a schedule that nobody measured, with the loss that is expected of it if a model
    /// chose it.
    pub(crate) fn unmeasured(candidate: Candidate, expected_loss: Option<f32>) -> Self {
        let predicted = |expected_loss| Origin::Predicted { expected_loss };
        let origin = expected_loss.map_or(Origin::Default, predicted);
        Self { candidate, program: OnceLock::new(), plan: OnceLock::new(), origin }
    }

    /// Returns a schedule that packs constants as another workload's does, so that both can use one
    /// packing of the same constant. It is transferred from that one. `None` if this schedule is
    /// from a record, packs them so already, or is estimated to be more than a tenth faster.
    ///
    /// # Errors
    /// If one of the two schedules cannot be lowered.
    pub fn packed_like(&self, other: &Self) -> Result<Option<Self>, LookupError> {
        if self.is_tuned() {
            return Ok(None);
        }
        let (own, packing) = (self.program()?, other.program()?.packing().0);
        if own.packing().0 == packing {
            return Ok(None);
        }

        let candidate = predict::transferred(&self.candidate, &other.candidate);
        let origin = self.origin.clone();
        let (program, plan) = (OnceLock::new(), OnceLock::new());
        let alike = candidate.map(|candidate| Self { candidate, program, plan, origin });
        Ok(alike.filter(|alike| {
            let program = alike.program().ok().filter(|program| program.packing().0 == packing);
            program.is_some_and(|program| predict::is_as_good(program, own, self.target()))
        }))
    }

    /// Where the schedule is from.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// True if the schedule is from a record; false if it is the default one.
    pub fn is_tuned(&self) -> bool {
        self.best().is_some()
    }

    /// The record that the schedule is from, and what its time is worth; `None` if it is the
    /// default one.
    pub fn best(&self) -> Option<&Best> {
        match &self.origin {
            Origin::Tuned(found) => Some(&found.best),
            Origin::Predicted { .. } | Origin::Default => None,
        }
    }

    /// Seconds that the record's run took; `None` if it is the default one.
    pub fn run_secs(&self) -> Option<f64> {
        self.best()?.record.measurement.run_secs()
    }

    /// True if the key that the record is kept under is no wider than that of another's; of a
    /// default schedule there is none.
    pub fn is_known_as_well_as(&self, other: &Self) -> bool {
        other.reach().is_none_or(|reach| self.reach().is_some_and(|own| own <= reach))
    }

    /// How wide the key is that the record is kept under.
    pub(crate) fn reach(&self) -> Option<Reach> {
        match &self.origin {
            Origin::Tuned(found) => Some(found.reach),
            Origin::Predicted { .. } | Origin::Default => None,
        }
    }

    /// What is computed.
    pub fn workload(&self) -> &Workload {
        self.candidate.workload()
    }

    /// What it is for.
    pub fn target(&self) -> &Target {
        self.candidate.target()
    }

    /// The schedule.
    pub fn config(&self) -> &Config {
        self.candidate.config()
    }

    /// The schedule for the workload on the target.
    pub fn candidate(&self) -> &Candidate {
        &self.candidate
    }

    /// The kernel on this machine's processor, by as many threads as the target has: code made here
    /// and now from the proven loop nests.
    ///
    /// ```no_run
    /// # use autotune_db::TuningDb;
    /// # use autotune_deploy::Query;
    /// # use autotune_ir::Target;
    /// # use autotune_runtime::{View, ViewMut};
    /// # fn deploy(x: &[f32], w: &[f32], y: &mut [f32]) -> Result<(), Box<dyn std::error::Error>> {
    /// let (db, target) = (TuningDb::open_reading("tuning.db")?, Target::detect("cpu", None)?);
    /// let workload = "matmul:m=197,n=768,k=768".parse()?;
    /// let mut kernel = Query::new(&workload, &target).source(&db).best()?.build()?;
    /// let operands = [View::new(x, &[1, 197, 768]), View::new(w, &[1, 768, 768])];
    /// kernel.pack(&operands[1..])?; // the weights, once
    /// kernel.run(&operands, &mut [ViewMut::new(y, &[1, 197, 768])])?;
    /// # Ok(()) }
    /// ```
    pub fn build(&self) -> Result<Runner, BuildError> {
        self.build_on(Cpu::new(self.target().threads()))
    }

    /// Returns the kernel on a device of the target's kind: `CudaDevice` or `OpenClDevice` of
    /// autotune-runtime, or one from outside.
    pub fn build_on<D: Device>(&self, device: D) -> Result<Runner<D>, BuildError> {
        Ok(Runner::new(self.kernel(&device)?, device)?)
    }

    /// The kernel alone, for who has memory for its constants and its scratch.
    pub fn kernel<D: Device>(&self, device: &D) -> Result<Kernel<D>, BuildError> {
        if let Target::Cpu(wanted) = self.target() {
            let here = Target::detect("cpu", None)?;
            let runs = here.cpu().is_some_and(|here| wanted.isa.runs_on(here.isa));
            if !runs {
                return Err(BuildError::Isa { wanted: wanted.isa });
            }
        }

        match artifact(self.program()?, self.plan()?, self.target()) {
            // SAFETY: the code was generated just now from loop nests that are proven to keep to
            // their plan; it is for instructions that this processor has, or for a driver that
            // refuses what it cannot run.
            Ok(artifact) => Ok(unsafe { Kernel::load(device, &artifact) }?),
            Err(needed) => self.compiled(needed, device),
        }
    }

    /// The kernel by a compiler of this machine.
    #[cfg(feature = "compilers")]
    fn compiled<D: Device>(&self, _: CompilerNeeded, device: &D) -> Result<Kernel<D>, BuildError> {
        use autotune_measure::Builder;
        use autotune_measurement::Backend;

        let mut builder = Builder::new(Backend::Assembler, COMPILE_SECS);
        let build = builder.build_lowered(&self.candidate, self.program()?)?;
        let built = build.ok_or(BuildError::Nothing)?.outcome?;
        // SAFETY: as in `kernel`.
        Ok(unsafe { Kernel::load(device, &built.artifact) }?)
    }

    /// There is none.
    #[cfg(not(feature = "compilers"))]
    fn compiled<D: Device>(&self, needed: CompilerNeeded, _: &D) -> Result<Kernel<D>, BuildError> {
        Err(BuildError::CompilerNeeded { workload: Box::new(self.workload().clone()), needed })
    }

    /// Its loop nests, proven to run every iteration once and to stay in bounds.
    pub fn program(&self) -> Result<&Program, LookupError> {
        if let Some(program) = self.program.get() {
            return Ok(program);
        }
        let program = self.candidate.proven().map_err(|why| unfit(self.workload(), why))?;
        Ok(self.program.get_or_init(|| program))
    }

    /// Returns the kernel's interface: its buffers, and the stages that a run goes through.
    pub fn plan(&self) -> Result<&KernelPlan, LookupError> {
        let program = self.program()?;
        Ok(self.plan.get_or_init(|| KernelPlan::of(program)))
    }
}

pub(crate) fn unfit(workload: &Workload, why: UnfitError) -> LookupError {
    LookupError::Unfit { workload: Box::new(workload.clone()), why }
}
