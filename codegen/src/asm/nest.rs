//! A leaf's loop nest with every access resolved to a pointer and what is added to it.

use std::hash::{Hash, Hasher};

use smallvec::SmallVec;

use super::error::{AssembleError, Failure};
use super::instruction_set::{Arithmetic, Dots, ElementType};
use autotune_ir::affine::{Affine, VarId};
use autotune_ir::formula::{Formula, Primitive};
use autotune_ir::instruction::{Dot, Instruction};
use autotune_ir::program::{self, BinaryOp, BufferId, Expr, LoopKind, Program, StoreMode};

mod access;
mod integers;
mod steps;

/// Elements of `buffer` from `base` on, affine in the variables outside.
pub(super) struct Pointer {
    pub(super) buffer: BufferId,
    /// Size and type in which its elements are read and written.
    of: Elements,
    pub(super) base: Affine,
    /// Serial variables around its accesses, and by how many elements it advances with each.
    steps: Steps,
}

type Steps = SmallVec<[(u32, i64); 8]>;

/// Size and type in which elements of a buffer are read and written.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Elements {
    /// Elements of the buffer that are read as one, a word of 32 bits if there are several. Offsets
    /// count these.
    group: usize,
    of: ElementType,
}

impl Pointer {
    /// False if it advances with some variable in another way.
    fn goes_along(&self, steps: &Steps) -> bool {
        let step_of = |var: u32| steps.iter().find(|step| step.0 == var);
        self.steps.iter().all(|known| step_of(known.0).is_none_or(|step| step.1 == known.1))
    }
}

/// A leaf before loops are written out. Leaves that differ only in their pointers are equal.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Nest {
    /// Every loop before what is within.
    pub(super) nodes: Vec<Node>,
    /// The values of stores, the operands of each before it.
    pub(super) values: Vec<Value>,
    /// What is read and written: the inputs of each value from left to right, then where it goes.
    pub(super) elements: Vec<Element>,
    /// Terms of all elements: a variable's number and a coefficient in elements.
    pub(super) terms: Vec<(u32, i64)>,
    /// How pointers advance with the serial loops around their accesses, by zero as well.
    pub(super) steps: Vec<Advance>,
    /// The buffer of each pointer, and what its elements are.
    pub(super) pointers: Vec<BufferId>,
    pub(super) types: Vec<ElementType>,
    /// Number of variables, which are numbered in order of appearance.
    pub(super) vars: usize,
}

impl Nest {
    /// True if some element is found by a value.
    pub(super) fn fetches(&self) -> bool {
        self.values.iter().any(|value| matches!(value.kind, Kind::Fetch(_)))
    }

    /// True if some value is computed in steps.
    pub(super) fn has_steps(&self) -> bool {
        self.nodes.iter().any(|node| matches!(node, Node::Store { value, .. } if value.steps.is_some()))
    }
}

impl Hash for Nest {
    /// Of what mostly differs.
    fn hash<H: Hasher>(&self, state: &mut H) {
        [self.nodes.len(), self.values.len(), self.elements.len()].hash(state);
        self.terms.hash(state);
        self.steps.hash(state);
    }
}

/// A node of a nest; elements and variables are numbers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Node {
    /// A loop over the nodes from here to `end`.
    Loop { var: u32, extent: usize, kind: LoopKind, end: usize },
    /// Accumulator += product of two elements of memory, by the operation `by`.
    MulAdd { acc: u32, factors: [u32; 2], by: Arithmetic },
    /// Element = value, or += value.
    Store { dst: u32, mode: StoreMode, value: Tree },
    /// A hint that memory is read soon.
    Prefetch(u32),
}

/// A value with its operands: the number of the last value, and where its inputs begin and end.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Tree {
    pub(super) root: u32,
    pub(super) inputs: (u32, u32),
    /// The first value, if all of them are computed one after the other, as steps that others may
    /// share.
    pub(super) steps: Option<u32>,
}

