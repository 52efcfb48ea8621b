//! CUDA C for tensor cores, run on the CPU with `common/cuda_shim.h`.
//!
//! Without a C++ compiler (`CXX` or `g++`), the test prints a notice and passes;
//! `AUTOTUNE_REQUIRE=g++` makes that a failure.

#![cfg(unix)]

use autotune_ir::{Program, verify};
use autotune_schedules::{Config, lower, tolerance};
use autotune_workloads::{Operands, Workload, max_rel_error, reference};

use crate::common::cuda_on_cpu::OnCpu;
use crate::common::missing;
use crate::common::pipelines::{config, faults, group_config, small_target};

/// Workloads with knobs for small blocks of several warps; other knobs have their defaults.
const CASES: [(&str, &str); 20] = [
    ("matmul:m=40,n=34,k=72,dtype=f16,bias,act=relu", "tile.m=32x16 tile.n=32x16 tile.k=16 stages=3 weights=packed"),
    ("matmul:b=2,m=33,n=24,k=40,dtype=bf16,add", "tile.m=32x32 tile.n=32x16 tile.k=16 stages=2 weights=inplace"),
    ("matmul:b=2,m=20,n=40,k=36,dtype=tf32", "tile.m=16x16 tile.n=32x16 tile.k=8 stages=4 weights=inplace"),
    ("matmul:m=32,n=32,k=192,dtype=tf32,bias", "tile.m=32x16 tile.n=32x32 tile.k=16 stages=3 weights=packed split=3"),
    ("conv2d:n=2,c=16,h=5,w=6,o=20,k=3,p=1,dtype=f16,bias,add", "tile.m=32x16 tile.n=32x16 tile.k=32 stages=3"),
    ("conv2d:c=6,h=9,w=7,o=12,k=3,s=2,p=1,g=2,dtype=tf32,act=relu", "tile.m=32x16 tile.n=16x16 tile.k=8 stages=4"),
    ("conv2d:n=2,c=5,h=4,w=4,o=7,k=1,dtype=bf16", "tile.m=32x16 tile.n=16x16 tile.k=16 stages=2"),
    ("matmul:m=33,n=24,k=40,tb,weights=data,dtype=f16,bias,act=gelu", "tile.m=32x32 tile.n=32x16 tile.k=16 stages=2"),
    ("matmul:m=40,n=34,k=72,tb,dtype=bf16,scale,act=prelu", "tile.m=32x16 tile.n=32x16 tile.k=16 stages=3"),
    ("matmul:m=40,n=34,k=72,ta,dtype=f16,bias", "tile.m=32x16 tile.n=32x16 tile.k=16 stages=3"),
    ("matmul:b=2,m=72,n=24,k=40,ta,tb,dtype=bf16,add", "tile.m=64x32 tile.n=32x16 tile.k=32 stages=2"),
    ("matmul:b=2,m=36,n=40,k=36,ta,dtype=tf32", "tile.m=32x32 tile.n=32x16 tile.k=16 stages=4"),
    ("conv2d:c=6,h=9,w=7,o=12,k=3,p=1,dtype=tf32,bias,act=hard_swish", "tile.m=32x16 tile.n=16x16 tile.k=8 stages=4"),
    (
        "conv_transpose2d:n=2,c=16,h=5,w=4,o=20,k=8,s=4,p=2,dtype=f16,bias",
        "tile.m=32x16 tile.n=16x16 tile.k=16 stages=3",
    ),
    ("matmul:b=2,m=33,n=24,k=40,weights=constant,dtype=bf16", "tile.m=32x16 tile.n=16x16 tile.k=16 stages=3"),
    // Padding, strides, dilation and groups, with incomplete chunks of channels and tiles of
    // pixels, and kernels of too many positions for a bit each. The loop over chunks is unrolled by
    // a row of positions, all of them, or not at all.
    ("conv2d:n=2,c=20,h=9,w=8,o=18,k=3,p=2,d=2,dtype=f16,bias", "tile.m=64x16 tile.n=32x16 tile.k=16 stages=3"),
    ("conv2d:c=24,h=11,w=10,o=24,k=5,s=2,p=2,g=3,dtype=bf16", "tile.m=32x16 tile.n=16x16 tile.k=16 stages=5"),
    ("conv2d:c=8,h=12,w=12,o=16,k=9,p=4,dtype=tf32", "tile.m=64x32 tile.n=16x16 tile.k=8 stages=2"),
    ("conv2d:n=3,c=76,h=7,w=7,o=16,k=3,s=3,p=1,dtype=f16", "tile.m=32x16 tile.n=16x16 tile.k=32 stages=2 split=3"),
    ("conv2d:n=2,c=40,h=6,w=4,o=24,kh=1,kw=3,p=1,dtype=f16,add", "tile.m=32x32 tile.n=32x16 tile.k=16 stages=4"),
];

