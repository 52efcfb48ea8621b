//! Accumulators that values are combined in.

use smallvec::SmallVec;

use super::Block;
use crate::asm::error::{AssembleError, Failure};
use crate::asm::instruction_set::{Combination, Operand, Vector, Vectors};
use crate::asm::leaf::Input;
use crate::asm::plan::NONE;
use autotune_ir::spec::Reduction;

impl<S: Vectors> Block<'_, S> {
    /// Accumulator = the first value combined with the second.
    pub(super) fn combine(&mut self, acc: Vector, by: Reduction, of: (Input, Option<Input>)) -> Result<(), Failure> {
        let first = match of.0 {
            Input::Accumulator(first) | Input::Part { acc: first, .. } => first as Vector,
            Input::Source(id)
                if self.plan.uses[id as usize].temp == NONE && self.plan.next_use(id, self.at) == NONE =>
            {
                self.load(acc, id);
                acc
            }
            Input::Source(id) => self.source(id)?,
        };

        match (Combination::of(by), of.1) {
            (Combination::Arithmetic(op), Some(other)) => {
                let other = self.input_operand(other)?;
                self.arithmetic(op, Some(acc), first, other)?;
            }
            // What bounds another value takes its place.
            (Combination::Bound(bound), Some(other)) => {
                self.take(acc, first);
                let (other, spare) = (self.input_operand(other)?, self.spare()?);
                self.isa.bound(bound, acc, other, spare);
                self.release(Operand::Register(spare));
                self.release(other);
            }
            (_, None) => self.take(acc, first),
        }
        Ok(())
    }

    /// Accumulator = the value of a register, which is released.
    fn take(&mut self, acc: Vector, value: Vector) {
        if value != acc {
            self.isa.copy(acc, value);
            self.release(Operand::Register(value));
        }
    }

    /// What a combination reads, as an operand; to be released.
    fn input_operand(&mut self, input: Input) -> Result<Operand, Failure> {
        match input {
            Input::Accumulator(acc) | Input::Part { acc, .. } => Ok(Operand::Register(acc as Vector)),
            Input::Source(id) => self.operand(id),
        }
    }

    /// Lane `r` of an accumulator is what all lanes of `rows[r]` come to.
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
