//! Charts as SVG: curves that rise or fall in steps, and bars in groups.

use std::fmt::Write;

/// Told apart by the colour-blind, too (Okabe and Ito's palette).
const COLOURS: [&str; 8] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#000000", "#56b4e9", "#8a7a00"];

/// Size of a chart of curves, and the margins that hold the labels.
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 20.0;
const BOTTOM: f64 = 50.0;

/// Intervals of an axis, about.
const INTERVALS: f64 = 6.0;

/// Pixels of a bar, between groups of bars, and of the tallest bar.
const BAR: f64 = 18.0;
const GAP: f64 = 16.0;
const TALLEST: f64 = 220.0;
/// Pixels of a character, about.
const CHARACTER: f64 = 7.5;

/// Curves in one chart, each level from one of its points to the next.
#[derive(Clone, Debug, Default)]
pub struct Curves {
    /// What the axes show.
    pub titles: [String; 2],
    /// The lowest value that is drawn; that of the curves if it is not said.
    pub least: Option<f64>,
    /// The legend at the bottom, where curves rise.
    pub legend_below: bool,
    /// The curves.
    pub curves: Vec<Curve>,
}

/// A curve and its name.
#[derive(Clone, Debug, Default)]
pub struct Curve {
    /// Its name in the legend.
    pub name: String,
    /// Where it steps, and to which value.
    pub points: Vec<[f64; 2]>,
    /// Where each point's value lies with other seeds, lower and upper; empty if that is not known.
    pub spread: Vec<[f64; 2]>,
    /// Up to where it goes on.
    pub end: f64,
}

/// Bars in groups, one series a colour.
#[derive(Clone, Debug, Default)]
pub struct Bars {
    /// What is shown.
    pub title: String,
    /// The names of the groups.
    pub groups: Vec<String>,
    /// The name of each series and its value in each group; none is drawn where it is no number.
    pub series: Vec<(String, Vec<f64>)>,
    /// A value to compare with.
    pub mark: Option<f64>,
}

impl Curves {
    /// The chart as a document.
    pub fn to_svg(&self) -> String {
        let axes = Axes::of(self);
        let mut text = document(WIDTH, HEIGHT);
        axes.draw(&mut text, &self.titles);

        // Writing to a string cannot fail.
        for (i, curve) in self.curves.iter().enumerate() {
            let colour = COLOURS[i % COLOURS.len()];
            if !curve.spread.is_empty() {
                let band = axes.band(curve);
                let _ = writeln!(text, "<path d=\"{band}\" fill=\"{colour}\" fill-opacity=\"0.15\"/>");
            }
            let path = axes.steps(curve);
            let _ = writeln!(text, "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>");

            let rows = self.curves.len() as f64;
            let top = if self.legend_below { HEIGHT - BOTTOM - 10.0 - 18.0 * rows } else { TOP };
            let (x, y) = (WIDTH - RIGHT - 10.0, top + 18.0 * (i as f64 + 1.0));
            let name = escape(&curve.name);
            let _ = writeln!(text, "<text x=\"{x}\" y=\"{y}\" text-anchor=\"end\" fill=\"{colour}\">{name}</text>");
        }
        text + "</svg>\n"
    }
}

/// From values to pixels.
struct Axes {
    x: [f64; 2],
    y: [f64; 2],
}

impl Axes {
    fn of(chart: &Curves) -> Self {
        let range = |values: &mut dyn Iterator<Item = f64>| {
            values.fold([f64::INFINITY, f64::NEG_INFINITY], |[low, high], value| [low.min(value), high.max(value)])
        };
        let values = chart.curves.iter().flat_map(|curve| curve.points.iter().map(|point| point[1]));
        let [low, high] =
            range(&mut values.chain(chart.curves.iter().flat_map(|curve| curve.spread.as_flattened()).copied()));
        let room = (0.05 * (high - chart.least.unwrap_or(low))).max(0.01 * high.abs());
        let [_, end] = range(&mut chart.curves.iter().map(|curve| curve.end));
        Self { x: [0.0, end.max(f64::MIN_POSITIVE)], y: [chart.least.unwrap_or(low - room), high + room] }
    }

