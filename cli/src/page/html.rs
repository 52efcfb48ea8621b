//! HTML elements that several sections use.

use std::fmt::Display;

use autotune_charts::Element;

/// Returns a section with a heading and an explanation.
pub(crate) fn section(id: &'static str, title: &'static str, note: &str) -> Element {
    let heading = Element::new("h2").text(title);
    let section = Element::new("section").set("id", id).child(heading);
    if note.is_empty() { section } else { section.child(Element::new("p").set("class", "note").text(note)) }
}

/// Returns a paragraph of text.
pub(crate) fn paragraph(text: impl Display) -> Element {
    Element::new("p").text(text)
}

/// Returns a table cell with text.
pub(crate) fn cell(text: impl Display) -> Element {
    Element::new("td").text(text)
}

/// Returns a table cell with a number.
pub(crate) fn number_cell(text: impl Display) -> Element {
    cell(text).set("class", "number")
}

/// Returns a table cell with literal text in a fixed-width font.
pub(crate) fn code_cell(text: impl Display) -> Element {
    Element::new("td").child(Element::new("code").text(text))
}

/// Returns a table. Each heading says whether its column holds numbers.
pub(crate) fn table(headings: &[(&'static str, bool)], rows: impl IntoIterator<Item = Vec<Element>>) -> Element {
    let heading = |&(text, is_number): &(&'static str, bool)| {
        let cell = Element::new("th").set("scope", "col").text(text);
        if is_number { cell.set("class", "number") } else { cell }
    };
    let head = Element::new("thead").child(Element::new("tr").children(headings.iter().map(heading)));
    let rows = rows.into_iter().map(|cells| Element::new("tr").children(cells));
    let table = Element::new("table").child(head).child(Element::new("tbody").children(rows));
    Element::new("div").set("class", "wide").child(table)
}

/// Returns a figure with a title and a remark.
pub(crate) fn card(title: impl Display, more: impl Display, content: Element) -> Element {
    let title = Element::new("h3").text(title);
    let more = Element::new("span").set("class", "more").text(more);
    Element::new("figure").child(title.text(" ").child(more)).child(content)
}

/// Returns cards in a grid with as many columns as fit.
pub(crate) fn cards(cards: impl IntoIterator<Item = Element>) -> Element {
    Element::new("div").set("class", "cards").children(cards)
}

/// Returns two large figures, next to each other if they fit.
pub(crate) fn pair(figures: [Element; 2]) -> Element {
    Element::new("div").set("class", "pair").children(figures)
}
