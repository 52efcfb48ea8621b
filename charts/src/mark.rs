//! Marks between the axes of a chart.

use std::fmt::Write;

use crate::element::MarkupElement;
use crate::names::{NamedPoint, place_names};
use crate::style::Colour;

/// A mark, in the values of the axes. Points that an axis cannot show are left out.
#[derive(Clone, Debug, PartialEq)]
pub enum Mark {
    /// Straight lines from point to point.
    Line {
        /// `x` and `y` of each point.
        points: Vec<[f64; 2]>,
        /// Colour of the line.
        colour: Colour,
        /// True for a dashed line, for reference values.
        dashed: bool,
        /// Text above the beginning of the line; empty for none.
        name: String,
    },
    /// A step line: each value holds until the next point.
    Steps {
        /// `x` and `y` of each point, with rising `x`.
        points: Vec<[f64; 2]>,
        /// Colour of the line.
        colour: Colour,
    },
    /// The area between two step lines.
    Band {
        /// `x`, lower `y` and upper `y` of each point, with rising `x`.
        points: Vec<[f64; 3]>,
        /// Colour of the area, drawn translucent.
        colour: Colour,
    },
    /// Many points without names.
    Dots {
        /// `x` and `y` of each point.
        points: Vec<[f64; 2]>,
        /// Colour of the points, drawn translucent so that overlaps are darker.
        colour: Colour,
    },
    /// A few points with names next to them.
    Named {
        /// Points with their names.
        points: Vec<NamedPoint>,
        /// Colour of the points.
        colour: Colour,
    },
    /// A text at a position.
    Label {
        /// Position, as `x` and `y`.
        at: [f64; 2],
        /// Content of the text.
        text: String,
        /// Colour of the text.
        colour: Colour,
        /// End of the text that is at the position.
        anchor: TextAnchor,
        /// Offset downwards, in pixels.
        lower: f64,
    },
}

/// End of a text that is at its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextAnchor {
    /// The text begins at the position.
    Start,
    /// The text ends at the position.
    End,
}

impl TextAnchor {
    fn word(self) -> &'static str {
        match self {
            TextAnchor::Start => "start",
            TextAnchor::End => "end",
        }
    }
}

/// Function from values to pixels within the frame; `None` for values that the axes cannot show.
pub(crate) type Place<'a> = &'a dyn Fn([f64; 2]) -> Option<[f64; 2]>;

impl Mark {
    /// Draws the mark within a frame of `size` pixels.
    pub(crate) fn draw(&self, place: Place<'_>, size: [f64; 2]) -> Vec<MarkupElement> {
        let pixels = |points: &[[f64; 2]]| points.iter().filter_map(|&point| place(point)).collect::<Vec<_>>();

        match self {
            Mark::Line { points, colour, dashed, name } => {
                let pixels = pixels(points);
                let line = stroke(straight(&pixels), *colour);
                let line = if *dashed { line.set("stroke-dasharray", "4 3") } else { line };
                let name = (!name.is_empty()).then(|| along(&pixels, name, *colour)).flatten();
                std::iter::once(line.set("stroke-width", 1.2)).chain(name).collect()
            }
            Mark::Steps { points, colour } => {
                let line = stroke(steps(&pixels(points)), *colour);
                vec![line.set("stroke-width", 2).set("stroke-linejoin", "round")]
            }
            Mark::Band { points, colour } => vec![band(points, place, *colour)],
            Mark::Dots { points, colour } => {
                // A line of length zero with a round cap is a dot.
                let path = pixels(points).into_iter().map(|[x, y]| format!("M{x:.1} {y:.1}h0")).collect();
                let dots = stroke(path, *colour).set("stroke-linecap", "round");
                vec![dots.set("stroke-width", 5.5).set("stroke-opacity", 0.7)]
            }
            Mark::Named { points, colour } => place_names(points, place, size, *colour),
            Mark::Label { at, text, colour, anchor, lower } => {
                let label = |[x, y]: [f64; 2]| write_text(text, [x, y + lower], *anchor, *colour);
                place(*at).map(label).into_iter().collect()
            }
        }
    }
}

/// Returns a text element in a colour at a position in pixels.
pub(crate) fn write_text(text: &str, [x, y]: [f64; 2], anchor: TextAnchor, colour: Colour) -> MarkupElement {
    let element = MarkupElement::new("text").set("x", format!("{x:.1}")).set("y", format!("{y:.1}"));
    element.set("text-anchor", anchor.word()).set("class", colour.class()).text(text)
}

/// Returns a text that follows the beginning of a line.
fn along(pixels: &[[f64; 2]], text: &str, colour: Colour) -> Option<MarkupElement> {
    let ([x0, y0], [x1, y1]) = (*pixels.first()?, *pixels.get(1)?);
    let angle = (y1 - y0).atan2(x1 - x0);
    let turn = format!("translate({x0:.1} {y0:.1}) rotate({:.1})", angle.to_degrees());
    Some(write_text(text, [16.0, -4.0], TextAnchor::Start, colour).set("transform", turn))
}

fn stroke(path: String, colour: Colour) -> MarkupElement {
    let element = MarkupElement::new("path").set("d", path).set("class", colour.class());
    element.set("fill", "none").set("stroke", "currentColor")
}

fn straight(points: &[[f64; 2]]) -> String {
    let mut path = String::new();
    for [x, y] in points {
        // Writing to a string cannot fail.
        let _ = write!(path, "{}{x:.1} {y:.1}", if path.is_empty() { 'M' } else { 'L' });
    }
    path
}

fn steps(points: &[[f64; 2]]) -> String {
    let mut path = String::new();
    for [x, y] in points {
        let _ = if path.is_empty() { write!(path, "M{x:.1} {y:.1}") } else { write!(path, "H{x:.1}V{y:.1}") };
    }
    path
}

/// Draws the area of a band: along its lower line and back along its upper one.
fn band(points: &[[f64; 3]], place: Place<'_>, colour: Colour) -> MarkupElement {
    let both = |&[x, low, high]: &[f64; 3]| Some((place([x, low])?, place([x, high])?));
    let (lows, highs): (Vec<_>, Vec<_>) = points.iter().filter_map(both).unzip();
    let mut path = steps(&lows);
    for (number, [x, y]) in highs.iter().enumerate().rev() {
        let is_last = number + 1 == highs.len();
        let _ = if is_last { write!(path, "V{y:.1}") } else { write!(path, "V{y:.1}H{x:.1}") };
    }
    if !path.is_empty() {
        path.push('Z');
    }
    let element = MarkupElement::new("path").set("d", path).set("class", colour.class());
    element.set("fill", "currentColor").set("fill-opacity", 0.2)
}
