//! Check of loop nests against the form that an instruction computes.

use super::{BoxCopy, CallSite, Dot, Executor, Fragments, Instruction, NestForm, TileProduct};
use crate::program::Node;

impl Instruction {
    /// Checks that the instruction computes the nest in `body` at this place in the program; the
    /// error says why it does not.
    pub fn check(&self, body: &[Node], site: &CallSite) -> Result<(), &'static str> {
        match (self.nest, self.executor) {
            (NestForm::DotProduct, _) => Dot::check(body, site, self),
            (NestForm::Tiles, _) => TileProduct::check(body, site, self),
            (NestForm::MatrixProduct, Executor::Threads(by)) => Fragments::check(body, site, by),
            (NestForm::MatrixProduct, _) => Err("no group of threads executes this matrix instruction"),
            (NestForm::Box, _) => BoxCopy::check(body, site),
        }
    }
}
