//! Straight-line code of one block: which values of memory stay in registers, and for how long.
//!
//! Accumulators have the first registers. The others hold loaded values and constants; where none is free, the one whose next
//! use is farthest makes room (Belady, "A study of replacement algorithms for a virtual-storage computer", 1966), which is
//! known, as nothing branches. A value that is not worth a register is a memory operand where the instruction set has it.

use rustc_hash::FxHashMap;

use super::AssembleError;
use super::emit::{Address, Arithmetic, Emitter, Operand, Shape, Vector};
use super::leaf::{Memory, Op, Place, Value};
use super::stage::pointer_register;
use super::transpose;
use crate::program::{BufferId, StoreMode};
use crate::target::Isa;

/// Emits a block, with `accumulators` registers in use.
pub(super) fn emit(emitter: &mut Emitter, ops: &[Op], accumulators: usize) -> Result<(), AssembleError> {
    let mut block = Block {
        sources: Vec::new(),
        ids: FxHashMap::default(),
        at: 0,
        temps: vec![Temp::default(); emitter.isa.vector_registers() - accumulators],
        first: accumulators as u8,
        emitter,
    };
    let factors: Vec<[usize; 2]> = ops.iter().map(|op| block.factors(op)).collect();
    let order = order(ops, &factors, block.sources.len());
    for (at, &i) in order.iter().enumerate() {
        match &ops[i] {
            Op::MulAdd { .. } => factors[i].iter().for_each(|&id| block.sources[id].at.push(at)),
            Op::Set { value, .. } | Op::Store { value, .. } => value.for_each_source(&mut |source| {
                let id = block.id(source);
                block.sources[id].at.push(at);
            }),
            Op::Prefetch(_) => {}
        }
    }
    let mut transposed = 0;
    for (at, &i) in order.iter().enumerate() {
        if i < transposed {
            continue;
        }
        block.at = at;
        match &ops[i] {
            Op::Store { dst, .. } if block.transpose(&ops[i..]) => {
                transposed = i + transpose::ROWS;
                block.forget(dst.buffer);
            }
            Op::MulAdd { acc, .. } => block.multiply_add(*acc as Vector, factors[i])?,
            Op::Set { acc, mode, value } => block.set(*acc as Vector, *mode, value)?,
            Op::Store { dst, mode, value } => block.store(dst, *mode, value)?,
            Op::Prefetch(memory) => block.emitter.prefetch(address(memory)),
        }
    }
    Ok(())
}

/// The order in which a block's operations are emitted: within each run of multiply-adds to distinct accumulators, those that
/// share a factor of the kind with more distinct values follow one another, so that the fewer stay in registers. `factors`
/// has the numbers, below `sources`, of both factors of each multiply-add.
fn order(ops: &[Op], factors: &[[usize; 2]], sources: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..ops.len()).collect();
    let mut first = [vec![usize::MAX; sources], vec![usize::MAX; sources]];
    let mut start = 0;
    while start < ops.len() {
        let mut written = 0u32;
        let mut end = start;
        let mut distinct = [0, 0];
        while let Some(&Op::MulAdd { acc, .. }) = ops.get(end) {
            if written & 1 << acc != 0 {
                break;
            }
            written |= 1 << acc;
            for side in 0..2 {
                let first = &mut first[side][factors[end][side]];
                if *first == usize::MAX || *first < start {
                    *first = end;
                    distinct[side] += 1;
                }
            }
            end += 1;
        }
        let side = usize::from(distinct[0] <= distinct[1]);
        order[start..end].sort_by_key(|&i| first[side][factors[i][side]]);
        start = end.max(start + 1);
    }
    order
}

/// What a register may hold besides partial sums.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Source {
    Memory(Memory),
    /// Bits of an f32.
    Constant(u32),
}

impl Value<Place> {
    /// Registers that it takes to evaluate, besides accumulators (Sethi and Ullman, "The generation of optimal code for
    /// arithmetic expressions", 1970).
    fn registers(&self) -> usize {
        match self {
            Value::Load(Place::Accumulator(_)) => 0,
            Value::Constant(_) | Value::Load(Place::Memory(_)) => 1,
            Value::Add(a, b) | Value::Mul(a, b) | Value::Max(a, b) => match (a.registers(), b.registers()) {
                (a, b) if a == b => a + 1,
                (a, b) => a.max(b),
            },
        }
    }

    /// True if it reads a register of partial sums.
    fn reads(&self, acc: Vector) -> bool {
        match self {
            Value::Load(Place::Accumulator(other)) => *other == u16::from(acc),
            Value::Constant(_) | Value::Load(Place::Memory(_)) => false,
            Value::Add(a, b) | Value::Mul(a, b) | Value::Max(a, b) => a.reads(acc) || b.reads(acc),
        }
    }

