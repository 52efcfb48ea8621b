//! Work of one GPU stage: instructions, memory requests, registers and barriers, from one walk over
//! its tree.

use smallvec::SmallVec;

use super::super::nest::RunNest;
use super::digits::divisions;
use super::live::LiveRegisters;
use super::requests::MemoryRequests;
use super::warp::Warp;
use super::wave::Waves;
use crate::affine::{Affine, VarId};
use crate::formula::Formula;
use crate::instruction::{Asynchrony, Fragments, ThreadGroup};
use crate::launch::Launch;
use crate::machine::gpu::{
    CONDITION_INSTRUCTIONS, CONVERSION_INSTRUCTIONS, DIGIT_INSTRUCTIONS, LOOP_INSTRUCTIONS, MMA_THREAD_REGISTERS,
    POWER_INSTRUCTIONS, THREAD_REGISTERS, primitive_instructions,
};
use crate::program::{
    Access, Digit, Expr, GpuGrid, InBounds, Loop, LoopKind, Mbarrier, Node, Scope, Stage, Store, StoreMode, UnaryOp,
    preorder,
};
use crate::vector::Vector;

mod products;

/// Work of one GPU stage. Counts per thread are those of the busiest thread, which ends last.
#[derive(Clone, Debug, Default)]
pub struct StageWork {
    /// Blocks of the grid.
    pub blocks: f64,
    /// Threads per block, including a producer.
    pub threads: f64,
    /// Warps per block, including a producer.
    pub warps: f64,
    /// Threads per block that compute; producer threads are excluded.
    pub workers: f64,
    /// Warps of the threads that compute.
    pub working_warps: f64,
    /// Bytes of shared memory per block.
    pub shared_bytes: f64,
    /// Estimated registers per thread.
    pub registers: f64,
    /// Multiply-adds of the contraction per thread.
    pub fmas: f64,
    /// Part of `fmas` that matrix instructions execute.
    pub tensor_fmas: f64,
    /// Threads that execute a matrix instruction together; `None` without matrix instructions.
    pub team: Option<ThreadGroup>,
    /// Multiply-adds of the average thread over those of the busiest, in `0.0..=1.0`.
    pub load_balance: f64,
    /// Multiply-adds of the average block over those of the busiest, as far as blocks skip parts of
    /// their work as a whole.
    pub block_share: f64,
    /// Accumulators per thread: partial sums in registers.
    pub accumulators: f64,
    /// Instructions per thread, except multiply-adds and memory requests.
    pub other: f64,
    /// Barriers that a thread executes.
    pub barriers: f64,
    /// Number of times that a thread waits for a global load right after issuing it.
    pub waits: f64,
    /// Waits for earlier global loads; `1 / (n + 1)` each if `n` later groups are in flight.
    pub prefetches: f64,
    /// Requests to global memory, of an average block, since all blocks share its bandwidth.
    pub global: MemoryRequests,
    /// Requests to shared memory, of the busiest block.
    pub shared: MemoryRequests,
    /// Global memory accessed by the blocks that run concurrently.
    pub(super) waves: Waves,
}

