//! Sets of integers, and boxes: products of one set per axis.

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::{SmallVec, smallvec};

use crate::affine::{Affine, VarId};

/// Maximum number of intervals of a set. Tilings produce few; a larger set is rejected to bound the
/// running time.
const MAX_INTERVALS: usize = 1 << 16;

/// Set of integers, as sorted, disjoint, half-open intervals that do not touch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct IntervalSet(Intervals);

/// Intervals of a set; mostly one.
type Intervals = SmallVec<[(i64, i64); 1]>;

/// Product of one set per axis.
pub(crate) type SetBox = Vec<IntervalSet>;

/// Number of boxes up to which comparing all pairs is faster than cutting the space.
const FEW: usize = 6;

impl IntervalSet {
    /// Returns the values that `affine` takes; `None` if it is not provable that each occurs once,
    /// or if they need too many intervals.
    ///
    /// A mixed radix is provable: each coefficient, sorted, is at least the span of the smaller
    /// terms. In `32*t + 4*u + i`, `u` is in `0..8` and `i` in `0..4`.
    pub(crate) fn of(affine: &Affine, extent_of: impl Fn(VarId) -> usize) -> Option<Self> {
        let mut start = affine.constant;
        let mut terms: SmallVec<[(i64, i64); 4]> = SmallVec::new();
        for &(var, coefficient) in &affine.terms {
            let last = extent_of(var) as i64 - 1;
            // Negative steps are reversed: the set starts at the smallest value.
            start += (coefficient * last).min(0);
            if last > 0 {
                terms.push((coefficient.abs(), last));
            }
        }
        terms.sort_unstable();

        let mut intervals: Intervals = smallvec![(0, 1)];
        let mut span = 1;

        for (step, last) in terms {
            // Overlapping repetitions would take some values twice.
            if step < span {
                return None;
            }

            // Repetition without gaps yields one longer interval.
            intervals = if intervals.len() == 1 && step == span {
                smallvec![(0, step * (last + 1))]
            } else {
                repeat(&intervals, step, last)?
            };
            span += step * last;
        }
        Some(Self(intervals.into_iter().map(|(low, high)| (start + low, start + high)).collect()))
    }

    /// Returns the values that are in `0..extent`.
    pub(crate) fn below(&self, extent: usize) -> Self {
        let within = self.0.iter().map(|&(low, high)| (low.max(0), high.min(extent as i64)));
        Self(within.filter(|(low, high)| low < high).collect())
    }

    /// Returns `n` if the set is `0..n`.
    pub(crate) fn as_prefix(&self) -> Option<usize> {
        match self.0[..] {
            [(0, high)] => Some(high as usize),
            _ => None,
        }
    }

    pub(crate) fn len(&self) -> u128 {
        self.0.iter().map(|(low, high)| (high - low) as u128).sum()
    }

    /// Returns true if both sets have a value in common.
    fn intersects(&self, other: &Self) -> bool {
        let (mut a, mut b) = (self.0.iter().peekable(), other.0.iter().peekable());
        while let (Some(&&(a_low, a_high)), Some(&&(b_low, b_high))) = (a.peek(), b.peek()) {
            if a_low < b_high && b_low < a_high {
                return true;
            }
            // The interval that ends first cannot meet any further one.
            let behind = if a_high <= b_high { &mut a } else { &mut b };
            behind.next();
        }
        false
    }
}

/// Returns the intervals together with their copies shifted by `step, 2*step, .. last*step`; `None`
/// if they are too many. The intervals start at 0 and span at most `step`.
fn repeat(intervals: &[(i64, i64)], step: i64, last: i64) -> Option<Intervals> {
    if intervals.len().checked_mul(last as usize + 1)? > MAX_INTERVALS {
        return None;
    }
    let mut all = Intervals::new();
    for copy in 0..=last {
        for &(low, high) in intervals {
            let (low, high) = (low + copy * step, high + copy * step);
            match all.last_mut() {
                Some(previous) if previous.1 == low => previous.1 = high,
                _ => all.push((low, high)),
            }
        }
    }
    Some(all)
}

