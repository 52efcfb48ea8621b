//! Footprints, by hand and by enumeration.

use std::collections::BTreeSet;

use autotune_ir::program::LoopKind::Serial;
use autotune_ir::program::{Loop, Role, Scope};
use autotune_ir::{Affine, VarId};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::programs::{Builder, Gemm, at, close, count, gemm, target, zero};
use crate::features::extract;
use crate::features::footprint::{LINE_BYTES, Region};
use crate::features::nest::Nest;

#[test]
fn overlapping_windows_are_counted_once() {
    let mut b = Builder::new("matmul:m=4,n=4,k=4", &[]);
    let buffer = b.buffer(Role::Input, Scope::Global, &[64, 64]);
    let elements = |stride: i64, window: usize, tiles: usize| {
        let nest = Nest::new(&b.program);
        let (o, k) = (VarId(0), VarId(1));
        let access = at(buffer, &[zero(), Affine::var(o) * stride + Affine::var(k)]);
        let mut region = Region::new(&nest, &access);
        region.widen(&Loop { var: k, extent: window, kind: Serial, body: Vec::new() });
        region.widen(&Loop { var: o, extent: tiles, kind: Serial, body: Vec::new() });
        region.elements()
    };
    assert_eq!(elements(1, 3, 14), 16.0);
    assert_eq!(elements(2, 3, 7), 15.0);
    assert_eq!(elements(2, 1, 7), 7.0);
    assert_eq!(elements(4, 2, 7), 14.0);
}

#[test]
fn rows_four_kibibytes_apart_share_a_set() {
    let lines_per_set = |k| {
        let row = extract(&gemm(Gemm { m: 12, n: 16, k, rows: 12, columns: 16 }), &target(1));
        count(&row, "lines_per_set.tile.data.log2_count")
    };
    // 12 rows of k elements are one dense block: k/16 lines each over 64 sets.
    close(lines_per_set(1024), 12.0, "dense rows");

    let mut b = Builder::new("matmul:m=4,n=4,k=4", &[]);
    let wide = b.buffer(Role::Input, Scope::Global, &[64, 1024]);
    let odd = b.buffer(Role::Input, Scope::Global, &[64, 1040]);
    let nest = Nest::new(&b.program);
    let tall = |buffer| {
        let (r, v) = (VarId(0), VarId(1));
        let access = at(buffer, &[Affine::var(r), Affine::var(v)]);
        let mut region = Region::new(&nest, &access);
        region.widen(&Loop { var: v, extent: 16, kind: Serial, body: Vec::new() });
        region.widen(&Loop { var: r, extent: 32, kind: Serial, body: Vec::new() });
        region.lines_per_set()
    };
    assert_eq!(tall(wide), 32.0);
    assert_eq!(tall(odd), 1.0);
}

/// Random two-level tilings of a plane: elements and lines by enumeration.
#[test]
fn footprints_agree_with_enumeration() {
    for seed in 0..1000 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let shape = [rng.random_range(1..6), rng.random_range(1..20), rng.random_range(1..80)];
        let mut b = Builder::new("matmul:m=4,n=4,k=4", &[]);
        let buffer = b.buffer(Role::Input, Scope::Global, &shape);
        // Each index is `step * outer + inner`: windows that overlap or abut, or single elements with gaps.
        let (mut index, mut loops) = (Vec::new(), Vec::new());
        for &size in &shape {
            let inner = rng.random_range(1..=size.min(8));
            let step = rng.random_range(1..=if inner == 1 { 8 } else { inner });
            let outer = (size - inner) / step + 1;
            let (o, i) = (VarId(loops.len() as u32), VarId(loops.len() as u32 + 1));
            index.push(Affine::var(o) * step as i64 + Affine::var(i));
            loops.extend([outer, inner].map(|extent| Loop { var: VarId(0), extent, kind: Serial, body: Vec::new() }));
        }
        loops.iter_mut().enumerate().for_each(|(i, l)| l.var = VarId(i as u32));
        let access = at(buffer, &index);
        let nest = Nest::new(&b.program);
        let mut region = Region::new(&nest, &access);
        loops.iter().rev().for_each(|l| region.widen(l));

        let mut addresses = BTreeSet::new();
        let strides = b.program.buffer(buffer).strides();
        let total: usize = loops.iter().map(|l| l.extent).product();
        for mut rest in 0..total {
            let values: Vec<i64> = loops.iter().map(|l| ((rest % l.extent) as i64, rest /= l.extent).0).collect();
            let flat: i64 = index.iter().zip(&strides).map(|(a, &s)| a.eval(|v| values[v.0 as usize]) * s as i64).sum();
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
