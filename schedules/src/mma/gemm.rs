//! A workload as a matrix product.

use std::sync::Arc;

use autotune_ir::Spec;

use crate::workload::{Operator, Workload};
use autotune_ir::affine::Affine;
use autotune_ir::program::{AxisInfo, AxisOf, Layout};

/// `result[row, column] = sum over outer and steps of data[row, outer, step] * weight[column, outer, step]`, for each of a batch.
///
/// | | batch | rows | columns | outer | steps |
/// |---|---|---|---|---|---|
/// | matmul | `b` | `m` | `n` | | `k` |
/// | conv2d | `g` | `p`: pixels of all images | `o` of a group | `kh`, `kw` | `c` of a group |
#[derive(Clone, Debug)]
pub struct Gemm {
    /// One block has one element of it.
    pub batch: AxisInfo,
    /// Rows of the data and of the result.
    pub rows: AxisInfo,
    /// Columns of the result.
    pub columns: AxisInfo,
    /// Reduction axes of which a chunk has one element.
    pub outer: Vec<AxisInfo>,
    /// The reduction axis that is cut into chunks.
    pub steps: AxisInfo,
    /// True if weights are copied ahead of time to `[columns of all batches, outer, steps]`.
    pub packed: bool,
    /// True if the steps of a column lie together where the compute stage reads the weights; else the columns of a step do.
    pub columns_are_rows: bool,
    /// Pairs of columns that a lane has one after the other, for which packed weights lie in another order ([`Gemm::permuted`]);
    /// 1 for the order of the result.
    pub run: usize,
    /// Elements of data and of weights that are copied at once.
    pub vectors: [usize; 2],
    op: Operator,
    /// What it is of.
    pub spec: Arc<Spec>,
}

/// A place in a matrix product: the value of each of its axes.
#[derive(Clone, Debug, Default)]
pub(super) struct Place {
    pub(super) batch: Affine,
    pub(super) row: Affine,
    /// Image, height and width of the row's pixel in the result of a convolution; empty for a matrix product.
    pub(super) pixel: Vec<Affine>,
    pub(super) column: Affine,
    pub(super) outer: Vec<Affine>,
    pub(super) step: Affine,
}

