//! One point of a schedule space: knob names and their values.

use std::collections::BTreeMap;
use std::fmt;

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
            Value::Tile(sizes) => {
                let words: Vec<String> = sizes.iter().map(usize::to_string).collect();
                f.write_str(&words.join("x"))
            }
            Value::Order(axes) => f.write_str(&axes.join(">")),
            Value::Choice(word) => f.write_str(word),
        }
    }
}

/// A schedule: the sketch it belongs to and a value for each of the sketch's knobs.
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
    /// A hash of the canonical text that is the same on every machine and in every version (FNV-1a, 64 bits).
    pub fn stable_hash(&self) -> u64 {
        fnv1a(self.to_string().as_bytes())
    }
}

/// FNV-1a over bytes, 64 bits: <http://www.isthe.com/chongo/tech/comp/fnv/>.
pub fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// `direct; order=o>oh>ow; tile.o=32x16; ...`, knobs in the order of their names.
impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sketch)?;
        for (name, value) in &self.knobs {
            write!(f, "; {name}={value}")?;
        }
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
