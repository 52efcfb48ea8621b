//! Stores that read or write integers. Their values are computed in steps: on the bits of i32 where
//! they [are integers](Expr::is_integer), else on f32.

use super::super::error::{AssembleError, Failure};
use super::super::instruction_set::ElementType;
use super::{ElementFormat, NestElement, NestNode, Resolver, ValueKind, ValueTree};
use autotune_ir::DType;
use autotune_ir::formula::{Formula, Primitive};
use autotune_ir::program::{self, BufferId, Expr, GatherAccess, Scope, StoreMode, TABLE_LEN, UnaryOp};

/// Numbers of a tree's first element and first value.
type First = (usize, usize);

/// A value's number, and true if it is the bits of an integer.
type Typed = (u32, bool);

impl<'p> Resolver<'p> {
    /// True if a store reads or writes integers and must convert or compute with them.
    pub(super) fn computes_integers(&self, store: &program::Store) -> bool {
        let dtype = |id: BufferId| self.program.dtype(id);
        let is_copy = store.copied().is_some_and(|(from, _)| dtype(from.buffer) == dtype(store.dst.buffer));
        let is_cleared = store.mode == StoreMode::Assign && store.value == Expr::Const(0.0);

        let mut has_integers = dtype(store.dst.buffer).is_integer();
        store.value.for_each_load(&mut |access| has_integers |= dtype(access.buffer).is_integer());
        has_integers && !is_copy && !is_cleared
    }

    /// Pushes a store whose value is computed in steps and converted to the type of the buffer.
    pub(super) fn store_of_integers(&mut self, store: &'p program::Store) -> Result<(), Failure> {
        let first = (self.nest.elements.len(), self.nest.values.len());
        let dtype = self.program.dtype(store.dst.buffer);
        let of = self.stored_type(store.dst.buffer);

        let mut value = self.typed(&store.value, first)?;
        // Accumulation becomes a load and an integer addition, since accumulating stores add f32.
        let mut mode = store.mode;
        if dtype.is_integer() && mode == StoreMode::Accumulate {
            let old = self.access(&store.dst)?;
            let old = self.known_element(old, first);
            let new = self.bits_of(value, DType::I32, first)?;
            value = (self.unique_step(ValueKind::Step(Primitive::AddBits, [old, new, 0, 0]), first), true);
            mode = StoreMode::Assign;
        }
        if of != ElementType::Word && mode == StoreMode::Accumulate {
            return Err(AssembleError::Narrow.into());
        }

        let root = match dtype.is_integer() {
            true => self.stored_integer(value, store, first)?,
            false => self.stored_number(value, (dtype, of), first)?,
        };

        let dst = self.access_as(&store.dst, ElementFormat { group: 1, of })?;
        let end = self.nest.elements.len() as u32;
        let is_read = matches!(self.nest.values[root as usize].kind, ValueKind::Input(_));
        let steps = (!is_read).then_some(first.1 as u32);
        let value = ValueTree { root, inputs: (first.0 as u32, end), steps };
        self.nest.nodes.push(NestNode::Store { dst: end, mode, value });
        self.nest.elements.push(dst);
        Ok(())
    }

    /// Returns the bits that a store of a value writes to a buffer of integers.
    fn stored_integer(&mut self, value: Typed, store: &program::Store, first: First) -> Result<u32, Failure> {
        let dst = self.program.buffer(store.dst.buffer);
        let is_sum = dst.scope == Scope::Register;
        let from = match &store.value {
            Expr::Gather(gather) => Some(&gather.access),
            _ => store.copied().map(|(from, _)| from),
        };
        let held = from.is_some_and(|from| dst.dtype.holds(self.program.dtype(from.buffer)));
        // Registers hold 32 bits, so only stores to narrower memory saturate.
        match value {
            (bits, true) if is_sum || held || dst.dtype == DType::I32 => Ok(bits),
            (bits, true) => self.converted(Formula::saturated(dst.dtype), bits, dst.dtype, first),
            number => self.bits_of(number, dst.dtype, first),
        }
    }

