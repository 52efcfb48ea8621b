//! The first pass of the verifier: a walk over the trees of all stages.
//!
//! It checks each node by itself: variables are bound, indices stay in bounds, buffers are read and
//! written only where their roles allow it, and a statement multiplies the elements that its
//! equation requires. For checks that involve several nodes, the walk records in [`WalkFindings`]
//! the box of points or elements that each store covers. [`super::verify`] then checks that the
//! boxes are disjoint and complete.

use std::collections::HashSet;

use smallvec::SmallVec;

use super::gpu::{self, Digits};
use super::statement::{self, StatementOperand};
use super::{Problem, ProgramError, hidden, interface};
use crate::affine::{Affine, VarId};
use crate::instruction::{Asynchrony, CallSite, Instruction};
use crate::program::{
    Access, AxisInfo, Buffer, BufferId, Expr, GpuGrid, InBounds, Iteration, Loop, LoopKind, Node, Program, Role, Scope,
    Stage, Store, StoreMode, WarpRole, When, parallel_prefix,
};
use crate::sets::{IntervalSet, SetBox};
use crate::spec::TensorSpec;

/// Place of a node: the number of its stage, and the variables of the loops around it.
pub(super) type NodePlace = (usize, SmallVec<[VarId; 16]>);

/// Place of a store, and the set that all of its executions cover: points of the equation's axes,
/// or elements of the buffer. The set is a box, so that sets are compared axis by axis.
pub(super) struct Covered {
    pub(super) place: NodePlace,
    pub(super) set_box: SetBox,
}

/// A store to global memory.
pub(super) struct Write {
    pub(super) buffer: BufferId,
    pub(super) mode: StoreMode,
    pub(super) tree: usize,
    pub(super) covered: Covered,
}

/// Iterations of an equation that one statement computes.
pub(super) struct Iterations {
    pub(super) equation: usize,
    pub(super) covered: Covered,
    /// True if there are no points in the padding: the statement reads the data operand directly,
    /// or a packed copy without padding, so it leaves out the points whose data is padding.
    pub(super) in_place: bool,
}

/// Results of the walk over all trees.
#[derive(Default)]
pub(super) struct WalkFindings {
    /// Iterations of equations, one entry per statement.
    pub(super) iterations: Vec<Iterations>,
    pub(super) writes: Vec<Write>,
    /// Buffers that were written ahead of time.
    pub(super) ahead_of_time: HashSet<BufferId>,
}

