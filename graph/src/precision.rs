//! How exactly networks compute.

use std::fmt;
use std::str::FromStr;

use autotune_ir::DType;
use thiserror::Error;

/// Element types that tensors between kernels lie in, and products are made of.
///
/// Sums, functions of elements, biases and scales are f32 in each; inputs and outputs of a network
/// are as callers have them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Precision {
    /// Nothing is rounded to fewer bits than f32 has.
    #[default]
    F32,
    /// Tensors and factors are rounded to bf16, to 8 significant bits.
    Bf16,
}

/// A word that names no precision.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("'{0}' is no precision: expected f32 or bf16")]
pub struct UnknownPrecision(String);

impl Precision {
    /// Every precision, the most exact first.
    pub const ALL: [Self; 2] = [Self::F32, Self::Bf16];

    /// Returns the word that names it.
    pub fn word(self) -> &'static str {
        self.dtype().word()
    }

    /// Returns the type that tensors lie in.
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
