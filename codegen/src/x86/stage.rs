//! Stages: tasks, outer loops, and calls of leaves.
//!
//! Variables outside leaves live on the stack. A leaf is a subroutine that gets its pointers in registers and may change every
//! register but the stack pointer; leaves that do the same share one subroutine.

use std::ops::Range;
use std::rc::Rc;

use rustc_hash::FxHashMap;

use super::emit::{Emitter, Order};
use super::encode::{Address, Integer};
use super::leaf::{Expander, Item, Leaf};
use super::nest::{Nest, Resolver};
use super::plan::Plan;
use super::{AssembleError, Failure, block};
use autotune_ir::affine::VarId;
use autotune_ir::program::{Node, Program, Scope, Stage, parallel_prefix};

/// Registers of a leaf's pointers, then of its loop counters; rax is free for anything.
pub(super) const INTEGERS: [Integer; 14] = [
    Integer::Rdi,
    Integer::Rsi,
    Integer::Rdx,
    Integer::Rcx,
    Integer::R8,
    Integer::R9,
    Integer::R10,
    Integer::R11,
    Integer::Rbx,
    Integer::Rbp,
    Integer::R12,
    Integer::R13,
    Integer::R14,
    Integer::R15,
];

/// Registers that a function must preserve.
const PRESERVED: [Integer; 6] = [Integer::Rbx, Integer::Rbp, Integer::R12, Integer::R13, Integer::R14, Integer::R15];

/// The register of a leaf's pointer.
pub(super) fn pointer_register(pointer: u8) -> Integer {
    INTEGERS[usize::from(pointer)]
}

/// Stack slots of eight bytes; behind them those of the variables outside leaves, then those of the buffers.
const TASK: usize = 0;
const TASKS_END: usize = 1;
const BEGIN: usize = 2;
const END: usize = 3;
const VARS: usize = 4;

fn slot(number: usize) -> Address {
    Address { base: Integer::Rsp, disp: 8 * number as i32 }
}

pub(super) struct Generator<'p> {
    program: &'p Program,
    pub(super) emitter: Emitter,
    resolver: Resolver<'p>,
    /// Leaves that are called, and their numbers; where those are that were emitted, the first ones.
    leaves: Vec<Rc<Nest>>,
    offsets: Vec<usize>,
    numbers: FxHashMap<Rc<Nest>, usize>,
    /// Variables bound outside leaves, in the order of their slots, and how many slots they have.
    vars: Vec<VarId>,
    var_slots: usize,
}

impl<'p> Generator<'p> {
    pub(super) fn new(program: &'p Program, emitter: Emitter) -> Self {
        let (leaves, offsets, numbers) = (Vec::new(), Vec::new(), FxHashMap::default());
        Self {
            program,
            emitter,
            resolver: Resolver::new(program),
            leaves,
            offsets,
            numbers,
            vars: Vec::new(),
            var_slots: 0,
        }
    }

    /// Emits a stage, and behind it those leaves that no stage before it calls, and returns its offset. What is emitted for the
    /// first stage depends on nothing of the others.
    pub(super) fn stage(&mut self, stage: &'p Stage) -> Result<usize, Failure> {
        let entry = self.emitter.code.here();
        self.var_slots = stage.body.iter().map(loops_outside).max().unwrap_or(0);
        let buffers = self.buffers_of(stage);
        let slots = self.buffer_slot(buffers.last().map_or(0, |&last| last + 1));
        self.enter(8 * slots as i64, &buffers);
        let mut first = 0;
        for node in &stage.body {
            first += self.tree(node, first)?;
        }
        self.emitter.add(Integer::Rsp, 8 * slots as i64);
        PRESERVED.iter().rev().for_each(|&r| self.emitter.pop(r));
        self.emitter.clear_upper();
        self.emitter.ret();
        self.new_leaves()?;
        Ok(entry)
    }

    /// The buffers that a stage may use: the global ones, and what it allocates of thread-private memory.
    fn buffers_of(&self, stage: &Stage) -> Vec<usize> {
        let mut allocated = vec![false; self.program.buffers.len()];
        note_allocated(&stage.body, &mut allocated);
        let is_used = |&i: &usize| match self.program.buffers[i].scope {
            Scope::Global => true,
            Scope::Local => allocated[i],
            Scope::Shared | Scope::Register => false,
        };
        (0..allocated.len()).filter(is_used).collect()
    }

