//! Elements in memory, by type: 16-bit ones are `unsigned short`, and vectors of them whole words.

use autotune_ir::DType;

pub(super) fn type_of(dtype: DType) -> &'static str {
    if dtype.is_word() { "float" } else { "unsigned short" }
}

/// Type of 2, 4 or 8 neighbouring elements.
pub(super) fn vector_type(dtype: DType, lanes: usize) -> &'static str {
    match (lanes * dtype.bytes(), dtype.bytes()) {
        (8, 4) => "float2",
        (_, 4) => "float4",
        (4, _) => "unsigned",
        (8, _) => "uint2",
        _ => "uint4",
    }
}

/// The value of an element.
pub(super) fn widened(dtype: DType, element: &str) -> String {
    if dtype.is_word() { element.into() } else { format!("from_{}({element})", dtype.word()) }
}

/// The functions of [`widened`], [`narrowed`] and [`words`], by formulas of these names. The bits
/// of an element may have others above them.
pub(super) fn conversions<'a>(head: &str, names: impl Iterator<Item = &'a str>) -> String {
    let function = |name: &str| match name.starts_with("to") {
        true => format!("{head} unsigned {name}(float x) {{ return bits1(f_{name}1(x)); }}\n"),
        false => format!("{head} float {name}(unsigned x) {{ return f_{name}1(of_bits1(x & 0xffffu)); }}\n"),
    };
    let functions: String = names.map(function).collect();
    format!("{functions}{head} unsigned pair(unsigned low, unsigned high) {{ return low | high << 16; }}\n")
}

/// The element that holds a value.
pub(super) fn narrowed(dtype: DType, value: &str) -> String {
    if dtype.is_word() { value.into() } else { format!("to_{}({value})", dtype.word()) }
}

/// The value of one lane of a vector.
pub(super) fn lane(dtype: DType, name: &str, lanes: usize, lane: usize) -> String {
    let word = lane * dtype.bytes() / 4;
    let part = if lanes * dtype.bytes() == 4 { String::new() } else { format!(".{}", ["x", "y", "z", "w"][word]) };
    match (dtype.is_word(), lane % 2) {
        (true, _) => format!("{name}{part}"),
        (_, 0) => widened(dtype, &format!("{name}{part}")),
        _ => widened(dtype, &format!("{name}{part} >> 16")),
    }
}

/// The words of a vector of values: for 16-bit elements two values in each.
pub(super) fn words(dtype: DType, values: &[String]) -> Vec<String> {
    if dtype.is_word() {
        return values.to_vec();
    }
    let pair = |pair: &[String]| {
        let halves: Vec<String> = pair.iter().map(|value| narrowed(dtype, value)).collect();
        format!("pair({})", halves.join(", "))
    };
    values.chunks(2).map(pair).collect()
}
