//! What a program promises to its surroundings: operands, axes, names, memory.

use std::collections::HashSet;

use super::{Problem, VerifyError};
use crate::affine::Affine;
use crate::program::{Layout, MAX_LOCAL_BYTES, Program, Role, Scope};
use crate::target::Target;
use crate::tensor::physical_shape;
use crate::workload::{Operator, Workload};

/// Largest memory of all global buffers of a kernel, unless its operands are large themselves: so many times theirs.
const MAX_GLOBAL_BYTES: u64 = 8 << 30;
const MAX_GLOBAL_GROWTH: u64 = 8;

/// Names, roles, shapes and axes are those of the workload.
pub(super) fn check_interface(program: &Program) -> Result<(), VerifyError> {
    let fail = |place: String, what: String| Err(VerifyError { place, problem: Problem::Interface(what) });
    let mut names = HashSet::new();
    for buffer in &program.buffers {
        let place = format!("buffer '{}'", buffer.name);
        if !is_identifier(&buffer.name) || !names.insert(&buffer.name) {
            return fail(place, "the name is no C identifier or not unique".into());
        }
        let workload = &program.workload;
        let logical = match buffer.role {
            Role::Input => workload.input_shape(),
            Role::Weight => workload.weight_shape(),
            Role::Bias => vec![workload.bias_len()],
            Role::Residual | Role::Output => workload.output_shape(),
            Role::Packed | Role::Accumulator => continue,
        };
        if buffer.scope != Scope::Global {
            return fail(place, "an operand or the output is not global".into());
        }
        if physical_shape(&logical, buffer.layout).as_ref() != Ok(&buffer.shape) {
            return fail(place, format!("shape {:?} is not {logical:?} in its layout", buffer.shape));
        }
    }
    let epilogue = program.workload.epilogue;
    for (role, wanted) in [
        (Role::Input, 1),
        (Role::Weight, 1),
        (Role::Output, 1),
        (Role::Bias, usize::from(epilogue.bias)),
        (Role::Residual, usize::from(epilogue.residual)),
    ] {
        let found = program.buffers.iter().filter(|b| b.role == role).count();
        if found != wanted {
            return fail("program".into(), format!("{found} buffers of role {role:?}, not {wanted}"));
        }
    }
    let mut stages = HashSet::new();
    if let Some(bad) = program.stages.iter().find(|s| !is_identifier(&s.name) || !stages.insert(&s.name)) {
        return fail(format!("stage '{}'", bad.name), "the name is no C identifier or not unique".into());
    }
    check_axes(program)
}

