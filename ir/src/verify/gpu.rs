//! Checks of launches and guards, which only GPU stages have.

use std::borrow::Cow;

use smallvec::SmallVec;

use super::{Problem, ProgramError, phases};
use crate::affine::{Affine, VarId};
use crate::launch::Launch;
use crate::program::{BufferId, Digit, GpuGrid, InBounds, Node, Program, Scope, Stage, StoreMode, preorder};
use crate::sets::IntervalSet;
use crate::target::{GpuTarget, Target};

/// Split value and digits of an enclosing [`Node::Unflatten`].
pub(super) struct Digits<'a> {
    pub(super) value: &'a Affine,
    pub(super) digits: &'a [Digit],
}

/// Checks that a stage fits the kind of target and its limits, and that the threads of a GPU stage
/// do not conflict in memory.
pub(super) fn check_stage(program: &Program, stage: &Stage, target: &Target) -> Result<(), ProgramError> {
    let fail = |problem: Problem| Err(ProgramError { place: format!("stage '{}'", stage.name), problem });
    match (target.gpu(), GpuGrid::of(stage), Launch::of(program, stage)) {
        (None, None, _) => Ok(()),
        (Some(gpu), Some(grid), Some(launch)) => {
            check_launch(launch, gpu).or_else(fail)?;
            check_global(program, grid.body, launch).or_else(fail)?;
            phases::check(program, &grid).or_else(fail)
        }
        _ => fail(Problem::Nesting(format!("the stage cannot run on {target}"))),
    }
}

fn check_launch(launch: Launch, gpu: &GpuTarget) -> Result<(), Problem> {
    if launch.threads > gpu.threads_per_block {
        return Err(Problem::Launch(format!(
            "{} threads per block exceed the limit of {}",
            launch.threads, gpu.threads_per_block
        )));
    }
    // CUDA limits the first dimension of the grid to 2^31 - 1.
    if launch.blocks > i32::MAX as usize {
        return Err(Problem::Launch(format!("{} blocks exceed the limit of 2^31 - 1", launch.blocks)));
    }
    let (bytes, limit) = (launch.shared_bytes as u64, gpu.shared_bytes_per_block as u64);
    if bytes > limit {
        return Err(Problem::Memory { scope: Scope::Shared, bytes, limit });
    }
    Ok(())
}

/// Checks that a global buffer written by the stage is written by one statement only and not read.
/// A single thread may write it in several statements.
fn check_global(program: &Program, body: &[Node], launch: Launch) -> Result<(), Problem> {
    let is_alone = launch.blocks == 1 && launch.threads == 1;
    let (mut stored, mut loaded): (Vec<BufferId>, Vec<BufferId>) = (Vec::new(), Vec::new());

    for node in preorder(body) {
        let Node::Store(store) = node else { continue };
        stored.push(store.dst.buffer);
        store.value.for_each_load(&mut |access| loaded.push(access.buffer));
        // An accumulation also reads its destination.
        if store.mode == StoreMode::Accumulate {
            loaded.push(store.dst.buffer);
        }
    }

    let is_global = |id: &BufferId| program.buffers.get(id.0 as usize).is_some_and(|b| b.scope == Scope::Global);
    for (i, id) in stored.iter().enumerate().filter(|(_, id)| is_global(id)) {
        if loaded.contains(id) || !is_alone && stored[..i].contains(id) {
            let what = "stored by a second statement, or read in the stage that stores it".into();
            return Err(Problem::Conflict { buffer: program.buffer(*id).name.clone(), what });
        }
    }
    Ok(())
}

/// Splits `affine` into `c * part + rest` such that no variable of `part` occurs in `rest`. Returns
/// `(c, rest)`; `None` if this is impossible or `part` is constant.
fn split_off(affine: &Affine, part: &Affine) -> Option<(i64, Affine)> {
    let &(first, coefficient) = part.terms.first()?;
    let c = affine.coefficient(first) / coefficient;

    let mut rest = affine.clone();
    rest.add_scaled(part, -c);
    (c != 0 && part.terms.iter().all(|(var, _)| rest.coefficient(*var) == 0)).then_some((c, rest))
}

/// Returns the smallest and the largest value of an index while all conditions hold; `None` if one
/// of them never holds.
pub(super) fn range(
    index: &Affine,
    guards: &[&InBounds],
    extent_of: impl Fn(VarId) -> usize + Copy,
) -> Option<(i64, i64)> {
    let (mut low, mut high) = index.range(extent_of);
    // Conditions on disjoint variables restrict the index together: `left` is the rest of the index
    // without them, `from_all..=to_all` the range of their sum.
    let (mut left, mut from_all, mut to_all) = (index.clone(), 0, 0);
    for guard in guards {
        let (least, most) = guard.index.range(extent_of);
        let (least, most) = (least.max(0), most.min(guard.extent as i64 - 1));
        if least > most {
            return None;
        }
        let ends = |c: i64| [(c * least).min(c * most), (c * least).max(c * most)];

        // Each condition bounds its own part of the index.
        if let Some((c, rest)) = split_off(index, &guard.index) {
            let (from, to) = rest.range(extent_of);
            low = low.max(from + ends(c)[0]);
            high = high.min(to + ends(c)[1]);
        }

        // Conditions on disjoint parts add up.
        if let Some((c, rest)) = split_off(&left, &guard.index) {
            left = rest;
            from_all += ends(c)[0];
            to_all += ends(c)[1];
        }
    }

    let (from, to) = left.range(extent_of);
    Some((low.max(from + from_all), high.min(to + to_all)))
}

/// Index values, and the extents of those of their variables that replace conditions.
type Guarded<'v> = (Cow<'v, [Affine]>, SmallVec<[(VarId, usize); 2]>);

/// Replaces the expression that each condition compares by a new variable in the values; also
/// returns the extents of the new variables. `None` if a condition is not provably about one value
/// alone, or does not restrict it to `0..n` with each value once.
pub(super) fn apply_guards<'v>(
    values: &'v [Affine],
    guards: &[&InBounds],
    extent_of: impl Fn(VarId) -> usize + Copy,
) -> Option<Guarded<'v>> {
    let (mut values, mut extents) = (Cow::Borrowed(values), SmallVec::new());
    for guard in guards {
        let left = IntervalSet::of(&guard.index, extent_of)?.below(guard.extent).as_prefix()?;
        let (at, (c, rest)) = values.iter().enumerate().find_map(|(i, v)| Some((i, split_off(v, &guard.index)?)))?;
        // A condition on variables of another value would make the values dependent.
        let is_shared = |var: VarId| values.iter().enumerate().any(|(i, value)| i != at && value.uses(var));
        if guard.index.terms.iter().any(|&(var, _)| extent_of(var) > 1 && is_shared(var)) {
            return None;
        }
        let var = VarId(u32::MAX - extents.len() as u32);
        extents.push((var, left));
        values.to_mut()[at] = rest + Affine::var(var) * c;
    }
    Some((values, extents))
}
