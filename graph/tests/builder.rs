//! Networks built layer by layer, and the errors of invalid ones.

use std::collections::HashMap;
use std::sync::Arc;

use autotune_graph::operators::{Binary, Sliding};
use autotune_graph::{Builder, Constant, ConvLayer, Seeded, Tensor};

fn builder() -> Builder {
    Builder::new("test", Seeded { seed: 7 })
}

fn error(build: impl FnOnce(&Builder)) -> String {
    let net = builder();
    build(&net);
    net.finish().unwrap_err().to_string()
}

#[test]
fn layers_have_the_shapes_of_their_windows() {
    let net = builder();
    let x = net.input("x", &[2, 8, 15, 17]);
    let window = Sliding::new(3).stride(2).pad(1);
    assert_eq!(x.conv("a", ConvLayer::new(6, window).groups(2).bias()).batch_norm("b").shape(), [2, 6, 8, 9]);
    assert_eq!(x.conv_transpose("c", ConvLayer::new(6, window).groups(2).bias()).shape(), [2, 6, 29, 33]);
    assert_eq!(x.global_average_pool().linear("d", 5).shape(), [2, 5]);
    assert_eq!(x.flatten().shape(), [2, 8 * 15 * 17]);
    assert_eq!(x.slice(3, 2..7).concat(&[x], 3).transpose(&[3, 0, 1, 2]).shape(), [22, 2, 8, 15]);
    let line = net.input("line", &[1, 4, 20]);
    assert_eq!(line.conv("e", ConvLayer::new(3, Sliding::new(5))).batch_norm("f").shape(), [1, 3, 16]);
    let tokens = net.input("tokens", &[2, 5, 24]);
    assert_eq!(tokens.layer_norm("g", 1e-5).self_attention("h", 3, None).softmax().shape(), [2, 5, 24]);

    let graph = net.finish().unwrap();
    let shape_of = |name: &str| graph.nodes().find(|(_, node)| node.name == name).map(|(_, node)| &*node.shape);
    assert_eq!(shape_of("a.weight"), Some(&[6, 4, 3, 3][..]));
    assert_eq!(shape_of("c.weight"), Some(&[8, 3, 3, 3][..]));
    assert_eq!(shape_of("b.scale"), Some(&[6, 1, 1][..]));
    assert_eq!(shape_of("f.shift"), Some(&[3, 1][..]));
    assert_eq!(shape_of("h.key.weight"), Some(&[24, 24][..]));
}

#[test]
fn the_first_layer_that_makes_no_sense_is_told() {
    let wrong = error(|net| {
        let x = net.input("x", &[1, 3, 4, 4]);
        let y = x.conv("much", ConvLayer::new(2, Sliding::new(9)));
        y.batch_norm("bn").global_average_pool().linear("fc", 0).reshape(&[1; 9]).self_attention("a", 0, None);
        net.output("y", y);
    });
    assert!(wrong.starts_with("node 'much' (Conv): "), "{wrong}");
    let wrong = error(|net| _ = net.input("x", &[4]).clip(1.0, 0.0));
    assert!(wrong.starts_with("node 'x' (Map): clip bounds are 1 and 0, expected "), "{wrong}");
    let wrong = error(|net| _ = net.input("x", &[4]).binary(Binary::Max, net.input("y", &[3])));
    assert!(wrong.contains("cannot be broadcast"), "{wrong}");
    let wrong = error(|net| _ = net.input("x", &[4, 4]).self_attention("a", 2, None));
    assert!(wrong.contains("(Attention)"), "{wrong}");
    let wrong = error(|net| _ = net.input("x", &[1, 3, 4, 4]).conv("c", ConvLayer::new(4, Sliding::new(1)).groups(0)));
    assert!(wrong.starts_with("node 'c' (Conv): "), "{wrong}");
    let wrong = error(|net| _ = net.input("x", &[1 << 20, 1]).linear("l", 1 << 20));
    assert!(wrong.contains("too large"), "{wrong}");
}

#[test]
fn values_of_two_builders_do_not_mix() {
    let other = builder();
    let wrong = error(|net| _ = net.input("x", &[4]) + other.input("y", &[4]));
    assert_eq!(wrong, "node 'y' (Input): belongs to another builder");
}

#[test]
fn weights_may_be_brought_by_name() {
    let tensor = |shape: &[usize]| Arc::new(Tensor::f32(shape, vec![0.5; shape.iter().product()]).unwrap());
    let all = HashMap::from([("fc.weight".to_string(), tensor(&[3, 2])), ("fc.bias".into(), tensor(&[2]))]);
    let build = |weights: HashMap<String, Arc<Tensor>>| {
        let net = Builder::new("test", weights);
        net.output("y", net.input("x", &[1, 3]).linear("fc", 2));
        net.finish()
    };

    let graph = build(all.clone()).unwrap();
    let constants: Vec<_> = graph.nodes().filter_map(|(id, _)| graph.constant_of(id)).collect();
    let is_given = |constant: &Constant, name: &str| Arc::ptr_eq(constant.tensor().unwrap(), &all[name]);
    assert!(constants.iter().zip(["fc.weight", "fc.bias"]).all(|(found, name)| is_given(found, name)));
    assert!(graph.node(graph.outputs()[0].node).op == Binary::Add);

    let missing = HashMap::from([("fc.weight".to_string(), tensor(&[3, 2]))]);
    assert_eq!(build(missing).unwrap_err().to_string(), "node 'fc.bias' (Constant): no weight with this name");
    let odd = HashMap::from([("fc.weight".to_string(), tensor(&[2, 3]))]);
    let wanted = "node 'fc.weight' (Constant): weight is f32[2, 3], expected f32[3, 2]";
    assert_eq!(build(odd).unwrap_err().to_string(), wanted);
}
