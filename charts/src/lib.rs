//! Charts as SVG, drawn by few lines and without dependencies: for the HTML page that
//! `autotune report` writes and for the figures of the lab.
//!
//! | file | contents |
//! |---|---|
//! | `element` | [`MarkupElement`]: HTML and XML as data, with every text escaped |
//! | `scale` | [`Scale`]: positions of values on an axis, and ticks |
//! | `style` | [`STYLE`]: colours for light and dark pages; [`Colour`] |
//! | `mark` | [`Mark`]: lines, steps, bands, dots, names |
//! | `names` | placement of names next to dots without overlap |
//! | `chart` | [`Chart`]: axes and the marks between them |
//! | `bars` | [`Bars`]: rows of one or several horizontal bars |
//!
//! An [`MarkupElement`] within a page takes its colours from [`STYLE`], which the page must have in
//! its head; [`standalone`] makes a file of its own of a chart.
//!
//! ```
//! use autotune_charts::{ChartAxis, Chart, Colour, Mark, Scale};
//!
//! let points = vec![[1.0, 8.0], [10.0, 4.0], [90.0, 3.0]];
//! let axes = [
//!     ChartAxis::new("trials", Scale::log(points.iter().map(|p| p[0]))),
//!     ChartAxis::new("best run time so far, ms", Scale::log(points.iter().map(|p| p[1]))),
//! ];
//! let steps = Mark::Steps { points, colour: Colour::Series(0) };
//! let chart = Chart::new("A search", [480.0, 300.0], axes).mark(steps);
//! let svg = autotune_charts::standalone(chart.draw());
//! assert!(svg.starts_with("<svg"));
//! ```

mod bars;
mod chart;
mod element;
mod mark;
mod names;
mod scale;
mod style;

pub use bars::{BarRow, Bars};
pub use chart::{Chart, ChartAxis};
pub use element::MarkupElement;
pub use mark::{Mark, TextAnchor};
pub use names::NamedPoint;
pub use scale::Scale;
pub use style::{Colour, STYLE, standalone};
