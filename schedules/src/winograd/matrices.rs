//! Matrices of minimal filtering, and one-dimensional transforms as sums with shared terms.
//!
//! `F(m, k)` computes `m` outputs of a filter of `k` taps with `a = m + k - 1` products:
//! `y = Aᵀ [(G g) ∘ (Bᵀ d)]` is `y[i] = sum over j of g[j] * d[i + j]` (Winograd, "Arithmetic
//! Complexity of Computations", 1980; for images: Lavin and Gray, "Fast Algorithms for
//! Convolutional Neural Networks", 2016). The matrices are those of Toom and Cook: polynomials are
//! multiplied by their values at `a - 1` points and at infinity.
//!
//! A filter of stride `s` is the sum of `s` filters of stride 1. Phase `f` has the taps
//! `f, f + s, ..` and reads the inputs `f, f + s, ..`:
//!
//! ```text
//! y[i] = sum over j of g[j] * d[s*i + j]
//!   →  y[i] = sum over f, j of g[s*j + f] * d[s*(i + j) + f]
//! ```
//!
//! Each phase has its own products, `a = s*(m - 1) + k` in all: as many as inputs are read. All
//! phases use the same points, so that their products can be added before anything else. A phase
//! with one tap less than others has no product for infinity, where its filter is zero.

use std::ops::Range;
use std::sync::Arc;

use autotune_workloads::Workload;

/// Maximum number of inputs of a tile along an axis, because transforms are straight-line code.
const MAX_INPUTS: usize = 16;

/// Finite points, by their number. Opposite points let transforms share terms. f32 represents the
/// points exactly. Of the points tried, these have the smallest errors, or nearly the smallest with
/// fewer multiplications.
const POINTS: [&[f64]; 6] = [
    &[1.0, -1.0],
    &[0.0, 1.0, -1.0],
    &[0.5, -0.5, 1.5, -1.5],
    &[0.0, 0.625, -0.625, 1.5, -1.5],
    &[0.375, -0.375, 1.0, -1.0, 1.75, -1.75],
    &[0.0, 0.5, -0.5, 1.0, -1.0, 2.0, -2.0],
];

/// One-dimensional filtering of a tile: `m` outputs of a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filtering {
    /// Number of outputs, `m`.
    pub m: usize,
    /// Number of taps of the filter.
    pub taps: usize,
    /// Distance in inputs between the windows of adjacent outputs.
    pub stride: usize,
}

impl Filtering {
    /// Number of inputs, which is also the number of products.
    pub fn inputs(&self) -> usize {
        self.stride * (self.m - 1) + self.taps
    }

    /// Number of finite points at which polynomials are evaluated.
    pub fn points(&self) -> usize {
        (self.m + self.taps.div_ceil(self.stride)).saturating_sub(2)
    }

    /// True if matrices for it exist.
    pub fn is_known(&self) -> bool {
        // Bounded sizes keep the arithmetic below from overflowing.
        let are_few = self.m.max(self.taps) <= MAX_INPUTS;
        let saves = are_few && self.m > 1 && self.taps > self.stride && self.stride > 0;
        saves && POINTS.iter().any(|points| points.len() == self.points()) && self.inputs() <= MAX_INPUTS
    }
}

/// A matrix as a list of rows.
pub type Matrix = Vec<Vec<f64>>;

/// Transform matrices of a filtering.
#[derive(Clone, Debug, PartialEq)]
pub struct Matrices {
    /// `Aᵀ`, `m × a`: transforms products to outputs.
    pub output: Matrix,
    /// `G`, `a × k`: transforms the filter.
    pub weight: Matrix,
    /// `Bᵀ`, `a × a`: transforms the input.
    pub input: Matrix,
}

/// Returns the coefficients of the product of `x - point` over `points`, lowest power first.
fn product_of_roots(points: impl Iterator<Item = f64>) -> Vec<f64> {
    points.fold(vec![1.0], |polynomial, point| {
        let mut product = vec![0.0; polynomial.len() + 1];
        for (power, &c) in polynomial.iter().enumerate() {
            product[power + 1] += c;
            product[power] -= c * point;
        }
        product
    })
}

/// Returns a row of zeros, except for the given elements, `step` apart from `first` on.
fn spread(len: usize, first: usize, step: usize, elements: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut row = vec![0.0; len];
    row[first..].iter_mut().step_by(step).zip(elements).for_each(|(place, element)| *place = element);
    row
}

