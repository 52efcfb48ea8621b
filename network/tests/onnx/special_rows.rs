//! Special values in reductions, windows and products: the reference is compared with NumPy's
//! definitions in f64, kernels with both.

use autotune_network::Tensor;
use rten_onnx::onnx::AttributeProto;

use super::special::{assert_near, both};
use crate::build::{Model, f32s, float, int, ints, word};

/// Longer than a vector register, and not a multiple of one.
const LENGTH: usize = 37;

const INF: f32 = f32::INFINITY;
const NAN: f32 = f32::NAN;

/// Returns rows of ordinary numbers with special ones at two positions.
fn rows() -> Vec<Vec<f32>> {
    let usual = |at: usize| ((at * 7) % 11) as f32 * 0.25 - 1.0;
    let specials = [
        [NAN, 0.5],
        [0.5, NAN],
        [INF, 0.5],
        [0.5, -INF],
        [INF, -INF],
        [INF, INF],
        [-INF, -INF],
        [NAN, INF],
        [INF, NAN],
        [-INF, NAN],
        [0.0, -0.0],
        [1e20, -1e20],
        [3.0, 3.0],
        [40.0, 0.0],
        [f32::MIN_POSITIVE / 8.0, f32::from_bits(1)],
    ];

    let row = |[a, b]: [f32; 2]| -> Vec<f32> {
        let special = |at| match at {
            5 => a,
            33 => b,
            at => usual(at),
        };
        (0..LENGTH).map(special).collect()
    };
    let all_alike = [NAN, INF, -INF, 0.0].map(|x| vec![x; LENGTH]);
    specials.map(row).into_iter().chain(all_alike).collect()
}

fn tensor(rows: &[Vec<f32>]) -> Tensor {
    f32s(&[rows.len(), rows[0].len()], &rows.concat())
}

fn doubles(row: &[f32]) -> Vec<f64> {
    row.iter().map(|&x| x.into()).collect()
}

/// Fails unless the reference computes the wanted results, rounded once, and kernels come close.
fn assert_both(model: &Model, rows: &[Vec<f32>], wanted: &[f64], [ulps, absolute]: [f64; 2], operator: &str) {
    let [reference, kernels] = both(model, &[tensor(rows)], operator);
    assert_near(&reference, wanted, 1.0, 0.0, &format!("reference of {operator}"));
    assert_near(&kernels, wanted, ulps, absolute, operator);
}

fn largest(row: &[f64]) -> f64 {
    row.iter().fold(f64::NEG_INFINITY, |most, &x| if most.is_nan() || x.is_nan() { f64::NAN } else { most.max(x) })
}

fn log_sum_exp(row: &[f64]) -> f64 {
    let most = largest(row);
    let shift = if most.is_finite() { most } else { 0.0 };
    row.iter().map(|x| (x - shift).exp()).sum::<f64>().ln() + shift
}

/// Returns the index of the first NaN, else of the first maximum.
fn place_of_largest(row: &[f64]) -> f64 {
    let most = largest(row);
    row.iter().position(|&x| x.is_nan() || x == most).unwrap() as f64
}

fn negated(row: &[f64]) -> Vec<f64> {
    row.iter().map(|x| -x).collect()
}

