//! Expands a nest into a leaf: unrolls loops and splits vectorised loops into vectors.

use std::ops::Range;

use rustc_hash::{FxBuildHasher, FxHashMap};

use super::error::{AssembleError, Failure};
use super::instruction_set::PrefetchHint;
use super::leaf::{BlockOp, Item, Lanes, Leaf, LeafInput};
use super::nest::{ElementBase, LeafNest, NestElement, NestNode, ValueTree};
use autotune_ir::program::{LoopKind, Program, Role};

/// Expands one nest at a time, reusing its memory.
pub(super) struct Expander<'p> {
    pub(super) program: &'p Program,
    /// Elements of a vector.
    lanes: usize,
    pub(super) leaf: Leaf,
    /// Current value of each unrolled or vectorised variable, by variable number.
    values: Vec<i64>,
    /// Variable of the enclosing vectorised loop, and the number of lanes of its iteration; 1 lane
    /// outside of such loops.
    vector: (u32, usize),
    /// Input of each known element.
    inputs: FxHashMap<Lanes, LeafInput>,
    /// Current version of each pointer's buffer; the last one is for constants.
    versions: Vec<u32>,
    /// Start of the current block in the leaf's operations and sources.
    block: (usize, usize),
}

/// Number of elements to reserve memory for, enough for most leaves.
const USUAL_ELEMENTS: usize = 400;

impl<'p> Expander<'p> {
    pub(super) fn new(program: &'p Program, lanes: usize) -> Self {
        Self {
            program,
            lanes,
            leaf: Leaf::default(),
            values: Vec::new(),
            vector: (0, 1),
            inputs: FxHashMap::with_capacity_and_hasher(USUAL_ELEMENTS, FxBuildHasher),
            versions: Vec::new(),
            block: (0, 0),
        }
    }

    /// Expands a nest into `leaf`.
    pub(super) fn expand(&mut self, nest: &LeafNest) -> Result<(), Failure> {
        let Leaf { items, ops, inputs, rows, sources, accumulators, shared, parts, strides, depth } = &mut self.leaf;
        items.clear();
        ops.clear();
        inputs.clear();
        rows.clear();
        sources.clear();
        accumulators.clear();
        parts.clear();
        strides.clear();
        (*shared, *depth) = (0, 0);
        self.block = (0, 0);
        self.vector = (0, 1);
        self.values.resize(nest.vars, 0);
        self.versions.resize(nest.pointers.len() + 1, 0);
        self.inputs.clear();

        self.nodes(nest, 0..nest.nodes.len(), 0)?;
        self.flush();
        self.check_accumulators()
    }

    /// Ends the current block and begins the next.
    fn flush(&mut self) {
        let end = (self.leaf.ops.len(), self.leaf.sources.len());
        if end.0 > self.block.0 {
            self.leaf.items.push(Item::Block { ops: self.block.0..end.0, sources: self.block.1..end.1 });
        }
        self.block = end;
        // Registers do not hold sources across blocks, so every source is loaded anew.
        self.versions.iter_mut().for_each(|version| *version += 1);
    }

    /// Expands nodes within `depth` loops.
    fn nodes(&mut self, nest: &LeafNest, range: Range<usize>, depth: usize) -> Result<(), Failure> {
        let mut at = range.start;
        while at < range.end {
            let NestNode::Loop { var, extent, kind, end } = nest.nodes[at] else {
                self.statement(nest, &nest.nodes[at])?;
                at += 1;
                continue;
            };
            let body = at + 1..end;
            at = end;

            match kind {
                LoopKind::Unrolled => {
                    for value in 0..extent {
                        self.values[var as usize] = value as i64;
                        self.nodes(nest, body.clone(), depth)?;
                    }
                }
                LoopKind::Vectorized => {
                    for start in (0..extent).step_by(self.lanes) {
                        self.values[var as usize] = start as i64;
                        self.vector = (var, self.lanes.min(extent - start));
                        nest.nodes[body.clone()].iter().try_for_each(|node| self.statement(nest, node))?;
                    }
                    self.vector.1 = 1;
                }
                _ => {
                    self.flush();
                    self.leaf.items.push(Item::Begin { extent });
                    self.leaf.depth = self.leaf.depth.max(depth + 1);
                    self.nodes(nest, body, depth + 1)?;
                    self.flush();
                    self.leaf.items.push(Item::End { var, extent });
                }
            }
        }
        Ok(())
    }

