//! Lowering of rows of maps and reductions on a GPU.

use std::sync::Arc;

use super::{Rows, elements, is_contiguous_within};
use crate::lower::nest::{Nest, allocated};
use crate::lower::tables::tables;
use crate::lower::{assign, load, nest};
use autotune_ir::DType;
use autotune_ir::affine::Affine;
use autotune_ir::program::{AxisInfo, BufferId, Expr, LoopKind, Node, Program, Role, Scope, Stage, When};
use autotune_ir::spec::Equation;

mod element;
mod steps;

/// The loop nests of a plan.
pub(super) fn lower(plan: &Rows) -> Program {
    let spec = &plan.chain.spec;
    let mut all = Nest::new(DType::F32);
    for (number, tensor) in spec.operands().enumerate() {
        let id = all.buffer(tensor.name.to_string(), Role::Operand(number), Scope::Global, tensor.shape.clone());
        all.buffers[id.0 as usize].dtype = tensor.dtype;
    }
    let result = spec.find(Role::Output);
    let output = all.buffer("output", Role::Output, Scope::Global, result.map_or_else(Vec::new, |it| it.shape.clone()));
    all.buffers[output.0 as usize].dtype = result.map_or(DType::F32, |tensor| tensor.dtype);

    let (tables, made_ahead) = tables(spec, &mut all, &[("b", LoopKind::Block), ("t", LoopKind::Thread)]);
    let mut loops = Vec::new();
    let block = all.open_some("b", plan.blocks(), LoopKind::Block, &mut loops);
    let y = all.open("y", plan.block_rows, LoopKind::Thread, &mut loops);
    let x = all.open_some("x", plan.row_threads, LoopKind::Thread, &mut loops);
    if plan.row_threads > 1 && !is_contiguous_within(&plan.chain) {
        let last = loops.len();
        loops.swap(last - 2, last - 1);
    }

    let number = block * plan.block_rows as i64 + &y;
    let (made, counted) = (vec![None; spec.tensors.len()], vec![false; spec.tensors.len()]);
    let (private, keeping) = (Vec::new(), Vec::new());
    let mut lowering =
        Lowering { plan, all, output, tables, number, y, x, made, keeping, counted, private, pass: 0, reads: 0 };
    let body = lowering.passes();
    let body = allocated(lowering.private, body);
    Program {
        axes: spec.main().axes.iter().enumerate().map(|(id, axis)| AxisInfo::whole(id, axis)).collect(),
        spec: Arc::clone(spec),
        algorithm: Arc::clone(spec),
        vars: lowering.all.vars,
        buffers: lowering.all.buffers,
        stages: made_ahead.into_iter().chain([main(nest(loops, body))]).collect(),
        cold: false,
    }
}

fn main(body: Vec<Node>) -> Stage {
    Stage { name: "main".into(), when: When::EveryRun, body }
}

/// Where threads find what an equation defines.
#[derive(Clone)]
enum Made {
    /// A value of the row, at an index of registers or of shared memory.
    OfRow(BufferId, Vec<Affine>),
    /// Values of all elements of the row, `[y, element of the row]`.
    Kept(BufferId),
}

struct Lowering<'p> {
    plan: &'p Rows,
    all: Nest,
    output: BufferId,
    /// By tensor: where what is known lies.
    tables: Vec<Option<BufferId>>,
    /// The number of the thread's row, its place among those of the block, and the thread's among those of the row.
    number: Affine,
    y: Affine,
    x: Affine,
    /// By tensor: what is there already. What is not is made by who reads it.
    made: Vec<Option<Made>>,
    /// What the pass keeps for others.
    keeping: Vec<(usize, Made)>,
    /// By tensor: true if the iterations of its equation are told.
    counted: Vec<bool>,
    /// What is allocated around everything.
    private: Vec<BufferId>,
    /// The pass that is lowered.
    pass: usize,
    /// Registers that its statement has for what it reads.
    reads: usize,
}

/// An equation at an element of a row: the value of each of its axes.
type Values = Vec<Affine>;

