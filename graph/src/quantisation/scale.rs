//! Scales and zero points of 8-bit tensors.

/// Largest unsigned 8-bit integer.
const MOST: f32 = 255.0;

/// Smallest scale, whose reciprocal is far from overflow.
pub(super) const LEAST_SCALE: f32 = 1e-30;

/// Scale and zero point of an unsigned 8-bit tensor: its numbers are `(q - zero) * scale`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TensorScale {
    /// Difference of two neighbouring numbers.
    pub scale: f32,
    /// Integer that stands for 0.
    pub zero: u8,
}

impl TensorScale {
    /// Returns the scale whose numbers span a range, which is extended to include 0.
    pub fn of_range([least, most]: [f32; 2]) -> Self {
        let (least, most) = (least.min(0.0), most.max(0.0));
        if least == most {
            return Self { scale: 1.0, zero: 0 };
        }
        // Each end is divided first, since their difference may overflow.
        let scale = (most / MOST - least / MOST).max(LEAST_SCALE);
        Self { scale, zero: (-least / scale).round().clamp(0.0, MOST) as u8 }
    }

    /// Returns the number that stands for another one.
    pub(super) fn rounded(self, number: f32) -> f32 {
        let zero = f32::from(self.zero);
        (((number / self.scale).round_ties_even() + zero).clamp(0.0, MOST) - zero) * self.scale
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn zero_is_exact_and_numbers_in_range_err_by_half_a_step(
            ends in [-1e30f32..1e30, -1e30f32..1e30], share in 0f32..1.0
        ) {
            let [least, most] = [ends[0].min(ends[1]), ends[0].max(ends[1])];
            let scale = TensorScale::of_range([least, most]);
            prop_assert!(scale.scale.is_finite() && scale.scale > 0.0);
            prop_assert_eq!(scale.rounded(0.0), 0.0);
            let number = least.min(0.0) * (1.0 - share) + most.max(0.0) * share;
            // The zero point is rounded, so that an end may be half a step outside.
            prop_assert!((scale.rounded(number) - number).abs() <= 1.001 * scale.scale);
        }
    }

    #[test]
    fn a_tensor_of_zeros_and_the_smallest_numbers_have_a_scale() {
        assert_eq!(TensorScale::of_range([0.0, 0.0]), TensorScale { scale: 1.0, zero: 0 });
        assert_eq!(TensorScale::of_range([0.0, f32::MIN_POSITIVE]).scale, LEAST_SCALE);
        assert_eq!(TensorScale::of_range([-1.0, 0.0]).zero, 255);
        assert!(TensorScale::of_range([f32::MIN, f32::MAX]).scale.is_finite());
    }
}
