//! Who touches shared memory between two barriers of a GPU stage, and which copies are under way
//! meanwhile.

use std::collections::{HashMap, VecDeque};

use super::Problem;
use super::pipe::{Pipe, Touch};
use crate::affine::{Affine, VarId};
use crate::instruction::Asynchrony;
use crate::program::{
    Access, BufferId, Digit, Grid, InBounds, Loop, LoopKind, Mbarrier, Node, PRODUCER_THREADS, Program, Scope, Store,
    StoreMode, WarpRole, preorder,
};

/// No thread touches an element of shared memory that another one writes, or that a copy under way
/// will write.
pub(super) fn check(program: &Program, grid: &Grid) -> Result<(), Problem> {
    let grid_loops = grid.blocks.iter().chain(&grid.threads);
    let roles = both_roles(grid)?;
    let mut phases = Phases {
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
    phases.pipe = Some(Pipe::new(WarpRole::Producer));
    phases.nodes(producer)?;
    phases.groups.clear();
    phases.pipe.iter_mut().for_each(Pipe::turn);
    phases.nodes(consumers)?;
    phases.pipe.map_or(Ok(()), |pipe| pipe.check())
}

/// Producer and consumers, directly within the allocations of a block that has them.
fn both_roles<'a>(grid: &Grid<'a>) -> Result<Option<[&'a [Node]; 2]>, Problem> {
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
        return Err(Problem::Nesting("specialised warps that are not a producer and consumers".into()));
    }
    if let Some([producer, consumers]) = roles
        && gates(producer) != gates(consumers)
    {
        return Err(Problem::Nesting("producer and consumers whose mbarriers are not under the same digits".into()));
    }
    if roles.is_some() && !grid.block_threads().is_multiple_of(PRODUCER_THREADS) {
        return Err(Problem::Nesting("consumers that are no warp groups".into()));
    }
    Ok(roles)
}

/// What decides whether mbarriers and groups of copies are skipped.
fn gates(nodes: &[Node]) -> Vec<(&Affine, &[Digit])> {
    let gates = preorder(nodes).filter_map(|node| match node {
        Node::Unflatten { value, digits, body } if has(body, is_collective) => Some((value, digits.as_slice())),
        _ => None,
    });
    gates.collect()
}

/// The value of a loop variable or a digit that is the same for all threads.
#[derive(Clone, Copy)]
enum Fixed {
    /// Every value is tried.
    Exact(i64),
    /// Only the first two are.
    Sampled(i64),
}

/// Follows a block from barrier to barrier. A loop around barriers, or around groups of copies, is
/// followed in full if it is unrolled or awaits copies; else twice, so that its end meets its
/// beginning.
struct Phases<'a> {
    program: &'a Program,
    fixed: HashMap<VarId, Fixed>,
    /// Extents of all other loops and digits.
    extents: HashMap<VarId, usize>,
    /// Since the last barrier.
    touched: Vec<Touch>,
    /// What the latest instructions of the kind that reads on may still read.
    reading: Vec<Touch>,
    /// Copies of the open group.
    in_group: Option<Vec<Touch>>,
    /// Copies of the groups that are not awaited yet, the oldest first.
    groups: VecDeque<Vec<Touch>>,
    /// What producer and consumers know of each other, if there are such.
    pipe: Option<Pipe>,
}