/// A value and the registers that it takes to evaluate, besides accumulators (Sethi and Ullman,
/// "The generation of optimal code for arithmetic expressions", 1970).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Value {
    pub(super) kind: Kind,
    pub(super) registers: u8,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The input of this number of the tree.
    Input(u32),
    /// What an operation makes of two values.
    Binary(Arithmetic, u32, u32),
    /// A step: what a primitive makes of values before it; those that it does not have are zero.
    Step(Primitive, [u32; Primitive::MOST_OPERANDS]),
    /// A step: an input in a register, for others that need it several times.
    Own([u32; 1]),
    /// A step: a value as an integer's bits, without its fraction.
    Whole([u32; 1]),
    /// A step: the element behind an input at the distance, in elements, that the second value's
    /// bits are.
    Fetch([u32; 2]),
}

impl Kind {
    /// The values that a step needs.
    pub(super) fn operands(&self) -> &[u32] {
        match self {
            Kind::Input(_) | Kind::Binary(..) => &[],
            Kind::Step(primitive, of) => &of[..primitive.operands()],
            Kind::Own(of) | Kind::Whole(of) => of,
            Kind::Fetch(of) => of,
        }
    }
}

/// An element: a constant and terms of unrolled and vectorised variables, in elements behind where
/// its place begins.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Element {
    pub(super) place: Place,
    pub(super) constant: i64,
    /// Where its terms begin and end.
    pub(super) terms: (u32, u32),
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    /// None: it is a constant, with the bits of an f32.
    Constant(u32),
    /// A buffer of register scope.
    Accumulators(BufferId),
    /// Behind the pointer of this number.
    Memory(u8),
}

/// By how many elements a pointer advances in each iteration of a loop.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Advance {
    pub(super) pointer: u8,
    pub(super) var: u32,
    pub(super) elements: i64,
}

/// A variable around the present node.
struct Scoped {
    var: VarId,
    binding: Binding,
    /// Its coefficient in the present access.
    coefficient: i64,
}

/// What a variable is to a leaf, and its number inside.
#[derive(Clone, Copy)]
enum Binding {
    Outside,
    Serial(u32),
    /// Unrolled or vectorised.
    Written(u32),
}

/// Operations of one instruction of a set that take several steps on others: products with powers
/// of two, rounding to f16 and bf16.
#[derive(Clone)]
pub(super) struct Offers {
    pub(super) scales: bool,
    pub(super) rounds_to_f16: bool,
    pub(super) rounds_to_bf16: bool,
    pub(super) dots: Dots,
}

impl Offers {
    /// Returns the operation that does an instruction of programs, if there is one.
    fn of(&self, instruction: &Instruction) -> Option<Arithmetic> {
        self.dots.iter().find(|(known, _)| *known == instruction).map(|(_, by)| *by)
    }
}

/// Resolves one nest after the other.
pub(super) struct Resolver<'p> {
    program: &'p Program,
    /// Registers for pointers and counters.
    integers: usize,
    offers: Offers,
    /// True if some buffer holds integers.
    has_integers: bool,
    /// Variables around the present node, outermost first.
    scope: Vec<Scoped>,
    pub(super) nest: Nest,
    pub(super) pointers: Vec<Pointer>,
}

