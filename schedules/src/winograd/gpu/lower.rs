//! Stages of a Winograd program on a GPU.
//!
//! Each thread transforms a tile in registers, first by columns and then by rows.

use std::sync::Arc;

use super::GpuWinograd;
use crate::gpu::lower::{StageOperands, compute};
use crate::lower::nest::{NestParts, StageBuilder, guarded, guarded_value};
use crate::lower::{OperandBuffers, add, assign, load, nest};
use crate::winograd::matrices::{Transform, Transforms};
use crate::winograd::passes::{PartialTransform, Passes, constant};
use autotune_ir::affine::Affine;
use autotune_ir::program::{BufferId, Expr, Layout, LoopKind, Node, Program, Role, Scope, Stage, When};
use autotune_workloads::Workload;

/// Threads per block of the transforming stages.
const THREADS: usize = 128;

/// Lowers a config to loop nests.
pub(crate) fn lower(workload: &Workload, winograd: &GpuWinograd) -> Program {
    let mut all = NestParts::new(workload.spec(), workload.dtype());
    let plain = Layout::Plain;
    let shape = |role| workload.spec().find(role).map_or(&[][..], |tensor| &tensor.shape);
    let operands =
        OperandBuffers::new(&mut all, workload, (shape(Role::Operand(0)), plain), (shape(Role::Output), plain));

    let product = &winograd.product.roles.own;
    let mut packed = |name: &str, shape| all.buffer(name, Role::Packed, Scope::Global, shape);
    let weights = packed("weight_transformed", product.weight.shape.clone());
    let tiles = packed("input_transformed", product.data.shape.clone());
    let products = packed("products", [&[winograd.product.split], &product.output.shape[..]].concat());

    // Products are stored like partial sums of a split: without an epilogue.
    let outside = StageOperands { sources: [tiles, weights], partial: Some(products), operands: operands.clone() };
    let stages = TransformStages { winograd, operands, weights, tiles, products };
    let transforms = Transforms::of(workload, winograd.conv.filtering(winograd.m));
    let stage = |name: &str, when, body| Stage { name: name.into(), when, body };
    let stages = vec![
        stage("transform_weight", When::AheadOfTime, stages.weight(&mut all, &transforms.weight)),
        stage("transform_input", When::EveryRun, stages.input(&mut all, &transforms.input)),
        stage("compute", When::EveryRun, compute(&winograd.product, outside, "", &mut all)),
        stage("transform_output", When::EveryRun, stages.output(&mut all, &transforms.output)),
    ];
    let (axes, algorithm) = (product.axes.clone(), Arc::clone(&product.spec));
    Program {
        spec: Arc::clone(workload.spec()),
        algorithm,
        axes,
        vars: all.vars,
        buffers: all.buffers,
        stages,
        cold: false,
    }
}

/// Callback for an element of a tile by row and column.
type Read<'r> = &'r dyn Fn(&NestParts, [Affine; 2]) -> Expr;
/// Callback that stores a row of the result by its number, from a register buffer.
type Write<'w> = &'w dyn Fn(&mut NestParts, Affine, BufferId) -> Vec<Node>;

/// Buffers of the stages around the products.
struct TransformStages<'a> {
    winograd: &'a GpuWinograd,
    operands: OperandBuffers,
    weights: BufferId,
    tiles: BufferId,
    products: BufferId,
}

