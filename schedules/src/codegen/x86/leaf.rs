//! A leaf: a register tile, or a loop nest without one, as straight-line blocks and loops around them.
//!
//! Every access is a pointer and a constant displacement. Loops advance the pointers; unrolled loops are written out; a
//! vectorised loop of any extent becomes whole vectors and one of the remaining lanes:
//!
//! ```text
//! serial k in 0..64 { unrolled y in 0..2 { vectorized x in 0..20 { acc[y, x] += in[y, k] * w[k, x] } } }   (16 lanes)
//!   →  64 times { a0 += splat [p0] * lanes16 [p1];        a1 += splat [p0] * lanes4 [p1 + 64];
//!                 a2 += splat [p0 + 256] * lanes16 [p1];  a3 += splat [p0 + 256] * lanes4 [p1 + 64];
//!                 p0 += 4; p1 += 80 }
//! ```

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::AssembleError;
use super::emit::Shape;
use crate::affine::{Affine, VarId};
use crate::codegen::{bound_vars, flat_offset};
use crate::program::{Access, BufferId, Expr, LoopKind, Node, Program, Scope, StoreMode};

/// Elements of `buffer` from `base` on, affine in the variables outside.
pub(super) struct Pointer {
    pub(super) buffer: BufferId,
    pub(super) base: Affine,
}

/// What a leaf does, given its pointers.
pub(super) struct Leaf {
    pub(super) items: Vec<Item>,
    /// Number of pointers.
    pub(super) pointers: usize,
    /// Number of registers that hold partial sums.
    pub(super) accumulators: usize,
}

pub(super) enum Item {
    Block(Vec<Op>),
    Loop {
        extent: usize,
        /// Pointers and how many bytes they advance in each iteration.
        steps: Vec<(usize, i64)>,
        body: Vec<Item>,
    },
}

pub(super) enum Op {
    /// Accumulator += product of two values in memory.
    MulAdd { acc: u16, a: Memory, b: Memory },
    /// Accumulator = value, or += value.
    Set { acc: u16, mode: StoreMode, value: Value<Place> },
    /// Memory = value, or += value.
    Store { dst: Memory, mode: StoreMode, value: Value<Place> },
    /// A hint that memory is read soon.
    Prefetch(Memory),
}

/// An expression over loads of type `L`.
#[derive(PartialEq, Eq, Hash)]
pub(super) enum Value<L> {
    /// Bits of an f32.
    Constant(u32),
    Load(L),
    Add(Box<Value<L>>, Box<Value<L>>),
    Mul(Box<Value<L>>, Box<Value<L>>),
    Max(Box<Value<L>>, Box<Value<L>>),
}

impl<L> Value<L> {
    /// The expression with every load as `load` has it, left to right.
    fn of(expr: &Expr, load: &mut impl FnMut(&Access) -> Result<L, AssembleError>) -> Result<Self, AssembleError> {
        let mut both = |a: &Expr, b: &Expr| Ok((Box::new(Self::of(a, load)?), Box::new(Self::of(b, load)?)));
        Ok(match expr {
            Expr::Add(a, b) => both(a, b).map(|(a, b)| Value::Add(a, b))?,
            Expr::Mul(a, b) => both(a, b).map(|(a, b)| Value::Mul(a, b))?,
            Expr::Max(a, b) => both(a, b).map(|(a, b)| Value::Max(a, b))?,
            Expr::Const(value) => Value::Constant(value.to_bits()),
            Expr::Load(access) => Value::Load(load(access)?),
            Expr::Guarded { .. } => return Err(AssembleError::Gpu),
        })
    }

    /// The expression with every load replaced, left to right.
    fn try_map<M, E>(&self, load: &mut impl FnMut(&L) -> Result<M, E>) -> Result<Value<M>, E> {
        let mut both = |a: &Self, b: &Self| Ok((Box::new(a.try_map(load)?), Box::new(b.try_map(load)?)));
        Ok(match self {
            Value::Add(a, b) => both(a, b).map(|(a, b)| Value::Add(a, b))?,
            Value::Mul(a, b) => both(a, b).map(|(a, b)| Value::Mul(a, b))?,
            Value::Max(a, b) => both(a, b).map(|(a, b)| Value::Max(a, b))?,
            Value::Constant(bits) => Value::Constant(*bits),
            Value::Load(l) => Value::Load(load(l)?),
        })
    }
}

