//! Schedule spaces (stub)
use crate::{Config, Target, Workload};
use rand::Rng;

/// Every schedule of one workload on one target.
#[derive(Clone, Debug)]
pub struct ScheduleSpace {
    workload: Workload,
}

impl ScheduleSpace {
    /// The space of `workload` on `target`.
    pub fn new(workload: &Workload, _target: &Target) -> Self {
        Self { workload: *workload }
    }
    /// The workload.
    pub fn workload(&self) -> &Workload {
        &self.workload
    }
    /// Number of knob combinations (validity not subtracted).
    pub fn len(&self) -> u128 {
        unimplemented!()
    }
    /// Never empty.
    pub fn is_empty(&self) -> bool {
        false
    }
    /// The untuned schedule.
    pub fn default_config(&self) -> Config {
        unimplemented!()
    }
    /// A valid config drawn uniformly from the knobs.
    pub fn sample<R: Rng>(&self, _rng: &mut R) -> Config {
        unimplemented!()
    }
    /// A valid config that differs from `config` in one knob (a fresh sample if there is none).
    pub fn neighbor<R: Rng>(&self, _config: &Config, _rng: &mut R) -> Config {
        unimplemented!()
    }
    /// A valid config, each knob from one of the parents.
    pub fn crossover<R: Rng>(&self, _a: &Config, _b: &Config, _rng: &mut R) -> Config {
        unimplemented!()
    }
    /// Every valid config, in a fixed order.
    pub fn iter(&self) -> impl Iterator<Item = Config> + '_ {
        std::iter::empty()
    }
    /// True if the config can be proposed: every knob known, its value allowed, and the whole valid.
    pub fn contains(&self, _config: &Config) -> bool {
        unimplemented!()
    }
}
