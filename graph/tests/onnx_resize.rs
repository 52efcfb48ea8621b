//! Resizing in forms that the kernels of images lack, compared with what ONNX Runtime 1.31
//! computes.

use autotune_graph::Tensor;
use rten_onnx::onnx::AttributeProto;

use crate::build::{Model, assert_near, counted, f32s, float, i64s, int, ints, word};
use crate::onnx_runtime::ramp;

/// Inputs of a node behind the first.
#[derive(Default)]
struct Sizes<'a> {
    region: &'a [f32],
    scales: &'a [f32],
    sizes: &'a [i64],
}

impl Sizes<'_> {
    fn model(&self, x: &Tensor, attributes: Vec<AttributeProto>) -> Model {
        let mut model = Model::new(19).input("x", x.shape());
        let mut names = String::from("x");
        let vectors = [("region", self.region), ("scales", self.scales)];
        for (name, numbers) in vectors.map(|(name, numbers)| (name, f32s(&[numbers.len()], numbers))) {
            let is_absent = numbers.shape() == [0];
            names += &format!(" {}", if is_absent { "_" } else { name });
            model = if is_absent { model } else { model.constant(name, &numbers) };
        }
        if !self.sizes.is_empty() {
            names += " sizes";
            model = model.constant("sizes", &i64s(self.sizes));
        }
        model.node("Resize", &names, "y", attributes).output("y")
    }

    fn of(&self, x: &Tensor, attributes: Vec<AttributeProto>) -> Tensor {
        self.model(x, attributes).run(std::slice::from_ref(x)).remove(0)
    }

    fn refusal(&self, x: &Tensor, attributes: Vec<AttributeProto>) -> String {
        let error = self.model(x, attributes).import().unwrap_err().to_string();
        error.trim_start_matches("node 'resize' (Resize): ").to_string()
    }
}

fn by_scales(scales: &[f32]) -> Sizes<'_> {
    Sizes { scales, ..Sizes::default() }
}

fn by_sizes(sizes: &[i64]) -> Sizes<'_> {
    Sizes { sizes, ..Sizes::default() }
}

fn mapped(mode: &str, mapping: &str) -> Vec<AttributeProto> {
    vec![word("mode", mode), word("coordinate_transformation_mode", mapping)]
}

#[test]
fn cubic_interpolation() {
    let (x, sizes) = (ramp(&[1, 1, 3, 4], 1), by_scales(&[1.0, 1.0, 2.0 / 3.0, 1.5]));
    let found = sizes.of(&x, vec![word("mode", "cubic")]);
    assert_eq!(found.shape(), [1, 1, 2, 6]);
    assert_near(
        &found,
        &[
            -0.214037, 0.550079, 0.95604, 0.115351, -0.328888, -0.39054, 0.181135, -0.568054, -0.939336, -0.040238,
            0.081726, -0.188392,
        ],
    );
    let outside = vec![word("mode", "cubic"), int("exclude_outside", 1), float("cubic_coeff_a", -0.5)];
    assert_near(
        &sizes.of(&x, outside),
        &[
            -0.268752, 0.45234, 0.988434, 0.145943, -0.303671, -0.465448, 0.089824, -0.551095, -0.948838, 0.052041,
            0.038965, -0.257419,
        ],
    );
}

/// A filter covers all elements between those of a smaller image.
#[test]
fn filters_that_are_stretched() {
    let (x, sizes) = (ramp(&[1, 1, 1, 9], 1), by_scales(&[1.0, 1.0, 1.0, 0.4]));
    let of =
        |mode, outside| sizes.of(&x, vec![word("mode", mode), int("antialias", 1), int("exclude_outside", outside)]);
    assert_near(&of("linear", 0), &[0.27, 0.11, -0.1]);
    assert_near(&of("cubic", 0), &[0.278775, 0.170975, -0.070525]);
    assert_near(&of("cubic", 1), &[0.333806, 0.158529, -0.081162]);

    // Along axes that become longer there is nothing to filter.
    let longer = by_scales(&[1.0, 1.0, 1.0, 2.0]);
    let plain = longer.of(&x, vec![word("mode", "linear")]);
    assert_eq!(longer.of(&x, vec![word("mode", "linear"), int("antialias", 1)]), plain);
}

