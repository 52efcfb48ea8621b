//! Recognition of a softmax between two contractions.

use autotune_ir::affine::Affine;
use autotune_ir::program::{Access, BinaryOp, Expr, UnaryOp};
use autotune_ir::spec::{CausalMask, Equation, Reduction, Spec, TensorSource};
use autotune_workloads::axes::Axes;

/// Positions of the equations of a softmax of scores, which follow each other in this order:
///
/// ```text
/// scores[m, n]  = Σ query[m, k] * keys[k, n]
/// largest[m]    = max masked(scores[m, n])
/// exp[m, n]     = exp(masked(scores[m, n]) - largest[m])
/// total[m]      = Σ exp[m, n]
/// scale[m]      = 1 / total[m]
/// weights[m, n] = exp[m, n] * scale[m]
/// sum[m, d]     = Σ weights[m, n] * value[n, d]
/// ```
///
/// The exponent may have a constant factor.
#[derive(Clone, Debug)]
pub(super) struct SoftmaxEquations {
    pub(super) scores: usize,
    pub(super) largest: usize,
    pub(super) total: usize,
    pub(super) scale: usize,
    /// Keys that a causal mask hides, if it is the only mask.
    pub(super) later: Option<LaterKeys>,
    /// Factor of the exponent: `exp((score - largest) * factor)`.
    factor: Option<f32>,
}

/// Keys that are later than a query, which a causal mask hides.
#[derive(Clone, Debug)]
pub(super) struct LaterKeys {
    /// Distance of a key from the last visible one; positive for later keys.
    pub(super) distance: Affine,
    /// Score without the mask.
    pub(super) score: Expr,
}

impl LaterKeys {
    fn of(spec: &Spec, largest: &Equation) -> Option<Self> {
        let CausalMask { earlier, mut later, score } = CausalMask::of(spec, largest, &largest.value)?;
        later.add_scaled(&earlier, -1);
        Some(Self { distance: later, score: score.clone() })
    }
}

impl SoftmaxEquations {
    /// Returns the softmax of a spec that ends in these equations and a map of the last sums.
    pub(super) fn of(spec: &Spec) -> Option<Self> {
        let scores = spec.equations.len().checked_sub(8)?;
        let [of_scores, largest, exp, total, scale, weights, sum, _] = &spec.equations[scores..] else { return None };
        let factor = factor(largest, exp)?;

        let load = |equation: &Equation| Expr::Load(equation.output.clone());
        let reads = |equation: &Equation, from: &Equation| equation.loads().into_iter().all(|it| *it == from.output);
        let is_sum = total.reduces() && total.reduction == Reduction::Sum && total.value == load(exp);
        let is_largest = largest.reduces() && matches!(largest.reduction, Reduction::Max | Reduction::MaxNumber);
        let of_row = |equation: &Equation| !equation.reduces() && equation.axes.len() + 1 == largest.axes.len();
        let is_weight = weights.value == Expr::product(load(exp), load(scale)) && !weights.reduces();

        // All equations must share the rows and, as their last axis, the keys.
        let keys = largest.axes.len().checked_sub(1)?;
        let are_alike = [exp, total, weights, of_scores].into_iter().all(|equation| {
            let axes = equation.axes.get(..=keys);
            axes.is_some_and(|axes| {
                axes.iter().zip(&largest.axes).all(|(a, b)| (a.name, a.extent) == (b.name, b.extent))
            })
        });
        let are_last = largest.axes[keys].reduce && largest.axes[..keys].iter().all(|axis| !axis.reduce);
        let reads_scores =
            |access: &Access| *access == of_scores.output || spec.tensor(access).source != TensorSource::Computed;
        let is_softmax =
            is_largest && is_sum && of_row(scale) && reads(scale, total) && is_weight && are_alike && are_last;
        let is_fit = is_softmax
            && largest.loads().into_iter().all(reads_scores)
            && leaves_least(&largest.value, &of_scores.output)
            && sum.loads().first().is_some_and(|data| data.buffer == weights.output.buffer)
            && Axes::of_equation(spec, of_scores).is_some();
        is_fit.then(|| {
            let later = LaterKeys::of(spec, largest);
            Self { scores, largest: scores + 1, total: scores + 3, scale: scores + 4, later, factor }
        })
    }

    /// Returns `exp((score - largest) * factor)`.
    pub(super) fn exp(&self, score: Expr, largest: Expr) -> Expr {
        exp(score, largest, self.factor)
    }

    /// Returns the factor of exponents of 2: `2^(x * factor)` is `exp(x)` with its own factor.
    pub(super) fn factor_of_two(&self) -> f32 {
        self.factor.unwrap_or(1.0) * std::f32::consts::LOG2_E
    }
}

fn exp(score: Expr, largest: Expr, factor: Option<f32>) -> Expr {
    let below = Expr::binary(BinaryOp::Sub, score, largest);
    Expr::unary(UnaryOp::Exp, factor.into_iter().map(Expr::Const).fold(below, Expr::product))
}

/// Returns the factor of an exponential, which may have none. `None` altogether if the equation is
/// not the exponential of the difference between what `largest` reduces and its maximum.
fn factor(largest: &Equation, of: &Equation) -> Option<Option<f32>> {
    let factor = match &of.value {
        Expr::Unary(UnaryOp::Exp, exponent) => match &**exponent {
            Expr::Binary(BinaryOp::Mul, factors) => match factors[1] {
                Expr::Const(factor) if factor > 0.0 => Some(factor),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    };
    let is_it = of.value == exp(largest.value.clone(), Expr::Load(largest.output.clone()), factor);
    (is_it && !of.reduces()).then_some(factor)
}

/// True if the map of a score keeps minus infinity, or turns it into the least number. Keys past
/// the end get a score of minus infinity, which must not count.
fn leaves_least(value: &Expr, scores: &Access) -> bool {
    let has_score = |value: &Expr| value.any(&|of| matches!(of, Expr::Load(access) if access == scores));
    match value {
        Expr::Load(access) => access == scores,
        Expr::Binary(BinaryOp::Mul, of) => {
            leaves_least(&of[0], scores) && matches!(of[1], Expr::Const(factor) if factor > 0.0)
        }
        Expr::Binary(BinaryOp::Add, of) => leaves_least(&of[0], scores) && !has_score(&of[1]),
        Expr::Select(_, of) => {
            let [a, b, then, otherwise] = &**of;
            let is_least = matches!(then, Expr::Const(least) if *least <= f32::MIN);
            !has_score(a) && !has_score(b) && is_least && leaves_least(otherwise, scores)
        }
        _ => false,
    }
}
