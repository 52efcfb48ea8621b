//! Formulas in C: a function for each formula of more than one primitive, for any number of lanes.
//!
//! ```text
//! tanh(x)  →  static inline vec8 f_tanh8(vec8 x0) {
//!               const vec8 s2 = of_bits8(bits8(x0) & bits8(splat8(of_bits1(0x7fffffffu))));
//!               ...
//! ```
//!
//! A source contains only the functions that its program uses, and always `max<lanes>`.

use std::collections::BTreeMap;
use std::fmt::Write;

use autotune_ir::DType;
use autotune_ir::formula::{Formula, FormulaStep, Primitive};
use autotune_ir::program::{Buffer, Expr, Node, Program, Scope, preorder};

/// Returns an operation applied to C expressions of `lanes` lanes each; `None` if the expression is
/// not an operation.
pub(crate) fn applied(expr: &Expr, operands: &[String], lanes: usize) -> Option<String> {
    let formula = Formula::of(expr)?;
    let function = || format!("f_{}{lanes}({})", word(expr), operands.join(", "));
    Some(applied_to(formula, operands, lanes).unwrap_or_else(function))
}

/// Returns a formula of a single primitive applied to C expressions; `None` for other formulas.
pub(crate) fn applied_to(formula: &Formula, operands: &[String], lanes: usize) -> Option<String> {
    Some(applied_primitive(formula.only()?, operands, lanes))
}

/// Returns the formulas of a program that need functions, by function name; `None` if the program
/// has no operations except sums, products and maxima.
pub(crate) fn used(program: &Program) -> Option<BTreeMap<&'static str, &'static Formula>> {
    let (mut functions, mut is_plain) = (BTreeMap::new(), true);
    for node in program.stages.iter().flat_map(|stage| preorder(&stage.body)) {
        let Node::Store(store) = node else { continue };
        store.value.for_each(&mut |expr| {
            let Some(formula) = Formula::of(expr) else { return };
            // Sums and products are C operators, and every source defines max.
            is_plain &= matches!(formula.only(), Some(Primitive::Add | Primitive::Mul | Primitive::Max));
            // A formula of one step is written in place, without a function.
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

/// Returns the formulas that convert between f32 and the other element types of a program, by
/// function name.
pub(crate) fn conversions(program: &Program) -> BTreeMap<&'static str, &'static Formula> {
    let mut functions = BTreeMap::new();
    // Integers are converted in registers, too, where their bits are held.
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

/// Returns the name of the function that saturates 32-bit integers to an integer type.
fn saturation_word(dtype: DType) -> Option<&'static str> {
    match dtype {
        DType::I8 => Some("saturated_i8"),
        DType::U8 => Some("saturated_u8"),
        DType::I16 => Some("saturated_i16"),
        _ => None,
    }
}

/// Returns the names of the functions that narrow f32 to elements of a type, and widen its elements
/// to f32.
///
/// A name is empty if there is no such function. Integers are not widened by a function: values are
/// their bits.
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

/// True if a program contains gathers.
pub(crate) fn gathers(program: &Program) -> bool {
    let mut nodes = program.stages.iter().flat_map(|stage| preorder(&stage.body));
    let is_gather = |expr: &Expr| matches!(expr, Expr::Gather(_));
    nodes.any(|node| matches!(node, Node::Store(store) if store.value.any(&is_gather)))
}

/// Returns the C function equivalent to [`autotune_ir::program::gathered_index`], with index type
/// `index`.
pub(crate) fn gathered(head: &str, index: &str) -> String {
    format!(
        "{head} {index} gathered(float x, {index} extent) {{\n\
         \x20 const {index} at = x >= 1.0f ? (x < 1073741824.0f ? ({index})x : extent) : 0;\n\
         \x20 return at < extent ? at : extent - 1;\n}}\n"
    )
}

/// Returns the name of an expression's operation.
fn word(expr: &Expr) -> &'static str {
    match expr {
        Expr::Unary(op, _) => op.word(),
        Expr::Binary(op, _) => op.word(),
        Expr::Select(..) => "select",
        Expr::Const(_) | Expr::Load(_) | Expr::Gather(_) | Expr::Guarded { .. } => "",
    }
}

/// Returns a C function that evaluates a formula on values of type `number` with `lanes` lanes.
///
/// `head` is the text before the return type, such as `static inline`.
pub(crate) fn function(head: &str, number: &str, lanes: usize, name: &str, formula: &Formula) -> String {
    let (mut parameters, mut lines) = (Vec::new(), String::new());
    // Text by which later steps refer to each step.
    let mut names: Vec<String> = Vec::new();
    for (position, step) in formula.steps().iter().enumerate() {
        names.push(match step {
            FormulaStep::Operand(operand) => {
                parameters.push(format!("{number} x{operand}"));
                format!("x{operand}")
            }
            FormulaStep::Constant(bits) => constant(*bits, lanes),
            FormulaStep::Apply(primitive, of) => {
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

/// Returns a constant in every lane: decimal for normal numbers and zero, which Rust prints
/// exactly, else by its bits.
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

/// Returns the scalar primitives except `max1`.
///
/// `sqrt`, `floor` and `fma` are the language's names of these functions.
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

/// Returns the vector primitives, by GNU vector extensions.
///
/// These have no fused multiply-add, so the machine's builtin is used where the target has it, else
/// `__builtin_fmaf` per lane.
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
