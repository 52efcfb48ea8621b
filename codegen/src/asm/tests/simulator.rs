//! A simulated instruction set with any number of lanes and registers, for any host.
//!
//! It records operations and runs them on its own memory. Registers lose their contents wherever
//! [`Vectors`] and `Control` do not guarantee that they are kept.

#![allow(clippy::expect_used)]

use crate::asm::instruction_set::{
    Address, Arithmetic, ArithmeticOperand, Dots, ElementType, MinMax, PACKED, PrefetchHint, Shape, Unary,
    VECTOR_SLOTS, Vector, Vectors,
};
use crate::asm::leaf::MemoryAccess;
use autotune_ir::DType;
use autotune_ir::formula::Primitive;
use autotune_ir::instruction::{DOT_BF16, DOT_I16, DOT_U8_I8, Instruction, PAIRS_I16};
use autotune_ir::program::Compare;
use autotune_ir::spec::Reduction;
use machine::{LOST, MOST_LANES};
use words::{integer, of_integer, pairs, widened};

pub(super) use machine::Machine;
pub(super) use sets::{SETS, SimulatedSet};
mod control;
mod machine;
mod sets;
mod tiles;
mod words;

type Step = Box<dyn Fn(&mut Machine)>;

/// Records operations as steps.
pub(super) struct StepRecorder {
    set: SimulatedSet,
    steps: Vec<Step>,
    /// Targets of forward jumps.
    jumps: Vec<usize>,
    /// Lane counts of the partial vectors of the current leaf.
    parts: Vec<u8>,
    /// True if the current leaf has vector slots.
    has_steps: bool,
}

/// A recorded program, ready to run.
pub(super) struct Recorded {
    set: SimulatedSet,
    steps: Vec<Step>,
    jumps: Vec<usize>,
    leaves: Vec<usize>,
}

impl StepRecorder {
    pub(super) fn new(set: SimulatedSet) -> Self {
        Self { set, steps: Vec::new(), jumps: Vec::new(), parts: Vec::new(), has_steps: false }
    }

    fn record(&mut self, step: impl Fn(&mut Machine) + 'static) {
        self.steps.push(Box::new(step));
    }

    fn check(&self, vectors: &[Vector], integers: &[u8]) {
        assert!(vectors.iter().all(|&v| usize::from(v) < self.set.registers), "no such register: {vectors:?}");
        assert!(integers.iter().all(|&i| usize::from(i) < self.set.integers), "no such register: {integers:?}");
    }

    /// Records copies between elements of groups and of rows. An element is an address and a number
    /// of elements after it.
    fn record_interleave(
        &mut self,
        (groups, rows): (Address, &[Address]),
        first: Vector,
        copy: impl Fn(&mut Machine, (Address, usize), (Address, usize)) + 'static,
    ) {
        let (rows, lanes) = (rows.to_vec(), usize::from(self.set.lanes));
        let taken = self.weave_registers(rows.len() as u8, first).expect("a weave that there is not");
        self.record(move |m| {
            for (r, &row) in rows.iter().enumerate() {
                (0..lanes).for_each(|l| copy(m, (groups, r + l * rows.len()), (row, l)));
            }
            m.vectors[usize::from(first)..][..taken].fill(LOST);
        });
    }

    fn check_memory(&self, shape: Shape, at: Address) {
        self.check(&[], &[at.pointer]);
        if let Shape::Lanes(n) | Shape::Strided { lanes: n, .. } = shape {
            assert!(n == self.set.lanes || self.parts.contains(&n), "{n} lanes that the leaf does not have");
        }
    }
}

impl Vectors for StepRecorder {
    fn lanes(&self) -> u8 {
        self.set.lanes
    }

    fn registers(&self) -> usize {
        self.set.registers
    }

    fn scales(&self) -> bool {
        self.set.scales
    }

    fn dots(&self) -> Dots {
        const ALL: [(&Instruction, Arithmetic); 4] = [
            (&DOT_BF16, Arithmetic::DotBf16),
            (&DOT_U8_I8, Arithmetic::DotU8I8),
            (&DOT_I16, Arithmetic::DotI16),
            (&PAIRS_I16, Arithmetic::MulPairs),
        ];
        ALL.into_iter().filter(|_| self.set.dots).collect()
    }

    fn load(&mut self, v: Vector, shape: Shape, at: Address) {
        self.check(&[v], &[]);
        self.check_memory(shape, at);
        self.record(move |m| m.vectors[usize::from(v)] = m.load(shape, at));
    }