impl StageWork {
    /// Computes the work of `stage`; `None` if it is not for a GPU.
    pub(super) fn of(nest: &RunNest, stage: &Stage, warp_threads: usize) -> Option<Self> {
        let (grid, launch) = (GpuGrid::of(stage)?, Launch::of(nest.program, stage)?);
        let work = Self {
            blocks: launch.blocks as f64,
            threads: launch.threads as f64,
            warps: launch.threads.div_ceil(warp_threads.max(1)) as f64,
            workers: grid.block_threads() as f64,
            waves: Waves::new(grid.blocks.iter().map(|l| (l.var, l.extent))),
            working_warps: grid.block_threads().div_ceil(warp_threads.max(1)) as f64,
            shared_bytes: launch.shared_bytes as f64,
            load_balance: 1.0,
            block_share: 1.0,
            ..Self::default()
        };

        let vars = nest.program.vars.len();
        let mut walk = GpuStageWalk {
            nest,
            work,
            warp: Warp::new(&grid, vars),
            extents: vec![1; vars],
            parallel: vec![false; vars],
            trips: 1.0,
            busy: 1.0,
            whole: 1.0,
            serial: 1.0,
            written_out: 1.0,
            in_group: false,
            global_accesses: Vec::with_capacity(4),
            numbers: Numbers::new(),
            changing: Vec::new(),
            unrolled: Vec::new(),
            groups: 1.0,
            guards: Vec::new(),
            registers: LiveRegisters::default(),
        };
        for l in grid.blocks.iter().chain(&grid.threads) {
            walk.extents[l.var.0 as usize] = l.extent;
            walk.parallel[l.var.0 as usize] = true;
        }
        walk.nodes(grid.body, None);

        // Footprints need the extents of all variables, so they are computed after the walk.
        for touch in &walk.global_accesses {
            walk.work.waves.record_access(nest, touch.access, &touch.numbers, |var| walk.extents[var.0 as usize]);
        }

        // Addresses, counters and temporaries take registers as well.
        let own = if walk.work.team.is_some() { MMA_THREAD_REGISTERS } else { THREAD_REGISTERS };
        walk.work.registers = walk.registers.most() + own as f64;
        Some(walk.work)
    }
}

/// The vectorised loop around a store, with the number of guards outside of it.
#[derive(Clone, Copy)]
struct Vectorised {
    var: VarId,
    extent: usize,
    guards: usize,
}

/// Address of an access to memory: its offset in elements, and the bytes per element.
struct AccessOffset {
    offset: Affine,
    bytes: usize,
}

/// Index values that are split into mixed-radix digits ([`Node::Unflatten`]), and the digits.
type Numbers<'a> = SmallVec<[(&'a Affine, &'a [Digit]); 4]>;

struct GlobalAccess<'a> {
    access: &'a Access,
    trips: f64,
    numbers: Numbers<'a>,
}

struct GpuStageWalk<'a> {
    nest: &'a RunNest<'a>,
    work: StageWork,
    warp: Warp,
    /// Extent of each variable that is bound.
    extents: Vec<usize>,
    /// True for variables that number blocks or threads, and for digits derived from them.
    parallel: Vec<bool>,
    /// Number of executions by the busiest thread.
    trips: f64,
    /// Number of executions by an average thread, divided by `trips`.
    busy: f64,
    /// Part of `busy` that is due to blocks that skip nodes as a whole.
    whole: f64,
    /// Number of executions by the busiest thread, with unrolled loops counted once.
    serial: f64,
    /// Number of copies of the code that unrolling makes.
    written_out: f64,
    in_group: bool,
    guards: Vec<&'a InBounds>,
    /// The access to each global buffer that is executed most often.
    global_accesses: Vec<GlobalAccess<'a>>,
    /// Index values split into digits around the current node.
    numbers: Numbers<'a>,
    /// Variables of loops around groups of copies, and digits of these.
    changing: Vec<VarId>,
    /// Variables of unrolled loops.
    unrolled: Vec<VarId>,
    /// Number of executions of the group of copies around the current node.
    groups: f64,
    registers: LiveRegisters,
}

impl<'a> GpuStageWalk<'a> {
    fn nodes(&mut self, nodes: &'a [Node], vector: Option<Vectorised>) {
        nodes.iter().for_each(|node| self.node(node, vector));
    }

