//! Loop nests and C sources of a few schedules against files under `tests/golden`, refreshed by `UPDATE_GOLDEN=1`.

#![allow(clippy::unwrap_used)]

mod common;

use autotune_codegen::c;
use autotune_ir::{CpuTarget, Target};
use autotune_schedules::{Config, ScheduleSpace, Value, Workload, lower};
use common::assert_golden;

fn golden(name: &str, workload: &str, changes: &[(&str, Value)]) {
    let target = Target::Cpu(CpuTarget::generic_avx2(1));
    let workload: Workload = workload.parse().unwrap();
    let config = ScheduleSpace::new(&workload, &target).default_config();
    golden_of(name, &workload, &target, config, changes);
}

fn golden_of(name: &str, workload: &Workload, target: &Target, mut config: Config, changes: &[(&str, Value)]) {
    for (knob, value) in changes {
        assert!(config.knobs.insert(knob.to_string(), value.clone()).is_some(), "no knob {knob}");
    }
    let program = lower(workload, target, &config).unwrap();
    assert_golden(&format!("{name}.txt"), &program.to_string());
    assert_golden(&format!("{name}.c"), &c::generate(&program, target));
}

#[test]
fn conv2d_in_place_peels_padding() {
    golden("conv2d_inplace", "conv2d:c=8,h=5,w=7,o=8,k=3,p=1,bias,act=relu", &[]);
}

#[test]
fn conv2d_copies_tiles_and_splits_the_reduction() {
    golden(
        "conv2d_tile",
        "conv2d:c=16,h=6,w=6,o=10,k=3,p=1",
        &[
            ("layout.in", Value::Choice("plain".into())),
            ("data", Value::Choice("tile".into())),
            ("tile.c", Value::Tile(vec![8])),
            ("tile.oh", Value::Tile(vec![4, 2])),
            ("tile.ow", Value::Tile(vec![6, 3])),
        ],
    );
}

#[test]
fn strided_conv2d_packs_panels() {
    golden(
        "conv2d_panel",
        "conv2d:c=3,h=6,w=37,o=20,k=3,s=2,p=1",
        &[
            ("data", Value::Choice("panel".into())),
            ("vector", Value::Choice("ow".into())),
            ("tile.o", Value::Tile(vec![20, 5])),
            ("tile.oh", Value::Tile(vec![2, 1])),
            ("tile.ow", Value::Tile(vec![24, 8])),
            ("order", Value::Order(["oh", "ow", "c", "o"].map(String::from).to_vec())),
        ],
    );
}

#[test]
fn matmul_has_remainders() {
    golden("matmul_remainders", "matmul:m=5,n=19,k=6", &[("tile.m", Value::Tile(vec![2, 2]))]);
}

#[test]
fn what_follows_sums_is_fused_behind_the_register_tile() {
    golden("matmul_epilogue", "matmul:m=3,n=11,k=4,tb,scale,bias,add,act=prelu", &[]);
    golden("matmul_clip", "matmul:m=2,n=8,k=4,ta,weights=data,act=clip:0:6", &[]);
}

#[test]
fn fused_contractions_keep_what_is_between_in_chunks() {
    golden(
        "separable_conv2d",
        "separable_conv2d:c=16,h=6,w=5,o=12,k=3,p=1,mid=relu,mid_bias,bias",
        &[
            ("tile.c", Value::Tile(vec![8])),
            ("tile.oh", Value::Tile(vec![2])),
            ("first.tile.oh", Value::Tile(vec![1])),
            ("first.unroll", Value::Choice("1".into())),
        ],
    );
}

#[test]
fn pooling_goes_by_blocks_of_channels_and_peels_padding() {
    golden("pool2d_blocked", "pool2d:c=16,h=7,w=15,k=3,s=2,p=1,kind=max", &[]);
}

#[test]
fn winograd_peels_tiles_at_the_borders() {
    let target = Target::Cpu(CpuTarget::generic_avx2(1));
    let workload: Workload = "conv2d:c=16,h=6,w=5,o=24,k=3,p=1,bias,act=relu".parse().unwrap();
    let config = serde_json::from_str(
        r#"{"sketch":"winograd","knobs":{"m":"2","tile.th":[1],"tile.tw":[3],"tile.register":[2,16],"tile.o":[24],
            "input":"fused","unroll":"2","prefetch":"4096"}}"#,
    );
    golden_of("winograd", &workload, &target, config.unwrap(), &[]);
}
