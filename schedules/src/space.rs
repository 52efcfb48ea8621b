//! Schedule spaces: all schedules of one workload on one target, as a union of sketches, each of
//! which is a product of knobs.

use std::ops::Range;
use std::ptr;
use std::sync::{Arc, OnceLock};

use rand::{Rng, RngExt};

use crate::candidate::Candidate;
use crate::config::Config;
use crate::direct::MAX_SHARE;
use crate::error::LowerError;
use crate::knob_space::KnobSpace;
use crate::point::KnobIndices;
use crate::registry::{self, check_target};
use crate::sketch::Plan;
use autotune_ir::target::Target;
use autotune_workloads::{Work, Workload};

mod adapt;
mod few;
mod fit;
mod layouts;

pub use adapt::MAX_TRIED;
use few::Few;
pub use fit::UnfitError;
pub use layouts::LAYOUT_KNOBS;

/// Every schedule of one workload on one target.
///
/// ```
/// use autotune_ir::{CpuTarget, Target};
/// use autotune_schedules::ScheduleSpace;
/// use autotune_workloads::Workload;
/// let workload: Workload = "conv2d:c=64,h=56,w=56,o=64,k=3,p=1".parse().unwrap();
/// let space = ScheduleSpace::new(&workload, &Target::Cpu(CpuTarget::generic_avx2(1)));
/// assert!(space.len() > 1_000_000);
/// assert!(space.contains(&space.default_config()));
/// ```
#[derive(Clone, Debug)]
pub struct ScheduleSpace {
    workload: Workload,
    target: Arc<Target>,
    sketches: Vec<Arc<KnobSpace>>,
    refusal: Option<LowerError>,
    /// Default schedule chosen by [`ScheduleSpace::with_default`], instead of the fixed rule's.
    default: Option<Candidate>,
    /// Schedule that the fixed rule picks, computed once.
    rule: OnceLock<Candidate>,
    /// Share of the busiest thread in the rule's schedule ([`Plan::largest_share`]), computed once.
    least_share: OnceLock<f64>,
    /// Known valid points of each sketch, computed after random draws failed to find one.
    few: Vec<OnceLock<Few>>,
    /// For each sketch and knob, the values that cover their axis (see `adapt`), computed once.
    covering: Vec<OnceLock<Vec<Vec<bool>>>>,
}

/// Random draws per sample. If all fail, the sketch counts as one with few valid combinations.
const MAX_DRAWS: usize = 10_000;
/// One neighbour in this number is drawn from any sketch, if there are several.
const SKETCH_CHANGE: u32 = 32;

impl ScheduleSpace {
    /// Returns the space of `workload` on `target`. If there is a [`ScheduleSpace::refusal`], no
    /// config is valid; otherwise at least one is, for every workload.
    pub fn new(workload: &Workload, target: &Target) -> Self {
        let sketches = registry::offered(workload, target);
        let few = sketches.iter().map(|_| OnceLock::new()).collect();
        let covering = sketches.iter().map(|_| OnceLock::new()).collect();
        let none = || sketches.is_empty().then(|| registry::no_sketch(workload, target));
        let refusal = check_target(workload, target).err().or_else(none);
        let (rule, least_share) = (OnceLock::new(), OnceLock::new());
        Self {
            workload: workload.clone(),
            target: Arc::new(target.clone()),
            sketches,
            refusal,
            default: None,
            rule,
            least_share,
            few,
            covering,
        }
    }

    /// Returns the reason why the target has no kernels for the workload with any config: an
    /// element type that it does not [support](Target::supports), too many elements, or no sketch.
    pub fn refusal(&self) -> Option<&LowerError> {
        self.refusal.as_ref()
    }

    /// Returns the workload that the schedules compute.
    pub fn workload(&self) -> &Workload {
        &self.workload
    }

    /// Returns the target that the schedules are for.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Returns the sketches with their knobs, in the order of their tiers.
    pub fn sketches(&self) -> &[Arc<KnobSpace>] {
        &self.sketches
    }

    /// Returns the work of each algorithm that some sketch offers, the direct algorithm's first.
    pub fn works(&self) -> Vec<Work> {
        let others = self.sketches.iter().flat_map(|space| space.sketch.works(&self.workload, space));
        std::iter::once(self.workload.work()).chain(others).collect()
    }

