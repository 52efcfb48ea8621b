//! Weights as signed 8-bit integers with a scale for each channel.

use autotune_ir::DType;

use super::scale::LEAST_SCALE;
use crate::error::OpError;
use crate::tensor::Tensor;

/// Largest magnitude of a weight, so that negation stays in range.
const MOST: f32 = 127.0;

/// Weights as integers, with a scale for each element along an axis.
pub(super) struct RoundedWeights {
    pub(super) integers: Tensor,
    pub(super) scales: Vec<f32>,
    /// Change of each weight by rounding.
    pub(super) changes: Vec<f32>,
}

impl RoundedWeights {
    /// Rounds weights; the largest of each channel becomes 127, or less if the channel's scale
    /// would be below its bound `least`. Fails if a weight is not finite.
    pub(super) fn of(weights: &Tensor, axis: usize, least: &[f32]) -> Result<Self, OpError> {
        let (shape, numbers) = (weights.shape(), weights.to_numbers());
        let inner: usize = shape[axis + 1..].iter().product();
        let channel = |at: usize| at / inner.max(1) % shape[axis];
        if let Some(number) = numbers.iter().find(|number| !number.is_finite()) {
            return Err(OpError::Unfit(format!("a weight is {number}, expected finite numbers")));
        }

        let mut largest = vec![0f32; shape[axis]];
        for (at, number) in numbers.iter().enumerate() {
            let own = &mut largest[channel(at)];
            *own = own.max(number.abs());
        }
        // A channel of zeros gets the smallest scale, in which its bias is exact enough.
        let smallest = largest.iter().copied().filter(|most| *most > 0.0).fold(f32::INFINITY, f32::min);
        let smallest = if smallest.is_finite() { smallest } else { MOST };
        let scale = |(&most, &least): (&f32, &f32)| {
            let most = if most > 0.0 { most } else { smallest };
            (most / MOST).max(least).max(LEAST_SCALE)
        };
        let scales: Vec<f32> = largest.iter().zip(least).map(scale).collect();

        let whole = |(at, number): (usize, &f32)| (number / scales[channel(at)]).round_ties_even().clamp(-MOST, MOST);
        let integers: Vec<f32> = numbers.iter().enumerate().map(whole).collect();
        let change = |(at, number): (usize, &f32)| integers[at] * scales[channel(at)] - number;
        let changes = numbers.iter().enumerate().map(change).collect();
        Ok(Self { integers: Tensor::of_numbers(shape, DType::I8, &integers)?, scales, changes })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn weights_change_by_half_a_step(numbers in prop::collection::vec(-1e3f32..1e3, 24), axis in 0usize..3) {
            let (inner, extent) = ([12, 4, 1][axis], [2, 3, 4][axis]);
            let weights = Tensor::f32(&[2, 3, 4], numbers).unwrap();
            let rounded = RoundedWeights::of(&weights, axis, &vec![0.0; extent]).unwrap();
            for (at, change) in rounded.changes.iter().enumerate() {
                let scale = rounded.scales[at / inner % extent];
                prop_assert!(change.abs() <= 0.5001 * scale);
            }
        }
    }

    #[test]
    fn zeros_have_a_scale_and_infinities_are_refused() {
        let of = |numbers: Vec<f32>| RoundedWeights::of(&Tensor::f32(&[2, 1], numbers).unwrap(), 0, &[0.0, 4.0]);
        assert_eq!(of(vec![0.0, -1016.0]).unwrap().scales, [8.0, 8.0]);
        assert_eq!(of(vec![0.0, -254.0]).unwrap().scales, [2.0, 4.0], "a bound");
        assert_eq!(of(vec![0.0, 0.0]).unwrap().scales, [1.0, 4.0]);
        assert_eq!(of(vec![0.0, -1016.0]).unwrap().integers.to_numbers(), [0.0, -127.0]);
        assert!(of(vec![f32::NAN, 1.0]).is_err());
    }
}
