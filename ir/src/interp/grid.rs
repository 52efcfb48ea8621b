//! GPU stages: blocks one after the other, and the threads of a block one after the other from barrier to barrier.

use std::collections::VecDeque;

use super::roles::is_of_role;
use super::{Compiler, Fault, InterpError, Machine, Marks, Step, Value};
use crate::affine::Affine;
use crate::launch::Grid;
use crate::program::{Expr, InBounds, Loop, Node, Scope, WarpRole};

/// Numbers the threads of a block anew in each phase between two barriers.
#[derive(Default)]
pub(super) struct Phase {
    /// By buffer: whether only accesses of one phase can meet (shared memory).
    per_phase: Vec<bool>,
    /// Number of the running thread in its phase, and the number up to which threads belong to earlier phases.
    task: u64,
    over: u64,
}

impl Phase {
    /// Who accesses the buffer, and who does not count any more; `task` is the number within the stage.
    pub(super) fn who(&self, buffer: usize, task: u64) -> (u64, u64) {
        if self.per_phase.get(buffer) == Some(&true) { (self.task, self.over) } else { (task, 0) }
    }
}

/// Copies of a thread that are under way: buffer, element and value.
#[derive(Default)]
pub(super) struct Copies {
    /// Of the group that is open.
    open: Vec<(usize, usize, f32)>,
    /// Of the groups behind it, the oldest first.
    groups: VecDeque<Vec<(usize, usize, f32)>>,
}

/// Runs the grid of a stage.
pub(super) fn run(mut compiler: Compiler, grid: &Grid, machine: &mut Machine) -> Result<(), InterpError> {
    let (program, stage) = (compiler.program, compiler.stage);
    for l in grid.blocks.iter().chain(&grid.threads) {
        compiler.open(l)?;
    }
    compiler.in_grid = true;
    let steps = compiler.nodes(grid.body)?;
    machine.watch(program, &compiler.written);
    let threads = grid.block_threads();
    let private = |scope: Scope| matches!(scope, Scope::Register | Scope::Local);
    for (id, buffer) in program.buffers.iter().enumerate() {
        if private(buffer.scope) {
            machine.private_len[id] = buffer.len();
            machine.memory[id] = vec![f32::NAN; buffer.len() * threads];
        } else if buffer.scope == Scope::Shared {
            machine.marks[id] = Some(Marks::new(buffer.len()));
        }
    }
    let per_phase = program.buffers.iter().map(|b| b.scope == Scope::Shared).collect();
    machine.phase = Phase { per_phase, task: 0, over: 0 };
    let mut block = Block { machine, threads: numbers(&grid.threads), number: 0 };
    for values in numbers(&grid.blocks) {
        block.machine.copies = (0..threads).map(|_| Copies::default()).collect();
        block.machine.under_way.clear();
        block.bind(&values);
        block.run(&steps).map_err(|fault| fault.error(program, stage))?;
        block.end_phase();
        block.number += 1;
    }
    let machine = block.machine;
    machine.phase = Phase::default();
    machine.thread = 0;
    machine.private_len.fill(0);
    Ok(())
}

/// Values of the variables of nested loops, in order, for every combination; the innermost fastest.
fn numbers(loops: &[&Loop]) -> Vec<Vec<(usize, i64)>> {
    loops.iter().fold(vec![Vec::new()], |outer, l| {
        let with = |values: &Vec<(usize, i64)>, value: usize| {
            [values.as_slice(), &[(l.var.0 as usize, value as i64)]].concat()
        };
        outer.iter().flat_map(|values| (0..l.extent).map(move |value| with(values, value))).collect()
    })
}

/// A block at work.
pub(super) struct Block<'m> {
    pub(super) machine: &'m mut Machine,
    /// Values of the thread variables, by thread.
    threads: Vec<Vec<(usize, i64)>>,
    /// Number of the block.
    number: usize,
}

