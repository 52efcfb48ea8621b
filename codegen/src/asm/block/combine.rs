//! Operations that combine values in accumulators.

use smallvec::SmallVec;

use super::BlockEmitter;
use crate::asm::error::{AssembleError, Failure};
use crate::asm::instruction_set::{ArithmeticOperand, Combination, Vector, Vectors};
use crate::asm::leaf::LeafInput;
use crate::asm::plan::NONE;
use autotune_ir::spec::Reduction;

impl<S: Vectors> BlockEmitter<'_, S> {
    /// Emits accumulator = the first value combined with the second.
    pub(super) fn combine(
        &mut self,
        acc: Vector,
        by: Reduction,
        of: (LeafInput, Option<LeafInput>),
    ) -> Result<(), Failure> {
        let first = match of.0 {
            LeafInput::Accumulator(first) | LeafInput::Part { acc: first, .. } => first as Vector,
            // A source that is used only here is loaded straight into the accumulator.
            LeafInput::Source(id)
                if self.plan.uses[id as usize].temp == NONE && self.plan.next_use(id, self.at) == NONE =>
            {
                self.load(acc, id);
                acc
            }
            LeafInput::Source(id) => self.source(id)?,
        };

        match (Combination::of(by), of.1) {
            (Combination::Arithmetic(op), Some(other)) => {
                let other = self.input_operand(other)?;
                self.arithmetic(op, Some(acc), first, other)?;
            }
            // [`Vectors::bound`] overwrites one of its operands.
            (Combination::Bound(bound), Some(other)) => {
                self.take(acc, first);
                let (other, spare) = (self.input_operand(other)?, self.spare()?);
                self.isa.bound(bound, acc, other, spare);
                self.release(ArithmeticOperand::Register(spare));
                self.release(other);
            }
            (_, None) => self.take(acc, first),
        }
        Ok(())
    }

    /// Emits accumulator = the value of a register, and releases the register.
    fn take(&mut self, acc: Vector, value: Vector) {
        if value != acc {
            self.isa.copy(acc, value);
            self.release(ArithmeticOperand::Register(value));
        }
    }

    /// Returns an input of a combination as an operand, which the caller releases.
    fn input_operand(&mut self, input: LeafInput) -> Result<ArithmeticOperand, Failure> {
        match input {
            LeafInput::Accumulator(acc) | LeafInput::Part { acc, .. } => Ok(ArithmeticOperand::Register(acc as Vector)),
            LeafInput::Source(id) => self.operand(id),
        }
    }

    /// Emits a horizontal reduction: lane `r` of an accumulator becomes the reduction of all lanes
    /// of `rows[r]`.
    pub(super) fn fold(
        &mut self,
        acc: Vector,
        rows: SmallVec<[Vector; 16]>,
        (lanes, by): (u8, Option<Reduction>),
    ) -> Result<(), Failure> {
        let whole = (lanes == self.isa.lanes()).then_some(by).flatten();
        let registers = self.isa.fold_registers();
        let needed = usize::from(self.first) + registers;
        let (Some(by), true) = (whole, needed <= usize::from(self.end)) else {
            return Err(AssembleError::RegisterTile { needed, available: self.end.into() }.into());
        };
        self.vacate_first(registers);
        self.isa.fold(by, acc, &rows, self.first);
        Ok(())
    }
}
