//! Tests of the target-independent half on simulated instruction sets.

mod random_programs;
mod simulator;
