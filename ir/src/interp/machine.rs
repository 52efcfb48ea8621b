//! State of the interpreter, and execution by one task or one thread of a block.

use std::collections::{HashSet, VecDeque};

use super::marks::Marks;
use super::nest::Nest;
use crate::affine::{Affine, VarId};
use crate::dtype::DType;
use crate::formula::{Formula, Primitive};
use crate::problem::Problem;
use crate::program::{
    Access, BinaryOp, Buffer, BufferId, Digit, Expr, GpuGrid, InBounds, Loop, LoopKind, Node, Program, Role, Scope,
    Stage, Store, StoreMode, gathered_index, parallel_prefix, preorder,
};

/// Element that a copy in progress will write: buffer, offset and value.
pub(super) type Copy = (BufferId, usize, f64);

/// Body of a loop or of another node.
pub(super) type Body<'b, 'p> = &'b mut dyn FnMut(&mut Interpreter<'p>) -> Result<(), Problem>;

/// State of an executing program.
pub(super) struct Interpreter<'p> {
    pub(super) program: &'p Program,
    /// Content of each buffer; a buffer that is private to the threads of a block has one part per
    /// thread.
    pub(super) memory: Vec<Vec<f64>>,
    /// True if some buffer has elements of an integer type.
    has_integers: bool,
    /// Elements of one thread's part of each buffer; 0 for a buffer that all threads share.
    pub(super) part_len: Vec<usize>,
    /// True for each buffer whose allocation is open.
    pub(super) open: Vec<bool>,
    /// Value of each variable whose loop is open.
    pub(super) vars: Vec<Option<i64>>,
    /// Access marks of each buffer; `None` for buffers in which tasks cannot conflict.
    marks: Vec<Option<Marks>>,
    /// Number of the running task (on a GPU: of the thread in the grid), from 1 in each stage.
    pub(super) task: u64,
    /// Number of the running thread in its block.
    pub(super) thread: usize,
    /// Number of ended phases times threads of a block: the largest mark of those phases. Accesses
    /// to shared memory with marks up to it cannot conflict any more.
    pub(super) past_marks: u64,
    /// Loops that number the threads of a block, while a grid is executed.
    pub(super) threads: Option<Vec<&'p Loop>>,
    /// Number of guards and digit splits around the current node.
    guards: usize,
    /// Groups of copies in progress of each thread of the block, oldest first.
    pub(super) copies: Vec<VecDeque<Vec<Copy>>>,
    /// Elements that copies in progress write.
    pub(super) in_flight: HashSet<(BufferId, usize)>,
    /// The group of copies around the current node.
    group: Option<Vec<Copy>>,
    /// Memory of nests between their executions.
    pub(super) spare_nest: Nest<'p>,
}

impl<'p> Interpreter<'p> {
    pub(super) fn new(program: &'p Program, memory: Vec<Vec<f64>>) -> Self {
        Self {
            program,
            memory,
            has_integers: program.has_integers(),
            part_len: vec![0; program.buffers.len()],
            open: vec![false; program.buffers.len()],
            vars: vec![None; program.vars.len()],
            marks: Vec::new(),
            task: 0,
            thread: 0,
            past_marks: 0,
            threads: None,
            guards: 0,
            copies: Vec::new(),
            in_flight: HashSet::new(),
            group: None,
            spare_nest: Nest::default(),
        }
    }

    /// Executes a stage, one task after the other.
    pub(super) fn stage(&mut self, stage: &'p Stage) -> Result<(), Problem> {
        let stores = preorder(&stage.body).filter_map(|node| match node {
            Node::Store(store) => Some(store.dst.buffer),
            _ => None,
        });
        let stored: HashSet<BufferId> = stores.collect();

        // Buffers without stores, and private ones, cannot have races.
        let is_marked =
            |id: u32, scope| scope == Scope::Shared || scope == Scope::Global && stored.contains(&BufferId(id));
        let marks = (0..).zip(&self.program.buffers).map(|(id, b)| is_marked(id, b.scope).then(|| Marks::new(b.len())));
        self.marks = marks.collect();
        (self.task, self.past_marks) = (0, 0);

        if let Some(grid) = GpuGrid::of(stage) {
            return self.grid(grid);
        }

        // On a CPU each iteration of the leading parallel loops is a task.
        stage.body.iter().try_for_each(|node| {
            let tasks = parallel_prefix(node);
            let body = tasks.last().map_or(std::slice::from_ref(node), |l| &l.body);
            self.nested(&tasks, &mut |machine| {
                machine.task += 1;
                machine.nodes(body)
            })
        })
    }