    fn x(&self, value: f64) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * (value - self.x[0]) / (self.x[1] - self.x[0])
    }

    fn y(&self, value: f64) -> f64 {
        let [low, high] = self.y;
        HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (value.max(low) - low) / (high - low)
    }

    fn steps(&self, curve: &Curve) -> String {
        let mut path = String::new();
        for point in &curve.points {
            let (x, y) = (self.x(point[0]), self.y(point[1]));
            let _ = if path.is_empty() { write!(path, "M{x:.1} {y:.1}") } else { write!(path, "H{x:.1}V{y:.1}") };
        }
        path + &format!("H{:.1}", self.x(curve.end))
    }

    /// The outline of a curve's spread: the upper edge, and the lower one back.
    fn band(&self, curve: &Curve) -> String {
        let edge = |side: usize| {
            let values = curve.points.iter().zip(&curve.spread);
            let points = values.map(|(point, spread)| [point[0], spread[side]]).collect();
            Curve { points, end: curve.end, ..Curve::default() }
        };
        let mut lower: Vec<(f64, f64)> = Vec::new();
        for point in edge(0).points {
            lower.extend(lower.last().map(|&(_, y)| (self.x(point[0]), y)));
            lower.push((self.x(point[0]), self.y(point[1])));
        }
        let mut path = self.steps(&edge(1));
        if let Some((_, y)) = lower.last() {
            let _ = write!(path, "V{y:.1}");
        }
        for (x, y) in lower.iter().rev() {
            let _ = write!(path, "L{x:.1} {y:.1}");
        }
        path + "Z"
    }

    /// Grid, numbers and titles.
    fn draw(&self, text: &mut String, titles: &[String; 2]) {
        let (bottom, right, middle) = (HEIGHT - BOTTOM, WIDTH - RIGHT, (TOP + HEIGHT - BOTTOM) / 2.0);
        for value in ticks(self.x) {
            let x = self.x(value);
            let _ = writeln!(text, "<path d=\"M{x:.1} {TOP}V{bottom}\" stroke=\"#ddd\"/>");
            let _ = writeln!(text, "<text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{value}</text>", bottom + 18.0);
        }
        for value in ticks(self.y) {
            let y = self.y(value);
            let _ = writeln!(text, "<path d=\"M{LEFT} {y:.1}H{right}\" stroke=\"#ddd\"/>");
            let (x, y) = (LEFT - 8.0, y + 4.0);
            let _ = writeln!(text, "<text x=\"{x}\" y=\"{y:.1}\" text-anchor=\"end\">{value}</text>");
        }

        let [of_x, of_y] = titles.each_ref().map(|title| escape(title));
        let x = (LEFT + right) / 2.0;
        let _ = writeln!(text, "<text x=\"{x}\" y=\"{}\" text-anchor=\"middle\">{of_x}</text>", HEIGHT - 10.0);
        let turned = format!("x=\"18\" y=\"{middle}\" text-anchor=\"middle\" transform=\"rotate(-90 18 {middle})\"");
        let _ = writeln!(text, "<text {turned}>{of_y}</text>");
    }
}