fn powers(point: f64, count: usize) -> impl Iterator<Item = f64> {
    (0..count).map(move |i| point.powi(i as i32))
}

impl Matrices {
    /// Computes the matrices of a filtering that [is known](Filtering::is_known).
    ///
    /// For a point `p`, with `q` running over the others, the row of `Bᵀ` has the coefficients of
    /// `∏ (x - q)`. The row of `G` is `(1, p, p², ..) / ∏ (p - q)`. The column of `Aᵀ` is
    /// `(1, p, .., pᵐ⁻¹)`. For infinity they are the coefficients of `∏ (x - p)` over all points,
    /// `(0, .., 0, 1)` and `(0, .., 0, 1)`. Coefficients of a phase are at its inputs and taps. The
    /// phases follow each other.
    pub fn new(filtering: Filtering) -> Self {
        let Filtering { m, taps, stride } = filtering;
        let points = POINTS.iter().find(|points| points.len() == filtering.points()).copied().unwrap_or_default();
        let (size, most) = (filtering.inputs(), taps.div_ceil(stride));
        let others = |k: usize| points.iter().enumerate().filter(move |&(l, _)| l != k).map(|(_, &q)| q);

        let [mut output, mut weight, mut input] = [const { Matrix::new() }; 3];
        for phase in 0..stride {
            let own = (taps - phase).div_ceil(stride);
            for (k, &point) in points.iter().enumerate() {
                let scale: f64 = others(k).map(|q| point - q).product();
                input.push(spread(size, phase, stride, product_of_roots(others(k))));
                // The factor of the interpolation goes to the filter, which is transformed ahead of
                // time.
                weight.push(spread(taps, phase, stride, powers(point, own).map(|x| x / scale)));
                output.push(powers(point, m).collect());
            }
            // A phase with fewer taps than others has no leading coefficient, so infinity adds
            // nothing.
            if own == most {
                input.push(spread(size, phase, stride, product_of_roots(points.iter().copied())));
                weight.push(spread(taps, phase + stride * (own - 1), 1, [1.0]));
                output.push(spread(m, m - 1, 1, [1.0]));
            }
        }
        Self { output: transposed(&output), weight, input }
    }
}

/// Transforms of tiles, and the matrices that they multiply by.
#[derive(Debug)]
pub struct Transforms {
    /// Matrices of the three transforms.
    pub matrices: Matrices,
    /// Multiplies by `Aᵀ`: products to outputs.
    pub output: Transform,
    /// Multiplies by `G`: the filter.
    pub weight: Transform,
    /// Multiplies by `Bᵀ`: the input.
    pub input: Transform,
}

impl Transforms {
    /// Returns the transforms of a filtering that [is known](Filtering::is_known), cached per
    /// workload.
    pub(crate) fn of(workload: &Workload, filtering: Filtering) -> Arc<Self> {
        workload.once(filtering, || Self::new(filtering))
    }

    fn new(filtering: Filtering) -> Self {
        let matrices = Matrices::new(filtering);
        Self {
            output: Transform::sharing_columns(&matrices.output),
            weight: Transform::plain(&matrices.weight),
            input: Transform::sharing_rows(&matrices.input),
            matrices,
        }
    }
}

/// An operand of a sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SumTerm {
    /// Element of the vector that is transformed.
    Input(usize),
    /// Term that several outputs share.
    Term(usize),
}

/// A sum of operands with factors, none of which is zero.
pub type Sum = Vec<(SumTerm, f64)>;

/// Product of a matrix and a vector. Terms are computed first, then outputs from terms and inputs.
#[derive(Clone, Debug, PartialEq)]
pub struct Transform {
    /// Sums that several outputs use.
    pub terms: Vec<Sum>,
    /// Sums of the outputs, one per row of the matrix.
    pub outputs: Vec<Sum>,
}

fn sum_of(row: &[f64]) -> Sum {
    row.iter().enumerate().filter(|(_, c)| **c != 0.0).map(|(k, &c)| (SumTerm::Input(k), c)).collect()
}

fn transposed(matrix: &Matrix) -> Matrix {
    (0..matrix.first().map_or(0, Vec::len)).map(|k| matrix.iter().map(|row| row[k]).collect()).collect()
}

