//! C identifiers.

/// Converts a text to a C identifier, the prefix of a library's function names. Invalid characters
/// become `_`. A text that does not start with a letter is prefixed with `network_`, since
/// identifiers that start with `_` are reserved.
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
