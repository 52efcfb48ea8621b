//! Schedule to deploy, and its kernel.

use std::sync::{Arc, OnceLock};

use autotune_codegen::{CompilerNeeded, artifact};
use autotune_db::{Best, DbError, Found};
use autotune_ir::{Isa, KernelPlan, KeyScope, Program, Target, TargetError};
use autotune_runtime::{Cpu, Device, DeviceError, Kernel, KernelError, Runner};
use autotune_schedules::{Candidate, Config, UnfitError};
use autotune_workloads::Workload;
use thiserror::Error;

use crate::predict;

/// Schedule to deploy for a workload on a target. It is the best in a database or snapshot that is
/// in the present schedule space and whose loop nests are proven correct. Otherwise it is a default
/// schedule, whose loop nests are made and proven when first needed. Clones share them.
#[derive(Clone, Debug)]
pub struct Tuned {
    candidate: Candidate,
    program: OnceLock<Arc<Program>>,
    plan: OnceLock<Arc<KernelPlan>>,
    packing: OnceLock<Arc<PackingText>>,
    origin: Origin,
}

/// Stages that pack constants as text, and the names of the buffers that they use.
type PackingText = (Arc<str>, Vec<String>);

/// Origin of a schedule.
#[derive(Clone, Debug, PartialEq)]
pub enum Origin {
    /// Record, with the provenance of its time and the scope of its key.
    Tuned(Box<Found>),
    /// Default schedule, predicted to be the fastest: by the model that ships for the target, or by
    /// the analysis from schedules of similar workloads.
    Predicted {
        /// Expected ratio of its time to the best known time, as
        /// [measured](autotune_cost_model::Pretrained::expected_loss) on workloads on which the
        /// model was not trained.
        expected_loss: f32,
    },
    /// Schedule whose loss is unknown: chosen by a fixed rule, by a model that was fitted for
    /// another element type, or by the caller ([`Query::given`](crate::Query::given)).
    Default,
    /// Schedule of a similar workload that the caller named ([`Query::like`](crate::Query::like)).
    Transferred,
}

