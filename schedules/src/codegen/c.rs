//! Portable C (stub)
use crate::{Program, Target};

/// C source of the program's kernel: one exported function per stage with the interface of [`crate::plan::PlanStage`].
pub fn generate(_program: &Program, _target: &Target) -> String {
    unimplemented!()
}