impl Phases<'_> {
    fn nodes(&mut self, nodes: &[Node]) -> Result<(), Problem> {
        nodes.iter().try_for_each(|node| self.node(node))
    }

    fn node(&mut self, node: &Node) -> Result<(), Problem> {
        match node {
            Node::Barrier => {
                self.touched = self.reading.clone();
                Ok(())
            }
            Node::Prefetch { .. } => Ok(()),

            Node::Loop(l) if has(&l.body, is_collective) => self.in_turns(l),
            Node::Loop(l) => {
                self.extents.insert(l.var, l.extent);
                self.nodes(&l.body)
            }
            Node::Unflatten { value, digits, body } => self.unflatten(value, digits, body),
            Node::Guard { when, body } => {
                let fails = |c: &InBounds| self.exact(&c.index).is_some_and(|i| !(0..c.extent as i64).contains(&i));
                if when.iter().any(fails) { Ok(()) } else { self.nodes(body) }
            }

            Node::Call { instruction, body } if instruction.asynchrony == Asynchrony::Reads => self.reads(body),
            Node::Alloc { body, .. } | Node::Call { body, .. } | Node::Specialised { body, .. } => self.nodes(body),
            Node::CopyGroup { body } => self.copy_group(body),
            Node::Mbarrier(mbarrier) => self.mbarrier(*mbarrier),
            Node::AwaitCopies { but } => {
                while self.groups.len() > *but {
                    for touch in self.groups.pop_front().unwrap_or_default() {
                        self.meet(touch)?;
                    }
                }
                Ok(())
            }
            Node::Store(store) => self.store(store),
        }
    }

    /// A loop around what threads do together: all of its iterations where these await copies or
    /// are written out, else two, which meet each other as any two neighbours do.
    fn in_turns(&mut self, l: &Loop) -> Result<(), Problem> {
        let in_full = l.kind == LoopKind::Unrolled || has(&l.body, awaits);
        let times = if in_full { l.extent } else { l.extent.min(2) };
        for value in 0..times as i64 {
            self.fixed.insert(l.var, if in_full { Fixed::Exact(value) } else { Fixed::Sampled(value) });
            self.nodes(&l.body)?;
        }

        self.fixed.remove(&l.var);
        if l.kind == LoopKind::Serial {
            self.reading.clear();
        }
        Ok(())
    }

    /// An instruction that goes on reading after it began.
    fn reads(&mut self, body: &[Node]) -> Result<(), Problem> {
        let before = self.touched.len();
        self.nodes(body)?;
        self.reading = self.touched[before..].to_vec();
        if self.pipe.is_some() {
            // Consumers only read what is shared.
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
                touch = self.touch(store, access, false);
            }
        });
        touch?;

        if store.mode == StoreMode::Accumulate {
            self.touch(store, &store.dst, false)?;
        }
        self.touch(store, &store.dst, true)
    }

    fn mbarrier(&mut self, mbarrier: Mbarrier) -> Result<(), Problem> {
        let Some(pipe) = &mut self.pipe else { return Ok(()) };
        match mbarrier {
            Mbarrier::WaitEmpty { but } => {
                // Who has released a group has awaited it.
                self.groups.drain(..self.groups.len().saturating_sub(but));
                pipe.wait_empty(but);
                Ok(())
            }
            Mbarrier::WaitFull => pipe.wait_full(),
            Mbarrier::ArriveEmpty { but } => {
                pipe.arrive_empty(but);
                match self.reading.iter().find(|touch| pipe.may_be_written(touch)) {
                    Some(touch) => Err(self.under_way(touch.buffer)),
                    None => Ok(()),
                }
            }
        }
    }

    fn under_way(&self, buffer: BufferId) -> Problem {
        let what = "an element that a copy under way will write".into();
        Problem::Conflict { buffer: self.program.buffer(buffer).name.clone(), what }
    }

    /// The value, if it is the same for all threads and in every iteration that is left out.
    fn exact(&self, value: &Affine) -> Option<i64> {
        let known = |var: VarId| match self.fixed.get(&var) {
            Some(Fixed::Exact(value)) => Some(*value),
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
            self.fixed.insert(digit.var, Fixed::Exact(rest.rem_euclid(extent)));
            rest = rest.div_euclid(extent);
        }
        if rest == 0 {
            self.nodes(body)?;
        }
        self.fixed.retain(|var, _| digits.iter().all(|d| d.var != *var));
        Ok(())
    }

    fn touch(&mut self, store: &Store, access: &Access, writes: bool) -> Result<(), Problem> {
        let Some(buffer) = self.program.buffers.get(access.buffer.0 as usize) else {
            return Ok(());
        };
        if buffer.scope != Scope::Shared {
            return Ok(());
        }

        let sampled = |(var, _): &(VarId, i64)| matches!(self.fixed.get(var), Some(Fixed::Sampled(_)));
        if access.index.iter().any(|index| index.terms.iter().any(sampled)) {
            let what = "an index that depends on a loop around barriers".into();
            return Err(Problem::Conflict { buffer: buffer.name.clone(), what });
        }

        let ranges = access.index.iter().map(|index| self.range(index)).collect();
        let touch = Touch { buffer: access.buffer, store, writes, ranges };
        let by_consumer = self.pipe.as_ref().is_some_and(|pipe| pipe.may_be_written(&touch));
        if by_consumer || self.groups.iter().chain(&self.in_group).flatten().any(|copy| copy.meets(&touch)) {
            return Err(self.under_way(access.buffer));
        }

        if let Some(group) = &mut self.in_group {
            group.push(touch.clone());
        }
        match &self.pipe {
            // What the two do is ordered by mbarriers.
            Some(pipe) if pipe.role == WarpRole::Producer => Ok(()),
            Some(_) if writes => Err(Problem::Nesting("a consumer that stores to shared memory".into())),
            Some(_) | None => self.meet(touch),
        }
    }

    fn range(&self, index: &Affine) -> (i64, i64) {
        let (mut constant, mut rest) = (index.constant, Affine::default());
        for &(var, c) in &index.terms {
            match self.fixed.get(&var) {
                Some(Fixed::Exact(value) | Fixed::Sampled(value)) => constant += c * value,
                None => rest.add_scaled(&Affine::var(var), c),
            }
        }
        let (low, high) = rest.range(|var| self.extents.get(&var).copied().unwrap_or(1));
        (low + constant, high + constant)
    }

    /// Notes what is touched now. Threads that run one store touch elements of their own: that is
    /// checked where the store is.
    fn meet(&mut self, touch: Touch) -> Result<(), Problem> {
        let same = |other: &Touch| std::ptr::eq(other.store, touch.store) && other.writes == touch.writes;
        if self.touched.iter().any(|other| touch.meets(other) && !same(other)) {
            let what = "an element that one thread writes and another one touches without a barrier between".into();
            return Err(Problem::Conflict { buffer: self.program.buffer(touch.buffer).name.clone(), what });
        }
        self.touched.push(touch);
        Ok(())
    }
}

/// True for what all threads of a block do together.
fn is_collective(node: &Node) -> bool {
    matches!(node, Node::Barrier | Node::CopyGroup { .. } | Node::AwaitCopies { .. } | Node::Mbarrier(_))
}

fn awaits(node: &Node) -> bool {
    matches!(node, Node::AwaitCopies { .. } | Node::Mbarrier(_))
}

fn has(nodes: &[Node], is: fn(&Node) -> bool) -> bool {
    preorder(nodes).any(is)
}
