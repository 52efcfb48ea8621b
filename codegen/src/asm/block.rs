//! Straight-line code of one block, with register allocation.
//!
//! The first registers hold accumulators. The others hold loaded values and constants. If none is
//! free, the one whose next use is farthest is evicted (Belady, "A study of replacement algorithms
//! for a virtual-storage computer", 1966). The next use is known, because nothing branches. A value
//! that is not worth a register becomes a memory operand if the instruction set allows it.

use smallvec::SmallVec;

use super::error::{AssembleError, Failure};
use super::instruction_set::{Arithmetic, ArithmeticOperand, ElementType, MAX_REGISTERS, Shape, Vector, Vectors};
use super::interleave::Interleave;
use super::leaf::{self, BlockOp, LeafInput, LeafSource, MemoryAccess};
use super::nest::{ValueKind, ValueTree};
use super::plan::{EmitOrder, NONE};
use super::transpose;
use autotune_ir::program::StoreMode;

mod combine;
mod registers;
mod steps;
pub(super) use steps::WANTED;
mod store;
mod words;

/// Parameters that all blocks of a leaf share.
#[derive(Clone, Copy)]
pub(super) struct Common {
    /// Number of registers for partial sums and shared values.
    pub(super) accumulators: usize,
    /// An integer register for addresses of gathers.
    pub(super) scratch: u8,
    /// Bit set of the pointers whose stores of whole vectors stream past the caches.
    pub(super) streamed: u32,
}

/// Emits the instructions of a block.
pub(super) fn emit(
    isa: &mut impl Vectors,
    code: leaf::Block,
    Common { accumulators, scratch, streamed }: Common,
    plan: &mut EmitOrder,
) -> Result<(), Failure> {
    plan.make(code);
    let mut block = BlockEmitter {
        code,
        inputs: &[],
        at: 0,
        temps: [Temp::FREE; MAX_REGISTERS],
        first: accumulators as u8,
        end: isa.registers() as u8,
        free: (((1u64 << isa.registers()) - 1) & !((1u64 << accumulators) - 1)) as u32,
        isa,
        plan,
        scratch,
        streamed,
        slots: 0,
    };

    // By operation: true if it was emitted together with an earlier one.
    let mut done: Vec<bool> = Vec::new();
    for at in 0..code.ops.len() {
        let i = block.plan.order[at] as usize;
        if done.get(i) == Some(&true) {
            continue;
        }
        block.at = at as u32;
        // Groups of copies come first, since they replace several operations.
        let mut together = block.copy_together(&code.ops[i..]);
        if together.is_empty() {
            together = block.fill_words(&code.ops[i..])?;
        }
        if !together.is_empty() {
            done.resize(code.ops.len(), false);
            together.iter().for_each(|behind| done[i + behind] = true);
            continue;
        }
        let interleaved = block.store_interleaved(&code.ops[i..])?;
        if interleaved > 0 {
            done.resize(code.ops.len(), false);
            done[i..][..interleaved].fill(true);
            continue;
        }
        match code.ops[i] {
            BlockOp::MulAdd { acc, part, factors, by } => block.multiply_add((acc as Vector, part), factors, by)?,
            BlockOp::Store { dst, mode, value: value @ ValueTree { steps: Some(first), .. } } => {
                block.store_steps(dst, mode, value, first)?;
            }
            BlockOp::Store { dst: LeafInput::Accumulator(acc), mode, value } => {
                block.set(acc as Vector, mode, value)?
            }
            BlockOp::Store { dst: LeafInput::Part { acc, lanes, .. }, mode, value } => {
                block.inputs = code.inputs_of(value);
                let value = block.value(value.root, None)?;
                block.keep_part((acc as Vector, lanes), mode, value)?;
            }
            BlockOp::Store { dst: LeafInput::Source(dst), mode, value } => {
                if let LeafSource::Memory(memory) = code.sources[dst as usize] {
                    block.store(memory, mode, value)?;
                }
            }
            BlockOp::Fold { acc, rows: (from, to), lanes, by } => {
                let rows = code.rows[from as usize..to as usize].iter().map(|&row| row as Vector).collect();
                block.fold(acc as Vector, rows, (lanes, by))?;
            }
            BlockOp::Combine { acc, by, of } => block.combine(acc as Vector, by, of)?,
            BlockOp::Prefetch { source: id, hint } => {
                if let LeafSource::Memory(memory) = code.sources[id as usize] {
                    block.isa.prefetch(memory.at, hint);
                }
            }
        }
    }
    Ok(())
}

