//! Text form of a schedule: knob names and their values.

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use serde::{Deserialize, Serialize};

/// Value of one knob.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
pub enum KnobValue {
    /// Tile sizes of one axis in elements, outermost level first.
    Tile(Vec<usize>),
    /// Names of loop axes, outermost first.
    Order(Vec<String>),
    /// One word of a closed set.
    Choice(String),
}

impl fmt::Display for KnobValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KnobValue::Tile(sizes) => write_joined(f, sizes, "x"),
            KnobValue::Order(axes) => write_joined(f, axes, ">"),
            KnobValue::Choice(word) => f.write_str(word),
        }
    }
}

fn write_joined<T: fmt::Display>(f: &mut fmt::Formatter<'_>, items: &[T], separator: &str) -> fmt::Result {
    for (i, item) in items.iter().enumerate() {
        write!(f, "{}{item}", if i > 0 { separator } else { "" })?;
    }
    Ok(())
}

/// Access to the values of a sketch's knobs, in a [`Config`] or in a
/// [`KnobIndices`](crate::point::KnobIndices) of a space.
pub trait KnobValues {
    /// Returns the name of the sketch.
    fn sketch(&self) -> &str;

    /// Returns the value of a knob by its name; `None` if there is no such knob.
    fn value(&self, knob: &str) -> Option<&KnobValue>;
}

/// Schedule as stored in databases and logs and written by users: the name of a sketch, and a value
/// for each of its knobs.
///
/// It is self-describing, so that it stays readable when the space that proposed it changes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Config {
    /// Name of the sketch.
    pub sketch: String,
    /// Values by the names of their knobs.
    pub knobs: BTreeMap<String, KnobValue>,
}

impl Config {
    /// Returns a hash of the canonical text (FNV-1a, 64 bits), the same on every machine and in
    /// every version.
    pub fn stable_hash(&self) -> u64 {
        stable_hash(&self.sketch, self.knobs())
    }

    pub(crate) fn knobs(&self) -> impl Iterator<Item = (&str, &KnobValue)> {
        self.knobs.iter().map(|(name, value)| (name.as_str(), value))
    }
}

impl KnobValues for Config {
    fn sketch(&self) -> &str {
        &self.sketch
    }

    fn value(&self, knob: &str) -> Option<&KnobValue> {
        self.knobs.get(knob)
    }
}

/// Writes `direct; order=o>oh>ow; tile.o=32x16; ...`, with knobs sorted by name.
impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_text(f, &self.sketch, self.knobs())
    }
}

/// Writes the canonical text; `knobs` must be sorted by name.
fn write_text<'a>(
    out: &mut impl Write,
    sketch: &str,
    mut knobs: impl Iterator<Item = (&'a str, &'a KnobValue)>,
) -> fmt::Result {
    out.write_str(sketch)?;
    knobs.try_for_each(|(name, value)| write!(out, "; {name}={value}"))
}

/// Returns [`Config::stable_hash`]; `knobs` must be sorted by name.
pub(crate) fn stable_hash<'a>(sketch: &str, knobs: impl Iterator<Item = (&'a str, &'a KnobValue)>) -> u64 {
    let mut hash = Fnv1a::default();
    // Writing into a hash cannot fail.
    let _ = write_text(&mut hash, sketch, knobs);
    hash.0
}

/// Hashes bytes by FNV-1a, 64 bits: <http://www.isthe.com/chongo/tech/comp/fnv/>.
///
/// It is used only where hashes must stay the same from version to version: of configs (they select
/// the held-out schedules of models), of bases and columns of models, of locked tasks, and of
/// database files of earlier versions. All other hashes are XXH3.
pub fn fnv1a(bytes: &[u8]) -> u64 {
    let mut hash = Fnv1a::default();
    hash.take_in(bytes);
    hash.0
}

/// Hashes formatted text like [`fnv1a`], without allocating it.
pub fn fnv1a_of(text: fmt::Arguments<'_>) -> u64 {
    let mut hash = Fnv1a::default();
    // Writing into a hash cannot fail.
    let _ = hash.write_fmt(text);
    hash.0
}

/// FNV-1a hash of the bytes written so far.
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
            ("tile.o".to_string(), KnobValue::Tile(vec![64, 32])),
            ("order".to_string(), KnobValue::Order(vec!["o".into(), "oh".into()])),
            ("data".to_string(), KnobValue::Choice("inplace".into())),
        ];
        let config = Config { sketch: "direct".into(), knobs: knobs.into_iter().collect() };
        let json = serde_json::to_string(&config).unwrap();
        assert_eq!(json, r#"{"sketch":"direct","knobs":{"data":"inplace","order":["o","oh"],"tile.o":[64,32]}}"#);
        assert_eq!(serde_json::from_str::<Config>(&json).unwrap(), config);
        assert_eq!(config.to_string(), "direct; data=inplace; order=o>oh; tile.o=64x32");
        assert_eq!(config.stable_hash(), fnv1a(b"direct; data=inplace; order=o>oh; tile.o=64x32"));
    }
}
