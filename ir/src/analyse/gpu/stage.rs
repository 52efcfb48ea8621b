//! What one GPU stage does: work, requests to memory, registers and barriers, from one walk over its tree.

use super::super::nest::Nest;
use super::warp::{MAX_WIDTH, Request, Warp};
use crate::affine::{Affine, VarId};
use crate::instruction::{Asynchrony, Fragments, ThreadGroup};
use crate::launch::{Grid, Launch};
use crate::machine::gpu::{
    BANK_BYTES, BANKS, CONDITION_INSTRUCTIONS, COPY_REGISTERS, DIGIT_INSTRUCTIONS, FRAGMENT_TURNS, LOOP_INSTRUCTIONS,
    MAX_ACCESS_BYTES, PREFETCH_REGISTERS, SECTOR_BYTES, THREAD_REGISTERS,
};
use crate::program::{
    Access, BufferId, Digit, Expr, InBounds, Loop, LoopKind, Mbarrier, Node, Scope, Stage, Store, StoreMode,
};

/// Bytes of one turn of shared memory.
const TURN_BYTES: f64 = (BANKS * BANK_BYTES) as f64;

/// Requests of one kind to one kind of memory, for one block.
#[derive(Clone, Copy, Debug, Default)]
pub struct Requests {
    /// Requests of warps.
    pub count: f64,
    /// Bytes of distinct elements, summed over requests.
    pub bytes: f64,
    /// Sectors of 32 bytes, or turns of shared memory.
    pub units: f64,
    /// Elements of a thread, summed over requests.
    pub width: f64,
    /// Turns of shared memory without bank conflicts.
    pub fewest_turns: f64,
}

impl Requests {
    fn add(&mut self, request: Request, count: f64, width: usize) {
        self.count += count;
        self.bytes += count * request.bytes;
        self.units += count * request.units;
        self.width += count * width as f64;
        self.fewest_turns += count * (request.bytes / TURN_BYTES).ceil();
    }

    /// Elements of a thread, on average.
    pub fn mean_width(&self) -> f64 {
        self.width / self.count
    }

    /// Bytes of the sectors.
    pub fn sector_bytes(&self) -> f64 {
        self.units * SECTOR_BYTES as f64
    }

    /// Share of the bytes of the sectors that is asked for.
    pub fn coalescing(&self) -> f64 {
        self.bytes / self.sector_bytes()
    }

    /// Turns of shared memory over those that the elements take without conflict.
    pub fn conflict_ways(&self) -> f64 {
        self.units / self.fewest_turns
    }
}

/// Loads and stores of one kind of memory by operand (data, weight, output), for one block.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memory {
    /// Loads.
    pub loads: [Requests; 3],
    /// Stores.
    pub stores: [Requests; 3],
}

impl Memory {
    pub(super) fn all(&self) -> impl Iterator<Item = &Requests> {
        self.loads.iter().chain(&self.stores)
    }
}

/// What one GPU stage does.
#[derive(Clone, Debug, Default)]
pub struct StageWork {
    /// Blocks of the grid.
    pub blocks: f64,
    /// Threads of a block.
    pub threads: f64,
    /// Warps of a block.
    pub warps: f64,
    /// Shared memory of a block.
    pub shared_bytes: f64,
    /// Registers of a thread, about.
    pub registers: f64,
    /// Multiply-adds of the contraction, of one thread.
    pub fmas: f64,
    /// Those of them by matrix instructions.
    pub tensor_fmas: f64,
    /// Partial sums that a thread keeps.
    pub accumulators: f64,
    /// Other instructions of one thread than multiply-adds and requests to memory.
    pub other: f64,
    /// Barriers that a thread comes by.
    pub barriers: f64,
    /// Times that a thread waits for global memory at once.
    pub waits: f64,
    /// Times that it loads from global memory for later; of several loads under way together each counts for its part.
    pub prefetches: f64,
    /// Requests to global memory.
    pub global: Memory,
    /// Requests to shared memory.
    pub shared: Memory,
    /// Bytes of the global buffers that are loaded from or stored to.
    pub touched_bytes: f64,
}

