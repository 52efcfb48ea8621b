//! How an operator of files becomes nodes of a graph.

use std::fmt;

use super::call::{Call, Result, Value};

/// An operator of ONNX files, and how its nodes are read.
pub struct OnnxOperator {
    /// The set of operators that it is of; empty for that of ONNX itself.
    pub(crate) domain: &'static str,
    /// Its name.
    pub(crate) name: &'static str,
    convert: Convert,
    /// How it is given integers of 8 bits.
    pub(crate) bytes: Bytes,
}

/// How an operator reads integers of 8 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bytes {
    /// As integers of 64 bits.
    Widened,
    /// Quantised tensors as they are, those that callers bring as integers of 64 bits.
    Kept,
    /// All as they are.
    Wanted,
}

/// How an operator is made nodes of a graph.
#[derive(Clone, Copy)]
enum Convert {
    /// It has one output that is supported.
    One(fn(&mut Call) -> Result<Value>),
    /// It has as many outputs as the node names.
    Many(fn(&mut Call, usize) -> Result<Vec<Value>>),
}

impl fmt::Debug for OnnxOperator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnnxOperator").field("domain", &self.domain).field("name", &self.name).finish_non_exhaustive()
    }
}

impl OnnxOperator {
    /// An operator of ONNX itself, of which one output is supported.
    pub const fn one(name: &'static str, convert: fn(&mut Call) -> Result<Value>) -> Self {
        Self { domain: "", name, convert: Convert::One(convert), bytes: Bytes::Widened }
    }

    /// An operator of ONNX itself with several outputs, of which a node names as many as the
    /// function is given.
    pub const fn many(name: &'static str, convert: fn(&mut Call, usize) -> Result<Vec<Value>>) -> Self {
        Self { domain: "", name, convert: Convert::Many(convert), bytes: Bytes::Widened }
    }

    /// The same, given integers of 8 bits as they are: it is of quantised tensors.
    pub(crate) const fn of_bytes(self) -> Self {
        Self { bytes: Bytes::Wanted, ..self }
    }

    /// The same, given quantised tensors as they are: it moves elements.
    pub(crate) const fn keeps_bytes(self) -> Self {
        Self { bytes: Bytes::Kept, ..self }
    }

    /// The same of another set of operators.
    pub const fn in_domain(self, domain: &'static str) -> Self {
        Self { domain, ..self }
    }

    /// True if it is the operator of a name in a set.
    pub(crate) fn is(&self, domain: &str, name: &str) -> bool {
        self.name == name && self.domain == domain
    }

    /// The outputs of a node, which names so many.
    pub(crate) fn outputs(&self, call: &mut Call, count: usize) -> Result<Vec<Value>> {
        match self.convert {
            Convert::One(convert) => Ok(vec![convert(call)?]),
            Convert::Many(convert) => convert(call, count),
        }
    }
}
