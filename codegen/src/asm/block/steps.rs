//! Values that are computed in steps, each step after those that it needs.
//!
//! If registers run out, the value whose next use is farthest is spilled to a stack slot. Partial
//! sums are spilled too if they leave too few registers. Two adjacent stores with the same steps
//! are [interleaved].

use super::super::instruction_set::{Address, MinMax, Unary};
use super::*;
use autotune_ir::formula::Primitive;

mod interleaved;
mod locations;

/// Number of registers that suffices for any steps: the operands of any primitive, its result, and
/// a few values of earlier steps.
pub(in crate::asm) const WANTED: Vector = 8;

/// Location of a step's value.
#[derive(Clone, Copy)]
enum StepLocation {
    Register(Vector),
    Slot(usize),
}

/// State of a value's computation in steps.
struct StepEvaluation {
    first: u32,
    root: u32,
    /// Accumulator that the root's value is assigned to.
    goal: Option<Vector>,
    /// Number of the current step.
    current: u32,
    /// Location of each value, if it is a step that later steps need.
    locations: Vec<Option<StepLocation>>,
    /// Last step that needs each value.
    last_use: Vec<u32>,
    /// Register of the current step's value.
    result: Vector,
}

impl<S: Vectors> BlockEmitter<'_, S> {
    /// Emits the steps of a value, from number `first` on, and its store (`=` or `+=`) to `dst`.
    pub(super) fn store_steps(
        &mut self,
        dst: LeafInput,
        mode: StoreMode,
        value: ValueTree,
        first: u32,
    ) -> Result<(), Failure> {
        self.inputs = self.code.inputs_of(value);
        let mut steps = self.steps([first, value.root]);
        let lent = self.spill_sums(&steps);
        // The last step writes to the accumulator itself, unless that is spilled or added to.
        steps.goal = match dst {
            LeafInput::Accumulator(acc) if mode == StoreMode::Assign && (acc as Vector) < self.first => {
                Some(acc as Vector)
            }
            _ => None,
        };
        (first..=value.root).try_for_each(|number| self.advance(&mut steps, number))?;
        if steps.goal != Some(steps.result) {
            self.store_value(dst, mode, steps.result)?;
        }
        self.reload_sums(lent);
        Ok(())
    }

    /// Emits the store (`=` or `+=`) of a register's value to `dst`. Releases the register.
    fn store_value(&mut self, dst: LeafInput, mode: StoreMode, value: Vector) -> Result<(), Failure> {
        match dst {
            LeafInput::Accumulator(acc) => self.keep(acc as Vector, mode, value),
            LeafInput::Part { acc, lanes, .. } => self.keep_part((acc as Vector, lanes), mode, value),
            LeafInput::Source(dst) => match self.source_of(dst) {
                LeafSource::Memory(memory) => self.write(memory, mode, value),
                LeafSource::Constant(_) => Ok(()),
            },
        }
    }

    /// Spills partial sums to the first stack slots until enough registers are free; returns the
    /// number of registers.
    fn spill_sums(&mut self, steps: &StepEvaluation) -> Vector {
        let available = self.end - self.first;
        let is_enough = available >= WANTED || available >= self.needed(steps, false);
        // A spilled partial sum that is an operand needs a register to be loaded to.
        let needed = if is_enough { 0 } else { self.needed(steps, true).min(WANTED) };
        let lent = needed.saturating_sub(available).min(self.first);
        self.first -= lent;
        self.slots = (1 << lent) - 1;
        for slot in 0..lent {
            self.isa.spill(self.first + slot, slot.into());
            self.assign(self.first + slot, Temp::FREE);
        }
        lent
    }

    fn reload_sums(&mut self, lent: Vector) {
        for slot in 0..lent {
            let register = self.first + slot;
            self.vacate(register);
            self.temps[usize::from(register)] = Temp::FREE;
            // A register of an accumulator is not available to other values.
            self.free &= !(1 << register);
            self.isa.fill(register, slot.into());
        }
        self.first += lent;
        self.slots = 0;
    }

    /// Emits accumulator = the value of a register, or += it. Releases the register.
    fn keep(&mut self, acc: Vector, mode: StoreMode, value: Vector) -> Result<(), Failure> {
        let slot = acc.checked_sub(self.first).map(usize::from);
        match (slot, mode) {
            (None, StoreMode::Accumulate) => {
                self.arithmetic(Arithmetic::Add, Some(acc), acc, ArithmeticOperand::Register(value))?;
            }
            (None, StoreMode::Assign) => {
                self.isa.copy(acc, value);
                self.release(ArithmeticOperand::Register(value));
            }
            (Some(slot), StoreMode::Accumulate) => {
                let sum = self.spare()?;
                self.isa.fill(sum, slot);
                self.isa.arithmetic(Arithmetic::Add, sum, sum, ArithmeticOperand::Register(value));
                self.isa.spill(sum, slot);
                [sum, value].iter().for_each(|&register| self.release(ArithmeticOperand::Register(register)));
            }
            (Some(slot), StoreMode::Assign) => {
                self.isa.spill(value, slot);
                self.release(ArithmeticOperand::Register(value));
            }
        }
        Ok(())
    }

    /// Prepares the steps of a value, without a goal.
    fn steps(&self, [first, root]: [u32; 2]) -> StepEvaluation {
        let count = (root - first + 1) as usize;
        let (held, mut last_use) = (vec![None; count], vec![0; count]);
        for number in first..=root {
            self.kind(number).operands().iter().for_each(|of| last_use[(of - first) as usize] = number);
        }
        StepEvaluation { first, root, goal: None, current: first, locations: held, last_use, result: 0 }
    }

    /// Returns the number of registers needed to compute a value's steps without spilling, and one
    /// for storing the result.
    ///
    /// Each step needs registers for the values of earlier steps, for its operands that must be
    /// loaded, for its result and for temporaries. Accumulators must be loaded if they are spilled.
    fn needed(&self, steps: &StepEvaluation, are_lent: bool) -> Vector {
        let (mut held, mut most) = (0, 0);
        for number in steps.first..=steps.root {
            let kind = self.kind(number);
            let own = match kind {
                ValueKind::Input(_) | ValueKind::Binary(..) => continue,
                // These need a temporary: for the NaN check, or for the mask of a gather.
                ValueKind::Step(Primitive::Maximum | Primitive::Minimum, _) | ValueKind::Fetch(_) => 2,
                _ => 1,
            };
            let mut operands: SmallVec<[u32; Primitive::MOST_OPERANDS]> = kind.operands().into();
            operands.sort_unstable();
            operands.dedup();
            let is_input = |of: u32| matches!(self.kind(of), ValueKind::Input(_));
            let is_loaded = |&&of: &&u32| is_input(of) && (are_lent || self.as_accumulator(of).is_none());
            most = most.max(held + operands.iter().filter(is_loaded).count() + own);

            let last_use = |value: u32| steps.last_use[(value - steps.first) as usize];
            held -= operands.iter().filter(|&&of| !is_input(of) && last_use(of) == number).count();
            held += usize::from(last_use(number) > number);
        }
        most as Vector + 1
    }

    /// Emits a step, after all earlier ones.
    fn advance(&mut self, steps: &mut StepEvaluation, number: u32) -> Result<(), Failure> {
        self.advance_as(steps, number, self.kind(number))
    }

    /// Emits a step as one of this kind, after all earlier ones.
    fn advance_as(&mut self, steps: &mut StepEvaluation, number: u32, kind: ValueKind) -> Result<(), Failure> {
        steps.current = number;
        steps.result = match kind {
            ValueKind::Step(primitive, _) => self.step(steps, primitive, kind.operands())?,
            ValueKind::Own([of]) if self.is_only_read(steps, number, of) => self.step_register(steps, of)?,
            ValueKind::Own([of]) => {
                let own = self.writable_register(steps, of, &[])?;
                self.end_uses(steps, &[of]);
                own
            }
            ValueKind::Whole(_) => self.unary(steps, Unary::Whole, kind.operands())?,
            ValueKind::Fetch(of) => self.fetch(steps, of)?,
            ValueKind::Input(_) | ValueKind::Binary(..) => return Ok(()),
        };
        steps.locations[(number - steps.first) as usize] = Some(StepLocation::Register(steps.result));
        Ok(())
    }

    /// True if a step is a copy of an accumulator's register that nothing overwrites, so that the
    /// register itself serves.
    fn is_only_read(&self, steps: &StepEvaluation, number: u32, of: u32) -> bool {
        let overwrites = |step: u32| self.needs(step, number) && matches!(self.kind(step), ValueKind::Fetch(_));
        let is_held = self.as_accumulator(of).is_some_and(|acc| acc < self.first);
        is_held && number != steps.root && !(number..=steps.root).any(overwrites)
    }

    /// Emits a step that applies a primitive; returns the register of its value.
    fn step(&mut self, steps: &mut StepEvaluation, primitive: Primitive, of: &[u32]) -> Result<Vector, Failure> {
        let (op, a, b) = match (primitive, of) {
            (Primitive::MulAdd, &[a, b, c]) => return self.fused(steps, [a, b, c]),
            (Primitive::Maximum, &[a, b]) => return self.bound(steps, MinMax::Larger, [a, b]),
            (Primitive::Minimum, &[a, b]) => return self.bound(steps, MinMax::Smaller, [a, b]),
            (Primitive::Select(compare), _) => {
                let mut registers = [0; Primitive::MOST_OPERANDS];
                for (register, &of) in registers.iter_mut().zip(of) {
                    *register = self.step_register(steps, of)?;
                }
                // [`Vectors::select`] needs a destination that is none of its operands.
                let to = self.room(steps)?;
                let [a, b, then, otherwise] = registers;
                self.isa.select(compare, to, [a, b], then, otherwise);
                registers.iter().for_each(|&register| self.release(ArithmeticOperand::Register(register)));
                self.end_uses(steps, of);
                return Ok(to);
            }
            (Primitive::Sqrt, _) => return self.unary(steps, Unary::Sqrt, of),
            (Primitive::Floor, _) => return self.unary(steps, Unary::Floor, of),
            (Primitive::OfInteger, _) => return self.unary(steps, Unary::OfInteger, of),
            (Primitive::Nearest, _) => return self.unary(steps, Unary::Nearest, of),
            (Primitive::ShiftLeft(places), _) => return self.unary(steps, Unary::ShiftLeft(places), of),
            (Primitive::ShiftRight(places), _) => return self.unary(steps, Unary::ShiftRight(places), of),
            (Primitive::Add, _) => (Arithmetic::Add, of[0], of[1]),
            (Primitive::Sub, _) => (Arithmetic::Sub, of[0], of[1]),
            (Primitive::Div, _) => (Arithmetic::Div, of[0], of[1]),
            (Primitive::And, _) => (Arithmetic::And, of[0], of[1]),
            (Primitive::Or, _) => (Arithmetic::Or, of[0], of[1]),
            (Primitive::AddBits, _) => (Arithmetic::AddBits, of[0], of[1]),
            (Primitive::SubBits, _) => (Arithmetic::SubBits, of[0], of[1]),
            (Primitive::MulBits, _) => (Arithmetic::MulBits, of[0], of[1]),
            (Primitive::MaxBits, _) => (Arithmetic::MaxBits, of[0], of[1]),
            (Primitive::MinBits, _) => (Arithmetic::MinBits, of[0], of[1]),
            (Primitive::Scale, _) => (Arithmetic::Scale, of[0], of[1]),
            // Hardware max and min return their second operand if either is NaN, the IR's the
            // first.
            (Primitive::Max | Primitive::Maximum, _) => (Arithmetic::Max, of[1], of[0]),
            (Primitive::Min | Primitive::Minimum, _) => (Arithmetic::Min, of[1], of[0]),
            (Primitive::Mul | Primitive::MulAdd, _) => (Arithmetic::Mul, of[0], of[1]),
        };

        self.binary(steps, op, [a, b], of)
    }

    /// Emits `a op b` for a step whose operands are `of`.
    fn binary(
        &mut self,
        steps: &mut StepEvaluation,
        op: Arithmetic,
        [a, b]: [u32; 2],
        of: &[u32],
    ) -> Result<Vector, Failure> {
        // The result may overwrite an operand that is used for the last time.
        let a = self.step_register(steps, a)?;
        let b = self.step_operand(steps, b)?;
        self.release(ArithmeticOperand::Register(a));
        self.release(b);
        self.end_uses(steps, of);
        let to = self.room(steps)?;
        self.isa.arithmetic(op, to, a, b);
        Ok(to)
    }

    /// Emits a gather of the element at an index from an input.
    ///
    /// If the index is the same for all lanes, it is a load of a broadcast element or of
    /// consecutive elements.
    fn fetch(&mut self, steps: &mut StepEvaluation, of: [u32; 2]) -> Result<Vector, Failure> {
        let [element, index] = of;
        let memory = self.as_source(element).map(|id| self.source_of(id));
        let Some(LeafSource::Memory(MemoryAccess { at, shape, of: dtype })) = memory else {
            return Err(AssembleError::Gather.into());
        };
        let register = self.step_register(steps, index)?;
        let to = self.room(steps)?;
        match (self.is_uniform(steps.first, index), shape) {
            (true, _) => {
                self.isa.point_at(self.scratch, at.pointer, register, dtype.bytes());
                let at = Address { pointer: self.scratch, ..at };
                self.load_memory(to, MemoryAccess { at, shape, of: dtype });
            }
            (false, Shape::Splat) => {
                let spare = self.room(steps)?;
                self.isa.gather(to, (at, dtype), register, (spare, self.scratch));
                self.release(ArithmeticOperand::Register(spare));
            }
            (false, _) => return Err(AssembleError::Gather.into()),
        }
        self.release(ArithmeticOperand::Register(register));
        self.end_uses(steps, &of);
        Ok(to)
    }

    /// True if a value is the same for every lane; its operands are values from `first` on.
    fn is_uniform(&self, first: u32, value: u32) -> bool {
        let mut uniform: Vec<bool> = Vec::new();
        for number in first..=value {
            let kind = self.kind(number);
            let is_uniform = match kind {
                ValueKind::Input(_) => self.as_source(number).is_some_and(|id| match self.source_of(id) {
                    LeafSource::Constant(_) => true,
                    LeafSource::Memory(memory) => memory.shape == Shape::Splat,
                }),
                _ => kind.operands().iter().all(|of| uniform[(of - first) as usize]),
            };
            uniform.push(is_uniform);
        }
        uniform.last().is_some_and(|is_uniform| *is_uniform)
    }

    fn unary(&mut self, steps: &mut StepEvaluation, op: Unary, of: &[u32]) -> Result<Vector, Failure> {
        let a = self.step_register(steps, of[0])?;
        self.release(ArithmeticOperand::Register(a));
        self.end_uses(steps, of);
        let to = self.room(steps)?;
        self.isa.unary(op, to, a);
        Ok(to)
    }

    /// Emits `a * b + c`. The result overwrites `c` if nothing else needs it, else `a` or `b` if
    /// nothing else needs it.
    fn fused(&mut self, steps: &mut StepEvaluation, of: [u32; 3]) -> Result<Vector, Failure> {
        let [a, b, c] = of;
        let factors = [(a, b), (b, a)]
            .into_iter()
            .find(|&(factor, other)| self.reusable_register(steps, factor, &[other, c]).is_some());
        let (op, to, [first, second]) = match factors.filter(|_| self.reusable_register(steps, c, &[a, b]).is_none()) {
            Some((factor, other)) => (Arithmetic::MulThenAdd, factor, [other, c]),
            None => (Arithmetic::MulAdd, c, [a, b]),
        };

        let register = self.step_register(steps, first)?;
        let operand = self.step_operand(steps, second)?;
        let to = self.writable_register(steps, to, &[first, second])?;
        self.isa.arithmetic(op, to, register, operand);
        self.release(ArithmeticOperand::Register(register));
        self.release(operand);
        self.end_uses(steps, &of);
        Ok(to)
    }

    /// Emits a NaN-propagating maximum or minimum. The result overwrites `b` if nothing else needs
    /// it.
    fn bound(&mut self, steps: &mut StepEvaluation, bound: MinMax, of: [u32; 2]) -> Result<Vector, Failure> {
        let [a, b] = of;
        let operand = self.step_operand(steps, a)?;
        let goal = steps.goal.filter(|_| steps.current == steps.root);
        let is_goal = |acc: &Vector| goal == Some(*acc);
        let to = match self.as_accumulator(b).filter(is_goal) {
            Some(acc) => acc,
            None => self.writable_register(steps, b, &[a])?,
        };
        let spare = self.room(steps)?;
        self.isa.bound(bound, to, operand, spare);
        self.release(ArithmeticOperand::Register(spare));
        self.release(operand);
        self.end_uses(steps, &of);
        Ok(to)
    }

    /// Returns the accumulator that a value is, if it is one.
    fn as_accumulator(&self, value: u32) -> Option<Vector> {
        match self.kind(value) {
            ValueKind::Input(number) => match self.inputs[number as usize] {
                LeafInput::Accumulator(acc) => Some(acc as Vector),
                LeafInput::Part { .. } | LeafInput::Source(_) => None,
            },
            _ => None,
        }
    }

    /// True for lanes of an accumulator that are moved to another register at every use.
    fn is_moved(&self, value: u32) -> bool {
        let ValueKind::Input(number) = self.kind(value) else { return false };
        matches!(self.inputs[number as usize], LeafInput::Part { first: 1.., .. })
    }

    /// Returns a register with a value that may be overwritten; the caller releases it.
    ///
    /// It is the value's own register if no later step and none of `others` needs that, else a
    /// copy.
    fn writable_register(&mut self, steps: &mut StepEvaluation, value: u32, others: &[u32]) -> Result<Vector, Failure> {
        match (self.reusable_register(steps, value, others), self.as_source(value)) {
            (Some(register), _) => {
                steps.locations[(value - steps.first) as usize] = None;
                Ok(register)
            }
            (None, Some(source)) => {
                let to = self.room(steps)?;
                self.load(to, source);
                Ok(to)
            }
            (None, None) if self.is_moved(value) => self.step_register(steps, value),
            (None, None) => {
                let register = self.step_register(steps, value)?;
                let to = self.room(steps)?;
                self.isa.copy(to, register);
                self.release(ArithmeticOperand::Register(register));
                Ok(to)
            }
        }
    }
}
