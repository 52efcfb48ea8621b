//! Lowering of the sketch `rows` to loop nests for a GPU.

use std::sync::Arc;

use super::{KEPT, Neighbours, Rows, elements, is_contiguous_within};
use crate::lower::nest::{Loops, NestParts, StageBuilder, allocated};
use crate::lower::tables::tables;
use crate::lower::{assign, load, nest};
use autotune_ir::affine::Affine;
use autotune_ir::program::{AxisInfo, BufferId, Digit, Expr, LoopKind, Node, Program, Role, Scope, Stage, When};
use autotune_ir::spec::{Axis, Equation};

mod element;
mod steps;
mod tile;

/// Lowers a plan to loop nests.
pub(super) fn lower(plan: &Rows) -> Program {
    let spec = &plan.chain.spec;
    let mut all = NestParts::new(spec, KEPT);
    for (number, tensor) in spec.operands().enumerate() {
        all.buffer(tensor.name.to_string(), Role::Operand(number), Scope::Global, tensor.shape.clone());
    }
    let result = spec.find(Role::Output);
    let output = all.buffer("output", Role::Output, Scope::Global, result.map_or_else(Vec::new, |it| it.shape.clone()));

    let (tables, made_ahead) = tables(spec, &mut all, &[("b", LoopKind::Block), ("t", LoopKind::Thread)]);
    let (made, counted) = (vec![None; spec.tensors.len()], vec![false; spec.tensors.len()]);
    let zero = Affine::default;
    let mut lowering = RowsLowering {
        plan,
        all,
        output,
        tables,
        number: zero(),
        y: zero(),
        x: zero(),
        lane: zero(),
        made,
        stored_values: Vec::new(),
        counted,
        private: Vec::new(),
        pass: 0,
        reads: 0,
    };
    let (loops, body) = match plan.tile {
        Some((turned, edge)) => lowering.tiles(turned, edge),
        None => (lowering.open_threads(), lowering.passes()),
    };
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

/// Location of the values that an equation defines.
#[derive(Clone)]
enum ResultLocation {
    /// Value of the whole row: in a register, or at `[y, place]` in shared memory.
    OfRow(BufferId, Vec<Affine>),
    /// Values of all elements of the row, in shared memory: `[y, element of the row]`.
    Kept(BufferId),
}

struct RowsLowering<'p> {
    plan: &'p Rows,
    all: NestParts,
    output: BufferId,
    /// Buffers of known tensors, by tensor.
    tables: Vec<Option<BufferId>>,
    /// Number of the thread's row or vector of rows in the workload; its number `y` in the block;
    /// and the number `x` of the thread in the row.
    number: Affine,
    y: Affine,
    x: Affine,
    /// Loop variable of the current vector lane; zero outside of loops over lanes.
    lane: Affine,
    /// Values that are already computed, by tensor. Others are computed where they are read.
    made: Vec<Option<ResultLocation>>,
    /// Values that the current pass stores for later passes.
    stored_values: Vec<(usize, ResultLocation)>,
    /// True, by tensor, if the equation's iterations are already marked for the verifier.
    counted: Vec<bool>,
    /// Buffers that are allocated around the whole body.
    private: Vec<BufferId>,
    /// Position of the pass that is lowered.
    pass: usize,
    /// Number of registers for operands in the current statement.
    reads: usize,
}

/// Values of all axes of an equation, at one element of a row.
type Values = Vec<Affine>;