/// State of the walk: the path from the root of a tree to the current node.
pub(super) struct TreePath<'a, 'f> {
    pub(super) program: &'a Program,
    stage: (usize, &'a Stage),
    pub(super) tree: usize,
    /// Variables of the parallel loops that number the tasks of the tree.
    pub(super) prefix: Vec<VarId>,
    /// Enclosing loops, outermost first.
    pub(super) loops: Vec<&'a Loop>,
    /// Number of values of each variable; 0 if it is not bound here.
    extents: Vec<usize>,
    /// Enclosing allocations, with the number of loops around them.
    pub(super) allocs: Vec<(BufferId, usize)>,
    /// Conditions of enclosing guards.
    pub(super) guards: Vec<&'a InBounds>,
    /// Enclosing [`Node::Unflatten`]s: index values that are split into mixed-radix digits.
    pub(super) digits: Vec<Digits<'a>>,
    /// True in a GPU stage.
    pub(super) on_gpu: bool,
    /// True within a group of copies.
    pub(super) in_group: bool,
    /// Role of the warps that execute the node, with warp specialisation.
    pub(super) role: Option<WarpRole>,
    /// True within a copy that the hardware's copy engine executes.
    pub(super) in_engine: bool,
    /// True within the nest of an instruction.
    pub(super) in_call: bool,
    pub(super) found: &'f mut WalkFindings,
}

impl<'a, 'f> TreePath<'a, 'f> {
    /// Starts at the root of a tree of a stage.
    pub(super) fn new(
        program: &'a Program,
        stage: (usize, &'a Stage),
        (tree, root): (usize, &'a Node),
        found: &'f mut WalkFindings,
    ) -> Self {
        let grid = GpuGrid::of(stage.1);
        let on_gpu = grid.is_some();
        let tasks = grid.map_or_else(|| parallel_prefix(root), |g| [g.blocks, g.threads].concat());
        let prefix = tasks.iter().map(|l| l.var).collect();
        let (loops, allocs, guards, digits) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());

        Self {
            program,
            stage,
            tree,
            prefix,
            loops,
            extents: vec![0; program.vars.len()],
            allocs,
            guards,
            digits,
            on_gpu,
            in_group: false,
            role: None,
            in_engine: false,
            in_call: false,
            found,
        }
    }

    pub(super) fn fail<T>(&self, problem: Problem) -> Result<T, ProgramError> {
        Err(ProgramError { place: place_name(self.program, &self.place()), problem })
    }

    fn place(&self) -> NodePlace {
        (self.stage.0, self.loops.iter().map(|l| l.var).collect())
    }

    pub(super) fn nesting<T>(&self, what: &str) -> Result<T, ProgramError> {
        self.fail(Problem::Nesting(what.into()))
    }

    /// Checks a node and its subtree.
    pub(super) fn node(&mut self, node: &'a Node) -> Result<(), ProgramError> {
        if let Some(what) = self.misplaced(node) {
            return self.nesting(what);
        }

        // The path and the flags are restored after the subtree.
        let outer = [self.loops.len(), self.allocs.len(), self.guards.len(), self.digits.len()];
        let (in_group, in_engine, in_call, role) = (self.in_group, self.in_engine, self.in_call, self.role);
        match node {
            Node::Store(store) => self.store(store)?,
            Node::Prefetch { access, .. } => drop(self.access(access, &self.guards)?),
            Node::Loop(l) => {
                self.loops.push(l);
                self.bind(l.var, l.extent);
            }
            Node::Alloc { buffer, .. } => self.allocs.push((*buffer, self.loops.len())),
            Node::Guard { when, .. } => {
                when.iter().try_for_each(|condition| self.check_vars(&condition.index))?;
                self.guards.extend(when);
            }
            Node::Unflatten { value, digits, .. } => {
                self.check_vars(value)?;
                self.digits.push(Digits { value, digits });
                digits.iter().rev().for_each(|digit| self.bind(digit.var, digit.extent));
            }
            Node::CopyGroup { .. } => self.in_group = true,
            Node::Call { instruction, .. } => {
                self.in_engine = instruction.asynchrony == Asynchrony::Copies;
                self.in_call = true;
            }
            Node::Specialised { role, .. } => self.role = Some(*role),
            Node::Barrier | Node::AwaitCopies { .. } | Node::Mbarrier(_) => {}
        }
        // The children are checked with the node on the path.
        node.body().iter().try_for_each(|node| self.node(node))?;

        match node {
            Node::Loop(l) => self.bind(l.var, 0),
            Node::Unflatten { digits, .. } => digits.iter().for_each(|digit| self.bind(digit.var, 0)),
            _ => {}
        }
        self.loops.truncate(outer[0]);
        self.allocs.truncate(outer[1]);
        self.guards.truncate(outer[2]);
        self.digits.truncate(outer[3]);
        (self.in_group, self.in_engine, self.in_call, self.role) = (in_group, in_engine, in_call, role);
        match node {
            Node::Call { instruction, body } => self.call(instruction, body),
            _ => Ok(()),
        }
    }

    /// Checks that an instruction computes the nest of its call.
    fn call(&self, instruction: &Instruction, body: &[Node]) -> Result<(), ProgramError> {
        let grid = GpuGrid::of(self.stage.1);
        let extent = |var| self.extent(var);
        let site = CallSite { program: self.program, grid: grid.as_ref(), extent: &extent };
        instruction.check(body, &site).or_else(|what| self.nesting(what))
    }

    fn bind(&mut self, var: VarId, extent: usize) {
        if let Some(known) = self.extents.get_mut(var.0 as usize) {
            *known = extent;
        }
    }

    pub(super) fn extent(&self, var: VarId) -> usize {
        self.extents.get(var.0 as usize).map_or(1, |&extent| extent.max(1))
    }

    pub(super) fn is_bound(&self, var: VarId) -> bool {
        self.extents.get(var.0 as usize).is_some_and(|&extent| extent > 0)
    }

    /// Returns the place of a store and the box that it covers, from the values of its axes or
    /// indices; `None` if it cannot be proven that the values form a box and occur once each.
    pub(super) fn covered(&self, values: &[Affine], guards: &[&InBounds]) -> Option<Covered> {
        let (values, within) = gpu::apply_guards(values, guards, |var| self.extent(var))?;
        let known = |var: VarId| within.iter().find(|known| known.0 == var).map(|known| known.1);
        let extent = |var: VarId| known(var).unwrap_or_else(|| self.extent(var));

        let mut vars: SmallVec<[VarId; 16]> = SmallVec::new();
        for &(var, _) in values.iter().flat_map(|value| &value.terms) {
            // A variable in two values would make them dependent, so that the points are no box.
            if extent(var) > 1 && vars.contains(&var) {
                return None;
            }
            vars.push(var);
        }

        let mut set_box = SetBox::with_capacity(values.len());
        for value in values.iter() {
            set_box.push(IntervalSet::of(value, extent)?);
        }
        Some(Covered { place: self.place(), set_box })
    }

    fn store(&mut self, store: &'a Store) -> Result<(), ProgramError> {
        let dst = self.access(&store.dst, &self.guards)?;
        self.value(&store.value, &mut self.guards.clone())?;
        self.check_copy(store, dst)?;
        let is_packing = self.stage.1.when == When::AheadOfTime;

        // After a stage ahead of time has written a packed buffer, runs must not change it.
        let may_write = match dst.role {
            Role::Operand(_) => false,
            Role::Output => !is_packing,
            Role::Packed | Role::Accumulator => is_packing || !self.found.ahead_of_time.contains(&store.dst.buffer),
        };
        if !may_write {
            return self.fail(Problem::Forbidden { buffer: dst.name.clone(), access: "written" });
        }

        self.check_lanes(&store.dst, dst)?;
        match dst.scope {
            Scope::Global => self.global_write(store, dst)?,
            Scope::Shared => self.shared_write(store, dst)?,
            Scope::Warp => self.warp_write(store, dst)?,
            Scope::Local | Scope::Register => {}
        }
        match &store.iteration {
            Some(iteration) => self.iterations(store, iteration),
            None => Ok(()),
        }
    }

    /// Checks that everything an expression reads may be read under these conditions.
    fn value(&self, value: &'a Expr, guards: &mut Vec<&'a InBounds>) -> Result<(), ProgramError> {
        let outer = guards.len();
        match value {
            Expr::Load(access) => self.load(access, guards)?,
            Expr::Gather(gather) => {
                self.load(&gather.access, guards)?;
                self.check_gather(gather)?;
            }
            Expr::Guarded { when, .. } => {
                when.iter().try_for_each(|condition| self.check_vars(&condition.index))?;
                guards.extend(when);
            }
            Expr::Const(_) | Expr::Unary(..) | Expr::Binary(..) | Expr::Select(..) => {}
        }
        value.operands().iter().try_for_each(|of| self.value(of, guards))?;
        guards.truncate(outer);
        Ok(())
    }

    fn load(&self, load: &Access, guards: &[&InBounds]) -> Result<(), ProgramError> {
        let buffer = self.access(load, guards)?;
        // The instruction checks which elements it reads.
        if buffer.scope == Scope::Warp && !self.in_call {
            return self.fail(Problem::Forbidden { buffer: buffer.name.clone(), access: "read" });
        }
        match self.stage.1.when == When::AheadOfTime && !self.is_known_ahead(load.buffer, buffer) {
            true => self.fail(Problem::Forbidden { buffer: buffer.name.clone(), access: "read" }),
            false => Ok(()),
        }
    }

    /// Returns true for buffers that stages ahead of time may read: constants, buffers computed
    /// from them, and private memory.
    fn is_known_ahead(&self, id: BufferId, buffer: &Buffer) -> bool {
        match buffer.role {
            Role::Operand(_) => self.program.spec.find(buffer.role).is_some_and(TensorSpec::is_constant),
            Role::Packed => {
                let in_stage = self.found.writes.iter().any(|w| w.buffer == id && w.covered.place.0 == self.stage.0);
                // A private buffer is filled within the stage that reads it.
                buffer.scope != Scope::Global || in_stage || self.found.ahead_of_time.contains(&id)
            }
            Role::Accumulator => true,
            Role::Output => false,
        }
    }

    /// Checks that the lanes of a vector store to distinct elements.
    fn check_lanes(&self, access: &Access, dst: &Buffer) -> Result<(), ProgramError> {
        let Some(vector) = self.loops.last().filter(|l| l.kind == LoopKind::Vectorized && l.extent > 1) else {
            return Ok(());
        };
        if access.index.iter().any(|i| i.uses(vector.var)) {
            return Ok(());
        }
        let what = "all lanes of a vector store to the same element".into();
        self.fail(Problem::Conflict { buffer: dst.name.clone(), what })
    }

    /// Checks rank, scope, bounds and register indices of an access.
    fn access(&self, access: &Access, guards: &[&InBounds]) -> Result<&'a Buffer, ProgramError> {
        let Some(buffer) = self.program.buffers.get(access.buffer.0 as usize) else {
            return self.nesting("an access uses a buffer that does not exist");
        };
        let alloc = self.allocs.iter().find(|(open, _)| *open == access.buffer);
        if buffer.scope != Scope::Global && alloc.is_none() {
            return self.fail(Problem::OutOfScope(buffer.name.clone()));
        }
        if access.index.len() != buffer.shape.len() {
            return self.nesting("the number of indices differs from the number of dimensions");
        }
        for (dim, (index, &extent)) in access.index.iter().zip(&buffer.shape).enumerate() {
            // `None`: the guards contradict each other, so the access never happens.
            let Some((low, high)) = self.range(index, guards)? else { continue };
            if low < 0 || high >= extent as i64 {
                let buffer = buffer.name.clone();
                return self.fail(Problem::OutOfBounds { buffer, dim, low, high, extent });
            }
            if let (Scope::Register, Some(&(_, depth))) = (buffer.scope, alloc) {
                self.check_register(buffer, index, depth)?;
            }
        }
        Ok(buffer)
    }

