//! Look-up of schedules in a source.

use std::cell::RefCell;
use std::collections::HashMap;

use autotune_db::Source;
use autotune_ir::{KeyScope, Target};
use autotune_schedules::space::LAYOUT_KNOBS;
use autotune_schedules::{Candidate, Config, KnobValue, ScheduleSpace, UnfitError};
use autotune_workloads::{Pointwise, Workload};

use crate::predict::{self, PredictParams};
use crate::tuned::{LookupError, Tuned, unfit};

/// Query for schedules of a workload on a target.
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
/// Every schedule from a record is checked to be in the present schedule space, and its loop nests
/// are proven correct before their code runs, whoever wrote the record. If nothing is known under
/// the target's own key, records of similar machines are returned as untrusted: [`Source::find`].
///
/// # Errors
/// Every method fails if the source cannot be read, or the target has no kernels for the workload.
#[derive(Clone, Copy)]
pub struct Query<'a> {
    workload: &'a Workload,
    target: &'a Target,
    source: Option<&'a dyn Source>,
    network: Option<u64>,
    like: Option<&'a Candidate>,
    fits: Option<&'a dyn Fn(&Config) -> bool>,
}

impl<'a> Query<'a> {
    /// Returns a query for schedules chosen without measuring and without a source.
    pub fn new(workload: &'a Workload, target: &'a Target) -> Self {
        Self { workload, target, source: None, network: None, like: None, fits: None }
    }

    /// Sets the database or snapshot to look up first.
    pub fn source(self, source: &'a dyn Source) -> Self {
        Self { source: Some(source), ..self }
    }

    /// Asks for the schedule with which a network as a whole, or a part of one, was the fastest, by
    /// the network's number ([`Workload::network`]).
    pub fn within(self, network: u64) -> Self {
        Self { network: Some(network), ..self }
    }

    /// Sets a schedule of a similar workload, such as the one for an image of another size. On a
    /// miss it is transferred, unless the source has a schedule of a workload that is more similar.
    /// That takes a fraction of the time of predicting one. Without a source it is not used.
    pub fn like(self, other: &'a Candidate) -> Self {
        Self { like: Some(other), ..self }
    }

    /// Restricts records to schedules that satisfy `fits`. A schedule predicted on a miss need not
    /// satisfy it.
    pub fn fitting(self, fits: &'a dyn Fn(&Config) -> bool) -> Self {
        Self { fits: Some(fits), ..self }
    }

    /// Returns the best schedule of the source's records.
    ///
    /// If the workload has no record, the result is the record of the same workload with cached
    /// instead of [uncached](Workload::is_cold) constants, or the reverse. On a miss the
    /// schedule is predicted from those of the most similar workloads: the source's and, if one
    /// ships for the target, the portfolio's ([`Origin::Predicted`](crate::Origin::Predicted)).
    ///
    /// Without a source the schedule is chosen as thoroughly as for the first trial of a search
    /// ([`PredictParams::THOROUGH`]), in some tens of milliseconds.
    ///
    /// Within a network the result is the network's own schedule, unless the workload by itself is
    /// known under a key of narrower scope.
    pub fn best(self) -> Result<Tuned, LookupError> {
        Ok(self.network_schedule_or(|| Ok(vec![self.alone()?]))?.swap_remove(0))
    }

    /// Returns the best schedule of each kind, best first. A kind is a combination of sketch,
    /// layouts and size of Winograd's tiles. Callers that know more about the context can choose
    /// among them, for example by the layouts of tensors or because weights are uncached. All are
    /// from records under the same key, so that their times are comparable.
    ///
    /// Without a record, or within a network that has its own schedule, the result is that of
    /// [`Query::best`]. On a miss, an elementwise workload has a schedule for data and result in
    /// each layout: it is as fast in all of them.
    pub fn kinds(self) -> Result<Vec<Tuned>, LookupError> {
        self.network_schedule_or(|| self.all_kinds())
    }

