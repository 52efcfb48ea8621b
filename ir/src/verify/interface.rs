//! Checks of a program's interface: operands, axes, names and memory.

use std::borrow::Cow;
use std::collections::HashSet;

use super::{Problem, ProgramError, statement};
use crate::affine::{Affine, VarId};
use crate::instruction::{TILE_ROWS, is_dot_length};
use crate::layout::physical_shape;
use crate::program::{Access, AxisInfo, AxisOf, Buffer, Layout, MAX_LOCAL_BYTES, Program, Role, Scope};
use crate::spec::{AxisId, Equation, Spec, TensorSource, TensorSpec};
use crate::target::Target;

/// Maximum bytes of all global buffers of a kernel, and the maximum as a multiple of its operands'
/// bytes; the larger one applies.
const MAX_GLOBAL_BYTES: u64 = 8 << 30;
const MAX_GLOBAL_GROWTH: u64 = 8;

fn fail(place: impl Into<String>, what: impl Into<String>) -> Result<(), ProgramError> {
    Err(ProgramError { place: place.into(), problem: Problem::Interface(what.into()) })
}

/// Checks that names, roles, shapes and axes match the spec and the algorithm.
pub(super) fn check_interface(program: &Program) -> Result<(), ProgramError> {
    if !outside(&program.spec).eq(outside(&program.algorithm)) {
        return fail("program", "the operands of the algorithm differ from those of the spec");
    }

    let mut names = HashSet::new();
    for buffer in &program.buffers {
        let place = format!("buffer '{}'", buffer.name);
        if !is_identifier(&buffer.name) || !names.insert(&buffer.name) {
            return fail(place, "the name is not a C identifier or not unique");
        }
        // Intermediate buffers may have any shape and layout.
        let Some(tensor) = program.spec.find(buffer.role) else { continue };
        if buffer.scope != Scope::Global {
            return fail(place, "operands and output must be in global memory");
        }
        if physical_shape(&tensor.shape, buffer.layout).as_ref() != Ok(&buffer.shape) {
            return fail(
                place,
                format!("shape {:?} does not match tensor shape {:?} in this layout", buffer.shape, tensor.shape),
            );
        }
        if buffer.dtype != tensor.dtype {
            return fail(
                place,
                format!("the element type is {}, expected {}", buffer.dtype.word(), tensor.dtype.word()),
            );
        }
    }

    let operands = program.spec.operands().count();
    for role in (0..operands).map(Role::Operand).chain([Role::Output]) {
        let found = program.buffers.iter().filter(|b| b.role == role).count();
        if found != 1 {
            return fail("program", format!("{found} buffers have role {role}, expected 1"));
        }
    }
    let beyond = |buffer: &&Buffer| matches!(buffer.role, Role::Operand(number) if number >= operands);
    if let Some(buffer) = program.buffers.iter().find(beyond) {
        return fail(format!("buffer '{}'", buffer.name), format!("the spec has no {}", buffer.role));
    }

    let mut stages = HashSet::new();
    if let Some(bad) = program.stages.iter().find(|s| !is_identifier(&s.name) || !stages.insert(&s.name)) {
        return fail(format!("stage '{}'", bad.name), "the name is not a C identifier or not unique");
    }
    check_axes(program)
}

/// Returns the tensors that the caller passes: operands and result.
fn outside(spec: &Spec) -> impl Iterator<Item = &TensorSpec> {
    spec.operands().chain(spec.find(Role::Output))
}

