//! Places of values while their steps are computed: operands, registers, and room for results.

use super::super::{BlockEmitter, Temp};
use super::{StepEvaluation, StepLocation};
use crate::asm::error::Failure;
use crate::asm::instruction_set::{ArithmeticOperand, VECTOR_SLOTS, Vector, Vectors};
use crate::asm::leaf::LeafInput;
use crate::asm::nest::ValueKind;
use crate::asm::plan::NONE;

impl<S: Vectors> BlockEmitter<'_, S> {
    /// Returns a value as an operand, which the caller releases.
    pub(super) fn step_operand(
        &mut self,
        steps: &mut StepEvaluation,
        value: u32,
    ) -> Result<ArithmeticOperand, Failure> {
        match self.as_source(value).and_then(|id| self.memory_operand(id)) {
            Some(operand) => Ok(operand),
            None => self.step_register(steps, value).map(ArithmeticOperand::Register),
        }
    }

    /// Returns the register of a value; the caller releases it.
    pub(super) fn step_register(&mut self, steps: &mut StepEvaluation, value: u32) -> Result<Vector, Failure> {
        if let ValueKind::Input(number) = self.kind(value) {
            return match self.inputs[number as usize] {
                LeafInput::Accumulator(acc) => self.held_lanes(steps, acc as Vector, 0),
                LeafInput::Part { acc, first, .. } => self.held_lanes(steps, acc as Vector, first),
                LeafInput::Source(id) => {
                    // Makes room first: `source` itself evicts sources but does not spill steps.
                    if self.plan.uses[id as usize].temp == NONE {
                        let register = self.room(steps)?;
                        self.release(ArithmeticOperand::Register(register));
                    }
                    self.source(id)
                }
            };
        }

        let place = (value - steps.first) as usize;
        let register = match steps.locations[place] {
            Some(StepLocation::Register(register)) => register,
            held => {
                let register = self.room(steps)?;
                if let Some(StepLocation::Slot(slot)) = held {
                    self.isa.fill(register, slot);
                    self.slots &= !(1 << slot);
                }
                steps.locations[place] = Some(StepLocation::Register(register));
                register
            }
        };
        self.pin(register, 1);
        Ok(register)
    }

    /// Adds uses to a register that is not an accumulator's.
    pub(super) fn pin(&mut self, register: Vector, uses: u32) {
        if register >= self.first {
            let temp = self.temps[usize::from(register)];
            self.assign(register, Temp { pins: temp.pins + uses, ..temp });
        }
    }

    /// Returns the register of a value that no later step, no other operand of the current step and
    /// no other evaluation needs.
    pub(super) fn reusable_register(&self, steps: &StepEvaluation, value: u32, others: &[u32]) -> Option<Vector> {
        let place = (value - steps.first) as usize;
        match steps.locations[place] {
            Some(StepLocation::Register(register))
                if steps.last_use[place] == steps.current
                    && !others.contains(&value)
                    && self.temps[usize::from(register)].pins == 1
                    && register >= self.first =>
            {
                Some(register)
            }
            _ => None,
        }
    }

    /// Returns the register of an accumulator's lanes from `first` on; the caller releases it.
    pub(super) fn held_lanes(&mut self, steps: &mut StepEvaluation, acc: Vector, first: u8) -> Result<Vector, Failure> {
        let slot = acc.checked_sub(self.first);
        if slot.is_none() && first == 0 {
            return Ok(acc);
        }
        let register = self.room(steps)?;
        if let Some(slot) = slot {
            self.isa.fill(register, slot.into());
        }
        if first > 0 {
            self.isa.shift_lanes(register, if slot.is_some() { register } else { acc }, first);
        }
        Ok(register)
    }

    /// Returns a register to write to; the caller releases it. If all are in use, spills the value
    /// whose next use is farthest (Belady, 1966).
    pub(super) fn room(&mut self, steps: &mut StepEvaluation) -> Result<Vector, Failure> {
        let is_full = self.temps[self.in_use()].iter().all(|temp| temp.pins > 0);
        let slot = (!self.slots).trailing_zeros() as usize;
        if !is_full || slot >= VECTOR_SLOTS {
            return self.spare();
        }

        // Candidates are values that the current step does not use.
        let next_use = |value: u32| (steps.current..=steps.root).find(|&step| self.needs(step, value)).unwrap_or(NONE);
        let waiting = (steps.first..).zip(&steps.locations).filter_map(|(value, held)| match *held {
            Some(StepLocation::Register(register)) if self.temps[usize::from(register)].pins == 1 => {
                Some((next_use(value), value, register))
            }
            _ => None,
        });
        if let Some((_, value, register)) = waiting.max() {
            self.isa.spill(register, slot);
            self.slots |= 1 << slot;
            steps.locations[(value - steps.first) as usize] = Some(StepLocation::Slot(slot));
            self.assign(register, Temp::FREE);
        }
        self.spare()
    }

    pub(super) fn needs(&self, step: u32, value: u32) -> bool {
        self.kind(step).operands().contains(&value)
    }

    /// Releases values that the current step was the last to need.
    pub(super) fn end_uses(&mut self, steps: &mut StepEvaluation, of: &[u32]) {
        for value in of {
            let place = (value - steps.first) as usize;
            if steps.last_use[place] == steps.current {
                match steps.locations[place].take() {
                    Some(StepLocation::Register(register)) => self.release(ArithmeticOperand::Register(register)),
                    Some(StepLocation::Slot(slot)) => self.slots &= !(1 << slot),
                    None => {}
                }
            }
        }
    }
}
