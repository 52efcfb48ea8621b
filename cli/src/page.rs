//! HTML page of `autotune report`: one self-contained file made from the records of a database.
//!
//! Each section has a file, which computes the figures and draws them. The texts of records are
//! untrusted: they enter the page only through [`MarkupElement`], which escapes them.

mod curve;
mod failures;
mod history;
mod html;
mod knobs;
#[cfg(test)]
mod made_up;
mod model;
mod number;
mod parts;
mod provenance;
mod roofline;
mod runs;
mod search;
mod tasks;

use anyhow::Result;
use autotune_charts::{MarkupElement, STYLE};

pub(crate) use history::History;
pub(crate) use parts::Page;

/// Style sheet of the page; the charts have their own, [`STYLE`].
const PAGE_STYLE: &str = include_str!("page/style.css");

impl Page<'_> {
    /// Returns the page as HTML.
    pub(crate) fn write(&self) -> Result<String> {
        let title = format!("autotune report: {}", self.subject);
        let meta = |name, content| MarkupElement::new("meta").set("name", name).set("content", content);
        let head = MarkupElement::new("head")
            .child(MarkupElement::new("meta").set("charset", "utf-8"))
            .child(meta("viewport", "width=device-width, initial-scale=1"))
            .child(meta("color-scheme", "light dark"))
            .child(MarkupElement::new("title").text(&title))
            .child(MarkupElement::new("style").text(STYLE).text(PAGE_STYLE));

        let main = MarkupElement::new("main")
            .child(MarkupElement::new("h1").text(&title))
            .children(self.introduction().map(html::paragraph))
            .child(contents())
            .child(provenance::draw(self))
            .child(tasks::draw(self))
            .child(tasks::draw_regret(self.histories))
            .child(search::draw(self.histories))
            .child(roofline::draw(self))
            .child(model::draw(self.histories, self.target)?)
            .child(knobs::draw(self.histories))
            .child(failures::draw(self.histories));
        let html =
            MarkupElement::new("html").set("lang", "en").child(head).child(MarkupElement::new("body").child(main));
        Ok(format!("<!DOCTYPE html>\n{html}\n"))
    }

    /// Returns the introduction: the subject of the page, and the method of measurement.
    fn introduction(&self) -> [String; 2] {
        let tasks = number::with_noun(self.histories.len(), "task");
        [
            format!("Results of the search for fast schedules of {tasks} on {}.", self.key),
            "Each time is of a kernel whose output was compared with a reference, run warm in its own process: a low quantile of \
             its repeats, which for raced schedules are interleaved with those of their rivals."
                .into(),
        ]
    }
}

/// Returns the links to the sections.
fn contents() -> MarkupElement {
    const SECTIONS: [(&str, &str); 8] = [
        ("#provenance", "Provenance"),
        ("#tasks", "Tasks"),
        ("#regret", "Regret"),
        ("#search", "Best so far"),
        ("#roofline", "Roofline"),
        ("#model", "Model"),
        ("#knobs", "Knobs"),
        ("#failures", "Failures"),
    ];
    let link = |(to, text)| MarkupElement::new("a").set("href", to).text(text);
    MarkupElement::new("nav").children(SECTIONS.map(link))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn style_sheets_are_the_same_in_html_and_xml() {
        assert!(!PAGE_STYLE.contains(['&', '<', '>', '"']));
    }
}
