//! Convolutions with one and three axes, and transposed convolutions: naive references, random
//! schedules, text forms.

use std::cell::RefCell;

use autotune_ir::program::When;
use autotune_ir::{CpuTarget, GpuTarget, Isa, Target};
use autotune_schedules::{KnobValue, ScheduleSpace, lower};
use autotune_workloads::{Conv1d, Conv3d, ConvTranspose2d, Operands, Window, Workload, max_rel_error, reference};
use ndarray::{ArrayD, Dimension};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use crate::common::cases::for_cases;
use crate::common::convolutions::random_convolution;
use crate::common::or_long;
use crate::common::random_programs::{check, check_drawn};

/// Convolves tap by tap, with a bounds check at each tap for the padding.
fn convolved([n, c, o, groups]: [usize; 4], windows: &[Window], operands: &Operands) -> ArrayD<f64> {
    let outputs = windows.iter().map(|w| (w.extent + 2 * w.pad - w.dilation * (w.kernel - 1) - 1) / w.stride + 1);
    let shape = [n, o].into_iter().chain(outputs).collect::<Vec<_>>();
    let taps: Vec<usize> = windows.iter().map(|window| window.kernel).collect();
    let (group_c, group_o) = (c / groups, o / groups);
    ArrayD::from_shape_fn(shape, |at| {
        let mut sum = 0.0;
        for channel in 0..group_c {
            for tap in ndarray::indices(taps.clone()) {
                let pixel = windows.iter().enumerate().map(|(dim, w)| {
                    (at[2 + dim] * w.stride + tap[dim] * w.dilation).checked_sub(w.pad).filter(|&x| x < w.extent)
                });
                let Some(pixel) = pixel.collect::<Option<Vec<usize>>>() else { continue };
                let read = [&[at[0], at[1] / group_o * group_c + channel][..], &pixel].concat();
                let factor = [&[at[1], channel], tap.slice()].concat();
                sum += f64::from(operands[0][&read[..]]) * f64::from(operands[1][&factor[..]]);
            }
        }
        sum
    })
}

/// Adds every element of the input to all outputs that it contributes to.
fn transposed(conv: &ConvTranspose2d, operands: &Operands) -> ArrayD<f64> {
    let [oh, ow] = conv.output_hw();
    let (group_c, group_o) = (conv.c / conv.groups, conv.o / conv.groups);
    let mut output = ArrayD::zeros(vec![conv.n, conv.o, oh, ow]);
    for (at, &x) in operands[0].indexed_iter() {
        for o in 0..group_o {
            for (i, j) in (0..conv.kernel[0]).flat_map(|i| (0..conv.kernel[1]).map(move |j| (i, j))) {
                let row = (at[2] * conv.stride[0] + i).checked_sub(conv.pad[0]).filter(|&y| y < oh);
                let column = (at[3] * conv.stride[1] + j).checked_sub(conv.pad[1]).filter(|&x| x < ow);
                let Some((row, column)) = row.zip(column) else { continue };
                let channel = at[1] / group_c * group_o + o;
                output[[at[0], channel, row, column]] += f64::from(x) * f64::from(operands[1][[at[1], o, i, j]]);
            }
        }
    }
    output
}

fn by_hand(workload: &Workload, operands: &Operands) -> ArrayD<f32> {
    let line = workload.sizes::<Conv1d>().map(|l| convolved([l.n, l.c, l.o, l.groups], &[l.window], operands));
    let volume = workload.sizes::<Conv3d>().map(|v| convolved([v.n, v.c, v.o, v.groups], &v.windows, operands));
    let transposed = workload.sizes::<ConvTranspose2d>().map(|conv| transposed(conv, operands));
    line.or(volume).or(transposed).unwrap().mapv(|x| x as f32)
}

#[test]
fn references_are_what_each_operator_says() {
    let kinds = RefCell::new([0; 3]);
    for_cases(300, |seed, choices| {
        let workload = random_convolution(choices).with_epilogue(Default::default());
        let operands = Operands::random(workload.spec(), seed);
        let error = max_rel_error(&reference(&workload, &operands), &by_hand(&workload, &operands));
        assert!(error < 1e-6, "{workload}: {error}");
        let kind = ["conv1d", "conv3d", "conv_transpose2d"].iter().position(|kind| workload.as_str().starts_with(kind));
        kinds.borrow_mut()[kind.unwrap()] += 1;
    });
    assert!(kinds.borrow().iter().all(|&count| count > 30), "{kinds:?}");
}

#[test]
fn random_programs_are_proven_and_agree_with_the_reference() {
    for isa in [Isa::Avx2, Isa::Avx512, Isa::Generic] {
        for_cases(or_long([8, 80]), |seed, choices| {
            let target = Target::Cpu(CpuTarget { isa, ..CpuTarget::generic_avx2(1 + seed as usize % 3) });
            check_drawn(&random_convolution(choices), &target, seed, 4, choices);
        });
    }
    for word in ["cuda:sm_90", "opencl"] {
        let target = Target::Gpu(GpuTarget::stated(word).unwrap());
        for_cases(or_long([8, 60]), |seed, choices| {
            check_drawn(&random_convolution(choices), &target, seed, 3, choices)
        });
    }
}

