//! Element types, each defined by one row of a table.

use std::fmt;

use half::{bf16, f16};
use serde::{Deserialize, Serialize};

/// Element type of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DType {
    /// IEEE 754 binary32 (single precision).
    #[default]
    F32,
    /// Binary32 in memory; the factors of a contraction are rounded to 10 fraction bits before they
    /// are multiplied. In other workloads identical to [`DType::F32`].
    Tf32,
    /// IEEE 754 binary16 (half precision).
    F16,
    /// Bfloat16: the upper half of an IEEE 754 binary32.
    Bf16,
    /// Two's complement, 8 bits.
    I8,
    /// Unsigned integer of 8 bits.
    U8,
    /// Two's complement, 16 bits.
    I16,
    /// Two's complement, 32 bits.
    I32,
    /// Two's complement, 64 bits. Values beyond 2^53 are rounded when they are used in
    /// computations.
    I64,
    /// Boolean: one byte that is 0 or 1.
    Bool,
}

/// Representation of a type's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Binary floating point with a sign.
    Float,
    /// Signed integers in two's complement.
    Signed,
    /// Unsigned integers, and booleans.
    Unsigned,
}

/// Properties of an element type.
struct DTypeRow {
    dtype: DType,
    word: &'static str,
    bytes: usize,
    kind: Kind,
    /// Type in which values and their products are summed.
    accumulator: DType,
    /// Fraction bits stored in memory; 0 for integers.
    fraction_bits: i32,
    /// Fraction bits of the factors of a contraction.
    multiplied_bits: i32,
    /// Smallest and largest finite value.
    range: [f64; 2],
    /// True if contractions of the type have CPU kernels.
    is_multiplied_by_cpus: bool,
}

const fn float(dtype: DType, word: &'static str, bytes: usize, bits: [i32; 2], most: f64) -> DTypeRow {
    let [fraction_bits, multiplied_bits] = bits;
    let (kind, accumulator) = (Kind::Float, DType::F32);
    let range = [-most, most];
    let is_multiplied_by_cpus = false;
    DTypeRow { dtype, word, bytes, kind, accumulator, fraction_bits, multiplied_bits, range, is_multiplied_by_cpus }
}

const fn integer(dtype: DType, word: &'static str, bytes: usize, kind: Kind, range: [f64; 2]) -> DTypeRow {
    let accumulator = if bytes == 8 { dtype } else { DType::I32 };
    let (fraction_bits, multiplied_bits, is_multiplied_by_cpus) = (0, 0, false);
    DTypeRow { dtype, word, bytes, kind, accumulator, fraction_bits, multiplied_bits, range, is_multiplied_by_cpus }
}

impl DTypeRow {
    const fn multiplied_by_cpus(self) -> Self {
        Self { is_multiplied_by_cpus: true, ..self }
    }
}

/// Rows in the order of the variants of [`DType`].
const ROWS: [DTypeRow; 10] = [
    float(DType::F32, "f32", 4, [23, 23], f32::MAX as f64).multiplied_by_cpus(),
    float(DType::Tf32, "tf32", 4, [23, 10], f32::MAX as f64),
    float(DType::F16, "f16", 2, [10, 10], 65504.0),
    float(DType::Bf16, "bf16", 2, [7, 7], 3.389_531_389_251_535_5e38).multiplied_by_cpus(),
    integer(DType::I8, "i8", 1, Kind::Signed, [-128.0, 127.0]).multiplied_by_cpus(),
    integer(DType::U8, "u8", 1, Kind::Unsigned, [0.0, 255.0]).multiplied_by_cpus(),
    integer(DType::I16, "i16", 2, Kind::Signed, [-32768.0, 32767.0]),
    integer(DType::I32, "i32", 4, Kind::Signed, [i32::MIN as f64, i32::MAX as f64]).multiplied_by_cpus(),
    integer(DType::I64, "i64", 8, Kind::Signed, [i64::MIN as f64, i64::MAX as f64]),
    integer(DType::Bool, "bool", 1, Kind::Unsigned, [0.0, 1.0]),
];

impl DType {
    /// All types, in the order of the variants.
    pub const ALL: [DType; ROWS.len()] = {
        let (mut all, mut at) = ([DType::F32; ROWS.len()], 0);
        while at < ROWS.len() {
            all[at] = ROWS[at].dtype;
            // `row` indexes the table by variant.
            assert!(all[at] as usize == at);
            at += 1;
        }
        all
    };

    /// Types that a workload's tensors may have.
    pub const WORKLOADS: [DType; 7] =
        [DType::F32, DType::Tf32, DType::F16, DType::Bf16, DType::I8, DType::U8, DType::I32];

