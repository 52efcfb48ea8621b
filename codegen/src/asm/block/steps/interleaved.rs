//! Interleaves the steps of adjacent stores.
//!
//! Each step needs the result of the one before, so it waits for that step's latency. Out-of-order
//! execution does not look as far ahead as the next value's steps. Interleaved, every other
//! instruction belongs to the other value:
//!
//! ```text
//! out[0..16] = exp(in[0..16]); out[16..32] = exp(in[16..32])   →   a = in[0..16]; b = in[16..32]; a = min(a, ..); b = min(b, ..); ..
//! ```
//!
//! Four stores of 8-bit integers are interleaved and packed, where the instruction set packs them.
//! Packing saturates, so the lower bound of the conversion to integers is left out: smaller numbers
//! and NaN are converted to the least 32-bit integer.

use super::*;
use crate::asm::instruction_set::{ElementType, PACKED};

/// A store to memory, or an addition to an accumulator.
#[derive(Clone, Copy)]
struct SteppedStore {
    to: LeafInput,
    mode: StoreMode,
    value: ValueTree,
    /// First step of the value.
    first: u32,
}

impl SteppedStore {
    /// Returns the store of an earlier step's value.
    fn ending_at(self, root: u32) -> Self {
        Self { value: ValueTree { root, ..self.value }, ..self }
    }
}