    /// Returns the best schedule of the source's records, within a network only the network's own;
    /// `None` without such a record.
    pub fn record(self) -> Result<Option<Tuned>, LookupError> {
        let workload = match self.network {
            Some(network) => &self.workload.within(Some(network)),
            None => self.workload,
        };
        let Some(source) = self.source else { return Ok(None) };
        // Most workloads have none, and making a space takes longer than asking.
        if source.find(workload, self.target, &|config| self.fits(config))?.is_none() {
            return Ok(None);
        }
        self.space()?.find_equivalent(source, workload, &|config| self.fits(config))
    }

    /// Returns a given schedule, such as one that another process chose; `None` if it is not in the
    /// present schedule space or its loop nests are wrong. The source is not asked.
    pub fn given(self, config: &Config) -> Result<Option<Tuned>, LookupError> {
        let Some(candidate) = self.space()?.candidate(config) else { return Ok(None) };
        let proven = candidate.proven().ok();
        Ok(proven.map(|program| Tuned::given(candidate, program)))
    }

    /// Returns the network's own schedule, else the result of `alone`.
    fn network_schedule_or(
        self,
        alone: impl FnOnce() -> Result<Vec<Tuned>, LookupError>,
    ) -> Result<Vec<Tuned>, LookupError> {
        if self.network.is_none() {
            return alone();
        }
        let own = self.record()?;
        if let Some(own) = own.as_ref().filter(|own| own.key_scope() == Some(KeyScope::Machine)) {
            return Ok(vec![own.clone()]);
        }
        let alone = alone()?;
        Ok(own.filter(|own| own.is_at_least_as_specific_as(&alone[0])).map_or(alone, |own| vec![own]))
    }

    /// Returns the best schedule regardless of the network.
    fn alone(self) -> Result<Tuned, LookupError> {
        let Some(source) = self.source else { return self.untuned() };
        let space = self.space()?;
        match space.find_equivalent(source, self.workload, &|config| self.fits(config))? {
            Some(found) => Ok(found),
            None => space.missed(source, self.like),
        }
    }

