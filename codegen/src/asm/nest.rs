//! Loop nest of a leaf, with every access resolved to a pointer and an offset.

use std::hash::{Hash, Hasher};

use smallvec::SmallVec;

use super::error::{AssembleError, Failure};
use super::instruction_set::{Arithmetic, Dots, ElementType};
use super::tile_grid::TileNest;
use autotune_ir::affine::{Affine, VarId};
use autotune_ir::formula::{Formula, Primitive};
use autotune_ir::instruction::{Dot, Instruction};
use autotune_ir::program::{self, BinaryOp, BufferId, Expr, LoopKind, PrefetchLevel, Program, StoreMode};

mod access;
mod integers;
mod steps;
mod tiles;

/// A pointer that a leaf gets: the address of element `base` of `buffer`, where `base` is affine in
/// the variables outside the leaf.
pub(super) struct Pointer {
    pub(super) buffer: BufferId,
    /// Group size and type in which its elements are read and written.
    of: ElementFormat,
    pub(super) base: Affine,
    /// Serial variables around its accesses, each with the number of elements to advance per
    /// iteration.
    steps: Steps,
}

type Steps = SmallVec<[(u32, i64); 8]>;

/// Group size and type in which elements of a buffer are read and written.
#[derive(Clone, Copy, PartialEq, Eq)]
struct ElementFormat {
    /// Number of adjacent elements that are read as one, a 32-bit word if more than one. Offsets
    /// count groups.
    group: usize,
    of: ElementType,
}

impl Pointer {
    /// True if the pointer advances as in these steps with every variable that both contain.
    fn steps_agree(&self, steps: &Steps) -> bool {
        let step_of = |var: u32| steps.iter().find(|step| step.0 == var);
        self.steps.iter().all(|known| step_of(known.0).is_none_or(|step| step.1 == known.1))
    }
}

/// The loop nest of a leaf before unrolling. Leaves that differ only in their pointers' values are
/// equal.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct LeafNest {
    /// Nodes in preorder: every loop comes before its body.
    pub(super) nodes: Vec<NestNode>,
    /// Values of stores; operands come before the values that use them.
    pub(super) values: Vec<NestValue>,
    /// Elements that are read and written: the inputs of each value from left to right, then its
    /// destination.
    pub(super) elements: Vec<NestElement>,
    /// Terms of all elements' offsets: a variable's number and its coefficient in elements.
    pub(super) terms: Vec<(u32, i64)>,
    /// Steps of the pointers, including steps of zero elements, for the serial loops around their
    /// accesses.
    pub(super) steps: Vec<Advance>,
    /// Buffer of each pointer.
    pub(super) pointers: Vec<BufferId>,
    /// Type of the elements of each pointer.
    pub(super) types: Vec<ElementType>,
    /// Number of variables; they are numbered in order of appearance.
    pub(super) vars: usize,
    /// Product of tiles that the leaf computes. The nodes, if there are any, are computed between
    /// its reduction steps, from sums that were stored earlier.
    pub(super) tiles: Option<Box<TileNest>>,
}

impl LeafNest {
    /// True if there is a gather.
    pub(super) fn fetches(&self) -> bool {
        self.values.iter().any(|value| matches!(value.kind, ValueKind::Fetch(_)))
    }

    /// True if some value is computed in steps.
    pub(super) fn has_steps(&self) -> bool {
        self.nodes.iter().any(|node| matches!(node, NestNode::Store { value, .. } if value.steps.is_some()))
    }
}

impl Hash for LeafNest {
    /// Hashes only the parts that usually differ, which is faster.
    fn hash<H: Hasher>(&self, state: &mut H) {
        [self.nodes.len(), self.values.len(), self.elements.len()].hash(state);
        self.terms.hash(state);
        self.steps.hash(state);
        // Rows of an image that are copied one by one differ in these only.
        self.elements.iter().for_each(|element| (element.place, element.constant).hash(state));
    }
}

/// A node of a nest. Elements and variables are referenced by number.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum NestNode {
    /// A loop whose body is the nodes from the next one to `end` (exclusive).
    Loop { var: u32, extent: usize, kind: LoopKind, end: usize },
    /// Accumulator += product of two elements of memory, by the instruction `by`.
    MulAdd { acc: u32, factors: [u32; 2], by: Arithmetic },
    /// Element = value, or element += value.
    Store { dst: u32, mode: StoreMode, value: ValueTree },
    /// Prefetch of an element.
    Prefetch { element: u32, level: PrefetchLevel },
}

