//! Similarity of the shapes of workloads.

use autotune_ir::Spec;

use super::Epilogue;
use crate::axes::{Axes, WindowAxis, is_pair};

/// Distance for strides that differ by a factor of two along one axis. Extents that differ by a
/// factor of two have distance 1.
const STRIDE_WEIGHT: f32 = 1.0;
/// Distance for dilations that differ by a factor of two along one axis.
const DILATION_WEIGHT: f32 = 1.0;
/// Distance if only one of two workloads is padded along an axis.
const PADDED_WEIGHT: f32 = 0.5;
/// Distance if only one of two workloads has a part of the epilogue.
const EPILOGUE_WEIGHT: f32 = 0.1;

/// Returns the shape vector of a workload: binary logarithms of the extents, strides and dilations,
/// and 1 or 0 for padding. For two contractions it covers both.
pub(super) fn vector(spec: &Spec, epilogue: &Epilogue) -> Vec<f32> {
    let log = |count: i64| (count.max(1) as f32).log2();
    let pair = [&spec.equations[0], spec.equations.get(2).unwrap_or(spec.main())];
    let equations = if is_pair(spec) { &pair[..] } else { &[spec.main()] };
    let extents = equations.iter().flat_map(|equation| &equation.axes).map(|axis| log(axis.extent as i64));
    let windows = equations.iter().flat_map(|equation| Axes::of_equation(spec, equation).unwrap_or_default().windows);
    let windows: Vec<WindowAxis> = windows.collect();
    let steps = windows.iter().flat_map(|window| {
        let is_padded = f32::from(u8::from(window.pad > 0));
        [STRIDE_WEIGHT * log(window.stride), DILATION_WEIGHT * log(window.dilation), PADDED_WEIGHT * is_padded]
    });
    let parts = [epilogue.bias, epilogue.has_residuals()].map(|has| EPILOGUE_WEIGHT * f32::from(u8::from(has)));
    extents.chain(steps).chain(parts).collect()
}

/// Returns the L1 distance of two [shape vectors](super::Workload::shape_vector) of one operator;
/// infinity if their lengths differ.
pub fn shape_distance(a: &[f32], b: &[f32]) -> f32 {
    match a.len() == b.len() {
        true => a.iter().zip(b).map(|(a, b)| (a - b).abs()).sum(),
        false => f32::INFINITY,
    }
}

#[cfg(test)]
mod tests {
    use crate::Workload;

    fn distance(a: &str, b: &str) -> f32 {
        let [a, b]: [Workload; 2] = [a, b].map(|text| text.parse().unwrap());
        a.distance(&b)
    }

    #[test]
    fn the_more_two_shapes_differ_the_farther_they_are_from_each_other() {
        let from = "conv2d:c=64,h=56,w=56,o=64,k=3,p=1";
        let farther = [
            from,
            "conv2d:c=64,h=56,w=56,o=64,k=3,p=1,bias",
            "conv2d:c=64,h=56,w=48,o=64,k=3,p=1",
            "conv2d:c=64,h=56,w=28,o=64,k=3,p=1",
            "conv2d:c=64,h=56,w=56,o=64,k=1",
            "conv2d:c=64,h=56,w=56,o=64,k=3,p=1,g=64",
        ];
        let distances = farther.map(|to| distance(from, to));
        assert!(distances[0] == 0.0 && distances.is_sorted_by(|a, b| a < b), "{distances:?}");
        assert_eq!(distance("matmul:m=8,n=8,k=8", "matmul:m=16,n=4,k=8"), 2.0);
        assert_eq!(distance("matmul:m=8,n=8,k=8", from), f32::INFINITY);
    }

    #[test]
    fn extents_of_one_and_of_a_million_have_a_place() {
        for text in ["conv2d:c=1,h=1,w=1,o=1,k=1", "matmul:m=1,n=1,k=1048573", "matmul:b=3,m=1000003,n=1,k=1"] {
            let workload: Workload = text.parse().unwrap();
            assert!(workload.shape_vector().iter().all(|place| place.is_finite()), "{text}");
        }
    }
}
