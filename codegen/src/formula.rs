//! Operations of values in C: a function for each formula that is more than one primitive, for
//! vectors of any number of lanes.
//!
//! ```text
//! tanh(x)  →  static inline vec8 f_tanh8(vec8 x0) {
//!               const vec8 s2 = of_bits8(bits8(x0) & bits8(splat8(of_bits1(0x7fffffffu))));
//!               ...
//! ```
//!
//! Sources have them only for what a program uses, and `max<lanes>` always.

use std::collections::BTreeMap;
use std::fmt::Write;

use autotune_ir::DType;
use autotune_ir::formula::{Formula, Primitive, Step};
use autotune_ir::program::{Buffer, Expr, Node, Program, Scope, preorder};

/// What an operation makes of operands that are expressions in C, each of `lanes` lanes; `None` for
/// what is no operation.
pub(crate) fn applied(expr: &Expr, operands: &[String], lanes: usize) -> Option<String> {
    let formula = Formula::of(expr)?;
    let function = || format!("f_{}{lanes}({})", word(expr), operands.join(", "));
    Some(applied_to(formula, operands, lanes).unwrap_or_else(function))
}

/// What a formula of one primitive makes of operands that are expressions in C; `None` for others.
pub(crate) fn applied_to(formula: &Formula, operands: &[String], lanes: usize) -> Option<String> {
    Some(applied_primitive(formula.only()?, operands, lanes))
}

/// The formulas of a program that functions are made of, by their names; `None` if it has sums,
/// products and maxima only.
pub(crate) fn used(program: &Program) -> Option<BTreeMap<&'static str, &'static Formula>> {
    let (mut functions, mut is_plain) = (BTreeMap::new(), true);
    for node in program.stages.iter().flat_map(|stage| preorder(&stage.body)) {
        let Node::Store(store) = node else { continue };
        store.value.for_each(&mut |expr| {
            let Some(formula) = Formula::of(expr) else { return };
            is_plain &= matches!(formula.only(), Some(Primitive::Add | Primitive::Mul | Primitive::Max));
            if formula.only().is_none() {
                functions.insert(word(expr), formula);
            }
        });
    }
    (!is_plain).then_some(functions)
}

/// Returns the type of a buffer's elements in memory. Registers hold values as they were computed.
pub(crate) fn memory_dtype(buffer: &Buffer) -> DType {
    if matches!(buffer.scope, Scope::Global | Scope::Local) { buffer.dtype } else { DType::F32 }
}

/// The formulas between values and elements of types other than f32, of those that a program has,
/// by the names of functions.
pub(crate) fn conversions(program: &Program) -> BTreeMap<&'static str, &'static Formula> {
    let mut functions = BTreeMap::new();
    for dtype in
        program.buffers.iter().map(|buffer| if buffer.dtype.is_integer() { buffer.dtype } else { memory_dtype(buffer) })
    {
        let formulas = [Formula::narrowed(dtype), Formula::widened(dtype)];
        for (name, formula) in conversion_words(dtype).into_iter().zip(formulas).filter(|(name, _)| !name.is_empty()) {
            functions.extend(formula.map(|formula| (name, formula)));
        }
        functions.extend(saturation_word(dtype).zip(Formula::saturated(dtype)));
    }
    functions
}

/// The name of the function that makes elements of a type of integers.
fn saturation_word(dtype: DType) -> Option<&'static str> {
    match dtype {
        DType::I8 => Some("saturated_i8"),
        DType::U8 => Some("saturated_u8"),
        DType::I16 => Some("saturated_i16"),
        _ => None,
    }
}

/// The names of the functions that make elements of a type of values, and values of elements; none
/// of these of integers, whose bits are values.
pub(crate) fn conversion_words(dtype: DType) -> [&'static str; 2] {
    match dtype {
        DType::F16 => ["to_f16", "from_f16"],
        DType::Bf16 => ["to_bf16", "from_bf16"],
        DType::I8 => ["to_i8", ""],
        DType::U8 => ["to_u8", ""],
        DType::I16 => ["to_i16", ""],
        DType::I32 => ["to_i32", ""],
        _ => ["", ""],
    }
}

