//! Interface between the assembler and an instruction set.
//!
//! Registers are numbers. Vector registers hold whole vectors of f32. A scalar has the same value
//! in every lane; a vector of fewer lanes has zeros in the others. Integer registers hold the
//! pointers of a leaf, then its loop counters. Values outside leaves are in stack slots of eight
//! bytes. They are computed in one more integer register, the accumulator.

use smallvec::SmallVec;

use super::error::Failure;
use super::leaf::{Leaf, MemoryAccess};
use super::tile_grid::{TileArithmetic, TileConfiguration};
use autotune_ir::instruction::Instruction;
use autotune_ir::program::{Compare, PrefetchLevel};
use autotune_ir::spec::Reduction;

/// Number of a vector register.
pub(super) type Vector = u8;

/// Maximum number of vector registers, and of integer registers.
pub(super) const MAX_REGISTERS: usize = 32;

/// Purpose of a prefetch.
#[derive(Clone, Copy)]
pub(super) enum PrefetchHint {
    /// The line will be read, from a level of the caches.
    Read(PrefetchLevel),
    /// The line will be written.
    Write,
}

/// A memory address: a pointer plus a displacement in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) pointer: u8,
    pub(super) disp: i32,
}

impl Address {
    /// Returns the address `strides * stride` bytes higher.
    pub(super) fn offset_by(self, strides: usize, stride: i32) -> Self {
        Self { disp: self.disp.wrapping_add(stride.wrapping_mul(strides as i32)), ..self }
    }
}

/// Type of elements in memory, and their conversion at loads and stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ElementType {
    /// 32 bits, as in a lane: f32 or 32-bit integers.
    Word,
    /// f16: loads widen, stores round. Only if [`Vectors::rounds_to_f16`].
    F16,
    /// bf16: loads put it in the upper half of a lane, which is its value. Stores only if
    /// [`Vectors::rounds_to_bf16`]; they round to nearest even and flush denormals to zero.
    Bf16,
    /// 16 bits without conversion: stores take the lowest bits of a lane, loads set the others to
    /// zero.
    Half,
    /// Signed 16-bit integer: stores take the lowest bits, loads extend the sign.
    SignedHalf,
    /// Unsigned 8-bit integer: stores take the lowest bits, loads extend with zeros.
    Byte,
    /// Signed 8-bit integer: stores take the lowest bits, loads extend the sign.
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

/// Arrangement of a value's lanes in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Shape {
    /// One element, broadcast to every lane.
    Splat,
    /// Consecutive elements, this many.
    Lanes(u8),
    /// Elements at equal distances.
    Strided {
        lanes: u8,
        /// Distance between elements in bytes.
        stride: i32,
    },
}

/// Second operand of an arithmetic instruction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum ArithmeticOperand {
    Register(Vector),
    /// A whole vector in memory.
    Vector(Address),
    /// An element in memory, broadcast to every lane.
    Splat(Address),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Arithmetic {
    Add,
    Sub,
    Mul,
    Div,
    /// Maximum; the second operand if either is NaN or both are zeros.
    Max,
    /// Minimum; the second operand if either is NaN or both are zeros.
    Min,
    /// Adds the product to the destination, rounded once.
    MulAdd,
    /// Adds the products of the pairs of bf16 in a lane to the destination. This and the next three
    /// exist only if [`Vectors::dots`] lists them.
    DotBf16,
    /// Adds the products of the unsigned bytes of the first operand and the signed bytes of the
    /// second.
    DotU8I8,
    /// Adds the products of the 16-bit integers in a lane.
    DotI16,
    /// Sum of the products of the 16-bit integers in a lane. Operands are not broadcast from
    /// memory.
    MulPairs,
    /// Multiplies the destination by the first operand and adds the second, rounded once.
    MulThenAdd,
    /// Bitwise and of the operands.
    And,
    /// Bitwise or of the operands.
    Or,
    /// Sum of the bits as integers.
    AddBits,
    /// Difference of the bits as integers.
    SubBits,
    /// Lowest 32 bits of the product of the bits as integers.
    MulBits,
    /// Maximum of the bits as signed integers.
    MaxBits,
    /// Minimum of the bits as signed integers.
    MinBits,
    /// The first operand times two to the power of the second, which is integral. Only if
    /// [`Vectors::scales`].
    Scale,
}