    /// Returns the number of knob combinations, invalid ones included.
    pub fn len(&self) -> u128 {
        self.sketches.iter().map(|space| space.len()).sum()
    }

    /// Always returns false, even if no sketch applies: callers check [`ScheduleSpace::refusal`].
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Returns the candidate of a point if it satisfies the sketch's rules and the target's limits
    /// and divides its work evenly among threads.
    fn admit(&self, point: KnobIndices) -> Option<Candidate> {
        let plan = self.plan(&point).filter(|plan| self.is_balanced(plan.largest_share()))?;
        Some(Candidate::of_point(&self.workload, &self.target, point, Some(plan)))
    }

    fn plan(&self, point: &KnobIndices) -> Option<Box<dyn Plan>> {
        let is_refused = self.refusal.is_some();
        (!is_refused).then(|| point.space().sketch.plan(&self.workload, &self.target, point).ok()).flatten()
    }

    /// True if no thread has much more than an equal share of the work. Small workloads cannot
    /// always be divided evenly: a share up to that of the rule's schedule, which divides the work
    /// about as evenly as possible, is accepted, too.
    fn is_balanced(&self, largest_share: f64) -> bool {
        largest_share <= MAX_SHARE || largest_share <= *self.least_share.get_or_init(|| self.share_of_rule())
    }

    fn share_of_rule(&self) -> f64 {
        let plan = self.rule().point().and_then(|point| self.plan(point));
        plan.map_or(MAX_SHARE, |plan| plan.largest_share())
    }

    /// Returns the candidate of a config, which need not be in the space.
    pub fn candidate(&self, config: &Config) -> Candidate {
        match self.locate(config) {
            Some(point) => Candidate::of_point(&self.workload, &self.target, point, None),
            None => Candidate::of_config(&self.workload, &self.target, config.clone()),
        }
    }

    fn locate(&self, config: &Config) -> Option<KnobIndices> {
        self.sketches.iter().find_map(|space| space.locate(config))
    }

    /// Returns the space with another default schedule, which must be one of its candidates.
    pub fn with_default(self, default: Candidate) -> Self {
        Self { default: Some(default), ..self }
    }

    /// Returns the schedule that is used without tuning: the fixed rule's, unless [another one was
    /// set](ScheduleSpace::with_default).
    pub fn default_config(&self) -> Config {
        self.default_candidate().config().clone()
    }

    /// Returns the candidate of [`ScheduleSpace::default_config`].
    pub fn default_candidate(&self) -> &Candidate {
        self.default.as_ref().unwrap_or_else(|| self.rule())
    }

    /// True if [`Sketch::trusts_default`](crate::sketch::Sketch::trusts_default) holds for one of
    /// the space's sketches.
    pub fn trusts_default(&self) -> bool {
        self.sketches.iter().any(|space| space.sketch.trusts_default(&self.workload, &self.target))
    }

