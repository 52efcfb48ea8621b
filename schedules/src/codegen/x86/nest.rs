//! A leaf's loop nest with every access resolved to a pointer and what is added to it.

use std::hash::{Hash, Hasher};

use smallvec::SmallVec;

use super::AssembleError;
use super::stage::INTEGERS;
use crate::affine::{Affine, VarId};
use crate::program::{self, BufferId, Expr, LoopKind, Program, Scope, StoreMode};

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
    /// The values of stores, every operator before its operands.
    pub(super) values: Vec<Token>,
    /// Terms of all accesses: a variable's number and a coefficient in elements.
    pub(super) terms: Vec<(u32, i64)>,
    /// How pointers advance with the serial loops around their accesses, by zero as well.
    pub(super) steps: Vec<Step>,
    /// The buffer of each pointer.
    pub(super) pointers: Vec<BufferId>,
    /// Number of variables, which are numbered in order of appearance.
    pub(super) vars: usize,
}

impl Hash for Nest {
    /// Of what mostly differs.
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_usize(self.nodes.len());
        state.write_usize(self.values.len());
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
    /// A store of the value whose first token has the number `value`.
    Store { dst: Access, mode: StoreMode, value: usize },
    /// A hint that memory is read soon.
    Prefetch(Access),
}

/// A part of a value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Token {
    /// Bits of an f32.
    Constant(u32),
    Load(Access),
    Add,
    Mul,
    Max,
}

/// An element: a constant and terms of unrolled and vectorised variables, in elements behind a pointer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Access {
    pub(super) buffer: BufferId,
    /// None for accumulators.
    pub(super) pointer: Option<u8>,
    pub(super) constant: i64,
    /// Its terms: the first, and how many.
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
    /// Variables around the present node, outermost first.
    scope: Vec<Scoped>,
    /// By variable, its place in the scope.
    places: Vec<u32>,
    pub(super) nest: Nest,
    pub(super) pointers: Vec<Pointer>,
    /// Those of the present access.
    outer: Vec<(VarId, i64)>,
    steps: Steps,
}

/// The place of a variable that is not in the scope.
const NOWHERE: u32 = u32::MAX;

impl<'p> Resolver<'p> {
    pub(super) fn new(program: &'p Program) -> Self {
        Self {
            program,
            scope: Vec::new(),
            places: vec![NOWHERE; program.vars.len()],
            nest: Nest::default(),
            pointers: Vec::new(),
            outer: Vec::new(),
            steps: Steps::new(),
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
    pub(super) fn resolve(&mut self, vars: &[VarId], node: &program::Node) -> Result<(), AssembleError> {
        if let Some((&var, inner)) = vars.split_first() {
            return self.with(var, Binding::Outside(var), |this| this.resolve(inner, node));
        }
        let Nest { nodes, values, terms, steps, pointers, vars } = &mut self.nest;
        nodes.clear();
        values.clear();
        terms.clear();
        steps.clear();
        pointers.clear();
        *vars = 0;
        self.pointers.clear();
        self.node(node)?;
        for (i, pointer) in self.pointers.iter().enumerate() {
            let step = |&(var, elements): &(u32, i64)| Step { pointer: i as u8, var, elements };
            self.nest.steps.extend(pointer.steps.iter().map(step));
            self.nest.pointers.push(pointer.buffer);
        }
        Ok(())
    }

    fn node(&mut self, node: &program::Node) -> Result<(), AssembleError> {
        match node {
            program::Node::Alloc { body, .. } => body.iter().try_for_each(|node| self.node(node)),
            program::Node::Loop(l) => self.repeat(l),
            program::Node::Store(store) => {
                let value = self.nest.values.len();
                self.value(&store.value)?;
                let dst = self.access(&store.dst)?;
                self.nest.nodes.push(Node::Store { dst, mode: store.mode, value });
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
            | program::Node::BoxCopy { .. }
            | program::Node::Mma { .. }
            | program::Node::Side { .. }
            | program::Node::Signal(_) => Err(AssembleError::Gpu),
        }
    }

    fn repeat(&mut self, l: &program::Loop) -> Result<(), AssembleError> {
        let var = self.nest.vars as u32;
        self.nest.vars += 1;
        let is_serial = !matches!(l.kind, LoopKind::Unrolled | LoopKind::Vectorized);
        let binding = if is_serial { Binding::Serial(var) } else { Binding::Written(var) };
        let at = self.nest.nodes.len();
        self.nest.nodes.push(Node::Loop { var, extent: l.extent, kind: l.kind, end: 0 });
        self.with(l.var, binding, |this| l.body.iter().try_for_each(|node| this.node(node)))?;
        let end = self.nest.nodes.len();
        self.nest.nodes[at] = Node::Loop { var, extent: l.extent, kind: l.kind, end };
        Ok(())
    }

    fn value(&mut self, value: &Expr) -> Result<(), AssembleError> {
        let (token, operands) = match value {
            Expr::Const(value) => (Token::Constant(value.to_bits()), None),
            Expr::Load(access) => (Token::Load(self.access(access)?), None),
            Expr::Add(a, b) => (Token::Add, Some([a, b])),
            Expr::Mul(a, b) => (Token::Mul, Some([a, b])),
            Expr::Max(a, b) => (Token::Max, Some([a, b])),
            Expr::Guarded { .. } => return Err(AssembleError::Gpu),
        };
        self.nest.values.push(token);
        operands.into_iter().flatten().try_for_each(|operand| self.value(operand))
    }

    fn access(&mut self, access: &program::Access) -> Result<Access, AssembleError> {
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
        let terms = (first as u32, (self.nest.terms.len() - first) as u32);
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
    fn pointer(&mut self, buffer: BufferId, constant: i64) -> Result<u8, AssembleError> {
        let (outer, steps) = (&self.outer, &self.steps);
        let fits = |p: &Pointer| p.buffer == buffer && p.base.terms.as_slice() == outer && p.goes_along(steps);
        let found = self.pointers.iter().position(fits);
        let number = found.unwrap_or(self.pointers.len());
        let pointer = u8::try_from(number)
            .map_err(|_| AssembleError::Pointers { needed: number + 1, available: INTEGERS.len() })?;
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
