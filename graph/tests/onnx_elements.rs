//! Imported operators that choose elements by position or by order.

use autotune_graph::{DType, Tensor};

use crate::build::{Model, f32s, i64s, int, ints, one, word};

/// A triangle leaves NaN and infinities outside of it behind.
#[test]
fn triangles_of_special_values() {
    let x = f32s(&[2, 3], &[f32::NAN, 1.0, 2.0, f32::INFINITY, f32::NAN, 3.0]);
    let of = |k: &[Tensor], upper| one(14, "Trilu", std::slice::from_ref(&x), k, vec![int("upper", upper)]);
    let number = |k| [Tensor::i64(&[], vec![k]).unwrap()];
    assert_eq!(of(&number(1), 1), f32s(&[2, 3], &[0.0, 1.0, 2.0, 0.0, 0.0, 3.0]));
    assert_eq!(of(&number(-1), 0), f32s(&[2, 3], &[0.0, 0.0, 0.0, f32::INFINITY, 0.0, 0.0]));
    assert_eq!(of(&number(i64::MAX), 1), f32s(&[2, 3], &[0.0; 6]));
    assert_eq!(of(&[], 1).to_numbers()[3], 0.0);
    assert!(of(&[], 0).to_numbers()[0].is_nan());
}

#[test]
fn positions_among_several() {
    let (x, depth, values) = (f32s(&[5], &[1.0, -1.0, 3.0, -4.0, 2.0]), i64s(&[3]), f32s(&[2], &[-1.0, 5.0]));
    let of =
        |axis| one(11, "OneHot", std::slice::from_ref(&x), &[depth.clone(), values.clone()], vec![int("axis", axis)]);
    // Indices 3 and -4 are out of range.
    let rows = [[-1.0, 5.0, -1.0], [-1.0, -1.0, 5.0], [-1.0; 3], [-1.0; 3], [-1.0, -1.0, 5.0]];
    assert_eq!(of(-1), f32s(&[5, 3], rows.as_flattened()));
    let columns: Vec<f32> = (0..3).flat_map(|column| rows.map(|row| row[column])).collect();
    assert_eq!(of(0), f32s(&[3, 5], &columns));

    let model = Model::new(11).input("x", &[5]).input("depth", &[1]).constant("v", &values);
    let error = model.node("OneHot", "x depth v", "y", vec![]).output("y").import().unwrap_err();
    assert_eq!(error.to_string(), "node 'onehot' (OneHot): input 1: must be a constant");
}

#[test]
fn diagonals() {
    let x = f32s(&[2, 3], &[7.0; 6]);
    let of = |attributes| one(9, "EyeLike", std::slice::from_ref(&x), &[], attributes);
    assert_eq!(of(vec![int("k", 1)]), f32s(&[2, 3], &[0.0, 1.0, 0.0, 0.0, 0.0, 1.0]));
    let integers = Tensor::i64(&[2, 3], vec![0, 0, 0, 1, 0, 0]).unwrap();
    assert_eq!(of(vec![int("k", -1), int("dtype", 7)]), integers);
}

/// The first of equal maxima counts, and NaN counts as one.
#[test]
fn ones_at_maxima() {
    let x = f32s(&[2, 2, 2], &[3.0, 3.0, 1.0, 2.0, f32::NAN, 5.0, 0.0, f32::NEG_INFINITY]);
    let of = |version, axis| one(version, "Hardmax", std::slice::from_ref(&x), &[], vec![int("axis", axis)]);
    assert_eq!(of(13, -1), f32s(&[2, 2, 2], &[1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 0.0]));
    // Before version 13, the axes from the given one on are one row.
    assert_eq!(of(11, 1), f32s(&[2, 2, 2], &[1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]));
}