    /// Returns the smallest and the largest value of an index while all conditions hold; `None` if
    /// one of them never holds.
    fn range(&self, index: &Affine, guards: &[&InBounds]) -> Result<Option<(i64, i64)>, ProgramError> {
        if !guards.is_empty() {
            self.check_vars(index)?;
            return Ok(gpu::range(index, guards, |var| self.extent(var)));
        }
        let (mut low, mut high) = (index.constant, index.constant);
        for &(var, c) in &index.terms {
            let Some(extent @ 1..) = self.extents.get(var.0 as usize).copied() else {
                return self.fail(Problem::OutOfScope(self.program.affine(&Affine::var(var))));
            };
            let reach = c * (extent as i64 - 1);
            (low, high) = (low + reach.min(0), high + reach.max(0));
        }
        Ok(Some((low, high)))
    }

    fn check_vars(&self, affine: &Affine) -> Result<(), ProgramError> {
        let unbound = |(var, _): &&(VarId, i64)| !self.is_bound(*var);
        match affine.terms.iter().find(unbound) {
            Some(&(var, _)) => self.fail(Problem::OutOfScope(self.program.affine(&Affine::var(var)))),
            None => Ok(()),
        }
    }

    /// Checks that the index of a register buffer uses only unrolled loops within the allocation.
    fn check_register(&self, buffer: &Buffer, index: &Affine, depth: usize) -> Result<(), ProgramError> {
        let is_constant = |var: VarId| {
            let mut inner = self.loops[depth..].iter();
            inner.any(|l| l.var == var && matches!(l.kind, LoopKind::Unrolled | LoopKind::Vectorized))
        };
        match index.terms.iter().find(|(var, _)| !is_constant(*var)) {
            Some(&(var, _)) => {
                let var = self.program.affine(&Affine::var(var));
                self.fail(Problem::RegisterIndex { buffer: buffer.name.clone(), var })
            }
            None => Ok(()),
        }
    }