impl StageWork {
    /// The work of a stage; `None` if it is not for a GPU.
    pub(super) fn of(nest: &Nest, stage: &Stage, warp_threads: usize) -> Option<Self> {
        let (grid, launch) = (Grid::of(stage)?, Launch::of(nest.program, stage)?);
        let work = Self {
            blocks: launch.blocks as f64,
            threads: launch.threads as f64,
            warps: launch.threads.div_ceil(warp_threads.max(1)) as f64,
            shared_bytes: launch.shared_bytes as f64,
            registers: THREAD_REGISTERS as f64,
            ..Self::default()
        };
        let vars = nest.program.vars.len();
        let mut walk = Walk {
            nest,
            work,
            warp: Warp::new(&grid, vars),
            extents: vec![1; vars],
            trips: 1.0,
            serial: 1.0,
            written_out: 1.0,
            in_group: false,
            guards: Vec::new(),
            copies: [0.0; 3],
            touched: Vec::with_capacity(4),
        };
        grid.blocks.iter().chain(&grid.threads).for_each(|l| walk.extents[l.var.0 as usize] = l.extent);
        walk.nodes(grid.body, None);
        walk.work.registers += walk.copies.iter().sum::<f64>();
        Some(walk.work)
    }
}

/// The vectorised loop around a store, and the number of conditions outside of it.
#[derive(Clone, Copy)]
struct Vector {
    var: VarId,
    extent: usize,
    guards: usize,
}

/// Where an access to memory is: its offset in elements of so many bytes.
struct Place {
    offset: Affine,
    bytes: usize,
}

struct Walk<'a> {
    nest: &'a Nest<'a>,
    work: StageWork,
    warp: Warp,
    /// Extent of each variable that is bound.
    extents: Vec<usize>,
    /// How often a thread comes by.
    trips: f64,
    /// The same, with loops that are written out counted once.
    serial: f64,
    /// How often the code is written out.
    written_out: f64,
    /// True within a group of copies.
    in_group: bool,
    guards: Vec<&'a InBounds>,
    /// Registers for copies, by operand.
    copies: [f64; 3],
    /// Global buffers met.
    touched: Vec<BufferId>,
}

impl<'a> Walk<'a> {
    fn nodes(&mut self, nodes: &'a [Node], vector: Option<Vector>) {
        nodes.iter().for_each(|node| self.node(node, vector));
    }

    fn node(&mut self, node: &'a Node, vector: Option<Vector>) {
        match node {
            Node::Loop(l) => self.looped(l, vector),
            Node::Store(store) => self.store(store, vector),
            Node::Alloc { buffer, body } => {
                let buffer = self.nest.program.buffer(*buffer);
                if buffer.scope == Scope::Register {
                    self.work.registers += buffer.len() as f64;
                }
                self.nodes(body, vector);
            }
            Node::Barrier => self.work.barriers += self.trips,
            Node::Guard { when, body } => {
                let (outer, trips) = (self.guards.len(), self.trips);
                self.work.other += self.trips * CONDITION_INSTRUCTIONS * when.len() as f64;
                self.guards.extend(when);
                self.trips *= self.share(when);
                self.nodes(body, vector);
                self.trips = trips;
                self.guards.truncate(outer);
            }
            Node::Unflatten { value, digits, body } => self.unflatten(value, digits, body),
            Node::CopyGroup { body } => {
                // Where copies go is computed for each group anew.
                let written_out = std::mem::replace(&mut self.written_out, 1.0);
                self.in_group = true;
                self.nodes(body, vector);
                self.in_group = false;
                self.written_out = written_out;
            }
            Node::AwaitCopies { but } | Node::Mbarrier(Mbarrier::WaitEmpty { but }) => {
                self.work.prefetches = self.work.prefetches.max(self.serial / (but + 1) as f64);
            }
            Node::Call { instruction, body } if instruction.asynchrony == Asynchrony::Copies => {
                // One instruction of one thread, and no registers.
                let (other, copies) = (self.work.other, self.copies);
                self.nodes(body, vector);
                (self.work.other, self.copies) = (other, copies);
            }
            Node::Specialised { body, .. } => self.nodes(body, vector),
            Node::Call { instruction, body } => match (instruction.multiplies, Fragments::of(body)) {
                (Some(by), Some(tile)) => self.mma(by, &tile),
                _ => self.nodes(body, vector),
            },
            Node::Mbarrier(_) | Node::Prefetch { .. } => {}
        }
    }

    fn looped(&mut self, l: &'a Loop, vector: Option<Vector>) {
        let outer = (self.trips, self.serial, self.written_out);
        self.extents[l.var.0 as usize] = l.extent;
        self.warp.enter(l.var, l.extent);
        self.trips *= l.extent as f64;
        match l.kind {
            LoopKind::Vectorized => {
                self.warp.set(l.var, 0);
                let vector = Vector { var: l.var, extent: l.extent, guards: self.guards.len() };
                self.nodes(&l.body, Some(vector));
            }
            LoopKind::Unrolled => {
                self.written_out *= l.extent as f64;
                self.nodes(&l.body, vector);
            }
            _ => {
                self.serial *= l.extent as f64;
                self.work.other += self.trips * LOOP_INSTRUCTIONS;
                self.nodes(&l.body, vector);
            }
        }
        (self.trips, self.serial, self.written_out) = outer;
    }