#[test]
fn channels_without_mean_and_variance() {
    let x = f32s(&[2, 1, 1, 2], &[1.0, 3.0, 5.0, 7.0]);
    let of = |attributes| one(13, "MeanVarianceNormalization", std::slice::from_ref(&x), &[], attributes);
    let deviation = 5f32.sqrt();
    let wanted = [-3.0, -1.0, 1.0, 3.0].map(|x| x / deviation);
    let found = of(vec![]);
    found.to_numbers().iter().zip(wanted).for_each(|(found, wanted)| assert!((found - wanted).abs() < 1e-6));
    assert_eq!(of(vec![ints("axes", &[3])]), f32s(&[2, 1, 1, 2], &[-1.0, 1.0, -1.0, 1.0]));
}

#[test]
fn largest_and_smallest_elements() {
    let x = f32s(&[2, 4], &[3.0, 5.0, 3.0, 5.0, f32::NAN, f32::INFINITY, -1.0, f32::NAN]);
    let of = |count, largest| {
        let model = Model::new(11).input("x", &[2, 4]).constant("k", &i64s(&[count]));
        let attributes = vec![int("largest", largest)];
        model.node("TopK", "x k", "y i", attributes).output("y").output("i").run(std::slice::from_ref(&x))
    };
    let indices = |found: &Tensor| found.as_i64().unwrap().iter().copied().collect::<Vec<_>>();
    // Of equal ones the first comes first, and NaN is larger than infinity.
    let largest = of(3, 1);
    assert_eq!(largest[0].to_numbers()[..3], [5.0, 5.0, 3.0]);
    assert_eq!(largest[0].to_numbers()[5], f32::INFINITY);
    assert_eq!(indices(&largest[1]), [1, 3, 0, 0, 3, 1]);
    let smallest = of(3, 0);
    assert_eq!(smallest[0].to_numbers()[..5], [3.0, 3.0, 5.0, -1.0, f32::INFINITY]);
    assert_eq!(indices(&smallest[1]), [0, 2, 1, 2, 1, 0]);
    assert_eq!(of(0, 1)[0].shape(), [2, 0]);

    // Along an outer axis, and more than there are.
    let column = vec![int("axis", 0)];
    let found = one(11, "TopK", std::slice::from_ref(&x), &[i64s(&[2])], column.clone()).to_numbers();
    assert_eq!([found[1], found[2], found[5], found[6]], [f32::INFINITY, 3.0, 5.0, -1.0]);
    let model = Model::new(11).input("x", &[2, 4]).constant("k", &i64s(&[3])).node("TopK", "x k", "y i", column);
    let error = model.output("y").import().unwrap_err();
    assert_eq!(error.to_string(), "node 'topk' (TopK): 3 of 2 elements along axis 0");
}

#[test]
fn sequences_up_to_their_lengths() {
    let x = f32s(&[3, 2, 2], &(0..12).map(|x| x as f32).collect::<Vec<_>>());
    let of = |lengths: &[i64], axes: [i64; 2]| {
        let attributes = vec![int("time_axis", axes[0]), int("batch_axis", axes[1])];
        one(10, "ReverseSequence", std::slice::from_ref(&x), &[i64s(lengths)], attributes).to_numbers()
    };
    assert_eq!(of(&[2, 3], [0, 1]), [4.0, 5.0, 10.0, 11.0, 0.0, 1.0, 6.0, 7.0, 8.0, 9.0, 2.0, 3.0]);
    assert_eq!(of(&[1, 2, 0], [2, 0]), [0.0, 1.0, 2.0, 3.0, 5.0, 4.0, 7.0, 6.0, 8.0, 9.0, 10.0, 11.0]);
}