    fn for_each_source(&self, visit: &mut impl FnMut(Source)) {
        match self {
            Value::Load(Place::Accumulator(_)) => {}
            Value::Constant(bits) => visit(Source::Constant(*bits)),
            Value::Load(Place::Memory(memory)) => visit(Source::Memory(*memory)),
            Value::Add(a, b) | Value::Mul(a, b) | Value::Max(a, b) => {
                a.for_each_source(visit);
                b.for_each_source(visit);
            }
        }
    }
}

/// Where a source is used: positions in the order, of which those before `next` are past.
struct Uses {
    source: Source,
    at: Vec<usize>,
    next: usize,
    /// The register that holds it.
    temp: Option<usize>,
}

#[derive(Clone, Copy, Default)]
struct Temp {
    /// Number of the source it holds.
    holds: Option<usize>,
    /// Position of that source's next use; 0 where it holds none.
    next_use: usize,
    /// Operands being used that it must be kept for.
    pins: usize,
}

struct Block<'e> {
    emitter: &'e mut Emitter,
    sources: Vec<Uses>,
    ids: FxHashMap<Source, usize>,
    /// Position of the present operation.
    at: usize,
    /// The registers from `first` on.
    temps: Vec<Temp>,
    first: u8,
}

impl Block<'_> {
    /// The number of a source.
    fn id(&mut self, source: Source) -> usize {
        let id = *self.ids.entry(source).or_insert(self.sources.len());
        if id == self.sources.len() {
            self.sources.push(Uses { source, at: Vec::new(), next: 0, temp: None });
        }
        id
    }

    /// Numbers of the factors of a multiply-add.
    fn factors(&mut self, op: &Op) -> [usize; 2] {
        match op {
            Op::MulAdd { a, b, .. } => [a, b].map(|m| self.id(Source::Memory(*m))),
            _ => [0; 2],
        }
    }

    /// Position of the first use of a source behind the present operation.
    fn next_use(&mut self, id: usize) -> usize {
        let uses = &mut self.sources[id];
        while uses.at.get(uses.next).is_some_and(|&at| at <= self.at) {
            uses.next += 1;
        }
        uses.at.get(uses.next).copied().unwrap_or(usize::MAX)
    }

    fn multiply_add(&mut self, acc: Vector, [a, b]: [usize; 2]) -> Result<(), AssembleError> {
        let (kept, other) = if self.memory_operand(a).is_some() { (b, a) } else { (a, b) };
        let resident = self.resident(other).map(Operand::Register);
        let kept = self.source(kept)?;
        let other = resident.map_or_else(|| self.operand(other), Ok)?;
        self.emitter.arithmetic(Arithmetic::MulAdd, acc, kept, other);
        self.release(Operand::Register(kept));
        self.release(other);
        Ok(())
    }

    fn set(&mut self, acc: Vector, mode: StoreMode, value: &Value<Place>) -> Result<(), AssembleError> {
        match (mode, value) {
            (StoreMode::Assign, Value::Constant(bits)) => self.emitter.constant(acc, *bits),
            (StoreMode::Assign, Value::Load(Place::Memory(m))) => self.emitter.load(acc, m.shape, address(m)),
            (StoreMode::Assign, value) => {
                let value = self.value(value, (!value.reads(acc)).then_some(acc))?;
                if value != acc {
                    self.emitter.copy(acc, value);
                    self.release(Operand::Register(value));
                }
            }
            (StoreMode::Accumulate, value) => {
                let value = self.value(value, None)?;
                self.emitter.arithmetic(Arithmetic::Add, acc, acc, Operand::Register(value));
                self.release(Operand::Register(value));
            }
        }
        Ok(())
    }

    fn store(&mut self, dst: &Memory, mode: StoreMode, value: &Value<Place>) -> Result<(), AssembleError> {
        match (mode, value) {
            (StoreMode::Assign, Value::Load(Place::Memory(from))) if is_strided(from) => self.copy_strided(dst, from),
            _ => {
                let mut value = self.value(value, None)?;
                if mode == StoreMode::Accumulate {
                    let old = self.spare()?;
                    self.emitter.load(old, dst.shape, address(dst));
                    self.emitter.arithmetic(Arithmetic::Add, old, old, Operand::Register(value));
                    self.release(Operand::Register(value));
                    value = old;
                }
                let needs_register = self.emitter.store_needs_register(dst.shape);
                let spare = if needs_register { self.spare()? } else { value };
                self.emitter.store(value, dst.shape, address(dst), spare);
                self.release(Operand::Register(value));
                if needs_register {
                    self.release(Operand::Register(spare));
                }
            }
        }
        self.forget(dst.buffer);
        Ok(())
    }

    /// No register holds a value of a buffer any more.
    fn forget(&mut self, buffer: BufferId) {
        for temp in &mut self.temps {
            let Some(id) = temp.holds else { continue };
            if matches!(self.sources[id].source, Source::Memory(m) if m.buffer == buffer) {
                self.sources[id].temp = None;
                *temp = Temp { pins: temp.pins, ..Temp::default() };
            }
        }
    }

    /// Copies the block that the first operations transpose, if they do.
    fn transpose(&mut self, ops: &[Op]) -> bool {
        let registers = self.first..self.first + transpose::REGISTERS as u8;
        let Some(copy) = transpose::Block::of(ops).filter(|_| registers.end <= 16) else { return false };
        for temp in &mut self.temps[..transpose::REGISTERS] {
            if let Some(id) = std::mem::take(temp).holds {
                self.sources[id].temp = None;
            }
        }
        copy.emit(self.emitter, address, registers.start);
        true
    }

    /// Copies strided elements without a detour through a vector.
    fn copy_strided(&mut self, dst: &Memory, from: &Memory) {
        let Shape::Strided { lanes, stride } = from.shape else { return };
        let to = match dst.shape {
            Shape::Strided { stride, .. } => stride,
            _ => 4,
        };
        self.emitter.copy_elements((address(dst), to), (address(from), stride), lanes);
    }

    /// The register of a value; to be released. What is computed last goes to `to`, if given, which the
    /// value must not read.
    fn value(&mut self, value: &Value<Place>, to: Option<Vector>) -> Result<Vector, AssembleError> {
        let (op, a, b) = match value {
            Value::Load(Place::Accumulator(acc)) => return Ok(*acc as Vector),
            Value::Constant(bits) => {
                let id = self.id(Source::Constant(*bits));
                return self.source(id);
            }
            Value::Load(Place::Memory(memory)) => {
                let id = self.id(Source::Memory(*memory));
                return self.source(id);
            }
            Value::Add(a, b) => match scaled(b) {
                Some((factor, b)) if factor == f32::to_bits(-1.0) => (Arithmetic::Sub, a, b),
                Some((factor, b)) => return self.add_scaled(a, factor, b, to),
                None => (Arithmetic::Add, a, &**b),
            },
            Value::Mul(a, b) => (Arithmetic::Mul, a, &**b),
            Value::Max(a, b) => (Arithmetic::Max, b, &**a),
        };
        let (a, b) = if b.registers() > a.registers() {
            let b = self.value(b, None)?;
            (self.value(a, None)?, Operand::Register(b))
        } else {
            let a = self.value(a, None)?;
            (a, self.value_operand(b)?)
        };
        self.release(Operand::Register(a));
        self.release(b);
        let to = to.map_or_else(|| self.spare(), Ok)?;
        self.emitter.arithmetic(op, to, a, b);
        Ok(to)
    }

    /// The register of `a + factor * b`.
    fn add_scaled(
        &mut self,
        a: &Value<Place>,
        factor: u32,
        b: &Value<Place>,
        to: Option<Vector>,
    ) -> Result<Vector, AssembleError> {
        let sum = self.value(a, to)?;
        let to = match to {
            Some(to) => to,
            None if self.is_scratch(sum) => sum,
            None => self.spare()?,
        };
        if to != sum {
            self.emitter.copy(to, sum);
            self.release(Operand::Register(sum));
        }
        let factor = self.id(Source::Constant(factor));
        let factor = self.source(factor)?;
        let b = self.value_operand(b)?;
        self.emitter.arithmetic(Arithmetic::MulAdd, to, factor, b);
        self.release(Operand::Register(factor));
        self.release(b);
        Ok(to)
    }

    /// True for a register that holds neither partial sums nor a source.
    fn is_scratch(&self, register: Vector) -> bool {
        register.checked_sub(self.first).is_some_and(|i| self.temps[i as usize].holds.is_none())
    }

    /// A value as an operand; to be released.
    fn value_operand(&mut self, value: &Value<Place>) -> Result<Operand, AssembleError> {
        match value {
            Value::Load(Place::Memory(memory)) => {
                let id = self.id(Source::Memory(*memory));
                self.operand(id)
            }
            other => self.value(other, None).map(Operand::Register),
        }
    }

    /// A source as an operand; to be released.
    fn operand(&mut self, id: usize) -> Result<Operand, AssembleError> {
        match self.memory_operand(id) {
            Some(operand) => Ok(operand),
            None => self.source(id).map(Operand::Register),
        }
    }

    /// A source as a memory operand, if that is possible, it is in no register, and is not worth one.
    fn memory_operand(&mut self, id: usize) -> Option<Operand> {
        let Uses { source: Source::Memory(memory), temp: None, .. } = self.sources[id] else { return None };
        let operand = match memory.shape {
            Shape::Lanes(n) if n == self.emitter.lanes() => Operand::Vector(address(&memory)),
            Shape::Splat if self.emitter.isa == Isa::Avx512 => Operand::Splat(address(&memory)),
            _ => return None,
        };
        let next = self.next_use(id);
        let gives_way = |t: &Temp| t.pins == 0 && (t.holds.is_none() || t.next_use > next);
        let is_worth_it = next < usize::MAX && self.temps.iter().any(gives_way);
        if is_worth_it { None } else { Some(operand) }
    }

    /// The register of a source, loaded if need be; to be released.
    fn source(&mut self, id: usize) -> Result<Vector, AssembleError> {
        if let Some(register) = self.resident(id) {
            return Ok(register);
        }
        let register = self.spare()?;
        match self.sources[id].source {
            Source::Memory(memory) => self.emitter.load(register, memory.shape, address(&memory)),
            Source::Constant(bits) => self.emitter.constant(register, bits),
        }
        let i = (register - self.first) as usize;
        self.temps[i] = Temp { holds: Some(id), next_use: self.next_use(id), pins: 1 };
        self.sources[id].temp = Some(i);
        Ok(register)
    }

    /// The register that a source is in, if there is one; to be released.
    fn resident(&mut self, id: usize) -> Option<Vector> {
        let i = self.sources[id].temp?;
        self.temps[i].pins += 1;
        self.temps[i].next_use = self.next_use(id);
        Some(self.first + i as u8)
    }

    /// A register to write to; to be released.
    fn spare(&mut self) -> Result<Vector, AssembleError> {
        let available = self.temps.len();
        let mut farthest = None;
        for (i, temp) in self.temps.iter().enumerate().filter(|(_, t)| t.pins == 0) {
            let distance = if temp.holds.is_some() { temp.next_use } else { usize::MAX };
            if farthest.is_none_or(|(_, most)| distance > most) {
                farthest = Some((i, distance));
            }
            if distance == usize::MAX {
                break;
            }
        }
        let (i, _) = farthest.ok_or(AssembleError::RegisterTile { needed: available + 1, available })?;
        if let Some(id) = self.temps[i].holds {
            self.sources[id].temp = None;
        }
        self.temps[i] = Temp { holds: None, next_use: 0, pins: 1 };
        Ok(self.first + i as u8)
    }

    fn release(&mut self, operand: Operand) {
        if let Operand::Register(register) = operand
            && let Some(i) = register.checked_sub(self.first)
        {
            self.temps[i as usize].pins -= 1;
        }
    }
}

