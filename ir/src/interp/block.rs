//! Execution of GPU stages: one block after the other, and the threads of a block one after the
//! other from barrier to barrier.

use std::collections::VecDeque;

use super::machine::{Body, Interpreter};
use crate::problem::Problem;
use crate::program::{GpuGrid, Loop, Node, Scope, WarpRole};

impl<'p> Interpreter<'p> {
    /// Executes the grid of a stage.
    pub(super) fn grid(&mut self, grid: GpuGrid<'p>) -> Result<(), Problem> {
        let threads = grid.block_threads();
        for (id, buffer) in self.program.buffers.iter().enumerate() {
            if matches!(buffer.scope, Scope::Register | Scope::Local) {
                // Every thread of a block gets its own part.
                self.part_len[id] = buffer.len();
                self.memory[id] = vec![f64::NAN; buffer.len() * threads];
            }
        }

        self.threads = Some(grid.threads);
        self.nested(&grid.blocks, &mut |machine| {
            // No copy outlives its block.
            machine.copies = vec![VecDeque::new(); threads];
            machine.in_flight.clear();
            machine.by_block(grid.body)?;
            machine.end_phase();
            // The threads of the next block are other tasks.
            machine.task += threads as u64;
            Ok(())
        })?;
        self.threads = None;
        Ok(())
    }

    /// Executes nodes by all threads of a block.
    pub(super) fn by_block(&mut self, nodes: &'p [Node]) -> Result<(), Problem> {
        if let Some(roles) = WarpRole::both(nodes) {
            return self.roles(roles);
        }
        nodes.iter().try_for_each(|node| match node {
            Node::Barrier => {
                self.end_phase();
                Ok(())
            }
            Node::Alloc { buffer, body } => self.allocated(*buffer, &mut |machine| {
                machine.memory[buffer.0 as usize].fill(f64::NAN);
                machine.by_block(body)
            }),
            Node::Loop(l) if is_collective(node) => self.looped(l, &mut |machine| machine.by_block(&l.body)),
            // The numbers of threads are not bound here, so the condition cannot depend on them.
            Node::Guard { when, body } if is_collective(node) => match self.holds(when)? {
                true => self.by_block(body),
                false => Ok(()),
            },
            node => self.each_thread(&mut |machine| machine.node(node)),
        })
    }

    /// Executes `run` for each thread of a block.
    pub(super) fn each_thread(&mut self, run: Body<'_, 'p>) -> Result<(), Problem> {
        let threads = self.threads.clone().unwrap_or_default();
        let before = self.task;
        self.thread = 0;
        self.nested(&threads, &mut |machine| {
            machine.task += 1;
            run(machine)?;
            machine.thread += 1;
            Ok(())
        })?;
        (self.task, self.thread) = (before, 0);
        Ok(())
    }

    /// Ends a phase: all threads see everything that was written before.
    pub(super) fn end_phase(&mut self) {
        self.past_marks += self.copies.len() as u64;
    }
}

/// Returns true for a node that all threads of a block must execute together.
fn is_collective(node: &Node) -> bool {
    match node {
        Node::Barrier | Node::Alloc { .. } | Node::Specialised { .. } => true,
        Node::Loop(Loop { body, .. }) | Node::Guard { body, .. } => body.iter().any(is_collective),
        _ => false,
    }
}
