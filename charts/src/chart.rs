//! Charts with two axes.

use crate::element::MarkupElement;
use crate::mark::{Mark, TextAnchor, write_text};
use crate::scale::Scale;
use crate::style::Colour;

/// Pixels left of the frame, for the numbers of the vertical axis.
const LEFT: f64 = 48.0;
/// Pixels above the frame, for the title of the vertical axis.
const TOP: f64 = 24.0;
/// Pixels right of the frame, for half of the horizontal axis's last number.
const RIGHT: f64 = 14.0;
/// Pixels below the frame, for numbers and title of the horizontal axis.
const BOTTOM: f64 = 38.0;

/// Axis with a title and a scale.
#[derive(Clone, Debug, PartialEq)]
pub struct ChartAxis {
    title: String,
    scale: Scale,
}

impl ChartAxis {
    /// Creates an axis. The title should name the unit.
    pub fn new(title: impl Into<String>, scale: Scale) -> Self {
        Self { title: title.into(), scale }
    }
}

/// Chart with two axes and marks between them.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    title: String,
    size: [f64; 2],
    axes: [ChartAxis; 2],
    marks: Vec<Mark>,
    legend: Vec<(String, Colour)>,
}

impl Chart {
    /// Creates an empty chart of a size in pixels, width first. The title is for screen readers.
    pub fn new(title: impl Into<String>, size: [f64; 2], axes: [ChartAxis; 2]) -> Self {
        Self { title: title.into(), size, axes, marks: Vec::new(), legend: Vec::new() }
    }

    /// Adds a mark on top of earlier ones.
    pub fn mark(mut self, mark: Mark) -> Self {
        self.marks.push(mark);
        self
    }

    /// Adds a name in a colour to the legend in the upper right corner, below earlier ones.
    pub fn legend(mut self, name: impl Into<String>, colour: Colour) -> Self {
        self.legend.push((name.into(), colour));
        self
    }

    /// Draws the chart as an `svg` element.
    pub fn draw(&self) -> MarkupElement {
        let [width, height] = self.size;
        let frame = [width - LEFT - RIGHT, height - TOP - BOTTOM];
        let [x, y] = [&self.axes[0].scale, &self.axes[1].scale];
        let place =
            |[x_value, y_value]: [f64; 2]| Some([x.place(x_value)? * frame[0], (1.0 - y.place(y_value)?) * frame[1]]);

        // The inner `svg` element clips marks at the frame.
        let inner =
            MarkupElement::new("svg").set("x", LEFT).set("y", TOP).set("width", frame[0]).set("height", frame[1]);
        let marks = self.marks.iter().flat_map(|mark| mark.draw(&place, frame));
        let names = self.legend.iter().enumerate().map(|(number, (name, colour))| {
            let at = [LEFT + frame[0] - 6.0, TOP + 15.0 * (number as f64 + 1.0)];
            write_text(name, at, TextAnchor::End, *colour).set("font-weight", "bold")
        });
        picture(&self.title, self.size).children(self.grid(frame)).child(inner.children(marks)).children(names)
    }

    /// Draws grid lines at the ticks, their numbers, and the titles of the axes.
    fn grid(&self, [width, height]: [f64; 2]) -> Vec<MarkupElement> {
        let (bottom, right) = (TOP + height, LEFT + width);
        let [x_axis, y_axis] = &self.axes;
        let mut elements = Vec::new();

        for (value, text) in x_axis.scale.ticks() {
            let Some(place) = x_axis.scale.place(value) else { continue };
            let x = LEFT + place * width;
            elements.push(grid_line(format!("M{x:.1} {TOP}V{bottom:.1}")));
            elements.push(centred_text(&text, [x, bottom + 14.0], Colour::Quiet));
        }
        for (value, text) in y_axis.scale.ticks() {
            let Some(place) = y_axis.scale.place(value) else { continue };
            let y = TOP + (1.0 - place) * height;
            elements.push(grid_line(format!("M{LEFT} {y:.1}H{right:.1}")));
            elements.push(write_text(&text, [LEFT - 5.0, y + 4.0], TextAnchor::End, Colour::Quiet));
        }
        elements.push(write_text(&y_axis.title, [2.0, 12.0], TextAnchor::Start, Colour::Ink));
        elements.push(centred_text(&x_axis.title, [LEFT + width / 2.0, bottom + 31.0], Colour::Ink));
        elements
    }
}

