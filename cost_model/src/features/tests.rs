//! Features compared with values computed by hand.

mod any_program;
pub(super) mod programs;

use autotune_ir::{CpuTarget, Target};

use super::{FEATURE_COUNT, extract, names};
use programs::{Gemm, SMALL, close, column, count, gemm, padded_conv, target};

#[test]
fn names_are_unique_plain_words() {
    assert_eq!(names().len(), FEATURE_COUNT);
    assert!((100..=240).contains(&FEATURE_COUNT), "{FEATURE_COUNT} columns");
    let mut sorted: Vec<&String> = names().iter().collect();
    sorted.sort();
    sorted.dedup();
    assert_eq!(sorted.len(), FEATURE_COUNT);
    for name in names() {
        assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || c == '.' || c == '_'), "{name}");
    }
}

#[test]
fn register_tile_of_a_packed_matmul() {
    let row = extract(&gemm(SMALL), &target(1));
    close(count(&row, "vector.extent.log2_elements"), 16.0, "extent");
    close(column(&row, "vector.class.code"), 1.0, "columns of the weight are vectorised");
    close(column(&row, "vector.lane_use.ratio"), 1.0, "lanes");

    close(column(&row, "register.accumulators.vectors"), 12.0, "6 rows of 2 vectors");
    close(column(&row, "register.free.vectors"), 1.0, "16 less 12 accumulators, 2 weights, 1 broadcast");
    close(column(&row, "register.vector_loads.per_fma"), 2.0 / 12.0, "weights");
    close(column(&row, "register.broadcasts.per_fma"), 6.0 / 12.0, "data");
    close(count(&row, "register.unrolled.log2_steps"), 1.0, "k is serial");
    close(count(&row, "register.inner.log2_steps"), 16.0, "k");
    close(column(&row, "register.latency_hidden.ratio"), 1.0, "12 chains");
    close(column(&row, "register.in_memory.flag"), 0.0, "in registers");
    close(column(&row, "total.fmas.per_direct_fma"), 1.0, "no waste");

    for (part, expected) in [
        ("body.column", 16.0),
        ("body.row", 6.0),
        ("body.reduce", 1.0),
        ("tile.reduce", 16.0),
        ("cache.column", 2.0),
        ("parallel.row", 4.0),
        ("parallel.reduce", 1.0),
    ] {
        close(count(&row, &format!("iterations.{part}.log2_count")), expected, part);
    }
    for (slot, extent, kind) in [(0, 16.0, 1.0), (1, 2.0, 2.0), (2, 4.0, 3.0), (3, 0.0, 0.0)] {
        close(count(&row, &format!("loop.{slot}.extent.log2_count")), extent, "extent");
        close(column(&row, &format!("loop.{slot}.kind.code")), kind, "kind");
    }

    close(count(&row, "loop.1.data_reuse.log2_count"), 2.0, "both panels read the same rows");
    close(count(&row, "loop.1.weight_reuse.log2_count"), 1.0, "each panel is read once");
    close(count(&row, "loop.2.weight_reuse.log2_count"), 4.0, "every row tile reads all panels");
}

#[test]
fn footprints_of_a_packed_matmul() {
    let row = extract(&gemm(SMALL), &target(1));
    // A line has 16 elements; a row of A fills one line, a row of C two.
    for (point, lines, reuse) in [
        ("data.body", 6, 96.0 / 6.0),
        ("weight.body", 1, 96.0 / 16.0),
        ("output.body", 0, 0.0),
        ("data.tile", 6, 1536.0 / 96.0),
        ("weight.tile", 16, 1536.0 / 256.0),
        ("output.tile", 6, 1536.0 / 96.0),
        ("data.task", 6, 3072.0 / 96.0),
        ("weight.task", 32, 3072.0 / 512.0),
        ("output.task", 12, 3072.0 / 192.0),
    ] {
        close(count(&row, &format!("footprint.{point}.log2_bytes")), 64.0 * f64::from(lines), point);
        close(count(&row, &format!("reuse.{point}.log2_fmas_per_element")), reuse, point);
    }
    close(count(&row, "loop.0.working_set.log2_bytes"), 64.0 * 28.0, "one register tile");
    close(count(&row, "loop.1.working_set.log2_bytes"), 64.0 * 50.0, "one row of tiles");
    close(count(&row, "loop.2.working_set.log2_bytes"), 64.0 * 104.0, "everything");
    close(column(&row, "line_use.data.ratio"), 1.0, "lines are used whole");
    close(count(&row, "pages.task.weight.log2_count"), 1.0, "2 KiB");
}