    pub(super) fn nodes(&mut self, nodes: &'p [Node]) -> Result<(), Problem> {
        nodes.iter().try_for_each(|node| self.node(node))
    }

    /// Executes a node for the running task or thread alone.
    pub(super) fn node(&mut self, node: &'p Node) -> Result<(), Problem> {
        match node {
            Node::Store(store) => self.store(store),
            Node::Loop(l) if matches!(l.kind, LoopKind::Block | LoopKind::Thread) => {
                Problem::nesting("a loop over blocks or threads must be at the top")
            }
            Node::Loop(l) => match self.nest(l) {
                Some(result) => result,
                None => self.looped(l, &mut |machine| machine.nodes(&l.body)),
            },
            Node::Alloc { buffer, body } => self.allocated(*buffer, &mut |machine| {
                let (id, thread) = (buffer.0 as usize, machine.thread);
                let own = match machine.part_len[id] {
                    0 => &mut machine.memory[id][..],
                    len => &mut machine.memory[id][thread * len..][..len],
                };
                own.fill(f64::NAN);
                machine.nodes(body)
            }),

            // A prefetch has no effect, but its address must be valid.
            Node::Prefetch { access, .. } => self.offset(access).map(|_| ()),
            Node::Call { body, .. } => self.nodes(body),

            // The remaining nodes exist on GPUs only.
            _ if self.threads.is_none() => Problem::nesting("this node is allowed only in a GPU stage"),
            Node::Guard { when, body } => match self.holds(when)? {
                true => self.guarded(body),
                false => Ok(()),
            },
            Node::Unflatten { value, digits, body } => {
                self.unflatten(value, digits, &mut |machine| machine.guarded(body))
            }

            // Collective operations are invalid where guards could skip them.
            Node::CopyGroup { body } if self.guards == 0 => {
                self.group = Some(Vec::new());
                self.nodes(body)?;
                self.copies[self.thread].extend(self.group.take());
                Ok(())
            }
            Node::AwaitCopies { pending } if self.guards == 0 => self.await_copies(*pending),
            Node::Barrier
            | Node::CopyGroup { .. }
            | Node::AwaitCopies { .. }
            | Node::Mbarrier(_)
            | Node::Specialised { .. } => Problem::nesting("every thread must reach an operation of all threads"),
        }
    }

    /// Executes nested loops, the innermost fastest.
    pub(super) fn nested(&mut self, loops: &[&Loop], run: Body<'_, 'p>) -> Result<(), Problem> {
        match loops {
            [] => run(self),
            [outer, rest @ ..] => self.looped(outer, &mut |machine| machine.nested(rest, run)),
        }
    }

    pub(super) fn looped(&mut self, l: &Loop, run: Body<'_, 'p>) -> Result<(), Problem> {
        if l.extent == 0 {
            return Problem::nesting("a loop has no iterations");
        }
        self.check_free(l.var)?;
        for value in 0..l.extent as i64 {
            self.vars[l.var.0 as usize] = Some(value);
            run(self)?;
        }
        self.vars[l.var.0 as usize] = None;
        Ok(())
    }

    /// Splits a value into digits and binds them; skips `run` if the value is out of range.
    pub(super) fn unflatten(&mut self, value: &Affine, digits: &[Digit], run: Body<'_, 'p>) -> Result<(), Problem> {
        let mut rest = self.value_of(value).ok_or_else(|| self.unbound(value))?;
        if rest < 0 || digits.iter().any(|digit| digit.extent == 0) {
            return Problem::nesting("digits must split a number that is not negative, with extents of at least 1");
        }
        for digit in digits.iter().rev() {
            self.check_free(digit.var)?;
            self.vars[digit.var.0 as usize] = Some(rest % digit.extent as i64);
            rest /= digit.extent as i64;
        }
        if rest == 0 {
            run(self)?;
        }
        digits.iter().for_each(|digit| self.vars[digit.var.0 as usize] = None);
        Ok(())
    }

    pub(super) fn check_free(&self, var: VarId) -> Result<(), Problem> {
        match self.vars.get(var.0 as usize) {
            Some(None) => Ok(()),
            _ => Problem::nesting("a loop variable is already in use or has no name"),
        }
    }