impl<'p> RowsLowering<'p> {
    fn equation(&self) -> &'p Equation {
        &self.plan.chain.passes()[self.pass]
    }

    fn is_last(&self) -> bool {
        self.pass + 1 == self.plan.chain.passes().len()
    }

    /// Opens the loops over blocks and threads. Each thread computes a row or a part of one.
    fn open_threads(&mut self) -> Loops {
        let (plan, mut loops) = (self.plan, Loops::new());
        let block = self.all.open_some("b", plan.blocks(), LoopKind::Block, &mut loops);
        self.y = self.all.open("y", plan.block_rows, LoopKind::Thread, &mut loops);
        self.x = self.all.open_some("x", plan.row_threads, LoopKind::Thread, &mut loops);
        // The innermost thread loop has adjacent threads, so it is over the rows if these are
        // contiguous.
        if plan.row_threads > 1 && !is_contiguous_within(&plan.chain) {
            let last = loops.len();
            loops.swap(last - 2, last - 1);
        }
        self.number = block * plan.block_rows as i64 + &self.y;
        loops
    }

    /// Adds a buffer that is allocated around the whole body; values between equations are f32.
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
                // Readers compute a map of a row's elements where they need it.
                (false, false) if has_own => Vec::new(),
                (false, false) => self.value_of_row(),
            });
            for (tensor, made) in std::mem::take(&mut self.stored_values) {
                self.made[tensor] = Some(made);
            }
        }
        nodes
    }

    /// Adds digits for axes and returns their values. If vectors go in the given direction, the
    /// last digit counts vectors.
    fn starts(&mut self, axes: &[Axis], neighbours: Neighbours) -> (Vec<Digit>, Values) {
        let lanes = self.plan.lanes_of(neighbours);
        let vectors = |number: usize, extent: usize| if number + 1 == axes.len() { extent / lanes } else { extent };
        let extents = axes.iter().enumerate().map(|(number, axis)| (axis.name, vectors(number, axis.extent)));
        let (digits, mut values) = self.all.digits(extents);
        if let Some(last) = values.last_mut() {
            *last = std::mem::take(last) * lanes as i64;
        }
        (digits, values)
    }

    /// Runs `body` for each lane of the thread's vectors.
    fn for_lanes(&mut self, body: impl FnOnce(&mut Self) -> Vec<Node>) -> Vec<Node> {
        self.repeat("v", self.plan.lanes, LoopKind::Vectorized, |lowering, lane| {
            lowering.lane = lane;
            let nodes = body(lowering);
            lowering.lane = Affine::default();
            nodes
        })
    }

    /// Runs `body` for each row of the thread: for each lane if vectors are along rows, else once.
    fn for_rows(&mut self, body: impl FnOnce(&mut Self) -> Vec<Node>) -> Vec<Node> {
        match self.plan.neighbours {
            Neighbours::Rows => self.for_lanes(body),
            Neighbours::Elements => body(self),
        }
    }

    /// Shape of registers with one value per lane.
    fn lanes_shape(&self) -> Vec<usize> {
        if self.plan.lanes > 1 { vec![self.plan.lanes] } else { Vec::new() }
    }

    /// Index of the current lane in such a register.
    fn of_lane(&self) -> Vec<Affine> {
        if self.plan.lanes > 1 { vec![self.lane.clone()] } else { Vec::new() }
    }

    /// Last dimension of values per row, and the current lane's index in it; `None` unless vectors
    /// are along rows.
    fn of_lane_of_rows(&self) -> Option<(usize, Affine)> {
        let lanes = self.plan.lanes_of(Neighbours::Rows);
        (lanes > 1).then(|| (lanes, self.lane.clone()))
    }

    /// Index of a row's value in shared memory.
    fn in_shared(&self, places: impl IntoIterator<Item = Affine>) -> Vec<Affine> {
        let lane = self.of_lane_of_rows().map(|(_, lane)| lane);
        std::iter::once(self.y.clone()).chain(places).chain(lane).collect()
    }

    /// Index of the current lane in registers for values of rows.
    fn in_register(&self) -> Vec<Affine> {
        self.of_lane_of_rows().map(|(_, lane)| lane).into_iter().collect()
    }

    /// Adds a buffer in shared memory with `values` per row of the block.
    fn shared(&mut self, name: &str, values: impl IntoIterator<Item = usize>) -> BufferId {
        let lanes = self.of_lane_of_rows().map(|(lanes, _)| lanes);
        let shape = std::iter::once(self.plan.block_rows).chain(values).chain(lanes).collect();
        self.allocate(name, Role::Packed, Scope::Shared, shape)
    }

    /// Adds a register for a value of the row, or of each row of a vector.
    fn register_of_row(&mut self, name: &str) -> BufferId {
        let shape = self.of_lane_of_rows().map(|(lanes, _)| lanes).into_iter().collect();
        self.allocate(name, Role::Packed, Scope::Register, shape)
    }

    /// Adds a register for each lane.
    fn register(&mut self, name: &str, role: Role) -> BufferId {
        self.allocate(name, role, Scope::Register, self.lanes_shape())
    }

    /// Runs `body` with the row axes of the thread's row, if that row exists.
    fn row(&mut self, body: impl FnOnce(&mut Self, Values) -> Vec<Node>) -> Vec<Node> {
        let plan = self.plan;
        let (digits, values) = self.starts(plan.chain.row_axes(), Neighbours::Rows);
        let body = body(self, values);
        vec![Node::Unflatten { value: self.number.clone(), digits, body }]
    }

    /// Restricts a body to one thread of the row.
    fn first(&mut self, body: Vec<Node>) -> Vec<Node> {
        if self.plan.row_threads == 1 {
            return body;
        }
        let (digits, _) = self.all.digits([("first", 1)]);
        vec![Node::Unflatten { value: self.x.clone(), digits, body }]
    }

    /// Returns the values of all axes of a pass with one element per row. With vectors along rows,
    /// the row is the current lane's.
    fn at_row(&self, mut row: Values) -> Values {
        let own = self.equation().axes.len() - self.plan.chain.rows;
        if let (Some((_, lane)), Some(last)) = (self.of_lane_of_rows(), row.last_mut()) {
            last.add_scaled(&lane, 1);
        }
        row.into_iter().chain(std::iter::repeat_n(Affine::default(), own)).collect()
    }

    /// Returns a map of row values that others read; each thread computes it for itself.
    fn value_of_row(&mut self) -> Vec<Node> {
        let tensor = self.equation().output.buffer;
        let name = self.plan.chain.spec.tensors[tensor.0 as usize].name.to_string();
        let buffer = self.register_of_row(&name);
        let nodes = self.row(|lowering, row| {
            lowering.for_rows(|lowering| {
                let values = lowering.at_row(row);
                let (mut nodes, value) = lowering.value(&values);
                nodes.push(assign(buffer, lowering.in_register(), value));
                nodes
            })
        });
        self.made[tensor.0 as usize] = Some(ResultLocation::OfRow(buffer, Vec::new()));
        nodes
    }

    /// Returns the last pass if it has one element of the result per row.
    fn map_of_row(&mut self) -> Vec<Node> {
        self.row(|lowering, row| {
            let nodes = lowering.for_rows(|lowering| {
                let values = lowering.at_row(row);
                let (mut nodes, value) = lowering.value(&values);
                // If several threads compute the same element, the verifier must not count each as
                // an iteration.
                let iteration = (lowering.plan.row_threads == 1).then(|| lowering.iteration(&values));
                nodes.push(lowering.stored(value, &values, iteration));
                nodes
            });
            lowering.first(nodes)
        })
    }

    /// Returns the last pass if it has several elements of the result per row.
    fn map(&mut self) -> Vec<Node> {
        self.row(|lowering, row| {
            lowering.steps(row, &mut |lowering, values| {
                let (mut nodes, value) = lowering.value(&values);
                nodes.push(lowering.stored(value, &values, Some(lowering.iteration(&values))));
                nodes
            })
        })
    }

    /// Returns a pass that reduces a row:
    ///
    /// ```text
    /// acc = neutral;  for the thread's elements { acc = combined(acc, value) }
    /// combine the threads' accumulators;  result = acc, if it is the last pass
    /// ```
    fn reduction(&mut self) -> Vec<Node> {
        let tensor = self.equation().output.buffer;
        let name = self.plan.chain.spec.tensors[tensor.0 as usize].name.to_string();
        let acc = self.register(&format!("{name}_acc"), Role::Accumulator);
        let neutral = Expr::Const(self.equation().reduction.neutral());
        let mut nodes = self.for_lanes(|lowering| vec![assign(acc, lowering.of_lane(), neutral)]);
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
                // All threads have the result, but one of them stores it.
                let stored = lowering.for_rows(|lowering| {
                    let value = lowering.of_row(made.0, &made.1);
                    vec![lowering.stored(value, &lowering.at_row(row), None)]
                });
                lowering.first(stored)
            }));
        }
        self.made[tensor.0 as usize] = Some(ResultLocation::OfRow(made.0, made.1));
        nodes
    }

    /// Returns the value of a row, or of the current lane's row, at a position.
    fn of_row(&self, buffer: BufferId, place: &[Affine]) -> Expr {
        match self.all.buffers[buffer.0 as usize].scope {
            Scope::Register => load(buffer, self.in_register()),
            _ => load(buffer, self.in_shared(place.iter().cloned())),
        }
    }

    /// Returns a thread's partial result of a row, combined over its lanes if vectors are along
    /// elements.
    fn found(&self, acc: BufferId) -> Expr {
        let (reduction, lanes) = (self.equation().reduction, self.plan.lanes_of(Neighbours::Elements));
        if lanes == 1 {
            return load(acc, self.of_lane());
        }
        let all = (0..lanes).map(|lane| load(acc, vec![Affine::constant(lane as i64)]));
        all.reduce(|so_far, value| reduction.combined(so_far, value)).unwrap_or(Expr::Const(0.0))
    }

    /// Combines the partial results of the threads of a row level by level, each level in its own
    /// part of shared memory. Returns the location of the result, and the nodes.
    fn combine_threads(&mut self, name: &str, acc: BufferId) -> ((BufferId, Vec<Affine>), Vec<Node>) {
        let levels = self.plan.levels();
        if levels.len() == 1 {
            let result = self.register_of_row(name);
            let nodes = self.for_rows(|lowering| vec![assign(result, lowering.in_register(), lowering.found(acc))]);
            return ((result, Vec::new()), nodes);
        }

        let reduction = self.equation().reduction;
        let parts = self.shared(&format!("{name}_parts"), [levels.iter().sum()]);
        let mut nodes = self
            .for_rows(|lowering| vec![assign(parts, lowering.in_shared([lowering.x.clone()]), lowering.found(acc))]);
        nodes.push(Node::Barrier);

        let mut start = 0;
        // A level reads the part before it, so a barrier separates the two.
        for pair in levels.windows(2) {
            let [before, count] = [pair[0], pair[1]];
            let (digits, values) = self.all.digits([("part", count)]);
            let place = |number: usize| [values[0].clone() + number as i64];
            let body = self.for_rows(|lowering| {
                let part = |number: usize| load(parts, lowering.in_shared(place(start + number * count)));
                let all = (0..before / count).map(part);
                let value = all.reduce(|so_far, value| reduction.combined(so_far, value)).unwrap_or(Expr::Const(0.0));
                vec![assign(parts, lowering.in_shared(place(start + before)), value)]
            });
            start += before;
            // Splitting the thread's number skips the threads from `count` on.
            nodes.push(Node::Unflatten { value: self.x.clone(), digits, body });
            nodes.push(Node::Barrier);
        }
        ((parts, vec![Affine::constant(start as i64)]), nodes)
    }
}
