//! Stages: tasks, outer loops, and calls of leaves.
//!
//! Variables outside leaves live on the stack. A leaf is a subroutine that gets its pointers in registers and may change every
//! register but the stack pointer; leaves that do the same share one subroutine.

use iced_x86::{Code, Register};
use rustc_hash::FxHashMap;

use super::emit::{Address, Emitter, Goal, Shape};
use super::leaf::{Item, Leaf, Memory, Nest, Op, Place, Pointer, Value};
use super::{AssembleError, block};
use crate::affine::VarId;
use crate::program::{Node, Program, Scope, Stage, parallel_prefix};

/// Registers of a leaf's pointers, then of its loop counters; rax is free for anything.
const INTEGERS: [Register; 14] = [
    Register::RDI,
    Register::RSI,
    Register::RDX,
    Register::RCX,
    Register::R8,
    Register::R9,
    Register::R10,
    Register::R11,
    Register::RBX,
    Register::RBP,
    Register::R12,
    Register::R13,
    Register::R14,
    Register::R15,
];

/// Registers that a function must preserve.
const PRESERVED: [Register; 6] =
    [Register::RBX, Register::RBP, Register::R12, Register::R13, Register::R14, Register::R15];

/// The register of a leaf's pointer.
pub(super) fn pointer_register(pointer: usize) -> Register {
    INTEGERS[pointer]
}

/// Stack slots of eight bytes.
const TASK: usize = 0;
const TASKS_END: usize = 1;
const BEGIN: usize = 2;
const END: usize = 3;
const BUFFERS: usize = 4;

fn slot(number: usize) -> Address {
    Address { base: Register::RSP, disp: 8 * number as i32 }
}

pub(super) struct Generator<'p> {
    program: &'p Program,
    pub(super) emitter: Emitter,
    leaves: Vec<Leaf>,
    numbers: FxHashMap<Nest, usize>,
    /// Variables bound outside leaves, in the order of their slots.
    vars: Vec<VarId>,
}

impl<'p> Generator<'p> {
    pub(super) fn new(program: &'p Program, emitter: Emitter) -> Self {
        Self { program, emitter, leaves: Vec::new(), numbers: FxHashMap::default(), vars: Vec::new() }
    }

    /// Emits a stage and returns its offset.
    pub(super) fn stage(&mut self, stage: &'p Stage) -> Result<usize, AssembleError> {
        let entry = self.emitter.here();
        let slots = BUFFERS + self.program.buffers.len() + stage.body.iter().map(depth).max().unwrap_or(0);
        self.enter(8 * slots as i64);
        let mut first = 0;
        for node in &stage.body {
            first += self.tree(node, first)?;
        }
        self.emitter.add(Register::RSP, 8 * slots as i64);
        PRESERVED.iter().rev().for_each(|&r| self.emitter.unary(Code::Pop_r64, r));
        self.emitter.plain(Code::VEX_Vzeroupper);
        self.emitter.plain(Code::Retnq);
        Ok(entry)
    }

    /// Saves registers and arguments: the range of tasks, and a pointer per buffer.
    fn enter(&mut self, frame: i64) {
        let e = &mut self.emitter;
        PRESERVED.iter().for_each(|&r| e.unary(Code::Push_r64, r));
        e.add(Register::RSP, -frame);
        e.write(slot(BEGIN), Register::RDX);
        e.write(slot(END), Register::RCX);
        for (i, buffer) in self.program.buffers.iter().enumerate() {
            match buffer.scope {
                Scope::Global => {
                    let at = Address { base: Register::RDI, disp: 8 * i as i32 };
                    e.with_memory(Code::Mov_r64_rm64, Register::RAX, at);
                    e.write(slot(BUFFERS + i), Register::RAX);
                }
                Scope::Local => {
                    e.write(slot(BUFFERS + i), Register::RSI);
                    e.add(Register::RSI, (buffer.len() as i64 * 4 + 63) / 64 * 64);
                }
                Scope::Shared | Scope::Register => {}
            }
        }
    }