/// A vector register that holds no partial sum.
#[derive(Clone, Copy)]
struct Temp {
    /// Number of the source that the register holds, or [`NONE`].
    holds: u32,
    /// Position of the next use of the held source, or [`NONE`].
    next_use: u32,
    /// Number of operands in use that need the register.
    pins: u32,
}

impl Temp {
    const FREE: Self = Self { holds: NONE, next_use: NONE, pins: 0 };
}

struct BlockEmitter<'e, S> {
    code: leaf::Block<'e>,
    /// Inputs of the value being computed.
    inputs: &'e [LeafInput],
    plan: &'e mut EmitOrder,
    isa: &'e mut S,
    /// Position of the current operation.
    at: u32,
    /// State by register, used for those from `first` to `end` (exclusive).
    temps: [Temp; MAX_REGISTERS],
    first: Vector,
    end: Vector,
    /// Bit set of registers whose contents are not needed.
    free: u32,
    /// An integer register for addresses of gathers.
    scratch: u8,
    /// Bit set of pointers whose stores of whole vectors stream.
    streamed: u32,
    /// Bit set of stack slots in use.
    slots: u32,
}

impl<S: Vectors> BlockEmitter<'_, S> {
    fn kind(&self, value: u32) -> ValueKind {
        self.code.values[value as usize].kind
    }

    /// Returns the source that a value is, if it is one.
    fn as_source(&self, value: u32) -> Option<u32> {
        match self.kind(value) {
            ValueKind::Input(i) => self.inputs[i as usize].source(),
            _ => None,
        }
    }

    fn source_of(&self, id: u32) -> LeafSource {
        self.code.sources[id as usize]
    }

    fn multiply_add(&mut self, (acc, part): (Vector, u8), [a, b]: [u32; 2], by: Arithmetic) -> Result<(), Failure> {
        // Only the second operand may be in memory. `DotU8I8` is not commutative, so its operands
        // stay in order.
        let is_ordered = by == Arithmetic::DotU8I8;
        let (kept, other) = if !is_ordered && self.memory_operand(a).is_some() { (b, a) } else { (a, b) };
        // If one operand is in a register, pin it before the other is loaded, which might evict it.
        let resident = self.resident(other).map(ArithmeticOperand::Register);
        let kept = self.source(kept)?;
        let other = resident.map_or_else(|| self.operand(other), Ok)?;
        if by == Arithmetic::MulPairs {
            return self.add_pairs((acc, part), kept, other);
        }
        if part == 0 {
            self.arithmetic(by, Some(acc), kept, other)?;
            return Ok(());
        }
        // In a partial vector, the accumulator's other lanes must be kept.
        let sum = self.spare()?;
        self.isa.copy(sum, acc);
        self.arithmetic(by, Some(sum), kept, other)?;
        self.keep_part((acc, part), StoreMode::Assign, sum)
    }

    /// Emits accumulator += products of pairs, in its first `part` lanes only if that is not 0.
    fn add_pairs(&mut self, (acc, part): (Vector, u8), a: Vector, b: ArithmeticOperand) -> Result<(), Failure> {
        // `MulPairs` cannot broadcast an operand from memory.
        let products = self.spare()?;
        let b = match b {
            ArithmeticOperand::Splat(at) => {
                self.isa.load(products, Shape::Splat, at);
                ArithmeticOperand::Register(products)
            }
            other => other,
        };
        self.isa.arithmetic(Arithmetic::MulPairs, products, a, b);
        self.release(ArithmeticOperand::Register(a));
        if b != ArithmeticOperand::Register(products) {
            self.release(b);
        }

        let sum = if part == 0 { acc } else { products };
        self.isa.arithmetic(Arithmetic::AddBits, sum, acc, ArithmeticOperand::Register(products));
        if part == 0 {
            self.release(ArithmeticOperand::Register(products));
            return Ok(());
        }
        self.keep_part((acc, part), StoreMode::Assign, products)
    }

    /// Assigns the first lanes of a register to an accumulator, or adds them. Releases the
    /// register.
    fn keep_part(&mut self, (acc, lanes): (Vector, u8), mode: StoreMode, mut value: Vector) -> Result<(), Failure> {
        // An accumulator whose register is lent lives in a stack slot.
        let slot = acc.checked_sub(self.first).map(usize::from);
        let whole = if slot.is_some() { self.spare()? } else { acc };
        if let Some(slot) = slot {
            self.isa.fill(whole, slot);
        }
        if mode == StoreMode::Accumulate {
            let sum = self.spare()?;
            self.isa.arithmetic(Arithmetic::Add, sum, whole, ArithmeticOperand::Register(value));
            self.release(ArithmeticOperand::Register(value));
            value = sum;
        }
        self.isa.merge(whole, value, lanes);
        self.release(ArithmeticOperand::Register(value));
        if let Some(slot) = slot {
            self.isa.spill(whole, slot);
            self.release(ArithmeticOperand::Register(whole));
        }
        Ok(())
    }

    /// Emits accumulator = value, or += value.
    fn set(&mut self, acc: Vector, mode: StoreMode, value: ValueTree) -> Result<(), Failure> {
        self.inputs = self.code.inputs_of(value);
        if mode == StoreMode::Accumulate {
            let value = self.value(value.root, None)?;
            self.arithmetic(Arithmetic::Add, Some(acc), acc, ArithmeticOperand::Register(value))?;
            return Ok(());
        }
        if let Some(id) = self.as_source(value.root) {
            self.load(acc, id);
            return Ok(());
        }
        let reads = |i: &LeafInput| matches!(i, LeafInput::Accumulator(other) | LeafInput::Part { acc: other, .. } if *other == u16::from(acc));
        // `max` reads all its operands in its last instruction, so its destination may be one of
        // them. Other values are built up in the destination, which must not be read.
        let is_last = matches!(self.kind(value.root), ValueKind::Binary(Arithmetic::Max, ..));
        let goes_there = is_last || !self.inputs.iter().any(reads);
        let value = self.value(value.root, goes_there.then_some(acc))?;
        if value != acc {
            self.isa.copy(acc, value);
            self.release(ArithmeticOperand::Register(value));
        }
        Ok(())
    }

    /// Emits the first operation and others as an interleaving or a transpose, if they are one;
    /// returns their numbers.
    fn copy_together(&mut self, ops: &[BlockOp]) -> SmallVec<[usize; 8]> {
        if let Some(copy) = Interleave::of(self.code, ops, self.isa.lanes())
            && let Some(registers) = copy.registers(self.isa, self.first)
        {
            self.vacate_first(registers);
            copy.emit(self.isa, self.first);
            return copy.ops;
        }
        if let Some((copy, registers)) = transpose::TransposeBlock::of(self.code, ops, self.isa, self.first) {
            self.vacate_first(registers);
            copy.emit(self.isa, self.first, self.streamed);
            return (0..copy.rows()).collect();
        }
        SmallVec::new()
    }

    /// Frees the first `registers` registers that hold no accumulators.
    fn vacate_first(&mut self, registers: usize) {
        for register in (self.first..).take(registers) {
            self.vacate(register);
            self.assign(register, Temp::FREE);
        }
    }

    /// Forgets the source that a register holds.
    fn vacate(&mut self, register: Vector) {
        if let Some(uses) = self.plan.uses.get_mut(self.temps[usize::from(register)].holds as usize) {
            uses.temp = NONE;
        }
    }

    /// Changes the use of a register.
    fn assign(&mut self, register: Vector, temp: Temp) {
        let is_free = temp.pins == 0 && temp.next_use == NONE;
        self.free = self.free & !(1 << register) | u32::from(is_free) << register;
        self.temps[usize::from(register)] = temp;
    }

    /// Computes a value; returns its register, which the caller releases.
    ///
    /// The last instruction writes to `to`, if given. The value must not read `to`.
    fn value(&mut self, value: u32, to: Option<Vector>) -> Result<Vector, Failure> {
        let (mut op, mut a, mut b) = match self.kind(value) {
            ValueKind::Binary(op, a, b) => (op, a, b),
            ValueKind::Input(i) => match self.inputs[i as usize] {
                LeafInput::Accumulator(acc) | LeafInput::Part { acc, first: 0, .. } => return Ok(acc as Vector),
                LeafInput::Part { acc, first, .. } => {
                    let to = self.spare()?;
                    self.isa.shift_lanes(to, acc as Vector, first);
                    return Ok(to);
                }
                LeafInput::Source(id) => return self.source(id),
            },
            // Steps are computed elsewhere.
            _ => return self.spare(),
        };
        // Hardware max returns its second operand if either is NaN, the IR's returns the first.
        match op {
            Arithmetic::Max => (a, b) = (b, a),
            Arithmetic::Add => match self.scaled(b) {
                // `a + -1 * b` is a subtraction.
                Some((factor, other)) if self.source_of(factor) == LeafSource::Constant(f32::to_bits(-1.0)) => {
                    (op, b) = (Arithmetic::Sub, other);
                }
                Some((factor, other)) => return self.add_scaled(a, factor, other, to),
                None => {}
            },
            _ => {}
        }

        // The operand that needs more registers comes first (Sethi and Ullman).
        let registers = |v: u32| self.code.values[v as usize].registers;
        let (a, b) = if registers(b) > registers(a) {
            let b = self.value(b, None)?;
            (self.value(a, None)?, ArithmeticOperand::Register(b))
        } else {
            let a = self.value(a, None)?;
            (a, self.value_operand(b)?)
        };
        self.arithmetic(op, to, a, b)
    }

    /// Returns the constant's source and the other factor, if a value is a product with a constant.
    fn scaled(&self, value: u32) -> Option<(u32, u32)> {
        let ValueKind::Binary(Arithmetic::Mul, a, b) = self.kind(value) else { return None };
        [(a, b), (b, a)].into_iter().find_map(|(factor, other)| {
            let id = self.as_source(factor)?;
            matches!(self.source_of(id), LeafSource::Constant(_)).then_some((id, other))
        })
    }

    /// Computes `a + factor * b`, where the factor is a source; returns its register.
    fn add_scaled(&mut self, a: u32, factor: u32, b: u32, to: Option<Vector>) -> Result<Vector, Failure> {
        let sum = self.value(a, to)?;
        let to = match to {
            Some(to) => to,
            None if self.is_scratch(sum) => sum,
            None => self.spare()?,
        };
        if to != sum {
            self.isa.copy(to, sum);
            self.release(ArithmeticOperand::Register(sum));
        }
        let factor = self.source(factor)?;
        let b = self.value_operand(b)?;
        self.arithmetic(Arithmetic::MulAdd, Some(to), factor, b)
    }

    /// Computes `a op b` and releases both; returns the destination.
    ///
    /// This is `to`, if given, else a register that the caller releases.
    #[inline(always)]
    fn arithmetic(
        &mut self,
        op: Arithmetic,
        to: Option<Vector>,
        a: Vector,
        b: ArithmeticOperand,
    ) -> Result<Vector, Failure> {
        self.release(ArithmeticOperand::Register(a));
        self.release(b);
        let to = to.map_or_else(|| self.spare(), Ok)?;
        self.isa.arithmetic(op, to, a, b);
        Ok(to)
    }

    /// True if a register holds neither a partial sum nor a source.
    fn is_scratch(&self, register: Vector) -> bool {
        register >= self.first && self.temps[usize::from(register)].holds == NONE
    }

    /// Returns a value as an operand, which the caller releases.
    fn value_operand(&mut self, value: u32) -> Result<ArithmeticOperand, Failure> {
        match self.as_source(value) {
            Some(id) => self.operand(id),
            None => self.value(value, None).map(ArithmeticOperand::Register),
        }
    }

    /// Returns a source as an operand, which the caller releases.
    fn operand(&mut self, id: u32) -> Result<ArithmeticOperand, Failure> {
        match self.memory_operand(id) {
            Some(operand) => Ok(operand),
            None => self.source(id).map(ArithmeticOperand::Register),
        }
    }

    /// Returns a source as a memory operand, if it is in no register and is not worth one, and the
    /// instruction set allows it.
    fn memory_operand(&mut self, id: u32) -> Option<ArithmeticOperand> {
        let LeafSource::Memory(memory) = self.source_of(id) else { return None };
        if memory.of != ElementType::Word {
            return None;
        }
        if self.plan.uses[id as usize].temp != NONE {
            return None;
        }
        let operand = self.isa.memory_operand(memory.shape, memory.at)?;
        let next = self.plan.next_use(id, self.at);
        // Worth a register: a later use comes before that of some value whose register can be
        // taken.
        let gives_way = |t: &Temp| t.pins == 0 && t.next_use > next;
        let is_evicted = next < NONE && (self.free != 0 || self.temps[self.in_use()].iter().any(gives_way));
        if is_evicted { None } else { Some(operand) }
    }

    /// Returns the register of a source, loading it if necessary. The caller releases it.
    fn source(&mut self, id: u32) -> Result<Vector, Failure> {
        if let Some(register) = self.resident(id) {
            return Ok(register);
        }
        let register = self.spare()?;
        self.load(register, id);
        let next_use = self.plan.next_use(id, self.at);
        self.assign(register, Temp { holds: id, next_use, pins: 1 });
        self.plan.uses[id as usize].temp = u32::from(register);
        Ok(register)
    }
}
