//! Precision of networks.

use std::fmt;
use std::str::FromStr;

use autotune_ir::DType;
use thiserror::Error;

/// Element type of tensors between kernels and of factors of products.
///
/// Sums, elementwise functions, biases and scales are f32 in each precision; inputs and outputs
/// keep the caller's types.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Precision {
    /// Nothing is rounded below f32.
    #[default]
    F32,
    /// Tensors and factors are rounded to bf16, which has 8 significant bits.
    Bf16,
}

/// Error: a word is not the name of a precision.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("unknown precision '{0}': expected f32 or bf16")]
pub struct UnknownPrecision(String);

impl Precision {
    /// All precisions, the most exact first.
    pub const ALL: [Self; 2] = [Self::F32, Self::Bf16];

    /// Returns the precision's name.
    pub fn word(self) -> &'static str {
        self.dtype().word()
    }

    /// Returns the element type of tensors.
    pub fn dtype(self) -> DType {
        match self {
            Self::F32 => DType::F32,
            Self::Bf16 => DType::Bf16,
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
        Self::ALL.into_iter().find(|known| known.word() == word).ok_or_else(|| UnknownPrecision(word.into()))
    }
}