impl Bars {
    /// The chart as a document.
    pub fn to_svg(&self) -> String {
        let widest = self.groups.iter().map(|name| name.chars().count()).max().unwrap_or(0) as f64 * CHARACTER;
        let group = (self.series.len() as f64 * BAR + GAP).max(widest + GAP);
        let head = TOP + 18.0 * self.series.len() as f64;
        let bottom = head + TALLEST;
        let right = LEFT + (group * self.groups.len() as f64).max(CHARACTER * self.title.chars().count() as f64);
        let values = self.series.iter().flat_map(|(_, values)| values).chain(&self.mark).copied();
        let most = values.filter(|value| value.is_finite()).fold(f64::MIN_POSITIVE, f64::max);
        let y = |value: f64| bottom - TALLEST * value / most;
        let mut text = document(right + RIGHT, bottom + 45.0);

        // Writing to a string cannot fail.
        for value in ticks([0.0, most]) {
            let _ = writeln!(text, "<path d=\"M{LEFT} {:.1}H{right}\" stroke=\"#ddd\"/>", y(value));
            let (x, y) = (LEFT - 8.0, y(value) + 4.0);
            let _ = writeln!(text, "<text x=\"{x}\" y=\"{y:.1}\" text-anchor=\"end\">{value}</text>");
        }
        if let Some(mark) = self.mark {
            let _ = writeln!(text, "<path d=\"M{LEFT} {:.1}H{right}\" stroke=\"#000\"/>", y(mark));
        }
        for (i, (name, values)) in self.series.iter().enumerate() {
            let colour = COLOURS[i % COLOURS.len()];
            for (number, &value) in values.iter().enumerate().filter(|(_, value)| value.is_finite()) {
                let inset = (group - BAR * self.series.len() as f64) / 2.0;
                let x = LEFT + group * number as f64 + inset + BAR * i as f64;
                let (top, height) = (y(value), bottom - y(value));
                let shape = format!("x=\"{x:.1}\" y=\"{top:.1}\" width=\"{BAR}\" height=\"{height:.1}\"");
                let _ = writeln!(text, "<rect {shape} fill=\"{colour}\"/>");
            }
            let (x, y, name) = (right, TOP + 18.0 * i as f64, escape(name));
            let _ = writeln!(text, "<text x=\"{x}\" y=\"{y}\" text-anchor=\"end\" fill=\"{colour}\">{name}</text>");
        }

        for (number, name) in self.groups.iter().enumerate() {
            let (x, name) = (LEFT + group * (number as f64 + 0.5), escape(name));
            let _ = writeln!(text, "<text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{name}</text>", bottom + 18.0);
        }
        let (x, title) = ((LEFT + right) / 2.0, escape(&self.title));
        let _ = writeln!(text, "<text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{title}</text>", bottom + 38.0);
        text + "</svg>\n"
    }
}

fn document(width: f64, height: f64) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" \
         font-size=\"13\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    )
}

/// Round numbers of a range.
fn ticks([low, high]: [f64; 2]) -> impl Iterator<Item = f64> {
    let raw = (high - low) / INTERVALS;
    let power = 10f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|f| f * power).into_iter().find(|&step| step >= raw).unwrap_or(raw);
    let first = (low / step).ceil();
    // Rounded to print short.
    let tick = move |i: i32| ((first + f64::from(i)) * step * 1e9).round() / 1e9;
    (0..20).map(tick).take_while(move |&tick| tick <= high)
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_step_and_names_are_text() {
        let curve = Curve {
            name: "a<b".into(),
            points: vec![[1.0, 0.5], [3.0, 1.0]],
            spread: vec![[0.25, 0.75], [1.0, 1.0]],
            end: 4.0,
        };
        let text = Curves { curves: vec![curve], least: Some(0.0), ..Curves::default() }.to_svg();
        let steps = text.lines().find(|line| line.contains("stroke-width")).unwrap();
        assert_eq!(steps.matches('H').count(), 2, "{steps}");
        assert_eq!(steps.matches('V').count(), 1, "{steps}");
        assert!(text.contains("a&lt;b") && !text.contains("NaN") && !text.contains("inf"), "{text}");
    }

    #[test]
    fn the_tallest_bar_is_the_greatest_value() {
        let series = vec![("x".to_string(), vec![1.0, f64::NAN]), ("y".to_string(), vec![2.0, 4.0])];
        let bars = Bars { groups: vec!["a".into(), "b".into()], series, mark: Some(1.0), ..Bars::default() };
        let text = bars.to_svg();
        let heights = text.lines().filter_map(|line| line.strip_prefix("<rect x=")?.split("height=\"").nth(1));
        let heights: Vec<&str> = heights.filter_map(|rest| rest.split('"').next()).collect();
        assert_eq!(heights, ["55.0", "110.0", "220.0"]);
    }
}
