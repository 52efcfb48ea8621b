//! Products that a map prepares: it makes interleaved vectors contiguous, or widens elements that
//! several vectors read.

use std::sync::Arc;

use autotune_ir::program::{Access, BufferId, Expr};
use autotune_ir::spec::{Axis, AxisId, Equation, Spec, TensorSource, TensorSpec};
use autotune_ir::{Affine, DType, VarId};
use autotune_workloads::Workload;
use autotune_workloads::axes::Axes;

use super::chain::{axis_of, contiguous_axis};

/// f32 elements of a cache line.
const LINE_ELEMENTS: usize = 16;
/// Distance, in f32 elements, of addresses that map to the same set of the first-level cache.
const SET_ELEMENTS: usize = 1 << 10;

/// Returns the spec whose equations become passes: the workload's own, or one that transposes or
/// widens an operand first. Computed once.
pub(super) fn spec_of(workload: &Workload) -> Arc<Spec> {
    let rewritten = |spec| turned(spec).or_else(|| widened(spec));
    let made = workload.once("rewritten", || rewritten(workload.spec()).map(Arc::new));
    Option::clone(&made).unwrap_or_else(|| Arc::clone(workload.spec()))
}

/// Rewrites a product so that a map first transposes the operand with few rows or columns. `None`
/// unless that operand is not contiguous along the reduction axis and the other operand is.
///
/// ```text
/// turned[n, k] = weight[k, n];  sum[m, n] = Σ input[m, k] * turned[n, k];  output[m, n] = ..
/// ```
fn turned(spec: &Spec) -> Option<Spec> {
    let (main, [product, _]) = (spec.main(), &spec.equations[..]) else { return None };
    let axes = Axes::of(spec).filter(|axes| !axes.is_of_vector(main))?;
    let (few, [step]) = (axes.few(main)?, &axes.steps[..]) else { return None };
    let loads = product.loads();
    let (own, other) = (*loads.get(few)?, *loads.get(1 - few)?);
    let line = contiguous_axis(own).filter(|axis| axis != step)?;
    if contiguous_axis(other) != Some(*step) || !spec.tensor(own).is_given() {
        return None;
    }

    let shape = vec![product.axes[line].extent, padded_stride(product.axes[*step].extent)];
    let tensor = computed("turned", shape, spec.tensor(own).dtype);
    mapped(spec, spec.main, own, &[line, *step], tensor)
}

/// Rewrites a spec so that a map first widens an operand of an intermediate product, whose elements
/// are narrower than f32 and each multiply several vectors. `None` if there is no such operand.
///
/// ```text
/// wide[m, k] = query[m, k];  scores[m, n] = Σ wide[m, k] * keys[k, n];  ..
/// ```
fn widened(spec: &Spec) -> Option<Spec> {
    let uses = |access: &Access, axis: AxisId| access.index.iter().any(|index| index.uses(VarId(axis as u32)));
    let is_narrow = |access: &Access| {
        let tensor = spec.tensor(access);
        tensor.is_given() && !tensor.dtype.is_integer() && tensor.dtype.bytes() < DType::F32.bytes()
    };
    let is_shared = |product: &Equation, access: &Access| {
        let is_along_step = contiguous_axis(access).is_some_and(|axis| product.axes[axis].reduce);
        let is_other = |(number, axis): (AxisId, &Axis)| !axis.reduce && axis.extent > 1 && !uses(access, number);
        is_along_step && product.axes.iter().enumerate().any(is_other)
    };
    let operand = |product: &Equation| {
        let mut loads = product.loads().into_iter();
        loads.find(|access| is_narrow(access) && is_shared(product, access)).cloned()
    };
    let mut products = spec.equations[..spec.main].iter().enumerate();
    let (number, own) = products.find_map(|(number, product)| Some((number, operand(product)?)))?;

    // The map has the operand's axes, in the order of the product.
    let axes = &spec.equations[number].axes;
    let read: Vec<AxisId> = (0..axes.len()).filter(|&axis| uses(&own, axis)).collect();
    let shape = read.iter().map(|&axis| axes[axis].extent).collect();
    mapped(spec, number, &own, &read, computed("wide", shape, DType::F32))
}

fn computed(name: &'static str, shape: Vec<usize>, dtype: DType) -> TensorSpec {
    TensorSpec { name: name.into(), shape, dtype, source: TensorSource::Computed }
}

/// Returns the spec with a map before equation `number`, which copies the operand read by `own`
/// into `tensor`. The axes of the map are the equation's axes `axes`, in this order. `None` if the
/// operand is indexed by more than single axes of these.
fn mapped(spec: &Spec, number: usize, own: &Access, axes: &[AxisId], tensor: TensorSpec) -> Option<Spec> {
    let product = &spec.equations[number];
    let var = |axis: AxisId| Affine::var(VarId(axis as u32));
    let in_map = |index: &Affine| match axis_of(index) {
        Some(axis) => match axes.iter().position(|&known| known == axis) {
            Some(place) => Some(var(place)),
            None => (product.axes[axis].extent == 1).then(Affine::default),
        },
        None => index.terms.is_empty().then(|| index.clone()),
    };
    let read = Access { buffer: own.buffer, index: own.index.iter().map(in_map).collect::<Option<_>>()? };
    let buffer = BufferId(spec.tensors.len() as u32);
    let map = Equation {
        axes: axes.iter().map(|&axis| Axis { reduce: false, ..product.axes[axis].clone() }).collect(),
        output: Access { buffer, index: (0..axes.len()).map(var).collect() },
        value: Expr::Load(read),
        reduction: product.reduction,
    };

    let copied = Access { buffer, index: axes.iter().map(|&axis| var(axis)).collect() };
    let replaced = |access: &Access| Expr::Load(if access == own { copied.clone() } else { access.clone() });
    let product = Equation { value: product.value.replaced(&mut { replaced }), ..product.clone() };
    let mut equations = spec.equations.clone();
    equations.splice(number..=number, [map, product]);
    let tensors = spec.tensors.iter().cloned().chain([tensor]).collect();
    Some(Spec { name: spec.name.clone(), tensors, equations, main: spec.main + 1 })
}

/// Returns the distance between vectors in elements. It is padded if the vectors' elements at the
/// same step would map to the same set of the first-level cache.
fn padded_stride(extent: usize) -> usize {
    if extent.is_multiple_of(SET_ELEMENTS) { extent + LINE_ELEMENTS } else { extent }
}
