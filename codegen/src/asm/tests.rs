//! The neutral half on instruction sets that are none.

mod random_programs;
mod simulator;