/// True for sums, products and maxima only, which a tree of values is evaluated as.
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
        Self { program, integers, offers, has_integers, scope, nest: Nest::default(), pointers: Vec::new() }
    }

    /// Makes the nest of a node within loops over `vars`, and the pointers that it is to be given.
    pub(super) fn resolve(&mut self, vars: &[VarId], node: &'p program::Node) -> Result<(), Failure> {
        let Nest { nodes, values, elements, terms, steps, pointers, types, vars: count } = &mut self.nest;
        nodes.clear();
        values.clear();
        elements.clear();
        terms.clear();
        steps.clear();
        pointers.clear();
        types.clear();
        *count = 0;
        self.pointers.clear();
        self.scope.clear();
        self.scope.extend(vars.iter().map(|&var| Scoped { var, binding: Binding::Outside, coefficient: 0 }));

        self.node(node)?;
        for (i, pointer) in self.pointers.iter().enumerate() {
            let step = |&(var, elements): &(u32, i64)| Advance { pointer: i as u8, var, elements };
            self.nest.steps.extend(pointer.steps.iter().map(step));
            self.nest.pointers.push(pointer.buffer);
            self.nest.types.push(pointer.of.of);
        }
        Ok(())
    }

    fn node(&mut self, node: &'p program::Node) -> Result<(), Failure> {
        match node {
            program::Node::Alloc { body, .. } => body.iter().try_for_each(|node| self.node(node)),
            program::Node::Loop(l) => self.repeat(l),
            program::Node::Store(store) => self.store(store),
            program::Node::Prefetch { access, ahead } => {
                let mut element = self.access(access)?;
                element.constant += *ahead as i64;
                self.nest.nodes.push(Node::Prefetch(self.nest.elements.len() as u32));
                self.nest.elements.push(element);
                Ok(())
            }
            program::Node::Call { instruction, body } => match self.offers.of(instruction).zip(Dot::of(body)) {
                Some((by, dot)) => self.dot(by, &dot),
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

    /// A dot product, whose steps are one word of each factor.
    fn dot(&mut self, by: Arithmetic, dot: &Dot<'p>) -> Result<(), Failure> {
        let statement = |this: &mut Self| {
            for factor in dot.factors {
                let words = Elements { group: dot.steps.extent, of: ElementType::Word };
                let word = this.access_as(factor, words)?;
                this.nest.elements.push(word);
            }
            let (acc, end) = (this.access(&dot.store.dst)?, this.nest.elements.len() as u32);
            this.nest.elements.push(acc);
            this.nest.nodes.push(Node::MulAdd { acc: end, factors: [end - 2, end - 1], by });
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
        let binding = if is_serial { Binding::Serial(var) } else { Binding::Written(var) };

        let at = self.nest.nodes.len();
        self.nest.nodes.push(Node::Prefetch(0));
        self.scope.push(Scoped { var: l.var, binding, coefficient: 0 });
        body(self)?;
        self.scope.pop();
        self.nest.nodes[at] = Node::Loop { var, extent: l.extent, kind: l.kind, end: self.nest.nodes.len() };
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
        let narrowed = is_narrowed.then(|| Formula::narrowed(self.program.dtype(store.dst.buffer))).flatten();
        let widens = |expr: &Expr| self.widening(expr).is_some();
        let has_steps = narrowed.is_some() || !is_tree(&store.value) || store.value.any(&widens);
        let steps = has_steps.then_some(self.nest.values.len() as u32);
        let root = match steps {
            Some(from) => {
                let first = (first, from as usize);
                let value = self.steps(&store.value, first)?;
                narrowed.map_or(value, |formula| self.with_own(formula, value, first))
            }
            None => self.value(&store.value, first)?,
        };
        let dst = self.access_as(&store.dst, Elements { group: 1, of })?;

        let Nest { nodes, values, elements, .. } = &mut self.nest;
        let in_memory = |element: &Element| matches!(element.place, Place::Memory(_));
        let end = elements.len() as u32;
        nodes.push(match (dst.place, mode, values[root as usize].kind, &elements[first..]) {
            (Place::Accumulators(_), StoreMode::Accumulate, Kind::Binary(Arithmetic::Mul, ..), [a, b])
                if in_memory(a) && in_memory(b) =>
            {
                Node::MulAdd { acc: end, factors: [end - 2, end - 1], by: Arithmetic::MulAdd }
            }
            (.., Kind::Input(_), _) => {
                Node::Store { dst: end, mode, value: Tree { root, inputs: (first as u32, end), steps: None } }
            }
            _ => Node::Store { dst: end, mode, value: Tree { root, inputs: (first as u32, end), steps } },
        });
        elements.push(dst);
        Ok(())
    }

    fn constant(&mut self, bits: u32, first: usize) -> u32 {
        self.input(Element { place: Place::Constant(bits), constant: 0, terms: (0, 0) }, first)
    }

    /// The number of a value of a tree whose inputs begin at `first`.
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
        let registers = match [a, b].map(|v| self.nest.values[v as usize].registers) {
            [a, b] if a == b => a + 1,
            [a, b] => a.max(b),
        };
        Ok(self.push_value(Kind::Binary(op, a, b), registers))
    }

    fn input(&mut self, element: Element, first: usize) -> u32 {
        let in_register = matches!(element.place, Place::Accumulators(_));
        self.nest.elements.push(element);
        self.push_value(Kind::Input((self.nest.elements.len() - 1 - first) as u32), u8::from(!in_register))
    }

    fn push_value(&mut self, kind: Kind, registers: u8) -> u32 {
        self.nest.values.push(Value { kind, registers });
        self.nest.values.len() as u32 - 1
    }
}