#[test]
fn edges_and_primes_are_proven_and_agree_with_the_reference() {
    let texts = [
        "conv1d:c=1,w=1,o=1,k=1",
        "conv1d:n=2,c=7,w=13,o=11,k=5,s=3,p=2,d=2,bias,act=relu",
        "conv1d:c=13,w=31,o=13,k=3,p=1,g=13",
        "conv3d:c=1,d=1,h=1,w=1,o=1,k=1",
        "conv3d:n=2,c=5,d=3,h=5,w=7,o=7,kd=1,kh=2,kw=3,sd=1,sh=2,sw=1,pd=0,ph=1,pw=1,bias",
        "conv3d:c=8,d=4,h=4,w=4,o=16,k=3,p=1,dil=1,g=2",
        "conv_transpose2d:c=1,h=1,w=1,o=1,k=1",
        "conv_transpose2d:c=1,h=1,w=1,o=1,k=4,s=2,p=1",
        "conv_transpose2d:c=16,h=4,w=4,o=32,k=4,s=2,p=1,bias,act=relu",
        "conv_transpose2d:c=16,h=5,w=7,o=3,k=4,s=2,p=1",
        "conv_transpose2d:c=7,h=5,w=3,o=11,k=3,s=2,p=1,op=1",
        "conv_transpose2d:c=5,h=3,w=3,o=16,k=2,s=2",
        "conv_transpose2d:n=2,c=6,h=3,w=5,o=4,k=8,s=4,p=2,g=2",
        "conv_transpose2d:c=3,h=3,w=5,o=4,k=3,s=3,p=1,op=2",
        "conv_transpose2d:c=2,h=3,w=3,o=2,k=1,s=2,op=1",
        "conv_transpose2d:c=8,h=3,w=4,o=8,k=4,s=2,p=1,g=8,add",
        "conv_transpose2d:c=3,h=7,w=5,o=5,k=3,p=1",
    ];

    for text in texts {
        for isa in [Isa::Avx2, Isa::Avx512] {
            let target = Target::Cpu(CpuTarget { isa, ..CpuTarget::generic_avx2(2) });
            check(&text.parse().unwrap(), &target, 7, 6);
        }
        check(&text.parse().unwrap(), &Target::Gpu(GpuTarget::stated("cuda:sm_80").unwrap()), 7, 4);
    }
}

#[test]
fn phases_multiply_nothing_that_is_between_elements() {
    let flops = |text: &str| text.parse::<Workload>().unwrap().flops();
    let used = |elements: usize, o: usize, taps: usize| 2.0 * (elements * o * taps) as f64;
    assert_eq!(flops("conv_transpose2d:c=512,h=4,w=4,o=256,k=4,s=2,p=1"), used(512 * 16, 256, 16));
    assert_eq!(flops("conv_transpose2d:c=8,h=5,w=7,o=3,k=2,s=2"), used(8 * 35, 3, 4));
    assert_eq!(flops("conv_transpose2d:c=8,h=4,w=4,o=3,k=8,s=4,p=2"), used(8 * 16, 3, 64));
}

/// Transposed convolutions read weights backwards. If the stride does not divide the kernel, they
/// read weights out of bounds. Such weights are packed, in every run if they are not constant.
#[test]
fn weights_of_transposed_convolutions_may_come_with_every_run() {
    let (cpu, gpu) = (CpuTarget::generic_avx2(2), GpuTarget::stated("cuda:sm_80").unwrap());
    for text in ["c=5,h=4,w=5,o=7,k=4,s=2,p=1", "c=4,h=3,w=4,o=6,k=3,s=2,p=1,op=1,g=2,bias", "c=3,h=5,w=6,o=20,k=3,p=1"]
    {
        let workload: Workload = format!("conv_transpose2d:{text},weights=data").parse().unwrap();
        for target in [Target::Cpu(cpu.clone()), Target::Gpu(gpu.clone())] {
            check(&workload, &target, 0, 5);
            let program = ScheduleSpace::new(&workload, &target).default_candidate().lower().unwrap();
            let runs_every_time = program.stages.iter().all(|stage| stage.when == When::EveryRun);
            assert!(runs_every_time, "{workload} on {target}\n{program}");
        }
    }

    let workload: Workload = "conv_transpose2d:c=5,h=4,w=5,o=7,k=3,s=2,p=1,op=1,weights=data".parse().unwrap();
    let target = Target::Cpu(cpu);
    let mut config = ScheduleSpace::new(&workload, &target).default_config();
    config.knobs.insert("weights".into(), KnobValue::Choice("inplace".into()));
    let problem = lower(&workload, &target, &config).unwrap_err().to_string();
    assert_eq!(problem, "knob 'weights': weights that are read out of bounds must be packed");
}