/// Factors the matrix into a product of two. Rows that are equal or differ in signs only are sums
/// and differences of two rows of the second factor: `p = x + y`, `q = x - y`, where `x` has their
/// equal and `y` their opposite elements. Any other row is itself a row of the second factor.
fn factors(matrix: &Matrix) -> [Matrix; 2] {
    let (mut columns, mut rows) = (Matrix::new(), Matrix::new());
    let are_opposite = |a: &[f64], b: &[f64]| a != b && a.iter().zip(b).all(|(a, b)| a.abs() == b.abs());
    let mut is_done = vec![false; matrix.len()];

    for (k, row) in matrix.iter().enumerate() {
        if is_done[k] {
            continue;
        }
        let opposite = matrix[k..].iter().find(|other| are_opposite(row, other));
        let uses: Vec<f64> =
            matrix.iter().map(|other| f64::from(i8::from(other == row) - i8::from(Some(other) == opposite))).collect();
        // All rows that equal this one or its opposite are done with it.
        is_done.iter_mut().zip(&uses).for_each(|(done, uses)| *done |= *uses != 0.0);

        let Some(opposite) = opposite else {
            columns.push(uses);
            rows.push(row.clone());
            continue;
        };
        columns.push(uses.iter().map(|uses| uses.abs()).collect());
        columns.push(uses);
        for sign in [1.0, -1.0] {
            rows.push(row.iter().zip(opposite).map(|(a, b)| (a + sign * b) / 2.0).collect());
        }
    }
    [transposed(&columns), rows]
}

impl Transform {
    /// Computes every output directly, without terms.
    pub fn plain(matrix: &Matrix) -> Self {
        Self { terms: Vec::new(), outputs: matrix.iter().map(|row| sum_of(row)).collect() }
    }

    /// Shares terms among rows that differ in signs only, such as the rows of `Bᵀ` for opposite
    /// points.
    pub fn sharing_rows(matrix: &Matrix) -> Self {
        let [outer, inner] = factors(matrix);
        Self::product(&outer, &inner)
    }

    /// Adds inputs with equal columns first. Inputs whose columns differ in signs only are added
    /// and subtracted, and each output uses one of the two. The columns of `Aᵀ` have this form for
    /// phases and for opposite points.
    pub fn sharing_columns(matrix: &Matrix) -> Self {
        let [outer, inner] = factors(&transposed(matrix)).map(|factor| transposed(&factor));
        Self::product(&inner, &outer)
    }

    /// Computes `outer * inner` with shared terms: each row of `inner` becomes a term, unless it
    /// has a single input or is an output on its own.
    fn product(outer: &Matrix, inner: &Matrix) -> Self {
        let mut terms = Vec::new();
        let mut source = |(k, row): (usize, &Vec<f64>)| {
            let sum = sum_of(row);
            let is_output = outer.iter().any(|uses| uses[k] != 0.0 && uses.iter().filter(|c| **c != 0.0).count() == 1);
            if sum.len() == 1 || is_output {
                return sum;
            }
            terms.push(sum);
            vec![(SumTerm::Term(terms.len() - 1), 1.0)]
        };
        let sources: Vec<Sum> = inner.iter().enumerate().map(&mut source).collect();
        let scaled = |(c, sum): (&f64, &Sum)| sum.iter().map(|&(s, factor)| (s, c * factor)).collect::<Sum>();
        let used = |row: &Vec<f64>| row.iter().zip(&sources).filter(|(c, _)| **c != 0.0).flat_map(scaled).collect();
        Self { outputs: outer.iter().map(used).collect(), terms }
    }

