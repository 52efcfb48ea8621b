//! What is done at a point of the iteration space: a statement of the algorithm's main equation.

use crate::program::{Access, BufferId, Expr, Program, Store, StoreMode};
use crate::spec::{Equation, Reduction, Spec};

/// What a statement reads.
pub(super) struct Operand<'a> {
    pub(super) access: &'a Access,
    /// The access of the equation that it stands for; `None` for factors, which go by their roles, in either order.
    pub(super) means: Option<Access>,
}

/// What a store with a point reads, or why it is no statement of the main equation.
pub(super) fn operands<'a>(program: &Program, store: &'a Store) -> Result<Vec<Operand<'a>>, &'static str> {
    let spec = &program.algorithm;
    let main = spec.main();
    if is_product(main) {
        let Some(factors) = store.factors() else {
            return Err("a point at something else than a product of two loads that is accumulated");
        };
        return Ok(factors.map(|access| Operand { access, means: None }).into());
    }

    // Where nothing is combined, the result may be stored at once.
    let whole = (!main.reduces()).then(|| composed(spec)).flatten();
    let statements = [Some(main.value.clone()), whole].into_iter().flatten();
    let found = statements.into_iter().find_map(|value| read(program, main, &value, store));
    found.ok_or("a point at something else than a statement of the main equation")
}

/// True for a sum of products of two loads.
fn is_product(main: &Equation) -> bool {
    let loads = main.loads();
    main.reduction == Reduction::Sum
        && matches!(loads[..], [a, b] if main.value == Expr::product(Expr::Load(a.clone()), Expr::Load(b.clone())))
}

/// The last equation with the main one's value in the place of what it defines, if it is all that comes behind it.
fn composed(spec: &Spec) -> Option<Expr> {
    let (main, [tail]) = (spec.main(), spec.equations.get(spec.main + 1..)?) else { return None };
    let is_alike = tail.axes == main.axes && tail.output.index == main.output.index;
    let value = |access: &Access| if *access == main.output { main.value.clone() } else { Expr::Load(access.clone()) };
    is_alike.then(|| tail.value.replaced(&mut { value }))
}

/// What the store reads, in the order in which `value` does, if it combines such a value with what it stores to.
fn read<'a>(program: &Program, main: &Equation, value: &Expr, store: &'a Store) -> Option<Vec<Operand<'a>>> {
    let mark = Access { buffer: BufferId(u32::MAX), index: Vec::new() };
    let made = match main.reduces() {
        true => main.reduction.store(mark.clone(), value.clone(), Vec::new()),
        false => Store { dst: mark.clone(), mode: StoreMode::Assign, value: value.clone(), point: Vec::new() },
    };
    if made.mode != store.mode || shape(&made.value) != shape(&store.value) {
        return None;
    }

    let (mut wanted, mut found) = (Vec::new(), Vec::new());
    made.value.for_each_load(&mut |access| wanted.push(access.clone()));
    store.value.for_each_load(&mut |access| found.push(access));
    let mut operands = Vec::new();
    for (access, means) in found.into_iter().zip(wanted) {
        match means == mark {
            true if *access != store.dst => return None,
            true => {}
            false if program.buffers.get(access.buffer.0 as usize)?.role != program.algorithm.role(means.buffer) => {
                return None;
            }
            false => operands.push(Operand { access, means: Some(means) }),
        }
    }
    Some(operands)
}

/// An expression without what is read where.
fn shape(value: &Expr) -> Expr {
    let nothing = |_: &Access| Expr::Load(Access { buffer: BufferId(0), index: Vec::new() });
    value.replaced(&mut { nothing })
}
