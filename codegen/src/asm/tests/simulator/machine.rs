//! The machine on which recorded steps run.

use super::super::tile_registers::TileRegisters;
use super::Recorded;
use crate::asm::instruction_set::{Address, ElementType, Shape, VECTOR_SLOTS, Vector};

pub(super) const MOST_LANES: usize = 16;

pub(super) type Lanes = [f32; MOST_LANES];

/// Contents of a register whose value is lost.
pub(super) const LOST: Lanes = [f32::NAN; MOST_LANES];

/// Distance between the addresses of buffers, large enough that no access past one reaches another.
const APART: i64 = 1 << 32;

/// Memory and registers; an integer register whose value is lost is `None`.
pub(in crate::asm::tests) struct Machine {
    /// Contents of buffers. Buffer `i` has the address `(i + 1) * APART`; the last one is
    /// thread-private memory.
    pub(in crate::asm::tests) memory: Vec<Vec<u8>>,
    pub(super) buffers: Vec<i64>,
    pub(super) local: i64,
    pub(super) tasks: [i64; 2],
    pub(super) vectors: Vec<Lanes>,
    pub(super) vector_slots: Vec<Lanes>,
    /// Tile registers, while they are configured.
    pub(super) tiles: Option<TileRegisters>,
    pub(super) integers: Vec<Option<i64>>,
    pub(super) slots: Vec<Option<i64>>,
    pub(super) accumulator: Option<i64>,
    pub(super) next: Option<usize>,
    pub(super) back: Option<usize>,
    pub(super) jumps: Vec<usize>,
    pub(super) leaves: Vec<usize>,
}

impl Machine {
    pub(in crate::asm::tests) fn new(code: &Recorded, memory: Vec<Vec<u8>>) -> Self {
        Self {
            buffers: (1..memory.len() as i64).map(|i| i * APART).collect(),
            memory,
            local: 0,
            tasks: [0; 2],
            vectors: vec![LOST; code.set.registers],
            vector_slots: vec![LOST; VECTOR_SLOTS],
            tiles: None,
            integers: vec![None; code.set.integers],
            slots: Vec::new(),
            accumulator: None,
            next: None,
            back: None,
            jumps: code.jumps.clone(),
            leaves: code.leaves.clone(),
        }
    }

    /// Runs a range of tasks of the stage whose function is at `entry`.
    pub(in crate::asm::tests) fn run(&mut self, code: &Recorded, entry: usize, tasks: [i64; 2]) {
        self.tasks = tasks;
        self.local = self.memory.len() as i64 * APART;
        self.next = Some(entry);
        while let Some(at) = self.next {
            self.next = Some(at + 1);
            code.steps[at](self);
        }
        assert!(self.tiles.is_none(), "tiles are in use after a stage");
    }

    pub(super) fn accumulated(&self) -> i64 {
        self.accumulator.expect("the accumulator is lost")
    }

    pub(super) fn slot(&self, slot: usize) -> i64 {
        self.slots[slot].expect("nothing is in the slot")
    }

    pub(super) fn integer(&self, number: u8) -> i64 {
        self.integers[usize::from(number)].expect("the register is lost")
    }

    /// Returns the memory of the element of `bytes` bytes, `number` elements after an address.
    fn element(&mut self, at: Address, number: usize, bytes: usize) -> &mut [u8] {
        let address = self.integer(at.pointer) + i64::from(at.disp);
        let (buffer, byte) = (address.div_euclid(APART) - 1, address.rem_euclid(APART) as usize);
        assert!(byte.is_multiple_of(bytes), "{at:?} is not an element");
        let first = byte + number * bytes;
        let element = self.memory.get_mut(buffer as usize).and_then(|buffer| buffer.get_mut(first..first + bytes));
        element.unwrap_or_else(|| panic!("{at:?} is beyond buffer {buffer}"))
    }

    /// Returns the word `number` words after an address.
    pub(super) fn word(&mut self, at: Address, number: usize) -> f32 {
        self.bits(at, number, 4)
    }

    pub(super) fn set_word(&mut self, at: Address, number: usize, value: f32) {
        self.set_bits(at, (number, 4), value);
    }

    /// Stores the lowest bytes of a lane.
    pub(super) fn set_bits(&mut self, at: Address, (number, bytes): (usize, usize), value: f32) {
        self.element(at, number, bytes).copy_from_slice(&value.to_bits().to_le_bytes()[..bytes]);
    }

    /// Returns the bits of an element, zero-extended.
    pub(super) fn bits(&mut self, at: Address, number: usize, bytes: usize) -> f32 {
        let element = self.element(at, number, bytes);
        f32::from_bits(element.iter().rev().fold(0, |bits, &byte| bits << 8 | u32::from(byte)))
    }

    /// Loads words into lanes.
    pub(super) fn load(&mut self, shape: Shape, at: Address) -> Lanes {
        self.load_elements(shape, at, 4)
    }

    /// Loads elements into lanes, zero-extended.
    pub(super) fn load_elements(&mut self, shape: Shape, at: Address, bytes: usize) -> Lanes {
        let mut lanes = [0.0; MOST_LANES];
        match shape {
            Shape::Splat => lanes.fill(self.bits(at, 0, bytes)),
            Shape::Lanes(n) => (0..usize::from(n)).for_each(|i| lanes[i] = self.bits(at, i, bytes)),
            Shape::Strided { lanes: n, stride } => {
                (0..usize::from(n)).for_each(|i| lanes[i] = self.bits(at.offset_by(i, stride), 0, bytes));
            }
        }
        lanes
    }

    pub(super) fn store(&mut self, lanes: Lanes, shape: Shape, at: Address) {
        self.store_elements(lanes, shape, at, 4);
    }

    /// Stores the integers in the lanes of a register as bytes, saturated, or the bytes at these
    /// places of a table.
    pub(super) fn store_saturated(
        &mut self,
        v: Vector,
        (at, of): (Address, ElementType),
        lanes: u8,
        table: Option<Address>,
    ) {
        let [least, most] = if of == ElementType::SignedByte { [-128, 127] } else { [0, 255] };
        let saturated = self.vectors[usize::from(v)].map(|lane| lane.to_bits().cast_signed().clamp(least, most));
        let bits = saturated.map(|integer| match table {
            Some(table) => self.bits(table, integer as usize, 1),
            None => f32::from_bits(integer.cast_unsigned()),
        });
        self.store_elements(bits, Shape::Lanes(lanes), at, 1);
    }

    /// Stores the lowest bytes of lanes.
    pub(super) fn store_elements(&mut self, lanes: Lanes, shape: Shape, at: Address, bytes: usize) {
        let mut set = |at: Address, number: usize, lane: f32| self.set_bits(at, (number, bytes), lane);
        match shape {
            Shape::Splat => set(at, 0, lanes[0]),
            Shape::Lanes(n) => (0..usize::from(n)).for_each(|i| set(at, i, lanes[i])),
            Shape::Strided { lanes: n, stride } => {
                (0..usize::from(n)).for_each(|i| set(at.offset_by(i, stride), 0, lanes[i]));
            }
        }
    }
}