/// The scale, not the ratio of the extents, is the distance of elements.
#[test]
fn scales_without_whole_extents() {
    let x = ramp(&[1, 1, 5], 1);
    let of = |scale, mode, mapping| by_scales(&[1.0, 1.0, scale]).of(&x, mapped(mode, mapping));
    let half_pixel = [-0.5, 0.375, 1.083333, 0.416667, -0.25, -0.458333, 0.708334];
    assert_near(&of(1.5, "linear", "half_pixel"), &half_pixel);
    assert_near(&of(1.5, "linear", "pytorch_half_pixel"), &half_pixel);
    let asymmetric = [-0.5, 0.666667, 0.916667, 0.25, -0.416667, -0.166667, 1.0];
    assert_near(&of(1.5, "linear", "asymmetric"), &asymmetric);
    assert_near(&of(1.5, "linear", "half_pixel_symmetric"), &asymmetric);
    assert_near(&of(1.5, "nearest", "half_pixel"), &[-0.5, -0.5, 1.25, 0.25, 0.25, -0.75, 1.0]);
    assert_near(&of(1.5, "nearest", "asymmetric"), &[-0.5, 1.25, 1.25, 0.25, -0.75, -0.75, 1.0]);

    // A single element is the middle, or the first in PyTorch.
    assert_near(&of(0.3, "linear", "half_pixel"), &[1.083333]);
    assert_near(&of(0.3, "linear", "half_pixel_symmetric"), &[0.25]);
    assert_near(&of(0.3, "linear", "pytorch_half_pixel"), &[-0.5]);
    // The extent may remain while elements move.
    assert_near(&of(1.1, "linear", "asymmetric"), &[-0.5, 1.090909, 0.431818, -0.477273, 0.363637]);
}

#[test]
fn parts_of_images() {
    let (x, region) = (ramp(&[1, 1, 4, 5], 1), &[0.0, 0.0, 0.2, -0.1, 1.0, 1.0, 0.8, 1.3]);
    let cropped = |mode| [mapped(mode, "tf_crop_and_resize"), vec![float("extrapolation_value", 9.0)]].concat();
    let sizes = Sizes { region, sizes: &[1, 1, 3, 4], ..Sizes::default() };
    assert_near(
        &sizes.of(&x, cropped("linear")),
        &[9.0, 0.203333, -0.416667, 9.0, 9.0, 0.066667, -0.333333, 9.0, 9.0, 0.003333, 0.116667, 9.0],
    );
    let region = &[0.0, 0.0, 0.2, 0.1, 1.0, 1.0, 0.8, 0.9];
    let sizes = Sizes { region, sizes: &[1, 1, 1, 2], ..Sizes::default() };
    assert_near(&sizes.of(&x, cropped("nearest")), &[0.0, -1.25]);

    // Regions far outside, of any size.
    let region = &[0.0, 0.0, 0.0, -1e30, 1.0, 1.0, 1.0, f32::INFINITY];
    let sizes = Sizes { region, sizes: &[1, 1, 4, 2], ..Sizes::default() };
    assert_eq!(sizes.of(&x, cropped("cubic")), f32s(&[1, 1, 4, 2], &[9.0; 8]));
    let sizes = Sizes { region: &[0.0, 1.0], sizes: &[1, 1, 4, 2], ..Sizes::default() };
    assert_eq!(sizes.refusal(&x, cropped("linear")), "a region of 2 numbers does not match 4 axes");
}

