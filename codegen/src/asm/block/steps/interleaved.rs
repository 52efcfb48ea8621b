//! Interleaves the steps of two stores.
//!
//! Each step needs the result of the one before, so it waits for that step's latency. Out-of-order
//! execution does not look as far ahead as the next value's steps. Interleaved, every other
//! instruction belongs to the other value:
//!
//! ```text
//! out[0..16] = exp(in[0..16]); out[16..32] = exp(in[16..32])   →   a = in[0..16]; b = in[16..32]; a = min(a, ..); b = min(b, ..); ..
//! ```

use super::*;

/// A store to memory, or an addition to an accumulator.
#[derive(Clone, Copy)]
struct SteppedStore {
    to: LeafInput,
    mode: StoreMode,
    value: ValueTree,
    /// First step of the value.
    first: u32,
}

impl<S: Vectors> BlockEmitter<'_, S> {
    /// Emits the first two operations interleaved, if both compute the same steps on other values
    /// and the registers suffice; returns false otherwise.
    pub(in super::super) fn store_interleaved(&mut self, ops: &[BlockOp]) -> Result<bool, Failure> {
        let [a, b, ..] = ops else { return Ok(false) };
        let (Some(a), Some(b)) = (self.stored(a), self.stored(b)) else { return Ok(false) };
        if (a.first, a.value.root) != (b.first, b.value.root) || self.may_read(b.value, a.to) {
            return Ok(false);
        }
        self.inputs = self.code.inputs_of(a.value);
        let mut all = [a, b].map(|it| (it, self.steps([it.first, it.value.root])));
        let steps = &all[0].1;
        // While one value's step is computed, the other's results stay in registers.
        if usize::from(self.needed(steps, false)) + steps.most_held() > self.in_use().len() {
            return Ok(false);
        }

        let at = self.at;
        for number in a.first..=a.value.root {
            for (turn, (stored, steps)) in (at..).zip(&mut all) {
                // Each value has its own sources, and its own position in the plan.
                (self.at, self.inputs) = (turn, self.code.inputs_of(stored.value));
                self.advance(steps, number)?;
            }
        }
        all.iter().try_for_each(|(stored, steps)| self.store_value(stored.to, stored.mode, steps.result))?;
        Ok(true)
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
