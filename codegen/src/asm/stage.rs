//! Functions of stages: tasks, outer loops, and calls of leaves.
//!
//! Variables outside leaves are on the stack. A leaf is a subroutine that gets its pointers in
//! registers and may change every register except the stack pointer. Identical leaves share one
//! subroutine.

use std::ops::Range;
use std::rc::Rc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::block::{self, Common};
use super::error::{AssembleError, Failure};
use super::expander::Expander;
use super::instruction_set::{InstructionSet, Limit, SignedOrder};
use super::leaf::{Item, Leaf};
use super::nest::{LeafNest, Offers, OuterLoop, Resolver};
use super::numbers::OfNumbers;
use super::plan::EmitOrder;
use super::share::share;
use super::tile_grid::TileConfiguration;
use autotune_ir::instruction::NestForm;
use autotune_ir::program::{Buffer, BufferId, Loop, Node, Program, Scope, Stage, parallel_prefix, preorder};

/// Numbers of stack slots of eight bytes. The variables outside leaves follow from `VARS` on, then
/// the buffer pointers.
const TASK: usize = 0;
const TASKS_END: usize = 1;
const BEGIN: usize = 2;
const END: usize = 3;
const VARS: usize = 4;

pub(super) struct Generator<'p, I> {
    program: &'p Program,
    isa: I,
    resolver: Resolver<'p>,
    /// Nests of the leaves that are called, by leaf number.
    leaves: Vec<Rc<LeafNest>>,
    /// Code offset of each leaf that has been emitted: the first ones of `leaves`.
    offsets: Vec<usize>,
    numbers: FxHashMap<Rc<LeafNest>, usize>,
    /// Loops around the current leaf, in the order of their variables' slots.
    loops: Vec<OuterLoop>,
    /// Number of slots for variables.
    var_slots: usize,
    /// Tile configuration during the current stage, except in leaves with another one.
    tiles: Option<TileConfiguration>,
}

impl<'p, I: InstructionSet> Generator<'p, I> {
    pub(super) fn new(program: &'p Program, isa: I) -> Self {
        let [rounds_to_f16, rounds_to_bf16] = [isa.rounds_to_f16(), isa.rounds_to_bf16()];
        let offers =
            Offers { scales: isa.scales(), rounds_to_f16, rounds_to_bf16, dots: isa.dots(), tiles: isa.has_tiles() };
        let resolver = Resolver::new(program, isa.integers(), offers);
        let (leaves, offsets, numbers) = (Vec::new(), Vec::new(), FxHashMap::default());
        Self { program, isa, resolver, leaves, offsets, numbers, loops: Vec::new(), var_slots: 0, tiles: None }
    }

    /// Emits a stage and the leaves that no earlier stage calls; returns the offset of the stage's
    /// function.
    ///
    /// The code of the first stage does not depend on later stages.
    pub(super) fn stage(&mut self, stage: &'p Stage) -> Result<usize, Failure> {
        let entry = self.isa.position();
        // The number of slots is needed before the code, so it is an upper bound.
        self.var_slots = stage.body.iter().map(loops_outside).max().unwrap_or(0);
        let local = self.program.local_places(stage);
        let is_global = |buffer: &Buffer| buffer.scope == Scope::Global;
        let used = local.iter().map(|(id, _)| id.0 as usize).chain(self.program.buffers.iter().rposition(is_global));
        let slots = self.buffer_slot(used.max().map_or(0, |last| last + 1));
        self.enter(slots, &local);
        self.tiles = self.main_tiles(stage)?;
        self.tiles.into_iter().for_each(|sizes| self.isa.configure_tiles(sizes));

        let mut first = 0;
        for node in &stage.body {
            first += self.tree(node, first)?;
        }

        if is_streamed(self.program, stage) {
            // Streaming stores are weakly ordered: later stages must not read the buffer before
            // they are visible.
            self.isa.fence();
        }
        if self.tiles.is_some() {
            self.isa.release_tiles();
        }
        self.isa.leave(slots);
        self.new_leaves()?;
        Ok(entry)
    }

    /// Saves the arguments to the stack: the range of tasks, and a pointer to each buffer that the
    /// stage may use, either global or thread-private.
    fn enter(&mut self, slots: usize, local: &[(BufferId, Range<usize>)]) {
        let first_slot = self.buffer_slot(0);
        self.isa.enter(slots, BEGIN, END);
        for (number, buffer) in self.program.buffers.iter().enumerate() {
            if buffer.scope == Scope::Global {
                self.isa.take_buffer(first_slot + number, number);
            }
        }
        for (id, place) in local {
            self.isa.take_local(first_slot + id.0 as usize, place.len() as i64);
        }
    }

