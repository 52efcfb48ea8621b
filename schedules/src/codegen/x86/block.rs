//! Straight-line code of one block: which values of memory stay in registers, and for how long.
//!
//! Accumulators have the first registers. The others hold loaded values and constants; where none is free, the one whose next
//! use is farthest makes room (Belady, "A study of replacement algorithms for a virtual-storage computer", 1966), which is
//! known, as nothing branches. A value that is not worth a register is a memory operand where the instruction set has it.

use std::collections::HashMap;

use super::AssembleError;
use super::emit::{Address, Arithmetic, Emitter, Operand, Shape, Vector};
use super::leaf::{Memory, Op, Value};
use super::stage::pointer_register;
use crate::program::StoreMode;

/// Emits a block, with `accumulators` registers in use.
pub(super) fn emit(emitter: &mut Emitter, ops: &[Op], accumulators: usize) -> Result<(), AssembleError> {
    let order = order(ops);
    let mut block = Block {
        sources: Vec::new(),
        ids: HashMap::new(),
        at: 0,
        temps: vec![Temp::default(); emitter.isa.vector_registers() - accumulators],
        first: accumulators as u8,
        emitter,
    };
    for (at, &i) in order.iter().enumerate() {
        ops[i].for_each_source(&mut |source| block.will_use(source, at));
    }
    for (at, &i) in order.iter().enumerate() {
        block.at = at;
        block.op(&ops[i])?;
    }
    Ok(())
}

