//! Selection and replacement of elements by index, compared with their definitions.

use autotune_graph::operators::{Binary, Bitwise, GatherElements, GatherNd, Scatter, Selection, TopK};
use autotune_graph::{Graph, Op, Operator, Tensor, rewrite};

use crate::common::{at, made, numbers, rng};

fn f32s(shape: &[usize], values: &[f32]) -> Tensor {
    Tensor::f32(shape, values.to_vec()).unwrap()
}

fn i64s(shape: &[usize], values: &[i64]) -> Tensor {
    Tensor::i64(shape, values.to_vec()).unwrap()
}

fn scattered(selection: Selection, reduction: Option<Binary>, operands: [&Tensor; 3]) -> Tensor {
    Scatter { selection, reduction }.evaluate(&operands).unwrap()
}

#[test]
fn elements_along_each_axis() {
    let x = numbers(&mut rng(1), &[3, 4, 5]);
    for axis in 0..3 {
        let extent = [3, 4, 5][axis];
        let index = |out: &[i64]| (out[0] * 7 + out[1] * 3 + out[2] * 5) % (2 * extent) - extent;
        let indices = made(&[2, 3, 4], |out| index(out) as f64);
        let indices = i64s(&[2, 3, 4], &indices.to_numbers().iter().map(|&x| x as i64).collect::<Vec<_>>());
        let wanted = made(&[2, 3, 4], |out| {
            let mut from = out.to_vec();
            from[axis] = index(out).rem_euclid(extent);
            at(&x, &from).unwrap()
        });
        assert_eq!(GatherElements { axis }.evaluate(&[&x, &indices]).unwrap(), wanted);
    }
}