fn is_identifier(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Checks that the program's axes together are those of the algorithm's main equation. Each axis of
/// the equation is an axis of the program, part of a fused axis, or split into digits that are
/// axes. An axis of extent 1 may be absent. The last group of steps of a dot product, or the last
/// row of a tile, may exceed the end of a reduction axis.
fn check_axes(program: &Program) -> Result<(), ProgramError> {
    let equation = program.algorithm.main();
    let mut names = HashSet::new();
    for axis in &program.axes {
        let parts = parts_of(&axis.of);
        let known = parts.iter().all(|&id| equation.axes.get(id).is_some_and(|own| own.reduce == axis.reduce));
        if !known || !names.insert(axis.name) {
            return fail("program", format!("'{}' is not an axis of the workload", axis.name));
        }
        if let AxisOf::Fused(of) = &axis.of
            && of.iter().map(|&id| equation.axes[id].extent).product::<usize>() != axis.extent
        {
            return fail(
                "program",
                format!("the extent of axis '{}' is not the product of the axes that it fuses", axis.name),
            );
        }
    }

    for (id, own) in equation.axes.iter().enumerate() {
        let of = program.axes.iter().filter(|axis| parts_of(&axis.of).contains(&id));
        let digits = of.clone().filter_map(|axis| match axis.of {
            AxisOf::Part { step, .. } => Some((step, axis.extent)),
            AxisOf::Fused(_) => None,
        });
        let (parts, digits) = (of.count(), digits.collect::<Vec<_>>());
        let is_fused = parts == 1 && digits.is_empty();
        // Only a group of dot-product steps, or a row of such groups in a tile, may exceed a
        // reduction axis, by less than a group or row.
        let of_step =
            |step: usize, fits: &dyn Fn(usize) -> bool| digits.iter().find(|digit| digit.0 == step && fits(digit.1));
        let group = of_step(1, &is_dot_length).map_or(1, |group| group.1);
        let words = of_step(group, &|words| group > 1 && words <= TILE_ROWS).map_or(1, |words| words.1);
        let most = if own.reduce { own.extent.saturating_add(group * words - 1) } else { own.extent };
        let counts_all = digits_count(digits.clone()).is_some_and(|count| (own.extent..=most).contains(&count));
        if !is_fused && (digits.len() < parts || !counts_all) {
            return fail("program", format!("axis '{}' does not have {} iterations", own.name, own.extent));
        }
    }
    Ok(())
}

fn parts_of(of: &AxisOf) -> &[AxisId] {
    match of {
        AxisOf::Part { axis, .. } => std::slice::from_ref(axis),
        AxisOf::Fused(axes) => axes,
    }
}

/// Returns the number of values that mixed-radix digits represent, in any order, each given by its
/// weight and its extent; `None` if they do not represent each number once.
fn digits_count(mut digits: Vec<(usize, usize)>) -> Option<usize> {
    digits.retain(|digit| digit.1 != 1);
    digits.sort_unstable();
    let next = |count: usize, (step, extent)| if step == count { count.checked_mul(extent) } else { None };
    digits.into_iter().try_fold(1, next)
}

/// Returns the number of iterations of an equation's axis in the program, including those that
/// exceed it.
fn iterations(program: &Program, equation: usize, axis: AxisId) -> u128 {
    let own = program.algorithm.equations[equation].axes[axis].extent as u128;
    let digits = program.axes.iter().filter_map(|digit| match digit.of {
        AxisOf::Part { axis: of, .. } if of == axis => Some(digit.extent as u128),
        _ => None,
    });
    // A fused or absent axis has no digits.
    if equation == program.algorithm.main { digits.product::<u128>().max(own) } else { own }
}

/// Checks that memory is within the limits of the target.
pub(super) fn check_memory(program: &Program, target: &Target) -> Result<(), ProgramError> {
    let global_limit = MAX_GLOBAL_BYTES.max(MAX_GLOBAL_GROWTH.saturating_mul(operand_bytes(&program.spec)));
    let local_limit = match target {
        Target::Cpu(_) => MAX_LOCAL_BYTES as u64,
        // On a GPU, local memory stands for registers of 4 bytes.
        Target::Gpu(gpu) => 4 * gpu.registers_per_thread as u64,
    };
    for (scope, limit) in [(Scope::Local, local_limit), (Scope::Global, global_limit)] {
        let buffers = program.buffers.iter().filter(|b| b.scope == scope);
        let bytes = buffers.fold(0u64, |sum, b| {
            let elements = b.shape.iter().fold(1u64, |len, &d| len.saturating_mul(d as u64));
            sum.saturating_add(elements.saturating_mul(b.dtype.bytes() as u64))
        });
        if bytes > limit {
            return Err(ProgramError { place: "program".into(), problem: Problem::Memory { scope, bytes, limit } });
        }
    }
    Ok(())
}

/// Returns the bytes of a spec's operands and result at four bytes per element; operands include
/// their padding.
fn operand_bytes(spec: &Spec) -> u64 {
    let equation = spec.main();
    let mut bytes = 0u64;
    for access in equation.loads().into_iter().chain([&equation.output]) {
        let dims = access.index.iter().zip(&spec.tensor(access).shape);
        let padded = dims.map(|(index, &extent)| {
            let (low, high) = equation.range(index);
            (high.max(extent as i64 - 1) - low.min(0) + 1).unsigned_abs()
        });
        bytes = bytes.saturating_add(padded.fold(4, u64::saturating_mul));
    }
    bytes
}

/// Returns the axes that points of an equation refer to: those of the program for the main
/// equation, else the equation's own.
pub(super) fn axes_of(program: &Program, equation: usize) -> Cow<'_, [AxisInfo]> {
    if equation == program.algorithm.main {
        return Cow::Borrowed(&program.axes);
    }
    let axes = program.algorithm.equations[equation].axes.iter().enumerate();
    axes.map(|(id, axis)| AxisInfo::whole(id, axis)).collect()
}

/// Returns the access of the main equation to the tensor with this role, if it reads one.
pub(super) fn access_of(program: &Program, role: Role) -> Option<&Access> {
    let (algorithm, mut found) = (&program.algorithm, None);
    algorithm.main().value.for_each_load(&mut |access| {
        if found.is_none() && algorithm.role(access.buffer) == role {
            found = Some(access);
        }
    });
    found
}