impl<S: Vectors> BlockEmitter<'_, S> {
    /// Emits the first four or two operations interleaved, if all compute the same steps on other
    /// values and the registers suffice; returns their number, or 0.
    pub(in super::super) fn store_interleaved(&mut self, ops: &[BlockOp]) -> Result<usize, Failure> {
        if self.store_packed(ops)? {
            return Ok(PACKED);
        }
        let Some(stores) = self.alike::<2>(ops) else { return Ok(0) };
        let Some(values) = self.values_of(&stores, None)? else { return Ok(0) };
        stores.iter().zip(values).try_for_each(|(it, value)| self.store_value(it.to, it.mode, value))?;
        Ok(stores.len())
    }

    /// Emits the first operations if they store whole vectors of 8-bit integers, which are packed;
    /// returns false otherwise.
    fn store_packed(&mut self, ops: &[BlockOp]) -> Result<bool, Failure> {
        let stores = if self.isa.packs_bytes() { self.alike::<PACKED>(ops) } else { None };
        let Some(stores) = stores else { return Ok(false) };
        let to = stores.map(|it| self.whole_bytes(it));
        let [Some((_, of)), ..] = to else { return Ok(false) };
        let at = to.map(|place| place.filter(|(_, other)| *other == of).map(|(at, _)| at));
        let [Some(a), Some(b), Some(c), Some(d)] = at else { return Ok(false) };

        let table = self.table(stores[0]);
        let (packed, of) = match table {
            Some(_) if !self.isa.has_tables() => return Ok(false),
            Some((_, index)) => (stores.map(|it| it.ending_at(index)), ElementType::Byte),
            None => (stores, of),
        };
        let bound = self.lower_bound(packed[0], of);
        let Some(values) = self.values_of(&packed, bound)? else { return Ok(false) };
        let spare = self.spare()?;
        self.isa.store_packed(values, ([a, b, c, d], of), table.map(|(table, _)| table), spare);
        values.iter().chain([&spare]).for_each(|&register| self.release(ArithmeticOperand::Register(register)));
        Ok(true)
    }

    /// Returns the table in which a store looks up what it stores, and the value of the index.
    fn table(&self, store: SteppedStore) -> Option<(Address, u32)> {
        let ValueKind::Fetch([element, index]) = self.kind(store.value.root) else { return None };
        let ValueKind::Input(number) = self.kind(element) else { return None };
        let id = self.code.inputs_of(store.value)[number as usize].source()?;
        let LeafSource::Memory(memory) = self.source_of(id) else { return None };
        (memory.shape == Shape::Splat && memory.of.bytes() == 1).then_some((memory.at, index))
    }

    /// Returns the first `N` operations as stores that compute the same steps, none of which reads
    /// what an earlier one stores.
    fn alike<const N: usize>(&self, ops: &[BlockOp]) -> Option<[SteppedStore; N]> {
        let ops = ops.first_chunk::<N>()?;
        let mut stores = [self.stored(&ops[0])?; N];
        for (store, op) in stores.iter_mut().zip(ops) {
            *store = self.stored(op)?;
        }

        let is_alike = |it: &SteppedStore| (it.first, it.value.root) == (stores[0].first, stores[0].value.root);
        let is_free = |number: usize| {
            let earlier = &stores[..number];
            earlier.iter().all(|other| !self.may_read(stores[number].value, other.to))
        };
        (stores.iter().all(is_alike) && (1..N).all(is_free)).then_some(stores)
    }

    /// Emits the interleaved steps of values, except for `bound`, which is a step and the operand
    /// whose value it gets; returns the registers of the values. `None` if the registers do not
    /// suffice.
    fn values_of<const N: usize>(
        &mut self,
        stores: &[SteppedStore; N],
        bound: Option<(u32, u32)>,
    ) -> Result<Option<[Vector; N]>, Failure> {
        let SteppedStore { first, value: ValueTree { root, .. }, .. } = stores[0];
        self.inputs = self.code.inputs_of(stores[0].value);
        let mut all = [(); N].map(|()| self.steps([first, root]));
        // While one value's step is computed, the others' results stay in registers.
        let needed = usize::from(self.needed(&all[0], false)) + (N - 1) * all[0].most_held();
        if needed > self.in_use().len() {
            return Ok(None);
        }

        let (at, common) = (self.at, self.common_steps(stores));
        for number in first..=root {
            if common[(number - first) as usize] {
                self.advance_together(&mut all, number)?;
                continue;
            }
            for (turn, (store, steps)) in (at..).zip(stores.iter().zip(&mut all)) {
                // Each value has its own sources, and its own position in the plan.
                (self.at, self.inputs) = (turn, self.code.inputs_of(store.value));
                match bound {
                    Some((step, of)) if step == number => self.advance_as(steps, number, ValueKind::Own([of]))?,
                    _ => self.advance(steps, number)?,
                }
            }
        }
        Ok(Some(all.map(|steps| steps.result)))
    }

    /// Returns for each step of values if it is the same for all of them, such as the conversion of
    /// an element that all read.
    fn common_steps<const N: usize>(&self, stores: &[SteppedStore; N]) -> Vec<bool> {
        let SteppedStore { first, value: ValueTree { root, .. }, .. } = stores[0];
        let inputs = stores.each_ref().map(|it| self.code.inputs_of(it.value));
        let mut common: Vec<bool> = Vec::with_capacity((root - first + 1) as usize);
        for number in first..=root {
            let of_all = match self.kind(number) {
                ValueKind::Input(input) => {
                    let element = inputs[0][input as usize];
                    element.source().is_some() && inputs.iter().all(|other| other[input as usize] == element)
                }
                kind => number != root && kind.operands().iter().all(|of| common[(of - first) as usize]),
            };
            common.push(of_all);
        }
        common
    }

    /// Emits a step once for values that have it in common.
    fn advance_together<const N: usize>(&mut self, all: &mut [StepEvaluation; N], number: u32) -> Result<(), Failure> {
        let kind = self.kind(number);
        if matches!(kind, ValueKind::Input(_) | ValueKind::Binary(..)) {
            return Ok(());
        }
        let [own, others @ ..] = &mut all[..] else { return Ok(()) };
        for steps in &mut *others {
            steps.current = number;
            self.end_uses(steps, kind.operands());
        }
        self.advance(own, number)?;

        let place = (number - own.first) as usize;
        others.iter_mut().for_each(|steps| steps.locations[place] = own.locations[place]);
        self.pin(own.result, others.len() as u32);
        Ok(())
    }

    /// Returns the address and type to which an operation stores a whole vector of 8-bit integers.
    fn whole_bytes(&self, store: SteppedStore) -> Option<(Address, ElementType)> {
        let LeafInput::Source(to) = store.to else { return None };
        let LeafSource::Memory(memory) = self.source_of(to) else { return None };
        let is_bytes = store.mode == StoreMode::Assign && memory.of.bytes() == 1;
        let is_whole = memory.shape == Shape::Lanes(self.isa.lanes());
        (is_bytes && is_whole && !self.is_streamed(memory.at)).then_some((memory.at, memory.of))
    }

    /// Returns the step that bounds a value from below before the conversion to integers of a type,
    /// and the operand that it bounds. The steps are those of [`Formula::narrowed`].
    fn lower_bound(&self, store: SteppedStore, of: ElementType) -> Option<(u32, u32)> {
        let least: f32 = if of == ElementType::SignedByte { -128.0 } else { 0.0 };
        let ValueKind::Step(Primitive::Nearest, [bounded, ..]) = self.kind(store.value.root) else { return None };
        let ValueKind::Step(Primitive::Min, [from_below, ..]) = self.kind(bounded) else { return None };
        let ValueKind::Step(Primitive::Max, [bound, value, ..]) = self.kind(from_below) else { return None };
        let ValueKind::Input(input) = self.kind(bound) else { return None };

        let id = self.code.inputs_of(store.value)[input as usize].source()?;
        (self.source_of(id) == LeafSource::Constant(least.to_bits())).then_some((from_below, value))
    }

    fn stored(&self, op: &BlockOp) -> Option<SteppedStore> {
        let BlockOp::Store { dst: to, mode, value: value @ ValueTree { steps: Some(first), .. } } = *op else {
            return None;
        };
        let has_turns = match to {
            LeafInput::Source(_) => true,
            LeafInput::Accumulator(_) => mode == StoreMode::Accumulate,
            LeafInput::Part { .. } => false,
        };
        has_turns.then_some(SteppedStore { to, mode, value, first })
    }

    /// True if a value reads an element that a store to a place may change.
    fn may_read(&self, value: ValueTree, place: LeafInput) -> bool {
        self.code.inputs_of(value).iter().any(|input| match (*input, place) {
            (LeafInput::Source(a), LeafInput::Source(b)) => {
                self.code.buffer_of(a).is_some_and(|buffer| self.code.buffer_of(b) == Some(buffer))
            }
            (LeafInput::Accumulator(a) | LeafInput::Part { acc: a, .. }, LeafInput::Accumulator(b)) => a == b,
            _ => false,
        })
    }
}

impl StepEvaluation {
    /// Returns the maximum number of values that are live at once.
    fn most_held(&self) -> usize {
        let held = |now: u32| {
            let made = self.last_use.iter().take((now - self.first + 1) as usize);
            made.filter(|&&last| last > now).count()
        };
        (self.first..=self.root).map(held).max().unwrap_or(0)
    }
}
