//! Schedule spaces: every schedule of one workload on one target, as a union of sketches, each a
//! product of knobs.

use std::ops::Range;
use std::ptr;
use std::sync::{Arc, OnceLock};

use rand::{Rng, RngExt};

use crate::candidate::Candidate;
use crate::config::Config;
use crate::direct::MAX_SHARE;
use crate::error::LowerError;
use crate::knob_space::KnobSpace;
use crate::point::Point;
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
    /// The default, if not the one of the rule.
    default: Option<Candidate>,
    /// What has been found out about the space, once.
    rule: OnceLock<Candidate>,
    least_share: OnceLock<f64>,
    /// Set for the sketches of which a draw has failed.
    few: Vec<OnceLock<Few>>,
    /// Of each sketch which values of its knobs cover their axes.
    covering: Vec<OnceLock<Vec<Vec<bool>>>>,
}

/// Draws after which next to no combination of a sketch counts as valid.
const MAX_DRAWS: usize = 10_000;
/// One neighbour in this number is of another sketch where there are several.
const SKETCH_CHANGE: u32 = 32;

impl ScheduleSpace {
    /// The space of `workload` on `target`. Nothing in it is valid where there is a
    /// [`ScheduleSpace::refusal`]; elsewhere there is a valid config for every workload.
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

    /// Why the target has no kernels for the workload, whatever the config: elements of another
    /// type ([`Target::supports`]), too many of them, or no sketch.
    pub fn refusal(&self) -> Option<&LowerError> {
        self.refusal.as_ref()
    }

    /// The workload.
    pub fn workload(&self) -> &Workload {
        &self.workload
    }

    /// The target.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// The sketches with their knobs.
    pub fn sketches(&self) -> &[Arc<KnobSpace>] {
        &self.sketches
    }

    /// What each algorithm that there is a sketch for has to do, the direct one first.
    pub fn works(&self) -> Vec<Work> {
        let others = self.sketches.iter().flat_map(|space| space.sketch.works(&self.workload, space));
        std::iter::once(self.workload.work()).chain(others).collect()
    }

    /// Number of knob combinations, invalid ones included.
    pub fn len(&self) -> u128 {
        self.sketches.iter().map(|space| space.len()).sum()
    }

    /// Never true.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The candidate of a point that keeps the rules between knobs and the limits of the target,
    /// and keeps every thread busy.
    fn admit(&self, point: Point) -> Option<Candidate> {
        let plan = self.plan(&point).filter(|plan| self.is_balanced(plan.largest_share()))?;
        Some(Candidate::of_point(&self.workload, &self.target, point, Some(plan)))
    }

    fn plan(&self, point: &Point) -> Option<Box<dyn Plan>> {
        let is_refused = self.refusal.is_some();
        (!is_refused).then(|| point.space().sketch.plan(&self.workload, &self.target, point).ok()).flatten()
    }

    /// True if no thread has much more than its share of the work, or no more than with the rule's
    /// schedule, which divides it as evenly as any that it is chosen from.
    fn is_balanced(&self, largest_share: f64) -> bool {
        largest_share <= MAX_SHARE || largest_share <= *self.least_share.get_or_init(|| self.share_of_rule())
    }

    fn share_of_rule(&self) -> f64 {
        let plan = self.rule().point().and_then(|point| self.plan(point));
        plan.map_or(MAX_SHARE, |plan| plan.largest_share())
    }

    /// The candidate of a config of whatever origin, which need not be in the space.
    pub fn candidate(&self, config: &Config) -> Candidate {
        match self.locate(config) {
            Some(point) => Candidate::of_point(&self.workload, &self.target, point, None),
            None => Candidate::of_config(&self.workload, &self.target, config.clone()),
        }
    }

    fn locate(&self, config: &Config) -> Option<Point> {
        self.sketches.iter().find_map(|space| space.locate(config))
    }

    /// The same space with another untuned schedule, which is one of its candidates.
    pub fn with_default(self, default: Candidate) -> Self {
        Self { default: Some(default), ..self }
    }

    /// The untuned schedule: what a fixed rule picks without measuring, unless [another was
    /// chosen](ScheduleSpace::with_default).
    pub fn default_config(&self) -> Config {
        self.default_candidate().config().clone()
    }

    /// The candidate of [`ScheduleSpace::default_config`].
    pub fn default_candidate(&self) -> &Candidate {
        self.default.as_ref().unwrap_or_else(|| self.rule())
    }

    /// [`Sketch::is_settled`](crate::sketch::Sketch::is_settled), of one of its sketches.
    pub fn is_settled(&self) -> bool {
        self.sketches.iter().any(|space| space.sketch.is_settled(&self.workload, &self.target))
    }

