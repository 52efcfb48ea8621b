//! Two contractions in one kernel on GPUs, with a map or a softmax between them: verified,
//! interpreted, compiled for CUDA, and run as CUDA built for the CPU, as OpenCL, and in a simulator
//! that detects races.
//!
//! Without a compiler, device or simulator, these tests print a notice and pass;
//! `AUTOTUNE_REQUIRE=g++,nvrtc,opencl` makes that a failure.

#![cfg(unix)]

use std::fmt;

use autotune_codegen as codegen;
use autotune_ir::analyse::analyse;
use autotune_ir::program::{BinaryOp, Expr, Node, Role, Scope, UnaryOp};
use autotune_ir::spec::Reduction;
use autotune_ir::{DType, GpuApi, InterpError, Launch, Problem, ProgramError, Target, interpret, verify};
use autotune_schedules::{Config, KnobValue, ScheduleSpace, fused, lower};
use autotune_workloads::{
    AttentionWorkload, Computed, Fields, Mask, Operands, OperatorFormula, OperatorKind, Workload, WorkloadError,
    WorkloadOperator, reference,
};
use ndarray::ArrayD;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::common::cases::for_cases;
use crate::common::cuda_on_cpu::OnCpu;
use crate::common::gpu_kernels::{assert_cuda_agrees, assert_opencl_agrees, programs};
use crate::common::nvrtc::Nvrtc;
use crate::common::pairs::{odd_pair, random_pair};
use crate::common::random_programs::{check, check_configs, check_drawn};
use crate::common::workloads::random_attention;
use crate::common::{missing, or_long};

/// Several images, strides, dilation, epilogues; masks of every shape, causal masks, several chunks
/// of keys; axes of one element.
const WORKLOADS: [&str; 14] = [
    "separable_conv2d:n=2,c=20,h=9,w=11,o=24,k=3,p=1,mid=relu,mid_bias,bias,add,act=relu",
    "separable_conv2d:c=8,h=13,w=10,o=5,k=3,s=2,p=2,d=2,mid=hard_swish",
    "separable_conv2d:c=7,h=6,w=5,o=1,k=2,mid_bias",
    "mlp:m=19,n=24,k=40,h=64,mid=gelu,mid_bias,bias,add",
    "mlp:m=33,n=12,k=7,h=50,mid=relu,scale,act=tanh",
    "mlp:m=1,n=40,k=16,h=24",
    "attention:b=2,m=37,n=53,k=16",
    "attention:b=3,m=16,n=70,k=20,d=12,causal,bias,act=relu",
    "attention:b=2,h=3,m=9,n=40,k=8,mask=rows",
    "attention:b=2,m=12,n=33,k=8,d=5,mask=matrices,causal",
    "attention:m=40,n=40,k=7,mask=matrix,add",
    "attention:b=2,m=5,n=65,k=32,mask=row",
    "attention:m=1,n=50,k=16,causal",
    "attention:m=7,n=1,k=4,d=9",
];

fn target(word: &str) -> Target {
    Target::detect(word, None).unwrap()
}

#[test]
fn random_programs_are_proven_and_agree_with_the_reference() {
    for word in ["cuda:sm_90", "opencl"] {
        let target = target(word);
        for_cases(or_long([8, 60]), |seed, choices| {
            let plain = match seed % 2 {
                0 => random_pair(choices),
                _ => Workload::new(random_attention(choices)).unwrap(),
            };
            let dtypes = [DType::F32, DType::F32, DType::F16, DType::Bf16];
            let dtype = dtypes[choices.random_range(0..4)];
            let dtype = if target.supports(dtype) { dtype } else { DType::F32 };
            check_drawn(&plain.with_dtype(dtype).unwrap(), &target, seed, 4, choices);
        });
    }
}

/// 16-bit elements are widened once, when they are staged, so that the same tiles take no longer in
/// half than in single precision.
#[test]
fn half_precision_takes_no_longer_than_single() {
    let target = target("cuda:sm_90");
    for text in
        ["attention:b=12,m=4096,n=4096,k=64", "attention:b=12,m=512,n=512,k=64,causal", "mlp:m=197,k=768,h=3072,n=768"]
    {
        let single: Workload = text.parse().unwrap();
        let config = ScheduleSpace::new(&single, &target).default_config();
        let [single, half] = [DType::F32, DType::F16].map(|dtype| {
            let program = lower(&single.with_dtype(dtype).unwrap(), &target, &config).unwrap();
            let mut shared = program.buffers.iter().filter(|buffer| buffer.scope == Scope::Shared);
            assert!(shared.all(|buffer| buffer.dtype == DType::F32), "{text}\n{config}\n{program}");
            analyse(&program, &target).cycles()
        });
        assert!(half <= 1.02 * single, "{text}: {half} cycles, {single} in single precision\n{config}");
    }
}

