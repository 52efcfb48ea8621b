//! A leaf's loop nest with every access resolved to a pointer and what is added to it.

use std::hash::{Hash, Hasher};

use smallvec::SmallVec;

use super::{AssembleError, Failure};
use autotune_ir::affine::{Affine, VarId};
use autotune_ir::program::{self, BufferId, Expr, LoopKind, Program, Scope, StoreMode};

/// Elements of `buffer` from `base` on, affine in the variables outside.
pub(super) struct Pointer {
    pub(super) buffer: BufferId,
    pub(super) base: Affine,
    /// Serial variables around its accesses, and by how many elements it advances with each.
    steps: Steps,
}

type Steps = SmallVec<[(u32, i64); 8]>;

impl Pointer {
    /// False if it advances with some variable in another way.
    fn goes_along(&self, steps: &Steps) -> bool {
        self.steps.iter().all(|known| steps.iter().all(|step| known.0 != step.0 || known.1 == step.1))
    }
}

/// A leaf before loops are written out. Leaves that differ only in their pointers are equal.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Nest {
    /// Every loop before what is within.
    pub(super) nodes: Vec<Node>,
    /// The values of stores, the operands of each before it.
    pub(super) values: Vec<Value>,
    /// What each value is made of, from left to right: numbers of reads.
    pub(super) inputs: Vec<u32>,
    /// What is read; what several values of a loop body read is mostly there once.
    pub(super) reads: Vec<Read>,
    /// Terms of all accesses: a variable's number and a coefficient in elements.
    pub(super) terms: Vec<(u32, i64)>,
    /// How pointers advance with the serial loops around their accesses, by zero as well.
    pub(super) steps: Vec<Step>,
    /// The buffer of each pointer.
    pub(super) pointers: Vec<BufferId>,
    /// Number of variables, which are numbered in order of appearance.
    pub(super) vars: usize,
}

impl Nest {
    /// Terms of an access.
    pub(super) fn terms(&self, access: &Access) -> &[(u32, i64)] {
        &self.terms[access.terms.0 as usize..access.terms.1 as usize]
    }
}

impl Hash for Nest {
    /// Of what mostly differs.
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_usize(self.nodes.len());
        state.write_usize(self.values.len());
        state.write_usize(self.reads.len());
        for (number, coefficient) in &self.terms {
            state.write_u64(u64::from(*number) << 56 ^ *coefficient as u64);
        }
        self.steps.hash(state);
        for node in &self.nodes {
            if let Node::Loop { extent, .. } = node {
                state.write_usize(*extent);
            }
        }
    }
}

/// A node of a nest.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Node {
    /// A loop over the nodes from here to `end`.
    Loop { var: u32, extent: usize, kind: LoopKind, end: usize },
    /// Accumulator += product of two reads of memory.
    MulAdd { acc: u32, factors: [u32; 2] },
    /// Accumulator = value, or += value. Accumulators are reads.
    Set { acc: u32, mode: StoreMode, value: Tree },
    /// Memory = value, or += value.
    Store { pointer: u8, dst: Access, mode: StoreMode, value: Tree },
    /// A hint that memory is read soon.
    Prefetch(Access),
}

/// A value with its operands: the number of its last one, and where its inputs begin and end.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Tree {
    pub(super) root: u32,
    pub(super) inputs: (u32, u32),
}

/// A value and the registers that it takes to evaluate, besides accumulators (Sethi and Ullman, "The generation of optimal
/// code for arithmetic expressions", 1970).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Value {
    pub(super) kind: Kind,
    pub(super) registers: u8,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The input of this number of the tree.
    Input(u32),
    Add(u32, u32),
    Mul(u32, u32),
    Max(u32, u32),
}

/// An operand of values.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Read {
    /// Bits of an f32.
    Constant(u32),
    Element(Access),
}

impl Read {
    /// A number below [`READ_SLOTS`] that is mostly another for other reads of a body.
    fn slot(&self) -> usize {
        let bits = match self {
            Read::Constant(bits) => u64::from(*bits),
            Read::Element(access) => (access.constant as u64) << 8 ^ u64::from(access.buffer.0),
        };
        (bits.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as usize
    }
}

/// Reads that are found again.
const READ_SLOTS: usize = 64;

/// An element: a constant and terms of unrolled and vectorised variables, in elements behind a pointer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Access {
    pub(super) buffer: BufferId,
    /// None for accumulators.
    pub(super) pointer: Option<u8>,
    pub(super) constant: i64,
    /// Where its terms begin and end.
    pub(super) terms: (u32, u32),
}

