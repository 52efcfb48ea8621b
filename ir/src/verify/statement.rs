//! Matching of stores against the equations of the algorithm.

use smallvec::SmallVec;

use crate::program::{Access, BufferId, Expr, Program, Role, Store, StoreMode};
use crate::spec::{Equation, Reduction, Spec};

use super::hidden;

/// An element that a statement reads.
pub(super) struct StatementOperand<'a> {
    pub(super) access: &'a Access,
    /// Access of the equation that it represents; `None` for factors, which are identified by their
    /// roles, in either order.
    pub(super) means: Option<Access>,
}

/// Elements that a statement reads; mostly two factors.
type Operands<'a> = SmallVec<[StatementOperand<'a>; 2]>;

/// Returns the elements read by a store that computes an iteration of an equation; the error says
/// why it is no statement of the equation.
pub(super) fn operands<'a>(program: &Program, number: usize, store: &'a Store) -> Result<Operands<'a>, &'static str> {
    let spec = &program.algorithm;
    let Some(equation) = spec.equations.get(number) else {
        return Err("the equation of an iteration does not exist");
    };
    if number == spec.main && is_product(equation) {
        let operand = |access| StatementOperand { access, means: None };
        if let Some(parts) = store.split_factors() {
            return Ok(parts.into_iter().flatten().map(operand).collect());
        }
        let Some(factors) = store.factors() else {
            return Err("an iteration must accumulate a product of two loads");
        };
        return Ok(factors.into_iter().map(operand).collect());
    }

    // Without a reduction, the result may be stored directly through the following equation.
    let whole = (!equation.reduces()).then(|| composed(spec, number)).flatten();
    // A mask may have been applied to a copy of the scores before.
    let unmasked = hidden::unmasked(spec, number);
    let statements = [Some(equation.value.clone()), whole, unmasked].into_iter().flatten();
    let found = statements.into_iter().find_map(|value| read(program, equation, &value, store));
    found.ok_or("a statement does not compute its equation")
}

/// Returns true for a sum of products of two loads.
pub(super) fn is_product(main: &Equation) -> bool {
    main.reduction == Reduction::Sum && main.reduces() && main.value.factors().is_some()
}

/// Returns the value of the last equation with this equation substituted into it, if only one
/// equation follows.
fn composed(spec: &Spec, number: usize) -> Option<Expr> {
    let (map, [tail]) = (&spec.equations[number], spec.equations.get(number + 1..)?) else { return None };
    // Substitution requires that both equations have the same iterations.
    let is_alike = tail.axes == map.axes && tail.output.index == map.output.index;
    let value = |access: &Access| if *access == map.output { map.value.clone() } else { Expr::Load(access.clone()) };
    is_alike.then(|| tail.value.replaced(&mut { value }))
}

/// Matches a store that computes `value` and combines it with its destination as the equation
/// requires. Returns the elements that it reads, in the order of `value`.
fn read<'a>(program: &Program, equation: &Equation, value: &Expr, store: &'a Store) -> Option<Operands<'a>> {
    let mark = Access { buffer: BufferId(u32::MAX), index: [].into() };
    let made = match equation.reduces() {
        true => equation.reduction.store(mark.clone(), value.clone(), None),
        false => Store { dst: mark.clone(), mode: StoreMode::Assign, value: value.clone(), iteration: None },
    };
    // First compare the structure; the accesses are compared below.
    if made.mode != store.mode || shape(&made.value) != shape(&store.value) {
        return None;
    }

    let (mut wanted, mut found) = (Vec::new(), Vec::new());
    made.value.for_each_load(&mut |access| wanted.push(access.clone()));
    store.value.for_each_load(&mut |access| found.push(access));
    let mut operands = Operands::new();
    for (access, means) in found.into_iter().zip(wanted) {
        match means == mark {
            true if *access != store.dst => return None,
            true => {}
            false => {
                // The tensor itself or a packed copy of it.
                let role = program.buffers.get(access.buffer.0 as usize)?.role;
                if role != program.algorithm.role(means.buffer) && role != Role::Packed {
                    return None;
                }
                operands.push(StatementOperand { access, means: Some(means) });
            }
        }
    }
    Some(operands)
}

/// Returns the structure of an expression, without the accessed elements.
fn shape(value: &Expr) -> Expr {
    let nothing = |_: &Access| Expr::Load(Access { buffer: BufferId(0), index: [].into() });
    value.replaced(&mut { nothing })
}
