//! Ranges of shapes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use autotune_graph::onnx::DeclaredInput;
use autotune_graph::printable;
use thiserror::Error;

/// Extents that an axis of an input may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Extents {
    /// All extents, also those that are not known yet.
    Any,
    /// Extents between two, both included.
    Within(usize, usize),
    /// One of several extents.
    OneOf(Vec<usize>),
}

/// Shapes that an input may have, outermost axis first: `1x3x224x224`, `1x8..512`,
/// `1x{16,32,64}` or `1x?`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShapeRange(pub Vec<Extents>);

/// Reason that a text is no range of shapes.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("'{}' is no shape: expected extents such as 1x3x224x224, 1x8..512, 1x{{16,32}} or 1x?", printable(.0))]
pub struct ShapeRangeError(String);

/// Reason that a shape is not in a range.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum OutsideError {
    /// The shape has another number of axes.
    #[error("{found} axes, expected {expected}")]
    Rank {
        /// Number of axes of the shape.
        found: usize,
        /// Number of axes of the range.
        expected: usize,
    },
    /// An extent is not permitted.
    #[error("extent {found} of axis {axis} is not {permitted}")]
    Extent {
        /// Number of the axis, from the outermost.
        axis: usize,
        /// Extent of the shape.
        found: usize,
        /// Extents that the range permits.
        permitted: Extents,
    },
}

impl Extents {
    /// True if an extent is permitted.
    pub fn contains(&self, extent: usize) -> bool {
        match self {
            Self::Any => true,
            Self::Within(least, most) => (*least..=*most).contains(&extent),
            Self::OneOf(extents) => extents.contains(&extent),
        }
    }

    /// Returns the extent, if only one is permitted.
    pub fn fixed(&self) -> Option<usize> {
        match self {
            Self::Within(least, most) if least == most => Some(*least),
            Self::OneOf(extents) => extents.first().copied().filter(|_| extents.len() == 1),
            _ => None,
        }
    }

    /// Returns the first permitted extents in increasing order, at most `most`; `None` if all are
    /// permitted.
    pub fn first(&self, most: usize) -> Option<Vec<usize>> {
        match self {
            Self::Any => None,
            Self::Within(least, greatest) => Some((*least..=*greatest).take(most).collect()),
            Self::OneOf(extents) => {
                let ordered: BTreeSet<usize> = extents.iter().copied().collect();
                Some(ordered.into_iter().take(most).collect())
            }
        }
    }

    /// Returns the permitted extent at a fraction between 0 and 1 of the range, both included;
    /// `None` if there is no largest extent.
    pub fn at(&self, fraction: f64) -> Option<usize> {
        let of = |count: usize| ((fraction * count as f64) as usize).min(count.saturating_sub(1));
        match self {
            Self::Any => None,
            Self::Within(least, most) => Some(least + of(most - least + 1)),
            Self::OneOf(extents) => extents.get(of(extents.len())).copied(),
        }
    }
}

impl ShapeRange {
    /// Returns the shapes that a file permits: any extent where it leaves one open.
    pub fn declared(input: &DeclaredInput) -> Self {
        let of = |extent: &Option<usize>| extent.map_or(Extents::Any, |extent| Extents::Within(extent, extent));
        Self(input.extents.iter().map(of).collect())
    }

    /// Returns the range of one shape.
    pub fn of_shape(shape: &[usize]) -> Self {
        Self(shape.iter().map(|&extent| Extents::Within(extent, extent)).collect())
    }

    /// Returns the names of inputs and the shapes that they may have: the given ones, else those
    /// that the file permits.
    pub fn of_inputs(inputs: &[DeclaredInput], given: &BTreeMap<String, Self>) -> Vec<(String, Self)> {
        let of = |input: &DeclaredInput| given.get(&input.name).cloned().unwrap_or_else(|| Self::declared(input));
        inputs.iter().map(|input| (input.name.clone(), of(input))).collect()
    }

    /// Checks that a shape is in the range.
    pub fn check(&self, shape: &[usize]) -> Result<(), OutsideError> {
        let (found, expected) = (shape.len(), self.0.len());
        if found != expected {
            return Err(OutsideError::Rank { found, expected });
        }
        for (axis, (extents, &found)) in self.0.iter().zip(shape).enumerate() {
            if !extents.contains(found) {
                return Err(OutsideError::Extent { axis, found, permitted: extents.clone() });
            }
        }
        Ok(())
    }

