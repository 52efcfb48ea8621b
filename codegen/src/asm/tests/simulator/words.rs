//! Lanes as integers, and elements as lanes.

use crate::asm::instruction_set::ElementType;
use autotune_ir::DType;

pub(super) fn integer(lane: f32) -> i32 {
    lane.to_bits().cast_signed()
}

pub(super) fn of_integer(integer: i32) -> f32 {
    f32::from_bits(integer.cast_unsigned())
}

/// Returns the sum of the products of the 16-bit integers of two words.
pub(super) fn pairs(a: f32, b: f32) -> i32 {
    let halves = |x: f32| [integer(x) << 16 >> 16, integer(x) >> 16];
    let ([a0, a1], [b0, b1]) = (halves(a), halves(b));
    (a0 * b0).wrapping_add(a1 * b1)
}

/// Returns the lane that an element with these bits is widened to.
pub(super) fn widened(element: f32, of: ElementType) -> f32 {
    match of {
        ElementType::F16 => DType::F16.values(&[element.to_bits()], 1)[0],
        ElementType::Bf16 => DType::Bf16.values(&[element.to_bits()], 1)[0],
        ElementType::SignedHalf => of_integer(i32::from(element.to_bits() as i16)),
        ElementType::SignedByte => of_integer(i32::from(element.to_bits() as i8)),
        ElementType::Word | ElementType::Half | ElementType::Byte => element,
    }
}
