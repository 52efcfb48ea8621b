//! Names of C.

/// What the names of a library's functions begin with: a text as an identifier. What may not be in
/// one becomes `_`, and what does not begin with a letter is behind `network_`, as identifiers that
/// begin with `_` are not a program's own.
///
/// ```
/// # use autotune_network::identifier;
/// assert_eq!(identifier("resnet18"), "resnet18");
/// assert_eq!(identifier("1-weird name"), "network_1_weird_name");
/// assert_eq!(identifier(""), "network_");
/// ```
pub fn identifier(text: &str) -> String {
    let allowed = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let name: String = text.chars().map(allowed).collect();
    match name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        true => name,
        false => format!("network_{name}"),
    }
}
