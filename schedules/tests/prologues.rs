//! Prologues: maps of the data before it is multiplied.

use autotune_ir::{CpuTarget, Isa, Target, interpret, verify};
use autotune_schedules::{EXACT_TOLERANCE, ScheduleSpace};
use autotune_workloads::{Operands, Workload, max_rel_error, reference};
use ndarray::{ArrayD, IxDyn};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use crate::common::or_long;

fn workload(text: &str) -> Workload {
    text.parse().unwrap()
}

/// Applies a workload's prologue to the data by hand. Returns the results with the prologue and
/// without it on that data.
fn by_hand(with: &Workload, without: &Workload, act: impl Fn(f32) -> f32) -> [ArrayD<f32>; 2] {
    let operands = Operands::random(with.spec(), 3);
    let named = |name: &str, at: &[usize], neutral| operands.named(name).map_or(neutral, |t| t[IxDyn(at)]);
    let is_product = with.sizes::<autotune_workloads::Matmul>().is_some();
    let mut plain = Operands::random(without.spec(), 3);
    for (at, x) in plain[0].indexed_iter_mut() {
        let channel = if is_product { at[operands[0].ndim() - 1] } else { at[1] };
        let scaled = operands[0][&at] * named("pre_scale", &[channel], 1.0) + named("pre_bias", &[channel], 0.0);
        *x = act(scaled) * named("pre_gate", &[at[0], channel], 1.0);
    }
    plain[1] = operands[1].clone();
    [reference(with, &operands), reference(without, &plain)]
}

#[test]
fn padding_is_of_what_a_prologue_makes() {
    let relu = |x: f32| x.max(0.0);
    for (text, pre) in [
        ("conv2d:n=2,c=6,h=5,w=7,o=4,k=3,p=1", "scale+bias+relu"),
        ("conv2d:n=2,c=6,h=5,w=7,o=6,k=3,p=2,d=2,g=6", "bias+relu"),
        ("conv2d:n=2,c=6,h=5,w=7,o=4,k=3,s=2,p=1,g=2", "scale+bias+relu+gate"),
        ("conv1d:n=2,c=6,w=9,o=4,k=3,p=2", "relu+gate"),
        ("conv3d:n=2,c=3,d=4,h=3,w=5,o=4,k=3,p=1", "scale+bias+relu"),
        ("matmul:m=5,n=7,k=9", "scale+bias+relu"),
        ("matmul:b=2,m=5,n=7,k=9", "scale+relu"),
    ] {
        let (with, without) = (workload(&format!("{text},pre={pre}")), workload(text));
        let [found, wanted] = by_hand(&with, &without, relu);
        assert!(max_rel_error(&found, &wanted) < 1e-6, "{with}");
    }

    // Padding stays zero: it is not `sigmoid(0) = 0.5`, which would show in every sum at a corner.
    let (with, without) =
        (workload("conv2d:c=2,h=3,w=3,o=2,k=3,p=1,pre=sigmoid"), workload("conv2d:c=2,h=3,w=3,o=2,k=3,p=1"));
    let [found, wanted] = by_hand(&with, &without, |x| 1.0 / (1.0 + (-x).exp()));
    assert!(max_rel_error(&found, &wanted) < 1e-6);
}

#[test]
fn schedules_make_what_padding_leaves_out() {
    for isa in [Isa::Avx2, Isa::Avx512] {
        for text in [
            "conv2d:c=32,h=6,w=7,o=32,k=3,p=1,pre=scale+bias+sigmoid",
            "conv2d:n=2,c=16,h=9,w=9,o=20,k=3,s=2,p=1,pre=bias+sigmoid+gate",
            "conv2d:c=32,h=6,w=6,o=32,k=3,p=1,g=32,pre=bias+sigmoid",
            "conv2d:c=64,h=7,w=7,o=32,k=1,pre=scale+bias+relu,bias,act=relu",
            "conv1d:c=16,w=20,o=24,k=5,p=2,pre=gelu",
            "conv_transpose2d:c=16,h=4,w=5,o=16,k=4,s=2,p=1,pre=scale+bias+relu",
            "matmul:m=33,n=40,k=50,pre=scale+bias+gelu",
            "matmul:m=33,n=1100,k=20,ta,pre=bias+relu",
        ] {
            let (workload, target) = (workload(text), Target::Cpu(CpuTarget { isa, ..CpuTarget::generic_avx2(2) }));
            let space = ScheduleSpace::new(&workload, &target);
            let operands = Operands::random(workload.spec(), 1);
            let wanted = reference(&workload, &operands);

            let mut rng = ChaCha8Rng::seed_from_u64(5);
            let default = space.default_config();
            let drawn = (0..or_long([5, 12])).map(|_| space.sample(&mut rng).config().clone());
            for config in [default].into_iter().chain(drawn) {
                let program = autotune_schedules::lower(&workload, &target, &config).unwrap();
                verify(&program, &target)
                    .unwrap_or_else(|problem| panic!("{workload}\n{config}\n{program}\n{problem}"));

                let found =
                    interpret(&program, &operands).unwrap_or_else(|problem| panic!("{workload}\n{config}\n{problem}"));
                let error = max_rel_error(&found, &wanted);
                assert!(error <= EXACT_TOLERANCE, "{workload}\n{config}\n{program}\nerror {error}");
            }
        }
    }
}

#[test]
fn operators_without_prologue_are_refused() {
    let error = |text: &str| text.parse::<Workload>().unwrap_err().to_string();
    assert!(error("conv2d:c=3,h=8,w=8,o=4,k=3,pre=prelu").contains("'pre': 'prelu' is not a list of operations"));
    assert!(
        error("conv2d:c=3,h=8,w=8,o=4,k=3,pre=relu+scale").contains("'pre': 'relu+scale' is not a list of operations")
    );
    assert!(error("conv2d:c=3,h=8,w=8,o=4,k=3,pre=clip:6:0").contains("'pre': 'clip:6:0' is not clip:LO:HI"));
    assert!(error("matmul:m=4,n=4,k=2,pre=gate").contains("matmul: field 'pre': gate needs images as data"));
    assert!(error("reduce:m=4,n=4,op=sum,pre=scale").contains("'pre': a reduction has no channels to scale"));
    assert!(
        error("pool2d:c=4,h=4,w=4,k=3,p=1,kind=max,pre=relu")
            .contains("'pre': not supported for an operator that reads padding")
    );
    assert!(error("softmax:m=4,n=4,pre=relu").contains("'pre': needs an operator that multiplies"));
    assert!(error("transpose:m=4,n=4,pre=relu").contains("'pre': needs an operator that multiplies"));
}