impl Block<'_> {
    pub(super) fn bind(&mut self, values: &[(usize, i64)]) {
        values.iter().for_each(|&(var, value)| self.machine.vars[var] = value);
    }

    /// Nodes by all threads.
    fn run(&mut self, steps: &[Step]) -> Result<(), Fault> {
        steps.iter().try_for_each(|step| match step {
            Step::Barrier => {
                self.end_phase();
                Ok(())
            }
            Step::Alloc { buffer, body } => {
                self.machine.memory[*buffer].fill(f32::NAN);
                self.run(body)
            }
            Step::Specialised { producer, consumers } => self.run_roles(producer, consumers),
            Step::Loop { var, extent, body } if body.iter().any(is_collective) => (0..*extent).try_for_each(|value| {
                self.machine.vars[*var] = value;
                self.run(body)
            }),
            step => self.each_thread(step),
        })
    }

    pub(super) fn each_thread(&mut self, step: &Step) -> Result<(), Fault> {
        self.for_each_thread(|machine| machine.run(step))
    }

    pub(super) fn for_each_thread(
        &mut self,
        mut run: impl FnMut(&mut Machine) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        for thread in 0..self.threads.len() {
            for &(var, value) in &self.threads[thread] {
                self.machine.vars[var] = value;
            }
            self.machine.thread = thread;
            self.machine.task = (self.number * self.threads.len() + thread) as u64 + 1;
            self.machine.phase.task = self.machine.phase.over + thread as u64 + 1;
            run(self.machine)?;
        }
        Ok(())
    }

    pub(super) fn end_phase(&mut self) {
        self.machine.phase.over += self.threads.len() as u64;
    }
}

/// True for what all threads of a block do together.
fn is_collective(step: &Step) -> bool {
    match step {
        Step::Barrier | Step::Alloc { .. } | Step::Specialised { .. } => true,
        Step::Loop { body, .. } => body.iter().any(is_collective),
        Step::Store { .. }
        | Step::Nothing
        | Step::Guard { .. }
        | Step::Unflatten { .. }
        | Step::CopyGroup { .. }
        | Step::AwaitCopies { .. }
        | Step::Mbarrier(_) => false,
    }
}

impl Compiler<'_> {
    /// Opens a loop of the grid.
    fn open(&mut self, l: &Loop) -> Result<(), InterpError> {
        let var = l.var.0 as usize;
        match self.extents.get(var) {
            Some(None) if l.extent > 0 => {
                self.extents[var] = Some(l.extent);
                Ok(())
            }
            _ => Err(self.malformed(format!("variable {var} of the grid has no name, no iteration or another loop"))),
        }
    }

    /// A node that only GPU stages have.
    pub(super) fn gpu_node(&mut self, node: &Node) -> Result<Step, InterpError> {
        match node {
            _ if !self.in_grid => Err(self.malformed("a GPU node outside of a grid".into())),
            Node::Specialised { .. } => {
                Err(self.malformed("a producer without consumers, or the other way round".into()))
            }
            Node::Mbarrier(mbarrier) if self.role != Some(mbarrier.role()) => {
                Err(self.malformed("an mbarrier operation of the other role".into()))
            }
            Node::Guard { body, .. } if body.iter().any(is_of_role) => {
                Err(self.malformed("an mbarrier operation or a group of copies under a condition".into()))
            }
            Node::Mbarrier(mbarrier) => Ok(Step::Mbarrier(*mbarrier)),
            Node::Barrier | Node::AwaitCopies { .. } if self.role.is_some() => {
                Err(self.malformed("something for all threads of a block by warps of one role".into()))
            }
            Node::CopyGroup { .. } if self.role == Some(WarpRole::Consumers) => {
                Err(self.malformed("a group of copies by consumers".into()))
            }
            Node::Barrier if self.guards > 0 => Err(self.malformed("a barrier that not every thread reaches".into())),
            Node::Barrier => Ok(Step::Barrier),
            Node::CopyGroup { .. } | Node::AwaitCopies { .. } if self.guards > 0 && self.role.is_none() => {
                Err(self.malformed("a group of copies that not every thread begins and awaits".into()))
            }
            Node::CopyGroup { body } => Ok(Step::CopyGroup { body: self.nodes(body)? }),
            Node::AwaitCopies { but } => Ok(Step::AwaitCopies { but: *but }),
            Node::Call { body, .. } => match &body[..] {
                [nest] => self.node(nest),
                _ => Err(self.malformed("an instruction whose meaning is not one nest".into())),
            },
            Node::Guard { when, body } => {
                self.check_conditions(when)?;
                Ok(Step::Guard { when: when.clone(), body: self.guarded(body)? })
            }
            Node::Unflatten { value, digits, body } => {
                self.check_vars(value)?;
                let mut bound = Vec::new();
                for digit in digits {
                    let var = digit.var.0 as usize;
                    if self.extents.get(var) != Some(&None) || digit.extent == 0 {
                        return Err(self.malformed(format!("digit {var} has no name, no value or a loop of its own")));
                    }
                    self.extents[var] = Some(digit.extent);
                    bound.push((var, digit.extent as i64));
                }
                let body = self.guarded(body);
                bound.iter().for_each(|&(var, _)| self.extents[var] = None);
                Ok(Step::Unflatten { value: value.clone(), digits: bound, body: body? })
            }
            other => self.node(other),
        }
    }

    pub(super) fn guarded_value(&mut self, when: &[InBounds], value: &Expr) -> Result<Value, InterpError> {
        if !self.in_grid {
            return Err(self.malformed("a guarded value outside of a grid".into()));
        }
        self.check_conditions(when)?;
        self.guards += 1;
        let value = self.value(value);
        self.guards -= 1;
        Ok(Value::Guarded(when.to_vec(), Box::new(value?)))
    }

    fn guarded(&mut self, body: &[Node]) -> Result<Vec<Step>, InterpError> {
        self.guards += 1;
        let body = self.nodes(body);
        self.guards -= 1;
        body
    }

    fn check_conditions(&self, when: &[InBounds]) -> Result<(), InterpError> {
        when.iter().try_for_each(|condition| self.check_vars(&condition.index))
    }

    fn check_vars(&self, affine: &Affine) -> Result<(), InterpError> {
        match affine.terms.iter().find(|(var, _)| self.extent(*var).is_none()) {
            Some((var, _)) => Err(self.malformed(format!("variable {} is used outside its loop", var.0))),
            None => Ok(()),
        }
    }
}

