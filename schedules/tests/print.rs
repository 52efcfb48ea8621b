//! Text form of loop nests.

use autotune_ir::program::{Expr, Node};

use crate::common::nests;

#[test]
fn tiled_matmul_reads_like_a_loop_nest() {
    let program = nests::tiled_matmul("matmul:m=5,n=12,k=6,bias,act=relu", [4, 8, 4]);
    crate::common::golden::assert_golden("tiled_matmul.txt", &program.to_string());
}

#[test]
fn peeled_conv_reads_like_a_loop_nest() {
    let program = nests::peeled_conv("conv2d:c=4,h=1,w=9,o=8,kh=1,kw=3,ph=0,pw=1,add");
    crate::common::golden::assert_golden("peeled_conv.txt", &program.to_string());
}

#[test]
fn sums_in_products_keep_their_parentheses() {
    let mut program = nests::padded_conv("conv2d:c=1,h=2,w=2,o=1,k=1");
    let [one, two, three, zero, half] = [1.0, 2.0, 3.0, 0.0, -0.5].map(Expr::Const);
    let value = Expr::product(Expr::sum(one, Expr::product(two, half)), Expr::max(three, zero));
    let Node::Store(mut store) =
        nests::assign(nests::access(program.find(autotune_ir::program::Role::Output).unwrap(), &[]), value)
    else {
        unreachable!()
    };
    store.dst.index = [nests::number(3)].into();
    program.stages[1].body = vec![Node::Store(store)];
    let text = program.to_string();
    assert!(text.ends_with("\n  output[3] = (1.0 + 2.0 * -0.5) * max(3.0, 0.0)\n"), "{text}");
}