    fn node(&mut self, node: &'a Node, vector: Option<Vectorised>) {
        match node {
            Node::Loop(l) => self.looped(l, vector),
            Node::Store(store) => self.store(store, vector),
            Node::Alloc { buffer, body } => {
                let buffer = self.nest.program.buffer(*buffer);
                if buffer.scope == Scope::Register {
                    self.registers.allocated += buffer.len() as f64;
                }
                self.nodes(body, vector);
            }
            Node::Barrier => self.work.barriers += self.trips,
            Node::Guard { when, body } => {
                let (outer, trips, busy, whole) = (self.guards.len(), self.trips, self.busy, self.whole);
                self.work.other += self.trips * CONDITION_INSTRUCTIONS * when.len() as f64;
                self.guards.extend(when);
                for condition in when {
                    self.narrow(&condition.index, condition.extent);
                }
                // Only whole blocks may skip a barrier.
                if preorder(body).any(|node| *node == Node::Barrier) {
                    self.whole *= self.busy / busy;
                }
                self.nodes(body, vector);
                (self.trips, self.busy, self.whole) = (trips, busy, whole);
                self.guards.truncate(outer);
            }
            Node::Unflatten { value, digits, body } => self.unflatten(value, digits, body),

            Node::CopyGroup { body } => {
                // Destination addresses are computed anew for each group: no registers.
                let written_out = std::mem::replace(&mut self.written_out, 1.0);
                (self.in_group, self.groups) = (true, self.trips);
                self.nodes(body, vector);
                (self.in_group, self.groups) = (false, 1.0);
                self.written_out = written_out;
            }
            Node::AwaitCopies { pending } | Node::Mbarrier(Mbarrier::WaitEmpty { pending }) => {
                // Nothing overlaps with the wait for the first group.
                self.work.waits = self.work.waits.max(1.0);
                self.work.prefetches = self.work.prefetches.max(self.trips / (pending + 1) as f64);
            }
            Node::Call { instruction, body } if instruction.asynchrony == Asynchrony::Copies => {
                // A bulk copy is one instruction of one thread and takes no registers.
                let (other, registers) = (self.work.other, self.registers);
                self.nodes(body, vector);
                (self.work.other, self.registers) = (other, registers);
            }
            Node::Specialised { body, .. } => self.nodes(body, vector),
            Node::Call { instruction, body } => match (instruction.threads(), Fragments::of(body)) {
                (Some(by), Some(tile)) => self.mma(by, &tile),
                _ => self.nodes(body, vector),
            },
            Node::Mbarrier(_) | Node::Prefetch { .. } => {}
        }
    }