/// By how many elements a pointer advances in each iteration of a loop.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Step {
    pub(super) pointer: u8,
    pub(super) var: u32,
    pub(super) elements: i64,
}

/// A variable around the present node.
struct Scoped {
    binding: Binding,
    /// Its coefficient in the present access.
    coefficient: i64,
}

/// What a variable is to a leaf, and its number inside.
#[derive(Clone, Copy)]
enum Binding {
    Outside(VarId),
    Serial(u32),
    /// Unrolled or vectorised.
    Written(u32),
}

/// Resolves one nest after the other.
pub(super) struct Resolver<'p> {
    program: &'p Program,
    /// Registers for pointers and counters.
    integers: usize,
    /// Variables around the present node, outermost first.
    scope: Vec<Scoped>,
    /// By variable, its place in the scope.
    places: Vec<u32>,
    pub(super) nest: Nest,
    pub(super) pointers: Vec<Pointer>,
    /// Those of the present access.
    outer: Vec<(VarId, i64)>,
    steps: Steps,
    /// Number of the present run of nodes with the same loops around.
    body: u32,
    /// By buffer, the last access.
    last: Vec<Option<Last<'p>>>,
    /// Bodies and numbers of reads, by slot.
    read: [(u32, u32); READ_SLOTS],
}

/// An access in a body, and what it was resolved to.
#[derive(Clone, Copy)]
struct Last<'p> {
    body: u32,
    access: &'p program::Access,
    resolved: Access,
}

/// The place of a variable that is not in the scope.
const NOWHERE: u32 = u32::MAX;

impl<'p> Resolver<'p> {
    pub(super) fn new(program: &'p Program, integers: usize) -> Self {
        Self {
            program,
            integers,
            scope: Vec::new(),
            places: vec![NOWHERE; program.vars.len()],
            nest: Nest::default(),
            pointers: Vec::new(),
            outer: Vec::new(),
            steps: Steps::new(),
            body: 0,
            last: vec![None; program.buffers.len()],
            read: [(0, 0); READ_SLOTS],
        }
    }

    /// Adds a variable to the scope while `inside` runs.
    fn with<T>(&mut self, var: VarId, binding: Binding, inside: impl FnOnce(&mut Self) -> T) -> T {
        let place = self.scope.len() as u32;
        self.scope.push(Scoped { binding, coefficient: 0 });
        let shadowed = std::mem::replace(&mut self.places[var.0 as usize], place);
        let done = inside(self);
        self.places[var.0 as usize] = shadowed;
        self.scope.pop();
        done
    }

    /// Makes the nest of a node within loops over `vars`, and the pointers that it is to be given.
    pub(super) fn resolve(&mut self, vars: &[VarId], node: &'p program::Node) -> Result<(), Failure> {
        if let Some((&var, inner)) = vars.split_first() {
            return self.with(var, Binding::Outside(var), |this| this.resolve(inner, node));
        }
        let Nest { nodes, values, inputs, reads, terms, steps, pointers, vars } = &mut self.nest;
        nodes.clear();
        values.clear();
        inputs.clear();
        reads.clear();
        terms.clear();
        steps.clear();
        pointers.clear();
        *vars = 0;
        self.pointers.clear();
        self.body += 1;
        self.node(node)?;
        for (i, pointer) in self.pointers.iter().enumerate() {
            let step = |&(var, elements): &(u32, i64)| Step { pointer: i as u8, var, elements };
            self.nest.steps.extend(pointer.steps.iter().map(step));
            self.nest.pointers.push(pointer.buffer);
        }
        Ok(())
    }

