//! Extents and positions of image operators, as in the standard and in ONNX Runtime.

use autotune_network::Tensor;

use crate::build::{Model, counted, f32s, floats, int, ints, one, word};

/// Resizes a row of ten elements by a scale, before opset 11.
fn resized(scale: f32) -> Vec<f32> {
    let scales = f32s(&[4], &[1.0, 1.0, 1.0, scale]);
    one(10, "Resize", &[counted(&[1, 1, 1, 10])], &[scales], vec![word("mode", "nearest")]).to_numbers()
}

/// Before opset 11 the nearest element is rounded up along axes that shrink, and down along axes
/// that grow.
#[test]
fn old_resizing_takes_the_next_element_where_images_become_smaller() {
    assert_eq!(resized(0.7), [0.0, 2.0, 3.0, 5.0, 6.0, 8.0, 9.0]);
    assert_eq!(resized(0.4), [0.0, 3.0, 5.0, 8.0]);
    assert_eq!(resized(0.5), [0.0, 2.0, 4.0, 6.0, 8.0]);
    assert_eq!(resized(1.5), [0.0, 0.0, 1.0, 2.0, 2.0, 3.0, 4.0, 4.0, 5.0, 6.0, 6.0, 7.0, 8.0, 8.0, 9.0]);

    // Each axis independently: fewer rows, more columns.
    let scales = f32s(&[4], &[1.0, 1.0, 0.6, 1.5]);
    let found = one(10, "Resize", &[counted(&[1, 1, 5, 2])], &[scales], vec![]);
    assert_eq!(found.shape(), [1, 1, 3, 3]);
    assert_eq!(found.to_numbers(), [0.0, 0.0, 1.0, 4.0, 4.0, 5.0, 8.0, 8.0, 9.0]);

    let attributes = vec![floats("scales", &[1.0, 1.0, 1.0, 1.5])];
    assert_eq!(one(7, "Upsample", &[counted(&[1, 1, 1, 2])], &[], attributes).to_numbers(), [0.0, 0.0, 1.0]);
}

/// 11 times the f32 nearest to 13/11 is below 13, so that there are 12 elements, at the positions
/// of the first of 13.
#[test]
fn scales_that_are_rounded_down_keep_their_positions() {
    let scales = f32s(&[4], &[1.0, 1.0, 13.0 / 11.0, 1.0]);
    let model = Model::new(11).input("x", &[1, 1, 11, 1]).constant("roi", &f32s(&[0], &[])).constant("scales", &scales);
    let found = model.node("Resize", "x roi scales", "y", vec![]).output("y").run(&[counted(&[1, 1, 11, 1])]);
    assert_eq!(found[0].to_numbers(), [0.0, 1.0, 2.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 8.0, 9.0]);
}

/// Coordinates symmetric about the centre equal half-pixel coordinates if scales give whole
/// extents.
#[test]
fn symmetric_half_pixels_are_half_pixels_of_whole_extents() {
    let resized = |coordinates: &str| {
        let model = Model::new(19).input("x", &[1, 1, 5, 4]).constant("none", &f32s(&[0], &[]));
        let model = model.constant("scales", &f32s(&[4], &[1.0, 1.0, 0.6, 1.5]));
        let attributes = vec![word("mode", "linear"), word("coordinate_transformation_mode", coordinates)];
        model.node("Resize", "x none scales", "y", attributes).output("y").run(&[counted(&[1, 1, 5, 4])])
    };
    assert_eq!(resized("half_pixel_symmetric"), resized("half_pixel"));
}

/// According to the standard, the output is the input times the stride. Missing elements go to
/// either end, the odd one according to `auto_pad`.
#[test]
fn transposed_convolutions_have_as_many_outputs_as_strides() {
    let transposed = |auto: &str, kernel: usize, stride: i64, bias: &[f32]| {
        let (x, weights) = (f32s(&[1, 1, 2], &[1.0, 2.0]), Tensor::f32(&[1, 1, kernel], vec![1.0; kernel]).unwrap());
        let mut constants = vec![weights];
        constants.extend((!bias.is_empty()).then(|| f32s(&[1], bias)));
        one(11, "ConvTranspose", &[x], &constants, vec![word("auto_pad", auto), ints("strides", &[stride])])
            .to_numbers()
    };
    assert_eq!(transposed("SAME_UPPER", 2, 3, &[]), [1.0, 1.0, 0.0, 2.0, 2.0, 0.0]);
    assert_eq!(transposed("SAME_LOWER", 2, 3, &[]), [0.0, 1.0, 1.0, 0.0, 2.0, 2.0]);
    assert_eq!(transposed("SAME_UPPER", 1, 3, &[]), [0.0, 1.0, 0.0, 0.0, 2.0, 0.0]);
    assert_eq!(transposed("SAME_UPPER", 1, 3, &[0.5]), [0.5, 1.5, 0.5, 0.5, 2.5, 0.5]);
    assert_eq!(transposed("SAME_UPPER", 3, 2, &[]), [1.0, 1.0, 3.0, 2.0]);
    assert_eq!(transposed("SAME_LOWER", 3, 2, &[]), [1.0, 3.0, 2.0, 2.0]);
}

/// According to the standard and its shape inference, padding for dilated windows also yields as
/// many outputs as strides fit.
#[test]
fn poolings_with_gaps_have_as_many_outputs_as_strides_fit() {
    for auto in ["SAME_UPPER", "SAME_LOWER"] {
        let attributes = vec![
            ints("kernel_shape", &[3, 4]),
            ints("strides", &[5, 2]),
            ints("dilations", &[3, 3]),
            word("auto_pad", auto),
        ];
        let found = one(12, "MaxPool", &[counted(&[1, 1, 8, 11])], &[], attributes);
        assert_eq!(found.shape(), [1, 1, 2, 6], "{auto}");
    }
}

/// A grouped, dilated transposed convolution with stride 1 and uneven padding, compared with its
/// definition.
#[test]
fn transposed_convolutions_of_stride_1_are_convolutions() {
    let (x, weights) = (counted(&[1, 4, 5, 6]), counted(&[4, 3, 2, 3]));
    let attributes = vec![int("group", 2), ints("dilations", &[2, 1]), ints("pads", &[1, 0, 0, 2])];
    let model = Model::new(11).input("x", &[1, 4, 5, 6]).constant("w", &weights);
    let model = model.node("ConvTranspose", "x w", "y", attributes).output("y");
    let [reference, kernels] = super::special::both(&model, std::slice::from_ref(&x), "ConvTranspose");
    assert_eq!(reference.shape(), [1, 6, 6, 6]);
    assert_eq!(reference, kernels);
}