    fn rule(&self) -> &Candidate {
        self.rule.get_or_init(|| {
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

    /// A valid candidate: a sketch is drawn, then knobs uniformly, and invalid combinations are
    /// rejected. Where next to none are valid, one of the few that are known, the default among
    /// them.
    pub fn sample<R: Rng + ?Sized>(&self, rng: &mut R) -> Candidate {
        let drawn = match self.sketches.len() {
            0 => None,
            count => self.draw(rng.random_range(0..count), rng),
        };
        drawn.unwrap_or_else(|| self.default_candidate().clone())
    }

    /// A valid candidate of a sketch, by its number; `None` if none is known.
    fn draw<R: Rng + ?Sized>(&self, number: usize, rng: &mut R) -> Option<Candidate> {
        let (sketch, few) = (&self.sketches[number], &self.few[number]);
        if self.refusal.is_some() {
            return None;
        }
        if few.get().is_none() {
            let mut draws = (0..MAX_DRAWS).map(|_| sketch.point(|k| rng.random_range(0..k.values.len())));
            let drawn = draws.find_map(|point| self.admit(point));
            if drawn.is_some() {
                return drawn;
            }
        }
        let admit = |point: Point| self.admit(point);
        let find = || Few::find(sketch, self.default_candidate().point(), |point| admit(point.clone()).is_some());
        few.get_or_init(find).pick(admit, rng)
    }

    /// A valid candidate that differs from another in one knob, or in more, each one more with a
    /// quarter of the probability: good ones can be apart by knobs that must change together, a
    /// tile and the registers for it, say. A fresh sample if none is found, and now and then where
    /// there are several sketches.
    pub fn neighbor<R: Rng + ?Sized>(&self, candidate: &Candidate, rng: &mut R) -> Candidate {
        let moves_on = self.sketches.len() > 1 && rng.random_ratio(1, SKETCH_CHANGE);
        let number = |point: &&Point| self.sketches.iter().position(|space| space.name() == point.space().name());
        let has_others = |point: &&Point| {
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

    /// A valid candidate with each knob from one of the parents; the first parent if none is found.
    pub fn crossover<R: Rng + ?Sized>(&self, a: &Candidate, b: &Candidate, rng: &mut R) -> Candidate {
        // Positions mean the same only among the same knobs.
        let is_alike = |a: &KnobSpace, b: &KnobSpace| ptr::eq(a, b) || a.name() == b.name() && a.knobs == b.knobs;
        let parents = a.point().zip(b.point()).filter(|(a, b)| is_alike(a.space(), b.space()));
        let child = parents.and_then(|(a, b)| (0..64).find_map(|_| self.admit(a.crossed(b, rng))));
        child.unwrap_or_else(|| a.clone())
    }

    /// Every valid candidate, in a fixed order.
    pub fn iter(&self) -> impl Iterator<Item = Candidate> + '_ {
        self.valid_among(0..self.len()).map(|(_, candidate)| candidate)
    }

    /// The valid ones among the combinations of these numbers, in a fixed order, with their
    /// numbers.
    pub fn valid_among(&self, numbers: Range<u128>) -> impl Iterator<Item = (u128, Candidate)> + '_ {
        let end = if self.refusal.is_some() { 0 } else { numbers.end.min(self.len()) };
        (numbers.start..end).filter_map(|number| Some((number, self.admit(self.nth(number)?)?)))
    }

    /// Combination of a number, that of the sketches one behind the other.
    fn nth(&self, mut number: u128) -> Option<Point> {
        for sketch in &self.sketches {
            match number.checked_sub(sketch.len()) {
                None => return Some(sketch.nth(number)),
                Some(rest) => number = rest,
            }
        }
        None
    }

    /// Returns the candidate of a config that can be proposed: its sketch and every knob known,
    /// every value allowed, and the whole valid. It keeps its plan.
    pub fn admitted(&self, config: &Config) -> Option<Candidate> {
        self.locate(config).and_then(|point| self.admit(point))
    }

    /// True if the config can be proposed ([`ScheduleSpace::admitted`]).
    pub fn contains(&self, config: &Config) -> bool {
        self.admitted(config).is_some()
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::*;
    use crate::config::Value;
    use autotune_ir::target::{CpuTarget, GpuTarget};

    /// The space of a workload with words in front of each knob's default value that mean nothing
    /// to it.
    fn hidden(text: &str, words: usize) -> (ScheduleSpace, Config) {
        let mut space = ScheduleSpace::new(&text.parse().unwrap(), &Target::Cpu(CpuTarget::generic_avx2(1)));
        let default = space.default_config();
        space.sketches.truncate(1);
        for knob in &mut Arc::make_mut(&mut space.sketches[0]).knobs {
            let meaningless = (0..words).map(|i| Value::Choice(format!("meaningless{i}")));
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
            knob.values.extend(words.map(|word| Value::Choice(word.into())));
        }
        space.rule = OnceLock::from(space.candidate(&default));
        let mut rng = ChaCha8Rng::seed_from_u64(0);
        let mut unrolls: Vec<Value> = (0..100).map(|_| space.sample(&mut rng).knobs["unroll"].clone()).collect();
        unrolls.sort();
        unrolls.dedup();
        assert_eq!(unrolls.len(), 3, "{unrolls:?} of {default}");
    }

    #[test]
    fn what_a_target_cannot_have_is_refused_with_the_reason() {
        let gpu = Target::Gpu(GpuTarget::stated("opencl").unwrap());
        let cpu = Target::Cpu(CpuTarget::generic_avx2(1));
        for (text, target, reason) in [
            ("matmul:m=65536,n=65536,k=8", &gpu, "4294967296 elements of the output exceed 2147483647 on opencl:any"),
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
            config.knobs.insert(name.into(), Value::Choice(word.into()));
            space.checked(&config).unwrap_err()
        };
        assert!(matches!(with("unroll", "none"), UnfitError::Lower(_)));
        // Such code can be made, but is never proposed.
        assert_eq!(with("unroll", "3"), UnfitError::NotOffered);
        assert_eq!(with("unknown", "1"), UnfitError::NotOffered);
    }
}
