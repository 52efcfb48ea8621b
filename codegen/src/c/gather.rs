//! Gathers: elements whose indices are computed values.

use std::fmt::Write;

use super::narrow;
use super::value::{CValue, type_name};
use super::writer::CWriter;
use crate::formula;
use autotune_ir::program::GatherAccess;

/// Returns C functions equivalent to [`autotune_ir::program::gathered_index`], for 1 to `lanes`
/// values.
pub(super) fn functions(lanes: usize) -> String {
    let mut text = formula::gathered("static inline", "long");
    // Values beyond the integer range are masked out first: converting them is undefined in C.
    let mut n = 2;
    while n <= lanes {
        let _ = write!(
            text,
            "static inline i{n} gathered{n}(vec{n} x, int extent) {{\n\
             \x20 const i{n} is_one = x >= 1.0f, is_huge = x >= 1073741824.0f;\n\
             \x20 const i{n} at = __builtin_convertvector((vec{n})((i{n})x & is_one & ~is_huge), i{n});\n\
             \x20 const i{n} is_last = is_huge | (at >= extent);\n\
             \x20 return (at & ~is_last) | ((extent - 1) & is_last);\n}}\n"
        );
        n *= 2;
    }
    text
}

impl CWriter<'_, '_> {
    /// Returns the gather of an element, or of one element per lane.
    ///
    /// Computed indices get names. Indices that are equal for all lanes are added to the offset.
    pub(super) fn gather(&mut self, GatherAccess { access, dims, at }: &GatherAccess) -> CValue {
        let buffer = self.generator.program.buffer(access.buffer);
        let (strides, shape) = (buffer.strides(), &buffer.shape);
        let (pointer, mut offset, stride) = self.address(access);
        let (mut apart, mut is_scattered) = (String::new(), false);
        for (value, &dim) in at.iter().zip(dims) {
            let (value, name) = (self.expr(value), self.name());
            let (stride, extent) = (strides[dim], shape[dim]);
            if value.lanes == 1 {
                self.line(&format!("const long {name} = {stride} * gathered({}, {extent});", value.text));
                let _ = write!(offset, " + {name}");
            } else {
                let lanes = value.lanes;
                // `gathered<n>` is a function, but the name of its result type, `i<n>`, may be
                // shadowed by a loop variable here. So the type is deduced.
                self.line(&format!("const __auto_type {name} = gathered{lanes}({}, {extent});", value.text));
                let _ = write!(apart, " + {stride}L * {name}[l]");
                is_scattered = true;
            }
        }

        let lanes = self.vector.map_or(1, |vector| vector.lanes);
        let (text, lanes) = match (lanes, stride, is_scattered) {
            (1, ..) | (_, 0, false) => (narrow::value(buffer, &format!("{pointer}[{offset}]"), 1), 1),
            (_, 1, false) => {
                let load = narrow::load(buffer).0;
                (narrow::value(buffer, &format!("{load}{lanes}({pointer} + {offset})"), lanes), lanes)
            }
            _ => {
                let (name, vector) = (self.name(), type_name(lanes));
                let element = narrow::value(buffer, &format!("{pointer}[{offset} + {stride} * l{apart}]"), 1);
                self.line(&format!("{vector} {name}; for (int l = 0; l < {lanes}; ++l) {name}[l] = {element};"));
                (name, lanes)
            }
        };
        CValue { text, lanes }
    }
}