    fn store(&mut self, v: Vector, shape: Shape, at: Address, spare: Vector) {
        self.check(&[v, spare], &[]);
        self.check_memory(shape, at);
        let takes_spare = self.store_needs_register(shape);
        assert!(!takes_spare || v != spare);
        self.record(move |m| {
            m.store(m.vectors[usize::from(v)], shape, at);
            if takes_spare {
                m.vectors[usize::from(spare)] = LOST;
            }
        });
    }

    fn rounds_to_f16(&self) -> bool {
        self.set.rounds_to_f16
    }

    fn rounds_to_bf16(&self) -> bool {
        self.set.rounds_to_bf16
    }

    fn load_narrow(&mut self, v: Vector, memory: MemoryAccess) {
        let MemoryAccess { at, shape, of } = memory;
        self.check(&[v], &[]);
        self.check_memory(shape, at);
        assert!(of != ElementType::Word && (of != ElementType::F16 || self.set.rounds_to_f16), "{of:?}");
        self.record(move |m| {
            m.vectors[usize::from(v)] = m.load_elements(shape, at, of.bytes() as usize).map(|lane| widened(lane, of));
        });
    }

    fn store_narrow(&mut self, v: Vector, memory: MemoryAccess, spare: Vector, is_streamed: bool) {
        let MemoryAccess { at, shape, of } = memory;
        self.check(&[v, spare], &[]);
        self.check_memory(shape, at);
        assert!(v != spare && of != ElementType::Word && (of != ElementType::F16 || self.set.rounds_to_f16), "{of:?}");
        assert!(of != ElementType::Bf16 || self.set.rounds_to_bf16);
        assert!(!is_streamed || shape == Shape::Lanes(self.set.lanes), "{shape:?} streamed");
        let bytes = of.bytes() * i64::from(self.set.lanes);
        self.record(move |m| {
            let address = m.integer(at.pointer) + i64::from(at.disp);
            assert!(!is_streamed || address % bytes == 0, "streamed to the address {address}");
            let narrowed = m.vectors[usize::from(v)].map(|lane| match of {
                ElementType::F16 => DType::F16.words(&[lane])[0],
                ElementType::Bf16 => DType::Bf16.words(&[lane])[0],
                _ => lane.to_bits(),
            });
            m.store_elements(narrowed.map(f32::from_bits), shape, at, of.bytes() as usize);
            m.vectors[usize::from(spare)] = LOST;
        });
    }

    fn copy_narrow(&mut self, to: Address, from: Address, of: ElementType, spare: Vector) {
        self.check(&[spare], &[]);
        assert!(!matches!(of, ElementType::Word | ElementType::F16 | ElementType::Bf16), "{of:?}");
        let (shape, bytes) = (Shape::Lanes(self.set.lanes), of.bytes() as usize);
        [to, from].iter().for_each(|at| self.check_memory(shape, *at));
        self.record(move |m| {
            let elements = m.load_elements(shape, from, bytes);
            m.store_elements(elements, shape, to, bytes);
            m.vectors[usize::from(spare)] = LOST;
        });
    }

    fn packs_bytes(&self) -> bool {
        self.set.packs_bytes
    }

    fn has_tables(&self) -> bool {
        self.set.has_tables
    }

    fn store_packed(
        &mut self,
        values: [Vector; PACKED],
        (to, of): ([Address; PACKED], ElementType),
        table: Option<Address>,
        spare: Vector,
    ) {
        self.check(&values, &[]);
        self.check(&[spare], &[]);
        assert!(self.set.packs_bytes && !values.contains(&spare) && of.bytes() == 1, "{of:?}");
        assert!(table.is_none() || self.set.has_tables && of == ElementType::Byte, "{of:?}");
        let lanes = self.set.lanes;
        to.iter().for_each(|at| self.check_memory(Shape::Lanes(lanes), *at));
        self.record(move |m| {
            values.into_iter().zip(to).for_each(|(v, at)| m.store_saturated(v, (at, of), lanes, table));
            values.into_iter().chain([spare]).for_each(|v| m.vectors[usize::from(v)] = LOST);
        });
    }

    fn stream(&mut self, v: Vector, at: Address) {
        self.check(&[v], &[at.pointer]);
        let lanes = self.set.lanes;
        self.record(move |m| {
            let address = m.integer(at.pointer) + i64::from(at.disp);
            assert!(address % (4 * i64::from(lanes)) == 0, "streamed to the address {address}");
            m.store(m.vectors[usize::from(v)], Shape::Lanes(lanes), at);
        });
    }

    fn store_needs_register(&self, shape: Shape) -> bool {
        matches!(shape, Shape::Lanes(n) if n != self.set.lanes && n > 1)
    }

