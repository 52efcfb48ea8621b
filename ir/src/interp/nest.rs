//! Loops around stores alone, where most of the time is spent: indices are evaluated and checked
//! once for all iterations, and offsets advance by steps.

use std::mem;

use super::machine::{Interpreter, integers};
use crate::formula::{Formula, Primitive};
use crate::problem::Problem;
use crate::program::{Access, BinaryOp, BufferId, Expr, Loop, LoopKind, Node, Role, Store};

/// Minimum number of iterations for which a nest is prepared.
const FEWEST_ITERATIONS: usize = 4;

/// Step of the computation of a value, on a stack of values.
enum NestStep {
    Constant(f64),
    /// Element of a buffer, at the offset with this number.
    Load(BufferId, usize),
    Integers(BinaryOp),
    /// Formula of this number of operands.
    Formula(&'static Formula, usize),
}

/// Nest of loops around stores, prepared for execution.
#[derive(Default)]
pub(super) struct Nest<'p> {
    /// From the outermost to the innermost.
    loops: Vec<&'p Loop>,
    /// Each store, the number of its offset, and the end of its steps.
    stores: Vec<(&'p Store, usize, usize)>,
    steps: Vec<NestStep>,
    /// Offset of each access in the current iteration.
    offsets: Vec<i64>,
    /// Increase of each offset in an iteration of each loop; the loops of an offset are adjacent.
    advances: Vec<i64>,
    stack: Vec<f64>,
    iteration: Vec<usize>,
}

impl<'p> Nest<'p> {
    fn clear(&mut self) {
        self.loops.clear();
        self.stores.clear();
        self.steps.clear();
        self.offsets.clear();
        self.advances.clear();
        self.iteration.clear();
    }

    /// Moves all offsets to the next iteration; returns false after the last one.
    fn advance(&mut self) -> bool {
        let depth = self.loops.len();
        for level in (0..depth).rev() {
            let extent = self.loops[level].extent;
            let wraps = self.iteration[level] + 1 == extent;
            self.iteration[level] = if wraps { 0 } else { self.iteration[level] + 1 };

            let times = if wraps { 1 - extent as i64 } else { 1 };
            let advances = self.advances.iter().skip(level).step_by(depth);
            self.offsets.iter_mut().zip(advances).for_each(|(offset, by)| *offset += by * times);
            if !wraps {
                return true;
            }
        }
        false
    }
}

impl<'p> Interpreter<'p> {
    /// Executes a loop if it contains nothing but further loops and stores, and all its indices are
    /// affine and in bounds. Else returns `None`, and nothing has happened.
    pub(super) fn nest(&mut self, l: &'p Loop) -> Option<Result<(), Problem>> {
        let mut nest = mem::take(&mut self.spare_nest);
        nest.clear();
        let prepared = self.prepare(l, &mut nest);
        nest.loops.iter().for_each(|l| self.vars[l.var.0 as usize] = None);

        let result = prepared.map(|()| self.execute(&mut nest));
        self.spare_nest = nest;
        result
    }

    /// Prepares a nest, and leaves its variables bound to zero.
    fn prepare(&mut self, outermost: &'p Loop, nest: &mut Nest<'p>) -> Option<()> {
        let mut l = outermost;
        let mut iterations = 1_usize;
        loop {
            self.check_free(l.var).ok()?;
            iterations = iterations.checked_mul(l.extent)?;
            self.vars[l.var.0 as usize] = Some(0);
            nest.loops.push(l);
            match &l.body[..] {
                [Node::Loop(inner)] if !matches!(inner.kind, LoopKind::Block | LoopKind::Thread) => l = inner,
                _ => break,
            }
        }
        if iterations < FEWEST_ITERATIONS {
            return None;
        }

        nest.iteration.resize(nest.loops.len(), 0);
        l.body.iter().try_for_each(|node| {
            let Node::Store(store) = node else { return None };
            let offset = self.add_offset(&store.dst, nest)?;
            self.add_steps(&store.value, nest)?;
            let is_operand = matches!(self.program.buffer(store.dst.buffer).role, Role::Operand(_));
            nest.stores.push((store, offset, nest.steps.len()));
            (!is_operand).then_some(())
        })
    }

    /// Adds the offset of an access and returns its number; `None` if it is invalid in some
    /// iteration. An affine index is least and largest at first and last iterations.
    fn add_offset(&self, access: &Access, nest: &mut Nest<'p>) -> Option<usize> {
        let (id, buffer) = (access.buffer.0 as usize, self.accessed(access).ok()?);
        let first = nest.advances.len();
        nest.advances.resize(first + nest.loops.len(), 0);
        let mut offset = 0;
        for (index, &extent) in access.index.iter().zip(&buffer.shape) {
            let at = self.value_of(index)?;
            let (mut low, mut high) = (at, at);
            for (l, advance) in nest.loops.iter().zip(&mut nest.advances[first..]) {
                let coefficient = index.coefficient(l.var);
                let last = coefficient.checked_mul(l.extent as i64 - 1)?;
                low = low.checked_add(last.min(0))?;
                high = high.checked_add(last.max(0))?;
                *advance = advance.checked_mul(extent as i64)?.checked_add(coefficient)?;
            }
            if low < 0 || high >= extent as i64 {
                return None;
            }
            offset = offset * extent as i64 + at;
        }
        nest.offsets.push((self.thread * self.part_len[id]) as i64 + offset);
        Some(nest.offsets.len() - 1)
    }

    /// Adds the steps of an expression, operands first.
    fn add_steps(&self, expr: &'p Expr, nest: &mut Nest<'p>) -> Option<()> {
        let step = match expr {
            Expr::Const(value) => NestStep::Constant(f64::from(*value)),
            Expr::Load(access) => NestStep::Load(access.buffer, self.add_offset(access, nest)?),
            Expr::Gather(_) | Expr::Guarded { .. } => return None,
            Expr::Binary(op, _) if self.is_of_integers(expr) => NestStep::Integers(*op),
            _ => NestStep::Formula(Formula::of(expr)?, expr.operands().len()),
        };
        expr.operands().iter().try_for_each(|of| self.add_steps(of, nest))?;
        nest.steps.push(step);
        Some(())
    }

    fn execute(&mut self, nest: &mut Nest<'p>) -> Result<(), Problem> {
        loop {
            let mut first = 0;
            for &(store, offset, end) in &nest.stores {
                let value = self.computed(&nest.steps[first..end], &nest.offsets, &mut nest.stack)?;
                self.put(store, nest.offsets[offset] as usize, value)?;
                first = end;
            }
            if !nest.advance() {
                return Ok(());
            }
        }
    }

    /// Returns the value that steps compute.
    fn computed(&mut self, steps: &[NestStep], offsets: &[i64], stack: &mut Vec<f64>) -> Result<f64, Problem> {
        stack.clear();
        for step in steps {
            let value = match *step {
                NestStep::Constant(value) => value,
                NestStep::Load(buffer, offset) => self.read(buffer, offsets[offset] as usize)?,
                NestStep::Integers(op) => {
                    let [b, a] = [(); 2].map(|()| stack.pop().unwrap_or(f64::NAN));
                    integers(op, a, b)
                }
                NestStep::Formula(formula, operands) => {
                    let mut values = [0.0; Primitive::MOST_OPERANDS];
                    let first = stack.len() - operands;
                    values.iter_mut().zip(stack.drain(first..)).for_each(|(value, of)| *value = of as f32);
                    f64::from(formula.value(values))
                }
            };
            stack.push(value);
        }
        Ok(stack.pop().unwrap_or(f64::NAN))
    }
}
