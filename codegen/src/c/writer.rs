//! State while C source is written, and the names of its variables.

use std::collections::{BTreeSet, HashMap};

use super::leaf::TileInterface;
use crate::flat_offset;
use autotune_ir::affine::{Affine, VarId};
use autotune_ir::program::{Access, BufferId, Program};
use autotune_ir::vector::Vector;

/// The source of a program under construction.
pub(super) struct CGenerator<'a> {
    pub(super) program: &'a Program,
    pub(super) lanes: usize,
    /// True if some buffer holds integers.
    pub(super) has_integers: bool,
    /// Text of all register tile functions.
    pub(super) leaves: String,
    /// Maps the text of a function without its name to its name.
    pub(super) leaf_names: HashMap<String, String>,
}

/// The C location of partial sums: one variable, or an element of a variable for each lane.
pub(super) enum Accumulator {
    Whole(String),
    Part(Vec<String>),
}

pub(super) struct CWriter<'g, 'p> {
    pub(super) generator: &'g mut CGenerator<'p>,
    /// The register tile being written, or `None` outside of tiles. In a tile, variables and
    /// pointers are named `i<position>` and `p<position>`; outside, `v<id>` and `b<id>`.
    pub(super) leaf: Option<TileInterface>,
    pub(super) text: String,
    pub(super) depth: usize,
    /// Values of the enclosing unrolled variables, and the first value of the vectorised one.
    pub(super) constants: HashMap<VarId, i64>,
    /// Lanes of the vectorised loop that are being written.
    pub(super) vector: Option<Vector>,
    /// Text of each load that has a variable → the variable, per enclosing C block.
    pub(super) loaded: Vec<HashMap<String, String>>,
    pub(super) next_name: usize,
    /// Every accumulator variable: the position of its buffer in `registers`, its flat index and
    /// its lanes.
    pub(super) accumulators: BTreeSet<(usize, i64, usize)>,
    /// Register buffers in order of appearance.
    pub(super) registers: Vec<BufferId>,
}

impl<'g, 'p> CWriter<'g, 'p> {
    pub(super) fn new(generator: &'g mut CGenerator<'p>, leaf: Option<TileInterface>) -> Self {
        // The code of a stage is inside its loop over tasks.
        let depth = if leaf.is_some() { 1 } else { 2 };
        Self {
            generator,
            leaf,
            text: String::new(),
            depth,
            constants: HashMap::new(),
            vector: None,
            loaded: vec![HashMap::new()],
            next_name: 0,
            accumulators: BTreeSet::new(),
            registers: Vec::new(),
        }
    }

    pub(super) fn line(&mut self, text: &str) {
        for _ in 0..self.depth {
            self.text.push_str("  ");
        }
        self.text.push_str(text);
        self.text.push('\n');
    }

    pub(super) fn name(&mut self) -> String {
        self.next_name += 1;
        format!("x{}", self.next_name - 1)
    }

    /// Returns the C location of a register buffer's elements.
    ///
    /// It is the variable of these lanes. If earlier accesses had other lanes, it is the elements
    /// of their variables.
    pub(super) fn accumulator(&mut self, access: &Access) -> Accumulator {
        let offset = flat_offset(self.generator.program, access);
        let lanes = self.vector.map_or(1, |v| v.lanes);
        let flat = offset.eval(|v| self.constants.get(&v).copied().unwrap_or(0));
        let stride = self.vector.map_or(1, |vector| offset.coefficient(vector.var));
        let known_buffer = self.registers.iter().position(|known| *known == access.buffer);
        let buffer = known_buffer.unwrap_or_else(|| {
            self.registers.push(access.buffer);
            self.registers.len() - 1
        });

        let holds =
            |&&(of, first, n): &&(usize, i64, usize), at: i64| of == buffer && (first..first + n as i64).contains(&at);
        let element = |lane: usize| {
            let at = flat + lane as i64 * stride;
            let &(_, first, lanes) = self.accumulators.iter().find(|known| holds(known, at))?;
            let name = accumulator_name(buffer, first);
            Some(if lanes == 1 { name } else { format!("{name}[{}]", at - first) })
        };

        let elements = (0..lanes).map(element).collect();
        // Other lanes than before, e.g. scalars of a vector, are parts of the known variables. Only
        // elements that no variable covers get a new one.
        let is_whole = lanes == 1 || stride == 1;
        match elements {
            Some(elements) if !is_whole || !self.accumulators.contains(&(buffer, flat, lanes)) => {
                Accumulator::Part(elements)
            }
            _ => {
                self.accumulators.insert((buffer, flat, lanes));
                Accumulator::Whole(accumulator_name(buffer, flat))
            }
        }
    }

    /// Returns the pointer, the offset as C text, and the stride in elements along the vector for
    /// an access to memory.
    pub(super) fn address(&self, access: &Access) -> (String, String, i64) {
        let mut offset = flat_offset(self.generator.program, access);
        let leaf = self.leaf.as_ref();
        let pointer = match leaf.and_then(|leaf| Some((leaf, leaf.find(access.buffer, &offset)?))) {
            Some((leaf, i)) => {
                offset.add_scaled(&leaf.pointers[i].base, -1);
                format!("p{i}")
            }
            None => format!("b{}", access.buffer.0),
        };

        // Variables of unrolled loops have constant values here. The vectorised variable's
        // coefficient is the stride.
        let stride = self.vector.map_or(0, |vector| offset.coefficient(vector.var));
        let mut folded = Affine::constant(offset.constant);
        for &(var, c) in &offset.terms {
            match self.constants.get(&var) {
                Some(value) => folded.constant += c * value,
                None => folded.add_scaled(&Affine::var(var), c),
            }
        }
        (pointer, folded.display(|v| self.var_name(v)).to_string(), stride)
    }

    pub(super) fn var_name(&self, var: VarId) -> String {
        let position = self.leaf.as_ref().and_then(|leaf| leaf.inner.iter().position(|&v| v == var));
        position.map_or_else(|| format!("v{}", var.0), |i| format!("i{i}"))
    }
}

/// Returns the name of an accumulator. Most leaves have one register buffer only, whose names have
/// no suffix.
pub(super) fn accumulator_name(buffer: usize, flat: i64) -> String {
    if buffer == 0 { format!("a{flat}") } else { format!("a{flat}_{buffer}") }
}
