//! What an instruction set offers.
//!
//! Registers are numbers. Vector registers hold whole vectors of f32: a scalar is the same value in
//! every lane, a vector of fewer lanes has zeros behind it. Integer registers are the pointers of a
//! leaf, then the counters of its loops. What is outside leaves lives in slots of eight bytes on
//! the stack; one integer more, the accumulator, is what they are computed in.

use smallvec::SmallVec;

use super::error::Failure;
use super::leaf::{Leaf, Memory};
use autotune_ir::instruction::Instruction;
use autotune_ir::program::Compare;
use autotune_ir::spec::Reduction;

/// Number of a vector register.
pub(super) type Vector = u8;

/// Vector registers and integer registers, at most.
pub(super) const MAX_REGISTERS: usize = 32;

/// Memory at a distance in bytes from where a pointer points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) pointer: u8,
    pub(super) disp: i32,
}

impl Address {
    /// The address `strides * stride` bytes behind it.
    pub(super) fn behind(self, strides: usize, stride: i32) -> Self {
        Self { disp: self.disp.wrapping_add(stride.wrapping_mul(strides as i32)), ..self }
    }
}

/// What elements are in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ElementType {
    /// The bits of a lane: f32 and 32-bit integers.
    Word,
    /// What is stored is rounded to it, and what is loaded its value; only where
    /// [`Vectors::rounds_to_f16`].
    F16,
    /// The upper half of a lane: what is loaded is its value. It is stored only where
    /// [`Vectors::rounds_to_bf16`], to the nearest, of two the even one, denormals as zeros.
    Bf16,
    /// The lowest 16 bits of what is stored or loaded, the others of which are zeros.
    Half,
    /// A signed integer of 16 bits: the lowest bits of what is stored, extended to 32 bits when it
    /// is loaded.
    SignedHalf,
    /// An unsigned integer of 8 bits, likewise.
    Byte,
    /// A signed integer of 8 bits, likewise.
    SignedByte,
}

impl ElementType {
    pub(super) fn bytes(self) -> i64 {
        match self {
            ElementType::Word => 4,
            ElementType::F16 | ElementType::Bf16 | ElementType::Half | ElementType::SignedHalf => 2,
            ElementType::Byte | ElementType::SignedByte => 1,
        }
    }
}

/// Where the lanes of a value lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Shape {
    /// One element, the same for every lane.
    Splat,
    /// This number of consecutive elements.
    Lanes(u8),
    /// Elements that are each `stride` bytes behind the one before.
    Strided {
        /// Number of elements.
        lanes: u8,
        /// Distance in bytes.
        stride: i32,
    },
}

/// Second operand of an arithmetic instruction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Operand {
    Register(Vector),
    /// A whole vector in memory.
    Vector(Address),
    /// An element in memory for every lane.
    Splat(Address),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Arithmetic {
    Add,
    Sub,
    Mul,
    Div,
    /// The second operand where either is not a number, or both are zeros.
    Max,
    /// The same.
    Min,
    /// Adds the product to the destination, rounded once.
    MulAdd,
    /// Adds the products of the pairs of bf16 in a lane to the destination; only where
    /// [`Vectors::dots`] has it, as the next three.
    DotBf16,
    /// Adds the products of the unsigned bytes of the first operand and the signed ones of the
    /// second.
    DotU8I8,
    /// Adds the products of the 16-bit integers in a lane.
    DotI16,
    /// The sum of the products of the 16-bit integers in a lane. No operand is an element in
    /// memory.
    MulPairs,
    /// Multiplies the destination by the first operand and adds the second, rounded once.
    MulThenAdd,
    /// The bits that both have, and those that either has.
    And,
    Or,
    /// The sum of the bits as integers.
    AddBits,
    /// The difference of the bits as integers.
    SubBits,
    /// The lowest 32 bits of the product of the bits as integers.
    MulBits,
    /// The larger and the smaller of the bits as signed integers.
    MaxBits,
    MinBits,
    /// The first operand times two to the power of the second, a whole number; only where
    /// [`Vectors::scales`].
    Scale,
}

/// Instructions of programs, each with the operation that does it; [`Arithmetic::MulPairs`] is
/// followed by an addition.
pub(super) type Dots = SmallVec<[(&'static Instruction, Arithmetic); 4]>;

/// Which of two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bound {
    Larger,
    Smaller,
}

/// What combines two values.
pub(super) enum Combination {
    Arithmetic(Arithmetic),
    Bound(Bound),
}

impl Combination {
    pub(super) fn of(by: Reduction) -> Self {
        match by {
            Reduction::Sum => Combination::Arithmetic(Arithmetic::Add),
            Reduction::Product => Combination::Arithmetic(Arithmetic::Mul),
            Reduction::MaxNumber => Combination::Arithmetic(Arithmetic::Max),
            Reduction::Max => Combination::Bound(Bound::Larger),
            Reduction::Min => Combination::Bound(Bound::Smaller),
        }
    }
}

/// Arithmetic of one operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Unary {
    Sqrt,
    Floor,
    /// The bits of an integer: the value without its fraction, which is from 0 to 2^24.
    Whole,
    /// The number that the bits are as a signed integer.
    OfInteger,
    /// The bits of the nearest signed integer, of two the even one.
    Nearest,
    /// The bits moved by a number of places, zeros behind them.
    ShiftLeft(u8),
    ShiftRight(u8),
}

