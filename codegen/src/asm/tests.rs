//! Tests of the target-independent half on simulated instruction sets.

mod emulator;
mod random_programs;
mod simulator;
mod tile_programs;
mod tile_registers;
