//! Every activation in the epilogue of every contraction, on every target: verified, interpreted,
//! in C.

use autotune_ir::{CpuTarget, DType, GpuTarget, Isa, Target};
use autotune_schedules::{ScheduleSpace, lower, tolerance};
use autotune_workloads::{Operands, Workload, max_rel_error, reference};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use crate::common::epilogues::ACTIVATIONS;
use crate::common::random_programs::{check, check_configs};
use crate::common::spaces::sample_winograd;
use crate::common::{missing, or_long};

const CONTRACTIONS: [&str; 8] = [
    "matmul:m=9,n=21,k=40",
    "matmul:b=2,m=7,n=10,k=33,ta,tb",
    "conv2d:n=2,c=6,h=7,w=5,o=11,k=3,p=1",
    "conv2d:c=16,h=6,w=7,o=16,k=3,s=2,p=1,g=16",
    "conv1d:c=5,w=23,o=9,k=3,p=1",
    "conv3d:c=3,d=3,h=4,w=5,o=6,k=2",
    "conv_transpose2d:c=4,h=3,w=4,o=9,k=4,s=2,p=1",
    "conv2d:c=8,h=5,w=6,o=24,k=1",
];

fn cpu(isa: Isa) -> Target {
    Target::Cpu(CpuTarget { isa, ..CpuTarget::generic_avx2(2) })
}

fn gpu(name: &str) -> Target {
    Target::Gpu(GpuTarget::stated(name).unwrap())
}

/// Returns each contraction with each activation, some with other parts of an epilogue.
fn all() -> impl Iterator<Item = (u64, Workload)> {
    let parts = ["", ",scale", ",bias", ",scale,bias,add", ",add"];
    let of = move |(number, text): (usize, &str)| {
        let act = ACTIVATIONS[number % ACTIVATIONS.len()];
        (number as u64, format!("{text}{},act={act}", parts[number % parts.len()]).parse().unwrap())
    };
    CONTRACTIONS.into_iter().flat_map(|text| [text; ACTIVATIONS.len()]).enumerate().map(of)
}

#[test]
fn on_cpus_they_are_proven_and_agree_with_the_reference() {
    for (number, workload) in all() {
        let isa = [Isa::Avx2, Isa::Avx512, Isa::Generic][number as usize % 3];
        check(&workload, &cpu(isa), number, 2);
    }
}

#[test]
fn on_gpus_they_are_proven_and_agree_with_the_reference() {
    for (number, workload) in all() {
        check(&workload, &gpu(["opencl", "cuda:sm_90"][number as usize % 2]), number, or_long([1, 2]));
    }
}

#[test]
fn on_tensor_cores_they_are_proven_and_agree_with_the_reference() {
    for (number, act) in (0..).zip(ACTIVATIONS) {
        let dtype = [DType::F16, DType::Bf16, DType::Tf32][number as usize % 3].word();
        for text in
            ["matmul:m=40,n=32,k=48", "matmul:m=20,n=24,k=32,tb,weights=data", "conv2d:c=16,h=6,w=5,o=16,k=3,p=1"]
        {
            let workload = format!("{text},dtype={dtype},scale,bias,act={act}").parse().unwrap();
            check(&workload, &gpu(["cuda:sm_80", "cuda:sm_90"][number as usize % 2]), number, or_long([1, 2]));
        }
    }
}

#[test]
fn epilogues_of_winograd_are_verified_and_agree_with_the_reference() {
    for (number, act) in (0..).zip(ACTIVATIONS) {
        let workload = format!("conv2d:c=16,h=9,w=7,o=16,k=3,p=1,scale,bias,add,act={act}").parse().unwrap();
        for target in [cpu(Isa::Avx2), cpu(Isa::Avx512), gpu("cuda:sm_90")] {
            let space = ScheduleSpace::new(&workload, &target);
            let mut rng = ChaCha8Rng::seed_from_u64(number);
            check_configs(&space, number, (0..or_long([1, 2])).map(|_| sample_winograd(&space, &mut rng)));
        }
    }
}

#[test]
fn in_c_they_agree_with_the_reference() {
    for (number, workload) in all().filter(|(number, _)| number % or_long([11, 5]) == 0) {
        let target = cpu(Isa::Avx2);
        let config = ScheduleSpace::new(&workload, &target).default_config();
        let program = lower(&workload, &target, &config).unwrap();
        let operands = Operands::random(workload.spec(), number);
        let output = match crate::common::c::run(&program, &target, &operands) {
            Ok(output) => output,
            Err(reason) => return missing("cc", &reason),
        };
        let error = max_rel_error(&output, &reference(&workload, &operands));
        assert!(error <= tolerance(&workload, &config), "{workload}: error {error}\n{program}");
    }
}

/// Sums are in the nonlinear range of activations, so that a wrong sum gives a wrong result.
#[test]
fn a_lost_product_is_detected_after_every_activation() {
    for act in ACTIVATIONS {
        let workload: Workload = format!("matmul:m=24,n=24,k=4096,bias,act={act}").parse().unwrap();
        let mut operands = Operands::random(workload.spec(), 3);
        let right = reference(&workload, &operands);
        // One element per row of the data is zeroed.
        (0..24).for_each(|row| operands[0][[0, row, 100 * row]] = 0.0);
        let error = max_rel_error(&reference(&workload, &operands), &right);
        assert!(error > 5e-4, "act={act}: {error}");
    }
}
