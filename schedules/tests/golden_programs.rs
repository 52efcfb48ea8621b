//! Loop nests of a few schedules against files under `tests/golden`, which `UPDATE_GOLDEN=1`
//! refreshes. For each feature of the code generators there is one kernel in C, without the text
//! that precedes every kernel.

use autotune_codegen::{c, gpu};
use autotune_ir::{CpuTarget, GpuApi, Program, Target};
use autotune_schedules::{Config, KnobValue, ScheduleSpace, lower};
use autotune_workloads::Workload;

use crate::common::golden::assert_golden;

fn cpu() -> Target {
    Target::Cpu(CpuTarget::generic_avx2(1))
}

/// Returns the program of the default with other values of some knobs.
fn program(workload: &str, target: &Target, changes: &[(&str, KnobValue)]) -> Program {
    let workload: Workload = workload.parse().unwrap();
    let mut config = ScheduleSpace::new(&workload, target).default_config();
    for (knob, value) in changes {
        assert!(config.knobs.insert(knob.to_string(), value.clone()).is_some(), "no knob {knob}");
    }
    lower(&workload, target, &config).unwrap()
}

fn golden(name: &str, workload: &str, changes: &[(&str, KnobValue)]) -> Program {
    let program = program(workload, &cpu(), changes);
    assert_golden(&format!("{name}.txt"), &program.to_string());
    program
}

/// Compares the program and its kernels in C.
fn golden_c(name: &str, workload: &str, changes: &[(&str, KnobValue)]) {
    let program = golden(name, workload, changes);
    let (prelude, kernels) = parts(&c::generate(&program, &cpu()));
    assert_golden(&format!("{name}.c"), &kernels);

    let (all, _) = parts(&c::generate(&with_functions(), &cpu()));
    let missing = prelude.lines().find(|line| all.lines().all(|known| known != *line));
    assert_eq!(missing, None, "in front of {name}, but not in prelude.c");
}

/// Splits a source into the text before the first kernel, and the kernels.
fn parts(source: &str) -> (String, String) {
    let is_kernel = |line: &&str| line.starts_with("LEAF ") || line.starts_with("void ");
    let prelude: String = source.split_inclusive('\n').take_while(|line| !is_kernel(line)).collect();
    let kernels = source[prelude.len()..].to_string();
    (prelude, kernels)
}

/// Returns a program that uses functions of elements. The text before its kernels includes that of
/// the other programs.
fn with_functions() -> Program {
    program("matmul:m=2,n=8,k=4,ta,weights=data,act=clip:0:6", &cpu(), &[])
}

#[test]
fn prelude_of_kernels_in_c() {
    assert_golden("prelude.c", &parts(&c::generate(&with_functions(), &cpu())).0);
}

/// Compares the loop nest for a GPU.
fn golden_gpu(name: &str, workload: &str, changes: &[(&str, KnobValue)]) -> Program {
    let program = program(workload, &Target::detect("cuda:sm_80", None).unwrap(), changes);
    assert_golden(&format!("{name}.txt"), &program.to_string());
    program
}

fn word(word: &str) -> KnobValue {
    KnobValue::Choice(word.into())
}