#[test]
fn traffic_follows_the_first_loop_that_does_not_fit() {
    let traffic = |l1d_bytes: usize| {
        let cpu = CpuTarget { l1d_bytes, ..CpuTarget::generic_avx2(1) };
        let row = extract(&gemm(SMALL), &Target::Cpu(cpu));
        let flops = 2.0 * 24.0 * 32.0 * 16.0;
        ["data", "weight", "output"].map(|o| column(&row, &format!("traffic.l1.{o}.bytes_per_flop")) * flops / 64.0)
    };
    let expect = |l1_bytes, lines: [f64; 3]| {
        traffic(l1_bytes).iter().zip(lines).for_each(|(&found, lines)| close(found, lines, &format!("{l1_bytes}")));
    };
    expect(32 << 10, [24.0, 32.0, 48.0]); // everything fits: each line once
    expect(4096, [24.0, 32.0, 48.0]); // a row of tiles fits, so the weights stay from row to row
    expect(2048, [24.0, 128.0, 48.0]); // only a tile fits: each of 4 rows of tiles reads all weights again
    expect(1024, [48.0, 128.0, 48.0]); // only a step fits: each panel reads the data again
}

#[test]
fn remainders_are_counted() {
    let row = extract(&gemm(Gemm { m: 27, ..SMALL }), &target(1));
    close(count(&row, "total.mac_leaves.log2_count"), 2.0, "main and remainder");
    close(count(&row, "total.trees.log2_count"), 2.0, "main and remainder");
    close(column(&row, "total.dominant_leaf.share"), 24.0 / 27.0, "dominant");
    close(column(&row, "total.fmas.per_direct_fma"), 1.0, "covered once");
    close(count(&row, "parallel.tasks.log2_count"), 5.0, "4 and 1");
    close(column(&row, "total.stores.per_output"), 1.0, "stored once");
}

#[test]
fn lanes_left_idle_are_counted() {
    let row = extract(&gemm(Gemm { n: 24, columns: 12, ..SMALL }), &target(1));
    close(column(&row, "vector.lane_use.ratio"), 12.0 / 16.0, "8 and 4 of 8");
    close(column(&row, "register.accumulators.vectors"), 12.0, "6 rows of 2 pieces");
    close(column(&row, "total.lane_use.ratio"), 0.75, "all leaves alike");
    close(column(&row, "total.partial_vectors.share"), 1.0, "all leaves alike");
}

#[test]
fn a_wider_register_tile_is_estimated_faster_until_it_spills() {
    let estimate = |rows| {
        let row = extract(&gemm(Gemm { m: 120, n: 32, k: 512, rows, columns: 16 }), &target(1));
        column(&row, "estimate.compute.per_peak")
    };
    assert!(estimate(1) > estimate(2) && estimate(2) > estimate(4) && estimate(4) > estimate(6));
    assert!(estimate(6) < estimate(10), "20 accumulators do not fit 16 registers");
}

#[test]
fn copies_and_memory_accumulators_are_seen() {
    let row = extract(&padded_conv(8, 14, 16), &target(2));
    let flops = 2.0 * 16.0 * 14.0 * 14.0 * 8.0 * 9.0;
    close(column(&row, "total.global_copies.bytes_per_flop"), 2.0 * 4.0 * 8.0 * 196.0 / flops, "one load, one store");
    close(column(&row, "parallel.stages.count"), 2.0, "copy and compute");
    close(column(&row, "register.in_memory.flag"), 1.0, "partial sums in memory");
    close(column(&row, "vector.class.code"), 2.0, "rows of the data are vectorised");
    close(column(&row, "vector.lane_use.ratio"), 14.0 / 24.0, "8, 4 and 2 of 8");
    close(count(&row, "register.unrolled.log2_steps"), 9.0, "3x3");
    // One step of `c` reads 3 rows of 16 elements of the padded data and 9 weights, and updates one
    // row of the output.
    close(count(&row, "reuse.data.body.log2_fmas_per_element"), 9.0 * 14.0 / 48.0, "data");
    close(count(&row, "reuse.weight.body.log2_fmas_per_element"), 14.0, "weight");
    // The padded buffer counts as the data operand, although its role is `Packed`.
    close(count(&row, "footprint.data.task.log2_bytes"), 4.0 * 8.0 * 256.0, "one task reads all of it");
}

#[test]
fn threads_are_as_slow_as_the_busiest() {
    let row = extract(&gemm(Gemm { m: 18, ..SMALL }), &target(2));
    close(column(&row, "parallel.imbalance.ratio"), 4.0 / 3.0, "3 tasks, 2 threads");
}

#[test]
fn the_column_of_the_estimate_is_an_estimate() {
    for (word, name) in [("cpu", "estimate.sum.log2_per_peak"), ("cuda:sm_90", "gpu.estimate.run.log2_per_peak")] {
        let target = autotune_ir::Target::detect(word, None).unwrap();
        assert_eq!(super::names()[super::estimate_column(&target)], name);
    }
}