    fn unflatten(&mut self, value: &'a Affine, digits: &'a [Digit], body: &'a [Node]) {
        let trips = self.trips;
        let count: f64 = digits.iter().map(|d| d.extent as f64).product();
        let (_, most) = value.range(|var| self.extent(var));
        self.work.other += trips * DIGIT_INSTRUCTIONS * digits.len() as f64;
        self.trips *= (count / (most + 1) as f64).min(1.0);
        digits.iter().for_each(|d| self.extents[d.var.0 as usize] = d.extent);
        let bound = self.warp.bind(value, digits);
        self.nodes(body, None);
        self.warp.unbind(bound);
        self.trips = trips;
    }

    /// Multiply-adds, instructions, and what is read of shared memory: each warp its rows and its columns, those of a warp group
    /// once for the four. Warps read whole fragments into registers, without bank conflicts.
    fn mma(&mut self, by: ThreadGroup, tile: &Fragments) {
        let [steps, rows, ..] = tile.loops.map(|l| l.extent as f64);
        let columns = tile.width() as f64 / 8.0;
        let fmas: f64 = tile.loops.iter().map(|l| l.extent as f64).product();
        self.work.fmas += self.trips * fmas;
        self.work.tensor_fmas += self.trips * fmas;
        self.work.accumulators =
            self.work.accumulators.max(self.nest.program.buffer(tile.store.dst.buffer).len() as f64);
        // Rows of 16 elements of a warp, and pairs of eight columns, are 512 bytes, one instruction to read.
        let pairs = columns / 2.0;
        let (instructions, column_turns) = match by {
            ThreadGroup::Warp => (steps * rows * columns, FRAGMENT_TURNS),
            ThreadGroup::WarpGroup => (steps * rows, FRAGMENT_TURNS / 4.0),
        };
        self.work.other += self.trips * instructions;
        if by == ThreadGroup::Warp {
            self.work.registers += 4.0 * rows + 2.0 * columns;
        }
        for (access, count, turns) in [(tile.rows, rows, FRAGMENT_TURNS), (tile.columns, pairs, column_turns)] {
            let request = Request { bytes: turns * TURN_BYTES, units: turns };
            let operand = self.nest.operand(access.buffer) as usize;
            self.work.shared.loads[operand].add(request, self.trips * self.work.warps * steps * count, MAX_WIDTH);
        }
    }

    fn extent(&self, var: VarId) -> usize {
        self.extents.get(var.0 as usize).copied().unwrap_or(1)
    }

    /// Share of the points of the loops for which the conditions hold, about.
    fn share(&self, when: &[InBounds]) -> f64 {
        let share = |condition: &InBounds| {
            let (low, high) = condition.index.range(|var| self.extent(var));
            let inside = high.min(condition.extent as i64 - 1) - low.max(0) + 1;
            inside.max(0) as f64 / (high - low + 1) as f64
        };
        when.iter().map(share).product()
    }

    fn store(&mut self, store: &'a Store, vector: Option<Vector>) {
        let mut accesses = Vec::with_capacity(4);
        let mut conditions = vector.map_or(Vec::new(), |v| self.guards[v.guards..].to_vec());
        let operations = self.loads(&store.value, 1.0, &mut accesses, &mut conditions);
        let accumulates = store.mode == StoreMode::Accumulate;
        let scope = self.nest.scope(store.dst.buffer);
        if store.point.is_empty() {
            self.work.other += self.trips * (operations + f64::from(u8::from(accumulates)));
        } else {
            self.work.fmas += self.trips;
            self.work.accumulators =
                self.work.accumulators.max(self.nest.program.buffer(store.dst.buffer).len() as f64);
        }
        self.note_copy(store, scope, &accesses);
        if accumulates {
            accesses.push((&store.dst, 1.0));
        }
        let places: Vec<_> = accesses.iter().map(|(access, _)| self.place(access)).collect();
        let stored = self.place(&store.dst);
        let width = vector.map_or(1, |v| self.width(v, places.iter().chain([&stored]), &conditions));
        for ((access, share), place) in accesses.iter().zip(&places) {
            self.request(access, place, (vector, width), *share, false);
        }
        self.request(&store.dst, &stored, (vector, width), 1.0, true);
    }

