//! A schedule on its way from proposal to measurement.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use autotune_ir::program::Program;
use autotune_ir::target::Target;
use autotune_workloads::Workload;

use crate::config::{Config, KnobValues, Value, stable_hash};
use crate::error::LowerError;
use crate::point::Point;
use crate::registry::{self, find_anywhere};
use crate::sketch::Plan;

/// A schedule for a workload on a target: what searchers propose and measurers build, check and
/// time.
///
/// It reads as its [`Config`]. Config, hash and plan are made once, when they are first wanted, and
/// clones share them. Loop nests are not kept: each call of [`Candidate::lower`] makes them anew.
#[derive(Clone)]
pub struct Candidate(Arc<Shared>);

struct Shared {
    workload: Workload,
    target: Arc<Target>,
    origin: Origin,
    stable_hash: OnceLock<u64>,
    plan: OnceLock<Result<Box<dyn Plan>, LowerError>>,
}

/// What it was made from.
enum Origin {
    /// A point of a space, whose config is made when it is wanted.
    Point(Point, OnceLock<Config>),
    Config(Config),
}

impl Candidate {
    /// Of a config of whatever origin; a space has its own by
    /// [`ScheduleSpace::candidate`](crate::ScheduleSpace::candidate).
    pub fn new(workload: &Workload, target: &Target, config: Config) -> Self {
        Self::of_config(workload, &Arc::new(target.clone()), config)
    }

    pub(crate) fn of_config(workload: &Workload, target: &Arc<Target>, config: Config) -> Self {
        Self::at(workload, target, Origin::Config(config), OnceLock::new())
    }

    /// Of a point of a space, with its plan where it has been read.
    pub(crate) fn of_point(
        workload: &Workload,
        target: &Arc<Target>,
        point: Point,
        plan: Option<Box<dyn Plan>>,
    ) -> Self {
        let plan = plan.map_or_else(OnceLock::new, |plan| OnceLock::from(Ok(plan)));
        Self::at(workload, target, Origin::Point(point, OnceLock::new()), plan)
    }

    fn at(
        workload: &Workload,
        target: &Arc<Target>,
        origin: Origin,
        plan: OnceLock<Result<Box<dyn Plan>, LowerError>>,
    ) -> Self {
        let (workload, target) = (workload.clone(), Arc::clone(target));
        Self(Arc::new(Shared { workload, target, origin, stable_hash: OnceLock::new(), plan }))
    }

    /// What it computes.
    pub fn workload(&self) -> &Workload {
        &self.0.workload
    }

    /// The machine it is made for.
    pub fn target(&self) -> &Target {
        &self.0.target
    }

    /// Name of its sketch.
    pub fn sketch(&self) -> &str {
        self.values().sketch()
    }

    /// The schedule as text.
    pub fn config(&self) -> &Config {
        match &self.0.origin {
            Origin::Point(point, config) => config.get_or_init(|| point.to_config()),
            Origin::Config(config) => config,
        }
    }

    /// [`Config::stable_hash`].
    pub fn stable_hash(&self) -> u64 {
        *self.0.stable_hash.get_or_init(|| stable_hash(self.sketch(), self.knobs()))
    }

    /// Its loop nests.
    pub fn lower(&self) -> Result<Program, LowerError> {
        let read = || registry::plan(self.workload(), self.target(), self.values());
        let plan = self.0.plan.get_or_init(read).as_ref();
        plan.map(|plan| registry::lowered(self.workload(), &**plan)).map_err(LowerError::clone)
    }

    /// Where it is in the space that it is from, if it is from one.
    pub(crate) fn point(&self) -> Option<&Point> {
        match &self.0.origin {
            Origin::Point(point, _) => Some(point),
            Origin::Config(_) => None,
        }
    }

    fn values(&self) -> &dyn KnobValues {
        match &self.0.origin {
            Origin::Point(point, _) => point,
            Origin::Config(config) => config,
        }
    }

    /// Names and values of its knobs, in the order of the names.
    pub fn knobs(&self) -> impl Iterator<Item = (&str, &Value)> {
        let (point, config) = match &self.0.origin {
            Origin::Point(point, _) => (Some(point.knobs()), None),
            Origin::Config(config) => (None, Some(config.knobs())),
        };
        point.into_iter().flatten().chain(config.into_iter().flatten())
    }

    /// What its kernels compute and in which stages, tiles and loops apart: its sketch, and the
    /// values of knobs that decide on more.
    pub fn algorithm(&self) -> (&str, Vec<Option<&Value>>) {
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
        Arc::ptr_eq(&self.0, &other.0) || is_alike() && self.config() == other.config()
    }
}
