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

use super::AssembleError;
use super::emit::Shape;
use crate::affine::{Affine, VarId};
use crate::codegen::c::flat_offset;
use crate::program::{Access, BufferId, Expr, LoopKind, Node, Program, Scope, Store, StoreMode};

/// Elements of `buffer` from `base` on, affine in the variables outside.
pub(super) struct Pointer {
    pub(super) buffer: BufferId,
    pub(super) base: Affine,
    /// Coefficients of the serial variables inside around its accesses.
    steps: Vec<(VarId, i64)>,
}

/// What a leaf does, given its pointers.
#[derive(PartialEq, Eq, Hash)]
pub(super) struct Leaf {
    pub(super) items: Vec<Item>,
    /// Number of pointers.
    pub(super) pointers: usize,
    /// Number of registers that hold partial sums.
    pub(super) accumulators: usize,
}

#[derive(PartialEq, Eq, Hash)]
pub(super) enum Item {
    Block(Vec<Op>),
    Loop {
        extent: usize,
        /// Pointers and how many bytes they advance in each iteration.
        steps: Vec<(usize, i64)>,
        body: Vec<Item>,
    },
}

#[derive(PartialEq, Eq, Hash)]
pub(super) enum Op {
    /// Accumulator += product of two values in memory.
    MulAdd { acc: u16, a: Memory, b: Memory },
    /// Accumulator = value, or += value.
    Set { acc: u16, mode: StoreMode, value: Value },
    /// Memory = value, or += value.
    Store { dst: Memory, mode: StoreMode, value: Value },
}