#[test]
fn slices_at_coordinates() {
    let x = f32s(&[2, 2, 2], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
    let of = |batch_axes, indices: &Tensor| GatherNd { batch_axes }.evaluate(&[&x, indices]);
    assert_eq!(of(0, &i64s(&[2, 1, 2], &[0, -1, 1, 0])).unwrap(), f32s(&[2, 1, 2], &[2.0, 3.0, 4.0, 5.0]));
    assert_eq!(of(0, &i64s(&[2, 3], &[0, 0, 1, -1, -2, -1])).unwrap(), f32s(&[2], &[1.0, 5.0]));
    assert_eq!(of(1, &i64s(&[2, 1], &[1, 0])).unwrap(), f32s(&[2, 2], &[2.0, 3.0, 4.0, 5.0]));
    assert_eq!(of(2, &i64s(&[2, 2, 1], &[1, 0, 0, 1])).unwrap(), f32s(&[2, 2], &[1.0, 2.0, 4.0, 7.0]));

    // Another batch, coordinates for more axes than there are, and indices out of range.
    assert!(of(1, &i64s(&[1, 1], &[0])).is_err());
    assert!(of(1, &i64s(&[2, 3], &[0; 6])).is_err());
    assert!(of(0, &i64s(&[1, 2], &[0, 2])).unwrap_err().to_string().contains("index 2 is out of range"));
    assert!(of(0, &i64s(&[1, 2], &[-3, 0])).unwrap_err().to_string().contains("index -3 is out of range"));
    assert!(of(0, &i64s(&[1, 1], &[i64::MIN])).is_err());
}

#[test]
fn replaced_elements() {
    let x = f32s(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let (indices, updates) = (i64s(&[1, 3], &[1, 0, -1]), f32s(&[1, 3], &[10.0, 20.0, 30.0]));
    let replaced = scattered(Selection::Along(0), None, [&x, &indices, &updates]);
    assert_eq!(replaced, f32s(&[2, 3], &[1.0, 20.0, 3.0, 10.0, 5.0, 30.0]));

    // Of several updates, the last remains, or all are combined.
    let twice = i64s(&[2, 2], &[2, 2, 0, -3]);
    let updates = f32s(&[2, 2], &[-1.0, 7.0, 0.5, 8.0]);
    let cases = [
        (None, [1.0, 2.0, 7.0, 8.0, 5.0, 6.0]),
        (Some(Binary::Add), [1.0, 2.0, 9.0, 12.5, 5.0, 6.0]),
        (Some(Binary::Mul), [1.0, 2.0, -21.0, 16.0, 5.0, 6.0]),
        (Some(Binary::Max), [1.0, 2.0, 7.0, 8.0, 5.0, 6.0]),
        (Some(Binary::Min), [1.0, 2.0, -1.0, 0.5, 5.0, 6.0]),
    ];
    for (reduction, wanted) in cases {
        let found = scattered(Selection::Along(1), reduction, [&x, &twice, &updates]);
        assert_eq!(found, f32s(&[2, 3], &wanted), "{reduction:?}");
    }
}

#[test]
fn replaced_slices() {
    let x = i64s(&[3, 2], &[1, 2, 3, 4, 5, 6]);
    let (rows, updates) = (i64s(&[3, 1], &[2, 0, -1]), i64s(&[3, 2], &[10, 20, 30, 40, 50, 60]));
    let replaced = scattered(Selection::Tuples(0), None, [&x, &rows, &updates]);
    assert_eq!(replaced, i64s(&[3, 2], &[30, 40, 3, 4, 50, 60]));
    let added = scattered(Selection::Tuples(0), Some(Binary::Add), [&x, &rows, &updates]);
    assert_eq!(added, i64s(&[3, 2], &[31, 42, 3, 4, 65, 86]));
    let nothing = scattered(Selection::Tuples(0), None, [&x, &i64s(&[0, 1], &[]), &i64s(&[0, 2], &[])]);
    assert_eq!(nothing, x);

    // An index out of range, and updates of another shape or type.
    let op = Scatter { selection: Selection::Tuples(0), reduction: None };
    assert!(op.evaluate(&[&x, &i64s(&[1, 1], &[3]), &i64s(&[1, 2], &[0, 0])]).is_err());
    assert!(op.evaluate(&[&x, &i64s(&[1, 1], &[0]), &i64s(&[2], &[0, 0])]).is_err());
    assert!(op.evaluate(&[&x, &i64s(&[1, 1], &[0]), &f32s(&[1, 2], &[0.0, 0.0])]).is_err());
}

/// Sums are rounded once, after all updates.
#[test]
fn sums_of_many_updates_are_rounded_once() {
    let (x, indices) = (f32s(&[1], &[16_777_216.0]), i64s(&[4], &[0; 4]));
    let sum = scattered(Selection::Along(0), Some(Binary::Add), [&x, &indices, &f32s(&[4], &[1.0; 4])]);
    assert_eq!(sum, f32s(&[1], &[16_777_220.0]));
}

/// Ranks by comparison and bits by division equal the definitions, also for special values.
#[test]
fn definitions_by_other_operators() {
    let same = |op: Op, tensors: &[Tensor]| {
        let mut graph = Graph::new("graph");
        // The first tensor is an input, since constants would be computed.
        let mut operands = vec![graph.input("x", tensors[0].dtype(), tensors[0].shape()).unwrap()];
        operands.extend(tensors[1..].iter().map(|tensor| graph.constant("c", tensor.clone())));
        let node = graph.add("node", op, &operands).unwrap();
        let name = graph.node(node).op.name();
        graph.output("y", node);
        let rewritten = rewrite(&graph).unwrap();
        assert!(rewritten.nodes().all(|(_, node)| node.op.name() != name), "{name}");
        let of = |graph: &Graph| graph.evaluate(&tensors[..1]).unwrap()[0].to_numbers().into_iter().map(f32::to_bits);
        assert!(of(&graph).eq(of(&rewritten)), "{name}");
    };

    let special = [f32::NAN, 1.0, f32::INFINITY, 1.0, f32::NAN, f32::NEG_INFINITY, -1.0, f32::INFINITY];
    for (is_largest, has_indices) in [(true, true), (true, false), (false, true), (false, false)] {
        same(TopK { axis: 0, count: 8, is_largest, has_indices }.into(), &[f32s(&[8], &special)]);
    }
    let extremes = i64s(&[6], &[0, -1, 1, (1 << 24) - 1, -(1 << 40), 0x00AB_CDEF << 20]);
    for op in [Bitwise::And, Bitwise::Or, Bitwise::Xor] {
        same(op.into(), &[extremes.clone(), i64s(&[6, 1], &[0, -1, 0x00F0_F0F0, -2, 7, -(1 << 24)])]);
    }
}
