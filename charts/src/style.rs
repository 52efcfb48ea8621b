//! Colours and the style sheet.

use crate::element::MarkupElement;

/// Colour of an element. Series have the palette of Okabe and Ito, which colour-blind readers can
/// tell apart, lightened on a dark background.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    /// One of several compared series, by its number; colours repeat after six.
    Series(usize),
    /// Foreground colour, for text and for a single series.
    Ink,
    /// Subdued colour, for reference values.
    Quiet,
}

impl Colour {
    /// Returns the CSS class that sets `currentColor` in [`STYLE`].
    pub(crate) fn class(self) -> &'static str {
        const SERIES: [&str; 6] = ["s0", "s1", "s2", "s3", "s4", "s5"];
        match self {
            Colour::Series(number) => SERIES[number % SERIES.len()],
            Colour::Ink => "ink",
            Colour::Quiet => "quiet",
        }
    }
}

/// Style sheet of charts, dark if the reader prefers that, but never in print. It contains no
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

/// Returns a drawn chart as the text of an SVG file.
pub fn standalone(chart: MarkupElement) -> String {
    let svg = chart.set("xmlns", "http://www.w3.org/2000/svg");
    svg.child(MarkupElement::new("style").text(STYLE)).to_string() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_style_sheet_is_the_same_in_html_and_xml() {
        assert_eq!(MarkupElement::new("style").text(STYLE).to_string(), format!("<style>{STYLE}</style>"));
        for colour in (0..6).map(Colour::Series).chain([Colour::Ink, Colour::Quiet]) {
            let rule = format!(".{}{{color:", colour.class());
            assert_eq!(STYLE.matches(&rule).count(), 2, "light and dark: {rule}");
        }
    }
}
