//! Access to knob values by name and type.

use std::ops::RangeInclusive;

use crate::config::{KnobValue, KnobValues};
use crate::error::LowerError;
use autotune_ir::program::Layout;

/// Source of the data operand in the compute nest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataMode {
    /// The input itself; tiles that touch padding are peeled into separate nests.
    InPlace,
    /// A padded copy of the whole input, made by a separate stage.
    Copy,
    /// A padded copy of the input of one cache tile, made by each thread just before it is used.
    Tile,
    /// A copy of the input of one cache tile in the order in which register tiles read it, made by
    /// each thread just before it is used. The order is reduction steps, then the pixels (rows of a
    /// matrix product) of the register tile. For a kernel of several taps, the panel is the
    /// `im2col` of the cache tile. For a matrix product, it is the packed panel of Goto and van de
    /// Geijn, "Anatomy of high-performance matrix multiplication", 2008.
    Panel,
}

impl DataMode {
    /// True for a copy that keeps the order of the data's dimensions, and may add padding.
    pub(crate) fn copies(self) -> bool {
        matches!(self, DataMode::Copy | DataMode::Tile)
    }
}

/// Typed access to the values of knobs.
pub(crate) struct KnobReader<'a>(pub(crate) &'a dyn KnobValues);

impl<'a> KnobReader<'a> {
    fn get(&self, name: &str) -> Result<&'a KnobValue, LowerError> {
        self.0.value(name).ok_or_else(|| LowerError::knob(name, "is missing"))
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.value(name).is_some()
    }

    pub(crate) fn choice(&self, name: &str) -> Result<&'a str, LowerError> {
        match self.get(name)? {
            KnobValue::Choice(word) => Ok(word),
            other => Err(LowerError::knob(name, format!("'{other}' is not a word"))),
        }
    }

    /// Returns the value of a choice that must be one of `words`.
    pub(crate) fn one_of(&self, name: &str, words: &[&str]) -> Result<&'a str, LowerError> {
        let word = self.choice(name)?;
        let fits = words.contains(&word);
        fits.then_some(word).ok_or_else(|| LowerError::knob(name, format!("'{word}' is not {}", words.join(" or "))))
    }

    pub(crate) fn number(&self, name: &str) -> Result<usize, LowerError> {
        self.number_in(name, 1..=4096)
    }

    pub(crate) fn number_in(&self, name: &str, range: RangeInclusive<usize>) -> Result<usize, LowerError> {
        let (word, [least, most]) = (self.choice(name)?, [range.start(), range.end()]);
        let number = word.parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| LowerError::knob(name, format!("'{word}' is not a number from {least} to {most}")))
    }

    /// Returns the prefetch distance in f32 elements; the knob is in bytes. Returns 0 if there is
    /// no knob.
    pub(crate) fn prefetch(&self) -> Result<usize, LowerError> {
        const NAME: &str = "prefetch";
        if !self.has(NAME) {
            return Ok(0);
        }
        let word = self.choice(NAME)?;
        let bytes = word.parse().ok().filter(|&bytes: &usize| bytes <= 1 << 20 && bytes.is_multiple_of(4));
        let bytes = bytes
            .ok_or_else(|| LowerError::knob(NAME, format!("'{word}' is not a multiple of 4 bytes up to 1 MiB")))?;
        // Prefetch nodes count elements of f32, as loop nests have no byte offsets.
        Ok(bytes / 4)
    }

    /// True if the next steps of a matrix that is read in place are prefetched. False if there is
    /// no knob.
    pub(crate) fn prefetches_next_steps(&self) -> Result<bool, LowerError> {
        const NAME: &str = "prefetch";
        Ok(self.has(NAME) && self.one_of(NAME, &["0", "1"])? == "1")
    }

    pub(crate) fn data_mode(&self) -> Result<DataMode, LowerError> {
        Ok(match self.one_of("data", &["inplace", "copy", "tile", "panel"])? {
            "inplace" => DataMode::InPlace,
            "copy" => DataMode::Copy,
            "tile" => DataMode::Tile,
            _ => DataMode::Panel,
        })
    }

    pub(crate) fn packs_weights(&self) -> Result<bool, LowerError> {
        Ok(self.one_of("weights", &["packed", "inplace"])? == "packed")
    }

    /// True if a tile instruction multiplies; false if there is no knob.
    pub(crate) fn has_tiles(&self) -> Result<bool, LowerError> {
        const NAME: &str = "instruction";
        Ok(self.has(NAME) && self.one_of(NAME, &["vector", "tile"])? == "tile")
    }

    pub(crate) fn layout(&self, name: &str, block: usize) -> Result<Layout, LowerError> {
        if !self.has(name) {
            return Ok(Layout::Plain);
        }
        match self.choice(name)? {
            "plain" => Ok(Layout::Plain),
            "blocked" => Ok(Layout::ChannelBlocked(block)),
            other => Err(LowerError::knob(name, format!("'{other}' is not plain or blocked"))),
        }
    }

    pub(crate) fn tile<const N: usize>(&self, name: &str) -> Result<[usize; N], LowerError> {
        match self.get(name)? {
            // Larger sizes exceed every axis, and products of them could overflow.
            KnobValue::Tile(sizes) if sizes.iter().all(|&s| s > 0 && s <= 1 << 24) => {
                <[usize; N]>::try_from(sizes.as_slice())
                    .map_err(|_| LowerError::knob(name, format!("has {} levels, expected {N}", sizes.len())))
            }
            other => Err(LowerError::knob(name, format!("'{other}' is not a tile"))),
        }
    }

    /// Returns a permutation of `expected`. An empty order has no knob.
    pub(crate) fn order(&self, name: &str, expected: &[&str]) -> Result<Vec<&'a str>, LowerError> {
        if expected.is_empty() && !self.has(name) {
            return Ok(Vec::new());
        }
        let KnobValue::Order(axes) = self.get(name)? else {
            return Err(LowerError::knob(name, "is not an order"));
        };
        let order: Vec<&str> = axes.iter().map(String::as_str).collect();
        // Of equal lengths, an order that contains every axis has none of them twice.
        if order.len() != expected.len() || expected.iter().any(|axis| !order.contains(axis)) {
            return Err(LowerError::knob(name, format!("is not an order of {}", expected.join(", "))));
        }
        Ok(order)
    }
}