    fn statement(&mut self, nest: &LeafNest, node: &NestNode) -> Result<(), Failure> {
        match *node {
            NestNode::MulAdd { acc, factors: [a, b], by } => {
                let (a, b, dst) = (self.input(nest, a)?, self.input(nest, b)?, self.destination(nest, acc)?);
                let acc = match dst {
                    LeafInput::Accumulator(acc) => Some((acc, 0)),
                    LeafInput::Part { acc, lanes, .. } => Some((acc, lanes)),
                    LeafInput::Source(_) => None,
                };
                if let (LeafInput::Source(a), LeafInput::Source(b), Some((acc, part))) = (a, b, acc) {
                    self.leaf.ops.push(BlockOp::MulAdd { acc, part, factors: [a, b], by });
                }
            }

            // A value that reads one lane of each row belongs to a horizontal reduction.
            NestNode::Store { dst, mode, value } if self.folds(nest, value) => self.fold(nest, (dst, mode, value))?,
            NestNode::Store { dst, mode, value } => {
                let value = self.value(nest, value)?;
                let op = BlockOp::Store { dst: self.destination(nest, dst)?, mode, value };
                self.leaf.ops.push(op);
                // A store may overwrite elements that were loaded through any pointer to the same
                // buffer.
                if let ElementBase::Memory(pointer) = nest.elements[dst as usize].place {
                    let buffer = nest.pointers[usize::from(pointer)];
                    let behind = self.versions.iter_mut().zip(&nest.pointers).filter(|(_, of)| **of == buffer);
                    behind.for_each(|(version, _)| *version += 1);
                }
            }
            NestNode::Prefetch { element, level } => {
                if let (LeafInput::Source(source), ElementBase::Memory(pointer)) =
                    (self.input(nest, element)?, nest.elements[element as usize].place)
                {
                    let buffer = nest.pointers[usize::from(pointer)];
                    let is_written = self.program.buffer(buffer).role == Role::Output;
                    let hint = if is_written { PrefetchHint::Write } else { PrefetchHint::Read(level) };
                    self.leaf.ops.push(BlockOp::Prefetch { source, hint });
                }
            }
            // A vectorised loop has no loops inside.
            NestNode::Loop { .. } => {}
        }
        Ok(())
    }

    /// Returns the destination of a store. For an accumulator, it must be its first lanes or all of
    /// them.
    fn destination(&mut self, nest: &LeafNest, element: u32) -> Result<LeafInput, Failure> {
        match (self.input(nest, element)?, nest.elements[element as usize].place) {
            (LeafInput::Part { first: 1.., .. }, ElementBase::Accumulators(buffer)) => {
                Err(AssembleError::register_index(self.program, buffer))
            }
            (input, _) => Ok(input),
        }
    }

    fn value(&mut self, nest: &LeafNest, value: ValueTree) -> Result<ValueTree, Failure> {
        let first = self.leaf.inputs.len() as u32;
        for element in value.inputs.0..value.inputs.1 {
            let input = self.input(nest, element)?;
            self.leaf.inputs.push(input);
        }
        Ok(ValueTree { inputs: (first, self.leaf.inputs.len() as u32), ..value })
    }

    /// Returns the input of an element in the current block and iterations.
    #[inline(always)]
    pub(super) fn input(&mut self, nest: &LeafNest, element: u32) -> Result<LeafInput, Failure> {
        let key = self.lanes_of(nest, element);
        if let Some(&known) = self.inputs.get(&key) {
            return Ok(known);
        }
        self.new_input(nest, key)
    }

    /// Returns the lanes of an element in the current block and iterations.
    #[inline(always)]
    pub(super) fn lanes_of(&self, nest: &LeafNest, element: u32) -> Lanes {
        let &NestElement { place, constant, terms } = &nest.elements[element as usize];
        let (vector, mut lanes) = self.vector;
        let (mut first, mut stride) = (constant, 0);
        for &(var, coefficient) in &nest.terms[terms.0 as usize..terms.1 as usize] {
            first += coefficient * self.values[var as usize];
            if var == vector {
                stride = coefficient;
            }
        }

        // An element that is the same for every lane is a single one, unless it is the destination
        // of partial sums that have lanes.
        if stride == 0 && !matches!(place, ElementBase::Accumulators(_)) {
            lanes = 1;
        }
        if lanes == 1 {
            stride = 0;
        }
        let version = match place {
            ElementBase::Constant(_) => self.versions[nest.pointers.len()],
            ElementBase::Accumulators(_) => 0,
            ElementBase::Memory(pointer) => self.versions[usize::from(pointer)],
        };
        Lanes { place, version, first, stride, lanes }
    }

    #[inline(never)]
    fn new_input(&mut self, nest: &LeafNest, key: Lanes) -> Result<LeafInput, Failure> {
        let input = self.leaf.input(key, self.block.1, (self.lanes, nest))?;
        self.inputs.insert(key, input);
        Ok(input)
    }

    /// Fails if accumulators overlap or are not consecutive elements.
    fn check_accumulators(&self) -> Result<(), Failure> {
        let mut sorted = self.leaf.accumulators.clone();
        sorted.sort_unstable();
        let overlaps = |a: &Lanes, b: &Lanes| a.place == b.place && a.first + a.lanes as i64 > b.first;
        for (i, lanes) in sorted.iter().enumerate() {
            let is_disjoint = !sorted.get(i + 1).is_some_and(|next| overlaps(lanes, next));
            if let ElementBase::Accumulators(buffer) = lanes.place
                && !(is_disjoint && (lanes.lanes == 1 || lanes.stride == 1))
            {
                return Err(AssembleError::register_index(self.program, buffer));
            }
        }
        Ok(())
    }
}