/// A value and its operands, which form a tree or a sequence of steps.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ValueTree {
    /// Number of the last value.
    pub(super) root: u32,
    /// Range of its inputs in the nest's elements.
    pub(super) inputs: (u32, u32),
    /// First value of the sequence, if the values are steps computed one after the other. Steps may
    /// share operands.
    pub(super) steps: Option<u32>,
}

/// An operation, with the number of registers needed to evaluate it besides accumulators (Sethi and
/// Ullman, "The generation of optimal code for arithmetic expressions", 1970).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct NestValue {
    pub(super) kind: ValueKind,
    pub(super) registers: u8,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ValueKind {
    /// The tree's input of this number.
    Input(u32),
    /// An operation on two values of a tree.
    Binary(Arithmetic, u32, u32),
    /// A step: a primitive applied to earlier values. Unused operands are zero.
    Step(Primitive, [u32; Primitive::MOST_OPERANDS]),
    /// A step: a copy of an input in a register, for steps that need it several times.
    Own([u32; 1]),
    /// A step: conversion of a value to an integer, by truncation.
    Whole([u32; 1]),
    /// A step: a gather of the element at an input's address plus an index, in elements, which is
    /// the second value's bits.
    Fetch([u32; 2]),
}

impl ValueKind {
    /// Returns the operands of a step.
    pub(super) fn operands(&self) -> &[u32] {
        match self {
            ValueKind::Input(_) | ValueKind::Binary(..) => &[],
            ValueKind::Step(primitive, of) => &of[..primitive.operands()],
            ValueKind::Own(of) | ValueKind::Whole(of) => of,
            ValueKind::Fetch(of) => of,
        }
    }
}

/// An element: its offset from the base of its place is a constant plus terms of unrolled and
/// vectorised variables, in elements.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct NestElement {
    pub(super) place: ElementBase,
    pub(super) constant: i64,
    /// Range of its terms in the nest's `terms`.
    pub(super) terms: (u32, u32),
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum ElementBase {
    /// A constant with the bits of an f32, in no memory.
    Constant(u32),
    /// An element of a buffer of register scope.
    Accumulators(BufferId),
    /// An element in memory, relative to the pointer of this number.
    Memory(u8),
}

/// Number of elements by which a pointer advances in each iteration of a loop.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Advance {
    pub(super) pointer: u8,
    pub(super) var: u32,
    pub(super) elements: i64,
}

/// A loop around leaves.
#[derive(Clone, Copy)]
pub(super) struct OuterLoop {
    pub(super) var: VarId,
    pub(super) extent: usize,
}

/// A variable in scope at the current node.
struct Scoped {
    var: VarId,
    binding: LeafVariable,
    /// Coefficient of the variable in the current access.
    coefficient: i64,
}

/// Binding of a variable relative to a leaf, with its number in the nest.
#[derive(Clone, Copy)]
enum LeafVariable {
    Outside,
    Serial(u32),
    /// Unrolled or vectorised: it is constant in straight-line code.
    Written(u32),
}

/// Single instructions of a set that replace several steps: products with powers of two, rounding
/// to f16 and bf16, dot products. Also tile registers.
#[derive(Clone)]
pub(super) struct Offers {
    pub(super) scales: bool,
    pub(super) rounds_to_f16: bool,
    pub(super) rounds_to_bf16: bool,
    pub(super) dots: Dots,
    pub(super) tiles: bool,
}

impl Offers {
    /// Returns the operation for an instruction of a program, if the set has it.
    fn of(&self, instruction: &Instruction) -> Option<Arithmetic> {
        self.dots.iter().find(|(known, _)| *known == instruction).map(|(_, by)| *by)
    }
}

/// Resolves one nest at a time, reusing its memory.
pub(super) struct Resolver<'p> {
    program: &'p Program,
    /// Number of integer registers for pointers and counters.
    integers: usize,
    offers: Offers,
    /// True if some buffer holds integers.
    has_integers: bool,
    /// Variables in scope at the current node, outermost first.
    scope: Vec<Scoped>,
    pub(super) nest: LeafNest,
    pub(super) pointers: Vec<Pointer>,
}

/// True if a value consists of sums, products and maxima only, which are evaluated as a tree
/// instead of in steps.
fn is_tree(value: &Expr) -> bool {
    let is_plain = |value: &Expr| match Formula::of(value) {
        Some(formula) => matches!(formula.only(), Some(Primitive::Add | Primitive::Mul | Primitive::Max)),
        None => !matches!(value, Expr::Gather(_)),
    };
    is_plain(value) && value.operands().iter().all(is_tree)
}

impl<'p> Resolver<'p> {
    pub(super) fn new(program: &'p Program, integers: usize, offers: Offers) -> Self {
        let (has_integers, scope) = (program.has_integers(), Vec::new());
        Self { program, integers, offers, has_integers, scope, nest: LeafNest::default(), pointers: Vec::new() }
    }

