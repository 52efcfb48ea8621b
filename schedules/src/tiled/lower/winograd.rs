//! The stages of a Winograd program on a GPU around its matrix products.
//!
//! A thread transforms a tile in registers, column by column and then row by row.

use std::sync::Arc;

use super::{Lowering, Outside, guarded};
use crate::lower::partial::fused;
use crate::lower::winograd::transform::{apply, constant};
use crate::lower::{OperandBuffers, add, assign, load, nest};
use crate::winograd::TAPS;
use crate::winograd::gpu::{GpuWinograd, VECTOR};
use crate::winograd::matrices::{Matrices, Transform};
use crate::winograd::rewrite::{Tiles, rewrite};
use crate::workload::Workload;
use autotune_ir::affine::Affine;
use autotune_ir::program::{Buffer, BufferId, Digit, Expr, Layout, LoopKind, Node, Program, Role, Scope, Stage, When};

/// Threads of a block that transforms.
const THREADS: usize = 128;

/// The loop nests of a config.
pub(crate) fn lower(workload: &Workload, winograd: &GpuWinograd) -> Program {
    let conv = &winograd.conv;
    let product = &winograd.product.contraction;
    let mut buffers = Vec::new();
    let (inputs, outputs) = (workload.input_shape(), workload.output_shape());
    let operands = OperandBuffers::new(&mut buffers, workload, (&inputs, Layout::Plain), (&outputs, Layout::Plain));
    let mut packed = |name: &str, shape: Vec<usize>| {
        let (role, scope, layout) = (Role::Packed, Scope::Global, Layout::Plain);
        buffers.push(Buffer { name: name.into(), role, scope, shape, layout, dtype: workload.dtype });
        BufferId(buffers.len() as u32 - 1)
    };
    let weights = packed("weight_transformed", product.weight.shape.clone());
    let tiles = packed("input_transformed", product.data.shape.clone());
    let products = packed("products", [&[winograd.product.split], &product.output.shape[..]].concat());
    let transforms = Transforms { winograd, products, input: operands.input, weight: operands.weight };
    let outside = Outside { sources: [tiles, weights], partial: Some(products), operands };
    let mut lowering = Lowering::within(workload, &winograd.product, buffers, outside);
    let matrices = Matrices::new(winograd.m);
    let stage = |name: &str, when, body| Stage { name: name.into(), when, body };
    let stages = vec![
        stage(
            "transform_weight",
            When::AheadOfTime,
            transforms.weight(&mut lowering, &Transform::plain(&matrices.weight)),
        ),
        stage(
            "transform_input",
            When::EveryRun,
            transforms.input(&mut lowering, &Transform::sharing_rows(&matrices.input)),
        ),
        stage("compute", When::EveryRun, lowering.compute()),
        stage(
            "transform_output",
            When::EveryRun,
            transforms.output(&mut lowering, &Transform::sharing_columns(&matrices.output), conv.output_hw()),
        ),
    ];
    let spec = Arc::clone(&winograd.product.contraction.spec);
    let algorithm = rewrite(&spec, conv, winograd.m, Tiles::OfAll(VECTOR));
    lowering.program(spec, algorithm, stages)
}

struct Transforms<'a> {
    winograd: &'a GpuWinograd,
    products: BufferId,
    input: BufferId,
    weight: BufferId,
}

/// Registers of a thread that transforms a tile.
struct Registers {
    /// What is read of a column of the tile.
    column: BufferId,
    /// Terms that sums share.
    terms: BufferId,
    /// The tile between the two passes.
    half: BufferId,
    /// A row of the result.
    row: BufferId,
}

impl Registers {
    fn all(&self) -> [BufferId; 4] {
        [self.row, self.half, self.terms, self.column]
    }
}

