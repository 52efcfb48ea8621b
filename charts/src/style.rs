//! Colours and strokes.

use crate::element::Element;

/// What an element is drawn in. Series are told apart by the colour-blind, too: the colours are
/// Okabe and Ito's, lightened on dark ground.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    /// One of the things that are compared, by its number; from the sixth on they begin again.
    Series(usize),
    /// What the eye should find first, if there is nothing to compare: text.
    Ink,
    /// What is there to compare with.
    Quiet,
}

impl Colour {
    /// The class that [`STYLE`] gives the colour, for `currentColor`.
    pub(crate) fn class(self) -> &'static str {
        const SERIES: [&str; 6] = ["s0", "s1", "s2", "s3", "s4", "s5"];
        match self {
            Colour::Series(number) => SERIES[number % SERIES.len()],
            Colour::Ink => "ink",
            Colour::Quiet => "quiet",
        }
    }
}

/// The style sheet of charts: dark where the reader prefers it and never in print. It has no
/// character that HTML or XML would escape.
pub const STYLE: &str = "\
.chart{font-family:system-ui,sans-serif;font-size:12px}
.chart text{fill:currentColor;stroke:none}
.ink{color:#1a1a1a}.quiet{color:#6b6b6b}.grid{color:#e2e2e2}.ground{color:#fff}
.s0{color:#0072b2}.s1{color:#c24e00}.s2{color:#00805c}.s3{color:#b0558c}.s4{color:#946800}.s5{color:#1a1a1a}
@media screen and (prefers-color-scheme:dark){
.ink{color:#ececec}.quiet{color:#a0a0a0}.grid{color:#3a3a3a}.ground{color:#161616}
.s0{color:#56b4e9}.s1{color:#ff8a4a}.s2{color:#35c79c}.s3{color:#e79cc8}.s4{color:#e6b422}.s5{color:#ececec}
}
";

/// A drawn chart as a file of its own.
pub fn standalone(chart: Element) -> String {
    let svg = chart.set("xmlns", "http://www.w3.org/2000/svg");
    svg.child(Element::new("style").text(STYLE)).to_string() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_style_sheet_is_the_same_in_html_and_xml() {
        assert_eq!(Element::new("style").text(STYLE).to_string(), format!("<style>{STYLE}</style>"));
        for colour in (0..6).map(Colour::Series).chain([Colour::Ink, Colour::Quiet]) {
            let rule = format!(".{}{{color:", colour.class());
            assert_eq!(STYLE.matches(&rule).count(), 2, "light and dark: {rule}");
        }
    }
}
