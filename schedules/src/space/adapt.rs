//! Transfer of a schedule from one workload to another.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::Arc;

use autotune_workloads::Workload;
use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};

use super::ScheduleSpace;
use crate::candidate::Candidate;
use crate::config::{Config, KnobValue};
use crate::knob_space::{Knob, KnobSpace};
use crate::registry;

/// Default number of combinations that are tried before the search for a valid one gives up; enough
/// in practice for all combinations close to the schedule.
pub const MAX_TRIED: usize = 4_000;
/// Cost of halving or doubling a register tile.
const REGISTER_COST: f64 = 2.0;
/// Cost of halving or doubling a cache tile.
const TILE_COST: f64 = 1.0;
/// Cost of halving or doubling a numeric choice.
const NUMBER_COST: f64 = 0.5;
/// Cost of swapping two loops.
const SWAP_COST: f64 = 0.5;
/// Cost of choosing another word.
const WORD_COST: f64 = 3.0;
/// Cost of choosing another word for a knob that changes the algorithm.
const ALGORITHM_COST: f64 = 12.0;

impl ScheduleSpace {
    /// Returns the valid candidate of this space that is nearest to a config of another workload,
    /// `origin`, on the same target. Tiles are compared by the ratios of their sizes; a tile that
    /// covers its whole axis covers it again; loops keep their order; words stay. A knob that the
    /// origin's sketch lacks, or that the config omits although optional, has the default's value.
    /// `None` if the config is not valid text for the origin, its sketch is not offered here, or no
    /// near combination is valid.
    ///
    /// `direct; tile.oh=14x1` of 14 rows → `direct; tile.oh=56x1` of 56 rows.
    pub fn adapt(&self, config: &Config, origin: &Workload) -> Option<Candidate> {
        self.adapt_within(config, origin, MAX_TRIED)
    }

    /// Transfers a schedule like [`ScheduleSpace::adapt`], trying at most `tries` combinations,
    /// nearest first. One try takes a few microseconds. In a test of schedules transferred to other
    /// workloads on the same CPU, one half were valid at once, three in five within 20 tries, and
    /// one in six not within all tries.
    pub fn adapt_within(&self, config: &Config, origin: &Workload, tries: usize) -> Option<Candidate> {
        let number = self.sketches.iter().position(|space| space.name() == config.sketch)?;
        let space = &self.sketches[number];
        // The origin caches its knobs: portfolio entries are asked for again and again, and making
        // the knobs takes longer than transferring a schedule.
        let of_origin = (config.sketch.clone(), Arc::clone(&self.target));
        let known = origin.once(of_origin, || registry::knobs_of(&config.sketch, origin, &self.target));
        let known = Option::as_ref(&known)?;
        let covering = self.covering[number].get_or_init(|| space.knobs.iter().map(covering).collect());
        let ranked = |(knob, covering): (&Knob, &Vec<bool>)| self.ranked((knob, covering), known, config, space, tries);
        let ranked: Vec<Vec<RankedValue>> = space.knobs.iter().zip(covering).map(ranked).collect::<Option<_>>()?;

        // Best-first search over combinations, by the sum of their costs. Knobs move in ascending
        // order only, so that each combination is reached in one way.
        let mut heap = BinaryHeap::from([AdaptStep { cost: 0.0, ranks: smallvec![0; ranked.len()], moving: 0 }]);
        for _ in 0..tries {
            let AdaptStep { cost, ranks, moving } = heap.pop()?;
            let mut positions = ranked.iter().zip(&ranks).map(|(of_knob, &rank)| of_knob[rank as usize].position);
            let point = space.point(|_| positions.next().unwrap_or(0));
            if let Some(candidate) = self.admit(point) {
                return Some(candidate);
            }

            for knob in moving..ranked.len() {
                let rank = ranks[knob] as usize;
                let Some(next) = ranked[knob].get(rank + 1) else { continue };
                let mut ranks = ranks.clone();
                let cost = cost + next.cost - ranked[knob][rank].cost;
                ranks[knob] += 1;
                heap.push(AdaptStep { cost, ranks, moving: knob });
            }
        }
        None
    }

