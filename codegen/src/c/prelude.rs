//! Types and functions at the start of each source.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::narrow;
use super::value::type_name;
use crate::formula;
use autotune_ir::formula::Formula;

/// Returns vector types of 2 to `lanes` elements with unaligned load and store, splat and max.
///
/// `max` returns a NaN in its first operand, and ignores one in its second.
pub(super) fn types(lanes: usize) -> String {
    let mut text = String::from("#define LEAF static __attribute__((noinline)) void\n");
    text.push_str("static inline float max1(float a, float b) { return a < b ? b : a; }\n");
    let mut n = 2;
    while n <= lanes {
        let (bytes, splat) = (n * 4, vec!["x"; n].join(", "));
        let _ = write!(
            text,
            "typedef float vec{n} __attribute__((vector_size({bytes})));\n\
             typedef int i{n} __attribute__((vector_size({bytes})));\n\
             typedef float u{n} __attribute__((vector_size({bytes}), aligned(4), may_alias));\n\
             #define LD{n}(p) ((vec{n})*(const u{n} *)(p))\n\
             #define ST{n}(p, x) (*(u{n} *)(p) = (u{n})(x))\n\
             static inline vec{n} splat{n}(float x) {{ return (vec{n}){{{splat}}}; }}\n\
             static inline vec{n} max{n}(vec{n} a, vec{n} b) {{ i{n} m = a < b; return (vec{n})(((i{n})b & m) | ((i{n})a & ~m)); }}\n",
        );
        n *= 2;
    }
    text
}

/// Returns primitives and the functions of the given formulas, for 1 to `lanes` elements.
pub(super) fn formulas(functions: &BTreeMap<&str, &Formula>, lanes: usize, has_integers: bool) -> String {
    let builtins = ["__builtin_sqrtf", "__builtin_floorf", "__builtin_fmaf"];
    let mut text = formula::scalar_primitives("static inline", builtins);
    let mut n = 1;
    while n <= lanes {
        if n > 1 {
            text.push_str(&formula::vector_primitives(n));
        }
        if has_integers {
            text.push_str(&narrow::integers(n));
        }
        functions.iter().for_each(|(name, of)| {
            text.push_str(&formula::function("static inline", &type_name(n), n, name, of));
        });
        n *= 2;
    }
    text
}