/// True if a program has elements that are found by values.
pub(crate) fn gathers(program: &Program) -> bool {
    let mut nodes = program.stages.iter().flat_map(|stage| preorder(&stage.body));
    let is_gather = |expr: &Expr| matches!(expr, Expr::Gather(_));
    nodes.any(|node| matches!(node, Node::Store(store) if store.value.any(&is_gather)))
}

/// What [`autotune_ir::program::gathered_index`] is, of a type of whole numbers.
pub(crate) fn gathered(head: &str, index: &str) -> String {
    format!(
        "{head} {index} gathered(float x, {index} extent) {{\n\
         \x20 const {index} at = x >= 1.0f ? (x < 1073741824.0f ? ({index})x : extent) : 0;\n\
         \x20 return at < extent ? at : extent - 1;\n}}\n"
    )
}

/// The name of an expression's operation.
fn word(expr: &Expr) -> &'static str {
    match expr {
        Expr::Unary(op, _) => op.word(),
        Expr::Binary(op, _) => op.word(),
        Expr::Select(..) => "select",
        Expr::Const(_) | Expr::Load(_) | Expr::Gather(_) | Expr::Guarded { .. } => "",
    }
}

/// A function for values of a type with `lanes` lanes; `head` comes before it.
pub(crate) fn function(head: &str, number: &str, lanes: usize, name: &str, formula: &Formula) -> String {
    let (mut parameters, mut lines) = (Vec::new(), String::new());
    let mut names: Vec<String> = Vec::new();
    for (position, step) in formula.steps().iter().enumerate() {
        names.push(match step {
            Step::Operand(operand) => {
                parameters.push(format!("{number} x{operand}"));
                format!("x{operand}")
            }
            Step::Constant(bits) => constant(*bits, lanes),
            Step::Apply(primitive, of) => {
                let of = &of[..primitive.operands()];
                let operands: Vec<String> = of.iter().map(|&of| names[usize::from(of)].clone()).collect();
                let _ = writeln!(
                    lines,
                    "  const {number} s{position} = {};",
                    applied_primitive(*primitive, &operands, lanes)
                );
                format!("s{position}")
            }
        });
    }
    let result = names.last().map_or("", |last| last);
    format!("{head} {number} f_{name}{lanes}({}) {{\n{lines}  return {result};\n}}\n", parameters.join(", "))
}

/// A constant in every lane: as a number where it is one whose digits tell everything.
fn constant(bits: u32, lanes: usize) -> String {
    let value = f32::from_bits(bits);
    let scalar =
        if value.is_normal() || value == 0.0 { format!("{value:?}f") } else { format!("of_bits1({bits:#x}u)") };
    if lanes == 1 { scalar } else { format!("splat{lanes}({scalar})") }
}

fn applied_primitive(primitive: Primitive, of: &[String], lanes: usize) -> String {
    let operator = |sign: &str| format!("({} {sign} {})", of[0], of[1]);
    let of_bits = |sign: &str| format!("of_bits{lanes}(bits{lanes}({}) {sign} bits{lanes}({}))", of[0], of[1]);
    let call = |name: &str| format!("{name}{lanes}({})", of.join(", "));

    match primitive {
        Primitive::Add => operator("+"),
        Primitive::Sub => operator("-"),
        Primitive::Mul => operator("*"),
        Primitive::Div => operator("/"),
        Primitive::And => of_bits("&"),
        Primitive::Or => of_bits("|"),
        Primitive::AddBits => of_bits("+"),
        Primitive::SubBits => of_bits("-"),
        Primitive::MulBits => of_bits("*"),
        Primitive::MaxBits => call("max_bits"),
        Primitive::MinBits => call("min_bits"),
        Primitive::OfInteger => call("of_integer"),
        Primitive::Nearest => call("nearest"),
        Primitive::ShiftLeft(places) => format!("of_bits{lanes}(bits{lanes}({}) << {places})", of[0]),
        Primitive::ShiftRight(places) => format!("of_bits{lanes}(bits{lanes}({}) >> {places})", of[0]),
        Primitive::Max => call("max"),
        Primitive::Min => call("min"),
        Primitive::Maximum => call("maximum"),
        Primitive::Minimum => call("minimum"),
        Primitive::Scale => call("f_scale"),
        Primitive::Sqrt => call("sqrt"),
        Primitive::Floor => call("floor"),
        Primitive::MulAdd => call("fma"),
        Primitive::Select(compare) => {
            format!("select{lanes}({} {} {}, {}, {})", of[0], compare.sign(), of[1], of[2], of[3])
        }
    }
}

