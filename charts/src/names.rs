//! Placement of names next to dots without overlap.

use crate::element::MarkupElement;
use crate::mark::{Place, TextAnchor, write_text};
use crate::style::Colour;

/// A point with a name.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedPoint {
    /// Position, as `x` and `y`.
    pub at: [f64; 2],
    /// Short name next to the point.
    pub name: String,
    /// Tooltip of the point.
    pub more: String,
    /// Origin of a thin line that ends at the point, if there is one.
    pub from: Option<[f64; 2]>,
}

/// Radius of a dot, in pixels.
const RADIUS: f64 = 3.5;
/// Height of a name, in pixels.
const LINE: f64 = 12.0;
/// Approximate width of a character, in pixels.
const CHARACTER: f64 = 6.6;
/// Distance of a name from its dot, in pixels.
const GAP: f64 = 3.0;

/// Rectangle in pixels: left, top, right, bottom.
type Area = [f64; 4];

fn overlap(a: &Area, b: &Area) -> bool {
    a[0] < b[2] && b[0] < a[2] && a[1] < b[3] && b[1] < a[3]
}

/// Draws dots, lines to them, and names. Each name takes the first side of its dot where it
/// overlaps neither dots nor earlier names; without such a side it is on the right.
pub(crate) fn place_names(
    points: &[NamedPoint],
    place: Place<'_>,
    size: [f64; 2],
    colour: Colour,
) -> Vec<MarkupElement> {
    let placed: Vec<(&NamedPoint, [f64; 2])> =
        points.iter().filter_map(|point| Some((point, place(point.at)?))).collect();
    let mut taken: Vec<Area> = placed.iter().map(|(_, at)| around(*at)).collect();
    let (mut lines, mut dots, mut names) = (Vec::new(), Vec::new(), Vec::new());

    for (point, at) in placed {
        lines.extend(point.from.and_then(place).map(|from| arrow(from, at, colour)));
        dots.push(dot(at, &point.more, colour));

        let sides = sides(at, CHARACTER * point.name.chars().count() as f64);
        let is_free = |(area, _): &(Area, TextAnchor)| {
            let is_inside = area[0] >= 0.0 && area[1] >= 0.0 && area[2] <= size[0] && area[3] <= size[1];
            is_inside && !taken.iter().any(|other| overlap(area, other))
        };
        let (area, anchor) = sides.into_iter().find(is_free).unwrap_or(sides[0]);
        taken.push(area);
        let x = if anchor == TextAnchor::Start { area[0] } else { area[2] };
        names.push(write_text(&point.name, [x, area[3] - GAP], anchor, Colour::Ink));
    }
    [lines, dots, names].concat()
}

fn around([x, y]: [f64; 2]) -> Area {
    [x - RADIUS, y - RADIUS, x + RADIUS, y + RADIUS]
}

/// Returns the possible areas of a name of `width` pixels: right, left, above, below, and the four
/// corners.
fn sides([x, y]: [f64; 2], width: f64) -> [(Area, TextAnchor); 8] {
    let near = RADIUS + GAP;
    let right = |top: f64, left: f64| ([left, top, left + width, top + LINE], TextAnchor::Start);
    let left = |top: f64, right: f64| ([right - width, top, right, top + LINE], TextAnchor::End);
    let (above, beside, below) = (y - near - LINE, y - LINE / 2.0, y + near);
    [
        right(beside, x + near),
        left(beside, x - near),
        right(above, x - width / 2.0),
        right(below, x - width / 2.0),
        right(above, x + GAP),
        right(below, x + GAP),
        left(above, x - GAP),
        left(below, x - GAP),
    ]
}

fn dot([x, y]: [f64; 2], more: &str, colour: Colour) -> MarkupElement {
    let circle =
        MarkupElement::new("circle").set("cx", format!("{x:.1}")).set("cy", format!("{y:.1}")).set("r", RADIUS);
    circle.set("class", colour.class()).set("fill", "currentColor").child(MarkupElement::new("title").text(more))
}

fn arrow([x0, y0]: [f64; 2], [x1, y1]: [f64; 2], colour: Colour) -> MarkupElement {
    let path = MarkupElement::new("path").set("d", format!("M{x0:.1} {y0:.1}L{x1:.1} {y1:.1}"));
    path.set("class", colour.class()).set("stroke", "currentColor").set("stroke-opacity", 0.45)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_hide_neither_dots_nor_one_another_as_long_as_there_is_room() {
        let named = |x: f64, y: f64| NamedPoint { at: [x, y], name: "C12".into(), more: String::new(), from: None };
        let points: Vec<NamedPoint> =
            (0..12).map(|i| named(100.0 + 22.0 * f64::from(i % 4), 80.0 + 12.0 * f64::from(i / 4))).collect();
        let drawn = place_names(&points, &Some, [300.0, 200.0], Colour::Ink);
        assert_eq!(drawn.len(), 24);
        let alone = place_names(&[named(295.0, 100.0)], &Some, [300.0, 200.0], Colour::Ink);
        assert!(alone[1].to_string().contains("text-anchor=\"end\""), "there is no room on the right: {}", alone[1]);
        let pair = place_names(&[named(100.0, 100.0), named(110.0, 100.0)], &Some, [300.0, 200.0], Colour::Ink);
        assert!(pair[2].to_string().contains("end") && pair[3].to_string().contains("start"), "{pair:?}");
    }
}
