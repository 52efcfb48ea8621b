//! Looking schedules up.

use std::cell::RefCell;
use std::collections::HashMap;

use autotune_db::Source;
use autotune_ir::{Reach, Target};
use autotune_schedules::space::LAYOUT_KNOBS;
use autotune_schedules::{Candidate, Config, ScheduleSpace, UnfitError, Value};
use autotune_workloads::Workload;

use crate::predict::{self, PredictParams};
use crate::tuned::{LookupError, Tuned, unfit};

/// Asks for schedules of a workload on a target.
///
/// ```no_run
/// use autotune_db::Snapshot;
/// use autotune_deploy::Query;
/// use autotune_ir::Target;
///
/// let (snapshot, target) = (Snapshot::open("tuning.snapshot")?, Target::detect("cpu", None)?);
/// let workload = "matmul:m=197,n=768,k=768".parse()?;
/// let query = Query::new(&workload, &target);
/// println!("untuned {}", query.best()?.config());
/// println!("tuned {}", query.source(&snapshot).best()?.config());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A schedule from a record is in today's schedule space, and its loop nests are proven before
/// anybody runs their code, whoever wrote the record. Where nothing is known under the target's own
/// key, records of machines that are like it are served, as claims: [`Source::find`].
///
/// # Errors
/// Every answer fails if the source cannot be read, or the target has no kernels for the workload.
#[derive(Clone, Copy)]
pub struct Query<'a> {
    workload: &'a Workload,
    target: &'a Target,
    source: Option<&'a dyn Source>,
    network: Option<u64>,
    fits: Option<&'a dyn Fn(&Config) -> bool>,
}

impl<'a> Query<'a> {
    /// Asks for schedules that are chosen without measuring and without a source.
    pub fn new(workload: &'a Workload, target: &'a Target) -> Self {
        Self { workload, target, source: None, network: None, fits: None }
    }

    /// Asks a database or a snapshot first.
    pub fn source(self, source: &'a dyn Source) -> Self {
        Self { source: Some(source), ..self }
    }

    /// Asks for the schedule with which a network, or a part of one, was found to be the fastest as
    /// a whole, by its number ([`Workload::network`]).
    pub fn within(self, network: u64) -> Self {
        Self { network: Some(network), ..self }
    }

    /// Counts only records of such schedules. What is predicted on a miss need not be one.
    pub fn fitting(self, fits: &'a dyn Fn(&Config) -> bool) -> Self {
        Self { fits: Some(fits), ..self }
    }

    /// Returns the best schedule of the source's records.
    ///
    /// Without a record under the workload, that of the same one with warm constants for
    /// [cold](Workload::is_cold) ones, or cold for warm. On a miss what is predicted among those of
    /// the most similar workloads: the source's and, where some ship for the target, those of the
    /// portfolio ([`Origin::Predicted`](crate::Origin::Predicted)).
    ///
    /// Without a source it is chosen as thoroughly as for the first trial of a search
    /// ([`PredictParams::THOROUGH`]), in some tens of milliseconds.
    ///
    /// Within a network it is the network's own schedule, unless the workload by itself is known
    /// under a narrower key.
    pub fn best(self) -> Result<Tuned, LookupError> {
        Ok(self.within_or(|| Ok(vec![self.alone()?]))?.swap_remove(0))
    }

    /// Returns the best schedule of each kind, the best of all first: for whoever knows more of
    /// where it will run, such as in which layouts tensors lie there, or that weights come from
    /// memory. Of a kind are those of the same sketch, layouts, and size of Winograd's tiles. All
    /// are from records under the same key, so that their times can be compared.
    ///
    /// Without a record, or within a network that has its own schedule, it is the one of
    /// [`Query::best`].
    pub fn kinds(self) -> Result<Vec<Tuned>, LookupError> {
        self.within_or(|| self.all_kinds())
    }

    /// Returns the best schedule of the source's records; within a network only the network's own.
    /// `None` without such a record.
    pub fn record(self) -> Result<Option<Tuned>, LookupError> {
        let workload = match self.network {
            Some(network) => &self.workload.within(Some(network)),
            None => self.workload,
        };
        self.source.map_or(Ok(None), |source| self.space()?.found_of(source, workload, &|config| self.fits(config)))
    }

    /// The network's own schedule, else what there is without it.
    fn within_or(self, alone: impl FnOnce() -> Result<Vec<Tuned>, LookupError>) -> Result<Vec<Tuned>, LookupError> {
        if self.network.is_none() {
            return alone();
        }
        let own = self.record()?;
        if let Some(own) = own.as_ref().filter(|own| own.reach() == Some(Reach::Machine)) {
            return Ok(vec![own.clone()]);
        }
        let alone = alone()?;
        Ok(own.filter(|own| own.is_known_as_well_as(&alone[0])).map_or(alone, |own| vec![own]))
    }

