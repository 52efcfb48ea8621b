//! The matrices of minimal filtering, and one-dimensional transforms as sums that share terms.
//!
//! `F(m, 3)` gives `m` outputs of a filter of 3 taps with `a = m + 2` products: `y = Aᵀ [(G g) ∘ (Bᵀ d)]` is
//! `y[i] = sum over k of g[k] * d[i + k]` (Winograd, "Arithmetic Complexity of Computations", 1980; for images: Lavin and Gray,
//! "Fast Algorithms for Convolutional Neural Networks", 2016). The matrices are those of Toom and Cook: polynomials are
//! multiplied by their values at `a - 1` points and at infinity.

use std::ops::Range;
use std::sync::OnceLock;

use super::TILE_SIZES;

/// Taps of the filter along each axis.
pub const TAPS: usize = 3;

/// The finite points of `F(m, 3)`. Opposite points let transforms share terms; among points that f32 holds exactly, these gave
/// the smallest errors of those tried.
fn points(m: usize) -> &'static [f64] {
    match m {
        2 => &[0.0, 1.0, -1.0],
        3 => &[0.5, -0.5, 1.5, -1.5],
        4 => &[0.0, 0.625, -0.625, 1.5, -1.5],
        _ => &[0.0, 0.5, -0.5, 1.0, -1.0, 2.0, -2.0],
    }
}

/// A matrix as its rows.
pub type Matrix = Vec<Vec<f64>>;

/// The matrices of `F(m, 3)`.
#[derive(Clone, Debug, PartialEq)]
pub struct Matrices {
    /// `Aᵀ`, `m × a`: from products to outputs.
    pub output: Matrix,
    /// `G`, `a × 3`: of the filter.
    pub weight: Matrix,
    /// `Bᵀ`, `a × a`: of the input.
    pub input: Matrix,
}

/// Coefficients, lowest power first, of the product of `x - point` over `points`.
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

impl Matrices {
    /// The matrices for tiles of `m` outputs, of which there are 2, 3, 4 and 6.
    ///
    /// For point `p` with `q` running over the others: the row of `Bᵀ` has the coefficients of `∏ (x - q)`, that of `G` is
    /// `(1, p, p²) / ∏ (p - q)`, the column of `Aᵀ` is `(1, p, .., pᵐ⁻¹)`. For infinity: the coefficients of `∏ (x - p)` over
    /// all points, `(0, 0, 1)`, `(0, .., 0, 1)`.
    pub fn new(m: usize) -> Self {
        let points = points(m);
        let size = points.len() + 1;
        let others = |k: usize| points.iter().enumerate().filter(move |&(l, _)| l != k).map(|(_, &q)| q);
        let padded = |mut row: Vec<f64>| {
            row.resize(size, 0.0);
            row
        };
        let powers = |p: f64, count: usize| (0..count).map(move |i| p.powi(i as i32));
        let unit = |at: usize, len: usize| (0..len).map(move |i| f64::from(u8::from(i == at)));
        let mut input: Matrix = (0..points.len()).map(|k| padded(product_of_roots(others(k)))).collect();
        input.push(padded(product_of_roots(points.iter().copied())));
        let scaled = |k: usize| {
            let scale: f64 = others(k).map(|q| points[k] - q).product();
            powers(points[k], TAPS).map(|x| x / scale).collect()
        };
        let mut weight: Matrix = (0..points.len()).map(scaled).collect();
        weight.push(unit(TAPS - 1, TAPS).collect());
        let last = unit(m - 1, m);
        let output =
            last.enumerate().map(|(i, infinity)| points.iter().map(|p| p.powi(i as i32)).chain([infinity]).collect());
        Self { output: output.collect(), weight, input }
    }
}

/// The transforms of tiles of some size, and the matrices that they multiply by.
#[derive(Debug)]
pub struct Transforms {
    /// The matrices.
    pub matrices: Matrices,
    /// By `Aᵀ`.
    pub output: Transform,
    /// By `G`.
    pub weight: Transform,
    /// By `Bᵀ`.
    pub input: Transform,
}