/// Where a value is.
pub(super) enum Place {
    Accumulator(u16),
    Memory(Memory),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Memory {
    pub(super) buffer: BufferId,
    pub(super) pointer: usize,
    /// Bytes behind the pointer.
    pub(super) disp: i32,
    pub(super) shape: Shape,
}

/// A leaf before loops are written out. Leaves that differ only in their pointers are equal.
#[derive(PartialEq, Eq, Hash)]
pub(super) struct Nest {
    trees: Vec<Tree>,
    /// Number of variables, which are numbered in order of appearance.
    vars: usize,
    /// For each pointer, the coefficients of the serial variables around its accesses.
    steps: Vec<Vec<(VarId, i64)>>,
}

/// A node whose accesses are resolved.
#[derive(PartialEq, Eq, Hash)]
enum Tree {
    Loop { var: VarId, extent: usize, kind: LoopKind, body: Vec<Tree> },
    Store { dst: Resolved, mode: StoreMode, value: Value<Resolved> },
    Prefetch(Resolved),
}

impl Nest {
    /// The nest of a node, and the pointers that it is to be given.
    pub(super) fn of(program: &Program, node: &Node) -> Result<(Self, Vec<Pointer>), AssembleError> {
        let mut resolver =
            Resolver { program, inner: bound_vars(node), serial: Vec::new(), pointers: Vec::new(), steps: Vec::new() };
        let trees = resolver.resolve(std::slice::from_ref(node))?;
        Ok((Self { trees, vars: resolver.inner.len(), steps: resolver.steps }, resolver.pointers))
    }

    /// The leaf with loops written out, for vectors of `lanes` elements.
    pub(super) fn expand(&self, program: &Program, lanes: usize) -> Result<Leaf, AssembleError> {
        let mut expander = Expander {
            program,
            lanes,
            steps: &self.steps,
            values: vec![0; self.vars],
            vector: None,
            accumulators: FxHashMap::default(),
            items: Vec::new(),
            block: Vec::new(),
        };
        expander.trees(&self.trees)?;
        expander.flush();
        expander.check_accumulators()?;
        let (items, accumulators) = (expander.items, expander.accumulators.len());
        Ok(Leaf { items, pointers: self.steps.len(), accumulators })
    }
}

/// An access as a pointer and what is added to it: affine in the unrolled and vectorised variables, in elements.
#[derive(PartialEq, Eq, Hash)]
struct Resolved {
    buffer: BufferId,
    /// None for accumulators.
    pointer: Option<usize>,
    offset: Affine,
}

struct Resolver<'p> {
    program: &'p Program,
    /// Variables bound inside.
    inner: Vec<VarId>,
    /// Serial ones around the present node.
    serial: Vec<VarId>,
    pointers: Vec<Pointer>,
    steps: Vec<Vec<(VarId, i64)>>,
}