    /// Resolves a node within loops, outermost first: fills the nest of its leaf and the pointers
    /// that are passed to the leaf.
    pub(super) fn resolve(&mut self, loops: &[OuterLoop], node: &'p program::Node) -> Result<(), Failure> {
        self.clear(loops);
        match self.product_of(node)? {
            Some((product, grid)) => self.tiles(&product, grid, loops)?,
            None => self.node(node)?,
        }
        self.finish();
        Ok(())
    }

    /// Begins a nest within loops.
    fn clear(&mut self, loops: &[OuterLoop]) {
        // Every leaf call is resolved, so the memory of the previous nest is reused.
        let LeafNest { nodes, values, elements, terms, steps, pointers, types, vars: count, tiles } = &mut self.nest;
        nodes.clear();
        values.clear();
        elements.clear();
        terms.clear();
        steps.clear();
        pointers.clear();
        types.clear();
        (*count, *tiles) = (0, None);
        self.pointers.clear();
        self.scope.clear();
        self.scope.extend(loops.iter().map(|l| Scoped { var: l.var, binding: LeafVariable::Outside, coefficient: 0 }));
    }

    /// Adds the pointers to the nest.
    fn finish(&mut self) {
        for (i, pointer) in self.pointers.iter().enumerate() {
            let step = |&(var, elements): &(u32, i64)| Advance { pointer: i as u8, var, elements };
            self.nest.steps.extend(pointer.steps.iter().map(step));
            self.nest.pointers.push(pointer.buffer);
            self.nest.types.push(pointer.of.of);
        }
    }

    fn node(&mut self, node: &'p program::Node) -> Result<(), Failure> {
        match node {
            program::Node::Alloc { body, .. } => body.iter().try_for_each(|node| self.node(node)),
            program::Node::Loop(l) => self.repeat(l),
            program::Node::Store(store) => self.store(store),
            program::Node::Prefetch { access, ahead, level } => {
                let mut element = self.access(access)?;
                element.constant += *ahead as i64;
                let number = self.nest.elements.len() as u32;
                self.nest.nodes.push(NestNode::Prefetch { element: number, level: *level });
                self.nest.elements.push(element);
                Ok(())
            }

            program::Node::Call { instruction, body } => match self.offers.of(instruction).zip(Dot::of(body)) {
                Some((by, dot)) => self.dot(by, &dot),
                // Without the instruction, its loop nest is expanded.
                None => body.iter().try_for_each(|node| self.node(node)),
            },
            program::Node::Barrier
            | program::Node::Guard { .. }
            | program::Node::Unflatten { .. }
            | program::Node::CopyGroup { .. }
            | program::Node::AwaitCopies { .. }
            | program::Node::Specialised { .. }
            | program::Node::Mbarrier(_) => Err(AssembleError::Gpu.into()),
        }
    }

    fn repeat(&mut self, l: &'p program::Loop) -> Result<(), Failure> {
        self.looped(l, |this| l.body.iter().try_for_each(|node| this.node(node)))
    }

    /// Pushes a dot product; each step of its loop reads one word of each factor.
    fn dot(&mut self, by: Arithmetic, dot: &Dot<'p>) -> Result<(), Failure> {
        let statement = |this: &mut Self| {
            for factor in dot.factors {
                // The steps of the loop fill one word, which the instruction multiplies at once.
                let words = ElementFormat { group: dot.steps.extent, of: ElementType::Word };
                let word = this.access_as(factor, words)?;
                this.nest.elements.push(word);
            }
            let (acc, end) = (this.access(&dot.store.dst)?, this.nest.elements.len() as u32);
            this.nest.elements.push(acc);
            this.nest.nodes.push(NestNode::MulAdd { acc: end, factors: [end - 2, end - 1], by });
            Ok(())
        };
        match dot.lanes {
            Some(lanes) => self.looped(lanes, statement),
            None => statement(self),
        }
    }

    fn looped(
        &mut self,
        l: &'p program::Loop,
        body: impl FnOnce(&mut Self) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let var = self.nest.vars as u32;
        self.nest.vars += 1;
        let is_serial = !matches!(l.kind, LoopKind::Unrolled | LoopKind::Vectorized);
        let binding = if is_serial { LeafVariable::Serial(var) } else { LeafVariable::Written(var) };

        let at = self.nest.nodes.len();
        // Placeholder: the loop's end is known only after its body.
        self.nest.nodes.push(NestNode::Prefetch { element: 0, level: PrefetchLevel::L1 });
        self.scope.push(Scoped { var: l.var, binding, coefficient: 0 });
        body(self)?;
        self.scope.pop();
        self.nest.nodes[at] = NestNode::Loop { var, extent: l.extent, kind: l.kind, end: self.nest.nodes.len() };
        Ok(())
    }

