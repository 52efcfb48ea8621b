//! Static proof that a program computes its spec.
//!
//! Proven for every program:
//!
//! - loops, allocations and names are well formed;
//! - every index is in bounds, and operands are not written;
//! - every iteration of the algorithm's equations, such as the multiply-adds of a contraction, is
//!   executed exactly once;
//! - operands that are read directly are read at the right element;
//! - every element of the output is assigned;
//! - tasks do not write the same element of global memory;
//! - memory stays within the target's limits.
//!
//! Proven for GPU stages as well:
//!
//! - blocks and threads are within the target's limits, and guarded accesses are in bounds;
//! - every thread reaches every barrier;
//! - between two barriers, no thread accesses an element of shared memory that another one writes
//!   or that a copy in progress will write;
//! - with a producer, no access meets an element that one of its copies may be writing at that
//!   time, and no wait is for an event that never comes;
//! - matrix instructions distribute operands and sums over threads as their nest states.
//!
//! Iterations may be under a condition if those that it excludes are masked (`verify/hidden.rs`).
//!
//! On a GPU, a multiply-add whose point is outside its axes does not count. The last group of
//! reduction steps of a dot product, or the last row of a tile, may exceed the axis.
//!
//! Not proven: the flow of values through packed copies, shared memory and accumulators, including
//! initial values and that steps outside the axes add zero. [`crate::interp`] tests these.
//!
//! "Exactly once" is an exact cover by boxes. By its [`crate::program::Iteration`], each
//! multiply-accumulate with the loops around it covers a box: a product of one set of values per
//! axis, each point taken once. The boxes are pairwise disjoint, and together they have as many
//! points as the contraction (without the padding, if data is read directly).

use std::collections::HashSet;
use std::sync::Arc;

use crate::problem::{Problem, ProgramError};
use crate::program::{BufferId, Program, Role, StoreMode, When};
use crate::sets::{SetBox, gap, overlap, volume};
use crate::target::Target;

mod gpu;
mod hidden;
mod interface;
mod overwrite;
mod own;
mod phases;
mod pipe;
mod place;
mod statement;
mod walk;

pub use overwrite::may_overwrite;
use walk::{Iterations, TreePath, WalkFindings, Write, place_name};

/// Proves that `program` computes its spec within the limits of `target`; the error names the first
/// fault and its place.
pub fn verify(program: &Program, target: &Target) -> Result<(), ProgramError> {
    interface::check_interface(program)?;
    interface::check_memory(program, target)?;
    let mut found = WalkFindings::default();
    for (index, stage) in program.stages.iter().enumerate() {
        let place = || format!("stage '{}'", stage.name);
        if stage.body.is_empty() {
            let problem = Problem::Nesting("the stage has no tasks".into());
            return Err(ProgramError { place: place(), problem });
        }
        gpu::check_stage(program, stage, target)?;
        let first_write = found.writes.len();
        for (tree, node) in stage.body.iter().enumerate() {
            TreePath::new(program, (index, stage), (tree, node), &mut found).node(node)?;
        }
        // A barrier separates stages, so only writes of the same stage can conflict.
        check_tasks(program, &found.writes[first_write..])?;
        // Stages of a run may read these buffers but not write them.
        if stage.when == When::AheadOfTime {
            let written = found.writes[first_write..].iter().map(|w| w.buffer);
            found.ahead_of_time.extend(written);
        }
    }
    check_coverage(program, &found)?;
    check_output(program, &found)
}

/// Checks that trees of one stage store to different elements.
fn check_tasks(program: &Program, writes: &[Write]) -> Result<(), ProgramError> {
    let buffers: HashSet<BufferId> = writes.iter().map(|w| w.buffer).collect();
    for id in buffers {
        let here: Vec<&Write> = writes.iter().filter(|w| w.buffer == id).collect();
        // The writes of one tree are checked during its walk; only trees remain.
        let labels: Vec<usize> = here.iter().map(|w| w.tree).collect();
        let boxes: Vec<&SetBox> = here.iter().map(|w| &w.covered.set_box).collect();
        if let Some((a, b)) = overlap(&boxes, &labels, &program.buffer(id).shape) {
            let what = format!("an element is also stored by {}", place_name(program, &here[b].covered.place));
            return Err(ProgramError {
                place: place_name(program, &here[a].covered.place),
                problem: Problem::Conflict { buffer: program.buffer(id).name.clone(), what },
            });
        }
    }
    Ok(())
}

/// Checks that every required iteration is executed exactly once. Required are those of the main
/// equation, of every other equation with a reduction unless the algorithm is a rewritten spec, and
/// of each equation of which any iteration is declared.
fn check_coverage(program: &Program, found: &WalkFindings) -> Result<(), ProgramError> {
    let (algorithm, main) = (&program.algorithm, program.algorithm.main);
    let is_rewritten = !Arc::ptr_eq(&program.spec, algorithm) && program.spec != *algorithm;
    for (number, equation) in algorithm.equations.iter().enumerate() {
        let own: Vec<&Iterations> = found.iterations.iter().filter(|it| it.equation == number).collect();
        if number == main || equation.reduces() && !is_rewritten || !own.is_empty() {
            check_iterations(program, number, &own)?;
        }
    }
    Ok(())
}

/// Checks that every required iteration of an equation is executed exactly once.
fn check_iterations(program: &Program, number: usize, found: &[&Iterations]) -> Result<(), ProgramError> {
    // If every tap is padding, the program has no multiply-accumulate at all.
    let in_place = found.is_empty() || found.iter().any(|it| it.in_place);
    if let Some(mixed) = found.iter().find(|it| it.in_place != in_place) {
        let problem = Problem::Point("data is read from a copy here and in place elsewhere".into());
        return Err(ProgramError { place: place_name(program, &mixed.covered.place), problem });
    }

    let boxes: Vec<&SetBox> = found.iter().map(|it| &it.covered.set_box).collect();
    let extents: Vec<usize> = interface::axes_of(program, number).iter().map(|axis| axis.extent).collect();
    let labels: Vec<usize> = (0..boxes.len()).collect();
    if let Some((a, b)) = overlap(&boxes, &labels, &extents) {
        let place = |i: usize| place_name(program, &found[i].covered.place);
        return Err(ProgramError { place: place(a), problem: Problem::Overlap { other: place(b) } });
    }

    // Disjoint boxes with the required number of points cover each point exactly once.
    let covered = boxes.iter().map(|set_box| volume(set_box)).sum();
    let Some(required) = interface::required_points(program, number, in_place) else {
        let problem = Problem::Point("cannot count the iterations that read no padding".into());
        return Err(ProgramError { place: "program".into(), problem });
    };
    if covered != required {
        let problem = Problem::Incomplete { covered, required };
        return Err(ProgramError { place: "program".into(), problem });
    }
    Ok(())
}

/// Checks that every element of the output is assigned.
fn check_output(program: &Program, found: &WalkFindings) -> Result<(), ProgramError> {
    let is_output = |w: &&Write| w.mode == StoreMode::Assign && program.buffer(w.buffer).role == Role::Output;
    let boxes: Vec<&SetBox> = found.writes.iter().filter(is_output).map(|w| &w.covered.set_box).collect();
    let shape = program.find(Role::Output).map_or(&[][..], |id| &program.buffer(id).shape);
    match gap(&boxes, shape) {
        Some(index) => Err(ProgramError { place: "program".into(), problem: Problem::OutputGap { index } }),
        None => Ok(()),
    }
}
