//! Attention as one program: scores, their softmax, and the sum of values weighted by it.

use std::fmt;

use autotune_ir::program::{BinaryOp, Compare, Expr, UnaryOp};
use autotune_ir::spec::{Axis, Reduction};
use autotune_ir::{Affine, VarId};

use super::operator::{Computed, Table, element, named_axes};
use super::{
    Fields, OperandTensor, OperatorFormula, OperatorKind, WorkloadError, WorkloadOperator, check_elements,
    check_positive,
};

pub(super) static KIND: OperatorKind = OperatorKind {
    name: "attention",
    fields: "b,h,m,n,k,d,mask,causal",
    example: "attention:b=12,m=197,n=197,k=64",
    parse,
};

const MASKS: [(&str, Mask); 5] = [
    ("none", Mask::None),
    ("row", Mask::Row),
    ("rows", Mask::Rows),
    ("matrix", Mask::Matrix),
    ("matrices", Mask::Matrices),
];

/// Maximum number of keys for a causal mask, whose positions are in a table.
const MOST_POSITIONS: usize = 1 << 14;

/// Shape of the mask that is added to scores. It is broadcast along the dimensions that it lacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mask {
    /// Nothing is added to scores.
    #[default]
    None,
    /// `[n]`: the same for every query.
    Row,
    /// `[b, n]`: the same for every head and query, e.g. for sentences of different lengths.
    Rows,
    /// `[m, n]`: the same for every head.
    Matrix,
    /// `[b, m, n]`: one element per batch, query and key.
    Matrices,
}

/// `output[b, h, m, d] = Σ softmax(Σ query[b, h, m, k] * key[b, h, n, k] / sqrt(k) + mask[..]) * value[b, h, n, d]`
///
/// The inner sum is over `k`, the softmax and the outer sum over `n` (Vaswani et al., "Attention Is
/// All You Need", 2017, equation 1). If `h` is 1, tensors lack the dimension of heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AttentionWorkload {
    /// Batch size, times heads if the mask does not distinguish them.
    pub b: usize,
    /// Number of heads, if the mask has a batch dimension but no heads; else 1.
    pub h: usize,
    /// Number of queries per head.
    pub m: usize,
    /// Number of keys and values per head.
    pub n: usize,
    /// Number of elements of a query or key.
    pub k: usize,
    /// Number of elements of a value.
    pub d: usize,
    /// Shape of the mask.
    pub mask: Mask,
    /// True if queries ignore later keys. The last query and the last key have the same position.
    pub causal: bool,
}

impl AttentionWorkload {
    /// Creates an attention of all queries to all keys, without a mask.
    pub fn new(b: usize, [m, n]: [usize; 2], [k, d]: [usize; 2]) -> Self {
        Self { b, h: 1, m, n, k, d, mask: Mask::None, causal: false }
    }

    /// Returns the axes of batch and heads.
    fn outer(&self) -> Vec<(&'static str, usize, bool)> {
        let heads = (self.h != 1).then_some(("h", self.h, false));
        [("b", self.b, false)].into_iter().chain(heads).collect()
    }

    /// Returns the mask, and its element for a batch, a query and a key.
    fn mask(&self, [batch, query, key]: [&Affine; 3]) -> Option<(OperandTensor, Expr)> {
        let Self { b, m, n, .. } = *self;
        let (shape, index) = match self.mask {
            Mask::None => return None,
            Mask::Row => (vec![n], vec![key]),
            Mask::Rows => (vec![b, n], vec![batch, key]),
            Mask::Matrix => (vec![m, n], vec![query, key]),
            Mask::Matrices => (vec![b, m, n], vec![batch, query, key]),
        };
        let index: Vec<Affine> = index.into_iter().cloned().collect();
        Some((OperandTensor { name: "mask", shape, is_constant: false }, element(3, &index)))
    }

    /// Returns the score of a query and a key that is not later, else a score whose weight is zero.
    fn earlier(&self, table: usize, [query, key]: [Affine; 2], score: Expr) -> Expr {
        let own = query + (self.n - self.m) as i64;
        let positions = [own, key].map(|at| element(table, &[at]));
        Expr::select(Compare::Less, positions, Expr::Const(f32::MIN), score)
    }
}

fn parse(fields: &Fields) -> Result<Box<dyn WorkloadOperator>, WorkloadError> {
    let size = |field| fields.required(field);
    let (k, d) = (size("k")?, fields.number("d")?);
    let [b, h] = [fields.number("b")?, fields.number("h")?].map(|size| size.unwrap_or(1));
    let mask = fields.word("mask", &MASKS, "a shape of the mask (none, row, rows, matrix or matrices)")?;
    let (mask, causal) = (mask.unwrap_or_default(), fields.flag("causal")?);
    Ok(Box::new(AttentionWorkload { b, h, m: size("m")?, n: size("n")?, k, d: d.unwrap_or(k), mask, causal }))
}