/// Returns the number of points of a box.
pub(crate) fn volume(set_box: &SetBox) -> u128 {
    set_box.iter().map(IntervalSet::len).product()
}

/// Returns two boxes with different labels that have a point in common, if there are any. `extents`
/// are the sizes of the axes, which contain all sets.
///
/// The space is cut axis by axis at the ends of the current boxes. A part that only boxes of one
/// label reach is skipped; in a part that few boxes reach, all pairs are compared.
pub(crate) fn overlap(boxes: &[&SetBox], labels: &[usize], extents: &[usize]) -> Option<(usize, usize)> {
    fn search(
        boxes: &[&SetBox],
        labels: &[usize],
        extents: &[usize],
        axis: usize,
        at_hand: &[usize],
    ) -> Option<(usize, usize)> {
        let (&first, rest) = at_hand.split_first()?;
        // Boxes with the same label may overlap.
        let other = *rest.iter().find(|&&i| labels[i] != labels[first])?;

        if axis == extents.len() {
            return Some((first, other));
        }

        if at_hand.len() <= FEW {
            let meets =
                |a: usize, b: usize| boxes[a][axis..].iter().zip(&boxes[b][axis..]).all(|(a, b)| a.intersects(b));
            let pairs = at_hand.iter().enumerate().flat_map(|(i, &a)| at_hand[i + 1..].iter().map(move |&b| (a, b)));
            return pairs.into_iter().find(|&(a, b)| labels[a] != labels[b] && meets(a, b));
        }

        // An axis with equal sets need not be cut; an empty set leaves nothing in common.
        if are_alike(boxes, at_hand, axis) {
            let is_empty = boxes[first][axis].0.is_empty();
            return (!is_empty).then(|| search(boxes, labels, extents, axis + 1, at_hand)).flatten();
        }
        parts(boxes, at_hand, axis, extents[axis])
            .into_iter()
            .find_map(|(_, inside)| search(boxes, labels, extents, axis + 1, &inside))
    }
    let all: Vec<usize> = (0..boxes.len()).collect();
    search(boxes, labels, extents, 0, &all)
}

/// Returns true if the boxes `at_hand` have the same set along an axis, so that it need not be cut.
fn are_alike(boxes: &[&SetBox], at_hand: &[usize], axis: usize) -> bool {
    at_hand.windows(2).all(|pair| boxes[pair[0]][axis] == boxes[pair[1]][axis])
}

/// Returns a point of the space that no box contains, if there is one.
pub(crate) fn gap(boxes: &[&SetBox], extents: &[usize]) -> Option<Vec<i64>> {
    fn search(boxes: &[&SetBox], extents: &[usize], point: &mut Vec<i64>, at_hand: &[usize]) -> bool {
        let axis = point.len();
        // If no box is left, every point of this part is a gap.
        let Some(&first) = at_hand.first() else {
            point.resize(extents.len(), 0);
            return true;
        };
        if axis == extents.len() {
            return false;
        }
        // If all boxes cover the whole axis, any value represents it.
        if boxes[first][axis].as_prefix() == Some(extents[axis]) && are_alike(boxes, at_hand, axis) {
            point.push(0);
            return search(boxes, extents, point, at_hand);
        }
        parts(boxes, at_hand, axis, extents[axis]).into_iter().any(|(start, inside)| {
            point.truncate(axis);
            point.push(start);
            search(boxes, extents, point, &inside)
        })
    }
    let all: Vec<usize> = (0..boxes.len()).collect();
    let mut point = Vec::new();
    search(boxes, extents, &mut point, &all).then_some(point)
}

