//! Extents and places of operators on images, as the standard and ONNX Runtime have them.

use autotune_network::Tensor;

use crate::build::{Model, counted, f32s, floats, int, ints, one, word};

/// What a row of ten becomes by a scale before version 11, and the number of elements.
fn resized(scale: f32) -> Vec<f32> {
    let scales = f32s(&[4], &[1.0, 1.0, 1.0, scale]);
    one(10, "Resize", &[counted(&[1, 1, 1, 10])], &[scales], vec![word("mode", "nearest")]).to_numbers()
}

/// Before version 11 the nearest is the next element where images become smaller, the one before
/// where they become larger.
#[test]
fn old_resizing_takes_the_next_element_where_images_become_smaller() {
    assert_eq!(resized(0.7), [0.0, 2.0, 3.0, 5.0, 6.0, 8.0, 9.0]);
    assert_eq!(resized(0.4), [0.0, 3.0, 5.0, 8.0]);
    assert_eq!(resized(0.5), [0.0, 2.0, 4.0, 6.0, 8.0]);
    assert_eq!(resized(1.5), [0.0, 0.0, 1.0, 2.0, 2.0, 3.0, 4.0, 4.0, 5.0, 6.0, 6.0, 7.0, 8.0, 8.0, 9.0]);

    // Each axis by itself: rows become fewer, columns more.
    let scales = f32s(&[4], &[1.0, 1.0, 0.6, 1.5]);
    let found = one(10, "Resize", &[counted(&[1, 1, 5, 2])], &[scales], vec![]);
    assert_eq!(found.shape(), [1, 1, 3, 3]);
    assert_eq!(found.to_numbers(), [0.0, 0.0, 1.0, 4.0, 4.0, 5.0, 8.0, 8.0, 9.0]);

    let attributes = vec![floats("scales", &[1.0, 1.0, 1.0, 1.5])];
    assert_eq!(one(7, "Upsample", &[counted(&[1, 1, 1, 2])], &[], attributes).to_numbers(), [0.0, 0.0, 1.0]);
}

/// Eleven by the f32 nearest to 13/11 are less than thirteen, which ONNX Runtime rounds down to
/// twelve, at places of thirteen.
#[test]
fn scales_that_are_rounded_down_to_other_extents_are_refused() {
    let scales = f32s(&[4], &[1.0, 1.0, 13.0 / 11.0, 1.0]);
    let model = Model::new(11).input("x", &[1, 1, 11, 2]).constant("roi", &f32s(&[0], &[])).constant("scales", &scales);
    let error = model.node("Resize", "x roi scales", "y", vec![]).output("y").import().map(drop).unwrap_err();
    let wanted = "do not make whole extents of [1, 1, 11, 2]";
    assert!(error.to_string().ends_with(wanted), "{error}");
}

/// Places that are counted from the middle are the same as half pixels where scales make whole
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

/// By the standard's text the output is the input times the stride: what a smaller kernel lacks
/// lies at either end, the odd element where `auto_pad` says.
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

/// By the standard's text, and its inference of shapes, padding of windows with gaps makes as many
/// outputs as strides fit, too.
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

/// A transposed convolution of stride 1, of groups, with gaps and uneven padding, beside its
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