    /// Emits the loop over the tasks of a top-level tree, which are numbered from `first` on;
    /// returns their number.
    fn tree(&mut self, node: &'p Node, first: usize) -> Result<usize, Failure> {
        // The function's range of tasks, clamped to the tree's.
        let loops = parallel_prefix(node);
        let count: usize = loops.iter().map(|l| l.extent).product();
        self.clamp(BEGIN, TASK, SignedOrder::Less, first as i64);
        self.clamp(END, TASKS_END, SignedOrder::Greater, (first + count) as i64);
        // The condition is checked before the first iteration, since the range may be empty.
        let to_check = self.isa.jump();

        // The digits of the task number are the values of the parallel loop variables.
        let top = self.isa.position();
        self.isa.read(TASK);
        self.isa.add(-(first as i64));
        self.loops.clear();
        self.loops.extend(loops.iter().map(|l| OuterLoop { var: l.var, extent: l.extent }));
        for (i, l) in loops.iter().enumerate().rev() {
            self.isa.split(l.extent as i64, VARS + i);
        }
        self.nodes(loops.last().map_or(std::slice::from_ref(node), |l| l.body.as_slice()))?;

        self.advance(TASK);
        self.isa.bind_jump(to_check);
        self.isa.read(TASK);
        self.isa.jump_if_less(Limit::Slot(TASKS_END), top);
        Ok(count)
    }

    /// `[to] = [from]`, or `limit` if `[from]` is beyond it in this order.
    fn clamp(&mut self, from: usize, to: usize, beyond: SignedOrder, limit: i64) {
        self.isa.read(from);
        self.isa.clamp(beyond, limit);
        self.isa.write(to);
    }

    fn advance(&mut self, slot: usize) {
        self.isa.read(slot);
        self.isa.add(1);
        self.isa.write(slot);
    }

    fn nodes(&mut self, nodes: &'p [Node]) -> Result<(), Failure> {
        nodes.iter().try_for_each(|node| match node {
            Node::Alloc { buffer, body } if self.program.buffer(*buffer).scope != Scope::Register => self.nodes(body),
            // A loop around register tiles stays outside leaves: its iterations call the same leaf.
            Node::Loop(l) if l.body.iter().any(has_leaf) => {
                if self.overlapped_loop(l)? {
                    return Ok(());
                }
                let number = VARS + self.loops.len();
                self.loops.push(OuterLoop { var: l.var, extent: l.extent });
                self.isa.set(number, 0);
                let top = self.isa.position();
                self.nodes(&l.body)?;
                self.advance(number);
                self.isa.jump_if_less(Limit::Value(l.extent as i64), top);
                self.loops.pop();
                Ok(())
            }
            _ => self.call(node),
        })
    }

    /// Emits a loop over a product of tiles and statements that use its sums, so that the
    /// statements of each iteration are computed during the product of the next one:
    ///
    /// ```text
    /// product 0; for i in 1..extent: product i and statements i-1; statements extent-1
    /// ```
    ///
    /// Returns false for other loops.
    fn overlapped_loop(&mut self, l: &'p Loop) -> Result<bool, Failure> {
        let [Node::Alloc { body, .. }] = l.body.as_slice() else { return Ok(false) };
        let [first, after @ ..] = body.as_slice() else { return Ok(false) };
        let Some(product) = self.resolver.product_of(first)? else { return Ok(false) };
        let Ok(last @ 1..) = i32::try_from(l.extent - 1) else { return Ok(false) };
        // Another product uses the tile registers; a change of their configuration clears them.
        let are_kept = self.tiles == Some(product.1.configuration()) && !preorder(after).any(is_product);
        if after.is_empty() || !are_kept {
            return Ok(false);
        }

        let slot = VARS + self.loops.len();
        self.loops.push(OuterLoop { var: l.var, extent: l.extent });
        if !self.resolver.resolve_overlapped(&self.loops, &product, after)? {
            self.loops.pop();
            return Ok(false);
        }

        self.isa.set(slot, 0);
        self.call(first)?;
        self.isa.set(slot, 1);
        let top = self.isa.position();
        self.resolver.resolve_overlapped(&self.loops, &product, after)?;
        self.call_resolved();
        self.advance(slot);
        self.isa.jump_if_less(Limit::Value(l.extent as i64), top);

        self.isa.set(slot, last);
        self.nodes(after)?;
        self.loops.pop();
        Ok(true)
    }

    fn buffer_slot(&self, buffer: usize) -> usize {
        VARS + self.var_slots + buffer
    }

    /// Emits a leaf call: the computation of its pointers, and the call.
    fn call(&mut self, node: &'p Node) -> Result<(), Failure> {
        self.resolver.resolve(&self.loops, node)?;
        self.call_resolved();
        Ok(())
    }