impl TransformStages<'_> {
    /// Runs one thread per pair of indices, with registers for a tile of `inputs` rows and columns.
    /// `tile` gets the pair and a callback that makes the nests of a tile's transform.
    fn each_pair(
        &self,
        all: &mut NestParts,
        (name, pairs): (&str, [(&'static str, usize); 2]),
        (transform, inputs): (&Transform, usize),
        tile: impl FnOnce(&mut NestParts, [Affine; 2], &dyn Fn(&mut NestParts, Read, Write) -> Vec<Node>) -> Vec<Node>,
    ) -> Vec<Node> {
        let a = self.winograd.a();
        let mut add = |part: &str, shape| all.buffer(format!("{name}_{part}"), Role::Packed, Scope::Register, shape);
        let (column, terms) = (add("column", vec![a]), add("terms", vec![a, 1]));
        let (half, row) = (add("half", vec![a, a, 1]), add("row", vec![a]));

        let whole = PartialTransform::whole(transform, inputs);
        let passes = Passes { cuts: [&whole; 2], lanes: 1, half, terms };
        let transformed = |all: &mut NestParts, read: Read, write: Write| {
            let read_column = |all: &mut NestParts, [x, _]: [Affine; 2]| {
                let column_of =
                    |all: &mut NestParts, y: Affine| vec![assign(column, vec![y.clone()], read(all, [y, x]))];
                let nodes = all.repeat("y", inputs, LoopKind::Unrolled, column_of);
                (nodes, |y| load(column, vec![constant(y)]))
            };
            let write_row = |all: &mut NestParts, [i, _]: [Affine; 2]| {
                (|j, value| assign(row, vec![constant(j)], value), write(all, i, row))
            };
            passes.nests(all, read_column, write_row)
        };
        all.each(THREADS, &pairs, &[column, terms, half, row], |all, index| {
            tile(all, [index[0].clone(), index[1].clone()], &transformed)
        })
    }

    /// Splits tile number `t` into image, row and column, and calls `body` with them.
    fn at_tile(
        &self,
        all: &mut NestParts,
        t: Affine,
        images: usize,
        body: impl FnOnce(&mut NestParts, [Affine; 3]) -> Vec<Node>,
    ) -> Vec<Node> {
        let [_, rows, columns] = self.winograd.grid();
        let (digits, place) = all.digits([("n", images), ("th", rows), ("tw", columns)]);
        let place = std::array::from_fn(|i| place[i].clone());
        vec![Node::Unflatten { value: t, digits, body: body(all, place) }]
    }

    /// Returns a callback that stores `to[i * a + j, x, y] = row[j]` for each `j`.
    fn write_row(&self, to: BufferId, [x, y]: [Affine; 2]) -> impl Fn(&mut NestParts, Affine, BufferId) -> Vec<Node> {
        let a = self.winograd.a();
        move |all, i, row| {
            all.repeat("j", a, LoopKind::Unrolled, |_, j| {
                let index = vec![i * a as i64 + &j, x.clone(), y.clone()];
                vec![assign(to, index, load(row, vec![j]))]
            })
        }
    }

    /// Returns the stage that transforms the filters.
    fn weight(&self, all: &mut NestParts, transform: &Transform) -> Vec<Node> {
        let conv = &self.winograd.conv;
        let pairs = ("weight", [("c", conv.c), ("o", conv.o)]);
        self.each_pair(all, pairs, (transform, conv.taps), |all, [c, o], transformed| {
            let read =
                |_: &NestParts, [y, x]: [Affine; 2]| load(self.operands.weight, vec![o.clone(), c.clone(), y, x]);
            transformed(all, &read, &self.write_row(self.weights, [c.clone(), o.clone()]))
        })
    }

    /// Returns the stage that transforms the input, zero in its padding and in the padding tiles.
    fn input(&self, all: &mut NestParts, transform: &Transform) -> Vec<Node> {
        let GpuWinograd { conv, m, .. } = self.winograd;
        let (a, m, tiles) = (self.winograd.a(), *m as i64, self.winograd.tiles());
        let [images, rows, columns] = self.winograd.grid();
        // Padding tiles belong to images after the last, which the guards below reject.
        let beyond = (tiles - 1) / (rows * columns) + 1;
        self.each_pair(all, ("input", [("c", conv.c), ("t", tiles)]), (transform, a), |all, [c, t], transformed| {
            self.at_tile(all, t.clone(), beyond, |all, [n, top, left]| {
                let read = |all: &NestParts, [y, x]: [Affine; 2]| {
                    let h = top.clone() * m + y + -(conv.pad[0] as i64);
                    let w = left.clone() * m + x + -(conv.pad[1] as i64);
                    let when =
                        all.guards([(n.clone(), images), (h.clone(), conv.input[0]), (w.clone(), conv.input[1])]);
                    guarded_value(when, load(self.operands.input, vec![n.clone(), c.clone(), h, w]))
                };
                transformed(all, &read, &self.write_row(self.tiles, [c.clone(), t]))
            })
        })
    }

    /// Returns the stage that transforms products to outputs, and adds the partial sums of a split.
    fn output(&self, all: &mut NestParts, transform: &Transform) -> Vec<Node> {
        let GpuWinograd { conv, m, product } = self.winograd;
        let (a, [oh, ow]) = (self.winograd.a(), conv.output);
        let pairs = ("output", [("o", conv.o), ("t", self.winograd.tiles())]);
        self.each_pair(all, pairs, (transform, a), |all, [o, t], transformed| {
            self.at_tile(all, t.clone(), conv.n, |all, [n, top, left]| {
                let read = |_: &NestParts, [y, x]: [Affine; 2]| {
                    let xi = y * a as i64 + x;
                    let part = |s| load(self.products, vec![constant(s), xi.clone(), o.clone(), t.clone()]);
                    (1..product.split).fold(part(0), |sum, s| add(sum, part(s)))
                };
                let write = |all: &mut NestParts, i: Affine, row: BufferId| {
                    let mut lanes = Vec::new();
                    let j = all.open("j", *m, LoopKind::Vectorized, &mut lanes);
                    let (h, w) = (top.clone() * *m as i64 + i, left.clone() * *m as i64 + &j);
                    let when = all.guards([(h.clone(), oh), (w.clone(), ow)]);
                    let (index, row) = ([n.clone(), o.clone(), h, w], load(row, vec![j]));
                    let value = self.operands.fused(row, &o, &index);
                    nest(lanes, guarded(when, vec![assign(self.operands.output, index, value)]))
                };
                transformed(all, &read, &write)
            })
        })
    }
}
