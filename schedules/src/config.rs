//! A schedule as text: knob names and their values.

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use serde::{Deserialize, Serialize};

/// The value of one knob.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// Tile sizes of one axis, outermost level first; each is a number of elements of the axis.
    Tile(Vec<usize>),
    /// Loop axes, outermost first.
    Order(Vec<String>),
    /// One of a closed set of words.
    Choice(String),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Tile(sizes) => write_joined(f, sizes, "x"),
            Value::Order(axes) => write_joined(f, axes, ">"),
            Value::Choice(word) => f.write_str(word),
        }
    }
}

fn write_joined<T: fmt::Display>(f: &mut fmt::Formatter<'_>, items: &[T], separator: &str) -> fmt::Result {
    for (i, item) in items.iter().enumerate() {
        write!(f, "{}{item}", if i > 0 { separator } else { "" })?;
    }
    Ok(())
}

/// The values of a sketch's knobs: those of a [`Config`], or of a [`Point`](crate::point::Point) of
/// a space.
pub trait KnobValues {
    /// Name of the sketch.
    fn sketch(&self) -> &str;

    /// The value of the knob of a name, if it has one.
    fn value(&self, knob: &str) -> Option<&Value>;
}

/// A schedule as databases, logs and users have it: the sketch it belongs to and a value for each
/// of the sketch's knobs.
///
/// Self-describing, so that it outlives changes of the space that proposed it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Config {
    /// Name of the sketch.
    pub sketch: String,
    /// Knob name to value.
    pub knobs: BTreeMap<String, Value>,
}

impl Config {
    /// A hash of the canonical text that is the same on every machine and in every version (FNV-1a,
    /// 64 bits).
    pub fn stable_hash(&self) -> u64 {
        stable_hash(&self.sketch, self.knobs())
    }

    pub(crate) fn knobs(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.knobs.iter().map(|(name, value)| (name.as_str(), value))
    }
}

impl KnobValues for Config {
    fn sketch(&self) -> &str {
        &self.sketch
    }

    fn value(&self, knob: &str) -> Option<&Value> {
        self.knobs.get(knob)
    }
}

/// `direct; order=o>oh>ow; tile.o=32x16; ...`, knobs in the order of their names.
impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_text(f, &self.sketch, self.knobs())
    }
}

/// The canonical text of knobs that are in the order of their names.
fn write_text<'a>(
    out: &mut impl Write,
    sketch: &str,
    mut knobs: impl Iterator<Item = (&'a str, &'a Value)>,
) -> fmt::Result {
    out.write_str(sketch)?;
    knobs.try_for_each(|(name, value)| write!(out, "; {name}={value}"))
}

/// [`Config::stable_hash`] of knobs that are in the order of their names.
pub(crate) fn stable_hash<'a>(sketch: &str, knobs: impl Iterator<Item = (&'a str, &'a Value)>) -> u64 {
    let mut hash = Fnv1a::default();
    // A hash takes whatever is written.
    let _ = write_text(&mut hash, sketch, knobs);
    hash.0
}

/// FNV-1a over bytes, 64 bits: <http://www.isthe.com/chongo/tech/comp/fnv/>. Only for hashes that
/// are kept from version to version: of configs, which decide on what models are tested, of models'
/// bases and columns, of held tasks, and of databases' files of earlier versions. All others are by
/// XXH3.
pub fn fnv1a(bytes: &[u8]) -> u64 {
    let mut hash = Fnv1a::default();
    hash.take_in(bytes);
    hash.0
}

/// The same of a text, which is not put together.
pub fn fnv1a_of(text: fmt::Arguments<'_>) -> u64 {
    let mut hash = Fnv1a::default();
    // A hash takes whatever is written.
    let _ = hash.write_fmt(text);
    hash.0
}

/// The hash of what was written so far.
struct Fnv1a(u64);

impl Default for Fnv1a {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv1a {
    fn take_in(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    }
}

impl Write for Fnv1a {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.take_in(text.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_and_hash_are_stable() {
        let knobs = [
            ("tile.o".to_string(), Value::Tile(vec![64, 32])),
            ("order".to_string(), Value::Order(vec!["o".into(), "oh".into()])),
            ("data".to_string(), Value::Choice("inplace".into())),
        ];
        let config = Config { sketch: "direct".into(), knobs: knobs.into_iter().collect() };
        let json = serde_json::to_string(&config).unwrap();
        assert_eq!(json, r#"{"sketch":"direct","knobs":{"data":"inplace","order":["o","oh"],"tile.o":[64,32]}}"#);
        assert_eq!(serde_json::from_str::<Config>(&json).unwrap(), config);
        assert_eq!(config.to_string(), "direct; data=inplace; order=o>oh; tile.o=64x32");
        assert_eq!(config.stable_hash(), fnv1a(b"direct; data=inplace; order=o>oh; tile.o=64x32"));
    }
}