impl Transforms {
    /// Those for tiles of `m` outputs, which are made once.
    pub fn of(m: usize) -> &'static Self {
        static KNOWN: [OnceLock<Transforms>; TILE_SIZES.len()] = [const { OnceLock::new() }; TILE_SIZES.len()];
        let size = TILE_SIZES.iter().position(|&size| size == m).unwrap_or(TILE_SIZES.len() - 1);
        KNOWN[size].get_or_init(|| {
            let matrices = Matrices::new(TILE_SIZES[size]);
            Self {
                output: Transform::sharing_columns(&matrices.output),
                weight: Transform::plain(&matrices.weight),
                input: Transform::sharing_rows(&matrices.input),
                matrices,
            }
        })
    }
}

/// What a sum is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// An element of the vector that is transformed.
    Input(usize),
    /// A term that several outputs share.
    Term(usize),
}

/// A sum of sources with factors, none of them zero.
pub type Sum = Vec<(Source, f64)>;

/// The product of a matrix and a vector, computed as terms first and then outputs made of them and of the inputs.
#[derive(Clone, Debug, PartialEq)]
pub struct Transform {
    /// Sums of inputs that several outputs use.
    pub terms: Vec<Sum>,
    /// One sum per row of the matrix.
    pub outputs: Vec<Sum>,
}

fn sum_of(row: &[f64]) -> Sum {
    row.iter().enumerate().filter(|(_, c)| **c != 0.0).map(|(k, &c)| (Source::Input(k), c)).collect()
}

fn transposed(matrix: &Matrix) -> Matrix {
    (0..matrix.first().map_or(0, Vec::len)).map(|k| matrix.iter().map(|row| row[k]).collect()).collect()
}

/// The matrix as a product of two. Neighbouring rows that differ in signs only have their common part and their opposite one as rows
/// of the second, `p = x + y`, `q = x - y`; any other row is one itself.
fn factors(matrix: &Matrix) -> [Matrix; 2] {
    let (mut columns, mut rows) = (Matrix::new(), Matrix::new());
    let unit = |at: usize| (0..matrix.len()).map(move |k| f64::from(u8::from(k == at)));
    let mut k = 0;
    while k < matrix.len() {
        let row = &matrix[k];
        let is_alike = |other: &&Vec<f64>| row != *other && row.iter().zip(*other).all(|(a, b)| a.abs() == b.abs());
        let Some(other) = matrix.get(k + 1).filter(is_alike) else {
            columns.push(unit(k).collect());
            rows.push(row.clone());
            k += 1;
            continue;
        };
        for sign in [1.0, -1.0] {
            columns.push(unit(k).zip(unit(k + 1)).map(|(a, b)| a + sign * b).collect());
            rows.push(row.iter().zip(other).map(|(a, b)| (a + sign * b) / 2.0).collect());
        }
        k += 2;
    }
    [transposed(&columns), rows]
}

impl Transform {
    /// Every output by itself.
    pub fn plain(matrix: &Matrix) -> Self {
        Self { terms: Vec::new(), outputs: matrix.iter().map(|row| sum_of(row)).collect() }
    }

    /// Neighbouring rows that differ in signs only share terms. So do the rows of `Bᵀ` for opposite points.
    pub fn sharing_rows(matrix: &Matrix) -> Self {
        let [outer, inner] = factors(matrix);
        Self::product(&outer, &inner)
    }

    /// Neighbouring columns that differ in signs only are added and subtracted first, and each output uses one of the two.
    /// So are the columns of `Aᵀ` for opposite points.
    pub fn sharing_columns(matrix: &Matrix) -> Self {
        let [outer, inner] = factors(&transposed(matrix)).map(|factor| transposed(&factor));
        Self::product(&inner, &outer)
    }

    /// The rows of the second matrix as terms, but for single inputs and what an output consists of.
    fn product(outer: &Matrix, inner: &Matrix) -> Self {
        let mut terms = Vec::new();
        let mut source = |(k, row): (usize, &Vec<f64>)| {
            let sum = sum_of(row);
            let is_output = outer.iter().any(|uses| uses[k] != 0.0 && uses.iter().filter(|c| **c != 0.0).count() == 1);
            if sum.len() == 1 || is_output {
                return sum;
            }
            terms.push(sum);
            vec![(Source::Term(terms.len() - 1), 1.0)]
        };
        let sources: Vec<Sum> = inner.iter().enumerate().map(&mut source).collect();
        let scaled = |(c, sum): (&f64, &Sum)| sum.iter().map(|&(s, factor)| (s, c * factor)).collect::<Sum>();
        let used = |row: &Vec<f64>| row.iter().zip(&sources).filter(|(c, _)| **c != 0.0).flat_map(scaled).collect();
        Self { outputs: outer.iter().map(used).collect(), terms }
    }