impl Resolver<'_> {
    fn resolve(&mut self, nodes: &[Node]) -> Result<Vec<Tree>, AssembleError> {
        let mut trees = Vec::with_capacity(nodes.len());
        for node in nodes {
            match node {
                Node::Alloc { body, .. } => trees.extend(self.resolve(body)?),
                Node::Loop(l) => {
                    let is_serial = !matches!(l.kind, LoopKind::Unrolled | LoopKind::Vectorized);
                    if is_serial {
                        self.serial.push(l.var);
                    }
                    let body = self.resolve(&l.body)?;
                    if is_serial {
                        self.serial.pop();
                    }
                    trees.push(Tree::Loop { var: self.local(l.var), extent: l.extent, kind: l.kind, body });
                }
                Node::Store(store) => {
                    let value = Value::of(&store.value, &mut |access| self.access(access))?;
                    trees.push(Tree::Store { dst: self.access(&store.dst)?, mode: store.mode, value });
                }
                Node::Barrier
                | Node::Guard { .. }
                | Node::Unflatten { .. }
                | Node::CopyGroup { .. }
                | Node::AwaitCopies { .. }
                | Node::BoxCopy { .. }
                | Node::Mma { .. } => return Err(AssembleError::Gpu),
                Node::Prefetch { access, ahead } => {
                    let mut at = self.access(access)?;
                    at.offset.constant += *ahead as i64;
                    trees.push(Tree::Prefetch(at));
                }
            }
        }
        Ok(trees)
    }

    /// The number of a variable that is bound inside.
    fn local(&self, var: VarId) -> VarId {
        VarId(self.inner.iter().position(|&v| v == var).unwrap_or(0) as u32)
    }

    /// The terms of variables bound inside, numbered.
    fn local_terms(&self, terms: impl Iterator<Item = (VarId, i64)>) -> SmallVec<[(VarId, i64); 4]> {
        let mut terms: SmallVec<_> = terms.map(|(v, c)| (self.local(v), c)).collect();
        terms.sort_unstable();
        terms
    }

    fn access(&mut self, access: &Access) -> Result<Resolved, AssembleError> {
        let buffer = access.buffer;
        let Affine { constant, terms } = flat_offset(self.program, access);
        let is_outer = |v: VarId| !self.inner.contains(&v);
        if self.program.buffer(buffer).scope == Scope::Register {
            if terms.iter().any(|t| is_outer(t.0) || self.serial.contains(&t.0)) {
                return Err(AssembleError::register_index(self.program, buffer));
            }
            let offset = Affine { constant, terms: self.local_terms(terms.into_iter()) };
            return Ok(Resolved { buffer, pointer: None, offset });
        }
        let coefficient = |v: VarId| terms.iter().find(|t| t.0 == v).map_or(0, |t| t.1);
        let steps: Vec<(VarId, i64)> = self.serial.iter().map(|&v| (self.local(v), coefficient(v))).collect();
        let clashes = |known: &[(VarId, i64)]| known.iter().any(|s| steps.iter().any(|t| s.0 == t.0 && s.1 != t.1));
        let found = self.pointers.iter().zip(&self.steps).position(|(p, known)| {
            p.buffer == buffer && p.base.terms.iter().eq(terms.iter().filter(|t| is_outer(t.0))) && !clashes(known)
        });
        let pointer = found.unwrap_or(self.pointers.len());
        let inner = |t: &(VarId, i64)| !is_outer(t.0) && !self.serial.contains(&t.0);
        let inner_terms = self.local_terms(terms.iter().copied().filter(inner));
        if found.is_none() {
            let outer_terms = terms.iter().copied().filter(|t| is_outer(t.0)).collect();
            self.pointers.push(Pointer { buffer, base: Affine { constant, terms: outer_terms } });
            self.steps.push(Vec::new());
        }
        for step in steps {
            if !self.steps[pointer].contains(&step) {
                self.steps[pointer].push(step);
            }
        }
        let offset = Affine { constant: constant - self.pointers[pointer].base.constant, terms: inner_terms };
        Ok(Resolved { buffer, pointer: Some(pointer), offset })
    }
}

/// The lanes `start..start + lanes` of a vectorised loop, whose start is the variable's value.
#[derive(Clone, Copy)]
struct Lanes {
    var: VarId,
    lanes: usize,
}

struct Expander<'p> {
    program: &'p Program,
    lanes: usize,
    steps: &'p [Vec<(VarId, i64)>],
    /// Values of the unrolled variables around, by variable.
    values: Vec<i64>,
    vector: Option<Lanes>,
    /// Number and lanes of the accumulator at each flat offset.
    accumulators: FxHashMap<(BufferId, i64), (u16, usize)>,
    items: Vec<Item>,
    block: Vec<Op>,
}

