//! Shapes of outputs of what works on images, `[n, c, ..spatial]`.

use super::{Shape, unfit};
use crate::error::OpError;
use crate::op::Sliding;

pub(super) fn conv(window: &[Sliding], groups: usize, shapes: &[&[usize]]) -> Result<Shape, OpError> {
    let (&[n, c, ref extents @ ..], &[o, per_group, ref kernels @ ..]) = (shapes[0], shapes[1]) else {
        return unfit(format!("images {:?}, weights {:?}", shapes[0], shapes[1]));
    };
    check_spatial(window, extents, kernels)?;
    check_channels(groups, &[c, o])?;
    if per_group.checked_mul(groups) != Some(c) {
        return unfit(format!("weights {:?} for {c} channels in {groups} group(s)", shapes[1]));
    }
    check_bias(shapes, o)?;

    let spatial = window.iter().zip(extents).map(|(window, &extent)| outputs(window, extent, false));
    [Ok(n), Ok(o)].into_iter().chain(spatial).collect()
}

pub(super) fn conv_transpose(
    window: &[Sliding],
    output_pad: &[usize],
    groups: usize,
    shapes: &[&[usize]],
) -> Result<Shape, OpError> {
    let (&[n, c, ref extents @ ..], &[c_of_weights, per_group, ref kernels @ ..]) = (shapes[0], shapes[1]) else {
        return unfit(format!("images {:?}, weights {:?}", shapes[0], shapes[1]));
    };
    check_spatial(window, extents, kernels)?;
    check_channels(groups, &[c])?;
    if c_of_weights != c || output_pad.len() != window.len() {
        return unfit(format!("weights {:?} and output padding {output_pad:?} for {c} channels", shapes[1]));
    }
    let o = per_group.checked_mul(groups).ok_or(OpError::TooLarge { shape: shapes[1].to_vec() })?;
    check_bias(shapes, o)?;

    let extent = |((window, &extent), &more): ((&Sliding, &usize), &usize)| {
        let last = extent.checked_sub(1)?.checked_mul(window.stride)?.checked_add(reach(window)?)?;
        let cut = window.pad[0].checked_add(window.pad[1])?;
        last.checked_add(more)?.checked_sub(cut).filter(|&extent| extent > 0)
    };
    let spatial = window.iter().zip(extents).zip(output_pad);
    let spatial = spatial.map(|axis| extent(axis).ok_or_else(|| OpError::Unfit("padding leaves no output".into())));
    [Ok(n), Ok(o)].into_iter().chain(spatial).collect()
}

pub(super) fn pool(window: &[Sliding], ceil: bool, shape: &[usize]) -> Result<Shape, OpError> {
    let &[n, c, ref extents @ ..] = shape else { return unfit(format!("images of shape {shape:?}")) };
    let kernels: Vec<usize> = window.iter().map(|window| window.kernel).collect();
    check_spatial(window, extents, &kernels)?;
    let spatial = window.iter().zip(extents).map(|(window, &extent)| outputs(window, extent, ceil));
    [Ok(n), Ok(c)].into_iter().chain(spatial).collect()
}

pub(super) fn resize(size: [usize; 2], shape: &[usize]) -> Result<Shape, OpError> {
    match (shape, size) {
        (&[n, c, h, w], [oh, ow]) if ![h, w, oh, ow].contains(&0) => Ok(vec![n, c, oh, ow]),
        _ => unfit(format!("images of shape {shape:?} to {size:?}")),
    }
}

pub(super) fn group_norm(groups: usize, shapes: &[&[usize]]) -> Result<Shape, OpError> {
    let &[_, c, ..] = shapes[0] else { return unfit(format!("images of shape {:?}", shapes[0])) };
    check_channels(groups, &[c])?;
    match shapes[1..].iter().find(|&&shape| shape != [c]) {
        Some(shape) => unfit(format!("scale or bias of shape {shape:?} for {c} channels")),
        None => Ok(shapes[0].to_vec()),
    }
}

pub(super) fn local_response_norm(size: usize, shape: &[usize]) -> Result<Shape, OpError> {
    match size > 0 && shape.len() > 1 {
        true => Ok(shape.to_vec()),
        false => unfit(format!("{size} channels of images of shape {shape:?}")),
    }
}

fn check_spatial(window: &[Sliding], extents: &[usize], kernels: &[usize]) -> Result<(), OpError> {
    let found: Vec<usize> = window.iter().map(|window| window.kernel).collect();
    if found != kernels || window.len() != extents.len() || window.is_empty() {
        return unfit(format!("windows {found:?} over images of {extents:?}, weights of {kernels:?}"));
    }
    let is_empty = |window: &Sliding| [window.kernel, window.stride, window.dilation].contains(&0);
    if window.iter().any(is_empty) || extents.contains(&0) {
        return unfit("kernel, stride, dilation and image have at least one element");
    }
    Ok(())
}

fn check_channels(groups: usize, channels: &[usize]) -> Result<(), OpError> {
    match groups > 0 && channels.iter().all(|c| c.is_multiple_of(groups)) {
        true => Ok(()),
        false => unfit(format!("{channels:?} channels in {groups} groups")),
    }
}

fn check_bias(shapes: &[&[usize]], o: usize) -> Result<(), OpError> {
    match shapes.get(2) {
        Some(&shape) if shape != [o] => unfit(format!("biases of shape {shape:?} for {o} channels")),
        _ => Ok(()),
    }
}

/// Elements from the first that a window reads to its last, both included.
fn reach(window: &Sliding) -> Option<usize> {
    (window.kernel - 1).checked_mul(window.dilation)?.checked_add(1)
}

/// Windows along an axis.
fn outputs(window: &Sliding, extent: usize, ceil: bool) -> Result<usize, OpError> {
    let [before, behind] = window.pad;
    let padded = extent.checked_add(before).and_then(|sum| sum.checked_add(behind));
    let room = padded.zip(reach(window)).and_then(|(padded, reach)| padded.checked_sub(reach));
    let Some(room) = room else {
        return unfit(format!("a window of {} elements in an image of {extent}", window.kernel));
    };
    let whole = room / window.stride + 1;
    // One more where the last does not reach the end, unless it would begin in the padding behind the image.
    let more = ceil && room % window.stride > 0 && whole * window.stride < extent + before;
    Ok(whole + usize::from(more))
}
