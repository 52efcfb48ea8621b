//! What recorded steps run on.

use super::Recorded;
use crate::asm::instruction_set::{Address, Shape, VECTOR_SLOTS};

pub(super) const MOST_LANES: usize = 16;

pub(super) type Lanes = [f32; MOST_LANES];

/// What a register holds whose value is lost.
pub(super) const LOST: Lanes = [f32::NAN; MOST_LANES];

/// Where buffers begin: far from each other, so that no access beyond one is within another.
const APART: i64 = 1 << 32;

/// Memory and registers; an integer that is lost is none.
pub(in crate::asm::tests) struct Machine {
    /// Buffer `i` begins at `(i + 1) * APART`, the last one is thread-private memory. Of elements of 16 bits there are the bits, below zeros.
    pub(in crate::asm::tests) memory: Vec<Vec<f32>>,
    /// Bytes of each buffer's elements.
    sizes: Vec<i64>,
    pub(super) buffers: Vec<i64>,
    pub(super) local: i64,
    pub(super) tasks: [i64; 2],
    pub(super) vectors: Vec<Lanes>,
    pub(super) vector_slots: Vec<Lanes>,
    pub(super) integers: Vec<Option<i64>>,
    pub(super) slots: Vec<Option<i64>>,
    pub(super) accumulator: Option<i64>,
    pub(super) next: Option<usize>,
    pub(super) back: Option<usize>,
    pub(super) jumps: Vec<usize>,
    pub(super) leaves: Vec<usize>,
}

impl Machine {
    pub(in crate::asm::tests) fn new(code: &Recorded, memory: Vec<Vec<f32>>, sizes: Vec<i64>) -> Self {
        Self {
            sizes,
            buffers: (1..memory.len() as i64).map(|i| i * APART).collect(),
            memory,
            local: 0,
            tasks: [0; 2],
            vectors: vec![LOST; code.set.registers],
            vector_slots: vec![LOST; VECTOR_SLOTS],
            integers: vec![None; code.set.integers],
            slots: Vec::new(),
            accumulator: None,
            next: None,
            back: None,
            jumps: code.jumps.clone(),
            leaves: code.leaves.clone(),
        }
    }

    /// Runs some tasks of the stage whose function is at a place.
    pub(in crate::asm::tests) fn run(&mut self, code: &Recorded, entry: usize, tasks: [i64; 2]) {
        self.tasks = tasks;
        self.local = self.memory.len() as i64 * APART;
        self.next = Some(entry);
        while let Some(at) = self.next {
            self.next = Some(at + 1);
            code.steps[at](self);
        }
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

    /// The element `behind` elements behind an address.
    pub(super) fn element(&mut self, at: Address, behind: usize) -> &mut f32 {
        let address = self.integer(at.pointer) + i64::from(at.disp);
        let (buffer, byte) = (address.div_euclid(APART) - 1, address.rem_euclid(APART));
        let size = self.sizes.get(buffer as usize).copied().unwrap_or(1);
        assert!(byte % size == 0, "{at:?} is not an element");
        let number = (byte / size) as usize + behind;
        let element = self.memory.get_mut(buffer as usize).and_then(|buffer| buffer.get_mut(number));
        element.unwrap_or_else(|| panic!("{at:?} is beyond buffer {buffer}"))
    }

    /// The word of 32 bits `behind` words behind an address, of one element or two.
    fn word(&mut self, at: Address, behind: usize) -> f32 {
        let buffer = (self.integer(at.pointer) + i64::from(at.disp)).div_euclid(APART) - 1;
        if self.sizes.get(buffer as usize) != Some(&2) {
            return *self.element(at, behind);
        }
        let [low, high] = [0, 1].map(|half| self.element(at, 2 * behind + half).to_bits());
        f32::from_bits(low | high << 16)
    }

    /// Words of memory in lanes.
    pub(super) fn load(&mut self, shape: Shape, at: Address) -> Lanes {
        self.lanes_of(shape, at, Self::word)
    }

    /// Elements of memory in lanes.
    pub(super) fn load_elements(&mut self, shape: Shape, at: Address) -> Lanes {
        self.lanes_of(shape, at, |machine, at, behind| *machine.element(at, behind))
    }

    fn lanes_of(&mut self, shape: Shape, at: Address, read: fn(&mut Self, Address, usize) -> f32) -> Lanes {
        let mut lanes = [0.0; MOST_LANES];
        match shape {
            Shape::Splat => lanes.fill(read(self, at, 0)),
            Shape::Lanes(n) => (0..usize::from(n)).for_each(|i| lanes[i] = read(self, at, i)),
            Shape::Strided { lanes: n, stride } => {
                (0..usize::from(n)).for_each(|i| lanes[i] = read(self, at.behind(i, stride), 0));
            }
        }
        lanes
    }

    pub(super) fn store(&mut self, lanes: Lanes, shape: Shape, at: Address) {
        match shape {
            Shape::Splat => *self.element(at, 0) = lanes[0],
            Shape::Lanes(n) => (0..usize::from(n)).for_each(|i| *self.element(at, i) = lanes[i]),
            Shape::Strided { lanes: n, stride } => {
                (0..usize::from(n)).for_each(|i| *self.element(at.behind(i, stride), 0) = lanes[i]);
            }
        }
    }
}
