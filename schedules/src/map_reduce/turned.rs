//! Products of a matrix with a few vectors that are interleaved in memory: a map first makes each
//! vector contiguous.

use std::sync::Arc;

use autotune_ir::program::{Access, BufferId, Expr};
use autotune_ir::spec::{Axis, Equation, Spec, TensorSource, TensorSpec};
use autotune_ir::{Affine, VarId};
use autotune_workloads::Workload;
use autotune_workloads::axes::Axes;

use super::chain::axis_of;

/// f32 elements of a cache line.
const LINE_ELEMENTS: usize = 16;
/// Distance, in f32 elements, of addresses that map to the same set of the first-level cache.
const SET_ELEMENTS: usize = 1 << 10;

/// Returns the spec whose equations become passes: the workload's own, or one that transposes an
/// operand first. Computed once.
pub(super) fn spec_of(workload: &Workload) -> Arc<Spec> {
    let made = workload.once("turned", || turned(workload.spec()).map(Arc::new));
    Option::clone(&made).unwrap_or_else(|| Arc::clone(workload.spec()))
}

/// Rewrites a product so that a map first transposes the operand with few rows or columns. `None`
/// unless that operand is not contiguous along the reduction axis and the other operand is.
///
/// ```text
/// turned[n, k] = weight[k, n];  sum[m, n] = Σ input[m, k] * turned[n, k];  output[m, n] = ..
/// ```
fn turned(spec: &Spec) -> Option<Spec> {
    let (main, [product, tail]) = (spec.main(), &spec.equations[..]) else { return None };
    let axes = Axes::of(spec).filter(|axes| !axes.is_of_vector(main))?;
    let (few, [step]) = (axes.few(main)?, &axes.steps[..]) else { return None };
    let loads = product.loads();
    let (own, other) = (*loads.get(few)?, *loads.get(1 - few)?);
    let goes_along = |access: &Access| access.index.last().and_then(axis_of) == Some(*step);
    let line = axis_of(own.index.last()?).filter(|axis| axis != step)?;
    if !goes_along(other) || !spec.tensor(own).is_given() {
        return None;
    }

    // The axes of the map are the operand's contiguous axis and the reduction axis, in this order.
    let var = |axis: usize| Affine::var(VarId(axis as u32));
    let turn = |index: &Affine| match axis_of(index) {
        Some(axis) if axis == line => Some(var(0)),
        Some(axis) if axis == *step => Some(var(1)),
        Some(axis) => (product.axes[axis].extent == 1).then(Affine::default),
        None => index.terms.is_empty().then(|| index.clone()),
    };
    let read = Access { buffer: own.buffer, index: own.index.iter().map(turn).collect::<Option<_>>()? };
    let buffer = BufferId(spec.tensors.len() as u32);
    let map = Equation {
        axes: [line, *step].map(|axis| Axis { reduce: false, ..product.axes[axis].clone() }).to_vec(),
        output: Access { buffer, index: [var(0), var(1)].into_iter().collect() },
        value: Expr::Load(read),
        reduction: product.reduction,
    };

    let of_turned = Access { buffer, index: [var(line), var(*step)].into_iter().collect() };
    let factors = if few == 0 { [&of_turned, other] } else { [other, &of_turned] };
    let [a, b] = factors.map(|access| Expr::Load(access.clone()));
    let product = Equation { value: Expr::product(a, b), ..product.clone() };
    let (shape, dtype) = (vec![map.axes[0].extent, apart(map.axes[1].extent)], spec.tensor(own).dtype);
    let tensor = TensorSpec { name: "turned".into(), shape, dtype, source: TensorSource::Computed };
    let tensors = spec.tensors.iter().cloned().chain([tensor]).collect();
    Some(Spec { name: spec.name.clone(), tensors, equations: vec![map, product, tail.clone()], main: 1 })
}

/// Returns the distance between vectors in elements. It is padded if the vectors' elements at the
/// same step would map to the same set of the first-level cache.
fn apart(extent: usize) -> usize {
    if extent.is_multiple_of(SET_ELEMENTS) { extent + LINE_ELEMENTS } else { extent }
}
