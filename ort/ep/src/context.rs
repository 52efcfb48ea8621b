//! Contents of EPContext nodes: a part of a model with everything that its plan needs.
//!
//! They have no machine code. Kernels are made from schedules, whose loop nests are proven correct,
//! so that contents of another machine or of a stranger cannot run wrong code.
//!
//! | bytes | contents |
//! |---|---|
//! | 8 | `AUTOTCTX` |
//! | 8 | version of the format |
//! | 8 | size of everything |
//! | 8 | checksum of what follows |
//! | 4 x 8 | sizes of the following |
//! | | description, as JSON |
//! | | model in ONNX |
//! | | weights |
//! | | snapshot of schedules |
//!
//! Numbers are little-endian.

use std::borrow::Cow;
use std::collections::BTreeMap;

use autotune_network::{PinnedNetwork, Precision, SessionPrecision, UnknownPrecision};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use xxhash_rust::xxh3::xxh3_64;

/// First bytes of contents.
const MAGIC: &[u8; 8] = b"AUTOTCTX";

/// Version of the format.
pub(crate) const FORMAT: u64 = 1;

/// Number of bytes before those that the checksum is of.
const HEADER: usize = 32;

/// Number of sections: description, model, weights, schedules.
const SECTIONS: usize = 4;

/// Reason that contents cannot be used.
#[derive(Debug, Error)]
pub(crate) enum ContextError {
    #[error("its contents are not of autotune")]
    Foreign,
    #[error("its contents have format {found}, this version of autotune reads {FORMAT}: make it again from the model")]
    Format { found: u64 },
    #[error("its contents are truncated: {found} of {wanted} bytes: make it again from the model")]
    Truncated { found: usize, wanted: u64 },
    #[error("its contents are damaged: make it again from the model")]
    Damaged,
    #[error("its contents cannot be read by this version of autotune: {0}: make it again from the model")]
    Description(#[from] serde_json::Error),
    #[error("its contents cannot be read by this version of autotune: {0}")]
    Precision(#[from] UnknownPrecision),
}

/// A part of a model and its plan.
#[derive(Debug, PartialEq)]
pub(crate) struct PartContext<'a> {
    pub(crate) description: PartDescription,
    pub(crate) model: Cow<'a, [u8]>,
    pub(crate) weights: Cow<'a, [u8]>,
    pub(crate) schedules: Cow<'a, [u8]>,
}

/// Interface and plan of a part.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PartDescription {
    /// Names in the model, in the order of the node.
    pub(crate) inputs: Vec<String>,
    pub(crate) outputs: Vec<String>,
    precision: String,
    /// Largest error if the precision is the fastest one.
    max_error: Option<f64>,
    pub(crate) pinned: Vec<PinnedNetwork>,
}

impl PartDescription {
    pub(crate) fn new(
        [inputs, outputs]: [Vec<String>; 2],
        precision: &SessionPrecision,
        pinned: Vec<PinnedNetwork>,
    ) -> Self {
        let (precision, max_error) = match precision {
            SessionPrecision::In(precision) => (precision.word(), None),
            SessionPrecision::Fastest { max_error, .. } => ("auto", Some(*max_error)),
        };
        Self { inputs, outputs, precision: precision.into(), max_error, pinned }
    }

    /// Returns the precision with which the part was compiled.
    pub(crate) fn precision(&self) -> Result<SessionPrecision, ContextError> {
        match self.max_error {
            Some(max_error) => Ok(SessionPrecision::Fastest { max_error, examples: BTreeMap::new() }),
            None => Ok(SessionPrecision::In(Precision::of_cpus(&self.precision)?)),
        }
    }
}

impl<'a> PartContext<'a> {
    pub(crate) fn to_bytes(&self) -> Result<Vec<u8>, ContextError> {
        let description = serde_json::to_vec(&self.description)?;
        let sections = [&*description, &*self.model, &*self.weights, &*self.schedules];
        let total = HEADER + 8 * SECTIONS + sections.iter().map(|section| section.len()).sum::<usize>();
        let mut bytes = Vec::with_capacity(total);
        bytes.extend(MAGIC);
        bytes.extend(FORMAT.to_le_bytes());
        bytes.extend((total as u64).to_le_bytes());
        bytes.extend([0; 8]);
        sections.iter().for_each(|section| bytes.extend((section.len() as u64).to_le_bytes()));
        sections.iter().for_each(|section| bytes.extend_from_slice(section));

        let checksum = xxh3_64(&bytes[HEADER..]);
        bytes[HEADER - 8..HEADER].copy_from_slice(&checksum.to_le_bytes());
        Ok(bytes)
    }

