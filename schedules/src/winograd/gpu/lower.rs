//! The stages of a Winograd program on a GPU around its matrix products.
//!
//! A thread transforms a tile in registers, column by column and then row by row.

use std::sync::Arc;

use super::{GpuWinograd, VECTOR};
use crate::gpu::lower::{Outside, compute};
use crate::lower::nest::{Nest, guarded, guarded_value};
use crate::lower::winograd::transform::{apply, constant};
use crate::lower::{OperandBuffers, add, assign, load, nest};
use crate::winograd::TAPS;
use crate::winograd::matrices::{Matrices, Transform};
use crate::winograd::rewrite::{Tiles, rewrite};
use crate::workload::Workload;
use autotune_ir::affine::Affine;
use autotune_ir::program::{BufferId, Expr, Layout, LoopKind, Node, Program, Role, Scope, Stage, When};

/// Threads of a block that transforms.
const THREADS: usize = 128;

/// The loop nests of a config.
pub(crate) fn lower(workload: &Workload, winograd: &GpuWinograd) -> Program {
    let mut all = Nest::new(workload.dtype());
    let plain = Layout::Plain;
    let shape = |role| workload.spec().find(role).map_or(&[][..], |tensor| &tensor.shape);
    let operands =
        OperandBuffers::new(&mut all, workload, (shape(Role::Operand(0)), plain), (shape(Role::Output), plain));

    let product = &winograd.product.roles.own;
    let mut packed = |name: &str, shape| all.buffer(name, Role::Packed, Scope::Global, shape);
    let weights = packed("weight_transformed", product.weight.shape.clone());
    let tiles = packed("input_transformed", product.data.shape.clone());
    let products = packed("products", [&[winograd.product.split], &product.output.shape[..]].concat());

    let stages = Stages { winograd, operands: operands.clone(), weights, tiles, products };
    let matrices = Matrices::new(winograd.m);
    let stage = |name: &str, when, body| Stage { name: name.into(), when, body };
    let outside = Outside { sources: [tiles, weights], partial: Some(products), operands };
    let stages = vec![
        stage("transform_weight", When::AheadOfTime, stages.weight(&mut all, &Transform::plain(&matrices.weight))),
        stage("transform_input", When::EveryRun, stages.input(&mut all, &Transform::sharing_rows(&matrices.input))),
        stage("compute", When::EveryRun, compute(&winograd.product, outside, &mut all)),
        stage(
            "transform_output",
            When::EveryRun,
            stages.output(&mut all, &Transform::sharing_columns(&matrices.output)),
        ),
    ];
    let axes = product.axes.clone();
    let spec = Arc::clone(&product.spec);
    let algorithm = rewrite(&spec, &winograd.conv, winograd.m, Tiles::OfAll(VECTOR));
    Program { spec, algorithm, axes, vars: all.vars, buffers: all.buffers, stages }
}

/// What the stages around the products read and write.
struct Stages<'a> {
    winograd: &'a GpuWinograd,
    operands: OperandBuffers,
    weights: BufferId,
    tiles: BufferId,
    products: BufferId,
}

/// Registers of a thread that transforms a tile: what is read of a column of the tile, terms that sums share, the tile between the two
/// passes, a row of the result.
#[derive(Clone, Copy)]
struct Registers {
    column: BufferId,
    terms: BufferId,
    half: BufferId,
    row: BufferId,
}

