//! CUDA text of loops over chunks for tensor cores: what copies have in common is computed before
//! the loop, and digits of unrolled chunks take no division.

use autotune_codegen::gpu;
use autotune_ir::GpuApi;
use autotune_schedules::lower;
use autotune_workloads::Workload;

use crate::common::pipelines::{config, target};

/// Returns the loop over chunks in the source of a schedule, and what is before it.
fn loop_over_chunks(text: &str, knobs: &str) -> [String; 2] {
    let workload: Workload = text.parse().unwrap();
    let program =
        lower(&workload, &target(), &config(&workload, &format!("tile.m=32x16 tile.n=32x16 {knobs}"))).unwrap();
    let source = gpu::generate(&program, GpuApi::Cuda { sm: 80 });
    let compute = &source[source.find("autotune_compute(").unwrap()..];
    let start = compute.find("for (int q_").unwrap();
    let end = start + compute[start..].find("\n  }\n").unwrap();
    [compute[..start].into(), compute[start..end].into()]
}

/// Returns a text without the numbers of its variables.
fn without_numbers(text: &str) -> String {
    let mut plain = String::new();
    for part in text.split_inclusive(['_', '[']) {
        plain += part.trim_start_matches(|c: char| plain.ends_with('_') && c.is_ascii_digit());
    }
    plain
}

#[test]
fn addresses_and_conditions_of_copies_are_computed_before_their_loop() {
    for (text, knobs, bits) in [
        // Rows and columns of a kernel have bits, also with strides, dilation and groups.
        ("conv2d:c=64,h=56,w=56,o=64,k=3,p=1,dtype=f16", "tile.k=64 stages=3", "1u << kh_ | 8u << kw_"),
        ("conv2d:n=2,c=64,h=30,w=30,o=64,k=3,s=2,p=2,d=2,g=2,dtype=f16", "tile.k=32 stages=3", "1u << kh_ | 8u << kw_"),
        ("conv2d:c=32,h=28,w=28,o=64,k=5,p=2,dtype=tf32", "tile.k=32 stages=2", "1u << kh_ | 32u << kw_"),
        // Without padding, only pixels after the last are outside.
        ("conv2d:c=128,h=9,w=9,o=64,k=1,dtype=bf16", "tile.k=32 stages=2", "1u"),
        // Each copy checks positions in a kernel of many.
        ("conv2d:c=32,h=28,w=28,o=64,k=9,p=4,dtype=f16", "tile.k=32 stages=3", "1u"),
        ("matmul:m=128,n=128,k=512,tb,dtype=f16", "tile.k=32 stages=4 weights=inplace", ""),
    ] {
        let [before, inside] = loop_over_chunks(text, knobs);
        assert!(inside.contains("; ++u_"), "{text}: {inside}");
        let copies: Vec<&str> = inside.lines().filter(|line| line.contains("copy_async<")).collect();
        assert_eq!(copies.len(), 2, "{text}: {inside}");
        assert!(copies.iter().all(|copy| copy.contains("(to") && copy.contains("from")), "{text}: {copies:?}");
        assert!(before.contains("kept("), "{text}: {before}");

        let data = without_numbers(copies[0]);
        assert_eq!(data.contains("outside"), !bits.is_empty(), "{text}: {data}");
        assert!(bits.is_empty() || data.contains(&format!("], {bits})")), "{text}: {data}");
        // Conditions without bits stay in the loop.
        assert_eq!(data.contains("(unsigned)"), text.contains("k=9"), "{text}: {data}");
    }
}

#[test]
fn multiples_of_a_digit_are_not_divided() {
    let [_, inside] = loop_over_chunks("conv2d:c=64,h=56,w=56,o=64,k=3,p=1,dtype=f16", "tile.k=64 stages=3");
    // Chunks `3*q + u + 2` and `3*q + u`: the slot, and the column of the kernel, of each.
    let starts: Vec<&str> = inside.lines().filter(|line| line.contains("int e") && line.contains("= u_")).collect();
    assert_eq!(starts.len(), 4, "{inside}");
    assert!(starts.iter().all(|line| !line.contains("q_")), "{starts:?}");
}