    /// Checks a statement of an equation, and records the box of points that it computes.
    fn iterations(&mut self, store: &Store, Iteration { equation, point }: &Iteration) -> Result<(), ProgramError> {
        let problem = |what: &str| Problem::Point(what.into());
        let operands = match statement::operands(self.program, *equation, store) {
            Ok(operands) => operands,
            Err(what) => return self.fail(problem(what)),
        };
        let axes = interface::axes_of(self.program, *equation);
        if point.len() != axes.len() {
            return self.fail(problem("the number of values of a point differs from the number of axes"));
        }
        point.iter().try_for_each(|value| self.check_vars(value))?;
        let is_hidden = |guard: &&InBounds| {
            hidden::may_leave_out(self.program, (*equation, &axes), point, guard, |v| self.extent(v))
        };
        if !self.guards.iter().all(is_hidden) || !self.digits.iter().all(|d| self.covers_all_values(d, point)) {
            return self.fail(problem("an iteration must not be under a condition"));
        }

        // A loop without influence on the point would compute, and add up, the same points again.
        let counts = |digits: &&Digits| point.iter().any(|value| digits.digits.iter().any(|d| has(value, d.var)));
        let numbers: Vec<&Affine> = self.digits.iter().filter(counts).map(|d| d.value).collect();
        for l in self.loops.iter().filter(|l| l.extent > 1) {
            if !point.iter().chain(numbers.iter().copied()).any(|value| has(value, l.var)) {
                let name = self.program.affine(&Affine::var(l.var));
                return self.fail(Problem::Point(format!("every iteration of '{name}' computes the same points")));
            }
        }

        // Points that a condition leaves out need not be computed, so they count as covered.
        let Some(mut covered) = self.covered(point, &[]) else {
            return self.fail(problem("cannot prove that the points are a box with each point computed once"));
        };
        if self.on_gpu {
            // On a GPU, points outside of the axes are allowed but do not count.
            let axes = covered.set_box.iter_mut().zip(&*axes);
            axes.for_each(|(set, axis)| *set = set.below(axis.extent));
        }
        for (axis, value) in axes.iter().zip(point) {
            let (low, high) = value.range(|var| self.extent(var));
            if low < 0 || (high >= axis.extent as i64 && !self.on_gpu) {
                let what = format!("axis '{}' of extent {} runs from {low} to {high}", axis.name, axis.extent);
                return self.fail(Problem::Point(what));
            }
        }

        let in_place = self.check_operands((*equation, &axes), point, &operands)?;
        self.found.iterations.push(Iterations { equation: *equation, covered, in_place });
        Ok(())
    }

