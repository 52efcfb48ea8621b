//! What one GPU stage does: work, requests to memory, registers and barriers, from one walk over
//! its tree.

use smallvec::SmallVec;

use super::super::nest::Nest;
use super::requests::{Memory, TURN_BYTES};
use super::warp::{Request, Warp};
use super::wave::Waves;
use crate::affine::{Affine, VarId};
use crate::formula::Formula;
use crate::instruction::{Asynchrony, Fragments, ThreadGroup};
use crate::launch::Launch;
use crate::machine::gpu::{
    ASYNC_COPY_REGISTERS, CONDITION_INSTRUCTIONS, CONVERSION_INSTRUCTIONS, COPY_REGISTERS, DIGIT_INSTRUCTIONS,
    FRAGMENT_TURNS, LOOP_INSTRUCTIONS, MMA_THREAD_REGISTERS, PREFETCH_REGISTERS, THREAD_REGISTERS,
    primitive_instructions,
};
use crate::program::{
    Access, Digit, Expr, Grid, InBounds, Loop, LoopKind, Mbarrier, Node, Scope, Stage, Store, StoreMode,
};
use crate::vector::Vector;

/// What one GPU stage does. Counts of a thread are those of the busiest thread of the busiest
/// block: a stage ends with it.
#[derive(Clone, Debug, Default)]
pub struct StageWork {
    /// Blocks of the grid.
    pub blocks: f64,
    /// Threads of a block.
    pub threads: f64,
    /// Warps of a block.
    pub warps: f64,
    /// Those of the threads that the thread loops number, and not a producer's.
    pub workers: f64,
    /// Their warps.
    pub working_warps: f64,
    /// Shared memory of a block.
    pub shared_bytes: f64,
    /// Registers of a thread, about.
    pub registers: f64,
    /// Multiply-adds of the contraction, of one thread.
    pub fmas: f64,
    /// Those of them by matrix instructions.
    pub tensor_fmas: f64,
    /// Whose matrix instructions.
    pub team: Option<ThreadGroup>,
    /// Multiply-adds of an average thread over those of the busiest: blocks and threads without
    /// work have none.
    pub evenness: f64,
    /// Partial sums that a thread keeps.
    pub accumulators: f64,
    /// Other instructions of one thread than multiply-adds and requests to memory.
    pub other: f64,
    /// Barriers that a thread comes by.
    pub barriers: f64,
    /// Times that a thread waits for global memory at once.
    pub waits: f64,
    /// Times that it loads from global memory for later; of several loads under way together each
    /// counts for its part.
    pub prefetches: f64,
    /// Requests to global memory, of an average block: all blocks share its rate.
    pub global: Memory,
    /// Requests to shared memory.
    pub shared: Memory,
    /// What the blocks that run at once touch of global memory.
    pub(super) waves: Waves,
}

impl StageWork {
    /// The work of a stage; `None` if it is not for a GPU.
    pub(super) fn of(nest: &Nest, stage: &Stage, warp_threads: usize) -> Option<Self> {
        let (grid, launch) = (Grid::of(stage)?, Launch::of(nest.program, stage)?);
        let work = Self {
            blocks: launch.blocks as f64,
            threads: launch.threads as f64,
            warps: launch.threads.div_ceil(warp_threads.max(1)) as f64,
            workers: grid.block_threads() as f64,
            waves: Waves::new(grid.blocks.iter().map(|l| (l.var, l.extent))),
            working_warps: grid.block_threads().div_ceil(warp_threads.max(1)) as f64,
            shared_bytes: launch.shared_bytes as f64,
            evenness: 1.0,
            ..Self::default()
        };
        let vars = nest.program.vars.len();
        let mut walk = Walk {
            nest,
            work,
            warp: Warp::new(&grid, vars),
            extents: vec![1; vars],
            parallel: vec![false; vars],
            trips: 1.0,
            busy: 1.0,
            serial: 1.0,
            written_out: 1.0,
            in_group: false,
            touches: Vec::with_capacity(4),
            numbers: Numbers::new(),
            nested: false,
            guards: Vec::new(),
            copies: [0.0; 3],
        };
        for l in grid.blocks.iter().chain(&grid.threads) {
            walk.extents[l.var.0 as usize] = l.extent;
            walk.parallel[l.var.0 as usize] = true;
        }
        walk.nodes(grid.body, None);
        for touch in &walk.touches {
            walk.work.waves.touch(nest, touch.access, &touch.numbers, |var| walk.extents[var.0 as usize]);
        }
        let own = if walk.work.team.is_some() { MMA_THREAD_REGISTERS } else { THREAD_REGISTERS };
        walk.work.registers += own as f64 + walk.copies.iter().sum::<f64>();
        Some(walk.work)
    }
}