#[test]
fn every_one_has_a_default_and_no_other_sketch() {
    for_cases(or_long([21, 60]), |seed, choices| {
        let workload = match seed % 3 {
            0 => odd_pair(choices),
            1 => random_pair(choices),
            _ => Workload::new(random_attention(choices)).unwrap(),
        };
        for word in ["cuda:sm_80", "opencl"] {
            let target = target(word);
            let space = ScheduleSpace::new(&workload, &target);
            if space.refusal().is_some_and(|refusal| refusal.to_string().contains("exceed")) {
                continue;
            }
            let names: Vec<&str> = space.sketches().iter().map(|sketch| sketch.name()).collect();
            assert_eq!(names, [fused::SKETCH], "{workload}");
            let (config, sketch) = (space.default_config(), &space.sketches()[0]);
            assert!(sketch.sketch.default(&workload, &target, sketch).is_some(), "none of {workload}");
            assert!(space.contains(&config), "{workload}\n{config}");
            verify(&lower(&workload, &target, &config).unwrap(), &target).unwrap();
        }
    });
}

/// Attention processes any number of keys in chunks, but the values of a row must be in one block.
#[test]
fn rows_of_many_columns_are_refused_where_a_block_has_no_memory_for_them() {
    let opencl = target("opencl");
    for text in ["attention:m=5,n=9,k=5000,d=8", "attention:m=3,n=40,k=3,d=1024", "mlp:m=3,n=9000,k=5,h=7"] {
        check(&text.parse().unwrap(), &opencl, 3, 3);
    }
    let wide: Workload = "attention:m=3,n=40,k=3,d=6000".parse().unwrap();
    let refusal = ScheduleSpace::new(&wide, &opencl).refusal().unwrap().to_string();
    assert!(refusal.starts_with("field 'd': a row of 6000 values is too long for one block on opencl"), "{refusal}");
    check(&"attention:m=3,n=40,k=3,d=1500".parse().unwrap(), &target("cuda:sm_90"), 3, 2);
}

#[test]
fn cuda_agrees_with_the_reference() {
    let dtyped = (0..).zip(WORKLOADS).map(|(number, text)| {
        let dtype = [DType::F32, DType::F16, DType::F32, DType::Bf16][number % 4];
        text.parse::<Workload>().unwrap().with_dtype(dtype).unwrap()
    });
    assert_cuda_agrees(&dtyped.collect::<Vec<Workload>>(), or_long([1, 4]));
}

#[test]
fn opencl_agrees_with_the_reference() {
    assert_opencl_agrees(&WORKLOADS.map(|text| text.parse().unwrap()), or_long([1, 2]));
}

/// Minimum bytes of spills, stores and loads together, that count as spilling.
const SPILL_BYTES: usize = 128;

#[test]
fn cuda_compiles_and_the_default_does_not_spill() {
    let nvrtc = match Nvrtc::find() {
        Ok(nvrtc) => nvrtc,
        Err(reason) => return missing("nvrtc", &reason),
    };

    // An ordinary run compiles each workload for one generation.
    for (generation, sm) in [70, 80, 90].into_iter().enumerate() {
        if !nvrtc.architectures.contains(&sm) {
            missing(&format!("sm_{sm}"), "NVRTC does not know it");
            continue;
        }
        let target = target(&format!("cuda:sm_{sm}"));
        let (mut compiled, mut spilled) = (0, 0);
        for (seed, text) in (0..).zip([
            "attention:b=12,m=197,n=197,k=64",
            "attention:b=8,m=1024,n=1024,k=128,causal,dtype=f16",
            "mlp:m=197,k=768,h=3072,n=768,mid=gelu,mid_bias,bias",
            "separable_conv2d:c=64,h=56,w=56,o=128,k=3,p=1,mid=relu",
        ]) {
            if or_long([seed as usize % 3 != generation, false]) {
                continue;
            }
            let workload: Workload = text.parse().unwrap();
            for (number, (config, program)) in programs(&workload, &target, 3, seed).into_iter().enumerate() {
                let source = codegen::gpu::generate(&program, GpuApi::Cuda { sm });
                let usage = nvrtc.compile(&source, sm).unwrap_or_else(|e| panic!("{config}\n{source}\n{e}"));
                if number == 0 {
                    eprintln!("sm_{sm}, {workload}: {config}\n{usage:?}");
                }
                let spills = usage.iter().any(|kernel| kernel.spill_bytes > SPILL_BYTES);
                assert!(!spills || number > 0, "sm_{sm}, {workload}: the default spills\n{config}\n{usage:?}");
                compiled += 1;
                spilled += usize::from(spills);
            }
        }
        assert!(4 * spilled <= compiled, "sm_{sm}: {spilled} of {compiled} spill");
    }
}