    /// Saves registers and arguments: the range of tasks, and a pointer to each of these buffers.
    fn enter(&mut self, frame: i64, buffers: &[usize]) {
        let first_slot = self.buffer_slot(0);
        let e = &mut self.emitter;
        PRESERVED.iter().for_each(|&r| e.push(r));
        e.add(Integer::Rsp, -frame);
        e.write(slot(BEGIN), Integer::Rdx);
        e.write(slot(END), Integer::Rcx);
        for &i in buffers {
            let buffer = &self.program.buffers[i];
            if buffer.scope == Scope::Global {
                let at = Address { base: Integer::Rdi, disp: 8 * i as i32 };
                e.read(Integer::Rax, at);
                e.write(slot(first_slot + i), Integer::Rax);
            } else {
                e.write(slot(first_slot + i), Integer::Rsi);
                e.add(Integer::Rsi, (buffer.len() as i64 * 4 + 63) / 64 * 64);
            }
        }
    }

    /// The tasks of a top-level tree, the first of which has number `first`; returns how many there are.
    fn tree(&mut self, node: &'p Node, first: usize) -> Result<usize, Failure> {
        let loops = parallel_prefix(node);
        let count: usize = loops.iter().map(|l| l.extent).product();
        self.clamp(BEGIN, TASK, first as i64, Order::Less);
        self.clamp(END, TASKS_END, (first + count) as i64, Order::Greater);
        let to_check = self.emitter.jump();
        let top = self.emitter.code.here();
        self.emitter.read(Integer::Rax, slot(TASK));
        self.emitter.add(Integer::Rax, -(first as i64));
        self.vars.clear();
        self.vars.extend(loops.iter().map(|l| l.var));
        for (i, l) in loops.iter().enumerate().rev() {
            self.emitter.divide(l.extent as i64);
            self.emitter.write(slot(VARS + i), Integer::Rdx);
        }
        self.nodes(loops.last().map_or(std::slice::from_ref(node), |l| l.body.as_slice()))?;
        self.advance(TASK);
        self.emitter.aim(to_check);
        self.emitter.read(Integer::Rax, slot(TASK));
        self.emitter.compare(slot(TASKS_END));
        self.emitter.jump_back(Order::Less, top);
        Ok(count)
    }

    /// `[to] = [from]`, or `limit` where `[from]` is beyond it in this order.
    fn clamp(&mut self, from: usize, to: usize, limit: i64, beyond: Order) {
        let e = &mut self.emitter;
        e.read(Integer::Rax, slot(from));
        e.set(Integer::Rcx, limit);
        e.compare(Integer::Rcx);
        e.move_if(beyond, Integer::Rcx);
        e.write(slot(to), Integer::Rax);
    }

    fn advance(&mut self, number: usize) {
        self.emitter.read(Integer::Rax, slot(number));
        self.emitter.add(Integer::Rax, 1);
        self.emitter.write(slot(number), Integer::Rax);
    }

    fn nodes(&mut self, nodes: &'p [Node]) -> Result<(), Failure> {
        nodes.iter().try_for_each(|node| match node {
            Node::Alloc { buffer, body } if self.program.buffer(*buffer).scope != Scope::Register => self.nodes(body),
            Node::Loop(l) if l.body.iter().any(has_alloc) => {
                let number = VARS + self.vars.len();
                self.vars.push(l.var);
                self.emitter.write_value(slot(number), 0);
                let top = self.emitter.code.here();
                self.nodes(&l.body)?;
                self.advance(number);
                self.emitter.set(Integer::Rcx, l.extent as i64);
                self.emitter.compare(Integer::Rcx);
                self.emitter.jump_back(Order::Less, top);
                self.vars.pop();
                Ok(())
            }
            _ => self.call(node),
        })
    }

    fn buffer_slot(&self, buffer: usize) -> usize {
        VARS + self.var_slots + buffer
    }

    /// Computes a leaf's pointers and calls it.
    fn call(&mut self, node: &'p Node) -> Result<(), Failure> {
        self.resolver.resolve(&self.vars, node)?;
        let nest = &self.resolver.nest;
        let number = match self.numbers.get(nest) {
            Some(&number) => number,
            None => {
                let (nest, number) = (Rc::new(nest.clone()), self.leaves.len());
                self.leaves.push(Rc::clone(&nest));
                self.numbers.insert(nest, number);
                number
            }
        };
        for (pointer, &register) in self.resolver.pointers.iter().zip(&INTEGERS) {
            let at = slot(self.buffer_slot(pointer.buffer.0 as usize));
            self.emitter.read(register, at);
            for &(var, coefficient) in &pointer.base.terms {
                if let Some(position) = self.vars.iter().rposition(|&v| v == var) {
                    self.emitter.add_scaled(register, slot(VARS + position), coefficient * 4);
                }
            }
            self.emitter.add(register, pointer.base.constant * 4);
        }
        self.emitter.call(number);
        Ok(())
    }

