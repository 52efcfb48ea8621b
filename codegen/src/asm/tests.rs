//! Tests of the target-independent half on simulated instruction sets, and of code for x86 in an
//! emulator.

mod emulator;
mod packed_bytes;
mod random_programs;
mod simulator;
mod tile_programs;
mod tile_registers;
mod transposes;