    fn looped(&mut self, l: &'a Loop, vector: Option<Vectorised>) {
        let outer = (self.trips, self.serial, self.written_out);
        self.extents[l.var.0 as usize] = l.extent;
        self.unrolled.extend((l.kind == LoopKind::Unrolled).then_some(l.var));
        self.changing.extend((!self.in_group).then_some(l.var));

        self.warp.enter(l.var, l.extent);
        self.trips *= l.extent as f64;
        match l.kind {
            LoopKind::Vectorized => {
                // One lane stands for all: others only shift the addresses.
                self.warp.set(l.var, 0);
                let vector = Vectorised { var: l.var, extent: l.extent, guards: self.guards.len() };
                self.nodes(&l.body, Some(vector));
            }
            LoopKind::Unrolled => {
                // Unrolled copies issue their loads together, so the number of waits stays.
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
        let (trips, busy) = (self.trips, self.busy);
        let changes = value.terms.iter().any(|(var, _)| self.changing.contains(var));
        // Digits that are the same in all groups of copies are computed before the first one.
        let times = if self.in_group && !changes { trips / self.groups } else { trips };
        // A digit differs between threads if the split value does.
        let is_parallel = value.terms.iter().any(|&(var, _)| self.is_parallel(var));
        let count = match self.in_group || !is_parallel {
            true => divisions(value, digits, |var| self.unrolled.contains(&var)),
            // The costs of other digits are fitted together with those of the loops around them.
            false => digits.len() as f64,
        };
        self.work.other += times * DIGIT_INSTRUCTIONS * count;
        self.changing.extend(digits.iter().filter(|_| changes).map(|digit| digit.var));
        self.narrow(value, digits.iter().map(|d| d.extent).product());

        for digit in digits {
            self.extents[digit.var.0 as usize] = digit.extent;
            self.parallel[digit.var.0 as usize] = is_parallel;
        }
        self.numbers.push((value, digits));
        self.work.waves.unflatten(value, digits);
        let bound = self.warp.bind(value, digits);
        self.nodes(body, None);
        self.warp.unbind(bound);
        self.numbers.pop();
        (self.trips, self.busy) = (trips, busy);
    }

    /// Restricts the following nodes to values of `index` within `0..extent`: for the busiest
    /// thread by its own loops, for an average one by blocks, threads and loops together.
    fn narrow(&mut self, index: &Affine, extent: usize) {
        let [inside, all] = self.within(index, extent);
        // Range of a single thread: the numbers of blocks and threads are fixed.
        let (own_low, own_high) = index.range(|var| if self.is_parallel(var) { 1 } else { self.extent(var) });
        let busiest = (inside / (own_high - own_low + 1) as f64).min(1.0);
        self.trips *= busiest;
        if busiest > 0.0 {
            self.busy *= inside / all / busiest;
        }
    }

    fn is_parallel(&self, var: VarId) -> bool {
        self.parallel.get(var.0 as usize).copied().unwrap_or(false)
    }

    fn extent(&self, var: VarId) -> usize {
        self.extents.get(var.0 as usize).copied().unwrap_or(1)
    }

    /// Estimates the share of the loops' iterations for which all conditions hold.
    fn share<'c>(&self, when: impl IntoIterator<Item = &'c InBounds>) -> f64 {
        let share = |condition: &InBounds| {
            let [inside, all] = self.within(&condition.index, condition.extent);
            inside / all
        };
        when.into_iter().map(share).product()
    }

    /// Estimates the number of values of an index: those within `0..extent`, and all.
    fn within(&self, index: &Affine, extent: usize) -> [f64; 2] {
        let (low, high) = index.range(|var| self.extent(var));
        let inside = high.min(extent as i64 - 1) - low.max(0) + 1;
        [inside.max(0) as f64, (high - low + 1) as f64]
    }

    fn store(&mut self, store: &'a Store, vector: Option<Vectorised>) {
        let mut accesses = Vec::with_capacity(4);
        let mut conditions = vector.map_or(Vec::new(), |v| self.guards[v.guards..].to_vec());
        // A guarded load is executed in only a share of the iterations.
        let note = &mut |load, guards: &[&InBounds]| accesses.push((load, self.share(guards.iter().copied())));
        store.value.for_each_guarded_load(&mut Vec::new(), note);
        let mut operations = 0.0;
        store.value.for_each(&mut |expr| match expr {
            Expr::Const(_) | Expr::Load(_) | Expr::Gather(_) => {}
            Expr::Unary(UnaryOp::Exp2, _) => operations += POWER_INSTRUCTIONS,
            Expr::Unary(..) | Expr::Binary(..) | Expr::Select(..) => {
                let primitives = Formula::of(expr).into_iter().flat_map(Formula::primitives);
                operations += primitives.map(primitive_instructions).sum::<f64>();
            }
            Expr::Guarded { when, .. } => {
                // Outcomes of a copy's conditions are bits of one word.
                let count = if self.in_group { when.len().min(1) } else { when.len() };
                operations += CONDITION_INSTRUCTIONS * count as f64;
                conditions.extend(when);
            }
        });

        let accumulates = store.mode == StoreMode::Accumulate;
        let scope = self.nest.scope(store.dst.buffer);
        // Multiply-adds of the contraction are counted apart from other instructions.
        if self.nest.main_point(store).is_none() {
            self.work.other += self.trips * (operations + f64::from(u8::from(accumulates)));
        } else {
            self.multiply(1.0);
            self.work.accumulators =
                self.work.accumulators.max(self.nest.program.buffer(store.dst.buffer).len() as f64);
        }
        self.note_copy(store, scope, &accesses);
        if accumulates {
            accesses.push((&store.dst, 1.0));
        }

        let places: Vec<_> = accesses.iter().map(|(access, _)| self.place(access)).collect();
        let stored = self.place(&store.dst);
        // Threads compute in f32 and convert narrower elements; asynchronous copies do not.
        if !self.in_group {
            let narrow = places.iter().chain([&stored]).flatten().filter(|place| place.bytes < 4).count();
            self.work.other += self.trips * CONVERSION_INSTRUCTIONS * narrow as f64;
        }
        let at_once = vector.map(|v| (self.at_once(v, places.iter().chain([&stored]), &conditions), v.extent));
        for ((access, share), place) in accesses.iter().zip(&places) {
            self.request(access, place, at_once, *share, false);
        }
        self.request(&store.dst, &stored, at_once, 1.0, true);
    }

    /// Records an access to a global buffer if it is the one executed most often.
    fn note_touch(&mut self, access: &'a Access) {
        let known = self.global_accesses.iter_mut().find(|touch| touch.access.buffer == access.buffer);
        if known.as_ref().is_some_and(|known| known.trips >= self.trips) {
            return;
        }
        let touch = GlobalAccess { access, trips: self.trips, numbers: self.numbers.clone() };
        match known {
            Some(known) => *known = touch,
            None => self.global_accesses.push(touch),
        }
    }

    /// Returns the address of an access; `None` if it is to registers.
    fn place(&self, access: &Access) -> Option<AccessOffset> {
        if !matches!(self.nest.scope(access.buffer), Scope::Global | Scope::Shared) {
            return None;
        }
        let mut offset = Affine { constant: 0, terms: SmallVec::with_capacity(8) };
        for (index, &stride) in access.index.iter().zip(self.nest.strides(access.buffer)) {
            offset.add_scaled(index, stride);
        }
        Some(AccessOffset { offset, bytes: self.nest.program.dtype(access.buffer).bytes() })
    }

    /// Returns the widest vector that the code generators can access at once: at least one access
    /// is contiguous over it, and every condition is the same for all its lanes.
    fn at_once<'o>(
        &self,
        l: Vectorised,
        places: impl Iterator<Item = &'o Option<AccessOffset>> + Clone,
        conditions: &[&InBounds],
    ) -> Vector {
        Vector::widest(l.var, 0, l.extent, |vector| {
            conditions.iter().all(|condition| vector.is_uniform(condition, |var| self.extent(var)))
                && places.clone().flatten().any(|place| self.is_contiguous(place, vector))
        })
    }