/// Returns an empty `svg` element with a background. It is as wide as the page allows; `width` and
/// `height` set its aspect ratio and its pixel coordinates.
pub(crate) fn picture(title: &str, [width, height]: [f64; 2]) -> MarkupElement {
    let svg = MarkupElement::new("svg").set("class", "chart").set("viewBox", format!("0 0 {width} {height}"));
    let ground = MarkupElement::new("rect").set("width", "100%").set("height", "100%");
    svg.set("role", "img").set("aria-label", title).child(ground.set("class", "ground").set("fill", "currentColor"))
}

pub(crate) fn grid_line(path: String) -> MarkupElement {
    MarkupElement::new("path").set("d", path).set("class", "grid").set("stroke", "currentColor")
}

pub(crate) fn centred_text(text: &str, [x, y]: [f64; 2], colour: Colour) -> MarkupElement {
    let element = MarkupElement::new("text").set("x", format!("{x:.1}")).set("y", format!("{y:.1}"));
    element.set("text-anchor", "middle").set("class", colour.class()).text(text)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Draws the chart, and checks that the result is valid XML without invalid coordinates.
    fn read(chart: &Chart) -> String {
        let written = chart.draw().to_string();
        assert!(roxmltree::Document::parse(&written).is_ok(), "{written}");
        assert!(!written.contains("NaN") && !written.contains("inf"), "{written}");
        written
    }

    #[test]
    fn marks_stand_where_their_values_are() {
        let axes =
            [ChartAxis::new("x, s", Scale::linear([0.0, 10.0])), ChartAxis::new("y, ms", Scale::log([1.0, 100.0]))];
        let chart = Chart::new("T", [LEFT + RIGHT + 100.0, TOP + BOTTOM + 100.0], axes);
        let points = vec![[0.0, 100.0], [5.0, 10.0], [10.0, 1.0]];
        let drawn = read(&chart.mark(Mark::Steps { points, colour: Colour::Series(1) }).legend("a <b>", Colour::Ink));
        assert!(drawn.contains("d=\"M3.7 3.7H50.0V50.0H96.3V96.3\""), "{drawn}");
        assert!(drawn.contains(">x, s<") && drawn.contains(">a &lt;b&gt;<"), "{drawn}");
    }

    #[test]
    fn values_outside_an_axis_are_left_out() {
        let odd = [f64::NAN, f64::INFINITY, 0.0, -1.0, 5e-324, f64::MAX, 1.0];
        let points: Vec<[f64; 2]> = odd.iter().flat_map(|&x| odd.map(|y| [x, y])).collect();
        let band = points.iter().map(|&[x, y]| [x, y, y]).collect();
        let named =
            crate::NamedPoint { at: [f64::NAN, 1.0], name: "n".into(), more: String::new(), from: Some([0.0, 0.0]) };
        for scale in [Scale::log, Scale::linear] as [fn(Vec<f64>) -> Scale; 2] {
            let axis = || ChartAxis::new("a", scale(odd.to_vec()));
            let colour = Colour::Quiet;
            let chart = Chart::new("T", [300.0, 200.0], [axis(), axis()])
                .mark(Mark::Line { points: points.clone(), colour, dashed: true, name: "n".into() })
                .mark(Mark::Steps { points: points.clone(), colour })
                .mark(Mark::Dots { points: points.clone(), colour })
                .mark(Mark::Band { points: Vec::clone(&band), colour })
                .mark(Mark::Named { points: vec![named.clone()], colour });
            read(&chart);
        }
        let empty = Chart::new("T", [300.0, 200.0], [(); 2].map(|()| ChartAxis::new("a", Scale::log([]))));
        read(&empty.mark(Mark::Steps { points: Vec::new(), colour: Colour::Ink }));
    }
}
