//! Random tensors, and iteration over shapes.
#![allow(dead_code, clippy::unwrap_used)]

#[path = "../../../workloads/tests/common/cases.rs"]
#[allow(unreachable_pub)]
pub(crate) mod cases;
pub(crate) mod graphs;
pub(crate) mod random_graphs;

use autotune_graph::Tensor;
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

pub(crate) fn rng(seed: u64) -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(seed)
}

/// Returns random numbers from -2 to 2.
pub(crate) fn numbers(rng: &mut impl Rng, shape: &[usize]) -> Tensor {
    let count = shape.iter().product();
    Tensor::f32(shape, (0..count).map(|_| rng.random_range(-2.0..2.0)).collect()).unwrap()
}

/// Returns a random number from a range.
pub(crate) fn any(rng: &mut impl Rng, range: std::ops::RangeInclusive<usize>) -> usize {
    rng.random_range(range)
}

/// Returns every index of a shape, in order.
pub(crate) fn indices(shape: &[usize]) -> Vec<Vec<usize>> {
    let mut all = vec![Vec::new()];
    for &extent in shape {
        all = all.iter().flat_map(|index: &Vec<usize>| (0..extent).map(move |i| [&index[..], &[i]].concat())).collect();
    }
    all
}

/// Returns the element at an index; none if that is out of range.
pub(crate) fn at(tensor: &Tensor, index: &[i64]) -> Option<f64> {
    let index: Option<Vec<usize>> = index.iter().map(|&i| usize::try_from(i).ok()).collect();
    tensor.as_f32().unwrap().get(&index?[..]).map(|&x| x.into())
}

/// Creates a tensor from a function of the index.
pub(crate) fn made(shape: &[usize], of: impl Fn(&[i64]) -> f64) -> Tensor {
    let index = |index: Vec<usize>| index.into_iter().map(|i| i as i64).collect::<Vec<_>>();
    Tensor::f32(shape, indices(shape).into_iter().map(|i| of(&index(i)) as f32).collect()).unwrap()
}

/// Fails unless two tensors have the same shape and nearly the same numbers.
pub(crate) fn assert_near(found: &Tensor, wanted: &Tensor, what: &str) {
    assert_eq!((found.shape(), found.dtype()), (wanted.shape(), wanted.dtype()), "{what}");
    let (Some(a), Some(b)) = (found.as_f32(), wanted.as_f32()) else {
        return assert_eq!(found, wanted, "{what}");
    };
    for (index, (&a, &b)) in a.iter().zip(b).enumerate() {
        let is_near = a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= 2e-6 * a.abs().max(b.abs()).max(1.0);
        assert!(is_near, "{what}: {a} instead of {b} at {index} of {:?}", found.shape());
    }
}