/// Returns a workload and its default with other values of some knobs.
fn changed(text: &str, target: &Target, changes: &[(&str, KnobValue)]) -> (Workload, Config) {
    let workload: Workload = text.parse().unwrap();
    let mut config = ScheduleSpace::new(&workload, target).default_config();
    for (knob, value) in changes {
        assert!(config.knobs.insert(knob.to_string(), value.clone()).is_some(), "no knob {knob}");
    }
    (workload, config)
}

fn word(word: &str) -> KnobValue {
    KnobValue::Choice(word.into())
}

fn tile<const N: usize>(sizes: [usize; N]) -> KnobValue {
    KnobValue::Tile(sizes.to_vec())
}

/// Attention for small tiles: three chunks of keys, four threads per row.
const SMALL: &str = "attention:b=2,m=6,n=22,k=12,d=10,mask=row";

fn small(target: &Target) -> (Workload, Config) {
    let changes = [
        ("tile.m", tile([8, 8, 1])),
        ("threads.row", word("4")),
        ("tile.n", tile([2, 1])),
        ("tile.d", tile([2])),
        ("first.tile.k", tile([4])),
        ("second.tile.n", tile([8])),
        ("stages", word("1")),
        ("first.vector.data", word("1")),
        ("first.vector.weight", word("1")),
        ("second.vector.weight", word("1")),
        ("pad", word("0")),
        ("unroll", word("1")),
    ];
    changed(SMALL, target, &changes)
}

#[test]
fn scores_stay_in_the_block() {
    for word in ["cuda:sm_80", "opencl"] {
        let target = target(word);
        let (workload, config) = small(&target);
        check_configs(&ScheduleSpace::new(&workload, &target), 3, [config.clone()]);
        let program = lower(&workload, &target, &config).unwrap();
        let on_the_way =
            |buffer: &&autotune_ir::program::Buffer| buffer.scope == Scope::Global && buffer.role == Role::Packed;
        assert_eq!(program.buffers.iter().filter(on_the_way).count(), 0, "{program}");
        assert_eq!(program.stages.len(), 1);
    }
}

#[test]
fn intermediate_tensors_are_in_shared_memory_or_written_out() {
    let target = target("cuda:sm_80");
    for text in [WORKLOADS[0], WORKLOADS[3]] {
        let space = ScheduleSpace::new(&text.parse().unwrap(), &target);
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        let mut met = [0; 2];
        for _ in 0..40 {
            let config = space.sample(&mut rng).config().clone();
            let program = lower(space.workload(), &target, &config).unwrap();
            let is_whole = config.knobs["between"] == word("whole");
            let computing = program.stages.iter().filter(|stage| stage.name.starts_with("compute")).count();
            assert_eq!(computing, if is_whole { 2 } else { 1 }, "{config}");
            assert_eq!(program.buffers.iter().any(|buffer| buffer.name == "mid"), is_whole, "{config}");
            met[usize::from(is_whole)] += 1;
        }
        assert!(met.iter().all(|&count| count > 5), "{text}: {met:?}");
    }
}

/// The shared memory that the sketch computes for its limits is that of the programs.
#[test]
fn programs_keep_the_limits_of_the_target() {
    for word in ["cuda:sm_90", "opencl"] {
        let target = target(word);
        let gpu = target.gpu().unwrap();
        for (seed, text) in (0..).zip(["attention:b=2,m=300,n=500,k=128", "mlp:m=197,k=64,h=300,n=96,mid=gelu"]) {
            for (config, program) in programs(&text.parse().unwrap(), &target, 20, seed) {
                for launch in program.stages.iter().filter_map(|stage| Launch::of(&program, stage)) {
                    let fits =
                        launch.shared_bytes <= gpu.shared_bytes_per_block && launch.threads <= gpu.threads_per_block;
                    assert!(fits, "{config}: {launch:?}");
                }
            }
        }
    }
}