    fn loads_together(&self, shape: Shape) -> bool {
        matches!(shape, Shape::Strided { stride: 12, .. })
    }

    fn gather(&mut self, to: Vector, (at, of): (Address, ElementType), index: Vector, (spare, scratch): (Vector, u8)) {
        self.check(&[to, index, spare], &[at.pointer, scratch]);
        assert!(to != index && to != spare && index != spare, "a register twice");
        let lanes = usize::from(self.set.lanes);
        self.record(move |m| {
            let index = m.vectors[usize::from(index)];
            let mut found = LOST;
            for lane in 0..lanes {
                let element = m.bits(at, index[lane].to_bits() as usize, of.bytes() as usize);
                found[lane] = widened(element, of);
            }
            (m.vectors[usize::from(to)], m.vectors[usize::from(spare)]) = (found, LOST);
            m.integers[usize::from(scratch)] = None;
        });
    }

    fn point_at(&mut self, to: u8, pointer: u8, index: Vector, bytes: i64) {
        self.check(&[index], &[to, pointer]);
        self.record(move |m| {
            let behind = m.vectors[usize::from(index)][0].to_bits();
            m.integers[usize::from(to)] = Some(m.integer(pointer) + bytes * i64::from(behind));
        });
    }

    fn copy_elements(&mut self, (to, to_stride): (Address, i32), (from, from_stride): (Address, i32), lanes: u8) {
        self.check(&[], &[to.pointer, from.pointer]);
        for i in 0..usize::from(lanes) {
            let (to, from) = (to.offset_by(i, to_stride), from.offset_by(i, from_stride));
            self.record(move |m| {
                let word = m.word(from, 0);
                m.set_word(to, 0, word);
            });
        }
    }

    fn transpose_registers(&self, [rows, columns]: [u8; 2], of: ElementType, first: Vector) -> Option<usize> {
        let registers = usize::from(columns) + 1;
        let is_square = of == ElementType::Word && rows == columns;
        let is_column = i64::from(rows) * of.bytes() == 16 || of.bytes() == 1 && matches!(rows, 4 | 8);
        let is_known = self.set.transposes == Some(columns) && (is_column || is_square);
        let fits = is_known && usize::from(first) + registers <= self.set.registers;
        fits.then_some(registers)
    }

    fn transpose(
        &mut self,
        (rows, columns): (&[Address], &[Address]),
        of: ElementType,
        first: Vector,
        is_streamed: bool,
    ) {
        assert!(!is_streamed || columns.len() == usize::from(self.set.lanes), "{} lanes streamed", columns.len());
        let (rows, columns) = (rows.to_vec(), columns.to_vec());
        let block = [rows.len() as u8, columns.len() as u8];
        let taken = self.transpose_registers(block, of, first).expect("a transpose that there is not");
        let bytes = of.bytes() as usize;
        self.record(move |m| {
            let element = |m: &mut Machine, column: Address, r: usize| m.bits(column, r, bytes);
            let block: Vec<Vec<f32>> =
                columns.iter().map(|&column| (0..rows.len()).map(|r| element(m, column, r)).collect()).collect();
            for (r, &row) in rows.iter().enumerate() {
                block.iter().enumerate().for_each(|(l, column)| m.set_bits(row, (l, bytes), column[r]));
            }
            m.vectors[usize::from(first)..][..taken].fill(LOST);
        });
    }

    fn fold_registers(&self) -> usize {
        2
    }

    fn fold(&mut self, by: Reduction, to: Vector, rows: &[Vector], first: Vector) {
        self.check(&[to, first, first + 1], &[]);
        self.check(rows, &[]);
        let (rows, lanes) = (rows.to_vec(), usize::from(self.set.lanes));
        assert!(rows.len() <= lanes && !rows.contains(&to), "{rows:?} to {to}");
        self.record(move |m| {
            let combined = |a: f32, b: f32| match by {
                Reduction::Sum => a + b,
                Reduction::Product => a * b,
                Reduction::Max | Reduction::Min if a.is_nan() || b.is_nan() => f32::NAN,
                Reduction::Max | Reduction::MaxNumber => a.max(b),
                Reduction::Min => a.min(b),
            };
            let mut folded = LOST;
            for (lane, &row) in rows.iter().enumerate() {
                let row = m.vectors[usize::from(row)];
                folded[lane] = row[1..lanes].iter().fold(row[0], |a, &b| combined(a, b));
            }
            m.vectors[usize::from(to)] = folded;
            m.vectors[usize::from(first)..][..2].fill(LOST);
        });
    }