/// The order in which a block's operations are emitted: within each run of multiply-adds to distinct accumulators, those that
/// share an operand of the kind with more distinct values follow one another, so that the fewer stay in registers.
fn order(ops: &[Op]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..ops.len()).collect();
    let mut start = 0;
    while start < ops.len() {
        let mut written = [0u64; 4];
        let mut end = start;
        let (mut first_a, mut first_b) = (HashMap::new(), HashMap::new());
        while let Some(&Op::MulAdd { acc, a, b }) = ops.get(end) {
            let (word, bit) = (acc as usize / 64 % 4, 1 << (acc % 64));
            if written[word] & bit != 0 {
                break;
            }
            written[word] |= bit;
            first_a.entry(a).or_insert(end);
            first_b.entry(b).or_insert(end);
            end += 1;
        }
        let by_a = first_a.len() > first_b.len();
        order[start..end].sort_by_key(|&i| match &ops[i] {
            Op::MulAdd { a, b, .. } => if by_a { first_a.get(a) } else { first_b.get(b) }.copied(),
            _ => None,
        });
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

impl Op {
    fn for_each_source(&self, visit: &mut impl FnMut(Source)) {
        match self {
            Op::MulAdd { a, b, .. } => [a, b].into_iter().for_each(|m| visit(Source::Memory(*m))),
            Op::Set { value, .. } | Op::Store { value, .. } => value.for_each_source(visit),
        }
    }
}

impl Value {
    /// Registers that it takes to evaluate, besides accumulators (Sethi and Ullman, "The generation of optimal code for
    /// arithmetic expressions", 1970).
    fn registers(&self) -> usize {
        match self {
            Value::Accumulator(_) => 0,
            Value::Constant(_) | Value::Load(_) => 1,
            Value::Add(a, b) | Value::Mul(a, b) | Value::Max(a, b) => match (a.registers(), b.registers()) {
                (a, b) if a == b => a + 1,
                (a, b) => a.max(b),
            },
        }
    }

    fn for_each_source(&self, visit: &mut impl FnMut(Source)) {
        match self {
            Value::Accumulator(_) => {}
            Value::Constant(bits) => visit(Source::Constant(*bits)),
            Value::Load(memory) => visit(Source::Memory(*memory)),
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
}

#[derive(Clone, Copy, Default)]
struct Temp {
    /// Number of the source it holds.
    holds: Option<usize>,
    /// Operands being used that it must be kept for.
    pins: usize,
}

struct Block<'e> {
    emitter: &'e mut Emitter,
    sources: Vec<Uses>,
    ids: HashMap<Source, usize>,
    /// Position of the present operation.
    at: usize,
    /// The registers from `first` on.
    temps: Vec<Temp>,
    first: u8,
}

impl Block<'_> {
    fn will_use(&mut self, source: Source, at: usize) {
        let id = *self.ids.entry(source).or_insert(self.sources.len());
        if id == self.sources.len() {
            self.sources.push(Uses { source, at: Vec::new(), next: 0 });
        }
        self.sources[id].at.push(at);
    }

    /// Position of the first use of a source behind the present operation.
    fn next_use(&mut self, id: usize) -> usize {
        let uses = &mut self.sources[id];
        while uses.at.get(uses.next).is_some_and(|&at| at <= self.at) {
            uses.next += 1;
        }
        uses.at.get(uses.next).copied().unwrap_or(usize::MAX)
    }

    fn op(&mut self, op: &Op) -> Result<(), AssembleError> {
        match op {
            Op::MulAdd { acc, a, b } => {
                let (a, b) = (Source::Memory(*a), Source::Memory(*b));
                let (kept, other) = if self.memory_operand(a).is_some() { (b, a) } else { (a, b) };
                let resident = self.resident(other).map(Operand::Register);
                let kept = self.source(kept)?;
                let other = resident.map_or_else(|| self.operand(other), Ok)?;
                self.emitter.arithmetic(Arithmetic::MulAdd, *acc as Vector, kept, other);
                self.release(Operand::Register(kept));
                self.release(other);
            }
            Op::Set { acc, mode, value } => self.set(*acc as Vector, *mode, value)?,
            Op::Store { dst, mode, value } => self.store(dst, *mode, value)?,
        }
        Ok(())
    }

    fn set(&mut self, acc: Vector, mode: StoreMode, value: &Value) -> Result<(), AssembleError> {
        match (mode, value) {
            (StoreMode::Assign, Value::Constant(bits)) => self.emitter.constant(acc, *bits),
            (StoreMode::Assign, Value::Load(m)) => self.emitter.load(acc, m.shape, address(m)),
            _ => {
                let value = self.value(value)?;
                match mode {
                    StoreMode::Assign => self.emitter.copy(acc, value),
                    StoreMode::Accumulate => {
                        self.emitter.arithmetic(Arithmetic::Add, acc, acc, Operand::Register(value));
                    }
                }
                self.release(Operand::Register(value));
            }
        }
        Ok(())
    }

    fn store(&mut self, dst: &Memory, mode: StoreMode, value: &Value) -> Result<(), AssembleError> {
        match (mode, value) {
            (StoreMode::Assign, Value::Load(from)) if is_strided(from) => self.copy_strided(dst, from),
            _ => {
                let mut value = self.value(value)?;
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
        let (sources, written) = (&self.sources, dst.buffer);
        let is_stale = |id: usize| matches!(sources[id].source, Source::Memory(m) if m.buffer == written);
        self.temps.iter_mut().filter(|t| t.holds.is_some_and(is_stale)).for_each(|t| t.holds = None);
        Ok(())
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

    /// The register of a value; to be released.
    fn value(&mut self, value: &Value) -> Result<Vector, AssembleError> {
        let (op, a, b) = match value {
            Value::Accumulator(acc) => return Ok(*acc as Vector),
            Value::Constant(bits) => return self.source(Source::Constant(*bits)),
            Value::Load(memory) => return self.source(Source::Memory(*memory)),
            Value::Add(a, b) => (Arithmetic::Add, a, b),
            Value::Mul(a, b) => (Arithmetic::Mul, a, b),
            Value::Max(a, b) => (Arithmetic::Max, b, a),
        };
        let (a, b) = if b.registers() > a.registers() {
            let b = self.value(b)?;
            (self.value(a)?, Operand::Register(b))
        } else {
            let a = self.value(a)?;
            match &**b {
                Value::Load(memory) => (a, self.operand(Source::Memory(*memory))?),
                other => (a, Operand::Register(self.value(other)?)),
            }
        };
        self.release(Operand::Register(a));
        self.release(b);
        let to = self.spare()?;
        self.emitter.arithmetic(op, to, a, b);
        Ok(to)
    }

    /// The source as an operand; to be released.
    fn operand(&mut self, source: Source) -> Result<Operand, AssembleError> {
        match self.memory_operand(source) {
            Some(operand) => Ok(operand),
            None => self.source(source).map(Operand::Register),
        }
    }

    /// The source as a memory operand, if that is possible, it is in no register, and is not worth one.
    fn memory_operand(&mut self, source: Source) -> Option<Operand> {
        let Source::Memory(memory) = source else { return None };
        let operand = match memory.shape {
            Shape::Lanes(n) if n == self.emitter.lanes() => Operand::Vector(address(&memory)),
            Shape::Splat if self.emitter.isa == crate::target::Isa::Avx512 => Operand::Splat(address(&memory)),
            _ => return None,
        };
        let id = self.ids[&source];
        if self.temps.iter().any(|t| t.holds == Some(id)) {
            return None;
        }
        let next = self.next_use(id);
        let is_worth_it = next < usize::MAX
            && (0..self.temps.len()).any(|i| match self.temps[i] {
                Temp { pins: 0, holds: None } => true,
                Temp { pins: 0, holds: Some(other) } => self.next_use(other) > next,
                _ => false,
            });
        if is_worth_it { None } else { Some(operand) }
    }

    /// The register of a source, loaded if need be; to be released.
    fn source(&mut self, source: Source) -> Result<Vector, AssembleError> {
        if let Some(register) = self.resident(source) {
            return Ok(register);
        }
        let register = self.spare()?;
        match source {
            Source::Memory(memory) => self.emitter.load(register, memory.shape, address(&memory)),
            Source::Constant(bits) => self.emitter.constant(register, bits),
        }
        self.temps[(register - self.first) as usize].holds = Some(self.ids[&source]);
        Ok(register)
    }

    /// The register that a source is in, if there is one; to be released.
    fn resident(&mut self, source: Source) -> Option<Vector> {
        let id = self.ids[&source];
        let i = self.temps.iter().position(|t| t.holds == Some(id))?;
        self.temps[i].pins += 1;
        Some(self.first + i as u8)
    }

    /// A register to write to; to be released.
    fn spare(&mut self) -> Result<Vector, AssembleError> {
        let mut best = None;
        for i in 0..self.temps.len() {
            let Temp { holds, pins: 0 } = self.temps[i] else { continue };
            let distance = holds.map_or(usize::MAX, |id| self.next_use(id));
            if best.is_none_or(|(_, d)| distance > d) {
                best = Some((i, distance));
            }
        }
        let available = self.temps.len();
        let (i, _) = best.ok_or(AssembleError::RegisterTile { needed: available + 1, available })?;
        self.temps[i] = Temp { holds: None, pins: 1 };
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

fn is_strided(memory: &Memory) -> bool {
    matches!(memory.shape, Shape::Strided { .. })
}

fn address(memory: &Memory) -> Address {
    Address { base: pointer_register(memory.pointer), disp: memory.disp }
}