    fn store(&mut self, store: &'p program::Store) -> Result<(), Failure> {
        let (first, mode) = (self.nest.elements.len(), store.mode);
        let of = self.stored_type(store.dst.buffer);
        if self.has_integers && self.computes_integers(store) {
            return self.store_of_integers(store);
        }
        if of != ElementType::Word && mode == StoreMode::Accumulate {
            return Err(AssembleError::Narrow.into());
        }
        if self.copies_bits(store, of) {
            return self.copy_bits(store);
        }

        let is_narrowed = of == ElementType::Half;
        // The instruction set cannot round to this type in a store, so the rounding becomes steps.
        let narrowed = is_narrowed.then(|| Formula::narrowed(self.program.dtype(store.dst.buffer))).flatten();
        let widens = |expr: &Expr| self.widening(expr).is_some();
        let has_steps = narrowed.is_some() || !is_tree(&store.value) || store.value.any(&widens);
        let steps = has_steps.then_some(self.nest.values.len() as u32);
        let root = match steps {
            Some(from) => {
                let first = (first, from as usize);
                let value = self.steps(&store.value, first)?;
                narrowed.map_or(value, |formula| self.with_stored_operand(formula, value, first))
            }
            None => self.value(&store.value, first)?,
        };
        let dst = self.access_as(&store.dst, ElementFormat { group: 1, of })?;

        let LeafNest { nodes, values, elements, .. } = &mut self.nest;
        let in_memory = |element: &NestElement| matches!(element.place, ElementBase::Memory(_));
        // A product of two elements of memory is fused with the addition to its accumulator.
        let end = elements.len() as u32;
        nodes.push(match (dst.place, mode, values[root as usize].kind, &elements[first..]) {
            (ElementBase::Accumulators(_), StoreMode::Accumulate, ValueKind::Binary(Arithmetic::Mul, ..), [a, b])
                if in_memory(a) && in_memory(b) =>
            {
                NestNode::MulAdd { acc: end, factors: [end - 2, end - 1], by: Arithmetic::MulAdd }
            }
            // A plain copy needs no steps.
            (.., ValueKind::Input(_), _) => {
                NestNode::Store { dst: end, mode, value: ValueTree { root, inputs: (first as u32, end), steps: None } }
            }
            _ => NestNode::Store { dst: end, mode, value: ValueTree { root, inputs: (first as u32, end), steps } },
        });
        elements.push(dst);
        Ok(())
    }

    fn constant(&mut self, bits: u32, first: usize) -> u32 {
        self.input(NestElement { place: ElementBase::Constant(bits), constant: 0, terms: (0, 0) }, first)
    }

    /// Pushes a value of a tree whose inputs begin at `first`; returns its number.
    fn value(&mut self, value: &'p Expr, first: usize) -> Result<u32, Failure> {
        let (op, of) = match value {
            Expr::Const(value) => return Ok(self.constant(value.to_bits(), first)),
            Expr::Load(access) => {
                let element = self.access(access)?;
                return Ok(self.input(element, first));
            }
            Expr::Gather(_) => return Err(AssembleError::Gather.into()),
            Expr::Binary(BinaryOp::Add, of) => (Arithmetic::Add, of),
            Expr::Binary(BinaryOp::Mul, of) => (Arithmetic::Mul, of),
            Expr::Binary(BinaryOp::Max | BinaryOp::MaxNumber, of) => (Arithmetic::Max, of),
            _ => return Err(AssembleError::Gpu.into()),
        };
        let (a, b) = (self.value(&of[0], first)?, self.value(&of[1], first)?);
        // Sethi-Ullman number: operands with equal needs take one more register, since one must
        // hold its result meanwhile.
        let registers = match [a, b].map(|v| self.nest.values[v as usize].registers) {
            [a, b] if a == b => a + 1,
            [a, b] => a.max(b),
        };
        Ok(self.push_value(ValueKind::Binary(op, a, b), registers))
    }

    fn input(&mut self, element: NestElement, first: usize) -> u32 {
        let in_register = matches!(element.place, ElementBase::Accumulators(_));
        self.nest.elements.push(element);
        // An element of memory has to be loaded to a register. An accumulator is in one already.
        self.push_value(ValueKind::Input((self.nest.elements.len() - 1 - first) as u32), u8::from(!in_register))
    }

    fn push_value(&mut self, kind: ValueKind, registers: u8) -> u32 {
        self.nest.values.push(NestValue { kind, registers });
        self.nest.values.len() as u32 - 1
    }
}
