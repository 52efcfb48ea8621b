//! Imported operators on parts of images, compared with what ONNX Runtime 1.31 computes.

use autotune_graph::Tensor;
use rten_onnx::onnx::AttributeProto;

use crate::build::{Model, assert_near, counted, f32s, float, i64s, int, ints, one, word};
use crate::onnx_runtime::ramp;

fn regions(version: i64, attributes: Vec<AttributeProto>) -> Model {
    let places = f32s(&[3, 4], &[1.0, 2.0, 9.0, 12.0, 0.0, 0.0, 3.0, 3.0, -4.0, 2.0, 30.0, 8.0]);
    let model = Model::new(version).input("x", &[2, 2, 6, 7]).constant("r", &places).constant("i", &i64s(&[0, 1, 1]));
    model.node("RoiAlign", "x r i", "y", attributes).output("y")
}

#[test]
fn samples_of_regions() {
    let x = ramp(&[2, 2, 6, 7], 1);
    let of = |mode, mapping| {
        let own = [("output_height", 2), ("output_width", 2), ("sampling_ratio", 2)].map(|(name, n)| int(name, n));
        let words = vec![word("mode", mode), word("coordinate_transformation_mode", mapping)];
        let model = regions(16, [&own[..], &words, &[float("spatial_scale", 0.5)]].concat());
        let found = model.run(std::slice::from_ref(&x)).remove(0);
        assert_eq!(found.shape(), [3, 2, 2, 2]);
        f32s(&[8], &found.to_numbers().into_iter().step_by(3).collect::<Vec<_>>())
    };
    let mean = of("avg", "half_pixel");
    assert_near(&mean, &[0.042969, -0.164062, 0.140625, 0.131836, 0.007812, 0.15625, -0.263672, 0.0]);
    let unshifted = of("avg", "output_half_pixel");
    assert_near(&unshifted, &[0.210938, -0.445312, 0.203125, 0.061523, 0.09375, -0.067871, -0.230469, 0.0]);
    let largest = of("max", "half_pixel");
    assert_near(&largest, &[0.328125, 0.4375, 0.546875, 0.421875, 0.078125, 0.571289, 0.382812, 0.0]);

    // Version 10 does not shift.
    let attributes = vec![int("output_height", 2), int("sampling_ratio", 1)];
    let old = regions(10, attributes).run(&[x]).remove(0);
    assert_near(&old, &[0.125, 0.0, -0.625, 0.0, 0.1875, 0.34375, -0.21875, -0.40625, 0.0, 0.0, 0.0, 0.0]);
    let error = regions(16, vec![]).import().unwrap_err().to_string();
    assert_eq!(error, "node 'roialign' (RoiAlign): attribute 'sampling_ratio': 1 to 8 samples are supported");
}

#[test]
fn positions_under_affine_maps() {
    let of = |maps: &Tensor, size: &[i64], aligned| {
        one(20, "AffineGrid", std::slice::from_ref(maps), &[i64s(size)], vec![int("align_corners", aligned)])
    };
    let plane = of(&ramp(&[1, 2, 3], 1), &[1, 1, 2, 3], 0);
    assert_eq!(plane.shape(), [1, 2, 3, 2]);
    assert_near(&plane, &[-0.041667, 0.0, -0.375, -0.5, -0.708333, -1.0, 1.208333, 1.0, 0.875, 0.5, 0.541667, 0.0]);
    // An axis of one element has its middle at 0.
    let room = of(&ramp(&[1, 3, 4], 1), &[1, 1, 2, 1, 2], 1);
    assert_eq!(room.shape(), [1, 2, 1, 2, 3]);
    let identity = f32s(&[1, 2, 3], &[1.0, 0.0, 0.0, 0.0, 1.0, 0.0]);
    assert_near(&of(&identity, &[1, 1, 1, 3], 1), &[-1.0, 0.0, 0.0, 0.0, 1.0, 0.0]);
}

#[test]
fn middles_of_tensors() {
    let of = |x: &Tensor, shape: &[i64], axes: &[i64]| {
        let attributes = if axes.is_empty() { vec![] } else { vec![ints("axes", axes)] };
        one(18, "CenterCropPad", std::slice::from_ref(x), &[i64s(shape)], attributes)
    };
    let x = counted(&[1, 5]);
    assert_eq!(of(&x, &[1, 2], &[]), f32s(&[1, 2], &[1.0, 2.0]));
    assert_eq!(of(&x, &[8], &[-1]), f32s(&[1, 8], &[0.0, 0.0, 1.0, 2.0, 3.0, 4.0, 0.0, 0.0]));
    assert_eq!(of(&x, &[2, 3], &[]), f32s(&[2, 3], &[1.0, 2.0, 3.0, 0.0, 0.0, 0.0]));
}