/// Slots of a whole vector that leaves have on the stack which compute in steps.
pub(super) const VECTOR_SLOTS: usize = 32;

/// How two integers compare as signed numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Less,
    Greater,
}

/// What the accumulator is compared with.
#[derive(Clone, Copy, Debug)]
pub(super) enum Limit {
    Slot(usize),
    Value(i64),
}

/// Arithmetic on vectors, and what moves them from and to memory.
pub(super) trait Vectors {
    /// Lanes of a register.
    fn lanes(&self) -> u8;

    /// How many registers there are, [`MAX_REGISTERS`] at most.
    fn registers(&self) -> usize;

    /// True if there is [`Arithmetic::Scale`].
    fn scales(&self) -> bool;

    /// Returns the instructions of programs that there are.
    fn dots(&self) -> Dots;

    /// `v = [at]`.
    fn load(&mut self, v: Vector, shape: Shape, at: Address);

    /// `[at] = v`; changes `spare` where [`Vectors::store_needs_register`].
    fn store(&mut self, v: Vector, shape: Shape, at: Address, spare: Vector);

    /// True if there is [`ElementType::F16`].
    fn rounds_to_f16(&self) -> bool;

    /// True if [`ElementType::Bf16`] is stored; it is loaded everywhere.
    fn rounds_to_bf16(&self) -> bool;

    /// `v = [at]`, elements of less than 32 bits.
    fn load_narrow(&mut self, v: Vector, memory: Memory);

    /// `[at] = v`, elements of less than 32 bits, in whole vectors [past the
    /// caches](Vectors::stream) if so said; changes `spare`, which is another register.
    fn store_narrow(&mut self, v: Vector, memory: Memory, spare: Vector, is_streamed: bool);

    /// `[at] = v`, past the caches; the address is a multiple of the vector's bytes.
    fn stream(&mut self, v: Vector, at: Address);

    /// True if a store of this shape needs a register of its own.
    fn store_needs_register(&self, shape: Shape) -> bool;

    /// True if strided elements of this shape are loaded together, not one by one.
    fn loads_together(&self, shape: Shape) -> bool;

    /// Lane `l` of `to` is the element of a type `i` elements after the one at an address, `i`
    /// being the bits of lane `l` of `index`, for every lane. Changes `spare`, and the integer
    /// register `scratch`; the three vector registers are not the same.
    fn gather(&mut self, to: Vector, from: (Address, ElementType), index: Vector, spare: (Vector, u8));

    /// The integer register `to` is `pointer + bytes * i`, `i` being the bits of the first lane of
    /// `index`, `bytes` a power of two.
    fn point_at(&mut self, to: u8, pointer: u8, index: Vector, bytes: i64);

    /// Copies `lanes` elements between places with strides in bytes, first to last, through no
    /// vector register.
    fn copy_elements(&mut self, to: (Address, i32), from: (Address, i32), lanes: u8);

    /// Returns how many registers from `first` on a [`Vectors::transpose`] of these numbers of rows
    /// and columns of elements changes; `None` where there is none.
    fn transpose_registers(&self, block: [u8; 2], of: ElementType, first: Vector) -> Option<usize>;

    /// Copies element `r` of `[columns[l]]` to element `l` of `[rows[r]]`, of columns of 16 bytes
    /// or rows as many as columns, through the registers from `first` on, and [past the
    /// caches](Vectors::stream) if so said, where columns are as many as lanes.
    fn transpose(&mut self, block: (&[Address], &[Address]), of: ElementType, first: Vector, is_streamed: bool);

    /// How many registers from `first` on [`Vectors::interleave`] and its inverse change for 3, 5
    /// or 7 rows; `None` where there are none.
    fn weave_registers(&self, rows: u8, first: Vector) -> Option<usize>;

    /// Element `r + l * rows.len()` of `[to]` is element `l` of `[rows[r]]`, for every lane,
    /// through the registers from `first` on.
    fn interleave(&mut self, to: Address, rows: &[Address], first: Vector);

    /// Element `l` of `[rows[r]]` is element `r + l * rows.len()` of `[from]`, the same way.
    fn deinterleave(&mut self, rows: &[Address], from: Address, first: Vector);

    /// How many registers from `first` on a [`Vectors::fold`] changes.
    fn fold_registers(&self) -> usize;

    /// Lane `r` of `to` is what all lanes of `rows[r]` come to, of as many rows as there are lanes
    /// at most; the other lanes of `to` are lost.
    fn fold(&mut self, by: Reduction, to: Vector, rows: &[Vector], first: Vector);

    /// Prefetches the cache line of an address into the second-level cache, or to write to it.
    fn prefetch(&mut self, at: Address, to_write: bool);

    /// `v` is a constant of these bits in every lane.
    fn constant(&mut self, v: Vector, bits: u32);

