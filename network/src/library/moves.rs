//! Workloads that only move elements, as steps of their own: elements that are found by their numbers have no kernels of the assembler.

use autotune_ir::program::Layout;
use autotune_runtime::Kernel;
use autotune_schedules::Workload;
use autotune_schedules::workload::{Epilogue, Gather, Pad, PadMode};

use super::steps::{Place, Rows, Step};
use crate::cut::Strided;

/// The steps of a workload on its operands, if it only moves elements; `None` otherwise.
pub(super) fn steps(workload: &Workload, kernel: &Kernel, operands: &[Place], to: Place) -> Option<Vec<Step>> {
    let is_plain = kernel.plan().buffers.iter().all(|buffer| buffer.layout == Layout::Plain);
    if workload.epilogue() != Epilogue::default() || !is_plain {
        return None;
    }
    if let (Some(&sizes), &[table, numbers]) = (workload.sizes::<Gather>(), operands) {
        return Some(vec![Step::Rows(Rows { table, numbers, to, sizes })]);
    }
    match (workload.sizes::<Pad>(), operands) {
        (Some(pad), &[from]) => Some(padded(pad, from, to)),
        _ => None,
    }
}

/// An image in the middle, then what is around it: a value, or copies of what is there already, of columns first and then of whole rows.
fn padded(pad: &Pad, from: Place, to: Place) -> Vec<Step> {
    let Pad { h, w, pad: [above, below, left, right], mode, value, .. } = *pad;
    let (images, rows, columns) = (pad.n * pad.c, above + h + below, left + w + right);
    let image = rows * columns;
    let copy = |from, strided, first: usize| Step::Copy { from, strided, to: to.behind(4 * first) };
    let inner = Strided {
        extents: vec![images, h, w],
        from: 0,
        read: vec![(h * w) as isize, w as isize, 1],
        write: vec![image, columns, 1],
    };
    let inner = copy(from, inner, above * columns + left);
    if mode == PadMode::Constant {
        return vec![Step::Fill { to, elements: images * image, value }, inner];
    }

    // What is beside the image is from its outermost row or column, or from those behind that one, backwards.
    let is_mirrored = mode == PadMode::Reflect;
    let (step, behind) = if is_mirrored { (-1, 1) } else { (0, 0) };
    let first = |before: usize| before + behind * before;
    let last = |end: usize| end - 1 - behind;
    let side = |count: usize, source: usize, place: usize| {
        let (read, write) = (vec![image as isize, columns as isize, step], vec![image, columns, 1]);
        let strided = Strided { extents: vec![images, h, count], from: above * columns + source, read, write };
        copy(to, strided, above * columns + place)
    };
    let edge = |count: usize, source: usize, place: usize| {
        let (read, write) = (vec![image as isize, step * columns as isize, 1], vec![image, columns, 1]);
        let strided = Strided { extents: vec![images, count, columns], from: source * columns, read, write };
        copy(to, strided, place * columns)
    };
    let mut steps = vec![inner];
    // Nothing is read of a side that has nothing.
    steps.extend((left > 0).then(|| side(left, first(left), 0)));
    steps.extend((right > 0).then(|| side(right, last(left + w), left + w)));
    steps.extend((above > 0).then(|| edge(above, first(above), 0)));
    steps.extend((below > 0).then(|| edge(below, last(above + h), above + h)));
    steps
}
