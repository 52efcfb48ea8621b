//! What a compiler asks for when it deploys: the schedule of a workload.

use std::sync::OnceLock;

use autotune_codegen::{CompilerNeeded, artifact};
use autotune_db::{Best, DbError, Found, Source};
use autotune_ir::{Isa, Program, Reach, Target, TargetError, verify};
use autotune_runtime::{Cpu, Device, DeviceError, Kernel, KernelError, Runner};
use autotune_schedules::space::LAYOUT_KNOBS;
use autotune_schedules::{Candidate, Config, ScheduleSpace, UnfitError, Value};
use autotune_workloads::Workload;
use thiserror::Error;

use crate::predict::{self, PredictParams};

/// The schedule to deploy for a workload on a target: the best that a database or a snapshot has, if it fits today's schedule space, its
/// loop nests proven right; else the default one, whose loop nests are made and proven when they are first wanted.
#[derive(Clone, Debug)]
pub struct Tuned {
    candidate: Candidate,
    program: OnceLock<Program>,
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
        /// [measured](autotune_cost_model::Pretrained::expected_loss) on workloads that the model was not trained on.
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
    /// The best schedule that a database or a snapshot has, whoever wrote it: its loop nests are proven before anybody runs their code. On a
    /// miss what is predicted among those of the most similar workloads: the source's and, where some ship for the
    /// target, those of the portfolio ([`Origin::Predicted`]).
    ///
    /// Where nothing is known under the target's own key, what machines found that are like it is served, as a claim: [`Source::find`]. Where
    /// nothing is known of a [cold](Workload::is_cold) workload, what was found with its constants in the caches is, and the other way round.
    pub fn lookup(source: &dyn Source, workload: &Workload, target: &Target) -> Result<Self, LookupError> {
        let space = space(workload, target)?;
        match Self::found(source, &space)? {
            Some(found) => Ok(found),
            None => Self::missed(source, &space),
        }
    }

    /// The best schedule that a source has of each kind, the best of all first: for who knows more of where it will run, such as in which layouts
    /// tensors lie there, or that weights come from memory. Of a kind are those of the same sketch, layouts, and size of Winograd's tiles.
    /// Where the source has none, what [`Tuned::lookup`] has.
    ///
    /// All are from records under the same key, so that their times can be compared.
    pub fn lookup_kinds(source: &dyn Source, workload: &Workload, target: &Target) -> Result<Vec<Self>, LookupError> {
        let space = space(workload, target)?;
        let Some(best) = Self::found(source, &space)? else { return Ok(vec![Self::missed(source, &space)?]) };
        let mut found = vec![best];
        loop {
            let known: Vec<Kind> = found.iter().map(|tuned| kind(tuned.config())).collect();
            let others = |config: &Config| !known.contains(&kind(config));
            match Self::found_of(source, &space, &others)? {
                Some(other) if other.reach() == found[0].reach() => found.push(other),
                _ => return Ok(found),
            }
        }
    }

    /// The schedules that a network may choose from for a workload: the one that it was found to be the fastest with as a whole, if a source knows
    /// it ([`Tuned::chosen_within`]) and knows nothing of the workload under a narrower key; else [`Tuned::lookup_kinds`].
    pub fn lookup_within(
        source: &dyn Source,
        workload: &Workload,
        network: u64,
        target: &Target,
    ) -> Result<Vec<Self>, LookupError> {
        let chosen = Self::chosen_within(source, workload, network, target)?;
        if let Some(chosen) = chosen.as_ref().filter(|chosen| chosen.reach() == Some(Reach::Machine)) {
            return Ok(vec![chosen.clone()]);
        }
        let kinds = Self::lookup_kinds(source, workload, target)?;
        let is_narrow = |chosen: &Self| chosen.is_known_as_well_as(&kinds[0]);
        Ok(chosen.filter(is_narrow).map_or(kinds, |chosen| vec![chosen]))
    }

    /// The schedule of a workload that a network, or a part of one, was found to be the fastest with, by its number ([`Workload::network`]), if a
    /// source knows it.
    pub fn chosen_within(
        source: &dyn Source,
        workload: &Workload,
        network: u64,
        target: &Target,
    ) -> Result<Option<Self>, LookupError> {
        Self::found_as(source, &space(&workload.within(Some(network)), target)?, &space(workload, target)?, &|_| true)
    }

    /// The best schedule that a source has among those that `fit`, if it has one.
    pub fn lookup_among(
        source: &dyn Source,
        workload: &Workload,
        target: &Target,
        fit: &dyn Fn(&Config) -> bool,
    ) -> Result<Option<Self>, LookupError> {
        Self::found_of(source, &space(workload, target)?, fit)
    }

    /// What a source has for a space's workload.
    pub(crate) fn found(source: &dyn Source, space: &ScheduleSpace) -> Result<Option<Self>, LookupError> {
        Self::found_of(source, space, &|_| true)
    }

    /// The same of configs that fit.
    fn found_of(
        source: &dyn Source,
        space: &ScheduleSpace,
        fit: &dyn Fn(&Config) -> bool,
    ) -> Result<Option<Self>, LookupError> {
        Self::found_as(source, space, space, fit)
    }

