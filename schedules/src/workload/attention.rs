//! Attention: scores, their softmax, and the values weighted by it, as one program.

use std::fmt;

use autotune_ir::program::{BinaryOp, Expr, UnaryOp};
use autotune_ir::spec::{Axis, Reduction, axis_vars};

use super::operator::{Computed, element, named_axes};
use super::{Fields, Formula, Operator, OperatorKind, Tensor, WorkloadError, check_elements, check_positive};

/// In the registry.
pub(super) static KIND: OperatorKind =
    OperatorKind { name: "attention", fields: "b,m,n,k,d", example: "attention:b=12,m=197,n=197,k=64", parse };

/// `output[b, m, d] = Σ softmax(Σ query[b, m, k] * key[b, n, k] / sqrt(k)) * value[b, n, d]`, the inner sum over `k`, softmax and the
/// outer sum over `n`; Vaswani et al., "Attention Is All You Need" (2017), equation 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Attention {
    /// Batch times heads.
    pub b: usize,
    /// Queries.
    pub m: usize,
    /// Keys and values.
    pub n: usize,
    /// Elements of a query and of a key.
    pub k: usize,
    /// Elements of a value.
    pub d: usize,
}

fn parse(fields: &Fields) -> Result<Box<dyn Operator>, WorkloadError> {
    let size = |field| fields.required(field);
    let (k, d) = (size("k")?, fields.number("d")?);
    let b = fields.number("b")?.unwrap_or(1);
    Ok(Box::new(Attention { b, m: size("m")?, n: size("n")?, k, d: d.unwrap_or(k) }))
}

impl Operator for Attention {
    fn kind(&self) -> &'static OperatorKind {
        &KIND
    }

    fn write_fields(&self, f: &mut dyn fmt::Write) -> fmt::Result {
        let Self { b, m, n, k, d } = *self;
        write!(f, "b={b},m={m},n={n},k={k}")?;
        if d == k { Ok(()) } else { write!(f, ",d={d}") }
    }

    fn check(&self) -> Result<(), WorkloadError> {
        let Self { b, m, n, k, d } = *self;
        check_positive(KIND.name, &[("b", b), ("m", m), ("n", n), ("k", k), ("d", d)])?;
        let tensors: [(_, &[usize]); 3] = [("query", &[b, m, k]), ("key", &[b, n, k]), ("value", &[b, n, d])];
        check_elements(KIND.name, &tensors, &[b, m, n, k + d])
    }

    /// Rows `b, m`. The keys are transposed first, so that products go along them; then come `scores`, the `largest`, `exp`, its `total`,
    /// one over that, and the `weights`.
    fn formula(&self) -> Formula {
        let Self { b, m, n, k, d } = *self;
        let [batch, row, first, second] = axis_vars();
        let rows = [("b", b, false), ("m", m, false)];
        let with = |rest: &[(&'static str, usize, bool)]| named_axes(&[&rows[..], rest].concat());
        let along = |reduce| with(&[("n", n, reduce)]);
        let of_row = |number| element(number, &[batch.clone(), row.clone()]);
        let of_pair = |number| element(number, &[batch.clone(), row.clone(), first.clone()]);
        let computed = |name, axes: Vec<Axis>, (reduction, value): (Reduction, Expr)| {
            let dims = (0..axes.len()).filter(|&axis| !axes[axis].reduce).collect();
            Computed { name, axes, value, reduction, dims }
        };
        let sum = |value| (Reduction::Sum, value);

        let key = element(1, &[batch.clone(), first.clone(), row.clone()]);
        let query = element(0, &[batch.clone(), row.clone(), second.clone()]);
        let product = Expr::product(query, element(3, &[batch.clone(), second.clone(), first.clone()]));
        let below = Expr::binary(BinaryOp::Sub, of_pair(4), of_row(5));
        let exp = Expr::unary(UnaryOp::Exp, Expr::product(below, Expr::Const(1.0 / (k as f32).sqrt())));
        let inverse = Expr::binary(BinaryOp::Div, Expr::Const(1.0), of_row(7));
        let weight = element(9, &[batch.clone(), row.clone(), second.clone()]);
        let given = |name, shape| Tensor { name, shape, is_constant: false };
        Formula {
            operands: vec![given("query", vec![b, m, k]), given("key", vec![b, n, k]), given("value", vec![b, n, d])],
            computed: vec![
                computed("keys", named_axes(&[rows[0], ("k", k, false), ("n", n, false)]), sum(key)),
                computed("scores", with(&[("n", n, false), ("k", k, true)]), sum(product)),
                computed("largest", along(true), (Reduction::Max, of_pair(4))),
                computed("exp", along(false), sum(exp)),
                computed("total", along(true), sum(of_pair(6))),
                computed("scale", named_axes(&rows), sum(inverse)),
                computed("weights", along(false), sum(Expr::product(of_pair(6), of_row(8)))),
            ],
            axes: with(&[("d", d, false), ("n", n, true)]),
            value: Expr::product(weight, element(2, &[batch.clone(), second, first.clone()])),
            reduction: Reduction::Sum,
            shape: vec![b, m, d],
            index: vec![batch, row, first],
            channel: 2,
        }
    }
}
