//! Elements in memory, by type. 16-bit elements are `unsigned short`; vectors of them are 32-bit
//! words.

use autotune_ir::DType;

pub(super) fn type_of(dtype: DType) -> &'static str {
    if dtype.is_word() { "float" } else { "unsigned short" }
}

/// Returns the type of a vector of 2, 4 or 8 adjacent elements.
pub(super) fn vector_type(dtype: DType, lanes: usize) -> &'static str {
    match (lanes * dtype.bytes(), dtype.bytes()) {
        (8, 4) => "float2",
        (_, 4) => "float4",
        (4, _) => "unsigned",
        (8, _) => "uint2",
        _ => "uint4",
    }
}

/// Returns the f32 value of an element.
pub(super) fn widened(dtype: DType, element: &str) -> String {
    if dtype.is_word() { element.into() } else { format!("from_{}({element})", dtype.word()) }
}

/// Returns the functions that [`widened`] and [`narrowed`] call, defined by the formulas of these
/// names, and the function that joins two narrow elements.
///
/// The upper 16 bits of an argument to widen are ignored.
pub(super) fn conversions<'a>(head: &str, names: impl Iterator<Item = &'a str>) -> String {
    let function = |name: &str| match name.starts_with("to") {
        true => format!("{head} unsigned {name}(float x) {{ return bits1(f_{name}1(x)); }}\n"),
        false => format!("{head} float {name}(unsigned x) {{ return f_{name}1(of_bits1(x & 0xffffu)); }}\n"),
    };
    let functions: String = names.map(function).collect();
    format!("{functions}{head} unsigned pair(unsigned low, unsigned high) {{ return low | high << 16; }}\n")
}

/// Returns the element that a value is rounded to.
pub(super) fn narrowed(dtype: DType, value: &str) -> String {
    if dtype.is_word() { value.into() } else { format!("to_{}({value})", dtype.word()) }
}

/// Returns the value of one lane of a vector.
pub(super) fn lane(dtype: DType, name: &str, lanes: usize, lane: usize) -> String {
    // Vectors consist of 32-bit words, which hold one or two elements.
    let word = lane * dtype.bytes() / 4;
    let part = if lanes * dtype.bytes() == 4 { String::new() } else { format!(".{}", ["x", "y", "z", "w"][word]) };
    match (dtype.is_word(), lane % 2) {
        (true, _) => format!("{name}{part}"),
        (_, 0) => widened(dtype, &format!("{name}{part}")),
        _ => widened(dtype, &format!("{name}{part} >> 16")),
    }
}