/// Returns an index minus the value of an equation's index at a point of its axes; `None` if the
/// point does not determine it.
pub(super) fn less(mut from: Affine, index: &Affine, axes: &[AxisInfo], point: &[Affine]) -> Option<Affine> {
    from.constant -= index.constant;
    for &(VarId(own), c) in &index.terms {
        for (axis, value) in axes.iter().zip(point) {
            match &axis.of {
                AxisOf::Part { axis, step } if *axis == own as usize => from.add_scaled(value, -c * *step as i64),
                // A fused axis does not determine the values of its parts.
                AxisOf::Fused(of) if of.contains(&(own as usize)) => return None,
                AxisOf::Part { .. } | AxisOf::Fused(_) => {}
            }
        }
    }
    Some(from)
}

/// Returns the logical index along a dimension for a physical index.
pub(super) fn logical_index(physical: &[Affine], layout: Layout, dim: usize) -> Affine {
    match (layout, physical) {
        (Layout::ChannelBlocked(block), [_, c, .., lane]) if dim == 1 => c.clone() * block as i64 + lane,
        _ => physical[dim].clone(),
    }
}

/// Returns true if an equation reads a computed tensor out of bounds.
pub(super) fn ends_within(program: &Program, equation: usize, access: &Access) -> bool {
    let spec = &program.algorithm;
    let (equation, tensor) = (&spec.equations[equation], spec.tensor(access));
    tensor.source == TensorSource::Computed
        && access.index.iter().zip(&tensor.shape).any(|(index, &extent)| equation.is_beyond(index, extent))
}

/// Returns the number of iterations of an equation. With `skip_padding`, iterations that read
/// padding are excluded; constants and weights do not count, since their packed copies contain the
/// zeros. `None` if the number cannot be determined: several dimensions of operands exceed them
/// along the same axes.
pub(super) fn required_points(program: &Program, number: usize, skip_padding: bool) -> Option<u128> {
    let spec = &program.algorithm;
    let equation = &spec.equations[number];
    let mut free: Vec<bool> = vec![true; equation.axes.len()];
    let mut count = 1u128;
    let mut counted: Vec<(&Affine, usize)> = Vec::new();
    let is_weight = |number: usize| number > 0 && statement::is_product(equation);
    let may_skip =
        |(number, access): &(usize, &Access)| skip_padding && !is_weight(*number) && !spec.tensor(access).is_constant();

    for (_, access) in equation.loads().into_iter().enumerate().filter(may_skip) {
        for (index, &extent) in access.index.iter().zip(&spec.tensor(access).shape) {
            // Equal bounds exclude the same iterations and are counted once.
            if !equation.is_beyond(index, extent) || counted.contains(&(index, extent)) {
                continue;
            }
            counted.push((index, extent));
            let axes: Vec<AxisId> = index.terms.iter().map(|&(VarId(axis), _)| axis as usize).collect();
            // Bounds on the same axis are not independent, so their counts cannot be multiplied.
            if axes.iter().any(|&axis| !free[axis]) {
                return None;
            }
            axes.iter().for_each(|&axis| free[axis] = false);
            count *= points_within(equation, index, extent);
        }
    }

    let rest = (0..equation.axes.len()).filter(|&axis| free[axis]);
    Some(rest.fold(count, |count, axis| count * iterations(program, number, axis)))
}

/// Returns the number of points of an index's axes for which the index is in `0..extent`.
fn points_within(equation: &Equation, index: &Affine, extent: usize) -> u128 {
    let mut terms: Vec<(i64, usize)> =
        index.terms.iter().map(|&(VarId(axis), c)| (c, equation.axes[axis as usize].extent)).collect();
    // The values of the axis with the largest extent are counted in closed form, the others
    // enumerated.
    terms.sort_unstable_by_key(|&(_, extent)| extent);
    let Some((step, last)) = terms.pop() else {
        return u128::from((0..extent as i64).contains(&index.constant));
    };

    let fitting = |base: i64| -> u128 {
        // Counts the x of 0..last with 0 <= step * x + base < extent.
        let (least, most) = if step > 0 { (-base, extent as i64 - 1 - base) } else { (base - extent as i64 + 1, base) };
        let first = least.max(0).unsigned_abs().div_ceil(step.unsigned_abs()) as i64;
        let behind = (most.div_euclid(step.abs()) + 1).min(last as i64);
        (behind - first).max(0) as u128
    };

    let mut bases = vec![index.constant];
    for (step, extent) in terms {
        bases = bases.iter().flat_map(|base| (0..extent as i64).map(move |x| base + step * x)).collect();
    }
    bases.into_iter().map(fitting).sum()
}