    /// Notes every load with the share of times that it happens; the number of operations.
    fn loads(
        &self,
        expr: &'a Expr,
        share: f64,
        loads: &mut Vec<(&'a Access, f64)>,
        conditions: &mut Vec<&'a InBounds>,
    ) -> f64 {
        match expr {
            Expr::Const(_) => 0.0,
            Expr::Load(access) => {
                loads.push((access, share));
                0.0
            }
            Expr::Add(of) | Expr::Mul(of) | Expr::Max(of) => {
                1.0 + of.iter().map(|expr| self.loads(expr, share, loads, conditions)).sum::<f64>()
            }
            Expr::Guarded { when, value } => {
                conditions.extend(when);
                let inner = self.loads(value, share * self.share(when), loads, conditions);
                inner + CONDITION_INSTRUCTIONS * when.len() as f64
            }
        }
    }

    /// Notes the registers that a copy from global memory takes, and that it waits for it.
    fn note_copy(&mut self, store: &Store, scope: Scope, loads: &[(&Access, f64)]) {
        let from = loads.iter().find(|(load, _)| self.nest.scope(load.buffer) == Scope::Global);
        let Some((load, _)) = from else { return };
        let (registers, times) = match scope {
            // Waited for by the node that awaits them.
            Scope::Shared if self.in_group => (COPY_REGISTERS, &mut 0.0),
            Scope::Shared => (COPY_REGISTERS, &mut self.work.waits),
            Scope::Register if store.point.is_empty() => (PREFETCH_REGISTERS, &mut self.work.prefetches),
            _ => return,
        };
        *times = times.max(self.serial);
        let copies = &mut self.copies[self.nest.operand(load.buffer) as usize];
        *copies = copies.max(self.written_out * registers as f64);
    }

    /// Where an access is in its buffer; `None` for registers.
    fn place(&self, access: &Access) -> Option<Place> {
        if !matches!(self.nest.scope(access.buffer), Scope::Global | Scope::Shared) {
            return None;
        }
        let mut offset = Affine::default();
        for (index, &stride) in access.index.iter().zip(self.nest.strides(access.buffer)) {
            offset.add_scaled(index, stride);
        }
        Some(Place { offset, bytes: self.nest.program.dtype(access.buffer).bytes() })
    }

    /// Elements that the code generators access at once: 8, 4 or 2, of 16 bytes at most, where some access of the vectorised loop is contiguous and
    /// aligned, and the conditions hold for all of them or for none.
    fn width<'o>(
        &self,
        vector: Vector,
        places: impl Iterator<Item = &'o Option<Place>> + Clone,
        conditions: &[&InBounds],
    ) -> usize {
        let fits = |&width: &usize| {
            let uniform = |condition: &&InBounds| match condition.index.coefficient(vector.var) {
                0 => true,
                1 => self.is_aligned(&condition.index, vector, width) && condition.extent.is_multiple_of(width),
                _ => false,
            };
            width <= vector.extent
                && conditions.iter().all(uniform)
                && places.clone().flatten().any(|place| self.is_contiguous(place, vector, width))
        };
        [MAX_WIDTH, 4, 2].into_iter().find(fits).unwrap_or(1)
    }

    fn is_contiguous(&self, place: &Place, vector: Vector, width: usize) -> bool {
        let fits = width * place.bytes <= MAX_ACCESS_BYTES;
        fits && place.offset.coefficient(vector.var) == 1 && self.is_aligned(&place.offset, vector, width)
    }

    /// True if the first of the elements is at a multiple of `width`.
    fn is_aligned(&self, offset: &Affine, vector: Vector, width: usize) -> bool {
        let width = width as i64;
        let is_multiple = |&(var, c): &(VarId, i64)| var == vector.var || c % width == 0 || self.extent(var) == 1;
        offset.constant % width == 0 && offset.terms.iter().all(is_multiple)
    }

    fn request(
        &mut self,
        access: &Access,
        place: &Option<Place>,
        (vector, width): (Option<Vector>, usize),
        share: f64,
        stores: bool,
    ) {
        let Some(place) = place else { return };
        let Place { offset, bytes } = place;
        let (width, turns) = match vector {
            Some(v) if self.is_contiguous(place, v, width) => {
                (width, v.extent.div_ceil(width) as f64 / v.extent as f64)
            }
            // The same element for all of the vectorised loop.
            Some(v) if offset.coefficient(v.var) == 0 => (1, 1.0 / v.extent as f64),
            _ => (1, 1.0),
        };
        let count = self.trips * share * turns * self.work.warps;
        let (memory, request) = match self.nest.scope(access.buffer) {
            Scope::Global => {
                if !self.touched.contains(&access.buffer) {
                    self.touched.push(access.buffer);
                    self.work.touched_bytes += (bytes * self.nest.program.buffer(access.buffer).len()) as f64;
                }
                (&mut self.work.global, self.warp.global(offset, *bytes, width))
            }
            _ => (&mut self.work.shared, self.warp.shared(offset, *bytes, width)),
        };
        let requests = if stores { &mut memory.stores } else { &mut memory.loads };
        requests[self.nest.operand(access.buffer) as usize].add(request, count, width);
    }
}