/// The vectorised loop around a store, and the number of conditions outside of it.
#[derive(Clone, Copy)]
struct Vectorised {
    var: VarId,
    extent: usize,
    guards: usize,
}

/// Where an access to memory is: its offset in elements, and their bytes.
struct Place {
    offset: Affine,
    bytes: usize,
}

/// Numbers that are taken apart around something.
type Numbers<'a> = SmallVec<[(&'a Affine, &'a [Digit]); 4]>;

/// An access to a global buffer.
struct Touch<'a> {
    access: &'a Access,
    /// How often it happens.
    trips: f64,
    numbers: Numbers<'a>,
}

struct Walk<'a> {
    nest: &'a Nest<'a>,
    work: StageWork,
    warp: Warp,
    /// Extent of each variable that is bound.
    extents: Vec<usize>,
    /// True for variables that number blocks and threads, and for digits of such numbers.
    parallel: Vec<bool>,
    /// How often the busiest thread comes by.
    trips: f64,
    /// How often an average thread comes by, over `trips`.
    busy: f64,
    /// The same, with loops that are written out counted once.
    serial: f64,
    /// How often the code is written out.
    written_out: f64,
    /// True within a group of copies.
    in_group: bool,
    guards: Vec<&'a InBounds>,
    /// For each global buffer, the access that happens most often.
    touches: Vec<Touch<'a>>,
    /// Numbers that are taken apart.
    numbers: Numbers<'a>,
    /// True if the innermost of them has digits of others in it: the pixel of a row, say.
    nested: bool,
    /// Registers for copies, by operand.
    copies: [f64; 3],
}

