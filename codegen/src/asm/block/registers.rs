//! Vector registers of a leaf's operations: sources that stay in them, and room for others.

use std::ops::Range;

use super::{BlockEmitter, Temp};
use crate::asm::error::{AssembleError, Failure};
use crate::asm::instruction_set::{ArithmeticOperand, ElementType, Vector, Vectors};
use crate::asm::leaf::{LeafSource, MemoryAccess};
use crate::asm::plan::NONE;

impl<S: Vectors> BlockEmitter<'_, S> {
    pub(super) fn load(&mut self, register: Vector, id: u32) {
        match self.source_of(id) {
            LeafSource::Constant(bits) => self.isa.constant(register, bits),
            LeafSource::Memory(memory) => self.load_memory(register, memory),
        }
    }

    pub(super) fn load_memory(&mut self, register: Vector, memory: MemoryAccess) {
        match memory {
            MemoryAccess { at, shape, of: ElementType::Word } => self.isa.load(register, shape, at),
            memory => self.isa.load_narrow(register, memory),
        }
    }

    /// Returns the register that holds a source, if there is one. The caller releases it.
    pub(super) fn resident(&mut self, id: u32) -> Option<Vector> {
        let i = self.plan.uses[id as usize].temp;
        let pins = self.temps.get(i as usize)?.pins + 1;
        let next_use = self.plan.next_use(id, self.at);
        self.assign(i as Vector, Temp { holds: id, next_use, pins });
        Some(i as Vector)
    }

    pub(super) fn in_use(&self) -> Range<usize> {
        usize::from(self.first)..usize::from(self.end)
    }

    /// Returns a register to write to, evicting a source if necessary. The caller releases it.
    pub(super) fn spare(&mut self) -> Result<Vector, Failure> {
        // A free register is preferred to any eviction.
        let mut farthest = (self.free != 0).then(|| (self.free.trailing_zeros() as Vector, NONE));
        if farthest.is_none() {
            let temps = (self.first..).zip(&self.temps[self.in_use()]);
            for (register, temp) in temps.filter(|(_, temp)| temp.pins == 0) {
                if farthest.is_none_or(|(_, most)| temp.next_use > most) {
                    farthest = Some((register, temp.next_use));
                }
            }
        }
        let available = self.in_use().len();
        let (register, _) = farthest.ok_or(AssembleError::RegisterTile { needed: available + 1, available })?;
        self.vacate(register);
        self.assign(register, Temp { pins: 1, ..Temp::FREE });
        Ok(register)
    }

    #[inline]
    pub(super) fn release(&mut self, operand: ArithmeticOperand) {
        if let ArithmeticOperand::Register(register) = operand
            && register >= self.first
        {
            let temp = self.temps[usize::from(register)];
            self.assign(register, Temp { pins: temp.pins - 1, ..temp });
        }
    }
}
