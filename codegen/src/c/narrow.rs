//! Conversion of elements other than f32 at loads and stores, and integer operations.
//!
//! C variables hold the bits of an integer in a float.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::value::{CValue, splat};
use super::writer::CWriter;
use crate::formula;
use autotune_ir::DType;
use autotune_ir::formula::Formula;
use autotune_ir::program::{Buffer, Expr, Program, Scope, Store, StoreMode};

/// Scalar integer operations, for sources of programs with integers.
const INTEGERS: &str = "\
static inline float max_bits1(float a, float b) { return (int)bits1(a) < (int)bits1(b) ? b : a; }
static inline float min_bits1(float a, float b) { return (int)bits1(b) < (int)bits1(a) ? b : a; }
static inline float of_integer1(float x) { return (float)(int)bits1(x); }
static inline float nearest1(float x) {
  const float r = __builtin_rintf(x);
  return of_bits1(r >= -2147483648.0f && r < 2147483648.0f ? (unsigned)(int)r : 0x80000000u);
}
";

/// The C type of an element.
#[derive(Clone, Copy)]
struct CElement {
    name: &'static str,
    /// Prefix of the names of its vector types.
    vector: &'static str,
}

impl CElement {
    fn of(dtype: DType) -> Self {
        let (name, vector) = match dtype {
            DType::F32 | DType::Tf32 => ("float", "vec"),
            DType::F16 | DType::Bf16 => ("unsigned short", "h"),
            DType::I8 => ("signed char", "sc"),
            DType::U8 | DType::Bool => ("unsigned char", "uc"),
            DType::I16 => ("short", "sh"),
            DType::I32 => ("int", "in"),
            DType::I64 => ("long long", "ll"),
        };
        Self { name, vector }
    }

    /// Returns the suffix of the names of its vector load and store macros.
    fn suffix(self) -> String {
        self.vector.to_uppercase()
    }
}

/// True if a buffer's elements are converted at loads and stores.
pub(super) fn is_narrow(buffer: &Buffer) -> bool {
    !formula::memory_dtype(buffer).is_word()
}

pub(super) fn element_type(buffer: &Buffer) -> &'static str {
    CElement::of(formula::memory_dtype(buffer)).name
}

/// Returns the name of a buffer's vector load macro, and the prefix of its vector type's name.
pub(super) fn load(buffer: &Buffer) -> (String, &'static str) {
    let element = CElement::of(formula::memory_dtype(buffer));
    if is_narrow(buffer) { (format!("LD{}", element.suffix()), element.vector) } else { ("LD".into(), element.vector) }
}

/// Converts a buffer's elements to the values that C variables hold: f32, or the bits of integers.
pub(super) fn value(buffer: &Buffer, elements: &str, lanes: usize) -> String {
    if is_narrow(buffer) { widened(buffer.dtype, elements, lanes) } else { elements.into() }
}

/// Widens elements of a type to f32, or to the bits of integers.
fn widened(dtype: DType, elements: &str, lanes: usize) -> String {
    let bits = if lanes == 1 { elements.into() } else { format!("__builtin_convertvector({elements}, w{lanes})") };
    match formula::conversion_words(dtype) {
        [_, ""] => format!("of_bits{lanes}({bits})"),
        [_, function] => format!("f_{function}{lanes}(of_bits{lanes}({bits}))"),
    }
}

/// Returns vector types of 2 to `lanes` elements for a program's narrow types, with their load and
/// store macros.
pub(super) fn types(program: &Program, lanes: usize) -> String {
    let dtypes = program.buffers.iter().map(formula::memory_dtype).filter(|dtype| !dtype.is_word());
    let elements: BTreeMap<&str, (CElement, usize)> = dtypes
        .map(|dtype| (CElement::of(dtype), dtype.bytes()))
        .map(|(element, bytes)| (element.vector, (element, bytes)))
        .collect();
    let mut text = String::new();
    for (element, bytes) in elements.into_values() {
        let (CElement { name, vector, .. }, suffix) = (element, element.suffix());
        let mut n = 2;
        while n <= lanes {
            // Vectors are unaligned in memory and alias elements.
            let size = bytes * n;
            let _ = write!(
                text,
                "typedef {name} {vector}{n} __attribute__((vector_size({size})));\n\
                 typedef {name} u{vector}{n} __attribute__((vector_size({size}), aligned({bytes}), may_alias));\n\
                 #define LD{suffix}{n}(p) (({vector}{n})*(const u{vector}{n} *)(p))\n\
                 #define ST{suffix}{n}(p, x) (*(u{vector}{n} *)(p) = (u{vector}{n})(x))\n",
            );
            n *= 2;
        }
    }
    text
}