/// What the primitives of single values are made of, beside `max1`; with the names of the
/// language's square root, floor and fused multiply-add.
pub(crate) fn scalar_primitives(head: &str, [sqrt, floor, fma]: [&str; 3]) -> String {
    let scale = function(head, "float", 1, "scale", Formula::scale());
    format!(
        "{head} unsigned bits1(float x) {{ union {{ float f; unsigned u; }} v; v.f = x; return v.u; }}\n\
         {head} float of_bits1(unsigned x) {{ union {{ float f; unsigned u; }} v; v.u = x; return v.f; }}\n\
         {head} float min1(float a, float b) {{ return b < a ? b : a; }}\n\
         {head} float maximum1(float a, float b) {{ return b == b ? max1(a, b) : b; }}\n\
         {head} float minimum1(float a, float b) {{ return b == b ? min1(a, b) : b; }}\n\
         {head} float sqrt1(float a) {{ return {sqrt}(a); }}\n\
         {head} float floor1(float a) {{ return {floor}(a); }}\n\
         {head} float fma1(float a, float b, float c) {{ return {fma}(a, b, c); }}\n\
         {head} float select1(int holds, float a, float b) {{ return holds ? a : b; }}\n\
         {scale}"
    )
}

/// The same of vectors with GNU extensions. These have no fused multiply-add; where the machine is
/// known to, it is named.
pub(crate) fn vector_primitives(lanes: usize) -> String {
    let n = lanes;
    let bytes = 4 * n;
    let lane_by_lane = |name: &str, builtin: &str| {
        format!(
            "static inline vec{n} {name}{n}(vec{n} a) {{ vec{n} r; for (int i = 0; i < {n}; ++i) r[i] = {builtin}(a[i]); return r; }}\n"
        )
    };
    let builtin = match n {
        4 => Some(("__FMA__", "__builtin_ia32_vfmaddps(a, b, c)")),
        8 => Some(("__FMA__", "__builtin_ia32_vfmaddps256(a, b, c)")),
        16 => Some(("__AVX512F__", "__builtin_ia32_vfmaddps512_mask(a, b, c, -1, 4)")),
        _ => None,
    };
    let fused = builtin.map_or_else(String::new, |(has, call)| format!("#ifdef {has}\n  return {call};\n#endif\n"));

    let scale = function("static inline", &format!("vec{n}"), n, "scale", Formula::scale());
    format!(
        "typedef unsigned w{n} __attribute__((vector_size({bytes})));\n\
         #define bits{n}(x) ((w{n})(x))\n\
         #define of_bits{n}(x) ((vec{n})(x))\n\
         static inline vec{n} select{n}(i{n} m, vec{n} a, vec{n} b) {{ return (vec{n})(((i{n})a & m) | ((i{n})b & ~m)); }}\n\
         static inline vec{n} min{n}(vec{n} a, vec{n} b) {{ return select{n}(b < a, b, a); }}\n\
         static inline vec{n} maximum{n}(vec{n} a, vec{n} b) {{ return select{n}(b == b, max{n}(a, b), b); }}\n\
         static inline vec{n} minimum{n}(vec{n} a, vec{n} b) {{ return select{n}(b == b, min{n}(a, b), b); }}\n\
         {}{}\
         static inline vec{n} fma{n}(vec{n} a, vec{n} b, vec{n} c) {{\n\
         {fused}  vec{n} r; for (int i = 0; i < {n}; ++i) r[i] = __builtin_fmaf(a[i], b[i], c[i]); return r;\n}}\n\
         {scale}",
        lane_by_lane("sqrt", "__builtin_sqrtf"),
        lane_by_lane("floor", "__builtin_floorf"),
    )
}
