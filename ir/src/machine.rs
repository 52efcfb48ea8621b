//! The machine table: hardware figures that are no fields of a [`Target`](crate::Target), each
//! once, with its unit and its source.
//!
//! | source of a figure | marked |
//! |---|---|
//! | a vendor's manual or a published microbenchmark | by its title |
//! | common to typical machines | usual |
//! | fitted so that our own schedules rank as they were measured | fitted |
//!
//! Rates are nominal; the learned cost model corrects for the actual machine.

pub mod cpu;
pub mod gpu;