    /// The tasks of a top-level tree, the first of which has number `first`; returns how many there are.
    fn tree(&mut self, node: &'p Node, first: usize) -> Result<usize, AssembleError> {
        let loops = parallel_prefix(node);
        let count: usize = loops.iter().map(|l| l.extent).product();
        self.clamp(BEGIN, TASK, first as i64, Code::Cmovl_r64_rm64);
        self.clamp(END, TASKS_END, (first + count) as i64, Code::Cmovg_r64_rm64);
        let to_check = self.emitter.branch(Code::Jmp_rel32_64, Goal::Code(0));
        let top = self.emitter.here();
        let e = &mut self.emitter;
        e.with_memory(Code::Mov_r64_rm64, Register::RAX, slot(TASK));
        e.add(Register::RAX, -(first as i64));
        self.vars = loops.iter().map(|l| l.var).collect();
        for (i, l) in loops.iter().enumerate().rev() {
            let e = &mut self.emitter;
            e.binary(Code::Xor_r32_rm32, Register::EDX, Register::EDX);
            e.set(Register::RCX, l.extent as i64);
            e.unary(Code::Div_rm64, Register::RCX);
            e.write(slot(BUFFERS + self.program.buffers.len() + i), Register::RDX);
        }
        self.nodes(loops.last().map_or(std::slice::from_ref(node), |l| l.body.as_slice()))?;
        self.advance(TASK);
        self.emitter.aim(to_check);
        self.emitter.with_memory(Code::Mov_r64_rm64, Register::RAX, slot(TASK));
        self.emitter.with_memory(Code::Cmp_r64_rm64, Register::RAX, slot(TASKS_END));
        self.emitter.branch_back(Code::Jl_rel32_64, top);
        Ok(count)
    }

    /// `[to] = [from]`, or `limit` where `beyond` holds of the two.
    fn clamp(&mut self, from: usize, to: usize, limit: i64, beyond: Code) {
        let e = &mut self.emitter;
        e.with_memory(Code::Mov_r64_rm64, Register::RAX, slot(from));
        e.set(Register::RCX, limit);
        e.binary(Code::Cmp_r64_rm64, Register::RAX, Register::RCX);
        e.binary(beyond, Register::RAX, Register::RCX);
        e.write(slot(to), Register::RAX);
    }

    fn advance(&mut self, number: usize) {
        self.emitter.with_memory(Code::Mov_r64_rm64, Register::RAX, slot(number));
        self.emitter.add(Register::RAX, 1);
        self.emitter.write(slot(number), Register::RAX);
    }

    fn nodes(&mut self, nodes: &'p [Node]) -> Result<(), AssembleError> {
        nodes.iter().try_for_each(|node| match node {
            Node::Alloc { buffer, body } if self.program.buffer(*buffer).scope != Scope::Register => self.nodes(body),
            Node::Loop(l) if l.body.iter().any(has_alloc) => {
                let number = self.var_slot(self.vars.len());
                self.vars.push(l.var);
                self.emitter.write_value(slot(number), 0);
                let top = self.emitter.here();
                self.nodes(&l.body)?;
                self.advance(number);
                self.emitter.set(Register::RCX, l.extent as i64);
                self.emitter.binary(Code::Cmp_r64_rm64, Register::RAX, Register::RCX);
                self.emitter.branch_back(Code::Jl_rel32_64, top);
                self.vars.pop();
                Ok(())
            }
            _ => self.call(node),
        })
    }

    fn var_slot(&self, position: usize) -> usize {
        BUFFERS + self.program.buffers.len() + position
    }

    /// Computes a leaf's pointers and calls it.
    fn call(&mut self, node: &Node) -> Result<(), AssembleError> {
        let (nest, pointers) = Nest::of(self.program, node)?;
        let number = match self.numbers.get(&nest) {
            Some(&number) => number,
            None => {
                let leaf = nest.expand(self.program, usize::from(self.emitter.lanes()))?;
                check(&leaf, self.emitter.isa.vector_registers())?;
                self.leaves.push(leaf);
                self.numbers.insert(nest, self.leaves.len() - 1);
                self.leaves.len() - 1
            }
        };
        for (i, pointer) in pointers.iter().enumerate() {
            self.point(pointer_register(i), pointer);
        }
        self.emitter.branch(Code::Call_rel32_64, Goal::Leaf(number));
        Ok(())
    }

    fn point(&mut self, register: Register, pointer: &Pointer) {
        let buffer = slot(BUFFERS + pointer.buffer.0 as usize);
        self.emitter.with_memory(Code::Mov_r64_rm64, register, buffer);
        for &(var, coefficient) in &pointer.base.terms {
            if let Some(position) = self.vars.iter().rposition(|&v| v == var) {
                let at = slot(self.var_slot(position));
                self.emitter.add_scaled(register, at, coefficient * 4);
            }
        }
        self.emitter.add(register, pointer.base.constant * 4);
    }

