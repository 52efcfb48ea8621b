//! Tests of the analysis against figures computed by hand.

mod regions;

use super::{busiest_thread, pieces};

#[test]
fn vectors_split_into_powers_of_two() {
    assert_eq!([8, 16, 24, 12, 7, 1, 31].map(|extent| pieces(extent, 8)), [1, 2, 3, 2, 3, 1, 6]);
}

#[test]
fn threads_are_as_slow_as_the_busiest() {
    assert_eq!(busiest_thread(&[(4.0, 400.0)], 2), 200.0);
    assert_eq!(busiest_thread(&[(4.0, 400.0)], 3), 200.0);
    assert_eq!(busiest_thread(&[(1.0, 70.0)], 4), 70.0);
    assert_eq!(busiest_thread(&[(3.0, 300.0), (1.0, 20.0)], 2), 200.0);
}
