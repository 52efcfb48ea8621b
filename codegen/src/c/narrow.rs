//! Elements of 16 bits, which are converted where they are loaded and stored.

use std::fmt::Write;

use super::{Value, Writer, splat};
use crate::formula;
use autotune_ir::DType;
use autotune_ir::program::{Buffer, Store, StoreMode};

/// True if a buffer's elements have 16 bits.
pub(super) fn is_narrow(buffer: &Buffer) -> bool {
    formula::memory_dtype(buffer).bytes() == 2
}

pub(super) fn element_type(buffer: &Buffer) -> &'static str {
    if is_narrow(buffer) { "unsigned short" } else { "float" }
}

/// What no compiler takes for an element that is found by values.
pub(super) fn unfound() -> Value {
    Value { text: "elements_of_16_bits_are_not_found_by_values".into(), lanes: 1 }
}

/// The values of elements.
pub(super) fn widened(dtype: DType, elements: &str, lanes: usize) -> String {
    let [_, function] = formula::conversion_words(dtype);
    let bits = if lanes == 1 { elements.into() } else { format!("__builtin_convertvector({elements}, w{lanes})") };
    format!("f_{function}{lanes}(of_bits{lanes}({bits}))")
}

/// Vectors of 2 to `lanes` elements, their loads and stores.
pub(super) fn types(lanes: usize) -> String {
    let mut text = String::new();
    let mut n = 2;
    while n <= lanes {
        let bytes = 2 * n;
        let _ = write!(
            text,
            "typedef unsigned short h{n} __attribute__((vector_size({bytes})));\n\
             typedef unsigned short uh{n} __attribute__((vector_size({bytes}), aligned(2), may_alias));\n\
             #define LDH{n}(p) ((h{n})*(const uh{n} *)(p))\n\
             #define STH{n}(p, x) (*(uh{n} *)(p) = (uh{n})(x))\n",
        );
        n *= 2;
    }
    text
}

impl Writer<'_, '_> {
    pub(super) fn store_narrow(&mut self, store: &Store, value: Value, lanes: usize) {
        if store.mode == StoreMode::Accumulate {
            return self.line("#error \"elements of 16 bits are not added to\"");
        }
        let dtype = self.generator.program.dtype(store.dst.buffer);
        let [function, _] = formula::conversion_words(dtype);
        let bits = format!("bits{lanes}(f_{function}{lanes}({}))", splat(value, lanes));

        let (pointer, offset, stride) = self.address(&store.dst);
        if lanes == 1 {
            return self.line(&format!("{pointer}[{offset}] = {bits};"));
        }
        let halves = format!("__builtin_convertvector({bits}, h{lanes})");
        if stride == 1 {
            return self.line(&format!("STH{lanes}({pointer} + {offset}, {halves});"));
        }
        let name = self.name();
        self.line(&format!("const h{lanes} {name} = {halves};"));
        for lane in 0..lanes {
            self.line(&format!("{pointer}[{offset} + {}] = {name}[{lane}];", lane as i64 * stride));
        }
    }
}