    /// Returns a knob's values with their costs, nearest to the config's value first; at most as
    /// many as `tries` can reach. `None` if the config lacks a knob that is not optional.
    fn ranked(
        &self,
        (knob, covering): (&Knob, &[bool]),
        known: &KnobSpace,
        config: &Config,
        space: &Arc<KnobSpace>,
        tries: usize,
    ) -> Option<Vec<RankedValue>> {
        let known = known.knobs.iter().find(|known| known.name == knob.name);
        let wanted = match known.map(|known| (known, config.knobs.get(&knob.name))) {
            Some((known, Some(value))) => Some((known, value)),
            Some((known, None)) if !known.is_optional => return None,
            _ => None,
        };
        let word_cost = space.word_cost(knob);
        let costs: Vec<f64> = match wanted {
            Some((known, wanted)) => {
                let wanted = (wanted, covers(known, wanted));
                let values = knob.values.iter().zip(covering);
                values.map(|(value, &covers)| distance(wanted, (value, covers), word_cost)).collect()
            }
            None => {
                let default = self.default_candidate().config().knobs.get(&knob.name);
                knob.values.iter().map(|value| if Some(value) == default { 0.0 } else { word_cost }).collect()
            }
        };

        let ranked = costs.into_iter().enumerate().map(|(position, cost)| RankedValue { position, cost });
        let mut ranked: Vec<RankedValue> = ranked.collect();
        let by_cost = |a: &RankedValue, b: &RankedValue| a.cost.total_cmp(&b.cost).then(a.position.cmp(&b.position));
        // Each try advances one knob by one value, so that farther values are out of reach.
        if tries < ranked.len() {
            ranked.select_nth_unstable_by(tries, by_cost);
            ranked.truncate(tries + 1);
        }
        ranked.sort_unstable_by(by_cost);
        Some(ranked)
    }
}

impl KnobSpace {
    /// Returns the distance between two values of a knob, which [`ScheduleSpace::adapt`] minimises.
    pub fn distance(&self, knob: &Knob, a: &KnobValue, b: &KnobValue) -> f64 {
        distance((a, covers(knob, a)), (b, covers(knob, b)), self.word_cost(knob))
    }

    fn word_cost(&self, knob: &Knob) -> f64 {
        match self.sketch.algorithm_knobs().contains(&knob.name.as_str()) {
            true => ALGORITHM_COST,
            false => WORD_COST,
        }
    }
}

/// A value of a knob, and its distance from the wanted one.
struct RankedValue {
    position: usize,
    cost: f64,
}

/// A combination in the search queue: the rank of each knob's value, and the first knob that may
/// still move.
struct AdaptStep {
    cost: f64,
    ranks: SmallVec<[u32; 16]>,
    moving: usize,
}

/// The heap pops its maximum, so that a lower cost is greater. Ties are broken by ranks.
impl Ord for AdaptStep {
    fn cmp(&self, other: &Self) -> Ordering {
        other.cost.total_cmp(&self.cost).then_with(|| other.ranks.cmp(&self.ranks))
    }
}

impl PartialOrd for AdaptStep {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for AdaptStep {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for AdaptStep {}

/// Splits a tile into its outermost size and the inner ones.
fn split(value: &KnobValue) -> Option<(usize, &[usize])> {
    let KnobValue::Tile(tile) = value else { return None };
    tile.split_first().map(|(&outermost, inner)| (outermost, inner))
}

/// True for a tile that covers its axis: no tile with the same inner sizes has a larger outermost
/// size.
fn covers(knob: &Knob, value: &KnobValue) -> bool {
    let is_larger =
        |(outermost, inner)| knob.values.iter().filter_map(split).any(|other| other.1 == inner && other.0 > outermost);
    split(value).is_some_and(|tile| !is_larger(tile))
}

/// Returns [`covers`] of each value of a knob, in linear time.
fn covering(knob: &Knob) -> Vec<bool> {
    let mut largest: FxHashMap<&[usize], usize> = FxHashMap::default();
    for (outermost, inner) in knob.values.iter().filter_map(split) {
        let known = largest.entry(inner).or_insert(outermost);
        *known = outermost.max(*known);
    }
    let covers = |(outermost, inner): (usize, &[usize])| largest.get(inner) == Some(&outermost);
    knob.values.iter().map(|value| split(value).is_some_and(covers)).collect()
}

/// Returns the distance of `value` from `wanted`; each comes with a flag that is true if it covers
/// its axis.
fn distance((wanted, wanted_covers): (&KnobValue, bool), (value, covers): (&KnobValue, bool), word_cost: f64) -> f64 {
    match (wanted, value) {
        (KnobValue::Tile(wanted), KnobValue::Tile(tile)) if wanted.len() == tile.len() => {
            let last = tile.len().saturating_sub(1);
            // Two covering tiles are alike, whatever the extents of their axes.
            let level = |level: usize| match level == 0 && wanted_covers {
                true if covers => 0.0,
                covered => ratio(wanted[level] as f64, tile[level] as f64) + f64::from(covered),
            };
            (0..tile.len()).map(|i| if i == last && last > 0 { REGISTER_COST } else { TILE_COST } * level(i)).sum()
        }
        (KnobValue::Order(wanted), KnobValue::Order(order)) => SWAP_COST * inversions(wanted, order) as f64,
        (KnobValue::Choice(wanted), KnobValue::Choice(word)) if wanted == word => 0.0,
        (KnobValue::Choice(wanted), KnobValue::Choice(word)) => match (wanted.parse::<f64>(), word.parse::<f64>()) {
            // A number that selects the algorithm, such as the size of a Winograd tile, has no near
            // values.
            (Ok(wanted), Ok(number)) if word_cost < ALGORITHM_COST => NUMBER_COST * ratio(1.0 + wanted, 1.0 + number),
            _ => word_cost,
        },
        _ => word_cost,
    }
}

/// Returns the distance of two sizes in doublings.
fn ratio(a: f64, b: f64) -> f64 {
    (a / b).log2().abs()
}

/// Counts the pairs of loops that both orders have, in opposite order.
fn inversions(wanted: &[String], order: &[String]) -> usize {
    let places: Vec<usize> = order.iter().filter_map(|axis| wanted.iter().position(|it| it == axis)).collect();
    (0..places.len()).map(|i| places[i + 1..].iter().filter(|&&later| later < places[i]).count()).sum()
}

#[cfg(test)]
mod tests {
    use autotune_ir::target::{CpuTarget, Target};
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::*;