#[test]
fn refusals_name_the_knob() {
    let target = target("cuda:sm_80");
    let refused = |text: &str, changes: &[(&str, KnobValue)], knob: &str| {
        let (workload, config) = changed(text, &target, changes);
        let error = lower(&workload, &target, &config).unwrap_err().to_string();
        assert!(error.starts_with(&format!("knob '{knob}")), "{knob}: {error}");
    };
    let mlp = WORKLOADS[3];
    refused(mlp, &[("between", word("half"))], "between");
    refused(mlp, &[("tile.m", tile([4, 3, 1]))], "tile.m");
    refused(mlp, &[("tile.h", tile([4, 3]))], "tile.h");
    refused(mlp, &[("first.tile.k", tile([0]))], "first.tile.k");
    refused(mlp, &[("unroll", word("many"))], "unroll");
    let shared = [("between", word("shared")), ("threads.row", word("8")), ("tile.h", tile([2, 1]))];
    refused(mlp, &[&shared[..], &[("second.tile.h", tile([32]))]].concat(), "second.tile.h");
    refused(mlp, &[("tile.n", tile([2, 1]))], "tile.n");
    refused(SMALL, &[("threads.row", word("0"))], "threads.row");
    refused(SMALL, &[("first.vector.weight", word("3"))], "first.vector.weight");
}

fn for_each_list(nodes: &mut Vec<Node>, change: &mut impl FnMut(&mut Vec<Node>)) {
    change(nodes);
    nodes.iter_mut().filter_map(Node::body_mut).for_each(|body| for_each_list(body, change));
}

#[test]
fn a_barrier_that_is_left_out_is_a_race() {
    let target = target("opencl");
    let (workload, config) = small(&target);
    let program = lower(&workload, &target, &config).unwrap();
    let operands = Operands::random(workload.spec(), 1);

    let mut barriers = 0;
    for_each_list(&mut program.stages[0].body.clone(), &mut |nodes| {
        barriers += nodes.iter().filter(|node| **node == Node::Barrier).count();
    });
    assert_eq!(barriers, 5, "{program}");

    let mut races = 0;
    for left_out in 0..barriers {
        let (mut broken, mut number) = (program.clone(), 0);
        for_each_list(&mut broken.stages[0].body, &mut |nodes| {
            nodes.retain(|node| {
                number += usize::from(*node == Node::Barrier);
                *node != Node::Barrier || number != left_out + 1
            });
        });

        let problem = verify(&broken, &target).unwrap_err().to_string();
        assert!(problem.contains("without a barrier between"), "{left_out}: {problem}");
        let result = interpret(&broken, &operands);
        let is_race =
            matches!(result, Err(InterpError::Program(ProgramError { problem: Problem::Conflict { .. }, .. })));
        races += usize::from(is_race);
    }
    assert!(races >= 4, "{races}");
}

/// An operator defined by its formula.
#[derive(Debug)]
struct Other(OperatorFormula);

static KIND: OperatorKind = OperatorKind { name: "other", fields: "", example: "other", parse };

fn parse(_: &Fields) -> Result<Box<dyn WorkloadOperator>, WorkloadError> {
    Err(WorkloadError::UnknownOperator { name: "other".into(), known: String::new() })
}

impl WorkloadOperator for Other {
    fn kind(&self) -> &'static OperatorKind {
        &KIND
    }

    fn write_fields(&self, f: &mut dyn fmt::Write) -> fmt::Result {
        f.write_str("0")
    }

    fn check(&self) -> Result<(), WorkloadError> {
        Ok(())
    }

    fn formula(&self) -> OperatorFormula {
        self.0.clone()
    }
}

/// Returns attention with some of its equations changed.
fn other(change: impl FnOnce(&mut [Computed])) -> Workload {
    let attention = AttentionWorkload { mask: Mask::Row, ..AttentionWorkload::new(2, [9, 21], [6, 10]) };
    let mut formula = attention.formula();
    change(&mut formula.computed);
    Workload::new(Other(formula)).unwrap()
}

/// Positions of equations in attention's formula.
const LARGEST: usize = 2;
const EXP: usize = 3;
const TOTAL: usize = 4;
const SCALE: usize = 5;
const WEIGHTS: usize = 6;

