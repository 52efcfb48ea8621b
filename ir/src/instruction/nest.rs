//! Which nests an instruction does.

use super::{BoxCopy, Dot, Executor, Fragments, Instruction, NestForm, Site};
use crate::program::Node;

impl Instruction {
    /// Checks that the instruction does the nest in a body, where that stands; the error says why
    /// it does not.
    pub fn check(&self, body: &[Node], site: &Site) -> Result<(), &'static str> {
        match (self.nest, self.executor) {
            (NestForm::DotProduct, _) => Dot::check(body, site, self),
            (NestForm::MatrixProduct, Executor::Threads(by)) => Fragments::check(body, site, by),
            (NestForm::MatrixProduct, _) => Err("matrix instructions that no threads execute together"),
            (NestForm::Box, _) => BoxCopy::check(body, site),
        }
    }
}
