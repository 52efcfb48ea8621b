//! Affine integer expressions over loop variables.

use std::fmt;
use std::ops::{Add, Mul};

use smallvec::SmallVec;

/// Identifier of a loop variable, unique within its program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VarId(pub u32);

/// Linear expression `constant + Σ coefficient * variable`. Terms are sorted by variable, and every
/// coefficient is nonzero.
#[derive(Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Affine {
    /// Value of the expression where every variable is zero.
    pub constant: i64,
    /// Variables with their coefficients; three are stored inline, since few indices have more.
    pub terms: SmallVec<[(VarId, i64); 3]>,
}

impl Clone for Affine {
    #[inline]
    fn clone(&self) -> Self {
        // Copies of a known length compile to a few moves; a copy of any length would be a call.
        let unused = (VarId(0), 0);
        let terms = match self.terms[..] {
            [] => SmallVec::new(),
            [a] => SmallVec::from_buf_and_len([a, unused, unused], 1),
            [a, b] => SmallVec::from_buf_and_len([a, b, unused], 2),
            [a, b, c] => SmallVec::from_buf([a, b, c]),
            ref more => SmallVec::from_slice(more),
        };
        Self { constant: self.constant, terms }
    }
}

impl Affine {
    /// Returns an expression without variables.
    #[inline]
    pub fn constant(value: i64) -> Self {
        Self { constant: value, terms: SmallVec::new() }
    }

    /// Returns the expression that consists of `var` alone.
    #[inline]
    pub fn var(var: VarId) -> Self {
        Self { constant: 0, terms: smallvec::smallvec![(var, 1)] }
    }

    /// Returns the constant if no variable occurs, else `None`.
    #[inline]
    pub fn as_constant(&self) -> Option<i64> {
        self.terms.is_empty().then_some(self.constant)
    }

    /// Returns the coefficient of `var`; 0 if it does not occur.
    #[inline]
    pub fn coefficient(&self, var: VarId) -> i64 {
        self.terms.iter().find(|(v, _)| *v == var).map_or(0, |&(_, c)| c)
    }

    /// Returns true if `var` occurs.
    #[inline]
    pub fn uses(&self, var: VarId) -> bool {
        self.coefficient(var) != 0
    }

    /// Evaluates the expression with the value `value_of(var)` for each variable.
    #[inline]
    pub fn eval(&self, value_of: impl Fn(VarId) -> i64) -> i64 {
        self.terms.iter().fold(self.constant, |acc, &(var, c)| acc + c * value_of(var))
    }

    /// Adds `other * factor`.
    pub fn add_scaled(&mut self, other: &Affine, factor: i64) {
        self.constant += other.constant * factor;
        if factor == 0 {
            return;
        }
        for &(var, c) in &other.terms {
            // Variables are mostly created, and added, in increasing order: search from the end.
            let place = self.terms.iter().rposition(|t| t.0 <= var);
            match place {
                Some(i) if self.terms[i].0 == var => {
                    self.terms[i].1 += c * factor;
                    // Equality and `as_constant` rely on terms with nonzero coefficients.
                    if self.terms[i].1 == 0 {
                        self.terms.remove(i);
                    }
                }
                _ => self.terms.insert(place.map_or(0, |i| i + 1), (var, c * factor)),
            }
        }
    }

    /// Returns the expression with `var` replaced by `replacement`.
    #[inline]
    pub fn substitute(&self, var: VarId, replacement: &Affine) -> Self {
        let coefficient = self.coefficient(var);
        if coefficient == 0 {
            return self.clone();
        }

        // The replacement may contain `var` itself, so its term is removed first.
        let rest = Self { constant: self.constant, terms: self.terms.iter().copied().filter(|t| t.0 != var).collect() };
        rest + replacement.clone() * coefficient
    }

    /// Returns the smallest and the largest value if each variable ranges over `0..extent_of(var)`.
    #[inline]
    pub fn range(&self, extent_of: impl Fn(VarId) -> usize) -> (i64, i64) {
        self.terms.iter().fold((self.constant, self.constant), |(low, high), &(var, c)| {
            // A term with a negative coefficient is smallest at the last value.
            let reach = c * (extent_of(var) as i64 - 1);
            (low + reach.min(0), high + reach.max(0))
        })
    }
}

impl Add for Affine {
    type Output = Affine;

    #[inline]
    fn add(mut self, other: Affine) -> Affine {
        self.add_scaled(&other, 1);
        self
    }
}

impl Add<&Affine> for Affine {
    type Output = Affine;

    #[inline]
    fn add(mut self, other: &Affine) -> Affine {
        self.add_scaled(other, 1);
        self
    }
}

impl Add<i64> for Affine {
    type Output = Affine;

    #[inline]
    fn add(mut self, offset: i64) -> Affine {
        self.constant += offset;
        self
    }
}

impl Mul<i64> for Affine {
    type Output = Affine;

    #[inline]
    fn mul(mut self, factor: i64) -> Affine {
        // All coefficients would become zero, and terms with zero must not be stored.
        if factor == 0 {
            return Affine::default();
        }
        self.constant *= factor;
        self.terms.iter_mut().for_each(|t| t.1 *= factor);
        self
    }
}

impl Affine {
    /// Formats the expression with variables named by `name_of`, constant last: `4*oh.0 + kh + -1`.
    pub fn display<'a>(&'a self, name_of: impl Fn(VarId) -> String + 'a) -> impl fmt::Display + 'a {
        fmt::from_fn(move |f| {
            for (i, &(var, c)) in self.terms.iter().enumerate() {
                if i > 0 {
                    f.write_str(" + ")?;
                }
                if c != 1 {
                    write!(f, "{c}*")?;
                }
                f.write_str(&name_of(var))?;
            }
            match (self.terms.is_empty(), self.constant) {
                (true, c) => write!(f, "{c}"),
                (false, 0) => Ok(()),
                (false, c) => write!(f, " + {c}"),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_keeps_terms_sorted_and_nonzero() {
        let (a, b) = (VarId(0), VarId(1));
        let x = Affine::var(b) * 3 + Affine::var(a) * 2 + 5;
        assert_eq!(x.terms.as_slice(), [(a, 2), (b, 3)]);
        assert_eq!((x.clone() + Affine::var(a) * -2).terms.as_slice(), [(b, 3)]);
        assert_eq!(x.eval(|v| if v == a { 1 } else { 10 }), 37);
        assert_eq!(x.range(|_| 4), (5, 20));
        assert_eq!((Affine::var(a) * -1).range(|_| 4), (-3, 0));
        assert_eq!(x.substitute(b, &(Affine::var(a) + 1)), Affine::var(a) * 5 + 8);
        assert_eq!(x.display(|v| format!("v{}", v.0)).to_string(), "2*v0 + 3*v1 + 5");
        let zero = 0;
        assert_eq!((x * zero).as_constant(), Some(0));
    }
}
