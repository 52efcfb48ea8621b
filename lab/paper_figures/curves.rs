//! Charts of quality against trials.

use autotune_charts::{Chart, ChartAxis, Colour, Mark, Scale, standalone};

/// Quality of a method after each trial: medians over the seeds, with quartiles.
pub(crate) struct Curve {
    pub(crate) name: String,
    /// Number of trials and median quality.
    pub(crate) points: Vec<[f64; 2]>,
    /// Lower and upper quartile at each point.
    pub(crate) spread: Vec<[f64; 2]>,
}

/// Lower bound of the quality axis.
const LEAST: f64 = 0.5;

// Space above the best quality for each curve's name, as a share of the drawn range.
const NAME: f64 = 0.06;

/// Draws curves as steps in one chart.
pub(crate) fn draw(curves: &[Curve]) -> String {
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let least = points().map(|point| point[1]).fold(1.0, f64::min).max(LEAST);
    let names = 1.0 + NAME * curves.len() as f64 * (1.0 - least);
    let axes = [
        ChartAxis::new("trials", Scale::linear(points().map(|point| point[0]))),
        ChartAxis::new("throughput over the best recorded", Scale::linear([least, names])),
    ];

    let mut chart = Chart::new("Quality against trials", [720.0, 420.0], axes);
    for (number, curve) in curves.iter().enumerate() {
        let colour = Colour::Series(number);
        let band = curve.points.iter().zip(&curve.spread).map(|(point, [low, high])| [point[0], *low, *high]);
        chart = chart.mark(Mark::Band { points: band.collect(), colour });
        chart = chart.mark(Mark::Steps { points: curve.points.clone(), colour }).legend(&curve.name, colour);
    }
    standalone(chart.draw())
}
