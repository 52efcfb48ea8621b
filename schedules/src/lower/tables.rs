//! Stage that stores the tensors that a spec knows ahead of time.

use super::nest::{Loops, NestParts};
use super::{assign, nest};
use autotune_ir::affine::Affine;
use autotune_ir::program::{BufferId, Expr, LoopKind, Node, Role, Scope, Stage, When};
use autotune_ir::spec::{Spec, TensorSource};

/// Returns the buffer of each tensor that is known, by tensor number, and the stage that stores all
/// of them ahead of time, inside the given loops. Without known tensors there is no stage.
pub(crate) fn tables(
    spec: &Spec,
    all: &mut NestParts,
    loops: &[(&'static str, LoopKind)],
) -> (Vec<Option<BufferId>>, Option<Stage>) {
    let (mut made, mut stores): (_, Vec<Node>) = (vec![None; spec.tensors.len()], Vec::new());
    for (number, tensor) in spec.tensors.iter().enumerate() {
        let TensorSource::Known(elements) = &tensor.source else { continue };
        let buffer = all.buffer(tensor.name.to_string(), Role::Packed, Scope::Global, tensor.shape.clone());
        all.buffers[buffer.0 as usize].dtype = tensor.dtype;
        made[number] = Some(buffer);
        // Tables are small, so each element is a store of a constant.
        let store = |(at, &value)| assign(buffer, vec![Affine::constant(at as i64)], Expr::Const(value));
        stores.extend(elements.iter().enumerate().map(store));
    }

    let mut around = Loops::new();
    for &(name, kind) in loops {
        all.open(name, 1, kind, &mut around);
    }
    let stage = |body| Stage { name: "make_tables".into(), when: When::AheadOfTime, body };
    let has_any = !stores.is_empty();
    (made, has_any.then(|| stage(nest(around, stores))))
}