impl Stages<'_> {
    /// A thread for each pair, with registers for a tile.
    fn each_tile(
        &self,
        all: &mut Nest,
        name: &str,
        pairs: [(&'static str, usize); 2],
        body: impl FnOnce(&mut Nest, Registers, [Affine; 2]) -> Vec<Node>,
    ) -> Vec<Node> {
        let a = self.winograd.a();
        let mut add = |part: &str, shape| all.buffer(format!("{name}_{part}"), Role::Packed, Scope::Register, shape);
        let (column, terms) = (add("column", vec![a]), add("terms", vec![a, 1]));
        let (half, row) = (add("half", vec![a, a]), add("row", vec![a]));
        let registers = Registers { column, terms, half, row };
        all.each(THREADS, &pairs, &[column, terms, half, row], |all, index| {
            body(all, registers, [index[0].clone(), index[1].clone()])
        })
    }

    /// A tile of `columns` columns transformed along both axes: `read(y, x)` for each of its `rows`, and `write(i)` for each row
    /// of the result, which lies in `row`.
    ///
    /// ```text
    /// for x { for y { column[y] = read(y, x) }; half[.., x] = transform(column) }
    /// for i { row = transform(half[i, ..]); write(i) }
    /// ```
    fn transform(
        &self,
        all: &mut Nest,
        transform: &Transform,
        [rows, columns]: [usize; 2],
        Registers { column, terms, half, row }: Registers,
        read: impl FnOnce(&Nest, Affine, Affine) -> Expr,
        write: impl FnOnce(&mut Nest, Affine) -> Vec<Node>,
    ) -> Vec<Node> {
        let zero = Affine::default();
        let (mut across, mut down, mut result) = (Vec::new(), Vec::new(), Vec::new());
        let x = all.open("x", columns, LoopKind::Unrolled, &mut across);
        let y = all.open("y", rows, LoopKind::Unrolled, &mut down);
        let value = read(all, y.clone(), x.clone());
        let mut first = nest(down, vec![assign(column, vec![y], value)]);
        let input = |k: usize| load(column, vec![constant(k)]);
        first.extend(apply(transform, terms, &zero, input, |i, value| {
            assign(half, vec![constant(i), x.clone()], value)
        }));

        let mut nodes = nest(across, first);
        let i = all.open("i", transform.outputs.len(), LoopKind::Unrolled, &mut result);
        let input = |k: usize| load(half, vec![i.clone(), constant(k)]);
        let mut second = apply(transform, terms, &zero, input, |j, value| assign(row, vec![constant(j)], value));
        second.extend(write(all, i.clone()));
        nodes.extend(nest(result, second));
        nodes
    }

    /// `to[i * a + j, x, y] = row[j]` for each `j`.
    fn write_row(&self, all: &mut Nest, to: BufferId, row: BufferId, i: Affine, [x, y]: [Affine; 2]) -> Vec<Node> {
        let a = self.winograd.a();
        let mut loops = Vec::new();
        let j = all.open("j", a, LoopKind::Unrolled, &mut loops);
        nest(loops, vec![assign(to, vec![i * a as i64 + &j, x, y], load(row, vec![j]))])
    }

    /// The body with the image, row and column of tile `t`.
    fn at_tile(
        &self,
        all: &mut Nest,
        t: Affine,
        images: usize,
        body: impl FnOnce(&mut Nest, [Affine; 3]) -> Vec<Node>,
    ) -> Vec<Node> {
        let [_, rows, columns] = self.winograd.grid();
        let (digits, place) = all.digits([("n", images), ("th", rows), ("tw", columns)]);
        let place = std::array::from_fn(|i| place[i].clone());
        vec![Node::Unflatten { value: t, digits, body: body(all, place) }]
    }

    fn weight(&self, all: &mut Nest, transform: &Transform) -> Vec<Node> {
        let conv = &self.winograd.conv;
        self.each_tile(all, "weight", [("c", conv.c), ("o", conv.o)], |all, registers, [c, o]| {
            let read = |_: &Nest, y, x| load(self.operands.weight, vec![o.clone(), c.clone(), y, x]);
            let pair = [c.clone(), o.clone()];
            let write = |all: &mut Nest, i| self.write_row(all, self.weights, registers.row, i, pair);
            self.transform(all, transform, [TAPS; 2], registers, read, write)
        })
    }

    fn input(&self, all: &mut Nest, transform: &Transform) -> Vec<Node> {
        let GpuWinograd { conv, m, .. } = self.winograd;
        let (a, m, tiles) = (self.winograd.a(), *m as i64, self.winograd.tiles());
        self.each_tile(all, "input", [("c", conv.c), ("t", tiles)], |all, registers, [c, t]| {
            let [images, rows, columns] = self.winograd.grid();
            // Tiles behind the last are of an image that there is not.
            let beyond = (tiles - 1) / (rows * columns) + 1;
            self.at_tile(all, t.clone(), beyond, |all, [n, top, left]| {
                let read = |all: &Nest, y: Affine, x: Affine| {
                    let h = top * m + y + -(conv.pad[0] as i64);
                    let w = left * m + x + -(conv.pad[1] as i64);
                    let when = all.guards([(n.clone(), images), (h.clone(), conv.h), (w.clone(), conv.w)]);
                    guarded_value(when, load(self.operands.input, vec![n, c.clone(), h, w]))
                };
                let pair = [c.clone(), t];
                let write = |all: &mut Nest, i| self.write_row(all, self.tiles, registers.row, i, pair);
                self.transform(all, transform, [a; 2], registers, read, write)
            })
        })
    }

    fn output(&self, all: &mut Nest, transform: &Transform) -> Vec<Node> {
        let GpuWinograd { conv, m, product } = self.winograd;
        let (a, [oh, ow]) = (self.winograd.a(), conv.output_hw());
        self.each_tile(all, "output", [("o", conv.o), ("t", self.winograd.tiles())], |all, registers, [o, t]| {
            self.at_tile(all, t.clone(), conv.n, |all, [n, top, left]| {
                let read = |_: &Nest, y: Affine, x: Affine| {
                    let xi = y * a as i64 + x;
                    let part = |s| load(self.products, vec![constant(s), xi.clone(), o.clone(), t.clone()]);
                    (1..product.split).fold(part(0), |sum, s| add(sum, part(s)))
                };
                let write = |all: &mut Nest, i: Affine| {
                    let mut lanes = Vec::new();
                    let j = all.open("j", *m, LoopKind::Vectorized, &mut lanes);
                    let (h, w) = (top * *m as i64 + i, left * *m as i64 + &j);
                    let when = all.guards([(h.clone(), oh), (w.clone(), ow)]);
                    let (index, row) = ([n, o.clone(), h, w], load(registers.row, vec![j]));
                    let value = self.operands.fused(row, &o, &index);
                    nest(lanes, guarded(when, vec![assign(self.operands.output, index.into(), value)]))
                };
                self.transform(all, transform, [a; 2], registers, read, write)
            })
        })
    }
}
