//! (skeleton)
pub mod features;