/// Maps the scores in both equations that read them: the maximum and the exponent.
fn map_scores(computed: &mut [Computed], map: impl Fn(Expr) -> Expr) {
    let score = computed[LARGEST].value.clone();
    computed[LARGEST].value = map(score.clone());
    let Expr::Unary(UnaryOp::Exp, exponent) = &mut computed[EXP].value else { panic!("no exponential") };
    let Expr::Binary(BinaryOp::Sub, of) = &mut **exponent else { panic!("no difference") };
    assert_eq!(of[0], score);
    of[0] = map(score);
}

#[test]
fn softmax_between_products_is_recognised_in_every_form() {
    let target = target("cuda:sm_80");
    check(&other(|_| {}), &target, 1, 6);
    // Any function of the total and any positive factor of the scores is a softmax.
    check(&other(|all| all[SCALE].value = Expr::unary(UnaryOp::Rsqrt, total(all))), &target, 1, 6);
    check(&other(|all| map_scores(all, |score| Expr::product(score, Expr::Const(0.25)))), &target, 1, 6);
}

/// Returns the total in the equation of its reciprocal.
fn total(all: &[Computed]) -> Expr {
    let Expr::Binary(BinaryOp::Div, of) = &all[SCALE].value else { panic!("no quotient") };
    of[1].clone()
}

#[test]
fn other_maps_are_not_taken_for_softmax() {
    type Change = fn(&mut [Computed]);
    let changes: [Change; 8] = [
        |all| all[LARGEST].reduction = Reduction::Sum,
        |all| all[TOTAL].reduction = Reduction::Max,
        |all| all[TOTAL].value = Expr::product(all[TOTAL].value.clone(), Expr::Const(2.0)),
        |all| map_scores(all, |score| Expr::product(score, Expr::Const(-1.0))),
        |all| map_scores(all, |score| Expr::max(score, Expr::Const(0.0))),
        |all| {
            let Expr::Unary(op, _) = &mut all[EXP].value else { panic!("no exponential") };
            *op = UnaryOp::Sigmoid;
        },
        |all| {
            let Expr::Unary(_, exponent) = &all[EXP].value else { panic!("no exponential") };
            all[EXP].value = Expr::unary(UnaryOp::Exp, Expr::product((**exponent).clone(), Expr::Const(-0.5)));
        },
        |all| {
            let Expr::Binary(BinaryOp::Mul, of) = &all[WEIGHTS].value else { panic!("no product") };
            all[WEIGHTS].value = Expr::Binary(BinaryOp::Add, of.clone());
        },
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let space = ScheduleSpace::new(&other(change), &target("cuda:sm_80"));
        assert!(space.sketches().iter().all(|sketch| sketch.name() != fused::SKETCH), "change {number}");
    }
}

/// Masks with minus infinity for whole chunks of keys, and for all keys.
#[test]
fn rows_that_are_masked_in_part_or_wholly_are_those_of_the_definition() {
    let target = target("cuda:sm_90");
    let workload: Workload = "attention:b=2,m=6,n=40,k=8,mask=matrix".parse().unwrap();
    let mut operands = Operands::random(workload.spec(), 5);
    for (row, hidden) in [(0, 0..30), (1, 10..40), (2, 0..40), (3, 5..6)] {
        hidden.for_each(|key| operands[3][[row, key]] = f32::NEG_INFINITY);
    }
    operands[3][[4, 7]] = f32::NAN;
    operands[3][[5, 9]] = f32::INFINITY;
    let expected = reference(&workload, &operands);
    let is_nan = |row: usize| expected[[0, row, 0]].is_nan();
    assert_eq!([0, 1, 2, 3, 4, 5].map(is_nan), [false, false, true, false, true, true]);

    let all = programs(&workload, &target, 8, 1);
    let assert_alike = |output: &ArrayD<f32>, context: &str| {
        let is_alike =
            |(found, wanted): (&f32, &f32)| found.is_nan() && wanted.is_nan() || (found - wanted).abs() < 1e-4;
        assert!(output.iter().zip(&expected).all(is_alike), "{context}\n{output}\n{expected}");
    };
    for (config, program) in &all {
        assert_alike(&interpret(program, &operands).unwrap(), &config.to_string());
    }
    let built = match OnCpu::build(all.iter().map(|one| one.1.clone()).collect(), |_, text| text) {
        Ok(built) => built,
        Err(reason) => return missing("g++", &reason),
    };
    for (number, (config, _)) in all.iter().enumerate() {
        assert_alike(&built.run(number, &operands, false).unwrap(), &format!("as CUDA: {config}"));
    }
}