    /// Emits the call of the leaf that was resolved last.
    fn call_resolved(&mut self) {
        let nest = &self.resolver.nest;
        let number = match self.numbers.get(nest) {
            Some(&number) => number,
            None => {
                let (nest, number) = (Rc::new(nest.clone()), self.leaves.len());
                self.leaves.push(Rc::clone(&nest));
                self.numbers.insert(nest, number);
                number
            }
        };

        // Leaves with more pointers than registers are rejected when they are emitted.
        for (number, pointer) in self.resolver.pointers.iter().enumerate().take(self.isa.integers()) {
            let (register, bytes) = (number as u8, self.resolver.nest.types[number].bytes());
            self.isa.point(register, self.buffer_slot(pointer.buffer.0 as usize));
            for &(var, coefficient) in &pointer.base.terms {
                if let Some(position) = self.loops.iter().rposition(|l| l.var == var) {
                    self.isa.advance_by_slot(register, VARS + position, coefficient * bytes);
                }
            }
            self.isa.advance(register, pointer.base.constant * bytes);
        }

        // The configuration takes hundreds of cycles, so it is changed only if it must.
        let tiles = self.resolver.nest.tiles.as_ref().map(|tiles| tiles.grid.configuration());
        let other = tiles.filter(|_| tiles != self.tiles);
        other.into_iter().for_each(|sizes| self.isa.configure_tiles(sizes));
        self.isa.call(number);
        other.and(self.tiles).into_iter().for_each(|sizes| self.isa.configure_tiles(sizes));
    }

    /// Returns the tile configuration of the product that most loop iterations of a stage compute.
    fn main_tiles(&self, stage: &'p Stage) -> Result<Option<TileConfiguration>, Failure> {
        let mut found = Vec::new();
        if self.isa.has_tiles() {
            stage.body.iter().try_for_each(|node| self.find_tiles(node, 1, &mut found))?;
        }
        Ok(found.into_iter().max_by_key(|&(iterations, _)| iterations).map(|(_, sizes)| sizes))
    }

    /// Adds the tile configuration of each product to `found`, with the number of its iterations.
    fn find_tiles(
        &self,
        node: &'p Node,
        iterations: usize,
        found: &mut Vec<(usize, TileConfiguration)>,
    ) -> Result<(), Failure> {
        let inside = match node {
            Node::Loop(l) => iterations.saturating_mul(l.extent),
            Node::Alloc { buffer, .. } if self.program.buffer(*buffer).scope != Scope::Register => iterations,
            Node::Call { .. } => {
                found.extend(self.resolver.product_of(node)?.map(|(_, grid)| (iterations, grid.configuration())));
                return Ok(());
            }
            _ => return Ok(()),
        };
        node.body().iter().try_for_each(|node| self.find_tiles(node, inside, found))
    }

    /// Emits the leaves that have not been emitted yet.
    fn new_leaves(&mut self) -> Result<(), Failure> {
        let mut expander = Expander::new(self.program, usize::from(self.isa.lanes()));
        let mut plan = EmitOrder::default();
        for nest in &self.leaves[self.offsets.len()..] {
            expander.expand(nest)?;
            if let Some(tiles) = &nest.tiles {
                self.offsets.push(self.isa.position());
                tiles.emit(&mut self.isa, &mut plan, (nest, &expander.leaf))?;
                continue;
            }
            // The fast form is made from the leaf before sharing, because it needs registers of its
            // own.
            let of_numbers = OfNumbers::of(&expander.leaf, nest, &self.isa);
            share(&mut expander.leaf, nest, (self.isa.registers(), self.isa.fold_registers()));
            self.offsets.push(self.isa.position());
            let streamed = expander.leaf.streamed(nest, self.program, self.isa.lanes().into());
            let forms = Forms { nest, leaf: &expander.leaf, of_numbers: of_numbers.as_ref() };
            forms.emit(&mut self.isa, &mut plan, streamed)?;
        }
        Ok(())
    }

    /// Returns the completed code.
    pub(super) fn finish(self) -> Result<I::Code, Failure> {
        self.isa.finish(&self.offsets)
    }
}

/// Returns an upper bound for the number of loops around a leaf of a tree, without walking most
/// leaves.
fn loops_outside(node: &Node) -> usize {
    match node {
        Node::Alloc { body, .. } => body.iter().filter(|n| has_leaf(n)).map(loops_outside).max().unwrap_or(0),
        _ if is_product(node) => 0,
        _ => usize::from(matches!(node, Node::Loop(_))) + node.body().iter().map(loops_outside).max().unwrap_or(0),
    }
}

/// True for a product of tiles.
fn is_product(node: &Node) -> bool {
    matches!(node, Node::Call { instruction, .. } if instruction.nest == NestForm::Tiles)
}