    fn is_contiguous(&self, place: &AccessOffset, vector: Vector) -> bool {
        vector.is_contiguous(&place.offset, place.bytes, |var| self.extent(var))
    }

    fn request(
        &mut self,
        access: &'a Access,
        place: &Option<AccessOffset>,
        at_once: Option<(Vector, usize)>,
        share: f64,
        stores: bool,
    ) {
        let Some(place) = place else { return };
        let AccessOffset { offset, bytes } = place;
        let (width, turns) = match at_once {
            // The address is the same for all lanes: one load serves the whole loop.
            Some((vector, extent)) if offset.coefficient(vector.var) == 0 => (1, 1.0 / extent as f64),
            Some((vector, extent)) => {
                let width = vector.lanes_at_once(offset, *bytes, |var| self.extent(var));
                (width, extent.div_ceil(width) as f64 / extent as f64)
            }
            None => (1, 1.0),
        };
        let count = self.trips * share * turns * self.work.working_warps;
        let (memory, request, busy) = match self.nest.scope(access.buffer) {
            Scope::Global => {
                self.note_touch(access);
                (&mut self.work.global, self.warp.global(offset, *bytes, width), self.busy)
            }
            _ => (&mut self.work.shared, self.warp.shared(offset, *bytes, width), 1.0),
        };

        let requests = if stores { &mut memory.stores } else { &mut memory.loads };
        requests[self.nest.operand(access.buffer) as usize].add(request, count * busy, width);
    }
}