/// Instructions of programs that the set has, each with its operation. After
/// [`Arithmetic::MulPairs`], the result must be added to the accumulator.
pub(super) type Dots = SmallVec<[(&'static Instruction, Arithmetic); 4]>;

/// Direction of a NaN-propagating maximum or minimum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MinMax {
    Larger,
    Smaller,
}

/// Operation that combines two values of a reduction.
pub(super) enum Combination {
    Arithmetic(Arithmetic),
    Bound(MinMax),
}

impl Combination {
    pub(super) fn of(by: Reduction) -> Self {
        match by {
            Reduction::Sum => Combination::Arithmetic(Arithmetic::Add),
            Reduction::Product => Combination::Arithmetic(Arithmetic::Mul),
            Reduction::MaxNumber => Combination::Arithmetic(Arithmetic::Max),
            Reduction::Max => Combination::Bound(MinMax::Larger),
            Reduction::Min => Combination::Bound(MinMax::Smaller),
        }
    }
}

/// Arithmetic with one operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Unary {
    Sqrt,
    Floor,
    /// Truncation to an integer's bits, for values from 0 to 2^24.
    Whole,
    /// Conversion of a signed integer's bits to f32.
    OfInteger,
    /// Bits of the nearest signed integer; ties to even.
    Nearest,
    /// Shift of the bits; the free places become zeros.
    ShiftLeft(u8),
    ShiftRight(u8),
}

/// Number of stack slots, of a whole vector each, in leaves that compute in steps.
pub(super) const VECTOR_SLOTS: usize = 32;

/// Order of two signed integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SignedOrder {
    Less,
    Greater,
}

/// Value that the accumulator is compared with.
#[derive(Clone, Copy, Debug)]
pub(super) enum Limit {
    Slot(usize),
    Value(i64),
}

/// Number of vectors that [`Vectors::store_packed`] stores.
pub(super) const PACKED: usize = 4;

/// Vector arithmetic, loads and stores.
pub(super) trait Vectors {
    /// Returns the number of 32-bit lanes of a register.
    fn lanes(&self) -> u8;

    /// Returns the number of registers, at most [`MAX_REGISTERS`].
    fn registers(&self) -> usize;

    /// True if there is [`Arithmetic::Scale`].
    fn scales(&self) -> bool;

    /// Returns the dot product instructions of programs that the set has.
    fn dots(&self) -> Dots;

    /// Loads a vector, `v = [at]`.
    fn load(&mut self, v: Vector, shape: Shape, at: Address);

    /// Stores a vector, `[at] = v`. Overwrites `spare` if [`Vectors::store_needs_register`].
    fn store(&mut self, v: Vector, shape: Shape, at: Address, spare: Vector);

    /// True if there is [`ElementType::F16`].
    fn rounds_to_f16(&self) -> bool;

    /// True if [`ElementType::Bf16`] can be stored. It can always be loaded.
    fn rounds_to_bf16(&self) -> bool;

    /// Loads elements of less than 32 bits, `v = [at]`.
    fn load_narrow(&mut self, v: Vector, memory: MemoryAccess);

    /// Stores elements of less than 32 bits, `[at] = v`.
    ///
    /// Whole vectors [bypass the caches](Vectors::stream) if `is_streamed`. Overwrites `spare`,
    /// which is not `v`.
    fn store_narrow(&mut self, v: Vector, memory: MemoryAccess, spare: Vector, is_streamed: bool);

    /// Copies as many elements of less than 32 bits as there are lanes, without conversion.
    /// Overwrites `spare`.
    fn copy_narrow(&mut self, to: Address, from: Address, of: ElementType, spare: Vector);

    /// True if there is [`Vectors::store_packed`].
    fn packs_bytes(&self) -> bool;

    /// True if [`Vectors::store_packed`] looks bytes up in tables.
    fn has_tables(&self) -> bool;

    /// Stores four whole vectors of signed 32-bit integers as 8-bit integers, `[to[i]] =
    /// values[i]`, saturated to the range of the type. Overwrites the values and `spare`.
    ///
    /// With a table of 256 bytes, their type is that of its indices, and `[to[i]] =
    /// table[values[i]]`.
    fn store_packed(
        &mut self,
        values: [Vector; PACKED],
        to: ([Address; PACKED], ElementType),
        table: Option<Address>,
        spare: Vector,
    );

    /// Stores a vector, `[at] = v`, bypassing the caches. The address is a multiple of the vector's
    /// size.
    fn stream(&mut self, v: Vector, at: Address);

    /// True if a store of this shape needs a spare register.
    fn store_needs_register(&self, shape: Shape) -> bool;

    /// True if strided elements of this shape are loaded together, not one by one.
    fn loads_together(&self, shape: Shape) -> bool;

    /// Gathers: lane `l` of `to` is the element at index `i` from an address, where `i` is the bits
    /// of lane `l` of `index`.
    ///
    /// Overwrites the vector register and the integer register in `spare`. The three vector
    /// registers are distinct.
    fn gather(&mut self, to: Vector, from: (Address, ElementType), index: Vector, spare: (Vector, u8));

    /// Sets the integer register `to` to `pointer + bytes * i`. The index `i` is the bits of the
    /// first lane of `index`; `bytes` is a power of two.
    fn point_at(&mut self, to: u8, pointer: u8, index: Vector, bytes: i64);

