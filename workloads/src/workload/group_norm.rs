//! Group normalisation: groups of channels get mean 0 and variance 1. With one channel per group it
//! is instance normalisation.

use std::fmt;

use autotune_ir::program::{BinaryOp, Expr, UnaryOp};
use autotune_ir::spec::{Reduction, axis_vars};

use super::layer_norm::{EPS, write_eps};
use super::operator::{Computed, element, named_axes};
use super::{
    Fields, OperandTensor, OperatorFormula, OperatorKind, WorkloadError, WorkloadOperator, check_elements,
    check_positive,
};

pub(super) static KIND: OperatorKind = OperatorKind {
    name: "group_norm",
    fields: "n,c,g,s,eps",
    example: "group_norm:n=1,c=64,g=32,s=3136",
    parse: |fields| parse(fields, fields.required("g")?),
};
pub(super) static INSTANCE_KIND: OperatorKind = OperatorKind {
    name: "instance_norm",
    fields: "n,c,s,eps",
    example: "instance_norm:n=1,c=64,s=3136",
    parse: |fields| parse(fields, fields.required("c")?),
};

/// `output[n, c, s] = (input[n, c, s] - mean[n, g]) / sqrt(variance[n, g] + eps) * scale[c] + shift[c]`
///
/// `g` is the group of channel `c` (Wu and He, "Group Normalization", 2018). All spatial positions
/// are one dimension `s`.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct GroupNormWorkload {
    /// Number of images in the batch.
    pub n: usize,
    /// Number of channels per image.
    pub c: usize,
    /// Number of channel groups.
    pub groups: usize,
    /// Number of positions of a channel.
    pub s: usize,
    /// Number that is added to the variance.
    pub eps: f32,
}

fn parse(fields: &Fields, groups: usize) -> Result<Box<dyn WorkloadOperator>, WorkloadError> {
    let (n, eps) = (fields.number("n")?.unwrap_or(1), fields.positive("eps")?.unwrap_or(EPS));
    Ok(Box::new(GroupNormWorkload { n, c: fields.required("c")?, groups, s: fields.required("s")?, eps }))
}

impl WorkloadOperator for GroupNormWorkload {
    fn kind(&self) -> &'static OperatorKind {
        if self.groups == self.c { &INSTANCE_KIND } else { &KIND }
    }

    fn write_fields(&self, f: &mut dyn fmt::Write) -> fmt::Result {
        let Self { n, c, groups, s, eps } = *self;
        match groups == c {
            true => write!(f, "n={n},c={c},s={s}")?,
            false => write!(f, "n={n},c={c},g={groups},s={s}")?,
        }
        write_eps(f, eps)
    }

    fn check(&self) -> Result<(), WorkloadError> {
        let (Self { n, c, groups, s, .. }, op) = (*self, self.kind().name);
        check_positive(op, &[("n", n), ("c", c), ("g", groups), ("s", s)])?;
        if c % groups != 0 {
            let reason = format!("{groups} groups do not divide {c} channels");
            return Err(WorkloadError::Unfit { op, field: "g", reason });
        }
        check_elements(op, &[("input", &[n, c, s])], &[n, c, s])
    }

    /// Axes `n, g, c, s`, with `c` counted within a group. Computes the sum `total`, the `mean`,
    /// the sum `squares` of the centred values, and `one_over`, the inverse of the standard
    /// deviation.
    fn formula(&self) -> OperatorFormula {
        let Self { n, c, groups, s, eps } = *self;
        let [image, group, own, position] = axis_vars();
        let of_group = c / groups;
        let rows = [("n", n, false), ("g", groups, false)];
        let axes = |reduce| named_axes(&[rows[0], rows[1], ("c", of_group, reduce), ("s", s, reduce)]);
        let channel = group.clone() * of_group as i64 + &own;
        let index = vec![image.clone(), channel.clone(), position];
        let of_row = |number| element(number, &[image.clone(), group.clone()]);
        let of_channel = |number| element(number, std::slice::from_ref(&channel));
        let computed = |name, axes, value| Computed { name, axes, value, reduction: Reduction::Sum, dims: vec![0, 1] };
        let sum = |name, value| computed(name, axes(true), value);
        let once = |name, value| computed(name, named_axes(&rows), value);
        let mean = |number| Expr::product(of_row(number), Expr::Const(1.0 / (of_group * s) as f32));

        let input = element(0, &index);
        let centred = Expr::binary(BinaryOp::Sub, input.clone(), of_row(4));
        let square = Expr::product(centred.clone(), centred.clone());
        let one_over = Expr::unary(UnaryOp::Rsqrt, Expr::sum(mean(5), Expr::Const(eps)));
        let given = |name, shape, is_constant| OperandTensor { name, shape, is_constant };
        OperatorFormula {
            operands: vec![
                given("input", vec![n, c, s], false),
                given("scale", vec![c], true),
                given("shift", vec![c], true),
            ],
            computed: vec![
                sum("total", input),
                once("mean", mean(3)),
                sum("squares", square),
                once("one_over", one_over),
            ],
            axes: axes(false),
            value: Expr::sum(Expr::product(Expr::product(centred, of_row(6)), of_channel(1)), of_channel(2)),
            reduction: Reduction::Sum,
            share: None,
            shape: vec![n, c, s],
            index,
            channel: 1,
        }
    }
}
