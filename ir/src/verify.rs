//! An independent proof, without running it, that a program does what its spec asks.
//!
//! Proven are: loops, allocations and names are well formed; every index is in bounds; operands are
//! not written; every iteration of the algorithm's equations, such as the multiply-adds of a
//! contraction, happens exactly once; where operands are read in place they are read at the right
//! element; every element of the output is assigned; tasks do not write the same global element;
//! memory stays within the target's limits.
//!
//! Of a GPU stage, too: blocks and threads are within the target's limits; every thread reaches
//! every barrier; between two barriers no thread touches an element of shared memory that another
//! one writes, or that a copy under way will write, and where a block has a producer, none that one
//! of its copies may write at that time, and nobody waits in vain; matrix instructions deal out
//! operands and sums as the nest says that they stand for; guarded accesses are in bounds. A
//! multiply-add whose point lies beyond its axes does not count there; the last group of a
//! reduction's steps may go beyond its end.
//!
//! Not proven is the way of values through packed copies, shared memory and accumulators, among it
//! what these begin with and that what lies beyond the axes adds zero; [`crate::interp`] tests
//! that.
//!
//! The proof of "exactly once": [`crate::program::Iteration`] makes each multiply-accumulate,
//! together with the loops around it, a box: a set of values per axis, each taken once. The boxes
//! are pairwise disjoint, and together they have as many points as the contraction (without the
//! padding, where data is read in place).

use std::collections::HashSet;
use std::sync::Arc;

use crate::problem::{Problem, ProgramError};
use crate::program::{BufferId, Program, Role, StoreMode, When};
use crate::sets::{SetBox, gap, overlap, volume};
use crate::target::Target;

mod gpu;
mod interface;
mod overwrite;
mod own;
mod phases;
mod pipe;
mod place;
mod statement;
mod walk;

pub use overwrite::may_overwrite;
use walk::{Found, Iterations, Walk, Write, place_name};

/// Proves that `program` computes its spec within the limits of `target`, or tells where it does
/// not.
pub fn verify(program: &Program, target: &Target) -> Result<(), ProgramError> {
    interface::check_interface(program)?;
    interface::check_memory(program, target)?;
    let mut found = Found::default();
    for (index, stage) in program.stages.iter().enumerate() {
        let place = || format!("stage '{}'", stage.name);
        if stage.body.is_empty() {
            let problem = Problem::Nesting("a stage without tasks".into());
            return Err(ProgramError { place: place(), problem });
        }
        gpu::check_stage(program, stage, target)?;
        let first_write = found.writes.len();
        for (tree, node) in stage.body.iter().enumerate() {
            Walk::new(program, (index, stage), (tree, node), &mut found).node(node)?;
        }
        check_tasks(program, &found.writes[first_write..])?;
        if stage.when == When::AheadOfTime {
            let written = found.writes[first_write..].iter().map(|w| w.buffer);
            found.ahead_of_time.extend(written);
        }
    }
    check_coverage(program, &found)?;
    check_output(program, &found)
}

/// Trees of one stage store to different elements.
fn check_tasks(program: &Program, writes: &[Write]) -> Result<(), ProgramError> {
    let buffers: HashSet<BufferId> = writes.iter().map(|w| w.buffer).collect();
    for id in buffers {
        let here: Vec<&Write> = writes.iter().filter(|w| w.buffer == id).collect();
        let labels: Vec<usize> = here.iter().map(|w| w.tree).collect();
        let boxes: Vec<&SetBox> = here.iter().map(|w| &w.covered.set_box).collect();
        if let Some((a, b)) = overlap(&boxes, &labels, &program.buffer(id).shape) {
            let what = format!("an element that {} stores, too", place_name(program, &here[b].covered.place));
            return Err(ProgramError {
                place: place_name(program, &here[a].covered.place),
                problem: Problem::Conflict { buffer: program.buffer(id).name.clone(), what },
            });
        }
    }
    Ok(())
}

/// Every iteration that is needed happens exactly once: those of the main equation, of every other
/// that combines values unless the algorithm was made by rewriting the spec, and of each of which
/// some are told.
fn check_coverage(program: &Program, found: &Found) -> Result<(), ProgramError> {
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

/// Every iteration of an equation that is needed happens exactly once.
fn check_iterations(program: &Program, number: usize, found: &[&Iterations]) -> Result<(), ProgramError> {
    // A program whose every tap is padding multiplies nothing at all.
    let in_place = found.is_empty() || found.iter().any(|it| it.in_place);
    if let Some(mixed) = found.iter().find(|it| it.in_place != in_place) {
        let problem = Problem::Point("data is read from a copy here, in place elsewhere".into());
        return Err(ProgramError { place: place_name(program, &mixed.covered.place), problem });
    }

    let boxes: Vec<&SetBox> = found.iter().map(|it| &it.covered.set_box).collect();
    let extents: Vec<usize> = interface::axes_of(program, number).iter().map(|axis| axis.extent).collect();
    let labels: Vec<usize> = (0..boxes.len()).collect();
    if let Some((a, b)) = overlap(&boxes, &labels, &extents) {
        let place = |i: usize| place_name(program, &found[i].covered.place);
        return Err(ProgramError { place: place(a), problem: Problem::Overlap { other: place(b) } });
    }

    let covered = boxes.iter().map(|set_box| volume(set_box)).sum();
    let Some(required) = interface::required_points(program, number, in_place) else {
        let problem = Problem::Point("iterations without padding cannot be counted".into());
        return Err(ProgramError { place: "program".into(), problem });
    };
    if covered != required {
        let problem = Problem::Incomplete { covered, required };
        return Err(ProgramError { place: "program".into(), problem });
    }
    Ok(())
}

/// Every element of the output is assigned.
fn check_output(program: &Program, found: &Found) -> Result<(), ProgramError> {
    let is_output = |w: &&Write| w.mode == StoreMode::Assign && program.buffer(w.buffer).role == Role::Output;
    let boxes: Vec<&SetBox> = found.writes.iter().filter(is_output).map(|w| &w.covered.set_box).collect();
    let shape = program.find(Role::Output).map_or(&[][..], |id| &program.buffer(id).shape);
    match gap(&boxes, shape) {
        Some(index) => Err(ProgramError { place: "program".into(), problem: Problem::OutputGap { index } }),
        None => Ok(()),
    }
}