    const WORKLOADS: [&str; 6] = [
        "conv2d:c=64,h=56,w=56,o=64,k=3,p=1",
        "conv2d:c=24,h=14,w=20,o=48,k=3,p=1,bias",
        "conv2d:c=3,h=60,w=60,o=32,k=7,s=2,p=3",
        "conv2d:c=32,h=28,w=28,o=32,k=3,p=1,g=32",
        "matmul:m=128,n=96,k=64",
        "matmul:m=1,n=100,k=300",
    ];

    fn space(text: &str) -> ScheduleSpace {
        ScheduleSpace::new(&text.parse().unwrap(), &Target::Cpu(CpuTarget::generic_avx2(2)))
    }

    #[test]
    fn in_its_own_space_a_schedule_stays_as_it_is() {
        for (seed, text) in (0..).zip(WORKLOADS) {
            let (space, mut rng) = (space(text), ChaCha8Rng::seed_from_u64(seed));
            for _ in 0..30 {
                let candidate = space.sample(&mut rng);
                assert_eq!(space.adapt(&candidate, space.workload()).as_ref(), Some(&candidate), "seed {seed}");
            }
        }
    }

    #[test]
    fn elsewhere_it_becomes_a_schedule_of_the_same_sketch_that_can_be_proposed() {
        let mut carried = 0;
        for (seed, from) in (0..).zip(WORKLOADS) {
            let (origin, mut rng) = (space(from), ChaCha8Rng::seed_from_u64(seed));
            for to in WORKLOADS.map(space) {
                let candidate = origin.sample(&mut rng);
                let Some(adapted) = to.adapt(&candidate, origin.workload()) else { continue };
                assert!(to.contains(&adapted) && adapted.sketch() == candidate.sketch(), "seed {seed}: {adapted}");
                assert_eq!(to.adapt(&candidate, origin.workload()), Some(adapted), "seed {seed}");
                carried += 1;
            }
        }
        assert!(carried > 20, "{carried}");
    }

    #[test]
    fn transferred_tiles_still_cover_their_axis() {
        let [origin, to] = ["matmul:m=64,n=64,k=64", "matmul:m=128,n=128,k=200"].map(space);
        let mut config = origin.default_config();
        config.knobs.insert("tile.k".into(), KnobValue::Tile(vec![64]));
        assert!(origin.contains(&config));
        assert_eq!(to.adapt(&config, origin.workload()).unwrap().knobs["tile.k"], KnobValue::Tile(vec![200]));
        config.knobs.insert("tile.k".into(), KnobValue::Tile(vec![16]));
        assert_eq!(to.adapt(&config, origin.workload()).unwrap().knobs["tile.k"], KnobValue::Tile(vec![16]));
    }

    #[test]
    fn a_config_of_no_space_or_of_another_sketch_is_not_carried_over() {
        let [origin, to] = ["conv2d:c=64,h=56,w=56,o=64,k=3,p=1", "conv2d:c=64,h=56,w=56,o=64,k=1"].map(space);
        let mut rng = ChaCha8Rng::seed_from_u64(0);
        let winograd =
            (0..100).map(|_| origin.sample(&mut rng)).find(|candidate| candidate.sketch() == "winograd").unwrap();
        assert_eq!(to.adapt(&winograd, origin.workload()), None, "there is no such sketch");
        let mut config = origin.default_config();
        config.knobs.clear();
        assert_eq!(to.adapt(&config, origin.workload()), None, "it lacks knobs");
    }
}