/// Reason that there is no schedule.
#[derive(Debug, Error)]
#[allow(missing_docs)]
pub enum LookupError {
    /// The database or snapshot cannot be read.
    #[error(transparent)]
    Db(#[from] DbError),
    /// The target has no kernels for the workload.
    #[error("{workload}: {why}")]
    Unfit { workload: Box<Workload>, why: UnfitError },
}

/// Reason that no kernel was built.
#[derive(Debug, Error)]
pub enum BuildError {
    /// The target has another instruction set than this machine.
    #[error(
        "code for {wanted} does not run on this machine; look up the workload for this machine, Target::detect(\"cpu\", ..)"
    )]
    Isa {
        /// Instruction set of the target.
        wanted: Isa,
    },
    /// The loop nests of the schedule are not correct.
    #[error(transparent)]
    Schedule(Box<LookupError>),
    /// This machine's processor is not supported.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// The code needs a compiler, and the feature `compilers` is off.
    #[error("{workload}: {needed}: enable the feature 'compilers' of autotune-deploy")]
    CompilerNeeded {
        /// Workload that was to be built.
        workload: Box<Workload>,
        /// Compiler that is needed.
        needed: CompilerNeeded,
    },
    /// A required compiler is missing.
    #[cfg(feature = "compilers")]
    #[error(transparent)]
    Compiler(#[from] autotune_measure::MeasureError),
    /// Building the schedule's code failed.
    #[cfg(feature = "compilers")]
    #[error(transparent)]
    Code(#[from] autotune_measurement::CandidateError),
    /// The builder returned no result.
    #[cfg(feature = "compilers")]
    #[error("the builder returned no result")]
    Nothing,
    /// The device cannot load the kernel.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The kernel cannot be set up, for example because memory is short.
    #[error(transparent)]
    Kernel(#[from] KernelError),
}

impl From<LookupError> for BuildError {
    fn from(error: LookupError) -> Self {
        Self::Schedule(Box::new(error))
    }
}

/// Time limit of the C compiler, for targets without an assembler, in seconds.
#[cfg(feature = "compilers")]
const COMPILE_SECS: f64 = 60.0;

impl Tuned {
    /// Returns a schedule from a record, with its proven loop nests.
    pub(crate) fn of_record(candidate: Candidate, program: Program, found: Found) -> Self {
        Self::proven(candidate, program, Origin::Tuned(Box::new(found)))
    }

    /// Returns a schedule that the caller gave, with its proven loop nests.
    pub(crate) fn given(candidate: Candidate, program: Program) -> Self {
        Self::proven(candidate, program, Origin::Default)
    }

    /// Returns a schedule that was not measured, with its expected loss if that is known.
    pub(crate) fn unmeasured(candidate: Candidate, expected_loss: Option<f32>) -> Self {
        let predicted = |expected_loss| Origin::Predicted { expected_loss };
        Self::of(candidate, expected_loss.map_or(Origin::Default, predicted))
    }

    /// Returns a schedule that was transferred from a similar workload.
    pub(crate) fn transferred(candidate: Candidate) -> Self {
        Self::of(candidate, Origin::Transferred)
    }

    fn proven(candidate: Candidate, program: Program, origin: Origin) -> Self {
        Self { program: OnceLock::from(Arc::new(program)), ..Self::of(candidate, origin) }
    }

    fn of(candidate: Candidate, origin: Origin) -> Self {
        let (program, plan, packing) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        Self { candidate, program, plan, packing, origin }
    }

    /// Returns a schedule, transferred from another workload's, that packs constants in the same
    /// way, so that both can share one packing of a constant. `packing` is the text of the other's
    /// [packing stages](Program::packing). `None` if this schedule is from a record, already packs
    /// constants in that way, or the other is estimated to take more than `most_loss` times as
    /// long.
    ///
    /// # Errors
    /// Fails if this schedule cannot be lowered.
    pub fn packed_like(&self, other: &Candidate, packing: &str, most_loss: f32) -> Result<Option<Self>, LookupError> {
        if self.is_tuned() {
            return Ok(None);
        }
        if **self.packing()?.0 == *packing {
            return Ok(None);
        }

        let (own, candidate) = (self.program()?, predict::transferred(&self.candidate, other));
        let alike = candidate.map(|candidate| Self::of(candidate, self.origin.clone()));
        Ok(alike.filter(|alike| {
            let packs_alike = alike.packing().is_ok_and(|(text, _)| **text == *packing);
            let program = alike.program().ok().filter(|_| packs_alike);
            program.is_some_and(|program| predict::estimated_loss(program, own, self.target()) <= most_loss)
        }))
    }

    /// Frees the loop nests, the plan and the packing, which are made again if they are needed.
    pub fn release(&mut self) {
        self.program.take();
        self.plan.take();
        self.packing.take();
    }

    /// Returns the origin of the schedule.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Returns true if the schedule is from a record, false if it is a default schedule.
    pub fn is_tuned(&self) -> bool {
        self.best().is_some()
    }

    /// Returns the record of the schedule and the provenance of its time; `None` for a default
    /// schedule.
    pub fn best(&self) -> Option<&Best> {
        match &self.origin {
            Origin::Tuned(found) => Some(&found.best),
            Origin::Predicted { .. } | Origin::Default | Origin::Transferred => None,
        }
    }

    /// Returns the record's seconds per run; `None` for a default schedule.
    pub fn run_secs(&self) -> Option<f64> {
        self.best()?.record.measurement.run_secs()
    }

    /// Returns true if the scope of the record's key is at least as narrow as the other's. A
    /// default schedule has no key, and every key is narrower than none.
    pub fn is_at_least_as_specific_as(&self, other: &Self) -> bool {
        other.key_scope().is_none_or(|reach| self.key_scope().is_some_and(|own| own <= reach))
    }

    /// Returns the scope of the key under which the record was found; `None` for a default
    /// schedule.
    pub(crate) fn key_scope(&self) -> Option<KeyScope> {
        match &self.origin {
            Origin::Tuned(found) => Some(found.reach),
            Origin::Predicted { .. } | Origin::Default | Origin::Transferred => None,
        }
    }

    /// Returns the workload of the schedule.
    pub fn workload(&self) -> &Workload {
        self.candidate.workload()
    }

    /// Returns the target of the schedule.
    pub fn target(&self) -> &Target {
        self.candidate.target()
    }

    /// Returns the config of the schedule.
    pub fn config(&self) -> &Config {
        self.candidate.config()
    }

    /// Returns the schedule as a candidate for the workload on the target.
    pub fn candidate(&self) -> &Candidate {
        &self.candidate
    }

    /// Builds the kernel for this machine's CPU, with the target's number of threads. The code is
    /// generated in this process from the proven loop nests.
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
    /// kernel.pack(&operands[1..])?; // packs the weights once
    /// kernel.run(&operands, &mut [ViewMut::new(y, &[1, 197, 768])])?;
    /// # Ok(()) }
    /// ```
    pub fn build(&self) -> Result<Runner, BuildError> {
        self.build_on(Cpu::new(self.target().threads()))
    }

    /// Builds the kernel for a device of the target's kind: `CudaDevice` or `OpenClDevice` of
    /// autotune-runtime, or a custom one.
    pub fn build_on<D: Device>(&self, device: D) -> Result<Runner<D>, BuildError> {
        Ok(Runner::new(self.kernel(&device)?, device)?)
    }

    /// Builds the kernel only, for callers that provide the memory of its constants and scratch.
    pub fn kernel<D: Device>(&self, device: &D) -> Result<Kernel<D>, BuildError> {
        if let Target::Cpu(wanted) = self.target() {
            let here = Target::detect("cpu", None)?;
            let runs = here.cpu().is_some_and(|here| wanted.isa.runs_on(here.isa));
            if !runs {
                return Err(BuildError::Isa { wanted: wanted.isa });
            }
        }

        match artifact(self.program()?, self.plan()?, self.target()) {
            // SAFETY: the code was just generated from loop nests that are proven to stay within
            // the plan's buffers. It uses only instructions that this processor supports, or its
            // driver refuses what it cannot run.
            Ok(artifact) => Ok(unsafe { Kernel::load(device, &artifact) }?),
            Err(needed) => self.compiled(needed, device),
        }
    }

    /// Builds the kernel with a compiler of this machine.
    #[cfg(feature = "compilers")]
    fn compiled<D: Device>(&self, _: CompilerNeeded, device: &D) -> Result<Kernel<D>, BuildError> {
        use autotune_measure::KernelBuilder;
        use autotune_measurement::Backend;

        let mut builder = KernelBuilder::new(Backend::Assembler, COMPILE_SECS);
        let build = builder.build_lowered(&self.candidate, self.program()?)?;
        let built = build.ok_or(BuildError::Nothing)?.outcome?;
        // SAFETY: as in `kernel`; the compiler's input was generated from the same loop nests.
        Ok(unsafe { Kernel::load(device, &built.artifact) }?)
    }

    /// Fails, because this build has no compilers.
    #[cfg(not(feature = "compilers"))]
    fn compiled<D: Device>(&self, needed: CompilerNeeded, _: &D) -> Result<Kernel<D>, BuildError> {
        Err(BuildError::CompilerNeeded { workload: Box::new(self.workload().clone()), needed })
    }

    /// Returns the loop nests, proven to execute every iteration once and to stay in bounds.
    pub fn program(&self) -> Result<&Program, LookupError> {
        if let Some(program) = self.program.get() {
            return Ok(program);
        }
        let program = self.candidate.proven().map_err(|why| unfit(self.workload(), why))?;
        Ok(self.program.get_or_init(|| Arc::new(program)))
    }

    /// Returns the stages that pack constants as text, and the names of the buffers that they use
    /// ([`Program::packing`]). The text is empty if the kernel packs none.
    pub fn packing(&self) -> Result<(&Arc<str>, &[String]), LookupError> {
        let program = self.program()?;
        let packing = || {
            let (text, buffers) = program.packing();
            Arc::new((text.into(), buffers.into_iter().map(|id| program.buffer(id).name.clone()).collect()))
        };
        let (text, buffers) = &**self.packing.get_or_init(packing);
        Ok((text, buffers))
    }

    /// Returns the kernel's interface: its buffers, and the stages of a run.
    pub fn plan(&self) -> Result<&KernelPlan, LookupError> {
        let program = self.program()?;
        Ok(self.plan.get_or_init(|| Arc::new(KernelPlan::of(program))))
    }
}

pub(crate) fn unfit(workload: &Workload, why: UnfitError) -> LookupError {
    LookupError::Unfit { workload: Box::new(workload.clone()), why }
}