    fn rule(&self) -> &Candidate {
        self.rule.get_or_init(|| {
            // Cost estimates are comparable within a tier, but not across tiers.
            let of_tier = |tier: &[Arc<KnobSpace>]| {
                let default = |space: &Arc<KnobSpace>| space.sketch.default(&self.workload, &self.target, space);
                tier.iter().filter_map(default).min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, point)| point)
            };
            let mut tiers = self.sketches.chunk_by(|a, b| a.tier == b.tier).filter(|_| self.refusal.is_none());
            let chosen = tiers.find_map(of_tier).or_else(|| self.nth(0));
            let none = || self.candidate(&Config { sketch: String::new(), knobs: Default::default() });
            chosen.map_or_else(none, |point| Candidate::of_point(&self.workload, &self.target, point, None))
        })
    }

    /// Returns a random valid candidate: draws a sketch, then each knob uniformly, and rejects
    /// invalid combinations. For a sketch in which next to no combination is valid, it returns one
    /// of the few known valid points, and without those the default schedule.
    pub fn sample<R: Rng + ?Sized>(&self, rng: &mut R) -> Candidate {
        let drawn = match self.sketches.len() {
            0 => None,
            count => self.draw(rng.random_range(0..count), rng),
        };
        drawn.unwrap_or_else(|| self.default_candidate().clone())
    }

    /// Draws a valid candidate of the sketch at position `number`; `None` if no valid one is known.
    fn draw<R: Rng + ?Sized>(&self, number: usize, rng: &mut R) -> Option<Candidate> {
        let (sketch, few) = (&self.sketches[number], &self.few[number]);
        if self.refusal.is_some() {
            return None;
        }
        // As long as no sample of the sketch has failed, rejection sampling is the cheap way.
        if few.get().is_none() {
            let mut draws = (0..MAX_DRAWS).map(|_| sketch.point(|k| rng.random_range(0..k.values.len())));
            let drawn = draws.find_map(|point| self.admit(point));
            if drawn.is_some() {
                return drawn;
            }
        }
        let admit = |point: KnobIndices| self.admit(point);
        let find = || Few::find(sketch, self.default_candidate().point(), |point| admit(point.clone()).is_some());
        few.get_or_init(find).pick(admit, rng)
    }

    /// Returns a valid candidate that differs from `candidate` in one knob. With probability 1/4
    /// one more knob changes, and so on, since good schedules may differ in knobs that must change
    /// together, such as a tile and its registers. If no valid neighbour is found, and with a small
    /// probability if there are several sketches, the result is a fresh sample.
    pub fn neighbor<R: Rng + ?Sized>(&self, candidate: &Candidate, rng: &mut R) -> Candidate {
        let moves_on = self.sketches.len() > 1 && rng.random_ratio(1, SKETCH_CHANGE);
        let number = |point: &&KnobIndices| self.sketches.iter().position(|space| space.name() == point.space().name());
        // A sketch whose few valid points are all known has no further neighbours to search.
        let has_others = |point: &&KnobIndices| {
            number(point).is_some_and(|number| !self.few[number].get().is_some_and(|few| few.is_closed))
        };
        if let Some(point) = candidate.point().filter(|_| !moves_on).filter(has_others) {
            let moves = (0..256).map(|_| point.random_move(rng));
            if let Some(other) = moves.filter(|other| other != point).find_map(|other| self.admit(other)) {
                return other;
            }
        }
        self.sample(rng)
    }

    /// Returns a valid candidate in which each knob's value comes from one of the parents; the
    /// first parent if none is found.
    pub fn crossover<R: Rng + ?Sized>(&self, a: &Candidate, b: &Candidate, rng: &mut R) -> Candidate {
        // Positions have the same meaning only in spaces with equal knobs.
        let is_alike = |a: &KnobSpace, b: &KnobSpace| ptr::eq(a, b) || a.name() == b.name() && a.knobs == b.knobs;
        let parents = a.point().zip(b.point()).filter(|(a, b)| is_alike(a.space(), b.space()));
        let child = parents.and_then(|(a, b)| (0..64).find_map(|_| self.admit(a.crossed(b, rng))));
        child.unwrap_or_else(|| a.clone())
    }

    /// Yields all valid candidates, in a fixed order.
    pub fn iter(&self) -> impl Iterator<Item = Candidate> + '_ {
        self.valid_among(0..self.len()).map(|(_, candidate)| candidate)
    }

    /// Yields the valid candidates among the combinations with these numbers, in ascending order,
    /// each with its number.
    pub fn valid_among(&self, numbers: Range<u128>) -> impl Iterator<Item = (u128, Candidate)> + '_ {
        let end = if self.refusal.is_some() { 0 } else { numbers.end.min(self.len()) };
        (numbers.start..end).filter_map(|number| Some((number, self.admit(self.nth(number)?)?)))
    }

    /// Returns the combination of a number; the sketches' combinations are numbered consecutively.
    fn nth(&self, mut number: u128) -> Option<KnobIndices> {
        for sketch in &self.sketches {
            match number.checked_sub(sketch.len()) {
                None => return Some(sketch.nth(number)),
                Some(rest) => number = rest,
            }
        }
        None
    }

    /// Returns the candidate of a config if the space contains it: known sketch and knobs, allowed
    /// values, and a valid combination. The candidate keeps its plan.
    pub fn admitted(&self, config: &Config) -> Option<Candidate> {
        self.locate(config).and_then(|point| self.admit(point))
    }

    /// True if the space contains the config as a valid combination ([`ScheduleSpace::admitted`]).
    pub fn contains(&self, config: &Config) -> bool {
        self.admitted(config).is_some()
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::*;
    use crate::config::KnobValue;
    use autotune_ir::target::{CpuTarget, GpuTarget};

    /// Returns a space in which every knob has `words` meaningless values in front of its default
    /// value, and the default config.
    fn hidden(text: &str, words: usize) -> (ScheduleSpace, Config) {
        let mut space = ScheduleSpace::new(&text.parse().unwrap(), &Target::Cpu(CpuTarget::generic_avx2(1)));
        let default = space.default_config();
        space.sketches.truncate(1);
        for knob in &mut Arc::make_mut(&mut space.sketches[0]).knobs {
            let meaningless = (0..words).map(|i| KnobValue::Choice(format!("meaningless{i}")));
            knob.values = meaningless.chain([default.knobs[&knob.name].clone()]).collect();
        }
        space.rule = OnceLock::from(space.candidate(&default));
        (space, default)
    }

    #[test]
    fn the_only_valid_config_is_found_and_nothing_else_is_proposed() {
        for words in [0, 300] {
            let (space, default) = hidden("conv2d:c=4,h=9,w=9,o=12,k=3,p=1", words);
            let mut rng = ChaCha8Rng::seed_from_u64(0);
            for _ in 0..50 {
                assert_eq!(*space.sample(&mut rng), default);
                assert_eq!(*space.neighbor(&space.candidate(&default), &mut rng), default);
            }
            assert!(space.valid_among(0..10_000).all(|(_, candidate)| *candidate == default));
            assert!(space.contains(&default) && space.checked(&default).is_ok());
        }
    }

    #[test]
    fn few_configs_lead_to_all_that_single_knobs_reach() {
        let (mut space, default) = hidden("conv2d:c=4,h=9,w=9,o=12,k=3,p=1", 300);
        for (name, words) in [("unroll", ["1", "16"]), ("parallel", ["1", "1"])] {
            let knob = Arc::make_mut(&mut space.sketches[0]).knobs.iter_mut().find(|knob| knob.name == name).unwrap();
            knob.values.extend(words.map(|word| KnobValue::Choice(word.into())));
        }
        space.rule = OnceLock::from(space.candidate(&default));
        let mut rng = ChaCha8Rng::seed_from_u64(0);
        let mut unrolls: Vec<KnobValue> = (0..100).map(|_| space.sample(&mut rng).knobs["unroll"].clone()).collect();
        unrolls.sort();
        unrolls.dedup();
        assert_eq!(unrolls.len(), 3, "{unrolls:?} of {default}");
    }

    #[test]
    fn unsupported_workloads_are_refused_with_the_reason() {
        let gpu = Target::Gpu(GpuTarget::stated("opencl").unwrap());
        let cpu = Target::Cpu(CpuTarget::generic_avx2(1));
        for (text, target, reason) in [
            (
                "matmul:m=65536,n=65536,k=8",
                &gpu,
                "4294967296 elements of the output exceed the limit of 2147483647 on opencl:any",
            ),
            ("matmul:m=8,n=8,k=8,dtype=bf16", &gpu, "field 'dtype': no kernels with dtype=bf16 on opencl:any"),
            ("matmul:m=8,n=8,k=8,dtype=f16", &cpu, "field 'dtype': no kernels with dtype=f16 on cpu:test"),
        ] {
            let space = ScheduleSpace::new(&text.parse().unwrap(), target);
            let config = space.sample(&mut ChaCha8Rng::seed_from_u64(0));
            let error = space.checked(&config).unwrap_err();
            assert!(matches!(error, UnfitError::Refused(_)) && error.to_string().starts_with(reason), "{error}");
            assert!(!space.contains(&config) && space.iter().next().is_none());
        }
    }

    #[test]
    fn the_step_that_failed_is_named() {
        let space =
            ScheduleSpace::new(&"matmul:m=8,n=16,k=8".parse().unwrap(), &Target::Cpu(CpuTarget::generic_avx2(1)));
        let with = |name: &str, word: &str| {
            let mut config = space.default_config();
            config.knobs.insert(name.into(), KnobValue::Choice(word.into()));
            space.checked(&config).unwrap_err()
        };
        assert!(matches!(with("unroll", "none"), UnfitError::Lower(_)));
        // The lowering accepts such a config, but the space never proposes it.
        assert_eq!(with("unroll", "3"), UnfitError::NotOffered);
        assert_eq!(with("unknown", "1"), UnfitError::NotOffered);
    }
}