    /// What a source has for the workload of one space, as a schedule of another that computes the same.
    fn found_as(
        source: &dyn Source,
        known: &ScheduleSpace,
        space: &ScheduleSpace,
        fit: &dyn Fn(&Config) -> bool,
    ) -> Result<Option<Self>, LookupError> {
        // Records that are in the space and yet not right.
        let mut wrong: Vec<Config> = Vec::new();
        while let Some(found) = source.find(known, &|config| !wrong.contains(config) && fit(config))? {
            match space.proven(&found.best.record.config) {
                Ok((candidate, program)) => {
                    let (program, origin) = (OnceLock::from(program), Origin::Tuned(Box::new(found)));
                    return Ok(Some(Self { candidate, program, origin }));
                }
                Err(_) => wrong.push(found.best.record.config),
            }
        }
        Ok(None)
    }

    /// What is known where a source has nothing of a space's workload: of the same one with warm constants for cold ones, or cold for warm; else
    /// what is predicted.
    fn missed(source: &dyn Source, space: &ScheduleSpace) -> Result<Self, LookupError> {
        let workload = space.workload();
        let other = self::space(&workload.with_cold(!workload.is_cold()), space.target())?;
        match Self::found(source, &other)? {
            Some(found) => Ok(found),
            None => Self::predicted(&[source], space),
        }
    }

    /// The answer to a miss of some sources.
    pub(crate) fn predicted(sources: &[&dyn Source], space: &ScheduleSpace) -> Result<Self, LookupError> {
        let mut known = Vec::new();
        for source in sources {
            known.extend(source.nearest(space, PredictParams::QUICK.nearest)?);
        }
        let predict::Pick { candidate, expected_loss } = predict::pick(space, &known);
        Ok(Self::unmeasured(candidate, expected_loss))
    }

    fn unmeasured(candidate: Candidate, expected_loss: Option<f32>) -> Self {
        let predicted = |expected_loss| Origin::Predicted { expected_loss };
        Self { candidate, program: OnceLock::new(), origin: expected_loss.map_or(Origin::Default, predicted) }
    }

    /// The schedule that is chosen without measuring and without a source, as thoroughly as for the first trial of a search
    /// ([`PredictParams::THOROUGH`]): in some tens of milliseconds.
    pub fn untuned(workload: &Workload, target: &Target) -> Result<Self, LookupError> {
        let space = predict::space(workload, target, Some(PredictParams::THOROUGH));
        if let Some(refusal) = space.refusal() {
            return Err(unfit(workload, UnfitError::Refused(refusal.clone())));
        }
        Ok(Self::unmeasured(space.default_candidate().clone(), predict::expected_loss(&space)))
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
        let alike = candidate.map(|candidate| Self { candidate, program: OnceLock::new(), origin });
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

    /// The record that the schedule is from, and what its time is worth; `None` if it is the default one.
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

    /// True if the key that the record is kept under is no wider than that of another's; of a default schedule there is none.
    pub fn is_known_as_well_as(&self, other: &Self) -> bool {
        other.reach().is_none_or(|reach| self.reach().is_some_and(|own| own <= reach))
    }

    /// How wide the key is that the record is kept under.
    fn reach(&self) -> Option<Reach> {
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

    /// The kernel on this machine's processor, by as many threads as the target has: code made here and now from the proven loop nests.
    ///
    /// ```no_run
    /// # use autotune_deploy::Tuned;
    /// # use autotune_db::TuningDb;
    /// # use autotune_ir::Target;
    /// # use autotune_runtime::{View, ViewMut};
    /// # fn deploy(x: &[f32], w: &[f32], y: &mut [f32]) -> Result<(), Box<dyn std::error::Error>> {
    /// let (db, target) = (TuningDb::open_reading("tuning.db")?, Target::detect("cpu", None)?);
    /// let mut kernel = Tuned::lookup(&db, &"matmul:m=197,n=768,k=768".parse()?, &target)?.build()?;
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

        match artifact(self.program()?, self.target()) {
            // SAFETY: the code was generated just now from loop nests that are proven to keep to their plan; it is for
            // instructions that this processor has, or for a driver that refuses what it cannot run.
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
        let wrong = |why| unfit(self.workload(), why);
        let program = self.candidate.lower().map_err(|why| wrong(UnfitError::Lower(why)))?;
        verify(&program, self.target()).map_err(|why| wrong(UnfitError::Verify(why)))?;
        Ok(self.program.get_or_init(|| program))
    }
}

/// The space of a workload that the target has kernels for.
pub(crate) fn space(workload: &Workload, target: &Target) -> Result<ScheduleSpace, LookupError> {
    let space = ScheduleSpace::new(workload, target);
    match space.refusal().cloned() {
        Some(refusal) => Err(unfit(workload, UnfitError::Refused(refusal))),
        None => Ok(space),
    }
}

/// What tells kinds of schedules apart: the sketch, and the values of some knobs where it has them.
type Kind = (String, [Option<Value>; 3]);

fn kind(config: &Config) -> Kind {
    let [data, output] = LAYOUT_KNOBS;
    let knobs = [data, output, "m"].map(|knob| config.knobs.get(knob).cloned());
    (config.sketch.clone(), knobs)
}

fn unfit(workload: &Workload, why: UnfitError) -> LookupError {
    LookupError::Unfit { workload: Box::new(workload.clone()), why }
}