impl Expander<'_> {
    fn flush(&mut self) {
        if !self.block.is_empty() {
            self.items.push(Item::Block(std::mem::take(&mut self.block)));
        }
    }

    fn trees(&mut self, trees: &[Tree]) -> Result<(), AssembleError> {
        trees.iter().try_for_each(|tree| match tree {
            Tree::Store { dst, mode, value } => self.store(dst, *mode, value),
            Tree::Prefetch(at) => {
                if let Place::Memory(memory) = self.load(at)? {
                    self.block.push(Op::Prefetch(memory));
                }
                Ok(())
            }
            Tree::Loop { var, extent, kind, body } => match kind {
                LoopKind::Unrolled => (0..*extent).try_for_each(|value| {
                    self.values[var.0 as usize] = value as i64;
                    self.trees(body)
                }),
                LoopKind::Vectorized => (0..*extent).step_by(self.lanes).try_for_each(|start| {
                    let lanes = self.lanes.min(extent - start);
                    self.values[var.0 as usize] = start as i64;
                    self.vector = Some(Lanes { var: *var, lanes });
                    let done = self.trees(body);
                    self.vector = None;
                    done
                }),
                _ => self.serial(*var, *extent, body),
            },
        })
    }

    fn serial(&mut self, var: VarId, extent: usize, body: &[Tree]) -> Result<(), AssembleError> {
        self.flush();
        let before = std::mem::take(&mut self.items);
        let done = self.trees(body);
        self.flush();
        let body = std::mem::replace(&mut self.items, before);
        let step = |steps: &[(VarId, i64)]| steps.iter().find(|s| s.0 == var && s.1 != 0).map(|s| s.1 * 4);
        let steps = self.steps.iter().enumerate().filter_map(|(i, p)| Some((i, step(p)?))).collect();
        self.items.push(Item::Loop { extent, steps, body });
        done
    }

    fn store(&mut self, dst: &Resolved, mode: StoreMode, value: &Value<Resolved>) -> Result<(), AssembleError> {
        if dst.pointer.is_none()
            && mode == StoreMode::Accumulate
            && let Value::Mul(a, b) = value
            && let (Value::Load(a), Value::Load(b)) = (&**a, &**b)
            && let (Place::Memory(a), Place::Memory(b)) = (self.load(a)?, self.load(b)?)
        {
            let acc = self.accumulator(dst)?;
            self.block.push(Op::MulAdd { acc, a, b });
            return Ok(());
        }
        let value = value.try_map(&mut |load| self.load(load))?;
        let op = match dst.pointer {
            None => Op::Set { acc: self.accumulator(dst)?, mode, value },
            Some(pointer) => Op::Store { dst: self.memory(dst, pointer)?, mode, value },
        };
        self.block.push(op);
        Ok(())
    }

    /// Offset in elements at the first lane, stride along the vector, and number of lanes.
    fn place(&self, offset: &Affine) -> (i64, i64, usize) {
        let first = offset.eval(|v| self.values[v.0 as usize]);
        match self.vector {
            Some(vector) => (first, offset.coefficient(vector.var), vector.lanes),
            None => (first, 0, 1),
        }
    }

    fn memory(&self, access: &Resolved, pointer: usize) -> Result<Memory, AssembleError> {
        let (first, stride, lanes) = self.place(&access.offset);
        let (first, stride) = (first * 4, stride * 4);
        let last = first + stride * (lanes as i64 - 1);
        let fits = |bytes: i64| i32::try_from(bytes).map_err(|_| AssembleError::Displacement { bytes });
        let (disp, _, stride) = (fits(first)?, fits(last)?, fits(stride)?);
        let shape = match (lanes, stride) {
            (1, _) => Shape::Splat,
            (_, 4) => Shape::Lanes(lanes as u8),
            _ => Shape::Strided { lanes: lanes as u8, stride },
        };
        Ok(Memory { buffer: access.buffer, pointer, disp, shape })
    }

    fn load(&mut self, access: &Resolved) -> Result<Place, AssembleError> {
        let Some(pointer) = access.pointer else {
            return Ok(Place::Accumulator(self.accumulator(access)?));
        };
        let mut memory = self.memory(access, pointer)?;
        if matches!(memory.shape, Shape::Strided { stride: 0, .. }) {
            memory.shape = Shape::Splat;
        }
        Ok(Place::Memory(memory))
    }

    fn accumulator(&mut self, access: &Resolved) -> Result<u16, AssembleError> {
        let (flat, stride, lanes) = self.place(&access.offset);
        let next = self.accumulators.len() as u16;
        let (number, known) = *self.accumulators.entry((access.buffer, flat)).or_insert((next, lanes));
        if known != lanes || (lanes > 1 && stride != 1) {
            return Err(AssembleError::register_index(self.program, access.buffer));
        }
        Ok(number)
    }

    /// No two accumulators may share an element.
    fn check_accumulators(&self) -> Result<(), AssembleError> {
        let mut places: Vec<_> = self.accumulators.iter().map(|(&at, &(_, lanes))| (at, lanes as i64)).collect();
        places.sort_unstable();
        for pair in places.windows(2) {
            let [((buffer, flat), lanes), ((next_buffer, next_flat), _)] = [pair[0], pair[1]];
            if buffer == next_buffer && flat + lanes > next_flat {
                return Err(AssembleError::register_index(self.program, buffer));
            }
        }
        Ok(())
    }
}