impl<'a> Walk<'a> {
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
                    self.work.registers += buffer.len() as f64;
                }
                self.nodes(body, vector);
            }
            Node::Barrier => self.work.barriers += self.trips,
            Node::Guard { when, body } => {
                let (outer, trips, busy) = (self.guards.len(), self.trips, self.busy);
                self.work.other += self.trips * CONDITION_INSTRUCTIONS * when.len() as f64;
                self.guards.extend(when);
                for condition in when {
                    self.narrow(&condition.index, condition.extent);
                }
                self.nodes(body, vector);
                (self.trips, self.busy) = (trips, busy);
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
                // Nothing goes on beside the first of them.
                self.work.waits = self.work.waits.max(1.0);
                self.work.prefetches = self.work.prefetches.max(self.serial / (but + 1) as f64);
            }
            Node::Call { instruction, body } if instruction.asynchrony == Asynchrony::Copies => {
                // One instruction of one thread, and no registers.
                let (other, copies) = (self.work.other, self.copies);
                self.nodes(body, vector);
                (self.work.other, self.copies) = (other, copies);
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
        self.warp.enter(l.var, l.extent);
        self.trips *= l.extent as f64;
        match l.kind {
            LoopKind::Vectorized => {
                self.warp.set(l.var, 0);
                let vector = Vectorised { var: l.var, extent: l.extent, guards: self.guards.len() };
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
        let (trips, busy) = (self.trips, self.busy);
        self.work.other += trips * DIGIT_INSTRUCTIONS * digits.len() as f64;
        self.narrow(value, digits.iter().map(|d| d.extent).product());
        let is_parallel = value.terms.iter().any(|&(var, _)| self.is_parallel(var));
        for digit in digits {
            self.extents[digit.var.0 as usize] = digit.extent;
            self.parallel[digit.var.0 as usize] = is_parallel;
        }
        let is_digit = |var: VarId| self.numbers.iter().any(|(_, digits)| digits.iter().any(|digit| digit.var == var));
        let outer = self.nested;
        self.nested = value.terms.iter().any(|&(var, _)| is_digit(var));
        self.numbers.push((value, digits));
        self.work.waves.unflatten(value, digits);
        let bound = self.warp.bind(value, digits);
        self.nodes(body, None);
        self.warp.unbind(bound);
        self.numbers.pop();
        (self.nested, self.trips, self.busy) = (outer, trips, busy);
    }

    /// Restricts what follows to an index within `0..extent`: the busiest thread is there as often
    /// as its own loops reach such values, an average one as often as blocks, threads and loops do
    /// together.
    fn narrow(&mut self, index: &Affine, extent: usize) {
        let [inside, all] = self.within(index, extent);
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

    /// Multiply-adds, instructions, and what is read of shared memory: each warp its rows and its
    /// columns, those of a warp group once for the four. Warps read whole fragments into registers,
    /// without bank conflicts.
    fn mma(&mut self, by: ThreadGroup, tile: &Fragments) {
        let [steps, rows, ..] = tile.loops.map(|l| l.extent as f64);
        let columns = tile.width() as f64 / 8.0;
        let fmas: f64 = tile.loops.iter().map(|l| l.extent as f64).product();
        self.multiply(fmas);
        self.work.tensor_fmas += self.trips * fmas;
        self.work.team = Some(by);
        self.work.accumulators =
            self.work.accumulators.max(self.nest.program.buffer(tile.store.dst.buffer).len() as f64);
        // Rows of 16 elements of a warp, and pairs of eight columns, are 512 bytes, one instruction
        // to read.
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
            self.work.shared.loads[operand].add(
                request,
                self.trips * self.work.working_warps * steps * count,
                Vector::MAX_LANES,
            );
        }
    }

    /// Counts multiply-adds of each trip.
    fn multiply(&mut self, fmas: f64) {
        let (before, added) = (self.work.fmas, self.trips * fmas);
        self.work.fmas += added;
        if self.work.fmas > 0.0 {
            self.work.evenness = (self.work.evenness * before + self.busy * added) / self.work.fmas;
        }
    }

    fn extent(&self, var: VarId) -> usize {
        self.extents.get(var.0 as usize).copied().unwrap_or(1)
    }

    /// Share of the points of the loops for which the conditions hold, about.
    fn share<'c>(&self, when: impl IntoIterator<Item = &'c InBounds>) -> f64 {
        let share = |condition: &InBounds| {
            let [inside, all] = self.within(&condition.index, condition.extent);
            inside / all
        };
        when.into_iter().map(share).product()
    }

    /// Counts an index's values, about: those within `0..extent`, and all.
    fn within(&self, index: &Affine, extent: usize) -> [f64; 2] {
        let (low, high) = index.range(|var| self.extent(var));
        let inside = high.min(extent as i64 - 1) - low.max(0) + 1;
        [inside.max(0) as f64, (high - low + 1) as f64]
    }

    fn store(&mut self, store: &'a Store, vector: Option<Vectorised>) {
        let mut accesses = Vec::with_capacity(4);
        let mut conditions = vector.map_or(Vec::new(), |v| self.guards[v.guards..].to_vec());
        let note = &mut |load, guards: &[&InBounds]| accesses.push((load, self.share(guards.iter().copied())));
        store.value.for_each_guarded_load(&mut Vec::new(), note);
        let mut operations = 0.0;
        store.value.for_each(&mut |expr| match expr {
            Expr::Const(_) | Expr::Load(_) | Expr::Gather(_) => {}
            Expr::Unary(..) | Expr::Binary(..) | Expr::Select(..) => {
                let primitives = Formula::of(expr).into_iter().flat_map(Formula::primitives);
                operations += primitives.map(primitive_instructions).sum::<f64>();
            }
            Expr::Guarded { when, .. } => {
                operations += CONDITION_INSTRUCTIONS * when.len() as f64;
                conditions.extend(when);
            }
        });
        let accumulates = store.mode == StoreMode::Accumulate;
        let scope = self.nest.scope(store.dst.buffer);
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
        if !self.in_group {
            // Threads reckon in f32.
            let narrow = places.iter().chain([&stored]).flatten().filter(|place| place.bytes < 4).count();
            self.work.other += self.trips * CONVERSION_INSTRUCTIONS * narrow as f64;
        }
        let at_once = vector.map(|v| (self.at_once(v, places.iter().chain([&stored]), &conditions), v.extent));
        for ((access, share), place) in accesses.iter().zip(&places) {
            self.request(access, place, at_once, *share, false);
        }
        self.request(&store.dst, &stored, at_once, 1.0, true);
    }

    /// Notes an access to a global buffer if it is the one that happens most often.
    fn note_touch(&mut self, access: &'a Access) {
        let known = self.touches.iter_mut().find(|touch| touch.access.buffer == access.buffer);
        if known.as_ref().is_some_and(|known| known.trips >= self.trips) {
            return;
        }
        let touch = Touch { access, trips: self.trips, numbers: self.numbers.clone() };
        match known {
            Some(known) => *known = touch,
            None => self.touches.push(touch),
        }
    }

    /// Notes the registers that a copy from global memory takes, and that it waits for it.
    fn note_copy(&mut self, store: &Store, scope: Scope, loads: &[(&Access, f64)]) {
        let from = loads.iter().find(|(load, _)| self.nest.scope(load.buffer) == Scope::Global);
        let Some((load, _)) = from else { return };
        let (registers, times) = match scope {
            // Waited for by the node that awaits them.
            Scope::Shared if self.in_group => (ASYNC_COPY_REGISTERS * (1 + usize::from(self.nested)), &mut 0.0),
            Scope::Shared => (COPY_REGISTERS, &mut self.work.waits),
            Scope::Register if self.nest.main_point(store).is_none() => (PREFETCH_REGISTERS, &mut self.work.prefetches),
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
        let mut offset = Affine { constant: 0, terms: SmallVec::with_capacity(8) };
        for (index, &stride) in access.index.iter().zip(self.nest.strides(access.buffer)) {
            offset.add_scaled(index, stride);
        }
        Some(Place { offset, bytes: self.nest.program.dtype(access.buffer).bytes() })
    }

    /// What the code generators access at once: as much as some access of the vectorised loop takes
    /// and all conditions have in common.
    fn at_once<'o>(
        &self,
        l: Vectorised,
        places: impl Iterator<Item = &'o Option<Place>> + Clone,
        conditions: &[&InBounds],
    ) -> Vector {
        Vector::widest(l.var, 0, l.extent, |vector| {
            conditions.iter().all(|condition| vector.is_uniform(condition, |var| self.extent(var)))
                && places.clone().flatten().any(|place| self.is_contiguous(place, vector))
        })
    }

    fn is_contiguous(&self, place: &Place, vector: Vector) -> bool {
        vector.is_contiguous(&place.offset, place.bytes, |var| self.extent(var))
    }

    fn request(
        &mut self,
        access: &'a Access,
        place: &Option<Place>,
        at_once: Option<(Vector, usize)>,
        share: f64,
        stores: bool,
    ) {
        let Some(place) = place else { return };
        let Place { offset, bytes } = place;
        let (width, turns) = match at_once {
            // The same element for all of the vectorised loop.
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
