//! Race check of shared memory in GPU stages.
//!
//! A phase is the time between two barriers. Within a phase threads run in any order, so no thread
//! may access an element that another one writes, nor an element that an asynchronous copy in
//! progress writes. The check executes one block symbolically, for all threads at once: it
//! collects the accesses of each phase and compares the ranges of their indices.

use std::collections::{HashMap, VecDeque};

use super::Problem;
use super::pipe::{Pipe, SharedAccess};
use crate::affine::{Affine, VarId};
use crate::instruction::Asynchrony;
use crate::program::{
    Access, BufferId, Digit, GpuGrid, InBounds, Loop, LoopKind, Mbarrier, Node, PRODUCER_THREADS, Program, Scope,
    Store, StoreMode, WarpRole, preorder,
};

/// Checks that no thread accesses an element of shared memory that another one writes in the same
/// phase, or that a copy in progress writes.
pub(super) fn check(program: &Program, grid: &GpuGrid) -> Result<(), Problem> {
    let grid_loops = grid.blocks.iter().chain(&grid.threads);
    let roles = both_roles(grid)?;
    let mut phases = PhaseChecker {
        program,
        fixed: HashMap::new(),
        extents: grid_loops.map(|l| (l.var, l.extent)).collect(),
        touched: Vec::new(),
        reading: Vec::new(),
        in_group: None,
        groups: VecDeque::new(),
        pipe: None,
    };
    let Some([producer, consumers]) = roles else { return phases.nodes(grid.body) };
    // The producer is executed first, so that all its groups of copies are known when a consumer
    // waits for them.
    phases.pipe = Some(Pipe::new(WarpRole::Producer));
    phases.nodes(producer)?;
    // Consumers learn of the producer's copies through mbarriers only.
    phases.groups.clear();
    phases.pipe.iter_mut().for_each(Pipe::turn);
    phases.nodes(consumers)?;
    phases.pipe.map_or(Ok(()), |pipe| pipe.check())
}

/// Returns the bodies of producer and consumers, which must be directly inside the allocations of a
/// block; `None` without warp specialisation.
fn both_roles<'a>(grid: &GpuGrid<'a>) -> Result<Option<[&'a [Node]; 2]>, Problem> {
    let mut body = grid.body;
    while let [Node::Alloc { body: inner, .. }] = body {
        body = inner;
    }

    let roles = WarpRole::both(body);
    let stray = match roles {
        Some(roles) => roles.into_iter().any(WarpRole::occurs),
        None => WarpRole::occurs(body),
    };
    if stray {
        return Err(Problem::Nesting("specialised warps must be a producer and consumers".into()));
    }
    // Otherwise one role could skip an mbarrier that the other waits for.
    if let Some([producer, consumers]) = roles
        && gates(producer) != gates(consumers)
    {
        return Err(Problem::Nesting(
            "the mbarriers of producer and consumers must be under the same digit splits".into(),
        ));
    }
    // Registers are redistributed per warp group.
    if roles.is_some() && !grid.block_threads().is_multiple_of(PRODUCER_THREADS) {
        return Err(Problem::Nesting("the consumers must be whole warp groups".into()));
    }
    Ok(roles)
}

/// Returns the digit splits that decide whether mbarriers and groups of copies are skipped.
fn gates(nodes: &[Node]) -> Vec<(&Affine, &[Digit])> {
    let gates = preorder(nodes).filter_map(|node| match node {
        Node::Unflatten { value, digits, body } if has(body, is_collective) => Some((value, digits.as_slice())),
        _ => None,
    });
    gates.collect()
}

/// Value of a loop variable or a digit, equal for all threads of the block.
#[derive(Clone, Copy)]
enum UniformValue {
    /// The loop is executed in full: this is the value of the present iteration.
    Exact(i64),
    /// Only two iterations are executed and stand for all: no index may depend on the value.
    Sampled(i64),
}

/// Abstract execution of a block from barrier to barrier. A loop around barriers or groups of
/// copies is executed in full if it is unrolled or awaits copies; otherwise two iterations are
/// enough, so that the end of one meets the beginning of the next.
struct PhaseChecker<'a> {
    program: &'a Program,
    /// Values of the loop variables and digits that are equal for all threads.
    fixed: HashMap<VarId, UniformValue>,
    /// Extents of all other loop variables and digits.
    extents: HashMap<VarId, usize>,
    /// Accesses of the present phase.
    touched: Vec<SharedAccess>,
    /// Reads that the latest asynchronous instructions may still perform.
    reading: Vec<SharedAccess>,
    /// Copies of the current group.
    in_group: Option<Vec<SharedAccess>>,
    /// Copies of the groups that are not awaited yet, oldest group first.
    groups: VecDeque<Vec<SharedAccess>>,
    /// Synchronisation of producer and consumers, with warp specialisation.
    pipe: Option<Pipe>,
}