/// A product with a constant, as the constant's bits and the other factor.
fn scaled(value: &Value<Place>) -> Option<(u32, &Value<Place>)> {
    match value {
        Value::Mul(a, b) => match (&**a, &**b) {
            (Value::Constant(bits), other) | (other, Value::Constant(bits)) => Some((*bits, other)),
            _ => None,
        },
        _ => None,
    }
}

/// True for elements that are loaded one by one.
fn is_strided(memory: &Memory) -> bool {
    matches!(memory.shape, Shape::Strided { .. }) && !memory.shape.is_every_other()
}

fn address(memory: &Memory) -> Address {
    Address { base: pointer_register(memory.pointer), disp: memory.disp }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multiply_adds_are_grouped_by_the_factor_of_more_values() {
        let factor = |i: usize| Memory { buffer: BufferId(0), pointer: 0, disp: 4 * i as i32, shape: Shape::Splat };
        let grid = |step: u16, rows: usize, columns: usize| {
            let at = move |(i, (r, c))| (step + i as u16, [r, rows + c]);
            (0..rows).flat_map(move |r| (0..columns).map(move |c| (r, c))).enumerate().map(at)
        };
        let mut ops = Vec::new();
        let mut factors = Vec::new();
        // Two steps over the same 2 x 3 accumulators, between them another kind of operation.
        for _ in 0..2 {
            for (acc, [a, b]) in grid(0, 2, 3) {
                ops.push(Op::MulAdd { acc, a: factor(a), b: factor(b) });
                factors.push([a, b]);
            }
            ops.push(Op::Set { acc: 9, mode: StoreMode::Assign, value: Value::Constant(0) });
            factors.push([0; 2]);
        }
        assert_eq!(order(&ops, &factors, 5), [0, 3, 1, 4, 2, 5, 6, 7, 10, 8, 11, 9, 12, 13]);
    }
}