#[derive(PartialEq, Eq, Hash)]
pub(super) enum Value {
    Accumulator(u16),
    /// Bits of an f32.
    Constant(u32),
    Load(Memory),
    Add(Box<Value>, Box<Value>),
    Mul(Box<Value>, Box<Value>),
    Max(Box<Value>, Box<Value>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Memory {
    pub(super) buffer: BufferId,
    pub(super) pointer: usize,
    /// Bytes behind the pointer.
    pub(super) disp: i32,
    pub(super) shape: Shape,
}

/// The leaf of a node and the pointers that it is to be given.
pub(super) fn build(program: &Program, lanes: usize, node: &Node) -> Result<(Leaf, Vec<Pointer>), AssembleError> {
    let mut resolver = Resolver { program, inner: Vec::new(), serial: Vec::new(), pointers: Vec::new() };
    resolver.bind(node);
    let tree = resolver.resolve(std::slice::from_ref(node))?;
    let mut expander = Expander {
        program,
        lanes,
        pointers: &resolver.pointers,
        values: vec![0; program.vars.len()],
        vector: None,
        accumulators: FxHashMap::default(),
        items: Vec::new(),
        block: Vec::new(),
    };
    expander.trees(&tree)?;
    expander.flush();
    expander.check_accumulators()?;
    let (items, accumulators) = (expander.items, expander.accumulators.len());
    Ok((Leaf { items, pointers: resolver.pointers.len(), accumulators }, resolver.pointers))
}

/// A node whose accesses are resolved.
enum Tree<'p> {
    Loop { var: VarId, extent: usize, kind: LoopKind, body: Vec<Tree<'p>> },
    Store { store: &'p Store, dst: Resolved, loads: Vec<Resolved> },
}

/// An access as a pointer and what is added to it: affine in the unrolled and vectorised variables, in elements.
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
}

impl<'p> Resolver<'p> {
    fn bind(&mut self, node: &Node) {
        match node {
            Node::Loop(l) => {
                self.inner.push(l.var);
                l.body.iter().for_each(|n| self.bind(n));
            }
            Node::Alloc { body, .. } => body.iter().for_each(|n| self.bind(n)),
            Node::Store(_) => {}
        }
    }

    fn resolve(&mut self, nodes: &'p [Node]) -> Result<Vec<Tree<'p>>, AssembleError> {
        let mut trees = Vec::with_capacity(nodes.len());
        for node in nodes {
            match node {
                Node::Alloc { body, .. } => trees.extend(self.resolve(body)?),
                Node::Loop(l) => {
                    let is_serial = matches!(l.kind, LoopKind::Serial | LoopKind::Parallel);
                    if is_serial {
                        self.serial.push(l.var);
                    }
                    let body = self.resolve(&l.body)?;
                    if is_serial {
                        self.serial.pop();
                    }
                    trees.push(Tree::Loop { var: l.var, extent: l.extent, kind: l.kind, body });
                }
                Node::Store(store) => {
                    let mut accesses = Vec::new();
                    store.value.for_each_load(&mut |access| accesses.push(access));
                    let loads = accesses.into_iter().map(|a| self.access(a)).collect::<Result<_, _>>()?;
                    trees.push(Tree::Store { store, dst: self.access(&store.dst)?, loads });
                }
            }
        }
        Ok(trees)
    }

    fn access(&mut self, access: &Access) -> Result<Resolved, AssembleError> {
        let buffer = access.buffer;
        let mut offset = flat_offset(self.program, access);
        let is_outer = |v: VarId| !self.inner.contains(&v);
        if self.program.buffer(buffer).scope == Scope::Register {
            if offset.terms.iter().any(|t| is_outer(t.0) || self.serial.contains(&t.0)) {
                return Err(AssembleError::register_index(self.program, buffer));
            }
            return Ok(Resolved { buffer, pointer: None, offset });
        }
        let steps: Vec<(VarId, i64)> = self.serial.iter().map(|&v| (v, offset.coefficient(v))).collect();
        let clashes = |p: &Pointer| p.steps.iter().any(|s| steps.iter().any(|t| s.0 == t.0 && s.1 != t.1));
        let found = self.pointers.iter().position(|p| {
            p.buffer == buffer && p.base.terms.iter().eq(offset.terms.iter().filter(|t| is_outer(t.0))) && !clashes(p)
        });
        let pointer = found.unwrap_or(self.pointers.len());
        if found.is_none() {
            let terms = offset.terms.iter().copied().filter(|t| is_outer(t.0)).collect();
            let base = Affine { constant: offset.constant, terms };
            self.pointers.push(Pointer { buffer, base, steps: Vec::new() });
        }
        let known = &mut self.pointers[pointer];
        for step in steps {
            if !known.steps.contains(&step) {
                known.steps.push(step);
            }
        }
        offset.terms.retain(|t| !is_outer(t.0) && !self.serial.contains(&t.0));
        offset.constant -= known.base.constant;
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
    pointers: &'p [Pointer],
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
            Tree::Store { store, dst, loads } => self.store(store, dst, loads),
            Tree::Loop { var, extent, kind, body } => match kind {
                LoopKind::Serial | LoopKind::Parallel => self.serial(*var, *extent, body),
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
            },
        })
    }

    fn serial(&mut self, var: VarId, extent: usize, body: &[Tree]) -> Result<(), AssembleError> {
        self.flush();
        let before = std::mem::take(&mut self.items);
        let done = self.trees(body);
        self.flush();
        let body = std::mem::replace(&mut self.items, before);
        let step = |p: &Pointer| p.steps.iter().find(|s| s.0 == var && s.1 != 0).map(|s| s.1 * 4);
        let steps = self.pointers.iter().enumerate().filter_map(|(i, p)| Some((i, step(p)?))).collect();
        self.items.push(Item::Loop { extent, steps, body });
        done
    }

    fn store(&mut self, store: &Store, dst: &Resolved, loads: &[Resolved]) -> Result<(), AssembleError> {
        let is_register = dst.pointer.is_none();
        let accumulates = store.mode == StoreMode::Accumulate;
        let op = match (&store.value, loads) {
            (Expr::Mul(_, _), [a, b])
                if is_register && accumulates && a.pointer.is_some() && b.pointer.is_some() && is_product(store) =>
            {
                Op::MulAdd { acc: self.accumulator(dst)?, a: self.load(a)?, b: self.load(b)? }
            }
            _ => {
                let value = self.value(&store.value, &mut loads.iter())?;
                if is_register {
                    Op::Set { acc: self.accumulator(dst)?, mode: store.mode, value }
                } else {
                    Op::Store { dst: self.memory(dst)?, mode: store.mode, value }
                }
            }
        };
        self.block.push(op);
        Ok(())
    }

    /// The value of an expression whose loads are the next of `loads`, left to right.
    fn value<'r>(
        &mut self,
        expr: &Expr,
        loads: &mut impl Iterator<Item = &'r Resolved>,
    ) -> Result<Value, AssembleError> {
        let mut pair = |a: &Expr, b: &Expr| -> Result<_, AssembleError> {
            let a = self.value(a, loads)?;
            Ok((Box::new(a), Box::new(self.value(b, loads)?)))
        };
        Ok(match expr {
            Expr::Const(value) => Value::Constant(value.to_bits()),
            Expr::Add(a, b) => pair(a, b).map(|(a, b)| Value::Add(a, b))?,
            Expr::Mul(a, b) => pair(a, b).map(|(a, b)| Value::Mul(a, b))?,
            Expr::Max(a, b) => pair(a, b).map(|(a, b)| Value::Max(a, b))?,
            Expr::Load(_) => match loads.next() {
                Some(load) if load.pointer.is_none() => Value::Accumulator(self.accumulator(load)?),
                Some(load) => Value::Load(self.load(load)?),
                None => Value::Constant(0),
            },
        })
    }

    /// Offset in elements at the first lane, stride along the vector, and number of lanes.
    fn place(&self, offset: &Affine) -> (i64, i64, usize) {
        let first = offset.eval(|v| self.values[v.0 as usize]);
        match self.vector {
            Some(vector) => (first, offset.coefficient(vector.var), vector.lanes),
            None => (first, 0, 1),
        }
    }

    fn memory(&self, access: &Resolved) -> Result<Memory, AssembleError> {
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
        Ok(Memory { buffer: access.buffer, pointer: access.pointer.unwrap_or(0), disp, shape })
    }

    fn load(&self, access: &Resolved) -> Result<Memory, AssembleError> {
        let mut memory = self.memory(access)?;
        if matches!(memory.shape, Shape::Strided { stride: 0, .. }) {
            memory.shape = Shape::Splat;
        }
        Ok(memory)
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

/// True if the value is the product of two loads.
fn is_product(store: &Store) -> bool {
    matches!(&store.value, Expr::Mul(a, b) if matches!((&**a, &**b), (Expr::Load(_), Expr::Load(_))))
}
