//! Code generators: each reads the same loop nests.

pub mod c;
pub mod x86;