    fn node(&mut self, node: &'p program::Node) -> Result<(), Failure> {
        match node {
            program::Node::Alloc { body, .. } => body.iter().try_for_each(|node| self.node(node)),
            program::Node::Loop(l) => self.repeat(l),
            program::Node::Store(store) => {
                let node = self.store(store)?;
                self.nest.nodes.push(node);
                Ok(())
            }
            program::Node::Prefetch { access, ahead } => {
                let mut at = self.access(access)?;
                at.constant += *ahead as i64;
                self.nest.nodes.push(Node::Prefetch(at));
                Ok(())
            }
            program::Node::Barrier
            | program::Node::Guard { .. }
            | program::Node::Unflatten { .. }
            | program::Node::CopyGroup { .. }
            | program::Node::AwaitCopies { .. }
            | program::Node::Call { .. }
            | program::Node::Specialised { .. }
            | program::Node::Mbarrier(_) => Err(AssembleError::Gpu.into()),
        }
    }

    fn repeat(&mut self, l: &'p program::Loop) -> Result<(), Failure> {
        let var = self.nest.vars as u32;
        self.nest.vars += 1;
        let is_serial = !matches!(l.kind, LoopKind::Unrolled | LoopKind::Vectorized);
        let binding = if is_serial { Binding::Serial(var) } else { Binding::Written(var) };
        let at = self.nest.nodes.len();
        self.nest.nodes.push(Node::Loop { var, extent: l.extent, kind: l.kind, end: 0 });
        self.body += 1;
        self.with(l.var, binding, |this| l.body.iter().try_for_each(|node| this.node(node)))?;
        self.body += 1;
        let end = self.nest.nodes.len();
        self.nest.nodes[at] = Node::Loop { var, extent: l.extent, kind: l.kind, end };
        Ok(())
    }

    fn store(&mut self, store: &'p program::Store) -> Result<Node, Failure> {
        if store.mode == StoreMode::Accumulate
            && self.is_register(&store.dst)
            && let Expr::Mul(factors) = &store.value
            && let [Expr::Load(a), Expr::Load(b)] = &**factors
            && !self.is_register(a)
            && !self.is_register(b)
        {
            let [a, b] = [self.access(a)?, self.access(b)?].map(|factor| self.read(Read::Element(factor)));
            let acc = Read::Element(self.access(&store.dst)?);
            return Ok(Node::MulAdd { acc: self.read(acc), factors: [a, b] });
        }
        let first = self.nest.inputs.len() as u32;
        let root = self.value(&store.value, first)?;
        let value = Tree { root, inputs: (first, self.nest.inputs.len() as u32) };
        let (dst, mode) = (self.access(&store.dst)?, store.mode);
        Ok(match dst.pointer {
            None => Node::Set { acc: self.read(Read::Element(dst)), mode, value },
            Some(pointer) => Node::Store { pointer, dst, mode, value },
        })
    }

    fn is_register(&self, access: &program::Access) -> bool {
        self.program.buffer(access.buffer).scope == Scope::Register
    }

    /// The number of a value of a tree whose inputs begin at `first`.
    fn value(&mut self, value: &'p Expr, first: u32) -> Result<u32, Failure> {
        let (combine, of): (fn(u32, u32) -> Kind, _) = match value {
            Expr::Const(value) => return Ok(self.input(Read::Constant(value.to_bits()), first)),
            Expr::Load(access) => {
                let element = Read::Element(self.access(access)?);
                return Ok(self.input(element, first));
            }
            Expr::Add(of) => (Kind::Add, of),
            Expr::Mul(of) => (Kind::Mul, of),
            Expr::Max(of) => (Kind::Max, of),
            Expr::Guarded { .. } => return Err(AssembleError::Gpu.into()),
        };
        let (a, b) = (self.value(&of[0], first)?, self.value(&of[1], first)?);
        let registers = match [a, b].map(|v| self.nest.values[v as usize].registers) {
            [a, b] if a == b => a + 1,
            [a, b] => a.max(b),
        };
        Ok(self.push_value(combine(a, b), registers))
    }

    fn input(&mut self, read: Read, first: u32) -> u32 {
        let in_register = matches!(read, Read::Element(Access { pointer: None, .. }));
        let number = self.read(read);
        self.nest.inputs.push(number);
        self.push_value(Kind::Input(self.nest.inputs.len() as u32 - 1 - first), u8::from(!in_register))
    }

    fn push_value(&mut self, kind: Kind, registers: u8) -> u32 {
        self.nest.values.push(Value { kind, registers });
        self.nest.values.len() as u32 - 1
    }