    /// Copies `lanes` elements between addresses with strides in bytes, in order, without a vector
    /// register.
    fn copy_elements(&mut self, to: (Address, i32), from: (Address, i32), lanes: u8);

    /// Returns the number of registers from `first` on that [`Vectors::transpose`] overwrites for a
    /// block of these numbers of rows and columns; `None` if it is not supported.
    fn transpose_registers(&self, block: [u8; 2], of: ElementType, first: Vector) -> Option<usize>;

    /// Transposes: element `l` of `[rows[r]]` is set to element `r` of `[columns[l]]`.
    ///
    /// Columns have 16 bytes, or 4 or 8 elements of one byte, or there are as many rows as columns.
    /// Uses the registers from `first` on. [Bypasses the caches](Vectors::stream) if `is_streamed`,
    /// for as many columns as lanes.
    fn transpose(&mut self, block: (&[Address], &[Address]), of: ElementType, first: Vector, is_streamed: bool);

    /// Returns the number of registers from `first` on that [`Vectors::interleave`] and its inverse
    /// overwrite for 3, 5 or 7 rows; `None` if they are not supported.
    fn weave_registers(&self, rows: u8, first: Vector) -> Option<usize>;

    /// Interleaves rows: element `r + l * rows.len()` of `[to]` is set to element `l` of
    /// `[rows[r]]`, for every lane. Uses the registers from `first` on.
    fn interleave(&mut self, to: Address, rows: &[Address], first: Vector);

    /// The inverse of [`Vectors::interleave`]: element `l` of `[rows[r]]` is set to element
    /// `r + l * rows.len()` of `[from]`.
    fn deinterleave(&mut self, rows: &[Address], from: Address, first: Vector);

    /// Returns the number of registers from `first` on that [`Vectors::fold`] overwrites.
    fn fold_registers(&self) -> usize;

    /// Reduces horizontally: lane `r` of `to` is set to the reduction of all lanes of `rows[r]`.
    ///
    /// There are at most as many rows as lanes. The other lanes of `to` are undefined.
    fn fold(&mut self, by: Reduction, to: Vector, rows: &[Vector], first: Vector);

    /// Prefetches the cache line of an address.
    fn prefetch(&mut self, at: Address, hint: PrefetchHint);

    /// Sets every lane of `v` to the constant with the bits `bits`.
    fn constant(&mut self, v: Vector, bits: u32);

    /// Copies a register, `to = from`.
    fn copy(&mut self, to: Vector, from: Vector);

    /// Moves lanes down: lane `l` of `to` is set to lane `by + l` of `from` for each `l` below
    /// `by`, a power of two. The other lanes are undefined.
    fn shift_lanes(&mut self, to: Vector, from: Vector, by: u8);

    /// Sets the first `lanes` lanes of `to` to those of `from`.
    fn merge(&mut self, to: Vector, from: Vector, lanes: u8);

    /// Computes `to = a op b`.
    fn arithmetic(&mut self, op: Arithmetic, to: Vector, a: Vector, b: ArithmeticOperand);

    /// Sets `b` to the larger or smaller of `a` and `b`, or to NaN if either is NaN. Overwrites
    /// `spare`.
    fn bound(&mut self, bound: MinMax, b: Vector, a: ArithmeticOperand, spare: Vector);

    /// Returns the number of instructions of [`Vectors::bound`], at least two.
    fn bound_instructions(&self) -> usize;

    /// Computes `to = op a`.
    fn unary(&mut self, op: Unary, to: Vector, a: Vector);

    /// Sets each lane of `to` to `then` if the comparison of `of` holds, else to `otherwise`. `to`
    /// is none of the operands.
    fn select(&mut self, compare: Compare, to: Vector, of: [Vector; 2], then: Vector, otherwise: Vector);

    /// Stores a register to the stack, `slot = v`, for one of [`VECTOR_SLOTS`] slots.
    fn spill(&mut self, v: Vector, slot: usize);
    /// Loads a register from the stack, `v = slot`: the inverse of [`Vectors::spill`].
    fn fill(&mut self, v: Vector, slot: usize);

    /// Returns a value in memory as an operand of arithmetic, if the instruction set allows it.
    fn memory_operand(&self, shape: Shape, at: Address) -> Option<ArithmeticOperand>;
}

/// Functions, stack slots, loops and calls.
pub(super) trait Control {
    /// The completed machine code.
    type Code;

    /// Returns the number of integer registers, at most [`MAX_REGISTERS`].
    fn integers(&self) -> usize;

    /// Returns the offset of the next instruction.
    fn position(&self) -> usize;

    /// Begins a stage's function with `slots` slots. Its range of tasks goes to the slots `begin`
    /// and `end`.
    fn enter(&mut self, slots: usize, begin: usize, end: usize);

