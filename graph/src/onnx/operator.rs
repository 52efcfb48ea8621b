//! Import rules of ONNX operators.

use std::fmt;

use super::call::{Call, ImportValue, Result};

/// Import rule of an ONNX operator: converts its nodes to nodes of a graph.
pub struct OnnxOperator {
    /// Domain of the operator's opset; empty for ONNX itself.
    pub(crate) domain: &'static str,
    /// Operator type in ONNX files, such as `Conv`.
    pub(crate) name: &'static str,
    convert: Convert,
    /// Representation of 8-bit integer operands.
    pub(crate) bytes: Int8Reading,
}

/// Representation of an operator's 8-bit integer operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Int8Reading {
    /// Widened to 64 bits.
    Widened,
    /// Quantised tensors stay 8-bit; 8-bit graph inputs are widened to 64 bits.
    Kept,
    /// Operands keep the types of the file.
    Wanted,
}

/// Conversion of a node.
#[derive(Clone, Copy)]
enum Convert {
    /// For operators with a single supported output.
    One(fn(&mut Call) -> Result<ImportValue>),
    /// For operators with as many outputs as the node names.
    Many(fn(&mut Call, usize) -> Result<Vec<ImportValue>>),
}

impl fmt::Debug for OnnxOperator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnnxOperator").field("domain", &self.domain).field("name", &self.name).finish_non_exhaustive()
    }
}

impl OnnxOperator {
    /// Creates a rule for an operator of ONNX itself with one supported output.
    pub const fn one(name: &'static str, convert: fn(&mut Call) -> Result<ImportValue>) -> Self {
        Self { domain: "", name, convert: Convert::One(convert), bytes: Int8Reading::Widened }
    }

    /// Creates a rule for an operator of ONNX itself with several outputs. The function receives
    /// the number of outputs that the node names.
    pub const fn many(name: &'static str, convert: fn(&mut Call, usize) -> Result<Vec<ImportValue>>) -> Self {
        Self { domain: "", name, convert: Convert::Many(convert), bytes: Int8Reading::Widened }
    }

    /// Makes the operator receive 8-bit integers unchanged, as it works on quantised tensors.
    pub(crate) const fn of_bytes(self) -> Self {
        Self { bytes: Int8Reading::Wanted, ..self }
    }

    /// Makes the operator receive quantised tensors unchanged, as it only moves elements.
    pub(crate) const fn keeps_bytes(self) -> Self {
        Self { bytes: Int8Reading::Kept, ..self }
    }

    /// Sets the domain of the operator's opset.
    pub const fn in_domain(self, domain: &'static str) -> Self {
        Self { domain, ..self }
    }

    /// True if the rule is for this domain and name.
    pub(crate) fn is(&self, domain: &str, name: &str) -> bool {
        self.name == name && self.domain == domain
    }

    /// Imports a node with `count` outputs.
    pub(crate) fn outputs(&self, call: &mut Call, count: usize) -> Result<Vec<ImportValue>> {
        match self.convert {
            Convert::One(convert) => Ok(vec![convert(call)?]),
            Convert::Many(convert) => convert(call, count),
        }
    }
}
