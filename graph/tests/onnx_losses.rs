//! Imported losses of classifiers.

use autotune_graph::Tensor;
use rten_onnx::onnx::AttributeProto;

use crate::build::{assert_near, f32s, i64s, int, one, word};

fn loss(operator: &str, constants: &[Tensor], attributes: Vec<AttributeProto>) -> Tensor {
    one(13, operator, &[f32s(&[2, 3], &[1.0, 2.0, 3.0, 2.0, 0.0, 1.0])], constants, attributes)
}

#[test]
fn losses_of_classes() {
    let (classes, weights) = (i64s(&[2, 0]), f32s(&[3], &[0.5, 1.0, 2.0]));
    let reduced = |word_of| vec![word("reduction", word_of)];
    let of = |constants: &[Tensor], attributes| loss("NegativeLogLikelihoodLoss", constants, attributes);
    assert_near(&of(std::slice::from_ref(&classes), reduced("none")), &[-3.0, -2.0]);
    assert_near(&of(std::slice::from_ref(&classes), vec![]), &[-2.5]);
    assert_near(&of(&[classes.clone(), weights.clone()], reduced("sum")), &[-7.0]);
    assert_near(&of(&[classes.clone(), weights], vec![]), &[-2.8]);

    // A class that is ignored counts for neither sum, whether it exists or not.
    for ignored in [-100, 2] {
        let attributes = vec![int("ignore_index", ignored)];
        assert_near(&of(&[i64s(&[ignored, 0])], attributes), &[-2.0]);
    }
    let logarithm = |x: f32| (1.0 + x.exp() + (2.0 * x).exp()).ln();
    let entropy = loss("SoftmaxCrossEntropyLoss", &[classes], reduced("none"));
    assert_near(&entropy, &[logarithm(-1.0), logarithm(-1.0)]);
}
