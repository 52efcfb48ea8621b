//! Products whose shape is slow in kernels are rewritten to other shapes.

use autotune_graph::operators::{MatMul, Transpose};
use autotune_graph::rewrite;

use crate::common::graphs::{Net, assert_same_on, brought};
use crate::common::rng;

/// A matrix multiplied by few columns is read in memory order, without a transposition; only the
/// columns and the result are transposed.
#[test]
fn few_columns_of_transposed_matrices() {
    for (rows, columns, is_turned) in [(30, 1, true), (30, 8, true), (30, 9, false), (8, 3, false)] {
        let mut net = Net::new(1);
        let (a, b) = (net.input(&[20, rows]), net.input(&[20, columns]));
        let transposed = net.graph.add("transposed", Transpose(vec![1, 0]), &[a]).unwrap();
        let product = net.graph.add("product", MatMul, &[transposed, b]).unwrap();
        net.output(product);

        let rewritten = rewrite(&net.graph).unwrap();
        let reads_whole =
            rewritten.nodes().any(|(_, node)| node.op == MatMul && node.operands.contains(&rewritten.inputs()[0]));
        assert_eq!(reads_whole, is_turned, "{rows} {columns}: {rewritten:#?}");
        assert_same_on(&net.graph, &rewritten, &brought(&net.graph, &mut rng(1)), &format!("{rows} {columns}"));
    }
}

/// Dot products of long vectors become sums of parts, if a small number divides the length.
#[test]
fn long_products_of_vectors() {
    for (k, parts) in [(1 << 15, 16), (40004, 4), (40001, 0), (1 << 14, 0)] {
        let mut net = Net::new(1);
        let (a, b) = (net.input(&[1, k]), net.input(&[k, 1]));
        let product = net.graph.add("product", MatMul, &[a, b]).unwrap();
        net.output(product);

        let rewritten = rewrite(&net.graph).unwrap();
        let (_, node) = rewritten.nodes().find(|(_, node)| node.op == MatMul).unwrap();
        assert_eq!(node.shape, if parts == 0 { vec![1, 1] } else { vec![parts, 1, 1] }, "{k}");
        assert_same_on(&net.graph, &rewritten, &brought(&net.graph, &mut rng(1)), &k.to_string());
    }
}