    fn weave_registers(&self, rows: u8, first: Vector) -> Option<usize> {
        let registers = usize::from(rows) + 2;
        let fits = self.set.interleaved_rows == Some(rows) && usize::from(first) + registers <= self.set.registers;
        fits.then_some(registers)
    }

    fn interleave(&mut self, to: Address, rows: &[Address], first: Vector) {
        self.record_interleave((to, rows), first, |m, group, row| {
            let word = m.word(row.0, row.1);
            m.set_word(group.0, group.1, word);
        });
    }

    fn deinterleave(&mut self, rows: &[Address], from: Address, first: Vector) {
        self.record_interleave((from, rows), first, |m, group, row| {
            let word = m.word(group.0, group.1);
            m.set_word(row.0, row.1, word);
        });
    }

    fn prefetch(&mut self, at: Address, _: PrefetchHint) {
        self.check(&[], &[at.pointer]);
    }

    fn constant(&mut self, v: Vector, bits: u32) {
        self.check(&[v], &[]);
        self.record(move |m| m.vectors[usize::from(v)] = [f32::from_bits(bits); MOST_LANES]);
    }

    fn copy(&mut self, to: Vector, from: Vector) {
        self.check(&[to, from], &[]);
        self.record(move |m| m.vectors[usize::from(to)] = m.vectors[usize::from(from)]);
    }

    fn shift_lanes(&mut self, to: Vector, from: Vector, by: u8) {
        self.check(&[to, from], &[]);
        assert!(by.is_power_of_two() && by < self.set.lanes, "lanes moved by {by}");
        let by = usize::from(by);
        self.record(move |m| {
            let from = m.vectors[usize::from(from)];
            let mut moved = LOST;
            moved[..by].copy_from_slice(&from[by..2 * by]);
            m.vectors[usize::from(to)] = moved;
        });
    }

    fn merge(&mut self, to: Vector, from: Vector, lanes: u8) {
        self.check(&[to, from], &[]);
        assert!(self.parts.contains(&lanes), "{lanes} lanes that the leaf does not have");
        let lanes = usize::from(lanes);
        self.record(move |m| {
            let from = m.vectors[usize::from(from)];
            m.vectors[usize::from(to)][..lanes].copy_from_slice(&from[..lanes]);
        });
    }

    fn arithmetic(&mut self, op: Arithmetic, to: Vector, a: Vector, b: ArithmeticOperand) {
        self.check(&[to, a], &[]);
        assert!(op != Arithmetic::Scale || self.set.scales, "no products with powers of two");
        let [vector, splat] = self.set.operands;
        match b {
            ArithmeticOperand::Register(b) => self.check(&[b], &[]),
            ArithmeticOperand::Vector(at) => assert!(vector, "no operands in memory: {at:?}"),
            ArithmeticOperand::Splat(at) => assert!(splat, "no elements as operands: {at:?}"),
        }
        let lanes = self.set.lanes;
        self.record(move |m| {
            let (old, a) = (m.vectors[usize::from(to)], m.vectors[usize::from(a)]);

            let b = match b {
                ArithmeticOperand::Register(b) => m.vectors[usize::from(b)],
                ArithmeticOperand::Vector(at) => m.load(Shape::Lanes(lanes), at),
                ArithmeticOperand::Splat(at) => m.load(Shape::Splat, at),
            };
            m.vectors[usize::from(to)] = std::array::from_fn(|i| match op {
                Arithmetic::Add => a[i] + b[i],
                Arithmetic::Sub => a[i] - b[i],
                Arithmetic::Mul => a[i] * b[i],
                Arithmetic::Div => a[i] / b[i],
                Arithmetic::Max if a[i] > b[i] => a[i],
                Arithmetic::Min if a[i] < b[i] => a[i],
                Arithmetic::Max | Arithmetic::Min => b[i],
                Arithmetic::And => f32::from_bits(a[i].to_bits() & b[i].to_bits()),
                Arithmetic::Or => f32::from_bits(a[i].to_bits() | b[i].to_bits()),
                Arithmetic::MulBits => f32::from_bits(a[i].to_bits().wrapping_mul(b[i].to_bits())),
                Arithmetic::AddBits => f32::from_bits(a[i].to_bits().wrapping_add(b[i].to_bits())),
                Arithmetic::SubBits => f32::from_bits(a[i].to_bits().wrapping_sub(b[i].to_bits())),
                Arithmetic::MaxBits => of_integer(integer(a[i]).max(integer(b[i]))),
                Arithmetic::MinBits => of_integer(integer(a[i]).min(integer(b[i]))),
                Arithmetic::DotU8I8 => {
                    let bytes = a[i].to_bits().to_le_bytes().into_iter().zip(b[i].to_bits().to_le_bytes());
                    let products = bytes.map(|(a, b)| i32::from(a) * i32::from(b.cast_signed()));
                    of_integer(integer(old[i]).wrapping_add(products.sum()))
                }
                Arithmetic::DotI16 => of_integer(integer(old[i]).wrapping_add(pairs(a[i], b[i]))),
                Arithmetic::MulPairs => of_integer(pairs(a[i], b[i])),
                Arithmetic::Scale => (f64::from(a[i]) * f64::from(b[i]).exp2()) as f32,
                Arithmetic::MulAdd => a[i].mul_add(b[i], old[i]),
                Arithmetic::MulThenAdd => old[i].mul_add(a[i], b[i]),
                Arithmetic::DotBf16 => {
                    let pair = |x: f32| [x.to_bits() << 16, x.to_bits() & 0xffff_0000].map(f32::from_bits);
                    let ([a0, a1], [b0, b1]) = (pair(a[i]), pair(b[i]));
                    a0.mul_add(b0, a1.mul_add(b1, old[i]))
                }
            });
        });
    }

