//! Multilayer perceptron: two matrix products with an activation in between.

use std::fmt;

use autotune_ir::spec::axis_vars;

use super::{
    Between, Fields, OperandTensor, OperatorFormula, OperatorKind, WorkloadError, WorkloadOperator, check_elements,
    check_positive,
};

pub(super) static KIND: OperatorKind = OperatorKind {
    name: "mlp",
    fields: "m,n,k,h,mid,mid_bias",
    example: "mlp:m=197,n=768,k=768,h=3072,mid=gelu",
    parse,
};

/// A perceptron of two layers,
/// `output[m, n] = Σ act(Σ input[m, k] * weight1[k, h] + mid_bias[h]) * weight2[h, n]`.
///
/// The inner sum is over `k`, the outer one over `h`. It is the feed-forward network of Vaswani et
/// al., "Attention Is All You Need" (2017), section 3.3.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mlp {
    /// Number of rows: batch size, or tokens.
    pub m: usize,
    /// Number of columns of the output.
    pub n: usize,
    /// Number of columns of the input.
    pub k: usize,
    /// Number of hidden units.
    pub h: usize,
    /// Operations between the products.
    pub between: Between,
}

fn parse(fields: &Fields) -> Result<Box<dyn WorkloadOperator>, WorkloadError> {
    let size = |field| fields.required(field);
    let between = Between::read(fields)?;
    Ok(Box::new(Mlp { m: size("m")?, n: size("n")?, k: size("k")?, h: size("h")?, between }))
}

impl WorkloadOperator for Mlp {
    fn kind(&self) -> &'static OperatorKind {
        &KIND
    }

    fn write_fields(&self, f: &mut dyn fmt::Write) -> fmt::Result {
        write!(f, "m={},n={},k={},h={}", self.m, self.n, self.k, self.h)?;
        self.between.write(f)
    }

    fn check(&self) -> Result<(), WorkloadError> {
        let (Self { m, n, k, h, .. }, op) = (*self, KIND.name);
        check_positive(op, &[("m", m), ("n", n), ("k", k), ("h", h)])?;
        self.between.check(op)?;
        let tensors: [(_, &[usize]); 5] =
            [("input", &[m, k]), ("weight1", &[k, h]), ("mid", &[m, h]), ("weight2", &[h, n]), ("output", &[m, n])];
        check_elements(op, &tensors, &[m, k, h])?;
        check_elements(op, &[], &[m, h, n])
    }

    /// Axes `m, h | k`, then `m, n | h`.
    fn formula(&self) -> OperatorFormula {
        let Self { m, n, k, h, between } = *self;
        let tensor = |name, shape, is_constant| OperandTensor { name, shape, is_constant };
        let product = |names: [&'static str; 3], extents: [usize; 3], data, weight| {
            let [row, column, step] = axis_vars();
            let axes = [(names[0], extents[0], false), (names[1], extents[1], false), (names[2], extents[2], true)];
            OperatorFormula::product(
                &axes,
                [(data, vec![row.clone(), step.clone()]), (weight, vec![step, column.clone()])],
                (vec![extents[0], extents[1]], vec![row, column]),
                1,
            )
        };
        let (input, mid) = (tensor("input", vec![m, k], false), tensor("mid", vec![m, h], false));
        let first = product(["m", "h", "k"], [m, h, k], input, tensor("weight1", vec![k, h], true));
        let second = product(["m", "n", "h"], [m, n, h], mid, tensor("weight2", vec![h, n], true));
        between.formula(first, second)
    }
}