    /// Emits the leaves that were called and returns their offsets.
    pub(super) fn leaves(&mut self) -> Result<Vec<usize>, AssembleError> {
        let leaves = std::mem::take(&mut self.leaves);
        leaves.iter().map(|leaf| emit_leaf(&mut self.emitter, leaf)).collect()
    }
}

/// Loops around the innermost node, at most.
fn depth(node: &Node) -> usize {
    usize::from(matches!(node, Node::Loop(_))) + node.body().iter().map(depth).max().unwrap_or(0)
}

fn has_alloc(node: &Node) -> bool {
    matches!(node, Node::Alloc { .. }) || node.body().iter().any(has_alloc)
}

/// Fails where the leaf needs more registers than there are. Two vectors hold what is being computed.
fn check(leaf: &Leaf, vectors: usize) -> Result<(), AssembleError> {
    let needed = leaf.accumulators + 2;
    if needed > vectors {
        return Err(AssembleError::RegisterTile { needed, available: vectors });
    }
    let needed = leaf.pointers + leaf.items.iter().map(loops).max().unwrap_or(0);
    if needed > INTEGERS.len() {
        return Err(AssembleError::Pointers { needed, available: INTEGERS.len() });
    }
    Ok(())
}

fn loops(item: &Item) -> usize {
    match item {
        Item::Block(_) => 0,
        Item::Loop { body, .. } => 1 + body.iter().map(loops).max().unwrap_or(0),
    }
}

fn emit_leaf(emitter: &mut Emitter, leaf: &Leaf) -> Result<usize, AssembleError> {
    let entry = emitter.here();
    let mut parts = Vec::new();
    leaf.items.iter().for_each(|item| partial_vectors(item, emitter.lanes(), &mut parts));
    emitter.set_masks(parts);
    emit_items(emitter, leaf, &leaf.items, leaf.pointers)?;
    emitter.plain(Code::Retnq);
    Ok(entry)
}

/// Emits items whose loops count in the registers from `counter` on.
fn emit_items(e: &mut Emitter, leaf: &Leaf, items: &[Item], counter: usize) -> Result<(), AssembleError> {
    for item in items {
        match item {
            Item::Block(ops) => block::emit(e, ops, leaf.accumulators)?,
            Item::Loop { extent, steps, body } => {
                let register = INTEGERS[counter];
                e.set(register, *extent as i64);
                let top = e.here();
                emit_items(e, leaf, body, counter + 1)?;
                steps.iter().for_each(|&(p, bytes)| e.add(pointer_register(p), bytes));
                e.unary(Code::Dec_rm64, register);
                e.branch_back(Code::Jne_rel32_64, top);
                steps.iter().for_each(|&(p, bytes)| e.add(pointer_register(p), -bytes * *extent as i64));
            }
        }
    }
    Ok(())
}

/// Collects the numbers of lanes other than `whole` that an item loads or stores.
fn partial_vectors(item: &Item, whole: u8, parts: &mut Vec<u8>) {
    let mut add = |memory: &Memory| {
        if let Shape::Lanes(n) | Shape::Strided { lanes: n, .. } = memory.shape
            && n != whole
            && !parts.contains(&n)
        {
            parts.push(n);
        }
    };
    match item {
        Item::Loop { body, .. } => body.iter().for_each(|i| partial_vectors(i, whole, parts)),
        Item::Block(ops) => ops.iter().for_each(|op| match op {
            Op::MulAdd { a, b, .. } => [a, b].into_iter().for_each(&mut add),
            Op::Set { value, .. } => for_each_load(value, &mut add),
            Op::Store { dst, value, .. } => {
                add(dst);
                for_each_load(value, &mut add);
            }
            Op::Prefetch(_) => {}
        }),
    }
}

fn for_each_load(value: &Value<Place>, visit: &mut impl FnMut(&Memory)) {
    match value {
        Value::Load(Place::Accumulator(_)) | Value::Constant(_) => {}
        Value::Load(Place::Memory(memory)) => visit(memory),
        Value::Add(a, b) | Value::Mul(a, b) | Value::Max(a, b) => {
            for_each_load(a, visit);
            for_each_load(b, visit);
        }
    }
}
