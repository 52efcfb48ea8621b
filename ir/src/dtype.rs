//! Element types and how they round.

use half::{bf16, f16};
use serde::{Deserialize, Serialize};

/// Element type of every tensor of a workload. Sums are f32 whatever it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DType {
    /// IEEE 754 binary32.
    #[default]
    F32,
    /// binary32 in memory; data and weights of a contraction are rounded to 10 bits behind the leading one before they are multiplied.
    /// What is no contraction, or several, is computed as of binary32.
    Tf32,
    /// IEEE 754 binary16 in memory.
    F16,
    /// The upper half of a binary32 in memory.
    Bf16,
}

impl DType {
    /// Every type with its word in the text form of workloads.
    pub const WORDS: [(&'static str, DType); 4] =
        [("f32", DType::F32), ("tf32", DType::Tf32), ("f16", DType::F16), ("bf16", DType::Bf16)];

    /// Its word in the text form of workloads.
    pub fn word(self) -> &'static str {
        Self::WORDS[self as usize].0
    }

    /// Size of one element in memory in bytes.
    pub fn bytes(self) -> usize {
        match self {
            DType::F32 | DType::Tf32 => 4,
            DType::F16 | DType::Bf16 => 2,
        }
    }

    /// The value that memory holds after `value` is stored: the nearest one, of two the even one.
    pub fn stored(self, value: f32) -> f32 {
        match self {
            DType::F32 | DType::Tf32 => value,
            DType::F16 => f16::from_f32(value).to_f32(),
            DType::Bf16 => bf16::from_f32(value).to_f32(),
        }
    }

    /// The value that is multiplied where data or weights of a contraction hold `value`.
    pub fn multiplied(self, value: f32) -> f32 {
        match self {
            DType::F32 | DType::F16 | DType::Bf16 => self.stored(value),
            // To the nearest, of two the one further from zero.
            DType::Tf32 if value.is_finite() => f32::from_bits((value.to_bits() + 0x1000) & !0x1fff),
            DType::Tf32 => value,
        }
    }

    /// Largest difference, relative to a value, between it and what memory holds of it.
    pub fn unit_roundoff(self) -> f64 {
        match self {
            DType::F32 | DType::Tf32 => 2f64.powi(-24),
            DType::F16 => 2f64.powi(-11),
            DType::Bf16 => 2f64.powi(-8),
        }
    }

    /// The values as they lie in memory, in whole 32-bit words; two 16-bit elements share one, the first in its lower half.
    pub fn words(self, values: &[f32]) -> Vec<u32> {
        let half = |value: f32| match self {
            DType::Bf16 => u32::from(bf16::from_f32(value).to_bits()),
            _ => u32::from(f16::from_f32(value).to_bits()),
        };
        match self {
            DType::F32 | DType::Tf32 => values.iter().map(|value| value.to_bits()).collect(),
            DType::F16 | DType::Bf16 => {
                values.chunks(2).map(|pair| half(pair[0]) | pair.get(1).map_or(0, |&high| half(high) << 16)).collect()
            }
        }
    }

    /// The first `len` elements of memory that [`DType::words`] describes.
    pub fn values(self, words: &[u32], len: usize) -> Vec<f32> {
        let half = |bits: u32| match self {
            DType::Bf16 => bf16::from_bits(bits as u16).to_f32(),
            _ => f16::from_bits(bits as u16).to_f32(),
        };
        match self {
            DType::F32 | DType::Tf32 => words.iter().take(len).map(|&word| f32::from_bits(word)).collect(),
            DType::F16 | DType::Bf16 => {
                words.iter().flat_map(|&word| [half(word & 0xffff), half(word >> 16)]).take(len).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_rounded_to_the_nearest() {
        let third = 1.0f32 / 3.0;
        for (_, dtype) in DType::WORDS {
            let bits = match dtype {
                DType::F32 => 23,
                DType::Tf32 | DType::F16 => 10,
                DType::Bf16 => 7,
            };
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
        for (_, dtype) in DType::WORDS {
            let words = dtype.words(&values);
            assert_eq!(words.len(), (values.len() * dtype.bytes()).div_ceil(4));
            let stored: Vec<f32> = values.iter().map(|&value| dtype.stored(value)).collect();
            assert_eq!(dtype.values(&words, values.len()), stored);
        }
        assert_eq!(DType::F16.words(&[1.0, -2.0, 0.5]), [0xc000_3c00, 0x3800]);
        assert_eq!(DType::Bf16.words(&[1.0, -2.0]), [0xc000_3f80]);
    }
}
