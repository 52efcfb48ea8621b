//! HTML and XML elements as data.

use std::fmt::{self, Display, Formatter, Write};

/// An element with attributes and content. Texts and attribute values are escaped when they are
/// written, so that no text becomes markup. The output is valid as HTML and as XML.
///
/// ```
/// use autotune_charts::MarkupElement;
///
/// let cell = MarkupElement::new("td").set("title", "a \"b\"").text("1 < 2");
/// assert_eq!(cell.to_string(), r#"<td title="a &quot;b&quot;">1 &lt; 2</td>"#);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct MarkupElement {
    name: &'static str,
    attributes: Vec<(&'static str, String)>,
    content: Vec<Content>,
}

#[derive(Clone, Debug, PartialEq)]
enum Content {
    MarkupElement(MarkupElement),
    Text(String),
}

impl MarkupElement {
    /// Creates an empty element.
    pub fn new(name: &'static str) -> Self {
        Self { name, attributes: Vec::new(), content: Vec::new() }
    }

    /// Adds an attribute, which must not be set yet.
    pub fn set(mut self, attribute: &'static str, value: impl Display) -> Self {
        self.attributes.push((attribute, value.to_string()));
        self
    }

    /// Appends a text to the content.
    pub fn text(mut self, text: impl Display) -> Self {
        self.content.push(Content::Text(text.to_string()));
        self
    }

    /// Appends an element to the content.
    pub fn child(mut self, child: Self) -> Self {
        self.content.push(Content::MarkupElement(child));
        self
    }

    /// Appends several elements to the content.
    pub fn children(mut self, children: impl IntoIterator<Item = Self>) -> Self {
        self.content.extend(children.into_iter().map(Content::MarkupElement));
        self
    }
}

impl Display for MarkupElement {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "<{}", self.name)?;
        for (name, value) in &self.attributes {
            write!(f, " {name}=\"{}\"", Escaped(value))?;
        }
        // HTML allows no end tag for `meta`. All other elements in use need one, even if empty.
        if self.name == "meta" {
            return f.write_str("/>");
        }

        f.write_char('>')?;
        for part in &self.content {
            match part {
                Content::MarkupElement(element) => write!(f, "{element}")?,
                Content::Text(text) => write!(f, "{}", Escaped(text))?,
            }
        }
        write!(f, "</{}>", self.name)
    }
}

/// Text to be written with its markup characters escaped. Characters that XML does not allow
/// (control characters except tab and line feed) are replaced by U+FFFD.
struct Escaped<'a>(&'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| match c {
            '&' => f.write_str("&amp;"),
            '<' => f.write_str("&lt;"),
            '>' => f.write_str("&gt;"),
            '"' => f.write_str("&quot;"),
            '\n' | '\t' => f.write_char(c),
            '\u{fffe}' | '\u{ffff}' => f.write_char(char::REPLACEMENT_CHARACTER),
            c if c.is_control() => f.write_char(char::REPLACEMENT_CHARACTER),
            c => f.write_char(c),
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_text_comes_back_as_it_was_and_none_is_markup() {
        for text in ["</td><script>alert(1)</script>", "a\"b'c", "&lt;", "]]>", "<!--", "ü\u{1F980}", " \n\t "] {
            let element = MarkupElement::new("p").set("title", text).text(text).child(MarkupElement::new("b"));
            let written = element.to_string();
            let read = roxmltree::Document::parse(&written).unwrap();
            let root = read.root_element();
            assert_eq!(root.text(), Some(text));
            assert_eq!(root.children().filter(|node| node.is_element()).count(), 1, "{written}");
            // XML parsers turn line ends in attribute values into spaces.
            assert_eq!(root.attribute("title"), Some(text.replace(['\n', '\t'], " ").as_str()));
        }
    }

    #[test]
    fn characters_outside_xml_are_replaced() {
        let written = MarkupElement::new("p").text("a\0b\u{1b}[2Jc\u{ffff}\u{85}").to_string();
        assert_eq!(written, "<p>a\u{fffd}b\u{fffd}[2Jc\u{fffd}\u{fffd}</p>");
        assert!(roxmltree::Document::parse(&written).is_ok());
    }

    #[test]
    fn empty_elements_have_an_end_but_for_those_of_html_that_have_none() {
        assert_eq!(MarkupElement::new("td").to_string(), "<td></td>");
        assert_eq!(MarkupElement::new("meta").set("charset", "utf-8").to_string(), "<meta charset=\"utf-8\"/>");
    }
}