#[test]
fn sizes_of_equal_ratio() {
    let x = ramp(&[1, 1, 4, 6], 1);
    let of = |policy| {
        let attributes = vec![ints("axes", &[2, 3]), word("mode", "nearest"), word("keep_aspect_ratio_policy", policy)];
        by_sizes(&[5, 5]).of(&x, attributes)
    };
    assert_eq!(of("not_larger").shape(), [1, 1, 3, 5]);
    assert_near(
        &of("not_larger"),
        &[-0.5, 1.25, 0.25, 1.0, 0.0, -1.0, 0.75, -0.25, 0.5, -0.5, 1.25, 0.25, -0.75, 0.0, -1.0],
    );
    assert_eq!(of("not_smaller").shape(), [1, 1, 5, 8]);
}

#[test]
fn axes_other_than_height_and_width() {
    let x = ramp(&[1, 1, 2, 2, 2], 1);
    let found = by_scales(&[1.0, 1.0, 2.0, 1.0, 2.0]).of(&x, vec![word("mode", "linear")]);
    assert_eq!(found.shape(), [1, 1, 4, 2, 4]);
    assert_near(
        &found,
        &[
            -0.5, -0.0625, 0.8125, 1.25, 0.25, 0.0, -0.5, -0.75, -0.125, 0.140625, 0.671875, 0.9375, -0.0625,
            -0.140625, -0.296875, -0.375, 0.625, 0.546875, 0.390625, 0.3125, -0.6875, -0.421875, 0.109375, 0.375, 1.0,
            0.75, 0.25, 0.0, -1.0, -0.5625, 0.3125, 0.75,
        ],
    );
    let channels = by_scales(&[2.0]).of(&counted(&[1, 3, 2]), vec![ints("axes", &[1])]);
    assert_eq!(channels, f32s(&[1, 6, 2], &[0.0, 1.0, 0.0, 1.0, 2.0, 3.0, 2.0, 3.0, 4.0, 5.0, 4.0, 5.0]));
}

#[test]
fn scales_before_version_11() {
    let of = |extent: usize, scale: f32, mode: &str| {
        let x = ramp(&[1, 1, extent], 1);
        let model = Model::new(10).input("x", x.shape()).constant("scales", &f32s(&[3], &[1.0, 1.0, scale]));
        let model = model.node("Resize", "x scales", "y", vec![word("mode", mode)]).output("y");
        model.run(&[x]).remove(0)
    };
    assert_near(&of(7, 0.6, "nearest"), &[-0.5, 0.25, 1.0, 0.0]);
    assert_near(&of(5, 1.3, "nearest"), &[-0.5, -0.5, 1.25, 0.25, -0.75, -0.75]);
    assert_near(&of(5, 1.3, "linear"), &[-0.5, 0.846154, 0.711538, -0.057692, -0.615385, 0.730769]);
}

#[test]
fn sizes_that_are_impossible() {
    let x = ramp(&[1, 1, 4, 4], 1);
    let linear = || vec![word("mode", "linear")];
    let scales = |scale| by_scales(&[1.0, 1.0, scale, 1.0]).refusal(&x, linear());
    for (scale, text) in [(0.0, "0.0"), (-1.0, "-1.0"), (f32::NAN, "NaN"), (1e30, "1e30")] {
        assert_eq!(scales(scale), format!("scales [1.0, 1.0, {text}, 1.0] of shape [1, 1, 4, 4] are not possible"));
    }
    assert_eq!(by_sizes(&[1, 1, -4, 4]).refusal(&x, linear()), "a size is negative");
    assert_eq!(by_sizes(&[1, 4, 4]).refusal(&x, linear()), "3 scales or sizes do not match 4 axes");
    let mapping = by_sizes(&[1, 1, 2, 2]).refusal(&x, mapped("linear", "other"));
    assert_eq!(mapping, "attribute 'coordinate_transformation_mode': unknown mapping");
    // A matrix of this size exceeds what an import may compute.
    let long = by_sizes(&[1, 1, 1, 1 << 30]).refusal(&ramp(&[1, 1, 1, 1 << 20], 1), vec![word("mode", "cubic")]);
    assert!(long.contains("too large") || long.contains("more than"), "{long}");
}
