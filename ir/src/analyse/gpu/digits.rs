//! Cost of splitting index values into digits.

use crate::affine::{Affine, VarId};
use crate::program::Digit;

/// Returns the number of divisions that splitting a value takes, with those by other numbers than
/// powers of two counted twice. Terms that are multiples of a digit's extent go to the next
/// digits without one, and digits of constants are constants.
pub(super) fn divisions(value: &Affine, digits: &[Digit], is_constant: impl Fn(VarId) -> bool) -> f64 {
    let (mut terms, mut divisions) = (value.terms.clone(), 0.0);
    for digit in digits.iter().skip(1).rev() {
        let extent = digit.extent.max(1) as i64;
        let is_rest = |&&(var, c): &&(VarId, i64)| c % extent != 0 && !is_constant(var);
        // The quotient of a rest is no term, so that it stays a rest of all further digits.
        if divisions > 0.0 || terms.iter().any(|term| is_rest(&term)) {
            divisions += if extent.count_ones() == 1 { 1.0 } else { 2.0 };
        }
        terms.retain(|term| term.1 % extent == 0);
        terms.iter_mut().for_each(|term| term.1 /= extent);
    }
    divisions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_left_after_multiples_is_divided() {
        let [q, u, t] = [VarId(0), VarId(1), VarId(2)];
        let digits = |extents: &[usize]| -> Vec<Digit> {
            extents.iter().enumerate().map(|(i, &extent)| Digit { var: VarId(3 + i as u32), extent }).collect()
        };
        let count = |value: Affine, extents: &[usize]| divisions(&value, &digits(extents), |var| var == u);
        let chunk = |rounds: i64| Affine::var(q) * rounds + Affine::var(u) + 2;
        // All positions of a kernel are unrolled, a row of them, or none.
        assert_eq!(count(chunk(9), &[8, 3, 3]), 0.0);
        assert_eq!(count(chunk(3), &[8, 3, 3]), 2.0);
        assert_eq!(count(chunk(4), &[8, 3, 3]), 4.0);
        assert_eq!(count(chunk(3), &[9, 3]), 0.0);
        assert_eq!(count(Affine::var(q) * 64 + Affine::var(t), &[4, 8, 8]), 2.0);
        assert_eq!(count(Affine::var(t), &[32]), 0.0);
    }
}