/// Cuts the axis `0..extent` at the ends of the boxes' sets. Returns the first value of each
/// distinct part, and the boxes that contain the part; parts that the same boxes contain are
/// returned once.
fn parts(boxes: &[&SetBox], at_hand: &[usize], axis: usize, extent: usize) -> Vec<(i64, Vec<usize>)> {
    // Group the boxes by their set: they come from few tilings, and neighbours often have equal
    // sets.
    let mut number_of = FxHashMap::default();
    let mut groups: Vec<(&IntervalSet, Vec<usize>)> = Vec::new();
    let mut last = usize::MAX;
    for &i in at_hand {
        let set = &boxes[i][axis];
        if groups.get(last).is_none_or(|group| group.0 != set) {
            last = *number_of.entry(set).or_insert(groups.len());
        }
        match groups.get_mut(last) {
            Some((_, members)) => members.push(i),
            None => groups.push((set, vec![i])),
        }
    }

    let ends = groups.iter().flat_map(|(set, _)| set.0.iter().flat_map(|&(low, high)| [low, high]));
    let mut cuts: Vec<i64> = std::iter::once(0).chain(ends).filter(|&cut| cut < extent as i64).collect();
    cuts.sort_unstable();
    cuts.dedup();

    // For each cut, a bit set of the groups that contain it.
    let words = groups.len().div_ceil(64).max(1);
    let mut inside = vec![0u64; words * cuts.len()];
    for (group, (set, _)) in groups.iter().enumerate() {
        let mut cut = 0;
        for &(low, high) in &set.0 {
            cut += cuts[cut..].iter().take_while(|&&start| start < low).count();
            while cuts.get(cut).is_some_and(|&start| start < high) {
                inside[words * cut + group / 64] |= 1 << (group % 64);
                cut += 1;
            }
        }
    }

    let mut seen = FxHashSet::default();
    let kinds = cuts.iter().zip(inside.chunks_exact(words)).filter(|(_, inside)| seen.insert(*inside));
    let members = |inside: &[u64]| {
        let is_in = |group: &usize| inside[group / 64] >> (group % 64) & 1 == 1;
        (0..groups.len()).filter(is_in).flat_map(|group| groups[group].1.iter().copied()).collect()
    };
    kinds.map(|(&start, inside)| (start, members(inside))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use std::collections::BTreeSet;

    fn contains(set: &IntervalSet, value: i64) -> bool {
        set.0.iter().any(|&(low, high)| (low..high).contains(&value))
    }

    fn values(set: &IntervalSet) -> BTreeSet<i64> {
        set.0.iter().flat_map(|&(low, high)| low..high).collect()
    }

    /// Returns the values of the affine expression; `None` if one occurs twice.
    fn enumerate(affine: &Affine, extents: &[usize]) -> Option<BTreeSet<i64>> {
        let mut all = vec![affine.constant];
        for &(var, c) in &affine.terms {
            let extent = extents[var.0 as usize] as i64;
            all = all.iter().flat_map(|&x| (0..extent).map(move |i| x + c * i)).collect();
        }
        let distinct: BTreeSet<i64> = all.iter().copied().collect();
        (distinct.len() == all.len()).then_some(distinct)
    }

    #[test]
    fn sets_of_affines_are_their_values() {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let mut known = 0;
        for case in 0..5000 {
            let extents: Vec<usize> = (0..3).map(|_| rng.random_range(1..5)).collect();
            let mut affine = Affine::constant(rng.random_range(-5..5));
            for var in 0..3 {
                affine = affine + Affine::var(VarId(var)) * rng.random_range(-12..=12);
            }
            let wanted = enumerate(&affine, &extents);
            if let Some(set) = IntervalSet::of(&affine, |v| extents[v.0 as usize]) {
                assert_eq!(Some(values(&set)), wanted, "case {case}: {affine:?} {extents:?}");
                assert_eq!(set.len(), values(&set).len() as u128);
                assert!((-60..60).all(|x| contains(&set, x) == values(&set).contains(&x)));
                assert!(set.0.windows(2).all(|w| w[0].1 < w[1].0), "intervals touch: {set:?}");
                known += 1;
            }
        }
        assert!(known > 1000, "only {known} of the affines were understood");
    }

    #[test]
    fn tiles_are_understood_and_repetition_is_not() {
        let extents = [3, 8, 4];
        let var = |v: u32| Affine::var(VarId(v));
        let set = |affine: &Affine| IntervalSet::of(affine, |v| extents[v.0 as usize]);
        assert_eq!(set(&(var(0) * 32 + var(1) * 4 + var(2))), Some(IntervalSet(smallvec![(0, 96)])));
        assert_eq!(set(&(var(0) * 32 + var(2) + 28)), Some(IntervalSet(smallvec![(28, 32), (60, 64), (92, 96)])));
        assert_eq!(set(&(var(0) + var(2))), None);
        let wide = |_| 1 << 20;
        assert_eq!(IntervalSet::of(&(var(0) * 2), wide), None, "too scattered");
        assert_eq!(IntervalSet::of(&var(0), wide), Some(IntervalSet(smallvec![(0, 1 << 20)])));
    }

    fn random_boxes(rng: &mut ChaCha8Rng, extents: &[usize]) -> Vec<SetBox> {
        let count = rng.random_range(1..6);
        let mut random_set = |extent: usize| {
            if rng.random() {
                return IntervalSet(smallvec![(0, extent as i64)]);
            }
            let low = rng.random_range(0..extent as i64);
            let high = rng.random_range(low + 1..=extent as i64);
            IntervalSet(smallvec![(low, high)])
        };
        (0..count).map(|_| extents.iter().map(|&e| random_set(e)).collect()).collect()
    }

    #[test]
    fn overlaps_and_gaps_are_those_of_the_points() {
        let mut rng = ChaCha8Rng::seed_from_u64(4);
        let extents = [4, 3, 5];
        let points: Vec<[i64; 3]> = (0..60).map(|i| [i / 15, i / 5 % 3, i % 5]).collect();
        let inside = |b: &SetBox, p: &[i64]| b.iter().zip(p).all(|(set, &x)| contains(set, x));
        let (mut overlaps, mut covers) = (0, 0);
        for case in 0..2000 {
            let boxes = random_boxes(&mut rng, &extents);
            let boxes: Vec<&SetBox> = boxes.iter().collect();
            let labels: Vec<usize> = (0..boxes.len()).map(|_| rng.random_range(0..3)).collect();
            let meet = |i: usize, j: usize| points.iter().any(|p| inside(boxes[i], p) && inside(boxes[j], p));
            let clash = |i: usize, j: usize| labels[i] != labels[j] && meet(i, j);
            let any = (0..boxes.len()).any(|i| (0..i).any(|j| clash(i, j)));
            let found = overlap(&boxes, &labels, &extents);
            assert_eq!(found.is_some(), any, "case {case}: {boxes:?} {labels:?}");
            assert!(found.is_none_or(|(i, j)| clash(i, j)), "case {case}");
            let covered = |p: &[i64]| boxes.iter().any(|b| inside(b, p));
            let hole = gap(&boxes, &extents);
            assert_eq!(hole.is_none(), points.iter().all(|p| covered(p)), "case {case}: {boxes:?}");
            assert!(hole.is_none_or(|p| !covered(&p)), "case {case}");
            overlaps += usize::from(any);
            covers += usize::from(gap(&boxes, &extents).is_none());
        }
        let fair = 100..1900;
        assert!(fair.contains(&overlaps) && fair.contains(&covers), "{overlaps} {covers}");
    }

    #[test]
    fn volumes_multiply() {
        let set_box = vec![IntervalSet(smallvec![(0, 3), (5, 7)]), IntervalSet(smallvec![(1, 5)])];
        assert_eq!(volume(&set_box), 20);
    }
}