    /// Returns the bits that a store of a value writes to a buffer of floating-point numbers.
    fn stored_number(&mut self, value: Typed, (dtype, of): (DType, ElementType), first: First) -> Result<u32, Failure> {
        let number = self.number_of(value, first)?;
        match of {
            ElementType::Half => self.converted(Formula::narrowed(dtype), number, dtype, first),
            _ => Ok(number),
        }
    }

    /// Resolves a value; returns its last step, and true if that is an integer.
    fn typed(&mut self, value: &'p Expr, first: First) -> Result<Typed, Failure> {
        let is_integer = value.is_integer(&|id| self.program.dtype(id).is_integer());
        if let Expr::Load(access) = value {
            let element = self.access(access)?;
            let number = self.known_element(element, first);
            let widened = self.widening(value).map(|formula| self.with_stored_operand(formula, number, first));
            return Ok((widened.unwrap_or(number), is_integer));
        }
        if let Expr::Gather(gather) = value
            && is_integer
        {
            return Ok((self.looked_up(gather, first)?, true));
        }
        let formula = match value {
            Expr::Binary(op, _) if is_integer => Formula::of_integers(*op),
            other => Formula::of(other),
        };
        // Constants and gathers have no formula.
        let Some(formula) = formula else { return Ok((self.steps(value, first)?, false)) };

        let mut operands = [0; Primitive::MOST_OPERANDS];
        for (operand, of) in operands.iter_mut().zip(value.operands()) {
            *operand = match of {
                Expr::Const(whole) if is_integer => self.known_constant((*whole as i32).cast_unsigned(), first),
                _ if is_integer => self.typed(of, first)?.0,
                _ => {
                    let number = self.typed(of, first)?;
                    self.number_of(number, first)?
                }
            };
        }
        Ok((self.formula(formula, operands, first), is_integer))
    }

    /// Resolves a gather from a table with a byte for each u8, whose index is an integer or a
    /// number rounded to u8.
    fn looked_up(&mut self, gather: &'p GatherAccess, first: First) -> Result<u32, Failure> {
        let table = self.program.buffer(gather.access.buffer);
        let (1, [TABLE_LEN], [at]) = (table.dtype.bytes(), &table.shape[..], &gather.at[..]) else {
            return Err(AssembleError::Gather.into());
        };
        let index = match at {
            // Its register is overwritten.
            Expr::Load(access) if self.program.dtype(access.buffer) == DType::U8 => {
                let bits = self.typed(at, first)?.0;
                self.unique_step(ValueKind::Own([bits]), first)
            }
            Expr::Unary(UnaryOp::Cast(DType::U8), number) => {
                let number = self.typed(number, first)?;
                let number = self.number_of(number, first)?;
                self.converted(Formula::narrowed(DType::U8), number, DType::U8, first)?
            }
            _ => match self.typed(at, first)? {
                (bits, true) => self.converted(Formula::saturated(DType::U8), bits, DType::U8, first)?,
                _ => return Err(AssembleError::Gather.into()),
            },
        };

        let element = self.access(&gather.access)?;
        let element = self.known_element(element, first);
        Ok(self.unique_step(ValueKind::Fetch([element, index]), first))
    }

    fn number_of(&mut self, (value, is_integer): Typed, first: First) -> Result<u32, Failure> {
        if is_integer { self.converted(Formula::widened(DType::I32), value, DType::I32, first) } else { Ok(value) }
    }

    /// Returns the bits of the integer of a type that is nearest to a number. Integers are returned
    /// unchanged.
    fn bits_of(&mut self, (value, is_integer): Typed, dtype: DType, first: First) -> Result<u32, Failure> {
        if is_integer { Ok(value) } else { self.converted(Formula::narrowed(dtype), value, dtype, first) }
    }

    fn converted(
        &mut self,
        formula: Option<&'static Formula>,
        value: u32,
        dtype: DType,
        first: First,
    ) -> Result<u32, Failure> {
        let formula = formula.ok_or(AssembleError::Type(dtype))?;
        Ok(self.with_stored_operand(formula, value, first))
    }

    /// Returns the value of an element; an element that is known already is not added again.
    pub(super) fn known_element(&mut self, element: NestElement, first: First) -> u32 {
        let number = self.input(element, first.0);
        self.known_input(first).unwrap_or(number)
    }
}
