//! Evaluation of equations at one element.

use super::{ResultLocation, RowsLowering, Values};
use crate::lower::nest::{guarded, guarded_value};
use crate::lower::{assign, at, load};
use crate::map_reduce::axis_of;
use autotune_ir::affine::Affine;
use autotune_ir::program::{Access, BufferId, Expr, Iteration, Node, Role, Store, StoreMode};
use autotune_ir::spec::{Equation, Reduction};

/// A point at which an equation is evaluated.
#[derive(Clone, Copy)]
struct At<'v> {
    /// Position of the equation.
    pass: usize,
    /// Value of each of its axes.
    values: &'v [Affine],
    /// True if all points of the equation are evaluated, each once.
    is_whole: bool,
}

impl RowsLowering<'_> {
    /// Returns the value that the pass combines or stores at a point, and the nodes to run first.
    pub(super) fn value(&mut self, values: &[Affine]) -> (Vec<Node>, Expr) {
        // Registers for operands are free again in each statement.
        self.reads = 0;
        self.value_at(At { pass: self.pass, values, is_whole: true })
    }

    pub(super) fn iteration(&self, values: &[Affine]) -> Iteration {
        Iteration { equation: self.pass, point: values.to_vec() }
    }

    /// Returns `acc = combined(acc, value)`.
    pub(super) fn combine(&self, acc: BufferId, value: Expr, values: &[Affine]) -> Node {
        let dst = Access { buffer: acc, index: self.of_lane().into() };
        Node::Store(self.equation().reduction.store(dst, value, Some(self.iteration(values))))
    }

    /// Returns `output = value`, with the epilogue of the last equation.
    pub(super) fn stored(&self, value: Expr, values: &[Affine], iteration: Option<Iteration>) -> Node {
        let chain = &self.plan.chain;
        let of_tail = |access: &Access| match *access == chain.last().output {
            true => value.clone(),
            false => Expr::Load(self.operand(access, values)),
        };
        let value = chain.tail().map_or_else(|| value.clone(), |tail| tail.value.replaced(&mut { of_tail }));
        let index = chain.last().output.index.iter().map(|index| at(index, values)).collect();
        let dst = Access { buffer: self.output, index };
        Node::Store(Store { dst, mode: StoreMode::Assign, value, iteration })
    }

    /// Returns an element of an operand or of a known tensor.
    pub(super) fn operand(&self, access: &Access, values: &[Affine]) -> Access {
        let known = self.tables[access.buffer.0 as usize];
        let buffer = match self.plan.chain.spec.role(access.buffer) {
            Role::Operand(number) => Some(BufferId(number as u32)),
            _ => known,
        };
        let Some(buffer) = buffer else { return access.clone() };
        Access { buffer, index: access.index.iter().map(|index| at(index, values)).collect() }
    }

    fn value_at(&mut self, place: At) -> (Vec<Node>, Expr) {
        let chain = &self.plan.chain;
        let equation = &chain.passes()[place.pass];
        let is_filled = chain.spec.reads_beyond(equation);
        let (mut nodes, mut read): (Vec<Node>, Vec<(&Access, Expr)>) = (Vec::new(), Vec::new());
        for access in equation.loads() {
            // Loads of the same element share a value.
            if read.iter().any(|(known, _)| *known == access) {
                continue;
            }
            let value = match (chain.spec.role(access.buffer), self.made[access.buffer.0 as usize].clone()) {
                (Role::Operand(_), _) if is_filled => self.filled(equation.reduction, access, place, &mut nodes),
                (Role::Operand(_), _) => Expr::Load(self.operand(access, place.values)),
                (_, None) if self.tables[access.buffer.0 as usize].is_some() => {
                    Expr::Load(self.operand(access, place.values))
                }
                (_, Some(ResultLocation::OfRow(buffer, place))) => self.of_row(buffer, &place),
                (_, Some(ResultLocation::Kept(buffer))) => {
                    load(buffer, self.kept_index(&self.defining(access, place).1))
                }
                (_, None) => self.recompute(access, place, &mut nodes),
            };
            read.push((access, value));
        }

        let found = |access: &Access| read.iter().find(|(known, _)| *known == access).map(|(_, value)| value.clone());
        let value = equation.value.replaced(&mut |access| found(access).unwrap_or(Expr::Load(access.clone())));
        (nodes, value)
    }

    /// Adds a register for the next operand of the statement.
    fn register_to_read(&mut self, name: &str) -> BufferId {
        self.reads += 1;
        self.register(&format!("{name}_{}", self.reads), Role::Packed)
    }

    /// Loads an element of an operand into a register; out of bounds it is the reduction's neutral
    /// value.
    fn filled(&mut self, reduction: Reduction, access: &Access, place: At, nodes: &mut Vec<Node>) -> Expr {
        let element = self.operand(access, place.values);
        let bounds = self.all.buffers[element.buffer.0 as usize].shape.clone();
        let when = self.all.guards(element.index.iter().cloned().zip(bounds));
        let name = self.all.buffers[element.buffer.0 as usize].name.clone();
        let register = self.register_to_read(&name);
        match reduction {
            // Guarded values are zero out of bounds, which is neutral in sums. Other reductions
            // need a second store.
            Reduction::Sum => nodes.push(assign(register, self.of_lane(), guarded_value(when, Expr::Load(element)))),
            _ => {
                nodes.push(assign(register, self.of_lane(), Expr::Const(reduction.neutral())));
                nodes.extend(guarded(when, vec![assign(register, self.of_lane(), Expr::Load(element))]));
            }
        }
        load(register, self.of_lane())
    }

    /// Computes the value of an earlier pass for an element of the row, in a register. If the plan
    /// says so, the first time stores it in shared memory, too.
    fn recompute(&mut self, access: &Access, place: At, nodes: &mut Vec<Node>) -> Expr {
        let plan = self.plan;
        let (known, values) = self.defining(access, place);
        let is_whole = place.is_whole && self.is_whole(access, place.pass, &plan.chain.passes()[known]);
        let (first, value) = self.value_at(At { pass: known, values: &values, is_whole });
        nodes.extend(first);

        let (tensor, rows) = (access.buffer.0 as usize, plan.chain.rows);
        let name = plan.chain.spec.tensors[tensor].name.to_string();
        let register = self.register_to_read(&name);
        // The verifier counts each iteration once, so only the first evaluation states it.
        let is_first = is_whole && !self.counted[tensor];
        self.counted[tensor] |= is_first;
        let iteration = is_first.then(|| Iteration { equation: known, point: values.clone() });
        let dst = Access { buffer: register, index: self.of_lane().into() };
        nodes.push(Node::Store(Store { dst, mode: StoreMode::Assign, value, iteration }));

        if plan.keeps && is_first && !self.is_last() {
            let own = plan.chain.passes()[known].axes[rows..].iter().map(|axis| axis.extent);
            let kept = self.shared(&format!("{name}_kept"), own);
            nodes.push(assign(kept, self.kept_index(&values), load(register, self.of_lane())));
            // Only later passes read it: in this one, other threads may not have stored it yet.
            self.stored_values.push((tensor, ResultLocation::Kept(kept)));
        }
        load(register, self.of_lane())
    }

    /// Returns the pass that defines the loaded element, and the values of the pass's axes at this
    /// element.
    fn defining(&self, access: &Access, place: At) -> (usize, Values) {
        let passes = self.plan.chain.passes();
        let known = passes.iter().position(|pass| pass.output.buffer == access.buffer).unwrap_or(place.pass);
        let mut values = place.values[..self.plan.chain.rows].to_vec();
        values.resize(passes[known].axes.len(), Affine::default());
        for (index, own) in access.index.iter().zip(&passes[known].output.index) {
            if let Some(axis) = axis_of(own) {
                values[axis] = at(index, place.values);
            }
        }
        (known, values)
    }

    /// True if a pass reads every element that another defines for a row, each once.
    fn is_whole(&self, access: &Access, pass: usize, known: &Equation) -> bool {
        let rows = self.plan.chain.rows;
        let mut own: Vec<usize> = access.index.iter().filter_map(axis_of).filter(|&axis| axis >= rows).collect();
        // An index that repeats an axis, such as a diagonal, does not reach every element.
        own.sort_unstable();
        own.dedup();
        own.len() == known.axes.len() - rows && own.len() == self.plan.chain.passes()[pass].axes.len() - rows
    }

    fn kept_index(&self, values: &[Affine]) -> Vec<Affine> {
        self.in_shared(values[self.plan.chain.rows..].iter().cloned())
    }
}