    fn row(self) -> &'static DTypeRow {
        &ROWS[self as usize]
    }

    /// Returns the type's name in the text form of workloads.
    pub fn word(self) -> &'static str {
        self.row().word
    }

    /// Returns the type with this name, if there is one.
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|dtype| dtype.word() == word)
    }

    /// Returns the size of one element in memory, in bytes.
    pub fn bytes(self) -> usize {
        self.row().bytes
    }

    /// Returns the representation of the type's values.
    pub fn kind(self) -> Kind {
        self.row().kind
    }

    /// Returns true for integer types and booleans.
    pub fn is_integer(self) -> bool {
        self.kind() != Kind::Float
    }

    /// Returns the type in which values and their products are summed.
    pub fn accumulator(self) -> DType {
        self.row().accumulator
    }

    /// Returns the smallest and the largest finite value.
    pub fn range(self) -> [f64; 2] {
        self.row().range
    }

    /// Returns true if contractions with factors of the type have CPU kernels.
    pub fn has_cpu_products(self) -> bool {
        self.row().is_multiplied_by_cpus
    }

    /// Returns true if elements are 32-bit floating-point numbers, which are stored without
    /// rounding.
    pub fn is_word(self) -> bool {
        !self.is_integer() && self.bytes() == 4
    }

    /// Returns true if this type represents every value of `other`.
    pub fn holds(self, other: DType) -> bool {
        let [[least, most], [other_least, other_most]] = [self, other].map(DType::range);
        self == other || self.is_integer() && other.is_integer() && least <= other_least && other_most <= most
    }

    /// Returns true if elements of both types have identical bits in memory for every number.
    pub fn has_same_bits_as(self, other: DType) -> bool {
        self == other || self.is_word() && other.is_word()
    }

    /// Rounds `number` to the nearest value of the type, ties to even. Integers saturate. NaN,
    /// which marks undefined memory, stays NaN.
    pub fn rounded(self, number: f64) -> f64 {
        let [least, most] = self.range();
        match self {
            // The sum with zero turns -0 into 0, which integers lack.
            _ if self.is_integer() => number.round_ties_even().clamp(least, most) + 0.0,
            DType::F16 => f16::from_f32(number as f32).to_f64(),
            DType::Bf16 => bf16::from_f32(number as f32).to_f64(),
            _ => f64::from(number as f32),
        }
    }

    /// Returns the value read back after `value` is stored ([`DType::rounded`]).
    pub fn stored(self, value: f32) -> f32 {
        if self.is_word() { value } else { self.rounded(value.into()) as f32 }
    }

    /// Returns the factor that is used for an element `value` of a contraction's data or weights.
    pub fn multiplied(self, value: f32) -> f32 {
        let (held, multiplied) = (self.row().fraction_bits, self.row().multiplied_bits);
        if held == multiplied {
            return self.stored(value);
        }
        // Rounds to the nearest value, ties away from zero.
        let lost = 1u32 << (held - multiplied);
        if value.is_finite() { f32::from_bits((value.to_bits() + lost / 2) & !(lost - 1)) } else { value }
    }

    /// Returns the largest relative error of rounding to the type; 0 for integers.
    pub fn unit_roundoff(self) -> f64 {
        if self.is_integer() { 0.0 } else { 2f64.powi(-1 - self.row().fraction_bits) }
    }

    /// Returns the bits of the element that stores `number`, zero-extended.
    pub fn encode(self, number: f64) -> u64 {
        match self {
            DType::F32 | DType::Tf32 => (number as f32).to_bits().into(),
            DType::F16 => f16::from_f32(number as f32).to_bits().into(),
            DType::Bf16 => bf16::from_f32(number as f32).to_bits().into(),
            _ => self.rounded(number) as i64 as u64 & (u64::MAX >> (64 - 8 * self.bytes())),
        }
    }

    /// Returns the number that the lowest bits of `bits` represent.
    pub fn decode(self, bits: u64) -> f64 {
        let unused = 64 - 8 * self.bytes();
        match (self, self.kind()) {
            (DType::F16, _) => f16::from_bits(bits as u16).to_f64(),
            (DType::Bf16, _) => bf16::from_bits(bits as u16).to_f64(),
            (_, Kind::Float) => f32::from_bits(bits as u32).into(),
            (_, Kind::Signed) => ((bits << unused) as i64 >> unused) as f64,
            (_, Kind::Unsigned) => (bits << unused >> unused) as f64,
        }
    }

    /// Encodes values as 32-bit words of memory. Elements that share a word fill it from its lowest
    /// byte.
    pub fn words(self, values: &[f32]) -> Vec<u32> {
        if self.is_word() {
            return values.iter().map(|value| value.to_bits()).collect();
        }
        self.exact_words(values.iter().map(|&value| value.into()))
    }

    /// Encodes numbers as 32-bit words of memory, including numbers that f32 cannot represent.
    pub fn exact_words(self, numbers: impl Iterator<Item = f64>) -> Vec<u32> {
        let bits = numbers.map(|number| self.encode(number));
        match (4 / self.bytes()).max(1) {
            // Elements of 32 or 64 bits: the low word is first.
            1 => bits.flat_map(|bits| [bits as u32, (bits >> 32) as u32].into_iter().take(self.bytes() / 4)).collect(),
            shared => {
                let (bits, mut words) = (bits.collect::<Vec<_>>(), Vec::new());
                for elements in bits.chunks(shared) {
                    let placed =
                        elements.iter().enumerate().map(|(at, &bits)| (bits as u32) << (8 * at * self.bytes()));
                    words.push(placed.sum::<u32>());
                }
                words
            }
        }
    }

    /// Decodes the first `len` elements of the memory that [`DType::words`] describes. Integers
    /// beyond 2^24 are rounded to f32.
    pub fn values(self, words: &[u32], len: usize) -> Vec<f32> {
        if self.is_word() {
            return words.iter().take(len).map(|&word| f32::from_bits(word)).collect();
        }
        let value = |bits: u64| self.decode(bits) as f32;
        match 4 / self.bytes() {
            // Elements of 64 bits take two words.
            0 => words.chunks(2).map(|pair| value(u64::from(pair[0]) | u64::from(pair[1]) << 32)).take(len).collect(),
            shared => {
                let elements =
                    words.iter().flat_map(|&word| (0..shared).map(move |at| word >> (8 * at * self.bytes())));
                elements.map(|bits| value(bits.into())).take(len).collect()
            }
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_rounded_to_the_nearest() {
        let third = 1.0f32 / 3.0;
        for (dtype, bits) in [(DType::F32, 23), (DType::Tf32, 10), (DType::F16, 10), (DType::Bf16, 7)] {
            let scale = 2f32.powi(bits + 2);
            assert_eq!(dtype.multiplied(third), (third * scale).round() / scale, "{dtype:?}");
            assert_eq!(dtype.multiplied(dtype.multiplied(third)), dtype.multiplied(third));
            assert!(
                (f64::from(dtype.stored(third)) - f64::from(third)).abs() <= dtype.unit_roundoff() * f64::from(third)
            );
            assert!(dtype.multiplied(f32::NAN).is_nan() && dtype.stored(f32::NAN).is_nan());
        }
        assert_eq!(DType::Tf32.stored(third), third);
        assert_eq!(DType::F16.stored(1e6), f32::INFINITY);
    }

    #[test]
    fn memory_holds_what_was_stored() {
        let values = [1.0, -2.5, 1.0 / 3.0, f32::MIN_POSITIVE, 65504.0];
        for dtype in DType::ALL {
            let words = dtype.words(&values);
            assert_eq!(words.len(), (values.len() * dtype.bytes()).div_ceil(4));
            let stored: Vec<f32> = values.iter().map(|&value| dtype.stored(value)).collect();
            assert_eq!(dtype.values(&words, values.len()), stored);
        }
        assert_eq!(DType::F16.words(&[1.0, -2.0, 0.5]), [0xc000_3c00, 0x3800]);
        assert_eq!(DType::Bf16.words(&[1.0, -2.0]), [0xc000_3f80]);
        assert_eq!(DType::I8.words(&[1.0, -2.0, 3.0, -128.0, 5.0]), [0x8003_fe01, 0x05]);
        assert_eq!(DType::I64.words(&[-2.0, 3.0]), [0xffff_fffe, 0xffff_ffff, 3, 0]);
    }

    #[test]
    fn integers_are_rounded_to_even_and_saturated() {
        for (number, wanted) in [(0.5, 0.0), (1.5, 2.0), (-2.5, -2.0), (127.5, 127.0), (-1e9, -128.0)] {
            assert_eq!(DType::I8.rounded(number), wanted);
        }
        assert_eq!([DType::U8, DType::Bool].map(|dtype| dtype.rounded(-3.0)), [0.0; 2]);
        assert_eq!(DType::I32.rounded(f64::INFINITY), f64::from(i32::MAX));
        assert!(DType::I8.rounded(f64::NAN).is_nan());
        for dtype in DType::ALL.into_iter().filter(|dtype| dtype.is_integer()) {
            for number in dtype.range().into_iter().chain([0.0, 1.0]) {
                assert_eq!(dtype.decode(dtype.encode(number)), number, "{dtype:?}");
            }
        }
    }

    #[test]
    fn accumulators_hold_their_own_sums() {
        for dtype in DType::ALL {
            assert_eq!(DType::of_word(dtype.word()), Some(dtype));
            let accumulator = dtype.accumulator();
            assert_eq!(accumulator.accumulator(), accumulator);
            assert_eq!(accumulator.is_integer(), dtype.is_integer());
            assert!(accumulator.bytes() >= dtype.bytes().min(4));
        }
    }
}
