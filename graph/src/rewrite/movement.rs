//! Simplification of operators that move elements.

use autotune_workloads::PadMode;

use super::kernels::pads_at_once;
use super::new_graph::NewNode;
use super::rule::Rule;
use super::site::{RewriteSite, Rewritten};
use crate::op::Operator;
use crate::operators::{Concat, Expand, Gather, Pad, Range, Reduce, Reshape, Resize, Slice, Transpose};
use crate::tensor::Tensor;

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "unmoved",
        before: "Reshape, Expand, Slice, Pad, Transpose or Resize without effect",
        after: "x",
        apply: unmoved,
    },
    Rule { name: "reshape_of_reshape", before: "Reshape(Reshape(x))", after: "Reshape(x)", apply: reshape_of_reshape },
    Rule {
        name: "transpose_of_transpose",
        before: "Transpose(Transpose(x))",
        after: "Transpose(x)",
        apply: transpose_of_transpose,
    },
    Rule {
        name: "transpose_of_ones",
        before: "Transpose that only moves axes of extent 1",
        after: "Reshape(x)",
        apply: transpose_of_ones,
    },
    Rule { name: "slice_of_slice", before: "Slice(Slice(x))", after: "Slice(x)", apply: slice_of_slice },
    Rule { name: "expand_of_expand", before: "Expand(Expand(x))", after: "Expand(x)", apply: expand_of_expand },
    Rule {
        name: "expand_by_ones",
        before: "Expand that only adds axes of extent 1",
        after: "Reshape(x)",
        apply: expand_by_ones,
    },
    Rule {
        name: "pad_of_pad",
        before: "Pad(Pad(x)) with the same constant, along axes that one kernel can pad",
        after: "Pad(x)",
        apply: pad_of_pad,
    },
    Rule {
        name: "concat_of_concat",
        before: "Concat(a, Concat(b, c)) along one axis",
        after: "Concat(a, b, c)",
        apply: concat_of_concat,
    },
    Rule { name: "concat_of_one", before: "Concat(x), Concat(x, nothing)", after: "x", apply: concat_of_one },
    Rule {
        name: "gather_in_steps",
        before: "Gather of evenly spaced constant indices",
        after: "Reshape(Slice(x))",
        apply: gather_in_steps,
    },
    Rule { name: "reduce_of_ones", before: "Reduce over axes of extent 1", after: "Reshape(x)", apply: reduce_of_ones },
];

fn unmoved(site: &mut RewriteSite) -> Rewritten {
    let node = site.node();
    let op = &node.op;
    let is_whole = |range: &Range| range.start == 0 && (range.step == 1 || range.count < 2);
    let does_nothing = (op.is::<Reshape>() || op.is::<Expand>() || op.is::<Resize>())
        || op.of().is_some_and(|Pad { pad, .. }| pad.iter().all(|pad| *pad == [0, 0]))
        || op.of().is_some_and(|Slice(ranges)| ranges.iter().all(is_whole))
        || op.of().is_some_and(|Transpose(perm)| perm.is_sorted());
    if does_nothing && site.fits(node.operands[0]) { site.is(node.operands[0]) } else { Ok(None) }
}

/// Returns the node's operator and its first operand's, if both have type `T`, and the inner one's
/// operand.
fn nested<'a, T: Operator>(site: &RewriteSite<'a, '_>) -> Option<(&'a T, &'a T, NewNode)> {
    let outer = site.node().op.of()?;
    let operand = site.of(site.operand(0));
    Some((outer, operand.op.of()?, site.made(*operand.operands.first()?)))
}

fn reshape_of_reshape(site: &mut RewriteSite) -> Rewritten {
    let Some((Reshape(shape), _, x)) = nested(site) else { return Ok(None) };
    site.add(Reshape(shape.clone()), &[x]).map(Some)
}

fn transpose_of_transpose(site: &mut RewriteSite) -> Rewritten {
    let Some((Transpose(outer), Transpose(inner), x)) = nested(site) else { return Ok(None) };
    let perm = outer.iter().map(|&axis| inner[axis]).collect();
    site.add(Transpose(perm), &[x]).map(Some)
}

fn transpose_of_ones(site: &mut RewriteSite) -> Rewritten {
    let Some(Transpose(perm)) = site.node().op.of() else { return Ok(None) };
    let from = &site.of(site.operand(0)).shape;
    // Axes of extent 1 can be moved freely.
    let long = perm.iter().filter(|&&axis| from[axis] != 1);
    if !long.is_sorted() {
        return Ok(None);
    }
    let x = site.made(site.operand(0));
    site.add(Reshape(site.node().shape.clone()), &[x]).map(Some)
}

