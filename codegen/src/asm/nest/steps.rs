//! Values as sequences of steps, with common subexpressions shared.

use smallvec::SmallVec;

use super::super::error::{AssembleError, Failure};
use super::super::instruction_set::ElementType;
use super::{ElementBase, LeafNest, NestElement, Resolver, ValueKind};
use autotune_ir::formula::{Formula, FormulaStep, Primitive};
use autotune_ir::program::{self, Expr};

impl<'p> Resolver<'p> {
    /// Pushes the steps of a value whose elements and values begin at `first`; returns the last
    /// one. Steps that exist already are reused.
    pub(super) fn steps(&mut self, value: &'p Expr, first: (usize, usize)) -> Result<u32, Failure> {
        if let Expr::Gather(gather) = value {
            return self.gather(gather, first);
        }
        let Some(formula) = Formula::of(value) else {
            let number = self.value(value, first.0)?;
            let number = self.known_input(first).unwrap_or(number);
            return Ok(self.widening(value).map_or(number, |formula| self.with_stored_operand(formula, number, first)));
        };
        let mut operands = [0; Primitive::MOST_OPERANDS];
        for (operand, of) in operands.iter_mut().zip(value.operands()) {
            *operand = self.steps(of, first)?;
        }
        Ok(self.formula(formula, operands, first))
    }

    /// Pushes the steps of a gather; returns the last one.
    ///
    /// Its index is clamped, so that it is an integer within the buffer for all values.
    fn gather(&mut self, gather: &'p program::GatherAccess, first: (usize, usize)) -> Result<u32, Failure> {
        let buffer = self.program.buffer(gather.access.buffer);
        let is_small = buffer.len() <= i32::MAX as usize && gather.dims.iter().all(|&dim| buffer.shape[dim] <= 1 << 24);
        if !is_small {
            return Err(AssembleError::Gather.into());
        }

        // Gathers of 16-bit elements may load pairs of adjacent ones, so they need at least two.
        // With a single element the index is always 0.
        if !buffer.dtype.is_word() && gather.dims.iter().all(|&dim| buffer.shape[dim] == 1) {
            let element = self.access(&gather.access)?;
            return Ok(self.known_element(element, first));
        }

        let mut index = None;
        for (&dim, at) in gather.dims.iter().zip(&gather.at) {
            let stride: usize = buffer.shape[dim + 1..].iter().product();
            let last = (buffer.shape[dim] - 1) as f32;
            let at = self.steps(at, first)?;
            // These return their first operand if the second is NaN, so that a NaN index becomes 0.
            let [zero, last] = [0.0, last].map(|bound: f32| self.known_constant(bound.to_bits(), first));
            let at = self.unique_step(ValueKind::Step(Primitive::Max, [zero, at, 0, 0]), first);
            let at = self.unique_step(ValueKind::Step(Primitive::Min, [at, last, 0, 0]), first);
            let mut at = self.unique_step(ValueKind::Whole([at]), first);
            if stride != 1 {
                let stride = self.known_constant(stride as u32, first);
                at = self.unique_step(ValueKind::Step(Primitive::MulBits, [at, stride, 0, 0]), first);
            }
            index = Some(match index {
                Some(index) => self.unique_step(ValueKind::Step(Primitive::AddBits, [index, at, 0, 0]), first),
                None => at,
            });
        }

        let element = self.access(&gather.access)?;
        let of = self.loaded_type(gather.access.buffer);
        let has_values = matches!(of, ElementType::Word | ElementType::F16 | ElementType::Bf16);
        if !has_values || buffer.dtype.is_integer() || !matches!(element.place, ElementBase::Memory(_)) {
            return Err(AssembleError::Gather.into());
        }
        let element = self.input(element, first.0);
        let element = self.known_input(first).unwrap_or(element);
        let index = index.ok_or(AssembleError::Gather)?;
        Ok(self.unique_step(ValueKind::Fetch([element, index]), first))
    }

    /// Pushes the steps of a formula applied to values; returns the last one.
    pub(super) fn formula(
        &mut self,
        formula: &Formula,
        operands: [u32; Primitive::MOST_OPERANDS],
        first: (usize, usize),
    ) -> u32 {
        let mut numbers: SmallVec<[u32; 64]> = SmallVec::new();
        for step in formula.steps() {
            numbers.push(match *step {
                FormulaStep::Operand(number) => operands[usize::from(number)],
                FormulaStep::Constant(bits) => self.known_constant(bits, first),
                FormulaStep::Apply(primitive, of) => {
                    let mut numbers_of = [0; Primitive::MOST_OPERANDS];
                    let operands = numbers_of.iter_mut().zip(&of[..primitive.operands()]);
                    operands.for_each(|(number, &of)| *number = numbers[usize::from(of)]);
                    let kind = ValueKind::Step(primitive, numbers_of);
                    match primitive {
                        // Sets without the instruction compute it in several steps.
                        Primitive::Scale if !self.offers.scales => self.formula(Formula::scale(), numbers_of, first),
                        _ => self.unique_step(kind, first),
                    }
                }
            });
        }
        numbers.last().copied().unwrap_or_default()
    }

    /// Returns the formula that widens a loaded element, if that takes steps.
    pub(super) fn widening(&self, value: &Expr) -> Option<&'static Formula> {
        match value {
            Expr::Load(access) if self.loaded_type(access.buffer) == ElementType::Half => {
                Formula::widened(self.program.dtype(access.buffer))
            }
            _ => None,
        }
    }

    /// Pushes the steps of a formula that may need its operand several times; returns the last one.
    pub(super) fn with_stored_operand(&mut self, formula: &Formula, value: u32, first: (usize, usize)) -> u32 {
        let own = match self.nest.values[value as usize].kind {
            ValueKind::Input(_) => self.unique_step(ValueKind::Own([value]), first),
            _ => value,
        };
        self.formula(formula, [own, 0, 0, 0], first)
    }

    /// Returns a step; a step that exists already is not added again.
    pub(super) fn unique_step(&mut self, kind: ValueKind, first: (usize, usize)) -> u32 {
        self.known_value(kind, first.1).unwrap_or_else(|| self.push_value(kind, 0))
    }

    pub(super) fn known_constant(&mut self, bits: u32, first: (usize, usize)) -> u32 {
        let number = self.constant(bits, first.0);
        self.known_input(first).unwrap_or(number)
    }

    fn known_value(&self, kind: ValueKind, first: usize) -> Option<u32> {
        let known = self.nest.values[first..].iter().position(|value| value.kind == kind)?;
        Some((first + known) as u32)
    }

    /// Removes the last element and its value if an equal element exists; returns the value of the
    /// equal one.
    pub(super) fn known_input(&mut self, (first_element, first_value): (usize, usize)) -> Option<u32> {
        let LeafNest { elements, terms, .. } = &self.nest;
        let (last, others) = elements[first_element..].split_last()?;
        let terms_of = |element: &NestElement| &terms[element.terms.0 as usize..element.terms.1 as usize];
        let is_same = |other: &NestElement| {
            (other.place, other.constant) == (last.place, last.constant) && terms_of(other) == terms_of(last)
        };
        let known = others.iter().position(is_same)?;
        let number = self.known_value(ValueKind::Input(known as u32), first_value)?;
        self.nest.elements.pop();
        self.nest.values.pop();
        Some(number)
    }
}