    pub(super) fn allocated(&mut self, buffer: BufferId, run: Body<'_, 'p>) -> Result<(), Problem> {
        let id = buffer.0 as usize;
        if self.open.get(id) != Some(&false) {
            return Problem::nesting("cannot allocate a buffer that is already allocated or does not exist");
        }
        self.open[id] = true;
        run(self)?;
        self.open[id] = false;
        Ok(())
    }

    fn guarded(&mut self, body: &'p [Node]) -> Result<(), Problem> {
        self.guards += 1;
        self.nodes(body)?;
        self.guards -= 1;
        Ok(())
    }

    pub(super) fn holds(&self, when: &[InBounds]) -> Result<bool, Problem> {
        for condition in when {
            let value = self.value_of(&condition.index).ok_or_else(|| self.unbound(&condition.index))?;
            if !(0..condition.extent as i64).contains(&value) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn store(&mut self, store: &Store) -> Result<(), Problem> {
        let offset = self.offset(&store.dst)?;
        let buffer = self.program.buffer(store.dst.buffer);
        if matches!(buffer.role, Role::Operand(_)) {
            return Err(Problem::Forbidden { buffer: buffer.name.clone(), access: "written" });
        }
        let value = self.value(&store.value)?;
        self.put(store, offset, value)
    }

    /// Stores a value at an offset that has been checked.
    pub(super) fn put(&mut self, store: &Store, offset: usize, mut value: f64) -> Result<(), Problem> {
        let buffer = self.program.buffer(store.dst.buffer);
        if store.mode == StoreMode::Accumulate {
            let before = self.read(store.dst.buffer, offset)?;
            value = match buffer.dtype.is_integer() {
                true => integers(BinaryOp::Add, before, DType::I32.rounded(value)),
                false => f64::from(before as f32 + value as f32),
            };
        }
        let value = buffer.dtype.rounded(value);

        // A copy leaves its element undefined until it is awaited.
        let Some(group) = &mut self.group else { return self.write(store.dst.buffer, offset, value) };
        group.push((store.dst.buffer, offset, value));
        // Two copies to one element are a race.
        if !self.in_flight.insert((store.dst.buffer, offset)) {
            return Err(self.conflict(store.dst.buffer, offset));
        }
        self.write(store.dst.buffer, offset, f64::NAN)
    }

    /// Completes all copy groups of the running thread except the latest `pending`.
    pub(super) fn await_copies(&mut self, pending: usize) -> Result<(), Problem> {
        while self.copies[self.thread].len() > pending {
            for (buffer, offset, value) in self.copies[self.thread].pop_front().unwrap_or_default() {
                self.in_flight.remove(&(buffer, offset));
                self.write(buffer, offset, value)?;
            }
        }
        Ok(())
    }

    fn value(&mut self, expr: &Expr) -> Result<f64, Problem> {
        Ok(match expr {
            Expr::Const(value) => f64::from(*value),
            Expr::Load(access) => self.read(access.buffer, self.offset(access)?)?,
            Expr::Gather(gather) => {
                let mut access = gather.access.clone();
                for (&dim, at) in gather.dims.iter().zip(&gather.at) {
                    let value = self.value(at)?;
                    let extent = self.program.buffers.get(access.buffer.0 as usize).and_then(|b| b.shape.get(dim));
                    let (Some(index), Some(&extent)) = (access.index.get_mut(dim), extent) else {
                        return Problem::nesting("a gather indexes a dimension that does not exist");
                    };
                    *index = Affine::constant(gathered_index(value as f32, extent) as i64);
                }
                self.read(access.buffer, self.offset(&access)?)?
            }

            Expr::Guarded { .. } if self.threads.is_none() => {
                return Problem::nesting("a guarded value is allowed only in a GPU stage");
            }
            Expr::Guarded { when, value } => match self.holds(when)? {
                true => self.value(value)?,
                false => 0.0,
            },

            Expr::Binary(op, of) if self.is_of_integers(expr) => {
                let [a, b] = [self.value(&of[0])?, self.value(&of[1])?];
                integers(*op, a, b)
            }
            Expr::Unary(..) | Expr::Binary(..) | Expr::Select(..) => {
                let mut values = [0.0; Primitive::MOST_OPERANDS];
                for (value, of) in values.iter_mut().zip(expr.operands()) {
                    *value = self.value(of)? as f32;
                }
                Formula::of(expr).map_or(f64::NAN, |formula| f64::from(formula.value(values)))
            }
        })
    }

    /// True if an expression is computed in integers.
    pub(super) fn is_of_integers(&self, expr: &Expr) -> bool {
        let is_integer = |id: BufferId| self.program.buffers.get(id.0 as usize).is_some_and(|b| b.dtype.is_integer());
        self.has_integers && expr.is_integer(&is_integer)
    }

    #[inline]
    pub(super) fn read(&mut self, buffer: BufferId, offset: usize) -> Result<f64, Problem> {
        let (task, over) = self.access_mark(buffer);
        let id = buffer.0 as usize;
        if let Some(marks) = &mut self.marks[id]
            && !marks.read(offset, task, over)
        {
            return Err(self.conflict(buffer, offset));
        }
        Ok(self.memory[id][offset])
    }

    fn write(&mut self, buffer: BufferId, offset: usize, value: f64) -> Result<(), Problem> {
        if self.program.buffer(buffer).owner(offset).is_some_and(|owner| owner != self.thread) {
            return Err(self.conflict(buffer, offset));
        }
        let (task, over) = self.access_mark(buffer);
        let id = buffer.0 as usize;
        if let Some(marks) = &mut self.marks[id]
            && !marks.write(offset, task, over)
        {
            return Err(self.conflict(buffer, offset));
        }
        self.memory[id][offset] = value;
        Ok(())
    }

    /// Returns the mark of the accessing task or thread, and the largest mark that cannot conflict
    /// any more. In shared memory, threads get new marks after each barrier.
    fn access_mark(&self, buffer: BufferId) -> (u64, u64) {
        match self.program.buffer(buffer).scope {
            Scope::Shared => (self.past_marks + self.thread as u64 + 1, self.past_marks),
            Scope::Global | Scope::Local | Scope::Register | Scope::Warp => (self.task, 0),
        }
    }

    fn conflict(&self, buffer: BufferId, offset: usize) -> Problem {
        let what = format!("data race between two tasks on element {offset}");
        Problem::Conflict { buffer: self.program.buffer(buffer).name.clone(), what }
    }

    #[inline]
    pub(super) fn value_of(&self, affine: &Affine) -> Option<i64> {
        let mut sum = affine.constant;
        for &(var, c) in &affine.terms {
            sum += c * self.vars.get(var.0 as usize).copied().flatten()?;
        }
        Some(sum)
    }

    fn unbound(&self, affine: &Affine) -> Problem {
        Problem::OutOfScope(self.program.affine(affine))
    }

    /// Returns the buffer of an access, if it is open and has as many dimensions as the index.
    pub(super) fn accessed(&self, access: &Access) -> Result<&'p Buffer, Problem> {
        let id = access.buffer.0 as usize;
        let Some(buffer) = self.program.buffers.get(id) else {
            return Problem::nesting("an access uses a buffer that does not exist");
        };
        if buffer.scope != Scope::Global && !self.open[id] {
            return Err(Problem::OutOfScope(buffer.name.clone()));
        }
        if access.index.len() != buffer.shape.len() {
            return Problem::nesting("the number of indices differs from the number of dimensions");
        }
        Ok(buffer)
    }

    /// Returns the position of an element in the memory of its buffer.
    fn offset(&self, access: &Access) -> Result<usize, Problem> {
        let (id, buffer) = (access.buffer.0 as usize, self.accessed(access)?);
        let mut offset = 0;
        for (dim, (index, &extent)) in access.index.iter().zip(&buffer.shape).enumerate() {
            let at = self.value_of(index).ok_or_else(|| self.unbound(index))?;
            if !(0..extent as i64).contains(&at) {
                return Err(Problem::OutOfBounds { buffer: buffer.name.clone(), dim, low: at, high: at, extent });
            }
            offset = offset * extent + at as usize;
        }
        // The part of the running thread; part_len is 0 for shared buffers.
        Ok(self.thread * self.part_len[id] + offset)
    }
}

/// Returns the result of an operation on two integers; NaN, which marks undefined memory, if either
/// is NaN.
pub(super) fn integers(op: BinaryOp, a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::NAN } else { op.of_integers(a as i32, b as i32).map_or(f64::NAN, f64::from) }
}
