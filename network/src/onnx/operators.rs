//! What operators of files become.

use super::call::{Call, Result};
use super::draft::Value;

mod arithmetic;
mod constant;
mod function;
mod image;
mod index;
mod normalise;
mod product;
mod recurrent;
mod reduce;
mod resize;
mod shape;

/// How an operator is made nodes of a graph.
#[derive(Clone, Copy)]
pub(super) enum Convert {
    /// It has one output that is supported.
    One(fn(&mut Call) -> Result<Value>),
    /// It has as many outputs as the node names.
    Many(fn(&mut Call, usize) -> Result<Vec<Value>>),
}

impl Convert {
    /// The outputs, of which the node names `count`.
    pub(super) fn outputs(self, call: &mut Call, count: usize) -> Result<Vec<Value>> {
        match self {
            Convert::One(convert) => Ok(vec![convert(call)?]),
            Convert::Many(convert) => convert(call, count),
        }
    }
}

type Entry = (&'static str, Convert);

const OPERATORS: [&[Entry]; 11] = [
    arithmetic::OPERATORS,
    constant::OPERATORS,
    function::OPERATORS,
    image::OPERATORS,
    index::OPERATORS,
    normalise::OPERATORS,
    product::OPERATORS,
    recurrent::OPERATORS,
    reduce::OPERATORS,
    resize::OPERATORS,
    shape::OPERATORS,
];

/// How an operator of some name is converted.
pub(super) fn find(name: &str) -> Option<Convert> {
    names().find(|(known, _)| *known == name).map(|(_, convert)| convert)
}

fn names() -> impl Iterator<Item = Entry> {
    OPERATORS.iter().flat_map(|entries| entries.iter().copied())
}