impl WorkloadOperator for AttentionWorkload {
    fn kind(&self) -> &'static OperatorKind {
        &KIND
    }

    fn write_fields(&self, f: &mut dyn fmt::Write) -> fmt::Result {
        let Self { b, h, m, n, k, d, mask, causal } = *self;
        write!(f, "b={b}")?;
        if h != 1 {
            write!(f, ",h={h}")?;
        }
        write!(f, ",m={m},n={n},k={k}")?;
        if d != k {
            write!(f, ",d={d}")?;
        }
        if let Some((word, _)) = MASKS.iter().find(|known| known.1 == mask && mask != Mask::None) {
            write!(f, ",mask={word}")?;
        }
        if causal { f.write_str(",causal") } else { Ok(()) }
    }

    fn check(&self) -> Result<(), WorkloadError> {
        let (Self { b, h, m, n, k, d, mask, causal }, op) = (*self, KIND.name);
        check_positive(op, &[("b", b), ("h", h), ("m", m), ("n", n), ("k", k), ("d", d)])?;
        let unfit = |field, reason: &str| Err(WorkloadError::Unfit { op, field, reason: reason.into() });
        if h != 1 && !matches!(mask, Mask::Rows | Mask::Matrices) {
            return unfit("h", "heads are separate only with mask=rows or mask=matrices: multiply b by h instead");
        }
        if causal && m > n {
            return unfit("causal", "needs at least as many keys (n) as queries (m)");
        }
        if causal && n > MOST_POSITIONS {
            return unfit("causal", "too many keys (n) for a causal mask");
        }
        let tensors: [(_, &[usize]); 3] = [("query", &[b, h, m, k]), ("key", &[b, h, n, k]), ("value", &[b, h, n, d])];
        check_elements(op, &tensors, &[b, h, m, n, k + d])
    }

    /// Rows `b, h, m`.
    ///
    /// The keys are transposed first, so that vectors go along keys in the product, except for a
    /// single query, which reads each key once. Then come `scores`, `largest`, `exp`, its `total`,
    /// the reciprocal of that, and the `weights`.
    fn formula(&self) -> OperatorFormula {
        let Self { m, n, k, d, .. } = *self;
        let outer = self.outer();
        let rows = [&outer[..], &[("m", m, false)]].concat();
        let with = |rest: &[(&'static str, usize, bool)]| named_axes(&[&rows[..], rest].concat());
        let along = |reduce| with(&[("n", n, reduce)]);
        let axis = |axis: usize| Affine::var(VarId(axis as u32));
        // Returns an element at the first `axes` axes and some others.
        let at = |number: usize, axes: usize, others: &[usize]| {
            let index: Vec<Affine> = (0..axes).chain(others.iter().copied()).map(axis).collect();
            element(number, &index)
        };
        let (batch, row) = (outer.len(), outer.len());
        let (first, second) = (row + 1, row + 2);
        let (mask, masked) = self.mask([&axis(0), &axis(row), &axis(first)]).unzip();
        let (keys, is_transposed) = (3 + usize::from(mask.is_some()), m > 1);
        let scores = keys + usize::from(is_transposed);
        let table = scores + 6;
        let of_row = |number| at(number, row + 1, &[]);
        let of_pair = |number| at(number, first + 1, &[]);
        let computed = |name, axes: Vec<Axis>, (reduction, value): (Reduction, Expr)| {
            let dims = (0..axes.len()).filter(|&axis| !axes[axis].reduce).collect();
            Computed { name, axes, value, reduction, dims }
        };
        let sum = |value| (Reduction::Sum, value);

        let key = at(1, batch, &[batch + 1, batch]);
        let other = if is_transposed { at(keys, batch, &[second, first]) } else { at(1, batch, &[first, second]) };
        let product = Expr::product(at(0, row + 1, &[second]), other);
        let [score, largest] = [of_pair(scores), of_row(scores + 1)];
        let factor = Expr::Const(1.0 / (k as f32).sqrt());
        let below = |score| Expr::binary(BinaryOp::Sub, score, largest);
        let is_plain = masked.is_none() && !self.causal;
        let (score, below) = match is_plain {
            true => (score.clone(), Expr::product(below(score), factor)),
            false => {
                let score = Expr::product(score, factor);
                let score = masked.into_iter().fold(score, Expr::sum);
                let score = if self.causal { self.earlier(table, [axis(row), axis(first)], score) } else { score };
                (score.clone(), below(score))
            }
        };
        let inverse = Expr::binary(BinaryOp::Div, Expr::Const(1.0), of_row(scores + 3));
        let weight = Expr::product(of_pair(scores + 2), of_row(scores + 4));
        let transposed =
            computed("keys", named_axes(&[&outer[..], &[("k", k, false), ("n", n, false)]].concat()), sum(key));
        let computed = [
            computed("scores", with(&[("n", n, false), ("k", k, true)]), sum(product)),
            computed("largest", along(true), (Reduction::MaxNumber, score)),
            computed("exp", along(false), sum(Expr::unary(UnaryOp::Exp, below))),
            computed("total", along(true), sum(of_pair(scores + 2))),
            computed("scale", named_axes(&rows), sum(inverse)),
            computed("weights", along(false), sum(weight)),
        ];

        let shape = |rest: [usize; 2]| outer.iter().map(|axis| axis.1).chain(rest).collect::<Vec<_>>();
        let given = |name, rest| OperandTensor { name, shape: shape(rest), is_constant: false };
        let operands = [given("query", [m, k]), given("key", [n, k]), given("value", [n, d])];
        OperatorFormula {
            operands: operands.into_iter().chain(mask).collect(),
            computed: is_transposed.then_some(transposed).into_iter().chain(computed).collect(),
            axes: with(&[("d", d, false), ("n", n, true)]),
            value: Expr::product(at(scores + 5, row + 1, &[second]), at(2, batch, &[second, first])),
            reduction: Reduction::Sum,
            share: None,
            shape: shape([m, d]),
            index: (0..=first).map(axis).collect(),
            channel: first,
        }
    }

    /// The position of each key, with which queries and keys are compared.
    fn tables(&self) -> Vec<Table> {
        let positions = || Table { name: "position", elements: (0..self.n).map(|key| key as f32).collect() };
        if self.causal { vec![positions()] } else { Vec::new() }
    }
}