    /// Parses contents, without a copy of the weights. Bytes behind them are ignored, since ONNX
    /// Runtime may add a zero.
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self, ContextError> {
        let number = |place: usize| {
            let number = bytes.get(8 * place..).and_then(|rest| rest.first_chunk());
            number.map(|number| u64::from_le_bytes(*number))
        };
        let truncated = |wanted| ContextError::Truncated { found: bytes.len(), wanted };
        let least = (HEADER + 8 * SECTIONS) as u64;
        if !bytes.starts_with(MAGIC) {
            return Err(ContextError::Foreign);
        }
        match number(1).ok_or_else(|| truncated(least))? {
            FORMAT => {}
            found => return Err(ContextError::Format { found }),
        }
        let total = number(2).ok_or_else(|| truncated(least))?;
        let whole = usize::try_from(total).ok().and_then(|total| bytes.get(..total)).ok_or_else(|| truncated(total))?;

        let content = whole.get(HEADER..).ok_or(ContextError::Damaged)?;
        if number(3) != Some(xxh3_64(content)) {
            return Err(ContextError::Damaged);
        }
        let mut rest = content.get(8 * SECTIONS..).ok_or(ContextError::Damaged)?;
        let mut section = |place: usize| {
            let size = number(HEADER / 8 + place).and_then(|size| usize::try_from(size).ok());
            let (section, others) = size.and_then(|size| rest.split_at_checked(size)).ok_or(ContextError::Damaged)?;
            rest = others;
            Ok::<_, ContextError>(section)
        };
        let [description, model, weights, schedules] = [section(0)?, section(1)?, section(2)?, section(3)?];
        let description = serde_json::from_slice(description)?;
        let [model, weights, schedules] = [model, weights, schedules].map(Cow::Borrowed);
        Ok(Self { description, model, weights, schedules })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn context() -> PartContext<'static> {
        let names = [vec!["x".to_string(), "y".to_string()], vec!["z".to_string()]];
        let precision = SessionPrecision::Fastest { max_error: 0.02, examples: BTreeMap::new() };
        let description = PartDescription::new(names, &precision, Vec::new());
        PartContext {
            description,
            model: [1; 9][..].into(),
            weights: [2; 100][..].into(),
            schedules: [3; 5][..].into(),
        }
    }

    #[test]
    fn contents_are_read_as_they_were_written() {
        let mut bytes = context().to_bytes().unwrap();
        assert_eq!(PartContext::parse(&bytes).unwrap(), context());
        // Weights may be most of the memory.
        assert!(matches!(PartContext::parse(&bytes).unwrap().weights, Cow::Borrowed(_)));
        let precision = context().description.precision().unwrap();
        assert!(matches!(precision, SessionPrecision::Fastest { max_error: 0.02, .. }));
        bytes.push(0);
        assert_eq!(PartContext::parse(&bytes).unwrap(), context());
    }

    #[test]
    fn damaged_contents_are_told_from_others() {
        let bytes = context().to_bytes().unwrap();
        for count in 0..bytes.len() {
            match PartContext::parse(&bytes[..count]).unwrap_err() {
                ContextError::Foreign => assert!(count < MAGIC.len()),
                error => {
                    assert!(matches!(error, ContextError::Truncated { found, .. } if found == count), "{error}");
                    assert!(error.to_string().ends_with(": make it again from the model"), "{error}");
                }
            }
        }
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1 << bit;
                let error = PartContext::parse(&damaged).unwrap_err();
                assert!(!error.to_string().contains('\n'), "{error}");
            }
        }
    }

    #[test]
    fn contents_of_another_version_are_refused() {
        let mut bytes = context().to_bytes().unwrap();
        bytes[8] = 9;
        let error = PartContext::parse(&bytes).unwrap_err().to_string();
        assert_eq!(error, "its contents have format 9, this version of autotune reads 1: make it again from the model");
    }

    /// Sizes of sections that contradict the contents are damage, with any checksum.
    #[test]
    fn forged_sizes_are_damage() {
        for (place, size) in [(0, u64::MAX), (1, 1 << 40), (3, 6)] {
            let mut bytes = context().to_bytes().unwrap();
            let at = HEADER + 8 * place;
            bytes[at..at + 8].copy_from_slice(&size.to_le_bytes());
            let checksum = xxh3_64(&bytes[HEADER..]);
            bytes[HEADER - 8..HEADER].copy_from_slice(&checksum.to_le_bytes());
            assert!(matches!(PartContext::parse(&bytes), Err(ContextError::Damaged)), "{place}");
        }
    }
}
