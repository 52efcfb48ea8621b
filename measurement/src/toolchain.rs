//! Backends and toolchains: how a candidate's code is made.

use std::fmt;
use std::str::FromStr;

use autotune_ir::Isa;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Method by which CPU candidates are turned into code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Backend {
    /// Assembled in this process (`asm`) by `autotune_codegen::asm`, in microseconds per candidate.
    /// The C compiler builds what the assembler cannot express, and everything for instruction sets
    /// that it does not support.
    #[default]
    Assembler,
    /// Compiled by a C compiler found at run time (`c`).
    C,
}

impl Backend {
    /// Returns the backend used for an instruction set if no backend was asked for.
    pub fn default_for(isa: Isa) -> Self {
        match isa {
            Isa::Avx2 | Isa::Avx512 => Self::Assembler,
            Isa::Neon | Isa::Generic => Self::C,
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Assembler => "asm",
            Self::C => "c",
        })
    }
}

/// Error for an unknown name of a backend.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("unknown backend '{0}': expected asm or c")]
pub struct UnknownBackend(pub String);

impl FromStr for Backend {
    type Err = UnknownBackend;

    fn from_str(word: &str) -> Result<Self, UnknownBackend> {
        match word {
            "asm" => Ok(Self::Assembler),
            "c" => Ok(Self::C),
            other => Err(UnknownBackend(other.to_string())),
        }
    }
}

/// Assembler or compiler that made a candidate's code.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Toolchain {
    /// Backend of a CPU candidate; `None` for GPUs.
    pub backend: Option<Backend>,
    /// Name and version of the assembler or compiler.
    pub compiler: String,
    /// Compiler flags, separated by spaces.
    pub flags: String,
}