#[test]
fn sums_of_blocks() {
    let attributes = vec![ints("pads", &[1, 0, 1, 1]), ints("strides", &[2, 1])];
    let found = one(18, "Col2Im", &[ramp(&[1, 6, 6], 1)], &[i64s(&[3, 4]), i64s(&[2, 3])], attributes);
    assert_eq!(found.shape(), [1, 1, 3, 4]);
    assert_near(&found, &[0.75, 0.0, -2.25, -0.25, -0.75, -0.25, 1.5, -0.5, 0.5, -0.5, -0.25, 2.0]);
    let model = Model::new(18).input("x", &[1, 5, 6]).constant("i", &i64s(&[3, 4])).constant("b", &i64s(&[2, 3]));
    let error = model.node("Col2Im", "x i b", "y", vec![]).output("y").import().unwrap_err().to_string();
    assert!(error.ends_with("5 rows and 6 columns do not match 4 blocks of 6 elements"), "{error}");
}

#[test]
fn maxima_with_positions() {
    let x = ramp(&[1, 2, 3, 4], 1);
    let of = |storage| {
        let window = vec![ints("kernel_shape", &[2, 3]), ints("strides", &[1, 2]), ints("pads", &[1, 0, 0, 1])];
        let model = Model::new(12).input("x", x.shape());
        let model = model.node("MaxPool", "x", "y i", [window, vec![int("storage_order", storage)]].concat());
        model.output("y").output("i").run(std::slice::from_ref(&x))
    };
    let rows = of(0);
    assert_near(&rows[0], &[1.25, 0.25, 1.25, 0.75, 1.0, 0.75, 1.25, 1.0, 1.25, 1.0, 0.75, 1.25]);
    let wanted = vec![1, 2, 1, 7, 4, 7, 12, 15, 12, 15, 18, 23];
    assert_eq!(rows[1], Tensor::i64(&[1, 2, 3, 2], wanted).unwrap());
    let wanted = vec![3, 6, 3, 10, 1, 10, 12, 21, 12, 21, 19, 23];
    assert_eq!(of(1)[1], Tensor::i64(&[1, 2, 3, 2], wanted).unwrap());

    // A window of 2^20 elements would become as many nodes.
    let model = Model::new(12).input("x", &[1, 1, 1024, 1024]);
    let model = model.node("MaxPool", "x", "y i", vec![ints("kernel_shape", &[1024, 1024])]).output("i");
    assert!(model.import().unwrap_err().to_string().ends_with("are not supported"));
}

#[test]
fn maxima_at_their_positions() {
    let (x, places) = (counted(&[1, 1, 2, 2]), Tensor::i64(&[1, 1, 2, 2], vec![5, 7, 8, 15]).unwrap());
    let window = || vec![ints("kernel_shape", &[2, 2]), ints("strides", &[2, 2])];
    let found = one(11, "MaxUnpool", std::slice::from_ref(&x), std::slice::from_ref(&places), window());
    let mut wanted = [0.0; 16];
    (wanted[7], wanted[8], wanted[15]) = (1.0, 2.0, 3.0);
    assert_eq!(found, f32s(&[1, 1, 4, 4], &wanted));
    let larger = one(11, "MaxUnpool", std::slice::from_ref(&x), &[places, i64s(&[1, 1, 5, 4])], window());
    assert_eq!(larger, f32s(&[1, 1, 5, 4], &[&wanted[..], &[0.0; 4]].concat()));
}

/// Integers that are no quantised tensor.
#[test]
fn maxima_of_integers() {
    let x = Tensor::i64(&[1, 1, 4], vec![3, -7, 2, 9]).unwrap();
    let model = Model::new(12).constant("x", &x).node("MaxPool", "x", "y", vec![ints("kernel_shape", &[2])]);
    assert_eq!(model.output("y").run(&[]), [Tensor::i64(&[1, 1, 3], vec![3, 2, 9]).unwrap()]);
}