    fn all_kinds(self) -> Result<Vec<Tuned>, LookupError> {
        let Some(source) = self.source else { return Ok(vec![self.untuned()?]) };
        let (space, mut found) = (self.space()?, Vec::<Tuned>::new());
        loop {
            let known: Vec<Kind> = found.iter().map(|tuned| kind(tuned.config())).collect();
            let others = |config: &Config| self.fits(config) && !known.contains(&kind(config));
            match space.find_equivalent(source, self.workload, &others)? {
                None if found.is_empty() => return space.missed_kinds(source, self.like),
                Some(other) if found.first().is_none_or(|best| other.key_scope() == best.key_scope()) => {
                    found.push(other)
                }
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

/// Kind of a schedule: its sketch, and the values of its knobs for layouts and for the size of
/// Winograd's tiles, if it has them.
type Kind = (String, [Option<KnobValue>; 3]);

fn kind(config: &Config) -> Kind {
    let [data, output] = LAYOUT_KNOBS;
    let knobs = [data, output, "m"].map(|knob| config.knobs.get(knob).cloned());
    (config.sketch.clone(), knobs)
}

/// Space of a workload that the target supports, with cached checks of records' configs. Every
/// config is planned only once, however often sources ask for it.
pub(crate) struct LookupSpace {
    space: ScheduleSpace,
    /// Candidates by config hash; `None` if a config is not in the space or its loop nests are
    /// wrong.
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

    /// Returns the best schedule that a source has for the space's workload.
    pub(crate) fn found(&self, source: &dyn Source) -> Result<Option<Tuned>, LookupError> {
        self.find_equivalent(source, self.space.workload(), &|_| true)
    }

    /// Returns the best schedule that a source has for a workload that computes the same, among
    /// configs that fit.
    fn find_equivalent(
        &self,
        source: &dyn Source,
        workload: &Workload,
        fits: &dyn Fn(&Config) -> bool,
    ) -> Result<Option<Tuned>, LookupError> {
        let fits = |config: &Config| fits(config) && self.candidate(config).is_some();
        while let Some(found) = source.find(workload, self.space.target(), &fits)? {
            // The source ignores `fits`, so asking again would return the same record.
            let Some(candidate) = self.candidate(&found.best.record.config) else { break };
            match candidate.proven() {
                Ok(program) => return Ok(Some(Tuned::of_record(candidate, program, found))),
                Err(_) => drop(self.known.borrow_mut().insert(candidate.stable_hash(), None)),
            }
        }
        Ok(None)
    }

    /// Returns the candidate of a config that is in the space and not known to be wrong.
    fn candidate(&self, config: &Config) -> Option<Candidate> {
        let mut known = self.known.borrow_mut();
        known.entry(config.stable_hash()).or_insert_with(|| self.space.admitted(config)).clone()
    }

    /// Returns the schedule for a miss in a source: that of the same workload with cached instead
    /// of uncached constants, or the reverse, else one transferred from a schedule that the caller
    /// has for a similar workload, else a predicted one.
    fn missed(&self, source: &dyn Source, like: Option<&Candidate>) -> Result<Tuned, LookupError> {
        let workload = self.space.workload();
        let other = workload.with_cold(!workload.is_cold());
        // Most workloads have none, and making a space takes longer than asking.
        let found = match source.find(&other, self.space.target(), &|_| true)? {
            Some(_) => Self::new(&other, self.space.target())?.found(source)?,
            None => None,
        };
        match found {
            Some(found) => Ok(found),
            None => match self.transferred(source, like)? {
                Some(candidate) => Ok(Tuned::transferred(candidate)),
                None => self.predicted(&[source]),
            },
        }
    }

    /// Transfers a schedule of a similar workload, or the source's schedule of one that is more
    /// similar. `None` if the result is not promising.
    fn transferred(&self, source: &dyn Source, like: Option<&Candidate>) -> Result<Option<Candidate>, LookupError> {
        let Some(like) = like else { return Ok(None) };
        let own = self.space.workload();
        let nearest = source.nearest(&self.space, 1)?.into_iter().next();
        let nearest = nearest.filter(|entry| own.distance(&entry.workload) < own.distance(like.workload()));
        let (config, workload) =
            nearest.as_ref().map_or((like.config(), like.workload()), |entry| (&entry.config, &entry.workload));
        Ok(predict::transferred_to(&self.space, config, workload))
    }

    /// Returns the schedules of each kind for a miss in a source: [`LookupSpace::missed`], and for
    /// an elementwise workload those of the fixed rule with data and result in another layout.
    fn missed_kinds(&self, source: &dyn Source, like: Option<&Candidate>) -> Result<Vec<Tuned>, LookupError> {
        let mut found = vec![self.missed(source, like)?];
        if self.space.workload().sizes::<Pointwise>().is_none() {
            return Ok(found);
        }

        let default = self.space.default_candidate();
        let has_one_layout = |config: &Config| {
            let (_, [data, output, _]) = kind(config);
            data.is_some() && data == output
        };
        let others = self.space.other_layouts(default.config()).into_iter().filter(has_one_layout);
        let others = others.filter_map(|wanted| self.space.in_layouts_of(&wanted));
        for candidate in [default.clone()].into_iter().chain(others) {
            let is_new = || found.iter().all(|known| kind(known.config()) != kind(candidate.config()));
            if has_one_layout(candidate.config()) && is_new() {
                found.push(Tuned::unmeasured(candidate, None));
            }
        }
        Ok(found)
    }

    /// Returns the predicted schedule for a miss in all sources.
    pub(crate) fn predicted(&self, sources: &[&dyn Source]) -> Result<Tuned, LookupError> {
        let mut known = Vec::new();
        for source in sources {
            known.extend(source.nearest(&self.space, PredictParams::QUICK.nearest)?);
        }
        let predict::Pick { candidate, expected_loss } = predict::pick(&self.space, &known);
        Ok(Tuned::unmeasured(candidate, expected_loss))
    }
}
