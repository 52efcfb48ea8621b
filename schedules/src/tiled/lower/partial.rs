//! The stage that adds up the sums of the parts of a split reduction.

use super::{COPY_THREADS, Lowering};
use crate::affine::Affine;
use crate::contraction::Operand;
use crate::lower::{assign, load, nest};
use crate::program::{Access, Buffer, BufferId, Digit, Expr, Layout, LoopKind, Node, Role, Scope, Store, StoreMode};

impl Lowering<'_> {
    /// `for every element: sum = 0; for s in 0..split { sum += partial[s] }; output = act(sum + bias + residual)`, a thread
    /// per element.
    pub(super) fn add_partial(&mut self, partial: BufferId) -> Vec<Node> {
        let tiled = self.tiled;
        let own = tiled.own();
        let Operand { shape, index: axes } = &own.output;
        let (mut loops, mut unrolled) = (Vec::new(), Vec::new());
        let blocks = shape.iter().product::<usize>().div_ceil(COPY_THREADS);
        let block = self.open("b".into(), blocks, LoopKind::Block, &mut loops);
        let thread = self.open("t".into(), COPY_THREADS, LoopKind::Thread, &mut loops);
        let part = self.open("s".into(), tiled.split, LoopKind::Unrolled, &mut unrolled);
        let mut digits = Vec::new();
        for (dim, &extent) in shape.iter().enumerate() {
            digits.push(Digit { var: self.var(format!("d{dim}"), extent), extent });
        }
        let index: Vec<Affine> = digits.iter().map(|d| Affine::var(d.var)).collect();
        let channel = axes.iter().position(|axis| *axis == own.bias).map_or(0, |dim| dim);
        let name = "sum".into();
        let shape = Vec::new();
        self.buffers.push(Buffer {
            name,
            role: Role::Accumulator,
            scope: Scope::Register,
            shape,
            layout: Layout::Plain,
        });
        let sum = BufferId(self.buffers.len() as u32 - 1);
        let add = Node::Store(Store {
            dst: Access { buffer: sum, index: Vec::new() },
            mode: StoreMode::Accumulate,
            value: load(partial, [vec![part], index.clone()].concat()),
            point: Vec::new(),
        });
        let mut body = vec![assign(sum, Vec::new(), Expr::Const(0.0))];
        body.extend(nest(unrolled, vec![add]));
        let value = self.epilogue(load(sum, Vec::new()), index[channel].clone(), &index);
        body.push(assign(self.output, index, value));
        let value = block * COPY_THREADS as i64 + thread;
        let body = vec![Node::Alloc { buffer: sum, body: vec![Node::Unflatten { value, digits, body }] }];
        nest(loops, body)
    }
}