/// True if a node contains a register tile or a product of tiles, which are leaves.
fn has_leaf(node: &Node) -> bool {
    matches!(node, Node::Alloc { .. }) || is_product(node) || node.body().iter().any(has_leaf)
}

/// True if a stage stores to a streamed buffer.
fn is_streamed(program: &Program, stage: &Stage) -> bool {
    program.buffers.iter().any(|buffer| buffer.streamed)
        && preorder(&stage.body)
            .any(|node| matches!(node, Node::Store(store) if program.buffer(store.dst.buffer).streamed))
}

/// A leaf with its source nest and its fast form that ignores NaN.
struct Forms<'l> {
    nest: &'l LeafNest,
    leaf: &'l Leaf,
    of_numbers: Option<&'l OfNumbers>,
}

impl Forms<'_> {
    /// Emits the leaf as a subroutine. Its loop counters are in the integer registers after its
    /// pointers.
    ///
    /// A leaf with streaming stores is emitted twice. The second version has plain stores, for
    /// pointers that are not aligned.
    fn emit(&self, isa: &mut impl InstructionSet, plan: &mut EmitOrder, streamed: u32) -> Result<(), Failure> {
        let Self { nest, leaf, .. } = self;
        let (needed, available) = (leaf.registers(), isa.registers());
        if needed > available {
            return Err(AssembleError::RegisterTile { needed, available }.into());
        }
        let (needed, available) = (self.scratch() + usize::from(nest.fetches()), isa.integers());
        if needed > available {
            return Err(AssembleError::Pointers { needed, available }.into());
        }

        if streamed != 0 {
            let is_streamed = |pointer: &u8| streamed & 1 << pointer != 0;
            let pointers: SmallVec<[u8; 4]> = (0..nest.pointers.len() as u8).filter(is_streamed).collect();
            let bytes = pointers.iter().map(|&it| nest.types[usize::from(it)].bytes()).max().unwrap_or(1);
            let to_plain = isa.jump_unless_aligned(&pointers, bytes * i64::from(isa.lanes()));
            self.emit_both(isa, plan, streamed)?;
            isa.bind_jump(to_plain);
        }
        self.emit_both(isa, plan, 0)
    }

    /// Emits the fast form that ignores NaN, if there is one, then the exact form, which runs only
    /// if the fast one found a NaN.
    fn emit_both(&self, isa: &mut impl InstructionSet, plan: &mut EmitOrder, streamed: u32) -> Result<(), Failure> {
        let Self { nest, leaf, of_numbers } = *self;
        let scratch = self.scratch() as u8;
        let common = |leaf: &Leaf| Common { accumulators: leaf.reserved_registers(), scratch, streamed };
        // Both forms share one prologue. It is that of the fast form, which needs more registers.
        isa.begin_leaf(of_numbers.map_or(leaf, |it| &it.leaf), nest.has_steps());
        let mut to_end = None;
        if let Some(OfNumbers { leaf, sum }) = of_numbers {
            emit_items(isa, plan, (nest, leaf), common(leaf))?;
            to_end = Some(isa.jump_if_numbers(*sum));
        }

        emit_items(isa, plan, (nest, leaf), common(leaf))?;
        to_end.into_iter().for_each(|jump| isa.bind_jump(jump));
        isa.end_leaf();
        Ok(())
    }

    /// Returns the first integer register after the pointers and loop counters.
    fn scratch(&self) -> usize {
        self.nest.pointers.len() + self.leaf.depth
    }
}

fn emit_items(
    isa: &mut impl InstructionSet,
    plan: &mut EmitOrder,
    (nest, leaf): (&LeafNest, &Leaf),
    common: Common,
) -> Result<(), Failure> {
    // The counter register of each open loop, and the offset of its body.
    let mut open = Vec::new();

    for item in &leaf.items {
        match item {
            Item::Block { ops, sources } => block::emit(isa, leaf.block(nest, ops, sources), common, plan)?,
            Item::Begin { extent } => {
                let counter = (nest.pointers.len() + open.len()) as u8;
                isa.set_integer(counter, *extent as i64);
                open.push((counter, isa.position()));
            }
            Item::End { var, extent } => {
                let (counter, top) = open.pop().unwrap_or_default();
                // The pointers return to the loop's first iteration, as outer loops expect.
                advance(isa, nest, *var, 1);
                isa.count_down(counter, top);
                advance(isa, nest, *var, -(*extent as i64));
            }
        }
    }
    Ok(())
}

/// Advances the pointers by a number of iterations of a loop.
pub(super) fn advance(isa: &mut impl InstructionSet, nest: &LeafNest, var: u32, iterations: i64) {
    for step in nest.steps.iter().filter(|s| s.var == var) {
        isa.advance(step.pointer, step.elements * nest.types[usize::from(step.pointer)].bytes() * iterations);
    }
}