    /// The number of a read.
    fn read(&mut self, read: Read) -> u32 {
        let slot = &mut self.read[read.slot()];
        let (body, known) = *slot;
        if body == self.body && self.nest.reads[known as usize] == read {
            return known;
        }
        let number = self.nest.reads.len() as u32;
        *slot = (self.body, number);
        self.nest.reads.push(read);
        number
    }

    fn access(&mut self, access: &'p program::Access) -> Result<Access, Failure> {
        let number = access.buffer.0 as usize;
        if let Some(last) = &self.last[number]
            && last.body == self.body
            && let Some(distance) = self.distance(last.access, access)
        {
            return Ok(Access { constant: last.resolved.constant + distance, ..last.resolved });
        }
        let resolved = self.resolve_access(access)?;
        self.last[number] = Some(Last { body: self.body, access, resolved });
        Ok(resolved)
    }

    /// Elements from one access of a buffer to another, if that is a constant.
    fn distance(&self, from: &program::Access, to: &program::Access) -> Option<i64> {
        let (mut distance, mut stride) = (0, 1);
        for ((from, to), &extent) in from.index.iter().zip(&to.index).zip(&self.program.buffer(to.buffer).shape).rev() {
            if from.terms != to.terms {
                return None;
            }
            distance += (to.constant - from.constant) * stride;
            stride *= extent as i64;
        }
        Some(distance)
    }

    fn resolve_access(&mut self, access: &program::Access) -> Result<Access, Failure> {
        let buffer = access.buffer;
        let constant = self.add_up(access);
        let first = self.nest.terms.len();
        self.outer.clear();
        self.steps.clear();

        let mut is_serial = false;
        for Scoped { binding, coefficient } in &mut self.scope {
            let coefficient = std::mem::take(coefficient);
            match *binding {
                Binding::Serial(number) => {
                    self.steps.push((number, coefficient));
                    is_serial |= coefficient != 0;
                }
                _ if coefficient == 0 => {}
                Binding::Outside(var) => self.outer.push((var, coefficient)),
                Binding::Written(number) => self.nest.terms.push((number, coefficient)),
            }
        }

        // Accumulators are registers: nothing outside and no serial loop decides which.
        let terms = (first as u32, self.nest.terms.len() as u32);
        if self.program.buffer(buffer).scope == Scope::Register {
            if is_serial || !self.outer.is_empty() {
                return Err(AssembleError::register_index(self.program, buffer));
            }
            return Ok(Access { buffer, pointer: None, constant, terms });
        }

        let pointer = self.pointer(buffer, constant)?;
        let constant = constant - self.pointers[usize::from(pointer)].base.constant;
        Ok(Access { buffer, pointer: Some(pointer), constant, terms })
    }

    /// Adds up the row-major offset of an access in elements: coefficients in the scope, and the constant that is returned.
    fn add_up(&mut self, access: &program::Access) -> i64 {
        let (mut constant, mut stride) = (0, 1);
        for (index, &extent) in access.index.iter().zip(&self.program.buffer(access.buffer).shape).rev() {
            constant += index.constant * stride;
            for &(var, coefficient) in &index.terms {
                if let Some(scoped) = self.scope.get_mut(self.places[var.0 as usize] as usize) {
                    scoped.coefficient += coefficient * stride;
                }
            }
            stride *= extent as i64;
        }
        constant
    }

    /// The pointer to a buffer with the present outer terms and steps.
    fn pointer(&mut self, buffer: BufferId, constant: i64) -> Result<u8, Failure> {
        let (outer, steps) = (&self.outer, &self.steps);
        let fits = |p: &Pointer| p.buffer == buffer && p.base.terms.as_slice() == outer && p.goes_along(steps);
        let found = self.pointers.iter().position(fits);
        let number = found.unwrap_or(self.pointers.len());
        let pointer = u8::try_from(number)
            .map_err(|_| AssembleError::Pointers { needed: number + 1, available: self.integers })?;
        if found.is_none() {
            let base = Affine { constant, terms: outer.as_slice().into() };
            self.pointers.push(Pointer { buffer, base, steps: Steps::new() });
        }
        let known = &mut self.pointers[number].steps;
        for step in steps {
            if !known.contains(step) {
                known.push(*step);
            }
        }
        Ok(pointer)
    }
}
