//! Local response normalisation: values are divided by a power of the sum of squares over adjacent
//! channels.

use std::fmt;

use autotune_ir::program::{Expr, UnaryOp};
use autotune_ir::spec::{Reduction, axis_vars};

use super::operator::{Computed, element, named_axes};
use super::{
    Fields, OperandTensor, OperatorFormula, OperatorKind, WorkloadError, WorkloadOperator, check_elements,
    check_positive,
};

pub(super) static KIND: OperatorKind = OperatorKind {
    name: "local_response_norm",
    fields: "n,c,s,size,alpha,beta,shift",
    example: "local_response_norm:n=1,c=64,s=3136,size=5",
    parse,
};

const ALPHA: f32 = 1e-4;
const BETA: f32 = 0.75;
const SHIFT: f32 = 1.0;

/// `output[n, c, s] = input[n, c, s] / (shift + alpha / size * Σ input[n, c', s]²) ^ beta`
///
/// The sum is over the `size` channels `c'` around `c`, starting `(size - 1) / 2` before it. The
/// operator is that of Krizhevsky et al. (2012), section 3.3, as defined by ONNX. All spatial
/// positions are one dimension `s`.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct LocalResponseNormWorkload {
    /// Number of images in the batch.
    pub n: usize,
    /// Number of channels per image.
    pub c: usize,
    /// Number of positions of a channel.
    pub s: usize,
    /// Number of channels that are summed over.
    pub size: usize,
    /// Factor of the mean square.
    pub alpha: f32,
    /// Exponent of the denominator.
    pub beta: f32,
    /// Number that is added to the scaled mean square.
    pub shift: f32,
}

fn parse(fields: &Fields) -> Result<Box<dyn WorkloadOperator>, WorkloadError> {
    let positive = |field, default| Ok(fields.positive(field)?.unwrap_or(default));
    Ok(Box::new(LocalResponseNormWorkload {
        n: fields.number("n")?.unwrap_or(1),
        c: fields.required("c")?,
        s: fields.required("s")?,
        size: fields.required("size")?,
        alpha: positive("alpha", ALPHA)?,
        beta: positive("beta", BETA)?,
        shift: positive("shift", SHIFT)?,
    }))
}

impl WorkloadOperator for LocalResponseNormWorkload {
    fn kind(&self) -> &'static OperatorKind {
        &KIND
    }

    fn write_fields(&self, f: &mut dyn fmt::Write) -> fmt::Result {
        let Self { n, c, s, size, .. } = *self;
        write!(f, "n={n},c={c},s={s},size={size}")?;
        let numbers = [("alpha", self.alpha, ALPHA), ("beta", self.beta, BETA), ("shift", self.shift, SHIFT)];
        let mut given = numbers.into_iter().filter(|(_, value, default)| value != default);
        given.try_for_each(|(name, value, _)| write!(f, ",{name}={value:e}"))
    }

    fn check(&self) -> Result<(), WorkloadError> {
        let Self { n, c, s, size, .. } = *self;
        check_positive(KIND.name, &[("n", n), ("c", c), ("s", s), ("size", size)])?;
        if size > c {
            let reason = format!("{size} exceeds the number of channels ({c})");
            return Err(WorkloadError::Unfit { op: KIND.name, field: "size", reason });
        }
        check_elements(KIND.name, &[("input", &[n, c, s])], &[n, c, s, size])
    }

    /// Axes `n, c, s`. Computes `squares`, the sum over the channels around.
    fn formula(&self) -> OperatorFormula {
        let Self { n, c, s, size, alpha, beta, shift } = *self;
        let [image, channel, position, tap] = axis_vars();
        let rows = [("n", n, false), ("c", c, false), ("s", s, false)];
        let index = vec![image.clone(), channel.clone(), position.clone()];
        let around = channel.clone() + &tap + -((size as i64 - 1) / 2);
        let near = element(0, &[image, around, position]);

        let squares = Computed {
            name: "squares",
            axes: named_axes(&[rows[0], rows[1], rows[2], ("t", size, true)]),
            value: Expr::product(near.clone(), near),
            reduction: Reduction::Sum,
            dims: vec![0, 1, 2],
        };
        let mean = Expr::product(element(1, &index), Expr::Const(alpha / size as f32));
        let log = Expr::unary(UnaryOp::Log, Expr::sum(mean, Expr::Const(shift)));
        let power = Expr::unary(UnaryOp::Exp, Expr::product(log, Expr::Const(-beta)));
        OperatorFormula {
            operands: vec![OperandTensor { name: "input", shape: vec![n, c, s], is_constant: false }],
            computed: vec![squares],
            axes: named_axes(&rows),
            value: Expr::product(element(0, &index), power),
            reduction: Reduction::Sum,
            share: None,
            shape: vec![n, c, s],
            index,
            channel: 1,
        }
    }
}