    /// Says what may be other than zero if the vector is zero outside `inputs`.
    pub fn live(&self, inputs: &Range<usize>) -> impl Fn(Source) -> bool {
        let is_live = |source: Source, terms: u64| match source {
            Source::Input(k) => inputs.contains(&k),
            Source::Term(k) => terms >> k & 1 == 1,
        };
        // Terms are sums of what stands before them.
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

    /// Without what is zero for a vector that is zero outside `inputs`.
    fn apply(transform: &Transform, vector: &[f64], inputs: &Range<usize>) -> Vec<f64> {
        let is_live = transform.live(inputs);
        let value = |sum: &Sum, terms: &[f64]| {
            let source = |source| match source {
                Source::Input(k) => vector[k],
                Source::Term(k) => terms[k],
            };
            sum.iter().filter(|part| is_live(part.0)).map(|&(s, c)| c * source(s)).sum()
        };
        let terms: Vec<f64> = transform.terms.iter().map(|sum| value(sum, &[])).collect();
        transform.outputs.iter().map(|sum| value(sum, &terms)).collect()
    }

    fn close(a: &[f64], b: &[f64]) -> bool {
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-10)
    }

    /// Products of a unit filter and a unit input show every coefficient of the bilinear form.
    #[test]
    fn every_product_goes_where_the_filter_puts_it() {
        for m in [2, 3, 4, 6] {
            let Matrices { output, weight, input } = Matrices::new(m);
            for tap in 0..TAPS {
                for at in 0..m + 2 {
                    let unit = |i: usize, len: usize| (0..len).map(|k| f64::from(u8::from(k == i))).collect::<Vec<_>>();
                    let (g, d) = (multiply(&weight, &unit(tap, TAPS)), multiply(&input, &unit(at, m + 2)));
                    let products: Vec<f64> = g.iter().zip(&d).map(|(g, d)| g * d).collect();
                    let wanted: Vec<f64> = (0..m).map(|i| f64::from(u8::from(i + tap == at))).collect();
                    assert!(close(&multiply(&output, &products), &wanted), "m {m}, tap {tap}, input {at}");
                }
            }
        }
    }

    #[test]
    fn shared_terms_change_nothing_but_the_work() {
        for m in [2, 3, 4, 6] {
            let Matrices { output, weight, input } = Matrices::new(m);
            let vector: Vec<f64> = (0..m + 2).map(|k| (k as f64 * 1.7).sin() + 0.3).collect();
            let taps = &vector[..TAPS];
            assert!(close(&apply(&Transform::plain(&weight), taps, &(0..TAPS)), &multiply(&weight, taps)));
            for (transform, matrix) in
                [(Transform::sharing_rows(&input), &input), (Transform::sharing_columns(&output), &output)]
            {
                assert!(close(&apply(&transform, &vector, &(0..m + 2)), &multiply(matrix, &vector)), "m {m}");
                let cost = |sum: &Sum| sum.len() - usize::from(sum.iter().any(|(_, c)| *c == 1.0));
                let work = |t: &Transform| t.terms.iter().chain(&t.outputs).map(cost).sum::<usize>();
                assert!(m == 2 || work(&transform) < work(&Transform::plain(matrix)), "m {m}");
                for (low, high) in [(1, m + 2), (0, m), (2, 3), (0, m + 1)] {
                    let inside = |k: usize| (low..high).contains(&k);
                    let padded: Vec<f64> =
                        vector.iter().enumerate().map(|(k, &x)| if inside(k) { x } else { 0.0 }).collect();
                    let wanted = multiply(matrix, &padded);
                    let mut poisoned = vector.clone();
                    (0..m + 2).filter(|&k| !inside(k)).for_each(|k| poisoned[k] = f64::NAN);
                    assert!(close(&apply(&transform, &poisoned, &(low..high)), &wanted), "m {m}");
                }
            }
        }
    }
}