fn slice_of_slice(site: &mut RewriteSite) -> Rewritten {
    let Some((Slice(outer), Slice(inner), x)) = nested(site) else { return Ok(None) };
    // Composed positions are `inner.start + inner.step * (outer.start + outer.step * i)`.
    let merged = |(outer, inner): (&Range, &Range)| {
        let by = inner.step.checked_mul(isize::try_from(outer.start).ok()?)?;
        // A single position needs no step, whose product could overflow.
        let step = if outer.count > 1 { inner.step.checked_mul(outer.step)? } else { 1 };
        let start = if outer.count > 0 { inner.start.checked_add_signed(by)? } else { 0 };
        Some(Range { start, step, count: outer.count })
    };
    let Some(ranges) = outer.iter().zip(inner).map(merged).collect::<Option<Vec<_>>>() else { return Ok(None) };
    site.add(Slice(ranges), &[x]).map(Some)
}

fn expand_of_expand(site: &mut RewriteSite) -> Rewritten {
    let Some((Expand(shape), _, x)) = nested(site) else { return Ok(None) };
    site.add(Expand(shape.clone()), &[x]).map(Some)
}

fn expand_by_ones(site: &mut RewriteSite) -> Rewritten {
    let Some(Expand(shape)) = site.node().op.of() else { return Ok(None) };
    let from = &site.of(site.operand(0)).shape;
    let (ones, rest) = shape.split_at(shape.len() - from.len());
    if rest != from || ones.iter().any(|&extent| extent != 1) {
        return Ok(None);
    }
    let x = site.made(site.operand(0));
    site.add(Reshape(shape.clone()), &[x]).map(Some)
}

fn pad_of_pad(site: &mut RewriteSite) -> Rewritten {
    let Some((outer, inner, x)) = nested::<Pad>(site) else { return Ok(None) };
    let (mode, value) = (outer.mode, outer.value);
    if [mode, inner.mode] != [PadMode::Constant; 2] || value.to_bits() != inner.value.to_bits() {
        return Ok(None);
    }
    let pad: Vec<_> = outer.pad.iter().zip(&inner.pad).map(|(a, b)| [a[0] + b[0], a[1] + b[1]]).collect();
    match pads_at_once(&pad) {
        true => site.add(Pad { pad, mode, value }, &[x]).map(Some),
        false => Ok(None),
    }
}

/// Merges nested concatenations. An inner one with other readers stays, or its elements would be
/// moved twice.
fn concat_of_concat(site: &mut RewriteSite) -> Rewritten {
    let Some(&Concat { axis }) = site.node().op.of() else { return Ok(None) };
    let is_part = |&id: &_| site.of(id).op == site.node().op && site.is_single(id);
    if !site.node().operands.iter().any(is_part) {
        return Ok(None);
    }
    let mut operands = Vec::new();
    for &id in &site.node().operands {
        if is_part(&id) { operands.extend(site.operands_of(id)) } else { operands.push(site.made(id)) }
    }
    site.add(Concat { axis }, &operands).map(Some)
}

fn concat_of_one(site: &mut RewriteSite) -> Rewritten {
    let Some(&Concat { axis }) = site.node().op.of() else { return Ok(None) };
    let all = &site.node().operands;
    let parts: Vec<_> = all.iter().copied().filter(|&id| site.of(id).shape[axis] > 0).collect();
    match parts[..] {
        [x] => site.is(x),
        // All operands are empty.
        [] if all.len() > 1 => site.is(all[0]),
        [_, _, ..] if parts.len() < all.len() => {
            let parts: Vec<_> = parts.into_iter().map(|id| site.made(id)).collect();
            site.add(Concat { axis }, &parts).map(Some)
        }
        _ => Ok(None),
    }
}

fn gather_in_steps(site: &mut RewriteSite) -> Rewritten {
    let Some(&Gather { axis }) = site.node().op.of() else { return Ok(None) };
    let from = &site.of(site.operand(0)).shape;
    let Some(numbers) = site.tensor(site.operand(1)).and_then(Tensor::as_i64) else { return Ok(None) };
    let extent = from[axis];
    let place = |&number: &i64| {
        let counted = if number < 0 { number.checked_add(extent as i64)? } else { number };
        usize::try_from(counted).ok().filter(|&place| place < extent)
    };
    let Some(places) = numbers.iter().map(place).collect::<Option<Vec<_>>>() else { return Ok(None) };
    let Some(&start) = places.first() else { return Ok(None) };
    // Equally spaced indices form a slice.
    let step = places.get(1).map_or(1, |&second| second as isize - start as isize);
    if step == 0 || places.windows(2).any(|pair| pair[1] as isize - pair[0] as isize != step) {
        return Ok(None);
    }

    let mut ranges = Range::all(from);
    ranges[axis] = Range { start, step, count: places.len() };
    let x = site.made(site.operand(0));
    let slice = site.add(Slice(ranges), &[x])?;
    site.add(Reshape(site.node().shape.clone()), &[slice]).map(Some)
}

fn reduce_of_ones(site: &mut RewriteSite) -> Rewritten {
    let Some(Reduce { axes, .. }) = site.node().op.of() else { return Ok(None) };
    let from = &site.of(site.operand(0)).shape;
    if axes.iter().any(|&axis| from[axis] != 1) {
        return Ok(None);
    }
    let x = site.made(site.operand(0));
    site.add(Reshape(site.node().shape.clone()), &[x]).map(Some)
}