    /// Returns a predicate for operands that may be nonzero, if the vector is zero outside
    /// `inputs`.
    pub fn live(&self, inputs: &Range<usize>) -> impl Fn(SumTerm) -> bool {
        // Bit `k` stands for term `k`; there are at most `MAX_INPUTS` terms.
        let is_live = |source: SumTerm, terms: u64| match source {
            SumTerm::Input(k) => inputs.contains(&k),
            SumTerm::Term(k) => terms >> k & 1 == 1,
        };
        // Terms only depend on inputs and on terms before them.
        let any_live = |sum: &Sum, before: u64| sum.iter().any(|part| is_live(part.0, before));
        let add = |before, (k, sum): (usize, &Sum)| before | u64::from(any_live(sum, before)) << k;
        let terms = self.terms.iter().enumerate().fold(0, add);
        move |source| is_live(source, terms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn multiply(matrix: &Matrix, vector: &[f64]) -> Vec<f64> {
        matrix.iter().map(|row| row.iter().zip(vector).map(|(a, b)| a * b).sum()).collect()
    }

    /// Skips the operands that are zero for a vector that is zero outside `inputs`.
    fn apply(transform: &Transform, vector: &[f64], inputs: &Range<usize>) -> Vec<f64> {
        let is_live = transform.live(inputs);
        let value = |sum: &Sum, terms: &[f64]| {
            let source = |source| match source {
                SumTerm::Input(k) => vector[k],
                SumTerm::Term(k) => terms[k],
            };
            sum.iter().filter(|part| is_live(part.0)).map(|&(s, c)| c * source(s)).sum()
        };
        let terms: Vec<f64> = transform.terms.iter().map(|sum| value(sum, &[])).collect();
        transform.outputs.iter().map(|sum| value(sum, &terms)).collect()
    }

    fn close(a: &[f64], b: &[f64]) -> bool {
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-10)
    }

    fn known() -> impl Iterator<Item = Filtering> {
        let of_stride = |stride| (1..=9).flat_map(move |taps| (2..=7).map(move |m| Filtering { m, taps, stride }));
        (1..=4).flat_map(of_stride).filter(Filtering::is_known)
    }

    #[test]
    fn there_are_matrices_for_filters_that_save_products() {
        let count = |stride| known().filter(|filtering| filtering.stride == stride).count();
        assert_eq!([1, 2, 3, 4].map(count), [21, 33, 17, 9]);
        for Filtering { m, taps, stride } in known() {
            assert!(stride * (m - 1) + taps < m * taps, "m {m}, {taps} taps, stride {stride}");
        }
    }

    /// Products of a unit filter and a unit input show every coefficient of the bilinear form.
    #[test]
    fn every_product_goes_where_the_filter_puts_it() {
        for filtering in known() {
            let Filtering { m, taps, stride } = filtering;
            let Matrices { output, weight, input } = Matrices::new(filtering);
            let size = filtering.inputs();
            assert_eq!([output.len(), weight.len(), input.len()], [m, size, size]);
            let unit = |i: usize, len: usize| (0..len).map(|k| f64::from(u8::from(k == i))).collect::<Vec<_>>();
            for (tap, at) in (0..taps).flat_map(|tap| (0..size).map(move |at| (tap, at))) {
                let (g, d) = (multiply(&weight, &unit(tap, taps)), multiply(&input, &unit(at, size)));
                let products: Vec<f64> = g.iter().zip(&d).map(|(g, d)| g * d).collect();
                let wanted: Vec<f64> = (0..m).map(|i| f64::from(u8::from(stride * i + tap == at))).collect();
                assert!(close(&multiply(&output, &products), &wanted), "{filtering:?}, tap {tap}, input {at}");
            }
        }
    }

    #[test]
    fn shared_terms_change_nothing_but_the_work() {
        for filtering in known() {
            let Matrices { output, weight, input } = Matrices::new(filtering);
            let size = filtering.inputs();
            let vector: Vec<f64> = (0..size).map(|k| (k as f64 * 1.7).sin() + 0.3).collect();
            let taps = &vector[..filtering.taps];
            let plain = apply(&Transform::plain(&weight), taps, &(0..taps.len()));
            assert!(close(&plain, &multiply(&weight, taps)), "{filtering:?}");

            for (transform, matrix) in
                [(Transform::sharing_rows(&input), &input), (Transform::sharing_columns(&output), &output)]
            {
                assert!(close(&apply(&transform, &vector, &(0..size)), &multiply(matrix, &vector)), "{filtering:?}");
                let cost = |sum: &Sum| sum.len() - usize::from(sum.iter().any(|(_, c)| *c == 1.0));
                let work = |t: &Transform| t.terms.iter().chain(&t.outputs).map(cost).sum::<usize>();
                assert!(transform.terms.len() <= size, "{filtering:?}");
                assert!(
                    filtering.m == 2 || filtering.points() <= 3 || work(&transform) < work(&Transform::plain(matrix)),
                    "{filtering:?}"
                );
                for (low, high) in [(1, size), (0, size - 2), (2, 3), (0, size - 1)] {
                    let inside = |k: usize| (low..high).contains(&k);
                    let padded: Vec<f64> =
                        vector.iter().enumerate().map(|(k, &x)| if inside(k) { x } else { 0.0 }).collect();
                    let wanted = multiply(matrix, &padded);
                    let mut poisoned = vector.clone();
                    (0..size).filter(|&k| !inside(k)).for_each(|k| poisoned[k] = f64::NAN);
                    assert!(close(&apply(&transform, &poisoned, &(low..high)), &wanted), "{filtering:?}");
                }
            }
        }
    }
}
