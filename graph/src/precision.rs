//! Precision of networks.

use std::fmt;
use std::str::FromStr;

use autotune_ir::DType;
use thiserror::Error;

/// Element type of tensors between kernels and of factors of products.
///
/// Sums and elementwise functions are f32 in each precision, on CPUs also biases and scales; inputs
/// and outputs keep the caller's types.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Precision {
    /// Nothing is rounded below f32.
    #[default]
    F32,
    /// Factors are rounded to tf32, which has 11 significant bits, on CUDA devices; tensors are
    /// f32.
    Tf32,
    /// Tensors and factors are rounded to f16, which has 11 significant bits and is less than
    /// 65520, on CUDA devices.
    F16,
    /// Tensors and factors are rounded to bf16, which has 8 significant bits.
    Bf16,
}

/// Error: a word is not the name of a precision.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("unknown precision '{word}': expected {expected}")]
pub struct UnknownPrecision {
    word: String,
    expected: &'static str,
}

impl Precision {
    /// All precisions, the most exact first.
    pub const ALL: [Self; 4] = [Self::F32, Self::Tf32, Self::F16, Self::Bf16];

    /// Precisions of networks on CPUs.
    pub const OF_CPUS: [Self; 2] = [Self::F32, Self::Bf16];

    /// Returns the precision with a name, of those on CPUs.
    pub fn of_cpus(word: &str) -> Result<Self, UnknownPrecision> {
        Self::among(&Self::OF_CPUS, word, "f32 or bf16")
    }

    fn among(known: &[Self], word: &str, expected: &'static str) -> Result<Self, UnknownPrecision> {
        let found = known.iter().copied().find(|known| known.word() == word);
        found.ok_or_else(|| UnknownPrecision { word: word.into(), expected })
    }

    /// Returns the precision's name.
    pub fn word(self) -> &'static str {
        self.dtype().word()
    }

    /// Returns the element type of tensors.
    pub fn dtype(self) -> DType {
        match self {
            Self::F32 => DType::F32,
            Self::Tf32 => DType::Tf32,
            Self::F16 => DType::F16,
            Self::Bf16 => DType::Bf16,
        }
    }

    /// Returns the largest relative error of rounding a factor.
    pub fn unit_roundoff(self) -> f64 {
        match self {
            // In memory tf32 has the digits of f32; factors have as many as in f16.
            Self::Tf32 => DType::F16.unit_roundoff(),
            other => other.dtype().unit_roundoff(),
        }
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Precision {
    type Err = UnknownPrecision;

    fn from_str(word: &str) -> Result<Self, UnknownPrecision> {
        Self::among(&Self::ALL, word, "f32, tf32, f16 or bf16")
    }
}