    /// `to = from`.
    fn copy(&mut self, to: Vector, from: Vector);

    /// Lane `l` of `to` is lane `by + l` of `from` for each `l` below `by`, a power of two; the
    /// others are lost.
    fn shift_lanes(&mut self, to: Vector, from: Vector, by: u8);

    /// The first `lanes` lanes of `to` are those of `from`.
    fn merge(&mut self, to: Vector, from: Vector, lanes: u8);

    /// `to = a op b`.
    fn arithmetic(&mut self, op: Arithmetic, to: Vector, a: Vector, b: Operand);

    /// `b` is the larger, or the smaller, of `a` and `b`, or what of the two is not a number;
    /// changes `spare`.
    fn bound(&mut self, bound: Bound, b: Vector, a: Operand, spare: Vector);

    /// How many instructions [`Vectors::bound`] takes, two at least.
    fn bound_instructions(&self) -> usize;

    /// `to = op a`.
    fn unary(&mut self, op: Unary, to: Vector, a: Vector);

    /// `to = then` where `a` and `b` compare so, else `otherwise`; `to` is none of them.
    fn select(&mut self, compare: Compare, to: Vector, of: [Vector; 2], then: Vector, otherwise: Vector);

    /// `slot = v` and `v = slot`, one of [`VECTOR_SLOTS`].
    fn spill(&mut self, v: Vector, slot: usize);
    fn fill(&mut self, v: Vector, slot: usize);

    /// A value in memory as an operand of arithmetic, where there are such operands.
    fn memory_operand(&self, shape: Shape, at: Address) -> Option<Operand>;
}

/// Functions, slots, loops and calls.
pub(super) trait Control {
    /// What all instructions together become.
    type Code;

    /// How many integer registers there are, [`MAX_REGISTERS`] at most.
    fn integers(&self) -> usize;

    /// Place of the next instruction.
    fn here(&self) -> usize;

    /// Begins a stage's function with `slots` slots; its range of tasks goes to two of them.
    fn enter(&mut self, slots: usize, begin: usize, end: usize);

    /// A slot gets the function's pointer to a buffer, or to the next `bytes` bytes of
    /// thread-private memory.
    fn take_buffer(&mut self, slot: usize, buffer: usize);
    fn take_local(&mut self, slot: usize, bytes: i64);

    /// What was [streamed](Vectors::stream) is seen by other threads before anything that is stored
    /// from here on.
    fn fence(&mut self);

    /// Ends a stage's function.
    fn leave(&mut self, slots: usize);

    /// `accumulator = [slot]`.
    fn read(&mut self, slot: usize);

    /// `[slot] = accumulator`.
    fn write(&mut self, slot: usize);

    /// `[slot] = value`.
    fn set(&mut self, slot: usize, value: i32);

    /// `accumulator += value`.
    fn add(&mut self, value: i64);

    /// `[slot] = accumulator mod by; accumulator = accumulator / by`; neither is negative.
    fn split(&mut self, by: i64, slot: usize);

    /// `accumulator = limit` where it is beyond it in this order.
    fn clamp(&mut self, beyond: Order, limit: i64);

    /// Jumps back to a place if the accumulator is less.
    fn jump_if_less(&mut self, than: Limit, to: usize);

    /// Jumps to where [`Control::aim`] will be called with the number that this returns.
    fn jump(&mut self) -> usize;

    /// Jumps there unless all of these pointers point to multiples of `bytes`, a power of two.
    fn jump_unless_aligned(&mut self, pointers: &[u8], bytes: i64) -> usize;

    /// Jumps there if all lanes of a vector register are numbers, which it may no longer hold then.
    fn jump_if_numbers(&mut self, v: Vector) -> usize;

    /// Lets a jump lead here.
    fn aim(&mut self, jump: usize);

    /// A pointer of the next leaf: what a slot holds; then `+= [slot] * factor`.
    fn point(&mut self, pointer: u8, slot: usize);
    fn point_behind(&mut self, pointer: u8, slot: usize, factor: i64);

    /// `pointer += bytes`.
    fn advance(&mut self, pointer: u8, bytes: i64);

    /// Calls a leaf, which may change every register.
    fn call(&mut self, leaf: usize);

    /// Begins a leaf; besides whole vectors, those of its parts and strides are loaded and stored
    /// in it, and it has vector slots if it computes in steps. Until its end there may be fewer
    /// registers, no fewer than it [needs](Leaf::registers).
    fn begin_leaf(&mut self, leaf: &Leaf, has_steps: bool);
    fn end_leaf(&mut self);

    /// Sets a loop counter to the number of iterations.
    fn count_from(&mut self, counter: u8, iterations: i64);

    /// Counts an iteration, and jumps back to a place if there are more.
    fn count_down(&mut self, counter: u8, to: usize);

    /// The code, with every call of a leaf leading to its place.
    fn finish(self, leaves: &[usize]) -> Result<Self::Code, Failure>;
}

/// An instruction set. A new one is a folder beside `x86` that implements this, and its arm in
/// [`super::assemble`].
pub(super) trait InstructionSet: Vectors + Control {}

impl<T: Vectors + Control> InstructionSet for T {}