fn is_identifier(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Name and extent of every axis of a workload. `o` and `c` count within a group.
fn workload_axes(workload: &Workload) -> Vec<(&'static str, usize)> {
    match workload.op {
        Operator::Conv2d(c) => {
            let [oh, ow] = c.output_hw();
            vec![
                ("n", c.n),
                ("g", c.groups),
                ("o", c.o / c.groups),
                ("oh", oh),
                ("ow", ow),
                ("c", c.c / c.groups),
                ("kh", c.kh),
                ("kw", c.kw),
            ]
        }
        Operator::Matmul(m) => vec![("b", m.b), ("m", m.m), ("n", m.n), ("k", m.k)],
    }
}

/// The axes of a convolution whose pixels, images and all, are one axis `p`; none for other programs, which have no such axis.
fn pixel_axes(program: &Program) -> Option<Vec<(&'static str, usize)>> {
    let Operator::Conv2d(c) = program.workload.op else { return None };
    let [oh, ow] = c.output_hw();
    let mut axes = vec![("p", c.n * oh * ow)];
    axes.extend(workload_axes(&program.workload).into_iter().filter(|(name, _)| !["n", "oh", "ow"].contains(name)));
    program.axes.iter().any(|a| a.name == "p").then_some(axes)
}

/// Name and extent of the axes of the matrix products of a Winograd program: images, products of a tile, tiles, channels; none
/// for other programs, which have no axis `xi`. Without an axis over images the tiles are those of all images, and up to three
/// behind them.
fn winograd_axes(program: &Program) -> Option<Vec<(&'static str, usize)>> {
    let Operator::Conv2d(conv) = program.workload.op else { return None };
    let products = program.axes.iter().find(|a| a.name == "xi")?.extent;
    let a = products.isqrt();
    let m = a.checked_sub(2).filter(|&m| m > 0 && a * a == products)?;
    let fits = [conv.kh, conv.kw] == [3; 2] && conv.stride == [1; 2] && conv.dilation == [1; 2] && conv.groups == 1;
    let tiles: usize = conv.output_hw().map(|extent| extent.div_ceil(m)).iter().product();
    let (images, tiles) = match program.axes.iter().any(|axis| axis.name == "n") {
        true => (Some(("n", conv.n)), tiles),
        false => (None, (conv.n * tiles).next_multiple_of(4)),
    };
    let rest = [("xi", products), ("t", tiles), ("o", conv.o), ("c", conv.c)];
    fits.then(|| images.into_iter().chain(rest).collect())
}

/// The axes are the workload's; an axis `x` may be split into blocks `x` of `xi` elements, one of extent 1 may be absent.
fn check_axes(program: &Program) -> Result<(), VerifyError> {
    let fail = |what: String| Err(VerifyError { place: "program".into(), problem: Problem::Interface(what) });
    if let Some(wanted) = winograd_axes(program) {
        let found = program.axes.iter().map(|a| (a.name, a.extent, a.reduce));
        let same = found.eq(wanted.iter().map(|&(name, extent)| (name, extent, name == "c")));
        return if same { Ok(()) } else { fail("the axes are not those of a Winograd program".into()) };
    }
    let known = pixel_axes(program).unwrap_or_else(|| workload_axes(&program.workload));
    let mut names = HashSet::new();
    for axis in &program.axes {
        let whole = axis.name.strip_suffix('i').unwrap_or(axis.name);
        let wanted = known.iter().find(|(name, _)| *name == whole);
        let reduces = ["c", "kh", "kw", "k"].contains(&whole);
        if wanted.is_none() || axis.reduce != reduces || !names.insert(&axis.name) {
            return fail(format!("'{}' is no axis of the workload", axis.name));
        }
    }
    for (name, wanted) in known {
        let extent = |name: &str| program.axes.iter().find(|a| a.name == name).map_or(1, |a| a.extent);
        let found = extent(name).checked_mul(extent(&format!("{name}i")));
        if found != Some(wanted) {
            return fail(format!("axis '{name}' does not have {wanted} iterations"));
        }
    }
    Ok(())
}

/// Memory within the limits of the target.
pub(super) fn check_memory(program: &Program, target: &Target) -> Result<(), VerifyError> {
    let global_limit = MAX_GLOBAL_BYTES.max(MAX_GLOBAL_GROWTH.saturating_mul(operand_bytes(&program.workload)));
    let local_limit = match target {
        Target::Cpu(_) => MAX_LOCAL_BYTES as u64,
        Target::Gpu(gpu) => 4 * gpu.registers_per_thread as u64,
    };
    for (scope, limit) in [(Scope::Local, local_limit), (Scope::Global, global_limit)] {
        let buffers = program.buffers.iter().filter(|b| b.scope == scope);
        let bytes = buffers.fold(0u64, |sum, b| {
            let elements = b.shape.iter().fold(1u64, |len, &d| len.saturating_mul(d as u64));
            sum.saturating_add(elements.saturating_mul(4))
        });
        if bytes > limit {
            return Err(VerifyError { place: "program".into(), problem: Problem::Memory { scope, bytes, limit } });
        }
    }
    Ok(())
}

/// Bytes of a workload's operands as words, the input with its padding.
fn operand_bytes(workload: &Workload) -> u64 {
    let mut input = workload.input_shape();
    if let Operator::Conv2d(conv) = workload.op {
        input[2..].iter_mut().zip(conv.pad).for_each(|(extent, pad)| *extent += 2 * pad);
    }
    let elements = |shape: Vec<usize>| shape.into_iter().fold(4u64, |n, d| n.saturating_mul(d as u64));
    [input, workload.weight_shape(), workload.output_shape()]
        .into_iter()
        .fold(0u64, |sum, shape| sum.saturating_add(elements(shape)))
}

/// The elements of the data and the weight operand that a point of the iteration space multiplies, by logical index.
pub(super) fn operand_indices(program: &Program, point: &[Affine]) -> [Vec<Affine>; 2] {
    let find = |name: &str| program.axes.iter().position(|a| a.name == name);
    let axis = |name: &str| {
        let outer = find(name).and_then(|i| point.get(i)).cloned().unwrap_or_default();
        match find(&format!("{name}i")) {
            Some(i) => outer * program.axes[i].extent as i64 + point.get(i).cloned().unwrap_or_default(),
            None => outer,
        }
    };
    match program.workload.op {
        Operator::Conv2d(conv) => {
            let size = |channels: usize| (channels / conv.groups) as i64;
            let tap = |out: &str, kernel: &str, d: usize| {
                axis(out) * conv.stride[d] as i64 + axis(kernel) * conv.dilation[d] as i64 + -(conv.pad[d] as i64)
            };
            let c = axis("g") * size(conv.c) + axis("c");
            let o = axis("g") * size(conv.o) + axis("o");
            [vec![axis("n"), c, tap("oh", "kh", 0), tap("ow", "kw", 1)], vec![o, axis("c"), axis("kh"), axis("kw")]]
        }
        Operator::Matmul(_) => [vec![axis("b"), axis("m"), axis("k")], vec![axis("b"), axis("k"), axis("n")]],
    }
}

/// The logical index of an element by its physical one.
pub(super) fn logical_index(physical: &[Affine], layout: Layout) -> Vec<Affine> {
    match (layout, physical) {
        (Layout::ChannelBlocked(block), [n, c, h, w, lane]) => {
            vec![n.clone(), c.clone() * block as i64 + lane.clone(), h.clone(), w.clone()]
        }
        _ => physical.to_vec(),
    }
}

/// Number of multiply-adds: all of the iteration space, or those whose data is not padding.
pub(super) fn required_points(program: &Program, skip_padding: bool) -> u128 {
    match winograd_axes(program) {
        Some(axes) => axes.iter().map(|&(_, extent)| extent as u128).product(),
        None => workload_points(&program.workload, skip_padding),
    }
}

fn workload_points(workload: &Workload, skip_padding: bool) -> u128 {
    let all = workload_axes(workload).iter().map(|&(_, extent)| extent as u128).product();
    let Operator::Conv2d(conv) = workload.op else {
        return all;
    };
    if !skip_padding {
        return all;
    }
    let outputs = conv.output_hw();
    let taps = |d: usize, extent: usize, kernel: usize| -> u128 {
        (0..kernel)
            .map(|k| {
                // Outputs x with 0 <= stride * x + offset < extent.
                let offset = (k * conv.dilation[d]) as i64 - conv.pad[d] as i64;
                let stride = conv.stride[d] as i64;
                let first = (-offset).max(0).unsigned_abs().div_ceil(conv.stride[d] as u64) as i64;
                let behind = (extent as i64 - 1 - offset).div_euclid(stride) + 1;
                (behind.min(outputs[d] as i64) - first).max(0) as u128
            })
            .sum()
    };
    let [oh, ow] = outputs;
    let window = [oh, ow, conv.kh, conv.kw].iter().map(|&e| e as u128).product::<u128>();
    all / window * taps(0, conv.h, conv.kh) * taps(1, conv.w, conv.kw)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn required_points_are_counted_tap_by_tap() {
        for text in [
            "conv2d:c=2,h=5,w=6,o=3,k=3,p=1",
            "conv2d:n=2,c=4,h=7,w=9,o=2,kh=3,kw=5,s=2,p=2,g=2",
            "conv2d:c=1,h=9,w=4,o=1,k=2,sh=3,sw=1,p=1,d=2",
            "conv2d:c=1,h=1,w=1,o=1,k=3,p=1",
            "conv2d:c=1,h=1,w=1,o=1,k=1,s=4,p=1",
        ] {
            let workload: Workload = text.parse().unwrap();
            let Operator::Conv2d(conv) = workload.op else { unreachable!() };
            let [oh, ow] = conv.output_hw();
            let taps = |outputs: usize, kernel: usize, extent: usize, d: usize| {
                let at = |x, k| (x * conv.stride[d] + k * conv.dilation[d]) as i64 - conv.pad[d] as i64;
                let hits = |x| (0..kernel).filter(|&k| (0..extent as i64).contains(&at(x, k))).count();
                (0..outputs).map(hits).sum::<usize>()
            };
            let wanted =
                conv.n * conv.o * (conv.c / conv.groups) * taps(oh, conv.kh, conv.h, 0) * taps(ow, conv.kw, conv.w, 1);
            assert_eq!(workload_points(&workload, true), wanted as u128, "{text}");
            assert_eq!(workload_points(&workload, false) as f64 * 2.0, workload.flops(), "{text}");
        }
    }
}