    /// Checks that operands that are read directly are read at the element that the point requires.
    /// Returns the value of [`Iterations::in_place`]: true if the data operand is read directly, or
    /// from a packed copy of a computed tensor that the equation reads out of bounds, which has no
    /// padding.
    fn check_operands(
        &self,
        (equation, axes): (usize, &[AxisInfo]),
        point: &[Affine],
        operands: &[StatementOperand],
    ) -> Result<bool, ProgramError> {
        let mut in_place = false;
        for StatementOperand { access, means } in operands {
            let buffer = self.program.buffer(access.buffer);
            // The content of copies is not proven; only their padding matters here.
            if buffer.role == Role::Packed {
                in_place |= means.as_ref().is_some_and(|means| interface::ends_within(self.program, equation, means));
                continue;
            }

            let forbidden = || Problem::Forbidden { buffer: buffer.name.clone(), access: "read" };
            let Some(wanted) = means.as_ref().or_else(|| interface::access_of(self.program, buffer.role)) else {
                return self.fail(forbidden());
            };

            in_place |= buffer.role == Role::Operand(0);
            for (dim, index) in wanted.index.iter().enumerate() {
                let found = interface::logical_index(&access.index, buffer.layout, dim);
                let Some(apart) = interface::less(found, index, axes, point) else { return self.fail(forbidden()) };
                // A variable that is always zero has no effect.
                if apart.constant != 0 || apart.terms.iter().any(|&(var, _)| self.extent(var) > 1) {
                    return self.fail(Problem::WrongElement { buffer: buffer.name.clone(), dim });
                }
            }
        }
        Ok(in_place)
    }
}

/// Returns true if the variable occurs.
pub(super) fn has(value: &Affine, var: VarId) -> bool {
    value.uses(var)
}

pub(super) fn place_name(program: &Program, (stage, vars): &NodePlace) -> String {
    let mut name = format!("stage '{}'", program.stages[*stage].name);
    for (i, &var) in vars.iter().enumerate() {
        name.push_str(if i == 0 { ", " } else { " > " });
        name.push_str(&program.affine(&Affine::var(var)));
    }
    name
}
