//! Bar charts of ratios.

use crate::chart::{centred_text, grid_line, picture};
use crate::element::MarkupElement;
use crate::mark::{TextAnchor, write_text};
use crate::scale::Scale;
use crate::style::Colour;

/// Approximate width of a character, in pixels.
const CHARACTER: f64 = 6.6;
/// Height of a bar, in pixels.
const BAR: f64 = 13.0;
/// Space between rows, in pixels.
const GAP: f64 = 7.0;
/// Space for the text after a bar, in pixels.
const TEXT: f64 = 56.0;
/// Width of the whole chart, in pixels.
const WIDTH: f64 = 520.0;
/// Space above the rows, in pixels.
const TOP: f64 = 8.0;
/// Height of the legend, in pixels.
const LEGEND: f64 = 20.0;
/// Height of the axis below the rows, in pixels.
const BOTTOM: f64 = 38.0;

/// The bars of one name, one below another.
#[derive(Clone, Debug, PartialEq)]
pub struct BarRow {
    /// Name to the left of the bars.
    pub name: String,
    /// Value of each series; `None` leaves a bar out.
    pub values: Vec<Option<f64>>,
}

/// Horizontal bars of ratios: on a logarithmic axis, they extend from 1 to the ratio.
#[derive(Clone, Debug, PartialEq)]
pub struct Bars {
    /// Title for screen readers.
    pub title: String,
    /// Title of the axis.
    pub axis: String,
    /// Names of the series, for the legend; empty if there is only one.
    pub series: Vec<String>,
    /// Rows from top to bottom.
    pub rows: Vec<BarRow>,
}

impl Bars {
    /// Draws the chart as an `svg` element.
    pub fn draw(&self) -> MarkupElement {
        let values = || self.rows.iter().flat_map(|row| &row.values).flatten().copied();
        let scale = Scale::log(values().chain([1.0]));
        let longest = self.rows.iter().map(|row| row.name.chars().count()).max().unwrap_or_default();
        let left = 12.0 + CHARACTER * longest as f64;
        let x = |value: f64| scale.place(value).map(|place| left + place * (WIDTH - left - TEXT));

        // Bars below 1 extend to the left: names end where the first of them may begin.
        let names = x(values().fold(1.0, f64::min)).unwrap_or(left) - 6.0;

        let top = if self.series.is_empty() { TOP } else { TOP + LEGEND };
        let per_row = self.rows.iter().map(|row| row.values.len()).max().unwrap_or(1) as f64;
        let pitch = BAR * per_row + GAP;
        let bottom = top + pitch * self.rows.len() as f64;

        let mut svg = picture(&self.title, [WIDTH, bottom + BOTTOM]).children(self.legend(left));
        for (value, text) in scale.ticks() {
            let Some(x) = x(value) else { continue };
            svg = svg.child(grid_line(format!("M{x:.1} {top:.1}V{bottom:.1}")));
            svg = svg.child(centred_text(&text, [x, bottom + 14.0], Colour::Quiet));
        }
        for (number, row) in self.rows.iter().enumerate() {
            let y = top + GAP / 2.0 + pitch * number as f64;
            let middle = y + BAR * per_row / 2.0 + 4.0;
            svg = svg.child(write_text(&row.name, [names, middle], TextAnchor::End, Colour::Ink));
            svg = svg.children(bars(row, y, &x));
        }
        if let Some(one) = x(1.0) {
            let line = MarkupElement::new("path").set("d", format!("M{one:.1} {top:.1}V{bottom:.1}"));
            svg = svg.child(line.set("class", "ink").set("stroke", "currentColor"));
        }
        svg.child(centred_text(&self.axis, [(left + WIDTH - TEXT) / 2.0, bottom + 31.0], Colour::Ink))
    }

    /// Draws the names of the series, each in its colour.
    fn legend(&self, left: f64) -> Vec<MarkupElement> {
        let mut x = left;
        let mut entry = |(number, name): (usize, &String)| {
            let text = write_text(name, [x, 16.0], TextAnchor::Start, Colour::Series(number));
            x += CHARACTER * (name.chars().count() + 3) as f64;
            text.set("font-weight", "bold")
        };
        self.series.iter().enumerate().map(&mut entry).collect()
    }
}

/// Draws the bars of a row from `y` down, each followed by its value as text.
fn bars(row: &BarRow, y: f64, x: &dyn Fn(f64) -> Option<f64>) -> Vec<MarkupElement> {
    let bar = |(number, value): (usize, &Option<f64>)| {
        let (value, y) = ((*value)?, y + BAR * number as f64);
        let (from, to) = (x(1.0)?, x(value)?);
        let rect = MarkupElement::new("rect").set("x", format!("{:.1}", from.min(to))).set("y", format!("{y:.1}"));
        let rect = rect.set("width", format!("{:.1}", (to - from).abs())).set("height", BAR - 1.0);
        let rect = rect.set("class", Colour::Series(number).class()).set("fill", "currentColor");
        let text = write_text(&times(value), [from.max(to) + 4.0, y + BAR - 3.0], TextAnchor::Start, Colour::Ink);
        Some([rect, text])
    };
    row.values.iter().enumerate().filter_map(bar).flatten().collect()
}

/// Formats a ratio: `1.04x`, `12.3x`, `1.0e9x`.
fn times(ratio: f64) -> String {
    match ratio {
        0.01..10.0 => format!("{ratio:.2}x"),
        10.0..1e5 => format!("{ratio:.1}x"),
        _ => format!("{ratio:.1e}x"),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_value_has_a_bar_and_bars_begin_at_one() {
        let row = |name: &str, values: &[Option<f64>]| BarRow { name: name.into(), values: values.to_vec() };
        let rows = vec![row("faster", &[Some(2.0), Some(4.0)]), row("slower", &[Some(0.5), None])];
        let bars = Bars { title: "T".into(), axis: "times".into(), series: vec!["a".into(), "b".into()], rows };
        let written = bars.draw().to_string();
        let read = roxmltree::Document::parse(&written).unwrap();
        let number = |node: roxmltree::Node<'_, '_>, name| node.attribute(name).unwrap().parse::<f64>().unwrap();
        let spans: Vec<[f64; 2]> = read
            .descendants()
            .filter(|node| node.has_tag_name("rect") && node.has_attribute("x"))
            .map(|node| [number(node, "x"), number(node, "x") + number(node, "width")])
            .collect();
        assert_eq!(spans.len(), 3);
        let near = |a: f64, b: f64| assert!((a - b).abs() < 0.25, "{spans:?}");
        near(spans[0][0], spans[1][0]);
        near(spans[2][1], spans[0][0]);
        near(spans[0][1] - spans[0][0], spans[2][1] - spans[2][0]);
        near(2.0 * (spans[0][1] - spans[0][0]), spans[1][1] - spans[1][0]);
        for text in ["2.00x", "4.00x", "0.50x", "faster", "times"] {
            assert!(written.contains(&format!(">{text}<")), "{text} is not in {written}");
        }
    }
}