/// Workloads with knobs for warp groups.
const GROUP_CASES: [(&str, &str); 8] = [
    ("matmul:m=130,n=40,k=392,dtype=f16,bias,act=relu", "tile.m=128x64 tile.n=32x32 stages=4"),
    ("matmul:m=128,n=48,k=192,dtype=bf16,add", "tile.m=128x128 tile.n=48x48 stages=3 split=3"),
    ("matmul:m=60,n=16,k=328,dtype=f16", "tile.m=64x64 tile.n=16x16 stages=5"),
    ("matmul:m=130,n=40,k=584,dtype=f16,bias,act=relu", "tile.m=128x64 tile.n=32x32 stages=4 producer=group"),
    ("matmul:m=128,n=48,k=384,dtype=bf16,add", "tile.m=128x128 tile.n=48x48 stages=3 split=3 producer=group"),
    ("matmul:m=180,n=64,k=520,dtype=f16,add", "tile.m=192x64 tile.n=64x64 stages=2 producer=group"),
    ("matmul:m=250,n=90,k=328,dtype=f16,add", "tile.m=128x64 tile.n=16x16 stages=3 producer=group grid=persistent"),
    ("matmul:m=60,n=16,k=328,tb,dtype=f16,scale,bias,act=tanh", "tile.m=64x64 tile.n=16x16 stages=5"),
];

/// Position of the first case with a producer.
const WITH_PRODUCER: usize = CASES.len() + 3;

/// Replacements that count phases wrongly, in the text of that case.
const WRONG_PHASES: [[&str; 2]; 2] = [
    ["int awaited = 0, released = 0;", "int awaited = 4, released = 4;"],
    ["int issued = 0, released = 0;", "int issued = 0, released = 4;"],
];

/// Programs of the cases, and of faults in some of them, with the number of the case and a
/// description.
struct Kernels {
    cases: Vec<(Workload, Config)>,
    faults: Vec<(usize, &'static str)>,
    programs: Vec<Program>,
}

impl Kernels {
    fn new() -> Self {
        let workload = |text: &str| text.parse::<Workload>().unwrap();
        let cases = CASES.iter().map(|(text, knobs)| (workload(text), config(&workload(text), knobs)));
        let groups = GROUP_CASES.iter().map(|(text, knobs)| (workload(text), group_config(&workload(text), knobs)));
        let cases: Vec<(Workload, Config)> = cases.chain(groups).collect();
        let target = small_target();
        let mut programs: Vec<Program> = cases.iter().map(|(w, c)| lower(w, &target, c).unwrap()).collect();
        programs.iter().for_each(|program| verify(program, &target).unwrap());
        let mut planted = Vec::new();
        for case in [0, CASES.len(), WITH_PRODUCER, WITH_PRODUCER + 3] {
            for (what, program) in faults(&programs[case]) {
                planted.push((case, what));
                programs.push(program);
            }
        }
        for [right, _] in WRONG_PHASES {
            planted.push((WITH_PRODUCER, right));
            programs.push(programs[WITH_PRODUCER].clone());
        }
        Self { cases, faults: planted, programs }
    }

    /// Edits the text of a program: the last programs get wrong phases.
    fn edit(number: usize, programs: usize, text: String) -> String {
        let Some(fault) = (number + WRONG_PHASES.len()).checked_sub(programs) else { return text };
        let [right, wrong] = WRONG_PHASES[fault];
        assert!(text.contains(right));
        text.replace(right, wrong)
    }
}

#[test]
fn kernels_agree_with_the_reference_and_faults_show() {
    let Kernels { cases, faults, programs } = Kernels::new();
    let count = programs.len();
    let kernels = match OnCpu::build(programs, |number, text| Kernels::edit(number, count, text)) {
        Ok(kernels) => kernels,
        Err(reason) => return missing("g++", &reason),
    };
    let error = |number: usize, workload: &Workload, backwards: bool| {
        let operands = Operands::random(workload.spec(), number as u64);
        let output = kernels.run(number, &operands, backwards);
        output.map(|output| max_rel_error(&output, &reference(workload, &operands)))
    };

    for (number, (workload, config)) in cases.iter().enumerate() {
        for backwards in [false, true] {
            let error = error(number, workload, backwards).unwrap_or_else(|e| panic!("{workload} {config}: {e}"));
            assert!(error <= tolerance(workload, config), "{workload} {config}: error {error}");
        }
    }

    for (number, (case, what)) in faults.iter().enumerate() {
        let (workload, config) = &cases[*case];
        let shows = |backwards: bool| match error(cases.len() + number, workload, backwards) {
            Ok(error) => error > tolerance(workload, config),
            Err(_) => true,
        };
        assert!(shows(false) || shows(true), "{config}: {what} does not show");
    }
}