    /// Sets a stack slot to the pointer to a buffer that the function received.
    fn take_buffer(&mut self, slot: usize, buffer: usize);
    /// Sets a slot to a pointer to the next `bytes` bytes of thread-private memory.
    fn take_local(&mut self, slot: usize, bytes: i64);

    /// Orders [streaming](Vectors::stream) stores before all later stores, as seen by other
    /// threads.
    fn fence(&mut self);

    /// Ends a stage's function.
    fn leave(&mut self, slots: usize);

    /// Loads the accumulator, `accumulator = [slot]`.
    fn read(&mut self, slot: usize);

    /// Stores the accumulator, `[slot] = accumulator`.
    fn write(&mut self, slot: usize);

    /// Stores a constant, `[slot] = value`.
    fn set(&mut self, slot: usize, value: i32);

    /// Adds a constant, `accumulator += value`.
    fn add(&mut self, value: i64);

    /// Divides: `[slot] = accumulator mod by; accumulator = accumulator / by`. Neither is negative.
    fn split(&mut self, by: i64, slot: usize);

    /// Sets `accumulator = limit` if the accumulator is beyond it in this order.
    fn clamp(&mut self, beyond: SignedOrder, limit: i64);

    /// Jumps back to an offset if the accumulator is less.
    fn jump_if_less(&mut self, than: Limit, to: usize);

    /// Jumps forward. The result is passed to [`Control::bind_jump`] at the destination.
    fn jump(&mut self) -> usize;

    /// Like [`Control::jump`], unless all these pointers are multiples of `bytes`, a power of two.
    fn jump_unless_aligned(&mut self, pointers: &[u8], bytes: i64) -> usize;

    /// Like [`Control::jump`], if no lane of a vector register is NaN. Overwrites the register.
    fn jump_if_numbers(&mut self, v: Vector) -> usize;

    /// Makes a jump lead to the next instruction.
    fn bind_jump(&mut self, jump: usize);

    /// Sets a pointer of the next leaf to the contents of a slot.
    fn point(&mut self, pointer: u8, slot: usize);
    /// Adds a product to a pointer, `pointer += [slot] * factor`.
    fn advance_by_slot(&mut self, pointer: u8, slot: usize, factor: i64);

    /// Advances a pointer, `pointer += bytes`.
    fn advance(&mut self, pointer: u8, bytes: i64);

    /// Calls a leaf, which may change every register.
    fn call(&mut self, leaf: usize);

    /// Begins a leaf.
    ///
    /// It prepares for loads and stores of the leaf's partial vectors and strides, and reserves
    /// vector slots if the leaf computes in steps. Until its end, fewer registers may be available,
    /// but no fewer than it [needs](Leaf::registers).
    fn begin_leaf(&mut self, leaf: &Leaf, has_steps: bool);
    /// Ends a leaf and returns to its caller.
    fn end_leaf(&mut self);

    /// Sets an integer register, such as a loop counter to the number of iterations.
    fn set_integer(&mut self, register: u8, value: i64);

    /// Ends an iteration of a counted loop: decrements the counter and jumps back to the code
    /// offset `to` if iterations remain.
    fn count_down(&mut self, counter: u8, to: usize);

    /// Returns the code, with every call of a leaf resolved to its offset in `leaves`.
    fn finish(self, leaves: &[usize]) -> Result<Self::Code, Failure>;
}

/// Tile registers, [`TILE_REGISTERS`] of them if there are any. The defaults are for a set without.
pub(super) trait TileInstructions {
    /// True if there are tile registers.
    fn has_tiles(&self) -> bool {
        false
    }

    /// Sets the sizes of all tile registers, and clears them. Must precede their use.
    fn configure_tiles(&mut self, _sizes: TileConfiguration) {}
    /// Ends the use of tiles.
    fn release_tiles(&mut self) {}

    /// Sets a tile to zero.
    fn clear_tile(&mut self, _tile: u8) {}

    /// Loads a tile whose first row is at an address. The integer register `_stride` holds the
    /// distance between rows in bytes.
    fn load_tile(&mut self, _tile: u8, _at: Address, _stride: u8) {}
    /// Stores a tile: the inverse of [`TileInstructions::load_tile`].
    fn store_tile(&mut self, _tile: u8, _at: Address, _stride: u8) {}

    /// Adds the products of the words in the rows of one tile and the columns of another to the
    /// sums in a third.
    fn multiply_tiles(&mut self, _by: TileArithmetic, _sums: u8, _factors: [u8; 2]) {}
}

/// An instruction set. To add one, implement this in a folder like `x86`, and add an arm to
/// [`super::assemble`].
pub(super) trait InstructionSet: Vectors + Control + TileInstructions {}

impl<T: Vectors + Control + TileInstructions> InstructionSet for T {}