impl Gemm {
    /// Where the weights may lie when they are read. Those of a matrix product with a batch are not known ahead of time, and
    /// those of a 1x1 convolution lie right.
    pub fn weight_choices(workload: &Workload) -> &'static [&'static str] {
        match workload.op {
            Operator::Matmul(m) if m.b == 1 => &["packed", "inplace"],
            Operator::Conv2d(c) if c.kh * c.kw > 1 => &["packed"],
            Operator::Matmul(_) | Operator::Conv2d(_) => &["inplace"],
        }
    }

    /// The workload with its weights `packed` or not.
    pub fn new(workload: &Workload, packed: bool) -> Self {
        let spec = workload.spec();
        let own = |name| spec.main().axes.iter().position(|axis| axis.name == name).unwrap_or_default();
        let axis = |name, extent, reduce| {
            let of = AxisOf::Part { axis: own(name), step: 1 };
            AxisInfo { name, extent, reduce, of }
        };
        let most = super::COPY_BYTES / workload.dtype.bytes();
        let vector = |row: usize| (1..=most).rev().find(|v| v.is_power_of_two() && row.is_multiple_of(*v)).unwrap_or(1);
        match workload.op {
            Operator::Matmul(m) => Self {
                batch: axis("b", m.b, false),
                rows: axis("m", m.m, false),
                columns: axis("n", m.n, false),
                outer: Vec::new(),
                steps: axis("k", m.k, true),
                packed,
                columns_are_rows: packed,
                run: 1,
                vectors: [vector(m.k), vector(if packed { m.k } else { m.n })],
                op: workload.op,
                spec: Arc::clone(&spec),
            },
            Operator::Conv2d(c) => {
                let [oh, ow] = c.output_hw();
                let steps = c.c / c.groups;
                let outer = [axis("kh", c.kh, true), axis("kw", c.kw, true)];
                Self {
                    batch: axis("g", c.groups, false),
                    rows: AxisInfo {
                        of: AxisOf::Fused([own("n"), own("oh"), own("ow")].into()),
                        ..axis("p", c.n * oh * ow, false)
                    },
                    columns: axis("o", c.o / c.groups, false),
                    outer: outer.into(),
                    steps: axis("c", steps, true),
                    packed,
                    columns_are_rows: true,
                    run: 1,
                    vectors: [vector(steps); 2],
                    op: workload.op,
                    spec: Arc::clone(&spec),
                }
            }
        }
    }

    /// Every axis, those of the reduction last.
    pub fn axes(&self) -> Vec<AxisInfo> {
        let spatial = [&self.batch, &self.rows, &self.columns];
        spatial.into_iter().chain(&self.outer).chain([&self.steps]).cloned().collect()
    }

    /// Physical shape and layout of the data and of the result.
    pub(super) fn operands(&self, workload: &Workload) -> [(Vec<usize>, Layout); 2] {
        let shapes = [workload.input_shape(), workload.output_shape()];
        shapes.map(|shape| match shape[..] {
            [n, c, h, w] => (vec![n, 1, h, w, c], Layout::ChannelBlocked(c)),
            _ => (shape, Layout::Plain),
        })
    }

    /// Image, height and width of the result of a convolution.
    pub(super) fn pixels(&self) -> Vec<(&'static str, usize)> {
        match self.op {
            Operator::Matmul(_) => Vec::new(),
            Operator::Conv2d(c) => {
                let [oh, ow] = c.output_hw();
                vec![("n", c.n), ("oh", oh), ("ow", ow)]
            }
        }
    }

    /// The value of each of [`Gemm::axes`].
    pub(super) fn point(&self, at: &Place) -> Vec<Affine> {
        let spatial = [at.batch.clone(), at.row.clone(), at.column.clone()];
        spatial.into_iter().chain(at.outer.iter().cloned()).chain([at.step.clone()]).collect()
    }

    /// Index of an element of the data, and what must be within `0..extent` for it to be there, the step last.
    pub(super) fn data(&self, at: &Place) -> (Vec<Affine>, Vec<(Affine, usize)>) {
        let step = (at.step.clone(), self.steps.extent);
        match (self.op, &at.pixel[..], &at.outer[..]) {
            (Operator::Conv2d(conv), [n, y, x], [kh, kw]) => {
                let tap = |at: &Affine, k: &Affine, d: usize| {
                    at.clone() * conv.stride[d] as i64 + k.clone() * conv.dilation[d] as i64 + -(conv.pad[d] as i64)
                };
                let (y, x) = (tap(y, kh, 0), tap(x, kw, 1));
                let channel = at.batch.clone() * self.steps.extent as i64 + at.step.clone();
                let bounds = vec![(y.clone(), conv.h), (x.clone(), conv.w), step];
                (vec![n.clone(), Affine::default(), y, x, channel], bounds)
            }
            _ => {
                let bounds = vec![(at.row.clone(), self.rows.extent), step];
                (vec![at.batch.clone(), at.row.clone(), at.step.clone()], bounds)
            }
        }
    }

    /// Columns of packed weights for each of the batch: whole permutations.
    fn packed_columns(&self) -> usize {
        match self.run {
            1 => self.columns.extent,
            run => self.columns.extent.next_multiple_of(8 * run),
        }
    }

    /// The column of the result that the packed column `8*run*j + 8*p + 2*q + c` is: `8*run*j + 2*run*q + 2*p + c`, so that the
    /// pairs that matrix instructions deal out to lane `q` are neighbours. For `[j, p, q, c]` that and the packed column.
    pub fn permuted(&self, [j, p, q, c]: [Affine; 4]) -> [Affine; 2] {
        let run = self.run as i64;
        let permuted = |of_p: i64, of_q: i64| j.clone() * (8 * run) + p.clone() * of_p + q.clone() * of_q + c.clone();
        [permuted(2, 2 * run), permuted(8, 2)]
    }

    /// Shape of the packed weights.
    pub(super) fn packed_shape(&self) -> Vec<usize> {
        let columns = self.batch.extent * self.packed_columns();
        std::iter::once(columns).chain(self.outer.iter().chain([&self.steps]).map(|axis| axis.extent)).collect()
    }

    /// Index of an element of the weights as the caller gives them, `column` counted over all batches of a convolution.
    pub(super) fn given_weight(&self, column: Affine, at: &Place) -> Vec<Affine> {
        match self.op {
            Operator::Matmul(_) => vec![at.batch.clone(), at.step.clone(), column],
            Operator::Conv2d(_) => [&[column, at.step.clone()], &at.outer[..]].concat(),
        }
    }

    /// Index of an element of the weights where the compute stage reads them, and what must be within `0..extent`, the step last.
    pub(super) fn weight(&self, at: &Place) -> (Vec<Affine>, Vec<(Affine, usize)>) {
        let columns = if self.packed { self.packed_columns() } else { self.columns.extent };
        let bounds = vec![(at.column.clone(), columns), (at.step.clone(), self.steps.extent)];
        let column = match self.op {
            Operator::Matmul(_) => at.column.clone(),
            Operator::Conv2d(_) => at.batch.clone() * self.columns.extent as i64 + at.column.clone(),
        };
        let index = match self.packed {
            true => [&[column], &at.outer[..], std::slice::from_ref(&at.step)].concat(),
            false => self.given_weight(column, at),
        };
        (index, bounds)
    }

    /// Index of an element of the result, and of its bias.
    pub(super) fn output(&self, at: &Place) -> (Vec<Affine>, Affine) {
        match (self.op, &at.pixel[..]) {
            (Operator::Conv2d(_), [n, y, x]) => {
                let channel = at.batch.clone() * self.columns.extent as i64 + at.column.clone();
                (vec![n.clone(), Affine::default(), y.clone(), x.clone(), channel.clone()], channel)
            }
            _ => (vec![at.batch.clone(), at.row.clone(), at.column.clone()], at.column.clone()),
        }
    }
}
