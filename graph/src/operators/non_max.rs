//! Import of the choice of boxes that do not overlap.

use super::prelude::*;
use crate::onnx::call::Result;
use crate::onnx::error::unfit;

pub(super) static IMPORTS: &[OnnxOperator] = &[OnnxOperator::one("NonMaxSuppression", import)];

/// Limits of a choice.
struct Choice {
    /// Maximum number of boxes of each class of an image.
    most: usize,
    /// Boxes overlap if the area of their intersection exceeds this share of their union's.
    most_overlap: f32,
    /// Boxes without a larger score are ignored.
    least_score: Option<f32>,
}

/// A box by two opposite corners, the lower one first.
#[derive(Clone, Copy)]
struct Corners {
    low: [f32; 2],
    high: [f32; 2],
}

/// Imports the indices `[found, 3]` of image, class and box, of the boxes with the largest scores
/// that do not overlap others of the same class with a larger score. Boxes are
/// `[images, boxes, 4]`, scores `[images, classes, boxes]`.
fn import(call: &mut Call) -> Result<ImportValue> {
    call.check_most(5)?;
    let is_centred = call.int_or("center_point_box", 0)? != 0;
    let (boxes, scores) = (call.operand(0)?, call.operand(1)?);
    let (shape, scored) = (call.shape(boxes), call.shape(scores));
    let (&[images, count, 4], &[of_scores, classes, each]) = (&shape[..], &scored[..]) else {
        return unfit(format!("boxes of shape {shape:?}, scores of shape {scored:?}"));
    };
    if (images, count) != (of_scores, each) {
        return unfit(format!("boxes of shape {shape:?} do not fit scores of shape {scored:?}"));
    }
    let most = call.known_integers(2)?.and_then(|most| most.first().copied()).unwrap_or(0);
    let choice = Choice {
        most: usize::try_from(most).unwrap_or(0).min(count),
        most_overlap: call.known_number(3)?.unwrap_or(0.0),
        least_score: call.known_number(4)?,
    };
    let (Some(boxes), Some(scores)) = (call.known(0)?, call.known(1)?) else { return unfit("an input is missing") };
    let (boxes, scores) = (boxes.to_numbers(), scores.to_numbers());

    let corners: Vec<Corners> = boxes.as_chunks().0.iter().map(|&numbers| Corners::of(numbers, is_centred)).collect();
    let mut found = Vec::new();
    for (row, scores) in scores.chunks(count.max(1)).enumerate() {
        let (image, class) = (row / classes, row % classes);
        let chosen = choice.of(&corners[image * count..][..count], scores);
        found.extend(chosen.into_iter().flat_map(|number| [image as i64, class as i64, number as i64]));
    }
    Ok(call.constant(Tensor::i64(&[found.len() / 3, 3], found)?))
}

impl Choice {
    /// Returns the numbers of the boxes that are chosen, those with the largest score first.
    fn of(&self, boxes: &[Corners], scores: &[f32]) -> Vec<usize> {
        let is_scored = |number: &usize| self.least_score.is_none_or(|least| scores[*number] > least);
        let mut candidates: Vec<usize> = (0..boxes.len()).filter(is_scored).collect();
        // A stable sort keeps boxes of equal scores in order.
        candidates.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));

        let mut chosen: Vec<usize> = Vec::new();
        for number in candidates {
            if chosen.len() == self.most {
                break;
            }
            let overlaps = |&other: &usize| boxes[number].overlap(&boxes[other]) > self.most_overlap;
            if !chosen.iter().any(overlaps) {
                chosen.push(number);
            }
        }
        chosen
    }
}

impl Corners {
    /// Returns the box of two opposite corners in any order, each `[y, x]`, or of the centre
    /// `[x, y]` and the size `[width, height]`.
    fn of([a, b, c, d]: [f32; 4], is_centred: bool) -> Self {
        match is_centred {
            true => Self { low: [a - c / 2.0, b - d / 2.0], high: [a + c / 2.0, b + d / 2.0] },
            false => Self { low: [a.min(c), b.min(d)], high: [a.max(c), b.max(d)] },
        }
    }

    /// Returns the area of the intersection as a share of the union's.
    fn overlap(&self, other: &Self) -> f32 {
        let area = |of: &Self| (of.high[0] - of.low[0]) * (of.high[1] - of.low[1]);
        let extent = |axis: usize| self.high[axis].min(other.high[axis]) - self.low[axis].max(other.low[axis]);
        let (height, width) = (extent(0), extent(1));
        if height <= 0.0 || width <= 0.0 || area(self) <= 0.0 || area(other) <= 0.0 {
            return 0.0;
        }
        height * width / (area(self) + area(other) - height * width)
    }
}
