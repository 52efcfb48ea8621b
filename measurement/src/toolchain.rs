//! What makes a candidate's code.

use std::fmt;
use std::str::FromStr;

use autotune_ir::Isa;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// How candidates are turned into code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Backend {
    /// In this process (`asm`), `autotune_codegen::asm`: microseconds a candidate. What it cannot
    /// express, and everything for instruction sets that it does not know, is left to the C
    /// compiler.
    #[default]
    Assembler,
    /// By a C compiler found at run time (`c`).
    C,
}

impl Backend {
    /// What candidates for an instruction set are built with unless C is asked for.
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

/// No backend of that name.
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

/// What made a candidate's code.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Toolchain {
    /// The kind of it, of a CPU's.
    pub backend: Option<Backend>,
    /// Assembler or compiler and its version.
    pub compiler: String,
    /// Its flags.
    pub flags: String,
}