    /// Emits the leaves that were not emitted yet.
    fn new_leaves(&mut self) -> Result<(), Failure> {
        let mut expander = Expander::new(self.program, usize::from(self.emitter.lanes()));
        let mut plan = Plan::default();
        for nest in &self.leaves[self.offsets.len()..] {
            expander.expand(nest)?;
            let mut leaf = LeafEmitter { emitter: &mut self.emitter, plan: &mut plan, nest, leaf: &expander.leaf };
            self.offsets.push(leaf.emit()?);
        }
        Ok(())
    }

    /// The code with every call resolved, constants behind it, and the length without them.
    pub(super) fn finish(self) -> Result<(Vec<u8>, usize), Failure> {
        self.emitter.code.finish(&self.offsets)
    }
}

/// No fewer loops than are ever around a leaf of a tree; without a walk through most leaves.
fn loops_outside(node: &Node) -> usize {
    match node {
        Node::Alloc { body, .. } => body.iter().filter(|n| has_alloc(n)).map(loops_outside).max().unwrap_or(0),
        _ => usize::from(matches!(node, Node::Loop(_))) + node.body().iter().map(loops_outside).max().unwrap_or(0),
    }
}

/// Marks the buffers that nodes allocate.
fn note_allocated(nodes: &[Node], allocated: &mut [bool]) {
    for node in nodes {
        if let Node::Alloc { buffer, .. } = node {
            allocated[buffer.0 as usize] = true;
        }
        note_allocated(node.body(), allocated);
    }
}

fn has_alloc(node: &Node) -> bool {
    matches!(node, Node::Alloc { .. }) || node.body().iter().any(has_alloc)
}

struct LeafEmitter<'g> {
    emitter: &'g mut Emitter,
    plan: &'g mut Plan,
    nest: &'g Nest,
    leaf: &'g Leaf,
}

impl LeafEmitter<'_> {
    /// Emits the leaf and returns its offset.
    fn emit(&mut self) -> Result<usize, Failure> {
        self.check()?;
        let entry = self.emitter.code.here();
        self.emitter.set_masks(&self.leaf.parts);
        self.items(0..self.leaf.items.len(), self.nest.pointers.len())?;
        self.emitter.ret();
        Ok(entry)
    }

    /// Fails where the leaf needs more registers than there are. Two vectors hold what is being computed.
    fn check(&self) -> Result<(), Failure> {
        let (needed, available) = (self.leaf.accumulators.len() + 2, self.emitter.isa.vector_registers());
        if needed > available {
            return Err(AssembleError::RegisterTile { needed, available }.into());
        }
        let needed = self.nest.pointers.len() + self.loops(0..self.leaf.items.len());
        if needed > INTEGERS.len() {
            return Err(AssembleError::Pointers { needed, available: INTEGERS.len() }.into());
        }
        Ok(())
    }

    /// Loops around the innermost of some items, at most.
    fn loops(&self, range: Range<usize>) -> usize {
        let inside = |i: usize| match self.leaf.items[i] {
            Item::Block { .. } => 0,
            Item::Loop { end, .. } => 1 + self.loops(i + 1..end),
        };
        range.map(inside).max().unwrap_or(0)
    }

    /// Emits items whose loops count in the registers from `counter` on.
    fn items(&mut self, range: Range<usize>, counter: usize) -> Result<(), Failure> {
        let mut at = range.start;
        while at < range.end {
            match &self.leaf.items[at] {
                Item::Block { ops, sources } => {
                    let Leaf { inputs, accumulators, .. } = self.leaf;
                    let (ops, sources) = (&self.leaf.ops[ops.clone()], &self.leaf.sources[sources.clone()]);
                    let code =
                        block::Code { ops, sources, inputs, values: &self.nest.values, pointers: &self.nest.pointers };
                    block::emit(self.emitter, code, accumulators.len(), self.plan)?;
                    at += 1;
                }
                &Item::Loop { var, extent, end } => {
                    let register = INTEGERS[counter];
                    self.emitter.set(register, extent as i64);
                    let top = self.emitter.code.here();
                    self.items(at + 1..end, counter + 1)?;
                    self.step(var, 1);
                    self.emitter.decrement(register);
                    self.emitter.jump_back(Order::NotEqual, top);
                    self.step(var, -(extent as i64));
                    at = end;
                }
            }
        }
        Ok(())
    }

    /// Advances the pointers by so many iterations of a loop.
    fn step(&mut self, var: u32, iterations: i64) {
        for step in self.nest.steps.iter().filter(|s| s.var == var) {
            self.emitter.add(pointer_register(step.pointer), step.elements * 4 * iterations);
        }
    }
}
