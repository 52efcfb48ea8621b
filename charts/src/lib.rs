//! Charts as SVG, drawn by few lines and without dependencies: for the HTML page that
//! `autotune report` writes and for the pictures of the examples.
//!
//! | file | what it owns |
//! |---|---|
//! | `element` | [`Element`]: HTML and XML as data, every text escaped |
//! | `scale` | [`Scale`]: from values to places on an axis; the numbers beside an axis |
//! | `style` | [`STYLE`], the colours, light and dark; [`Colour`] |
//! | `mark` | [`Mark`]: lines, steps, bands, dots, names |
//! | `names` | where names stand beside their dots without hiding one another |
//! | `chart` | [`Chart`]: axes and the marks between them |
//! | `bars` | [`Bars`]: one or several bars for each of some names |
//!
//! An [`Element`] in a page takes its colours from the page, which has [`STYLE`] in its head;
//! [`standalone`] makes a file of one.
//!
//! ```
//! use autotune_charts::{Axis, Chart, Colour, Mark, Scale};
//!
//! let points = vec![[1.0, 8.0], [10.0, 4.0], [90.0, 3.0]];
//! let axes = [
//!     Axis::new("trials", Scale::log(points.iter().map(|p| p[0]))),
//!     Axis::new("best run time so far, ms", Scale::log(points.iter().map(|p| p[1]))),
//! ];
//! let steps = Mark::Steps { points, colour: Colour::Series(0) };
//! let svg = autotune_charts::standalone(Chart::new("A search", [480.0, 300.0], axes).mark(steps).draw());
//! assert!(svg.starts_with("<svg"));
//! ```

mod bars;
mod chart;
mod element;
mod mark;
mod names;
mod scale;
mod style;

pub use bars::{Bars, Row};
pub use chart::{Axis, Chart};
pub use element::Element;
pub use mark::{Anchor, Mark};
pub use names::Named;
pub use scale::Scale;
pub use style::{Colour, STYLE, standalone};