#[test]
fn transposed_convolutions_have_vectors_along_either_axis() {
    let target = Target::Cpu(CpuTarget { isa: Isa::Avx512, ..CpuTarget::generic_avx2(1) });
    let vectors = |text: &str| {
        let space = ScheduleSpace::new(&text.parse().unwrap(), &target);
        let mut rng = ChaCha8Rng::seed_from_u64(0);
        let word = |config: &autotune_schedules::Config| config.knobs["vector"].to_string();
        let mut words: Vec<String> = (0..60).map(|_| word(space.sample(&mut rng).config())).collect();
        words.sort_unstable();
        words.dedup();
        words
    };
    assert_eq!(vectors("conv_transpose2d:c=64,h=8,w=8,o=64,k=4,s=2,p=1"), ["o"]);
    assert_eq!(vectors("conv_transpose2d:c=64,h=32,w=32,o=3,k=4,s=2,p=1"), ["o", "ow"]);
}

#[test]
fn the_text_forms_are_read_as_they_are_written() {
    for text in [
        "conv1d:n=1,c=64,w=1000,o=128,k=5,s=1,p=2",
        "conv1d:n=2,c=64,w=1000,o=128,k=5,s=2,p=2,d=3,g=2,bias,act=relu",
        "conv3d:n=1,c=16,d=16,h=28,w=28,o=32,k=3,s=1,p=1",
        "conv3d:n=1,c=16,d=16,h=28,w=28,o=32,kd=1,kh=3,kw=3,s=2,pd=0,ph=1,pw=1,dil=2,g=4,add",
        "conv_transpose2d:n=1,c=512,h=4,w=4,o=256,k=4,s=2,p=1",
        "conv_transpose2d:n=1,c=8,h=4,w=5,o=6,kh=3,kw=4,s=2,p=1,oph=1,opw=0,g=2,bias",
    ] {
        assert_eq!(text.parse::<Workload>().unwrap().to_string(), text);
    }
    let workload: Workload = "conv_transpose2d:c=512,h=4,w=4,o=256,k=4,s=2,p=1".parse().unwrap();
    assert_eq!(workload.output_shape(), [1, 256, 8, 8]);
    assert_eq!("conv1d:c=64,w=1000,o=128,k=5,p=2".parse::<Workload>().unwrap().output_shape(), [1, 128, 1000]);
}

#[test]
fn errors_name_the_operator_and_the_field() {
    let cases = [
        ("conv1d:c=64,w=1000,o=128", "conv1d: field 'k' is missing"),
        ("conv1d:c=64,w=4,o=128,k=5", "conv1d: field 'k': the dilated kernel spans 5 but the padded input only 4"),
        ("conv1d:c=64,w=10,o=128,k=5,h=3", "conv1d: unknown field 'h'"),
        ("conv1d:c=4,w=10,o=8,k=3,g=3", "conv1d: field 'g': 3 groups do not divide c=4 and o=8"),
        ("conv3d:c=4,d=0,h=4,w=4,o=8,k=3", "conv3d: field 'd': must be at least 1"),
        ("conv3d:c=4,d=2,h=4,w=4,o=8,k=3", "conv3d: field 'kd': the dilated kernel spans 3"),
        (
            "conv_transpose2d:c=4,h=4,w=4,o=8,k=4,s=2,p=1,op=2",
            "conv_transpose2d: field 'oph': 2 is not smaller than the",
        ),
        (
            "conv_transpose2d:c=4,h=4,w=4,o=8,k=3,s=2,p=1",
            "conv_transpose2d: field 'oph': the output extent 7 is not a multiple",
        ),
        (
            "conv_transpose2d:c=4,h=1,w=4,o=8,k=2,p=1",
            "conv_transpose2d: field 'ph': padding 1 removes the whole output (2)",
        ),
        ("conv_transpose2d:c=4,h=4,w=4,o=8,k=4,s=0", "conv_transpose2d: field 'sh': must be at least 1"),
        ("conv_transpose2d:c=4,h=4,w=4,o=8,k=4,d=2", "conv_transpose2d: unknown field 'd'"),
        (
            "conv_transpose2d:c=4,h=99999999999,w=99999999999,o=8,k=4",
            "conv_transpose2d: field 'w': 99999999999 is too large: input exceeds the supported size",
        ),
    ];

    for (text, wanted) in cases {
        let error = text.parse::<Workload>().unwrap_err().to_string();
        assert!(error.starts_with(wanted), "{text}: {error}");
    }
}

#[test]
fn lines_and_volumes_have_schedules_on_gpus() {
    let target = Target::Gpu(GpuTarget::stated("cuda:sm_80").unwrap());
    for text in ["conv1d:c=64,w=1000,o=128,k=5,p=2", "conv3d:c=16,d=16,h=28,w=28,o=32,k=3,p=1"] {
        assert_eq!(
            ScheduleSpace::new(&text.parse().unwrap(), &target).refusal().map(|refusal| refusal.to_string()),
            None
        );
    }
}