/// Returns integer operations for `n` lanes.
pub(super) fn integers(n: usize) -> String {
    if n == 1 {
        return INTEGERS.into();
    }
    let bound = |name: &str, holds: &str| {
        format!("static inline vec{n} {name}{n}(vec{n} a, vec{n} b) {{ return select{n}({holds}, b, a); }}\n")
    };
    let less = |a: &str, b: &str| format!("(i{n}){a} < (i{n}){b}");
    format!(
        "{}{}\
         static inline vec{n} of_integer{n}(vec{n} x) {{ return __builtin_convertvector((i{n})x, vec{n}); }}\n\
         static inline vec{n} nearest{n}(vec{n} x) {{ vec{n} r; for (int i = 0; i < {n}; ++i) r[i] = nearest1(x[i]); return r; }}\n",
        bound("max_bits", &less("a", "b")),
        bound("min_bits", &less("b", "a")),
    )
}

impl CWriter<'_, '_> {
    /// True if a value is an integer.
    pub(super) fn is_integer(&self, value: &Expr) -> bool {
        let program = self.generator.program;
        value.is_integer(&|id| program.dtype(id).is_integer())
    }

    /// Returns the bits of an integer value.
    pub(super) fn integer(&mut self, value: &Expr) -> CValue {
        match value {
            Expr::Load(access) => self.load(access),
            Expr::Gather(gather) => self.gather(gather),
            Expr::Binary(op, of) => {
                let values = of.each_ref().map(|of| self.integer(of));
                let lanes = values.iter().map(|value| value.lanes).max().unwrap_or(1);
                let operands = values.map(|value| splat(value, lanes));
                let text = Formula::of_integers(*op).and_then(|formula| formula::applied_to(formula, &operands, lanes));
                CValue { text: text.unwrap_or_default(), lanes }
            }
            Expr::Const(whole) => CValue { text: format!("of_bits1({:#x}u)", *whole as i32), lanes: 1 },
            _ => CValue { text: "for_a_gpu".into(), lanes: 1 },
        }
    }

    /// Returns the bits that a store writes to a buffer of integers.
    pub(super) fn stored_integer(&mut self, store: &Store) -> CValue {
        let dst = self.generator.program.buffer(store.dst.buffer);
        let (dtype, in_memory) = (dst.dtype, dst.scope != Scope::Register);
        // Zero has the same bits as an integer.
        let is_integer = self.is_integer(&store.value) || matches!(store.value, Expr::Const(0.0));
        let mut value = if is_integer { self.integer(&store.value) } else { self.expr(&store.value) };
        if !is_integer {
            value.text = format!("f_to_{}{}({})", dtype.word(), value.lanes, value.text);
        }
        // Integers wrap around on overflow, as in the interpreter: the sum is one of unsigned
        // words.
        if store.mode == StoreMode::Accumulate {
            let old = self.load(&store.dst);
            let lanes = old.lanes.max(value.lanes);
            let [a, b] = [old, value].map(|value| splat(value, lanes));
            value = CValue { text: format!("of_bits{lanes}(bits{lanes}({a}) + bits{lanes}({b}))"), lanes };
        }
        // Only a store to memory narrows; registers hold 32 bits.
        if is_integer && in_memory && dtype != DType::I32 {
            value.text = format!("f_saturated_{}{}({})", dtype.word(), value.lanes, value.text);
        }
        value
    }

    /// Stores elements of a narrow type; for integers, `value` is their bits.
    pub(super) fn store_narrow(&mut self, store: &Store, value: CValue, lanes: usize) {
        let dtype = self.generator.program.dtype(store.dst.buffer);
        if store.mode == StoreMode::Accumulate && !dtype.is_integer() {
            return self.line("#error \"accumulation in 16-bit memory is not supported\"");
        }
        let [function, _] = formula::conversion_words(dtype);
        let value = splat(value, lanes);
        let bits = match dtype.is_integer() {
            true => format!("bits{lanes}({value})"),
            false => format!("bits{lanes}(f_{function}{lanes}({value}))"),
        };

        let (pointer, offset, stride) = self.address(&store.dst);
        if lanes == 1 {
            return self.line(&format!("{pointer}[{offset}] = {bits};"));
        }
        let element = CElement::of(dtype);
        let (vector, suffix) = (element.vector, element.suffix());
        let elements = format!("__builtin_convertvector({bits}, {vector}{lanes})");
        if stride == 1 {
            return self.line(&format!("ST{suffix}{lanes}({pointer} + {offset}, {elements});"));
        }
        let name = self.name();
        self.line(&format!("const {vector}{lanes} {name} = {elements};"));
        for lane in 0..lanes {
            self.line(&format!("{pointer}[{offset} + {}] = {name}[{lane}];", lane as i64 * stride));
        }
    }
}