/// Knob values of the fused sketch on GPUs that give short kernels.
fn plain() -> [(&'static str, KnobValue); 7] {
    [
        ("stages", word("1")),
        ("first.vector.data", word("1")),
        ("first.vector.weight", word("1")),
        ("second.vector.weight", word("1")),
        ("threads.row", word("4")),
        ("pad", word("0")),
        ("unroll", word("1")),
    ]
}

#[test]
fn attention_keeps_scores_in_the_block() {
    let changes = [
        ("tile.m", KnobValue::Tile(vec![8, 8, 1])),
        ("tile.n", KnobValue::Tile(vec![2, 1])),
        ("tile.d", KnobValue::Tile(vec![2])),
        ("first.tile.k", KnobValue::Tile(vec![4])),
        ("second.tile.n", KnobValue::Tile(vec![4])),
    ];
    let changes = [&plain()[..], &changes].concat();
    let program = golden_gpu("attention", "attention:b=2,m=6,n=22,k=4,d=10,mask=row", &changes);
    assert_golden("attention.cu", &gpu::generate(&program, GpuApi::Cuda { sm: 80 }));
    assert_golden("attention.cl", &gpu::generate(&program, GpuApi::OpenCl));
}

#[test]
fn products_keep_what_is_between_in_shared_memory() {
    let changes = [
        ("between", word("shared")),
        ("tile.m", KnobValue::Tile(vec![8, 8, 1])),
        ("tile.h", KnobValue::Tile(vec![2, 1])),
        ("tile.n", KnobValue::Tile(vec![1])),
        ("first.tile.k", KnobValue::Tile(vec![4])),
        ("second.tile.h", KnobValue::Tile(vec![8])),
    ];
    golden_gpu("mlp", "mlp:m=8,n=7,k=8,h=20,mid=relu,mid_bias", &[&plain()[..], &changes].concat());
}

#[test]
fn transposed_convolutions_pack_weights_by_phases() {
    let target = Target::detect("opencl", None).unwrap();
    let workload: Workload = "conv_transpose2d:c=4,h=3,w=4,o=6,k=3,s=2,p=1,op=1".parse().unwrap();
    let config = ScheduleSpace::new(&workload, &target).default_config();
    let program = lower(&workload, &target, &config).unwrap().to_string();
    let packing = program.lines().skip_while(|line| !line.starts_with("stage pack_weight")).take(5);
    assert_golden("conv_transpose2d_packing.txt", &packing.map(|line| format!("{line}\n")).collect::<String>());
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
            ("layout.in", KnobValue::Choice("plain".into())),
            ("data", KnobValue::Choice("tile".into())),
            ("tile.c", KnobValue::Tile(vec![8])),
            ("tile.oh", KnobValue::Tile(vec![4, 2])),
            ("tile.ow", KnobValue::Tile(vec![6, 3])),
        ],
    );
}

#[test]
fn strided_conv2d_packs_panels() {
    golden(
        "conv2d_panel",
        "conv2d:c=3,h=6,w=37,o=20,k=3,s=2,p=1",
        &[
            ("data", KnobValue::Choice("panel".into())),
            ("vector", KnobValue::Choice("ow".into())),
            ("tile.o", KnobValue::Tile(vec![20, 5])),
            ("tile.oh", KnobValue::Tile(vec![2, 1])),
            ("tile.ow", KnobValue::Tile(vec![24, 8])),
            ("order", KnobValue::Order(["oh", "ow", "c", "o"].map(String::from).to_vec())),
        ],
    );
}

#[test]
fn matmul_has_remainders() {
    golden_c("matmul_remainders", "matmul:m=5,n=19,k=6", &[("tile.m", KnobValue::Tile(vec![2, 2]))]);
}

#[test]
fn rows_of_a_matrix_from_memory_are_prefetched() {
    golden_c("matmul_prefetch", "matmul:m=2,n=4096,k=4096,weights=data", &[("prefetch", word("1"))]);
}

#[test]
fn maps_of_sums_are_fused_after_the_register_tile() {
    golden_c("matmul_epilogue", "matmul:m=3,n=11,k=4,tb,scale,bias,add,act=prelu", &[]);
    golden("matmul_clip", "matmul:m=2,n=8,k=4,ta,weights=data,act=clip:0:6", &[]);
}

#[test]
fn fused_contractions_keep_what_is_between_in_chunks() {
    golden(
        "separable_conv2d",
        "separable_conv2d:c=16,h=6,w=5,o=12,k=3,p=1,mid=relu,mid_bias,bias",
        &[
            ("tile.c", KnobValue::Tile(vec![8])),
            ("tile.oh", KnobValue::Tile(vec![2])),
            ("first.tile.oh", KnobValue::Tile(vec![1])),
            ("first.unroll", KnobValue::Choice("1".into())),
        ],
    );
}

#[test]
fn pooling_goes_by_blocks_of_channels_and_peels_padding() {
    golden_c("pool2d_separable", "pool2d:c=2,h=7,w=15,k=3,s=2,p=1,kind=max", &[]);
    golden("pool2d_blocked", "pool2d:c=16,h=7,w=15,k=3,s=2,p=1,kind=max", &[]);
}

#[test]
fn winograd_peels_tiles_at_the_borders() {
    let workload: Workload = "conv2d:c=16,h=6,w=5,o=24,k=3,p=1,bias,act=relu".parse().unwrap();
    let config: Config = serde_json::from_str(
        r#"{"sketch":"winograd","knobs":{"m":"2","tile.th":[1],"tile.tw":[3],"tile.register":[2,16],"tile.o":[24],
            "input":"fused","unroll":"2","prefetch":"4096"}}"#,
    )
    .unwrap();
    assert_golden("winograd.txt", &lower(&workload, &cpu(), &config).unwrap().to_string());
}