    /// The best, whatever network.
    fn alone(self) -> Result<Tuned, LookupError> {
        let Some(source) = self.source else { return self.untuned() };
        let space = self.space()?;
        match space.found_of(source, self.workload, &|config| self.fits(config))? {
            Some(found) => Ok(found),
            None => space.missed(source),
        }
    }

    fn all_kinds(self) -> Result<Vec<Tuned>, LookupError> {
        let Some(source) = self.source else { return Ok(vec![self.untuned()?]) };
        let (space, mut found) = (self.space()?, Vec::<Tuned>::new());
        loop {
            let known: Vec<Kind> = found.iter().map(|tuned| kind(tuned.config())).collect();
            let others = |config: &Config| self.fits(config) && !known.contains(&kind(config));
            match space.found_of(source, self.workload, &others)? {
                None if found.is_empty() => return Ok(vec![space.missed(source)?]),
                Some(other) if found.first().is_none_or(|best| other.reach() == best.reach()) => found.push(other),
                _ => return Ok(found),
            }
        }
    }

    fn untuned(self) -> Result<Tuned, LookupError> {
        let space = predict::space(self.workload, self.target, Some(PredictParams::THOROUGH));
        let space = LookupSpace::checked(space)?.space;
        Ok(Tuned::unmeasured(space.default_candidate().clone(), predict::expected_loss(&space)))
    }

    fn space(self) -> Result<LookupSpace, LookupError> {
        LookupSpace::new(self.workload, self.target)
    }

    fn fits(self, config: &Config) -> bool {
        self.fits.is_none_or(|fits| fits(config))
    }
}

/// What tells kinds of schedules apart: the sketch, and the values of some knobs where it has them.
type Kind = (String, [Option<Value>; 3]);

fn kind(config: &Config) -> Kind {
    let [data, output] = LAYOUT_KNOBS;
    let knobs = [data, output, "m"].map(|knob| config.knobs.get(knob).cloned());
    (config.sketch.clone(), knobs)
}

/// The space of a workload that the target has kernels for, with what is known of configs of
/// records. A config is planned once, however often sources ask for it.
pub(crate) struct LookupSpace {
    space: ScheduleSpace,
    /// By the config's hash; `None` if it is not in the space, or its loop nests are wrong.
    known: RefCell<HashMap<u64, Option<Candidate>>>,
}

impl LookupSpace {
    pub(crate) fn new(workload: &Workload, target: &Target) -> Result<Self, LookupError> {
        Self::checked(ScheduleSpace::new(workload, target))
    }

    fn checked(space: ScheduleSpace) -> Result<Self, LookupError> {
        match space.refusal().cloned() {
            Some(refusal) => Err(unfit(space.workload(), UnfitError::Refused(refusal))),
            None => Ok(Self { space, known: RefCell::default() }),
        }
    }

    /// The best that a source has for the space's workload.
    pub(crate) fn found(&self, source: &dyn Source) -> Result<Option<Tuned>, LookupError> {
        self.found_of(source, self.space.workload(), &|_| true)
    }

    /// The best that a source has for a workload that computes the same, of configs that fit.
    fn found_of(
        &self,
        source: &dyn Source,
        workload: &Workload,
        fits: &dyn Fn(&Config) -> bool,
    ) -> Result<Option<Tuned>, LookupError> {
        let fits = |config: &Config| fits(config) && self.candidate(config).is_some();
        while let Some(found) = source.find(workload, self.space.target(), &fits)? {
            // A source that has not asked whether it fits has nothing else.
            let Some(candidate) = self.candidate(&found.best.record.config) else { break };
            match candidate.proven() {
                Ok(program) => return Ok(Some(Tuned::of_record(candidate, program, found))),
                Err(_) => drop(self.known.borrow_mut().insert(candidate.stable_hash(), None)),
            }
        }
        Ok(None)
    }

    /// The candidate of a config that is in the space and not known to be wrong.
    fn candidate(&self, config: &Config) -> Option<Candidate> {
        let mut known = self.known.borrow_mut();
        known.entry(config.stable_hash()).or_insert_with(|| self.space.admitted(config)).clone()
    }

    /// What is known where a source has no record of the workload: of the same one with warm
    /// constants for cold ones, or cold for warm; else what is predicted.
    fn missed(&self, source: &dyn Source) -> Result<Tuned, LookupError> {
        let workload = self.space.workload();
        let other = Self::new(&workload.with_cold(!workload.is_cold()), self.space.target())?;
        match other.found(source)? {
            Some(found) => Ok(found),
            None => self.predicted(&[source]),
        }
    }

    /// The answer to a miss of some sources.
    pub(crate) fn predicted(&self, sources: &[&dyn Source]) -> Result<Tuned, LookupError> {
        let mut known = Vec::new();
        for source in sources {
            known.extend(source.nearest(&self.space, PredictParams::QUICK.nearest)?);
        }
        let predict::Pick { candidate, expected_loss } = predict::pick(&self.space, &known);
        Ok(Tuned::unmeasured(candidate, expected_loss))
    }
}
