//! Tests of footprints, by hand and by enumeration.

use std::collections::BTreeSet;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::super::footprint::Region;
use crate::affine::{Affine, VarId};
use crate::machine::cpu::LINE_BYTES;
use crate::program::{Access, BufferId};

fn row_major(shape: &[usize]) -> Vec<i64> {
    (0..shape.len()).map(|dim| shape[dim + 1..].iter().product::<usize>() as i64).collect()
}

fn at(index: &[Affine]) -> Access {
    Access { buffer: BufferId(0), index: index.to_vec().into() }
}

#[test]
fn overlapping_windows_are_counted_once() {
    let elements = |stride: i64, window: usize, tiles: usize| {
        let (o, k) = (VarId(0), VarId(1));
        let access = at(&[Affine::constant(0), Affine::var(o) * stride + Affine::var(k)]);
        let mut region = Region::new(&[64, 1], 4, &access);
        region.widen(k, window);
        region.widen(o, tiles);
        region.elements()
    };
    assert_eq!(elements(1, 3, 14), 16.0);
    assert_eq!(elements(2, 3, 7), 15.0);
    assert_eq!(elements(2, 1, 7), 7.0);
    assert_eq!(elements(4, 2, 7), 14.0);
}

#[test]
fn rows_four_kibibytes_apart_share_a_set() {
    let lines_per_set = |columns: i64, rows: usize, touched: usize| {
        let (r, v) = (VarId(0), VarId(1));
        let access = at(&[Affine::var(r), Affine::var(v)]);
        let mut region = Region::new(&[columns, 1], 4, &access);
        region.widen(v, touched);
        region.widen(r, rows);
        region.lines_per_set()
    };
    assert_eq!(lines_per_set(1024, 12, 1024), 12.0, "a dense block of 12 rows of 64 lines, over 64 sets");
    assert_eq!(lines_per_set(1024, 32, 16), 32.0, "a line of each row, all in one set");
    assert_eq!(lines_per_set(1040, 32, 16), 1.0, "a line of each row, each in a set of its own");
}

/// Compares elements and lines of random two-level tilings of a tensor with an enumeration.
#[test]
fn footprints_agree_with_enumeration() {
    for seed in 0..1000 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let shape = [rng.random_range(1..6), rng.random_range(1..20), rng.random_range(1..80)];
        // Each index is `step * outer + inner`: windows that overlap or abut, or single elements
        // with gaps between them.
        let (mut index, mut loops) = (Vec::new(), Vec::new());
        for &size in &shape {
            let inner = rng.random_range(1..=size.min(8));
            let step = rng.random_range(1..=if inner == 1 { 8 } else { inner });
            let outer = (size - inner) / step + 1;
            let (o, i) = (VarId(loops.len() as u32), VarId(loops.len() as u32 + 1));
            index.push(Affine::var(o) * step as i64 + Affine::var(i));
            loops.extend([(o, outer), (i, inner)]);
        }

        let (access, strides) = (at(&index), row_major(&shape));
        let mut region = Region::new(&strides, 4, &access);
        loops.iter().rev().for_each(|&(var, extent)| region.widen(var, extent));

        let mut addresses = BTreeSet::new();
        let total: usize = loops.iter().map(|l| l.1).product();
        for mut rest in 0..total {
            let values: Vec<i64> = loops.iter().map(|l| ((rest % l.1) as i64, rest /= l.1).0).collect();
            let flat: i64 = index.iter().zip(&strides).map(|(a, &s)| a.eval(|v| values[v.0 as usize]) * s).sum();
            addresses.insert(flat);
        }
        assert_eq!(region.elements(), addresses.len() as f64, "seed {seed}");

        let lines = |offset: i64| {
            let lines: BTreeSet<i64> = addresses.iter().map(|a| (a + offset) / 16).collect();
            lines.len() as f64
        };
        let (fewest, most) = (0..16).map(lines).fold((f64::MAX, 0.0f64), |(low, high), n| (low.min(n), high.max(n)));
        let found = region.blocks(LINE_BYTES);
        assert!(
            (fewest * 0.8..=most * 1.3).contains(&found),
            "seed {seed}: {found} lines, {fewest} to {most} by enumeration"
        );
    }
}