impl Transforms<'_> {
    fn registers(&self, lowering: &mut Lowering, name: &str) -> Registers {
        let a = self.winograd.a();
        let mut add = |part: &str, shape: Vec<usize>| {
            let (role, scope, layout) = (Role::Packed, Scope::Register, Layout::Plain);
            let (name, dtype) = (format!("{name}_{part}"), lowering.workload.dtype);
            lowering.buffers.push(Buffer { name, role, scope, shape, layout, dtype });
            BufferId(lowering.buffers.len() as u32 - 1)
        };
        Registers {
            column: add("column", vec![a]),
            terms: add("terms", vec![a, 1]),
            half: add("half", vec![a, a]),
            row: add("row", vec![a]),
        }
    }

    /// `for every pair (x, y) of 0..first x 0..second { body(x, y) }`, a thread per pair.
    fn each_pair(
        &self,
        lowering: &mut Lowering,
        names: [&str; 2],
        extents: [usize; 2],
        registers: &Registers,
        body: impl FnOnce(&mut Lowering, [Affine; 2]) -> Vec<Node>,
    ) -> Vec<Node> {
        let mut loops = Vec::new();
        let blocks = extents.iter().product::<usize>().div_ceil(THREADS);
        let block = lowering.open("b".into(), blocks, LoopKind::Block, &mut loops);
        let thread = lowering.open("t".into(), THREADS, LoopKind::Thread, &mut loops);
        let digits: Vec<Digit> =
            (0..2).map(|i| Digit { var: lowering.var(names[i].into(), extents[i]), extent: extents[i] }).collect();
        let pair = [0, 1].map(|i: usize| Affine::var(digits[i].var));
        let body = body(lowering, pair);
        let body = vec![Node::Unflatten { value: block * THREADS as i64 + thread, digits, body }];
        let body = registers.all().into_iter().fold(body, |body, buffer| vec![Node::Alloc { buffer, body }]);
        nest(loops, body)
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
        lowering: &mut Lowering,
        transform: &Transform,
        [rows, columns]: [usize; 2],
        registers: &Registers,
        mut read: impl FnMut(&mut Lowering, Affine, Affine) -> Expr,
        write: impl FnOnce(&mut Lowering, Affine) -> Vec<Node>,
    ) -> Vec<Node> {
        let Registers { column, terms, half, row } = *registers;
        let zero = Affine::default();
        let (mut across, mut down, mut result) = (Vec::new(), Vec::new(), Vec::new());
        let x = lowering.open("x".into(), columns, LoopKind::Unrolled, &mut across);
        let y = lowering.open("y".into(), rows, LoopKind::Unrolled, &mut down);
        let value = read(lowering, y.clone(), x.clone());
        let mut first = nest(down, vec![assign(column, vec![y], value)]);
        let input = |k: usize| load(column, vec![constant(k)]);
        first.extend(apply(transform, terms, &zero, input, |i, value| {
            assign(half, vec![constant(i), x.clone()], value)
        }));
        let mut nodes = nest(across, first);
        let i = lowering.open("i".into(), transform.outputs.len(), LoopKind::Unrolled, &mut result);
        let input = |k: usize| load(half, vec![i.clone(), constant(k)]);
        let mut second = apply(transform, terms, &zero, input, |j, value| assign(row, vec![constant(j)], value));
        second.extend(write(lowering, i.clone()));
        nodes.extend(nest(result, second));
        nodes
    }

    /// `to[i * a + j, x, y] = row[j]` for each `j`.
    fn write_row(
        &self,
        lowering: &mut Lowering,
        to: BufferId,
        row: BufferId,
        i: Affine,
        [x, y]: [Affine; 2],
    ) -> Vec<Node> {
        let a = self.winograd.a();
        let mut loops = Vec::new();
        let j = lowering.open("j".into(), a, LoopKind::Unrolled, &mut loops);
        let index = vec![i * a as i64 + j.clone(), x, y];
        nest(loops, vec![assign(to, index, load(row, vec![j]))])
    }

    fn weight(&self, lowering: &mut Lowering, transform: &Transform) -> Vec<Node> {
        let registers = self.registers(lowering, "weight");
        let to = lowering.sources[1];
        let extents = [self.winograd.conv.c, self.winograd.conv.o];
        self.each_pair(lowering, ["c", "o"], extents, &registers, |lowering, pair| {
            let [c, o] = pair.clone();
            let read = |_: &mut Lowering, y, x| load(self.weight, vec![o.clone(), c.clone(), y, x]);
            let write = |lowering: &mut Lowering, i| self.write_row(lowering, to, registers.row, i, pair);
            self.transform(lowering, transform, [TAPS; 2], &registers, read, write)
        })
    }

    fn input(&self, lowering: &mut Lowering, transform: &Transform) -> Vec<Node> {
        let registers = self.registers(lowering, "input");
        let to = lowering.sources[0];
        let GpuWinograd { conv, m, .. } = self.winograd;
        let (a, tiles) = (self.winograd.a(), self.winograd.tiles());
        self.each_pair(lowering, ["c", "t"], [conv.c, tiles], &registers, |lowering, pair| {
            let [images, rows, columns] = self.winograd.grid();
            // Tiles behind the last are of an image that there is not.
            let beyond = (tiles - 1) / (rows * columns) + 1;
            let (digits, [n, top, left]) = tile_digits(lowering, [beyond, rows, columns]);
            let [c, t] = pair.clone();
            let read = |lowering: &mut Lowering, y: Affine, x: Affine| {
                let h = top.clone() * *m as i64 + y + -(conv.pad[0] as i64);
                let w = left.clone() * *m as i64 + x + -(conv.pad[1] as i64);
                let bounds = [(n.clone(), images), (h.clone(), conv.h), (w.clone(), conv.w)];
                let when = lowering.guards(bounds);
                let value = load(self.input, vec![n.clone(), c.clone(), h, w]);
                if when.is_empty() { value } else { Expr::Guarded { when, value: Box::new(value) } }
            };
            let write = |lowering: &mut Lowering, i| self.write_row(lowering, to, registers.row, i, pair);
            let body = self.transform(lowering, transform, [a; 2], &registers, read, write);
            vec![Node::Unflatten { value: t, digits, body }]
        })
    }

    fn output(&self, lowering: &mut Lowering, transform: &Transform, [oh, ow]: [usize; 2]) -> Vec<Node> {
        let registers = self.registers(lowering, "output");
        let GpuWinograd { conv, m, product } = self.winograd;
        let (a, m) = (self.winograd.a(), *m);
        self.each_pair(lowering, ["o", "t"], [conv.o, self.winograd.tiles()], &registers, |lowering, [o, t]| {
            let (digits, [n, top, left]) = tile_digits(lowering, self.winograd.grid());
            let read = |_: &mut Lowering, y: Affine, x: Affine| {
                let xi = y * a as i64 + x;
                let part = |s| load(self.products, vec![constant(s), xi.clone(), o.clone(), t.clone()]);
                (1..product.split).fold(part(0), |sum, s| add(sum, part(s)))
            };
            let write = |lowering: &mut Lowering, i: Affine| {
                let mut lanes = Vec::new();
                let j = lowering.open("j".into(), m, LoopKind::Vectorized, &mut lanes);
                let (h, w) = (top * m as i64 + i, left * m as i64 + j.clone());
                let when = lowering.guards([(h.clone(), oh), (w.clone(), ow)]);
                let index = [n, o.clone(), h, w];
                let Lowering { workload, operands, .. } = lowering;
                let value = fused(workload, operands, load(registers.row, vec![j]), o.clone(), &index);
                nest(lanes, guarded(when, vec![assign(operands.output, index.to_vec(), value)]))
            };
            let body = self.transform(lowering, transform, [a; 2], &registers, read, write);
            vec![Node::Unflatten { value: t.clone(), digits, body }]
        })
    }
}

/// Digits for the image, row and column of a tile, and their values.
fn tile_digits(lowering: &mut Lowering, extents: [usize; 3]) -> (Vec<Digit>, [Affine; 3]) {
    let names = ["n", "th", "tw"].into_iter();
    let digits: Vec<Digit> =
        names.zip(extents).map(|(name, extent)| Digit { var: lowering.var(name.into(), extent), extent }).collect();
    let values = [0, 1, 2].map(|i: usize| Affine::var(digits[i].var));
    (digits, values)
}
