//! HTML elements that several sections use.

use std::fmt::Display;

use autotune_charts::MarkupElement;

/// Returns a section with a heading and an explanation.
pub(crate) fn section(id: &'static str, title: &'static str, note: &str) -> MarkupElement {
    let heading = MarkupElement::new("h2").text(title);
    let section = MarkupElement::new("section").set("id", id).child(heading);
    if note.is_empty() { section } else { section.child(MarkupElement::new("p").set("class", "note").text(note)) }
}

/// Returns a paragraph of text.
pub(crate) fn paragraph(text: impl Display) -> MarkupElement {
    MarkupElement::new("p").text(text)
}

/// Returns a table cell with text.
pub(crate) fn cell(text: impl Display) -> MarkupElement {
    MarkupElement::new("td").text(text)
}

/// Returns a table cell with a number.
pub(crate) fn number_cell(text: impl Display) -> MarkupElement {
    cell(text).set("class", "number")
}

/// Returns a table cell with literal text in a fixed-width font.
pub(crate) fn code_cell(text: impl Display) -> MarkupElement {
    MarkupElement::new("td").child(MarkupElement::new("code").text(text))
}

/// Returns a table. Each heading says whether its column holds numbers.
pub(crate) fn table(
    headings: &[(&'static str, bool)],
    rows: impl IntoIterator<Item = Vec<MarkupElement>>,
) -> MarkupElement {
    let heading = |&(text, is_number): &(&'static str, bool)| {
        let cell = MarkupElement::new("th").set("scope", "col").text(text);
        if is_number { cell.set("class", "number") } else { cell }
    };
    let head = MarkupElement::new("thead").child(MarkupElement::new("tr").children(headings.iter().map(heading)));
    let rows = rows.into_iter().map(|cells| MarkupElement::new("tr").children(cells));
    let table = MarkupElement::new("table").child(head).child(MarkupElement::new("tbody").children(rows));
    MarkupElement::new("div").set("class", "wide").child(table)
}

/// Returns a figure with a title and a remark.
pub(crate) fn card(title: impl Display, more: impl Display, content: MarkupElement) -> MarkupElement {
    let title = MarkupElement::new("h3").text(title);
    let more = MarkupElement::new("span").set("class", "more").text(more);
    MarkupElement::new("figure").child(title.text(" ").child(more)).child(content)
}

/// Returns cards in a grid with as many columns as fit.
pub(crate) fn cards(cards: impl IntoIterator<Item = MarkupElement>) -> MarkupElement {
    MarkupElement::new("div").set("class", "cards").children(cards)
}

/// Returns two large figures, next to each other if they fit.
pub(crate) fn pair(figures: [MarkupElement; 2]) -> MarkupElement {
    MarkupElement::new("div").set("class", "pair").children(figures)
}
