//! Loops, addresses and leaves.

use super::machine::{LOST, Machine};
use super::{Recorded, StepRecorder};
use crate::asm::error::Failure;
use crate::asm::instruction_set::{Control, Limit, SignedOrder, Vector};
use crate::asm::leaf::Leaf;

impl StepRecorder {
    /// Records a jump forward under a condition.
    fn jump_where(&mut self, is_so: impl Fn(&mut Machine) -> bool + 'static) -> usize {
        let number = self.jumps.len();
        self.jumps.push(usize::MAX);
        self.record(move |m| {
            if is_so(m) {
                m.next = Some(m.jumps[number]);
            }
        });
        number
    }
}

impl Control for StepRecorder {
    type Code = Recorded;

    fn integers(&self) -> usize {
        self.set.integers
    }

    fn position(&self) -> usize {
        self.steps.len()
    }

    fn enter(&mut self, slots: usize, begin: usize, end: usize) {
        self.record(move |m| {
            m.slots = vec![None; slots];
            (m.slots[begin], m.slots[end]) = (Some(m.tasks[0]), Some(m.tasks[1]));
        });
    }

    fn take_buffer(&mut self, slot: usize, buffer: usize) {
        self.record(move |m| m.slots[slot] = Some(m.buffers[buffer]));
    }

    fn take_local(&mut self, slot: usize, bytes: i64) {
        self.record(move |m| {
            m.slots[slot] = Some(m.local);
            m.local += bytes;
        });
    }

    fn fence(&mut self) {}

    fn leave(&mut self, _: usize) {
        self.record(|m| m.next = None);
    }

    fn read(&mut self, slot: usize) {
        self.record(move |m| m.accumulator = m.slots[slot]);
    }

    fn write(&mut self, slot: usize) {
        self.record(move |m| m.slots[slot] = m.accumulator);
    }

    fn set(&mut self, slot: usize, value: i32) {
        self.record(move |m| m.slots[slot] = Some(value.into()));
    }

    fn add(&mut self, value: i64) {
        self.record(move |m| m.accumulator = Some(m.accumulated() + value));
    }

    fn split(&mut self, by: i64, slot: usize) {
        self.record(move |m| {
            m.slots[slot] = Some(m.accumulated() % by);
            m.accumulator = Some(m.accumulated() / by);
        });
    }

    fn clamp(&mut self, beyond: SignedOrder, limit: i64) {
        self.record(move |m| {
            m.accumulator = Some(match beyond {
                SignedOrder::Less => m.accumulated().max(limit),
                SignedOrder::Greater => m.accumulated().min(limit),
            });
        });
    }

    fn jump_if_less(&mut self, than: Limit, to: usize) {
        self.record(move |m| {
            let limit = match than {
                Limit::Slot(slot) => m.slot(slot),
                Limit::Value(value) => value,
            };
            if m.accumulated() < limit {
                m.next = Some(to);
            }
        });
    }

    fn jump(&mut self) -> usize {
        self.jump_where(|_| true)
    }

    fn jump_unless_aligned(&mut self, pointers: &[u8], bytes: i64) -> usize {
        self.check(&[], pointers);
        let pointers = pointers.to_vec();
        self.jump_where(move |m| {
            m.accumulator = None;
            pointers.iter().any(|&pointer| m.integer(pointer) % bytes != 0)
        })
    }

    fn jump_if_numbers(&mut self, v: Vector) -> usize {
        self.check(&[v], &[]);
        let lanes = usize::from(self.set.lanes);
        self.jump_where(move |m| {
            let tested = std::mem::replace(&mut m.vectors[usize::from(v)], LOST);
            tested[..lanes].iter().all(|lane| !lane.is_nan())
        })
    }

    fn bind_jump(&mut self, jump: usize) {
        self.jumps[jump] = self.position();
    }

    fn point(&mut self, pointer: u8, slot: usize) {
        self.check(&[], &[pointer]);
        self.record(move |m| m.integers[usize::from(pointer)] = m.slots[slot]);
    }

    fn advance_by_slot(&mut self, pointer: u8, slot: usize, factor: i64) {
        self.check(&[], &[pointer]);
        self.record(move |m| {
            m.integers[usize::from(pointer)] = Some(m.integer(pointer) + m.slot(slot) * factor);
            m.accumulator = None;
        });
    }

    fn advance(&mut self, pointer: u8, bytes: i64) {
        self.check(&[], &[pointer]);
        self.record(move |m| m.integers[usize::from(pointer)] = Some(m.integer(pointer) + bytes));
    }

    fn call(&mut self, leaf: usize) {
        self.record(move |m| {
            m.back = m.next;
            m.next = Some(m.leaves[leaf]);
            m.accumulator = None;
        });
    }

    fn begin_leaf(&mut self, leaf: &Leaf, has_steps: bool) {
        self.parts = leaf.parts.clone();
        self.has_steps = has_steps;
    }

    fn end_leaf(&mut self) {
        self.record(|m| {
            m.next = m.back.take();
            m.vectors.fill(LOST);
            m.vector_slots.fill(LOST);
            m.integers.fill(None);
        });
    }

    fn set_integer(&mut self, register: u8, value: i64) {
        self.check(&[], &[register]);
        self.record(move |m| m.integers[usize::from(register)] = Some(value));
    }

    fn count_down(&mut self, counter: u8, to: usize) {
        self.record(move |m| {
            let left = m.integer(counter) - 1;
            m.integers[usize::from(counter)] = Some(left);
            if left > 0 {
                m.next = Some(to);
            }
        });
    }

    fn finish(self, leaves: &[usize]) -> Result<Recorded, Failure> {
        Ok(Recorded { set: self.set, steps: self.steps, jumps: self.jumps, leaves: leaves.to_vec() })
    }
}