impl Machine {
    /// Makes the memory of an allocation undefined.
    pub(super) fn clear(&mut self, buffer: usize) {
        let len = self.private_len[buffer];
        let all = &mut self.memory[buffer];
        let own = if len == 0 { 0..all.len() } else { self.thread * len..(self.thread + 1) * len };
        all[own].fill(f32::NAN);
    }

    /// Leaves the element undefined until the copy is awaited.
    pub(super) fn begin_copy(&mut self, buffer: usize, offset: usize, value: f32) -> Result<(), Fault> {
        if !self.under_way.insert((buffer, offset)) {
            return Err(Fault::Race { buffer, offset });
        }
        self.copies[self.thread].open.push((buffer, offset, value));
        self.write(buffer, offset, f32::NAN)
    }

    pub(super) fn close_group(&mut self) {
        let copies = &mut self.copies[self.thread];
        copies.groups.push_back(std::mem::take(&mut copies.open));
    }

    /// Ends the copies of the thread's oldest group.
    pub(super) fn await_oldest(&mut self) -> Result<(), Fault> {
        let groups = self.copies[self.thread].groups.len();
        self.await_copies(groups.saturating_sub(1))
    }

    /// Ends the copies of all groups but the latest so many.
    pub(super) fn await_copies(&mut self, but: usize) -> Result<(), Fault> {
        while self.copies[self.thread].groups.len() > but {
            for (buffer, offset, value) in self.copies[self.thread].groups.pop_front().unwrap_or_default() {
                self.under_way.remove(&(buffer, offset));
                self.write(buffer, offset, value)?;
            }
        }
        Ok(())
    }

    pub(super) fn holds(&self, when: &[InBounds]) -> bool {
        when.iter().all(|condition| (0..condition.extent as i64).contains(&self.at(&condition.index)))
    }

    /// Binds the digits of the value; false if it has none.
    pub(super) fn bind(&mut self, value: &Affine, digits: &[(usize, i64)]) -> bool {
        let mut rest = self.at(value);
        if rest < 0 {
            return false;
        }
        for &(var, extent) in digits.iter().rev() {
            self.vars[var] = rest % extent;
            rest /= extent;
        }
        rest == 0
    }
}
