//! A schedule on its way from proposal to measurement.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use autotune_ir::program::Program;
use autotune_ir::target::Target;
use autotune_workloads::Workload;

use crate::config::{Config, KnobValue, KnobValues, stable_hash};
use crate::error::LowerError;
use crate::point::KnobIndices;
use crate::registry::{self, find_anywhere};
use crate::sketch::Plan;

/// A schedule of a workload for a target: searchers propose it; measurers build, check and time it.
///
/// It dereferences to its [`Config`]. Config, hash and plan are computed on first use and shared by
/// clones. Loop nests are not cached: each call of [`Candidate::lower`] builds them anew.
#[derive(Clone)]
pub struct Candidate(Arc<CandidateInner>);

struct CandidateInner {
    workload: Workload,
    target: Arc<Target>,
    origin: CandidateOrigin,
    stable_hash: OnceLock<u64>,
    plan: OnceLock<Result<Box<dyn Plan>, LowerError>>,
}

/// Source of the knob values.
enum CandidateOrigin {
    /// A point of a space, and its config once it was asked for.
    Point(KnobIndices, OnceLock<Config>),
    Config(Config),
}

impl Candidate {
    /// Returns the candidate of a config that need not come from a schedule space. Use
    /// [`ScheduleSpace::candidate`](crate::ScheduleSpace::candidate) where a space is at hand.
    pub fn new(workload: &Workload, target: &Target, config: Config) -> Self {
        Self::of_config(workload, &Arc::new(target.clone()), config)
    }

    pub(crate) fn of_config(workload: &Workload, target: &Arc<Target>, config: Config) -> Self {
        Self::at(workload, target, CandidateOrigin::Config(config), OnceLock::new())
    }

    /// Returns the candidate of a point of a space, with its plan if that was made already.
    pub(crate) fn of_point(
        workload: &Workload,
        target: &Arc<Target>,
        point: KnobIndices,
        plan: Option<Box<dyn Plan>>,
    ) -> Self {
        let plan = plan.map_or_else(OnceLock::new, |plan| OnceLock::from(Ok(plan)));
        Self::at(workload, target, CandidateOrigin::Point(point, OnceLock::new()), plan)
    }

    fn at(
        workload: &Workload,
        target: &Arc<Target>,
        origin: CandidateOrigin,
        plan: OnceLock<Result<Box<dyn Plan>, LowerError>>,
    ) -> Self {
        let (workload, target) = (workload.clone(), Arc::clone(target));
        Self(Arc::new(CandidateInner { workload, target, origin, stable_hash: OnceLock::new(), plan }))
    }

    /// Returns the workload that the schedule computes.
    pub fn workload(&self) -> &Workload {
        &self.0.workload
    }

    /// Returns the machine that the schedule is for.
    pub fn target(&self) -> &Target {
        &self.0.target
    }

    /// Returns the name of its sketch.
    pub fn sketch(&self) -> &str {
        self.values().sketch()
    }

    /// Returns the schedule in text form.
    pub fn config(&self) -> &Config {
        match &self.0.origin {
            CandidateOrigin::Point(point, config) => config.get_or_init(|| point.to_config()),
            CandidateOrigin::Config(config) => config,
        }
    }

    /// Returns [`Config::stable_hash`] of the schedule, computed once.
    pub fn stable_hash(&self) -> u64 {
        *self.0.stable_hash.get_or_init(|| stable_hash(self.sketch(), self.knobs()))
    }

    /// Lowers the schedule to loop nests.
    pub fn lower(&self) -> Result<Program, LowerError> {
        let read = || registry::plan(self.workload(), self.target(), self.values());
        // Lookup and lowering both need the plan, and reading it checks every knob.
        let plan = self.0.plan.get_or_init(read).as_ref();
        plan.map(|plan| registry::lowered(self.workload(), &**plan)).map_err(LowerError::clone)
    }

    /// Returns the point of its space; `None` for a candidate that was made from a config.
    pub(crate) fn point(&self) -> Option<&KnobIndices> {
        match &self.0.origin {
            CandidateOrigin::Point(point, _) => Some(point),
            CandidateOrigin::Config(_) => None,
        }
    }

    fn values(&self) -> &dyn KnobValues {
        match &self.0.origin {
            CandidateOrigin::Point(point, _) => point,
            CandidateOrigin::Config(config) => config,
        }
    }

    /// Returns names and values of the knobs, sorted by name.
    pub fn knobs(&self) -> impl Iterator<Item = (&str, &KnobValue)> {
        let (point, config) = match &self.0.origin {
            CandidateOrigin::Point(point, _) => (Some(point.knobs()), None),
            CandidateOrigin::Config(config) => (None, Some(config.knobs())),
        };
        point.into_iter().flatten().chain(config.into_iter().flatten())
    }

    /// Returns the algorithm of the kernel: the name of the sketch, and the values of its
    /// [`Sketch::algorithm_knobs`](crate::sketch::Sketch::algorithm_knobs). Candidates with equal
    /// algorithms differ in tiles and loops alone.
    pub fn algorithm(&self) -> (&str, Vec<Option<&KnobValue>>) {
        let values = self.values();
        let knobs = find_anywhere(self.sketch()).map_or(&[][..], |sketch| sketch.algorithm_knobs());
        (self.sketch(), knobs.iter().map(|&knob| values.value(knob)).collect())
    }
}

impl Deref for Candidate {
    type Target = Config;

    fn deref(&self) -> &Config {
        self.config()
    }
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.config().fmt(f)
    }
}

impl fmt::Debug for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}: {self}", self.workload(), self.target().key())
    }
}

impl PartialEq for Candidate {
    fn eq(&self, other: &Self) -> bool {
        let is_alike = || self.workload() == other.workload() && self.target() == other.target();
        // Clones share their data, so that texts need not be compared.
        Arc::ptr_eq(&self.0, &other.0) || is_alike() && self.config() == other.config()
    }
}