impl<'p> Lowering<'p> {
    fn equation(&self) -> &'p Equation {
        &self.plan.chain.passes()[self.pass]
    }

    fn is_last(&self) -> bool {
        self.pass + 1 == self.plan.chain.passes().len()
    }

    /// Memory around everything; values on the way are f32.
    fn allocate(&mut self, name: &str, role: Role, scope: Scope, shape: Vec<usize>) -> BufferId {
        let id = self.all.buffer_named(name, role, scope, shape);
        if !self.private.contains(&id) {
            self.private.push(id);
        }
        id
    }

    fn passes(&mut self) -> Vec<Node> {
        let mut nodes = Vec::new();
        for pass in 0..self.plan.chain.passes().len() {
            self.pass = pass;
            let (reduces, has_elements) = (self.equation().reduces(), elements(&self.plan.chain, self.equation()) > 1);
            let has_own = self.equation().axes.len() > self.plan.chain.rows;
            nodes.extend(match (reduces, self.is_last()) {
                (true, _) => self.reduction(),
                (false, true) if has_own && has_elements => self.map(),
                (false, true) => self.map_of_row(),
                (false, false) if has_own => Vec::new(),
                (false, false) => self.value_of_row(),
            });
            for (tensor, made) in std::mem::take(&mut self.keeping) {
                self.made[tensor] = Some(made);
            }
        }
        nodes
    }

    /// What the thread's row has to do, if there is such a row.
    fn row(&mut self, body: impl FnOnce(&mut Self, Values) -> Vec<Node>) -> Vec<Node> {
        let axes = self.plan.chain.row_axes().iter().map(|axis| (axis.name, axis.extent));
        let (digits, values) = self.all.digits(axes);
        let body = body(self, values);
        vec![Node::Unflatten { value: self.number.clone(), digits, body }]
    }

    /// What one thread of the row does.
    fn first(&mut self, body: Vec<Node>) -> Vec<Node> {
        if self.plan.row_threads == 1 {
            return body;
        }
        let (digits, _) = self.all.digits([("first", 1)]);
        vec![Node::Unflatten { value: self.x.clone(), digits, body }]
    }

    /// The values of all axes of a pass with one element a row.
    fn at_row(&self, row: Values) -> Values {
        let own = self.equation().axes.len() - self.plan.chain.rows;
        row.into_iter().chain(std::iter::repeat_n(Affine::default(), own)).collect()
    }

    /// A map of values of the row that others read, made by each thread for itself.
    fn value_of_row(&mut self) -> Vec<Node> {
        let tensor = self.equation().output.buffer;
        let name = self.plan.chain.spec.tensors[tensor.0 as usize].name.to_string();
        let buffer = self.allocate(&name, Role::Packed, Scope::Register, Vec::new());
        let nodes = self.row(|lowering, row| {
            let values = lowering.at_row(row);
            let (mut nodes, value) = lowering.value(&values);
            nodes.push(assign(buffer, Vec::new(), value));
            nodes
        });
        self.made[tensor.0 as usize] = Some(Made::OfRow(buffer, Vec::new()));
        nodes
    }

    /// The last pass: one element of the result for each row.
    fn map_of_row(&mut self) -> Vec<Node> {
        self.row(|lowering, row| {
            let values = lowering.at_row(row);
            let (mut nodes, value) = lowering.value(&values);
            // Of several threads one makes it: not what the proof counts.
            let iteration = (lowering.plan.row_threads == 1).then(|| lowering.iteration(&values));
            nodes.push(lowering.stored(value, &values, iteration));
            lowering.first(nodes)
        })
    }

    /// The last pass: an element of the result for each of a row.
    fn map(&mut self) -> Vec<Node> {
        self.row(|lowering, row| {
            lowering.steps(row, &mut |lowering, values| {
                let (mut nodes, value) = lowering.value(&values);
                nodes.push(lowering.stored(value, &values, Some(lowering.iteration(&values))));
                nodes
            })
        })
    }

    /// ```text
    /// acc = neutral;  for the thread's elements { acc = combined(acc, value) };  the threads' together;  result = acc, if it is the last pass
    /// ```
    fn reduction(&mut self) -> Vec<Node> {
        let tensor = self.equation().output.buffer;
        let name = self.plan.chain.spec.tensors[tensor.0 as usize].name.to_string();
        let acc = self.allocate(&format!("{name}_acc"), Role::Accumulator, Scope::Register, Vec::new());
        let mut nodes = vec![assign(acc, Vec::new(), Expr::Const(self.equation().reduction.neutral()))];
        nodes.extend(self.row(|lowering, row| {
            lowering.steps(row, &mut |lowering, values| {
                let (mut nodes, value) = lowering.value(&values);
                nodes.push(lowering.combine(acc, value, &values));
                nodes
            })
        }));

        let (made, combining) = self.combine_threads(&name, acc);
        nodes.extend(combining);
        if self.is_last() {
            nodes.extend(self.row(|lowering, row| {
                let (buffer, index) = made.clone();
                let stored = lowering.stored(load(buffer, index), &lowering.at_row(row), None);
                lowering.first(vec![stored])
            }));
        }
        self.made[tensor.0 as usize] = Some(Made::OfRow(made.0, made.1));
        nodes
    }

    /// Combines what the threads of a row have, level by level, each in a part of memory of its own; and where the result is then.
    fn combine_threads(&mut self, name: &str, acc: BufferId) -> ((BufferId, Vec<Affine>), Vec<Node>) {
        let levels = self.plan.levels();
        if levels.len() == 1 {
            let result = self.allocate(name, Role::Packed, Scope::Register, Vec::new());
            return ((result, Vec::new()), vec![assign(result, Vec::new(), load(acc, Vec::new()))]);
        }

        let (reduction, shape) = (self.equation().reduction, vec![self.plan.block_rows, levels.iter().sum()]);
        let parts = self.allocate(&format!("{name}_parts"), Role::Packed, Scope::Shared, shape);
        let at = |y: &Affine, place: Affine| vec![y.clone(), place];
        let mut nodes = vec![assign(parts, at(&self.y, self.x.clone()), load(acc, Vec::new())), Node::Barrier];
        let mut start = 0;
        for pair in levels.windows(2) {
            let [before, count] = [pair[0], pair[1]];
            let (digits, values) = self.all.digits([("part", count)]);
            let part = |number: usize| load(parts, at(&self.y, values[0].clone() + (start + number * count) as i64));
            let all = (0..before / count).map(part);
            let value = all.reduce(|so_far, value| reduction.combined(so_far, value)).unwrap_or(Expr::Const(0.0));
            start += before;
            let combined = assign(parts, at(&self.y, values[0].clone() + start as i64), value);
            nodes.push(Node::Unflatten { value: self.x.clone(), digits, body: vec![combined] });
            nodes.push(Node::Barrier);
        }
        let result = at(&self.y, Affine::constant(start as i64));
        ((parts, result), nodes)
    }
}