impl PhaseChecker<'_> {
    fn nodes(&mut self, nodes: &[Node]) -> Result<(), Problem> {
        nodes.iter().try_for_each(|node| self.node(node))
    }

    fn node(&mut self, node: &Node) -> Result<(), Problem> {
        match node {
            Node::Barrier => {
                // Asynchronous reads may continue after the barrier.
                self.touched = self.reading.clone();
                Ok(())
            }
            Node::Prefetch { .. } => Ok(()),

            Node::Loop(l) if has(&l.body, is_collective) => self.iterations(l),
            Node::Loop(l) => {
                self.extents.insert(l.var, l.extent);
                self.nodes(&l.body)
            }
            Node::Unflatten { value, digits, body } => self.unflatten(value, digits, body),
            Node::Guard { when, body } => {
                let fails = |c: &InBounds| self.exact(&c.index).is_some_and(|i| !(0..c.extent as i64).contains(&i));
                if when.iter().any(fails) { Ok(()) } else { self.guarded(body) }
            }

            Node::Call { instruction, body } if instruction.asynchrony == Asynchrony::Reads => self.reads(body),
            Node::Alloc { body, .. } | Node::Call { body, .. } | Node::Specialised { body, .. } => self.nodes(body),
            Node::CopyGroup { body } => self.copy_group(body),
            Node::Mbarrier(mbarrier) => self.mbarrier(*mbarrier),
            Node::AwaitCopies { pending } => {
                while self.groups.len() > *pending {
                    // From here on, the completed copies count as accesses of this phase.
                    for touch in self.groups.pop_front().unwrap_or_default() {
                        self.check_conflicts(touch)?;
                    }
                }
                Ok(())
            }
            Node::Store(store) => self.store(store),
        }
    }

    /// Executes a loop around collective operations: all iterations if they await copies or are
    /// unrolled; otherwise two, which represent any two neighbours.
    fn iterations(&mut self, l: &Loop) -> Result<(), Problem> {
        let in_full = l.kind == LoopKind::Unrolled || has(&l.body, awaits);
        let times = if in_full { l.extent } else { l.extent.min(2) };
        for value in 0..times as i64 {
            self.fixed.insert(l.var, if in_full { UniformValue::Exact(value) } else { UniformValue::Sampled(value) });
            self.nodes(&l.body)?;
        }

        self.fixed.remove(&l.var);
        // Asynchronous reads end with the innermost serial loop.
        if l.kind == LoopKind::Serial {
            self.reading.clear();
        }
        Ok(())
    }

    /// Executes the body of a guard that some threads, or all threads together, may skip.
    fn guarded(&mut self, body: &[Node]) -> Result<(), Problem> {
        if !has(body, is_collective) {
            return self.nodes(body);
        }
        // A block that skips the body also skips its barriers, so that what was accessed before
        // and after it meet in one phase.
        let (touched, reading) = (self.touched.clone(), self.reading.clone());
        self.nodes(body)?;
        self.touched.extend(touched);
        self.reading.extend(reading);
        Ok(())
    }

    /// Executes an instruction whose reads may continue after the call.
    fn reads(&mut self, body: &[Node]) -> Result<(), Problem> {
        let before = self.touched.len();
        self.nodes(body)?;
        self.reading = self.touched[before..].to_vec();
        if self.pipe.is_some() {
            // With a producer, consumers only read shared memory, so their reads cannot conflict.
            self.touched.truncate(before);
        }
        Ok(())
    }

    fn copy_group(&mut self, body: &[Node]) -> Result<(), Problem> {
        self.in_group = Some(Vec::new());
        self.nodes(body)?;

        let group = self.in_group.take().unwrap_or_default();
        self.pipe.iter_mut().for_each(|pipe| pipe.begin(group.clone()));
        self.groups.push_back(group);
        Ok(())
    }

    fn store(&mut self, store: &Store) -> Result<(), Problem> {
        let mut touch = Ok(());
        store.value.for_each_load(&mut |access| {
            if touch.is_ok() {
                touch = self.record_access(store, access, false);
            }
        });
        touch?;

        if store.mode == StoreMode::Accumulate {
            self.record_access(store, &store.dst, false)?;
        }
        self.record_access(store, &store.dst, true)
    }

    fn mbarrier(&mut self, mbarrier: Mbarrier) -> Result<(), Problem> {
        let Some(pipe) = &mut self.pipe else { return Ok(()) };
        match mbarrier {
            Mbarrier::WaitEmpty { pending } => {
                // A released copy group has already been awaited.
                self.groups.drain(..self.groups.len().saturating_sub(pending));
                pipe.wait_empty(pending);
                Ok(())
            }
            Mbarrier::WaitFull => pipe.wait_full(),
            Mbarrier::ArriveEmpty { pending } => {
                pipe.arrive_empty(pending);
                // A released slot may be overwritten, so nothing may still read it.
                match self.reading.iter().find(|touch| pipe.may_be_written(touch)) {
                    Some(touch) => Err(self.in_flight(touch.buffer)),
                    None => Ok(()),
                }
            }
        }
    }

    fn in_flight(&self, buffer: BufferId) -> Problem {
        let what = "an element is accessed while a copy in progress writes it".into();
        Problem::Conflict { buffer: self.program.buffer(buffer).name.clone(), what }
    }

    /// Returns the value if it is equal for all threads and every iteration is visited.
    fn exact(&self, value: &Affine) -> Option<i64> {
        let known = |var: VarId| match self.fixed.get(&var) {
            Some(UniformValue::Exact(value)) => Some(*value),
            _ => None,
        };
        value.terms.iter().try_fold(value.constant, |sum, &(var, c)| Some(sum + c * known(var)?))
    }

    fn unflatten(&mut self, value: &Affine, digits: &[Digit], body: &[Node]) -> Result<(), Problem> {
        let Some(mut rest) = self.exact(value) else {
            self.extents.extend(digits.iter().map(|d| (d.var, d.extent)));
            return self.nodes(body);
        };
        for digit in digits.iter().rev() {
            let extent = digit.extent.max(1) as i64;
            self.fixed.insert(digit.var, UniformValue::Exact(rest.rem_euclid(extent)));
            rest = rest.div_euclid(extent);
        }
        // A value beyond the last digit means that the body is skipped.
        if rest == 0 {
            self.nodes(body)?;
        }
        self.fixed.retain(|var, _| digits.iter().all(|d| d.var != *var));
        Ok(())
    }

    fn record_access(&mut self, store: &Store, access: &Access, writes: bool) -> Result<(), Problem> {
        let Some(buffer) = self.program.buffers.get(access.buffer.0 as usize) else {
            return Ok(());
        };
        if buffer.scope != Scope::Shared {
            return Ok(());
        }

        // Only two iterations of such a loop are executed, so no access may depend on it.
        let sampled = |(var, _): &(VarId, i64)| matches!(self.fixed.get(var), Some(UniformValue::Sampled(_)));
        if access.index.iter().any(|index| index.terms.iter().any(sampled)) {
            let what = "an index depends on a loop around barriers".into();
            return Err(Problem::Conflict { buffer: buffer.name.clone(), what });
        }

        let ranges = access.index.iter().map(|index| self.range(index)).collect();
        let touch = SharedAccess { buffer: access.buffer, store, writes, ranges };
        let by_consumer = self.pipe.as_ref().is_some_and(|pipe| pipe.may_be_written(&touch));
        if by_consumer || self.groups.iter().chain(&self.in_group).flatten().any(|copy| copy.conflicts_with(&touch)) {
            return Err(self.in_flight(access.buffer));
        }

        if let Some(group) = &mut self.in_group {
            group.push(touch.clone());
        }
        match &self.pipe {
            // Mbarriers order the accesses of producer and consumers.
            Some(pipe) if pipe.role == WarpRole::Producer => Ok(()),
            Some(_) if writes => Err(Problem::Nesting("a consumer must not store to shared memory".into())),
            Some(_) | None => self.check_conflicts(touch),
        }
    }

    fn range(&self, index: &Affine) -> (i64, i64) {
        let (mut constant, mut rest) = (index.constant, Affine::default());
        for &(var, c) in &index.terms {
            match self.fixed.get(&var) {
                Some(UniformValue::Exact(value) | UniformValue::Sampled(value)) => constant += c * value,
                None => rest.add_scaled(&Affine::var(var), c),
            }
        }
        let (low, high) = rest.range(|var| self.extents.get(&var).copied().unwrap_or(1));
        (low + constant, high + constant)
    }

    /// Records an access and checks it against those since the last barrier. Threads that execute
    /// the same statement access different elements, which is checked at the statement.
    fn check_conflicts(&mut self, touch: SharedAccess) -> Result<(), Problem> {
        let same = |other: &SharedAccess| std::ptr::eq(other.store, touch.store) && other.writes == touch.writes;
        if self.touched.iter().any(|other| touch.conflicts_with(other) && !same(other)) {
            let what = "one thread writes an element that another accesses without a barrier between them".into();
            return Err(Problem::Conflict { buffer: self.program.buffer(touch.buffer).name.clone(), what });
        }
        self.touched.push(touch);
        Ok(())
    }
}

/// Returns true for operations of all threads of a block together.
fn is_collective(node: &Node) -> bool {
    matches!(node, Node::Barrier | Node::CopyGroup { .. } | Node::AwaitCopies { .. } | Node::Mbarrier(_))
}

fn awaits(node: &Node) -> bool {
    matches!(node, Node::AwaitCopies { .. } | Node::Mbarrier(_))
}

fn has(nodes: &[Node], is: fn(&Node) -> bool) -> bool {
    preorder(nodes).any(is)
}