/// A reduction along rows: operator, definition for a row, and permitted error of kernels in ulps
/// and absolute.
type Reduction = (&'static str, fn(&[f64]) -> f64, f64, f64);

const REDUCTIONS: [Reduction; 12] = [
    ("ReduceSum", |row| row.iter().sum(), 40.0, 2e-6),
    ("ReduceMean", |row| row.iter().sum::<f64>() / row.len() as f64, 40.0, 2e-7),
    ("ReduceMax", largest, 0.0, 0.0),
    ("ReduceMin", |row| -largest(&negated(row)), 0.0, 0.0),
    ("ReduceProd", |row| row.iter().product(), 40.0, 0.0),
    ("ReduceL1", |row| row.iter().map(|x| x.abs()).sum(), 40.0, 0.0),
    ("ReduceL2", |row| row.iter().map(|x| x * x).sum::<f64>().sqrt(), 40.0, 0.0),
    ("ReduceSumSquare", |row| row.iter().map(|x| x * x).sum(), 40.0, 0.0),
    ("ReduceLogSum", |row| row.iter().sum::<f64>().ln(), 40.0, 2e-6),
    ("ReduceLogSumExp", log_sum_exp, 8.0, 0.0),
    ("ArgMax", place_of_largest, 0.0, 0.0),
    ("ArgMin", |row| place_of_largest(&negated(row)), 0.0, 0.0),
];

#[test]
fn reductions_of_special_values_are_those_of_numpy() {
    // Rows with 1e20 are excluded: it absorbs all other numbers in f32, and its square is infinite.
    let rows: Vec<Vec<f32>> = rows().into_iter().filter(|row| !row.contains(&1e20)).collect();
    for (operator, meaning, ulps, absolute) in REDUCTIONS {
        let name = if operator.starts_with("Arg") { int("axis", 1) } else { ints("axes", &[1]) };
        let version = if operator == "ReduceSum" { 11 } else { 13 };
        let model = Model::new(version).input("x", &[rows.len(), LENGTH]);
        let model = model.node(operator, "x", "y", vec![name]).output("y");
        let wanted: Vec<f64> = rows.iter().map(|row| meaning(&doubles(row))).collect();
        assert_both(&model, &rows, &wanted, [ulps, absolute], operator);
    }
}

/// If the last index is selected, NaN also takes precedence over all numbers.
#[test]
fn the_last_place_is_that_of_the_last_that_is_not_a_number() {
    let rows = [vec![1.0, 3.0, 3.0, 2.0], vec![NAN, 3.0, NAN, INF], vec![-INF, -INF, -INF, -INF]];
    for (operator, wanted) in [("ArgMax", [2.0, 2.0, 3.0]), ("ArgMin", [0.0, 2.0, 3.0])] {
        let attributes = vec![int("axis", 1), int("select_last_index", 1)];
        let model = Model::new(13).input("x", &[3, 4]).node(operator, "x", "y", attributes).output("y");
        for found in both(&model, &[tensor(&rows)], operator) {
            assert_near(&found, &wanted, 0.0, 0.0, operator);
        }
    }
}

/// A normalisation of rows: operator, opset, attributes, definition, and permitted error in ulps
/// and absolute.
type Normalisation = (&'static str, i64, Vec<AttributeProto>, fn(&[f64]) -> Vec<f64>, f64, f64);

fn normal(row: &[f64]) -> Vec<f64> {
    let mean = row.iter().sum::<f64>() / row.len() as f64;
    let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / row.len() as f64;
    row.iter().map(|x| (x - mean) / (variance + f64::from(1e-5f32)).sqrt()).collect()
}

fn softmax(row: &[f64]) -> Vec<f64> {
    let most = largest(row);
    let total: f64 = row.iter().map(|x| (x - most).exp()).sum();
    row.iter().map(|x| (x - most).exp() / total).collect()
}

/// Computes the logarithm with `ln_1p`, which is accurate where one element dominates.
fn log_softmax(row: &[f64]) -> Vec<f64> {
    let most = largest(row);
    let is_largest = |x: &&f64| *x - most == 0.0;
    let others: f64 = row.iter().filter(|x| !is_largest(x)).map(|x| (x - most).exp()).sum();
    let log = (row.iter().filter(is_largest).count() as f64 - 1.0 + others).ln_1p();
    row.iter().map(|x| x - most - log).collect()
}

fn by_sizes(row: &[f64]) -> Vec<f64> {
    let sum: f64 = row.iter().map(|x| x.abs()).sum();
    row.iter().map(|x| if sum == 0.0 { 0.0 } else { x / sum }).collect()
}

#[test]
fn normalisations_of_special_values_are_those_of_numpy() {
    let normalisations: [Normalisation; 4] = [
        ("Softmax", 13, vec![], softmax, 16.0, 0.0),
        ("LogSoftmax", 13, vec![], log_softmax, 16.0, 0.0),
        ("LpNormalization", 6, vec![int("p", 1)], by_sizes, 40.0, 0.0),
        ("LayerNormalization", 17, vec![], normal, 40.0, 4e-6),
    ];
    let all = rows();
    for (operator, version, attributes, meaning, ulps, absolute) in normalisations {
        // The square of 1e20 is infinite in f32, unlike in NumPy.
        let is_used = |row: &&Vec<f32>| operator != "LayerNormalization" || !row.contains(&1e20);
        let rows: Vec<Vec<f32>> = all.iter().filter(is_used).cloned().collect();
        let mut model = Model::new(version).input("x", &[rows.len(), LENGTH]);
        let mut names = "x".to_string();
        if operator == "LayerNormalization" {
            model = model.constant("scale", &f32s(&[LENGTH], &[1.0; LENGTH]));
            names += " scale";
        }
        let model = model.node(operator, &names, "y", attributes).output("y");
        let wanted: Vec<f64> = rows.iter().flat_map(|row| meaning(&doubles(row))).collect();
        assert_both(&model, &rows, &wanted, [ulps, absolute], operator);
    }
}

/// Sums whose squares underflow in f32 count as norm 0, and do not become large.
#[test]
fn sizes_that_vanish_make_zeros() {
    let rows = [vec![1e-25, -1e-25], vec![0.0, 0.0], vec![3e-19, 4e-19]];
    let model = Model::new(13).input("x", &[3, 2]).node("LpNormalization", "x", "y", vec![]).output("y");
    for found in both(&model, &[tensor(&rows)], "LpNormalization") {
        assert_near(&found, &[0.0, 0.0, 0.0, 0.0, 0.6, 0.8], 4.0, 1e-2, "LpNormalization");
    }
}

/// An image of two channels, 7x9, with special values.
fn image() -> Tensor {
    let special = |at: usize| match at {
        10 => NAN,
        40 => INF,
        58 | 59 => -INF,
        80 => -INF,
        101 => INF,
        at => ((at * 5) % 13) as f32 * 0.25 - 1.0,
    };
    f32s(&[1, 2, 7, 9], &(0..126).map(special).collect::<Vec<f32>>())
}

fn pixel(image: &Tensor, channel: usize, [y, x]: [i64; 2]) -> Option<f64> {
    let [y, x] = [usize::try_from(y).ok()?, usize::try_from(x).ok()?];
    image.as_f32().unwrap().get([0, channel, y, x]).map(|&x| x.into())
}

/// Returns every output position of two channels, in order.
fn outputs([height, width]: [i64; 2]) -> impl Iterator<Item = (usize, [i64; 2])> {
    (0..2).flat_map(move |c| (0..height).flat_map(move |y| (0..width).map(move |x| (c, [y, x]))))
}

#[test]
fn poolings_of_special_values_are_those_of_their_windows() {
    let image = image();
    let window = |c: usize, [y, x]: [i64; 2]| {
        let taps = (0..3).flat_map(move |i| (0..3).map(move |j| [2 * y + i - 1, 2 * x + j - 1]));
        let image = image.clone();
        taps.filter_map(move |at| pixel(&image, c, at)).collect::<Vec<f64>>()
    };
    let attributes = || vec![ints("kernel_shape", &[3, 3]), ints("strides", &[2, 2]), ints("pads", &[1, 1, 1, 1])];
    let mean = |window: Vec<f64>| window.iter().sum::<f64>() / window.len() as f64;
    let largest = |window: Vec<f64>| largest(&window);
    let meanings: [(_, &dyn Fn(Vec<f64>) -> f64); 2] = [("MaxPool", &largest), ("AveragePool", &mean)];
    for (operator, meaning) in meanings {
        let model = Model::new(11).input("x", &[1, 2, 7, 9]).node(operator, "x", "y", attributes()).output("y");
        let wanted: Vec<f64> = outputs([4, 5]).map(|(c, at)| meaning(window(c, at))).collect();
        for found in both(&model, std::slice::from_ref(&image), operator) {
            assert_near(&found, &wanted, 4.0, 1e-6, operator);
        }
    }
}

/// Weights between two input and two output channels, none of them zero.
fn weights(kernel: usize) -> Tensor {
    let count = 4 * kernel * kernel;
    f32s(&[2, 2, kernel, kernel], &(0..count).map(|at| ((at * 3) % 7) as f32 * 0.5 - 1.25).collect::<Vec<f32>>())
}

#[test]
fn convolutions_of_special_values_are_sums_of_what_windows_read() {
    let (image, weights) = (image(), weights(3));
    let weight =
        |o: usize, c: usize, i: i64, j: i64| f64::from(weights.as_f32().unwrap()[[o, c, i as usize, j as usize]]);
    let sum = |o: usize, [y, x]: [i64; 2]| -> f64 {
        let taps = (0..2).flat_map(|c| (0..3).flat_map(move |i| (0..3).map(move |j| (c, i, j))));
        let products =
            taps.filter_map(|(c, i, j)| Some(pixel(&image, c, [y + 2 * i - 2, x + 2 * j - 2])? * weight(o, c, i, j)));
        products.sum()
    };
    let wanted: Vec<f64> = outputs([7, 9]).map(|(o, at)| sum(o, at)).collect();
    let attributes = vec![ints("dilations", &[2, 2]), ints("pads", &[2, 2, 2, 2])];
    let model = Model::new(11).input("x", &[1, 2, 7, 9]).constant("w", &weights);
    let model = model.node("Conv", "x w", "y", attributes).output("y");
    for found in both(&model, std::slice::from_ref(&image), "Conv") {
        assert_near(&found, &wanted, 4.0, 1e-5, "Conv");
    }
}

/// Gaps of dilated windows multiply nothing: infinities only reach the outputs that their windows
/// cover.
#[test]
fn transposed_convolutions_of_special_values_have_no_zeros_in_gaps() {
    let image = image();
    // Kernel, stride, dilation, padding.
    for [kernel, stride, dilation, pad] in [[3, 1, 2, 1], [3, 1, 2, 0], [2, 1, 3, 2], [4, 2, 1, 1], [2, 2, 1, 0]] {
        let weights = weights(kernel as usize);
        let extent = |from: i64| (from - 1) * stride + (kernel - 1) * dilation + 1 - 2 * pad;
        let weight =
            |c: usize, o: usize, i: i64, j: i64| f64::from(weights.as_f32().unwrap()[[c, o, i as usize, j as usize]]);
        let sum = |o: usize, [y, x]: [i64; 2]| -> f64 {
            let taps = (0..2).flat_map(|c| (0..kernel).flat_map(move |i| (0..kernel).map(move |j| (c, i, j))));
            let products = taps.filter_map(|(c, i, j)| {
                let at = [y + pad - i * dilation, x + pad - j * dilation];
                let is_element = at.iter().all(|at| at.rem_euclid(stride) == 0);
                let of = pixel(&image, c, at.map(|at| at.div_euclid(stride))).filter(|_| is_element)?;
                Some(of * weight(c, o, i, j))
            });
            products.sum()
        };

        let what = format!("ConvTranspose {kernel} {stride} {dilation} {pad}");
        let wanted: Vec<f64> = outputs([extent(7), extent(9)]).map(|(o, at)| sum(o, at)).collect();
        let attributes =
            vec![ints("strides", &[stride; 2]), ints("dilations", &[dilation; 2]), ints("pads", &[pad; 4])];
        let model = Model::new(11).input("x", &[1, 2, 7, 9]).constant("w", &weights);
        let model = model.node("ConvTranspose", "x w", "y", attributes).output("y");
        for found in both(&model, std::slice::from_ref(&image), &what) {
            assert_near(&found, &wanted, 4.0, 1e-5, &what);
        }
    }
}

#[test]
fn products_of_special_values_are_sums_of_products() {
    let rows = rows();
    let columns = 5;
    let factor = |k: usize, j: usize| ((k * 3 + j) % 5) as f32 * 0.5 - 1.25;
    let factors: Vec<f32> = (0..LENGTH * columns).map(|at| factor(at / columns, at % columns)).collect();
    let product = |row: &Vec<f32>, j: usize| -> f64 {
        row.iter().enumerate().map(|(k, &x)| f64::from(x) * f64::from(factor(k, j))).sum()
    };
    // Next to 1e20 no other number survives in f32.
    let rows: Vec<Vec<f32>> = rows.into_iter().filter(|row| !row.contains(&1e20)).collect();
    let wanted: Vec<f64> =
        rows.iter().flat_map(|row| (0..columns).map(|j| product(row, j)).collect::<Vec<_>>()).collect();
    let model = Model::new(13).input("x", &[rows.len(), LENGTH]).constant("w", &f32s(&[LENGTH, columns], &factors));
    let model = model.node("MatMul", "x w", "y", vec![]).output("y");
    for found in both(&model, &[tensor(&rows)], "MatMul") {
        assert_near(&found, &wanted, 4.0, 1e-4, "MatMul");
    }
}

/// An operator that moves elements: name, opset, attributes, constants, output extents, and the
/// source position of an output element.
type Movement = (&'static str, i64, Vec<AttributeProto>, &'static [&'static str], [i64; 2], fn([i64; 2]) -> [i64; 2]);

/// Operators that only move elements leave special values unchanged.
#[test]
fn special_values_are_moved_as_they_are() {
    let image = image();
    let resize = vec![
        word("mode", "nearest"),
        word("coordinate_transformation_mode", "asymmetric"),
        word("nearest_mode", "floor"),
    ];
    let nodes: [Movement; 3] = [
        ("Transpose", 13, vec![ints("perm", &[0, 1, 3, 2])], &[], [9, 7], |[y, x]| [x, y]),
        ("Resize", 11, resize, &["none", "scales"], [14, 18], |[y, x]| [y / 2, x / 2]),
        ("Pad", 2, vec![ints("pads", &[0, 0, 1, 2, 0, 0, 1, 2]), float("value", 0.5)], &[], [9, 13], |[y, x]| {
            [y - 1, x - 2]
        }),
    ];
    for (operator, version, attributes, others, extents, from) in nodes {
        let mut model = Model::new(version.max(6)).input("x", &[1, 2, 7, 9]);
        model = model.constant("none", &f32s(&[0], &[])).constant("scales", &f32s(&[4], &[1.0, 1.0, 2.0, 2.0]));
        let names = ["x"].iter().chain(others).copied().collect::<Vec<_>>().join(" ");
        let model = model.node(operator, &names, "y", attributes).output("y");
        let wanted: Vec<f64> = outputs(extents).map(|(c, at)| pixel(&image, c, from(at)).unwrap_or(0.5)).collect();
        for found in both(&model, std::slice::from_ref(&image), operator) {
            assert_near(&found, &wanted, 0.0, 0.0, operator);
        }
    }
}