#[test]
fn norms_of_windows() {
    let x = f32s(&[1, 1, 2, 3], &[3.0, -4.0, 0.0, 0.0, 3.0, -4.0]);
    let of = |p| {
        let attributes = vec![ints("kernel_shape", &[2, 2]), ints("pads", &[0, 0, 0, 1]), int("p", p)];
        one(18, "LpPool", std::slice::from_ref(&x), &[], attributes).to_numbers()
    };
    assert_eq!(of(1), [10.0, 11.0, 4.0]);
    assert_eq!(of(2), [34f32.sqrt(), 41f32.sqrt(), 4.0]);
    of(3).iter().zip([118f32.cbrt(), 155f32.cbrt(), 4.0]).for_each(|(a, b)| assert!((a - b).abs() < 1e-5));
    let whole = one(6, "GlobalLpPool", std::slice::from_ref(&x), &[], vec![]);
    assert_eq!(whole, f32s(&[1, 1, 1, 1], &[50f32.sqrt()]));
}

/// Neighbouring elements are replaced from a position on, which may be beyond the end of the axis.
#[test]
fn runs_of_elements() {
    let (x, new) = (f32s(&[2, 3, 1], &[0.0; 6]), f32s(&[2, 2, 1], &[1.0, 2.0, 3.0, 4.0]));
    let of = |starts: &[Tensor], mode| {
        let attributes = vec![word("mode", mode), int("axis", 1)];
        one(24, "TensorScatter", &[x.clone(), new.clone()], starts, attributes).to_numbers()
    };
    assert_eq!(of(&[], "linear"), [1.0, 2.0, 0.0, 3.0, 4.0, 0.0]);
    assert_eq!(of(&[i64s(&[1, 0])], "linear"), [0.0, 1.0, 2.0, 3.0, 4.0, 0.0]);
    assert_eq!(of(&[i64s(&[2, 4])], "circular"), [2.0, 0.0, 1.0, 0.0, 3.0, 4.0]);
    let model = Model::new(24).input("x", &[2, 3]).input("u", &[2, 4]).node("TensorScatter", "x u", "y", vec![]);
    let error = model.output("y").import().unwrap_err().to_string();
    assert_eq!(error, "node 'tensorscatter' (TensorScatter): updates of shape [2, 4] along axis 0 of shape [2, 3]");
}

#[test]
fn masks_of_dropout() {
    let model = Model::new(13).input("x", &[2]).node("Dropout", "x", "y mask", vec![]).output("y").output("mask");
    let x = f32s(&[2], &[1.0, -2.0]);
    assert_eq!(model.run(std::slice::from_ref(&x)), [x, Tensor::of_numbers(&[2], DType::Bool, &[1.0; 2]).unwrap()]);
}

/// Reductions of no elements are their neutral elements.
#[test]
fn reductions_of_nothing() {
    let of = |operator: &str| {
        let model = Model::new(18).constant("x", &f32s(&[2, 0], &[])).constant("axes", &i64s(&[1]));
        model.node(operator, "x axes", "y", vec![int("keepdims", 0)]).output("y").run(&[]).remove(0)
    };
    let both = |number| f32s(&[2], &[number; 2]);
    assert_eq!([of("ReduceSum"), of("ReduceProd"), of("ReduceL2")], [both(0.0), both(1.0), both(0.0)]);
    assert_eq!([of("ReduceMax"), of("ReduceMin")], [f32::NEG_INFINITY, f32::INFINITY].map(both));
    assert_eq!(of("ReduceLogSum"), both(f32::NEG_INFINITY));
    assert!(of("ReduceMean").to_numbers()[0].is_nan());

    let truths = |numbers: &[f32]| Tensor::of_numbers(&[numbers.len()], DType::Bool, numbers).unwrap();
    let of = |operator: &str, x: &Tensor| {
        let model = Model::new(20).constant("x", x).node(operator, "x", "y", vec![int("keepdims", 0)]);
        model.output("y").run(&[]).remove(0).to_numbers()
    };
    assert_eq!([of("ReduceMax", &truths(&[0.0, 1.0])), of("ReduceMin", &truths(&[0.0, 1.0]))], [[1.0], [0.0]]);
    assert_eq!([of("ReduceMax", &truths(&[])), of("ReduceMin", &truths(&[]))], [[0.0], [1.0]]);
}