    fn bound(&mut self, bound: MinMax, b: Vector, a: ArithmeticOperand, spare: Vector) {
        assert!(
            b != spare && !matches!(a, ArithmeticOperand::Register(a) if a == spare),
            "an operand in the place of the spare one"
        );
        let op = match bound {
            MinMax::Larger => Arithmetic::Max,
            MinMax::Smaller => Arithmetic::Min,
        };
        self.copy(spare, b);
        self.arithmetic(op, b, b, a);
        self.record(move |m| {
            let old = std::mem::replace(&mut m.vectors[usize::from(spare)], LOST);
            let of_numbers = &mut m.vectors[usize::from(b)];
            of_numbers.iter_mut().zip(old).filter(|(_, old)| old.is_nan()).for_each(|(value, old)| *value = old);
        });
    }

    fn bound_instructions(&self) -> usize {
        3
    }

    fn unary(&mut self, op: Unary, to: Vector, a: Vector) {
        self.check(&[to, a], &[]);
        self.record(move |m| {
            m.vectors[usize::from(to)] = m.vectors[usize::from(a)].map(|a| match op {
                Unary::Sqrt => a.sqrt(),
                Unary::Floor => a.floor(),
                Unary::Whole => f32::from_bits(a as u32),
                Unary::OfInteger => Primitive::OfInteger.value([a, 0.0, 0.0, 0.0]),
                Unary::Nearest => Primitive::Nearest.value([a, 0.0, 0.0, 0.0]),
                Unary::ShiftLeft(places) => f32::from_bits(a.to_bits() << places),
                Unary::ShiftRight(places) => f32::from_bits(a.to_bits() >> places),
            });
        });
    }

    fn select(&mut self, compare: Compare, to: Vector, [a, b]: [Vector; 2], then: Vector, otherwise: Vector) {
        self.check(&[to, a, b, then, otherwise], &[]);
        assert!(![a, b, then, otherwise].contains(&to), "a result in the place of an operand");
        self.record(move |m| {
            let [a, b, then, otherwise] = [a, b, then, otherwise].map(|v| m.vectors[usize::from(v)]);
            let lane = |i: usize| if compare.holds(a[i], b[i]) { then[i] } else { otherwise[i] };
            m.vectors[usize::from(to)] = std::array::from_fn(lane);
        });
    }

    fn spill(&mut self, v: Vector, slot: usize) {
        self.check(&[v], &[]);
        assert!(self.has_steps && slot < VECTOR_SLOTS, "no such slot: {slot}");
        self.record(move |m| m.vector_slots[slot] = m.vectors[usize::from(v)]);
    }

    fn fill(&mut self, v: Vector, slot: usize) {
        self.check(&[v], &[]);
        assert!(self.has_steps && slot < VECTOR_SLOTS, "no such slot: {slot}");
        self.record(move |m| m.vectors[usize::from(v)] = m.vector_slots[slot]);
    }

    fn memory_operand(&self, shape: Shape, at: Address) -> Option<ArithmeticOperand> {
        let [vector, splat] = self.set.operands;
        match shape {
            Shape::Lanes(n) if n == self.set.lanes && vector => Some(ArithmeticOperand::Vector(at)),
            Shape::Splat if splat => Some(ArithmeticOperand::Splat(at)),
            _ => None,
        }
    }
}