    /// Returns the shape, if there is only one.
    pub fn fixed(&self) -> Option<Vec<usize>> {
        self.0.iter().map(Extents::fixed).collect()
    }
}

impl FromStr for Extents {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let number = |text: &str| text.parse::<usize>().map_err(|_| ());
        if text == "?" {
            return Ok(Self::Any);
        }
        if let Some(listed) = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
            return Ok(Self::OneOf(listed.split(',').map(number).collect::<Result<_, ()>>()?));
        }
        let (least, most) = match text.split_once("..") {
            Some((least, most)) => (number(least)?, number(most)?),
            None => (number(text)?, number(text)?),
        };
        if least > most { Err(()) } else { Ok(Self::Within(least, most)) }
    }
}

impl FromStr for ShapeRange {
    type Err = ShapeRangeError;

    fn from_str(text: &str) -> Result<Self, ShapeRangeError> {
        let extents = text.split('x').map(Extents::from_str).collect::<Result<_, ()>>();
        extents.map(Self).map_err(|()| ShapeRangeError(text.into()))
    }
}

impl fmt::Display for Extents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => write!(f, "?"),
            Self::Within(least, most) if least == most => write!(f, "{least}"),
            Self::Within(least, most) => write!(f, "{least}..{most}"),
            Self::OneOf(extents) => {
                let extents: Vec<String> = extents.iter().map(usize::to_string).collect();
                write!(f, "{{{}}}", extents.join(","))
            }
        }
    }
}

impl fmt::Display for ShapeRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let extents: Vec<String> = self.0.iter().map(Extents::to_string).collect();
        write!(f, "{}", extents.join("x"))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_and_written() {
        for text in ["1x3x224x224", "1x8..512", "{1,4}x?x64", "7"] {
            assert_eq!(text.parse::<ShapeRange>().unwrap().to_string(), text);
        }
        assert_eq!("1x5..5".parse::<ShapeRange>().unwrap().to_string(), "1x5");
        for text in
            ["", "1x", "x1", "1x9..8", "1x{}", "1x{2,}", "-1", "1x2..", "1x??", "a", "1x{2", "1x18446744073709551616"]
        {
            let error = text.parse::<ShapeRange>().unwrap_err().to_string();
            assert!(error.contains("expected extents"), "{error}");
        }
    }

    #[test]
    fn shapes_outside_are_refused_with_the_axis() {
        let range: ShapeRange = "1x8..512x{3,4}x?".parse().unwrap();
        assert_eq!(range.check(&[1, 8, 4, 99]), Ok(()));
        assert_eq!(range.check(&[1, 512, 3, 0]), Ok(()));
        let reason = |shape: &[usize]| range.check(shape).unwrap_err().to_string();
        assert_eq!(reason(&[1, 8, 4]), "3 axes, expected 4");
        assert_eq!(reason(&[1, 7, 4, 1]), "extent 7 of axis 1 is not 8..512");
        assert_eq!(reason(&[1, 8, 5, 1]), "extent 5 of axis 2 is not {3,4}");
    }

    #[test]
    fn first_extents_are_in_order() {
        let first = |text: &str, most| text.parse::<Extents>().unwrap().first(most);
        assert_eq!(first("{9,3,9,5}", 9), Some(vec![3, 5, 9]));
        assert_eq!(first("{9,3,5}", 2), Some(vec![3, 5]));
        assert_eq!(first("2..18446744073709551615", 3), Some(vec![2, 3, 4]));
        assert_eq!(first("?", 3), None);
    }

    #[test]
    fn fractions_reach_both_ends() {
        let extents: Extents = "8..512".parse().unwrap();
        assert_eq!((extents.at(0.0), extents.at(1.0), extents.at(0.5)), (Some(8), Some(512), Some(260)));
        let extents: Extents = "{3,5,9}".parse().unwrap();
        assert_eq!((extents.at(0.0), extents.at(0.34), extents.at(0.99)), (Some(3), Some(5), Some(9)));
        assert_eq!("?".parse::<Extents>().unwrap().at(0.5), None);
    }
}
