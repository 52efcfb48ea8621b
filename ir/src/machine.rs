//! The machine table: every hardware number that is no field of a [`Target`](crate::Target), once,
//! with its unit and where it is from.
//!
//! | number is from | marked |
//! |---|---|
//! | a vendor's manual or a published microbenchmark | by its title |
//! | what usual machines have in common | usual |
//! | what made schedules of our own rank as they were measured | fitted |
//!
//! Rates are nominal: the learned model corrects what a machine makes of them.

pub mod cpu;
pub mod gpu;
