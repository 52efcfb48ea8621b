//! Maps, reductions and chains of both on GPUs: verified, interpreted, compiled for CUDA, and run
//! as CUDA built for the CPU and as OpenCL.
//!
//! Without a compiler or device, these tests print a notice and pass;
//! `AUTOTUNE_REQUIRE=cxx,nvrtc,opencl` makes that a failure.

#![cfg(unix)]

use autotune_codegen as codegen;
use autotune_ir::analyse::analyse;
use autotune_ir::program::{Access, BufferId, Expr, GpuGrid, InBounds, Node, Program, Role, Store, StoreMode};
use autotune_ir::{Affine, DType, GpuApi, Launch, Target, interpret, verify};
use autotune_schedules::{Config, KnobValue, ScheduleSpace, lower};
use autotune_workloads::{Operands, Workload, reference};
use ndarray::ArrayD;
use rand::RngExt;

use crate::common::cases::for_cases;
use crate::common::cuda_on_cpu::OnCpu;
use crate::common::gpu_kernels::{assert_cuda_agrees, assert_opencl_agrees, programs};
use crate::common::nvrtc::Nvrtc;
use crate::common::pointwise::random_pointwise;
use crate::common::random_programs::{check, check_configs, check_drawn};
use crate::common::workloads::random_map_reduce;
use crate::common::{missing, or_long};

/// Special cases of each operator: padding, windows of a whole image, rows with strided elements,
/// values per element of a row, rows of one element, vectors of elements and of rows.
const WORKLOADS: [&str; 30] = [
    "pool2d:n=2,c=3,h=11,w=13,k=3,s=2,p=1,kind=max,bias,act=relu",
    "pool2d:n=2,c=5,h=9,w=9,k=9,kind=avg",
    "pool2d:c=4,h=8,w=10,k=2,s=2,ceil,kind=max",
    "reduce:m=5,n=700,op=max",
    "reduce:m=37,n=129,op=mean,bias",
    "transpose:b=2,m=37,n=29,add",
    "transpose:shape=17x3x40,perm=102",
    "transpose:shape=3x5x7x4,perm=2031,bias",
    "softmax:m=7,n=333",
    "softmax:m=2,n=21,k=40",
    "log_softmax:m=3,n=100,act=relu",
    "layer_norm:m=9,n=200",
    "rms_norm:m=33,n=1",
    "local_response_norm:n=2,c=9,s=20,size=5",
    "reduce:m=9,n=100,op=min",
    "pointwise:m=33,n=97,op=gelu,bias",
    "pointwise:m=7,n=64,op=mul,rhs=full",
    "pointwise:m=16,n=13,op=div,rhs=row,add",
    "pointwise:b=3,m=7,n=49,op=copy,channels=column,scale,bias,act=relu",
    "pointwise:b=2,m=16,n=13,pre=hard_sigmoid,op=mul,lhs=column,rhs=rows",
    "gather:m=37,n=40,k=19,bias",
    "gather:m=9,n=5,k=1000,act=gelu",
    "pad:c=3,h=7,w=9,p=2,mode=reflect,bias",
    "resize:n=2,c=3,h=5,w=7,oh=9,ow=16,mode=linear,act=relu",
    "pool2d:n=2,c=3,h=11,w=13,k=3,s=2,p=1,exclude_pad,kind=avg",
    "softmax:m=5,n=96",
    "layer_norm:m=6,n=64,act=relu",
    "pool2d:n=2,c=3,h=12,w=16,k=3,s=2,p=1,kind=max,bias,act=relu",
    "pool2d:c=4,h=8,w=16,k=2,s=2,kind=avg",
    "reduce:shape=5x24x16,axes=1,op=sum,bias",
];

/// Workloads whose results have another type than the operands.
const CASTS: [&str; 4] = [
    "pointwise:m=7,n=65,op=copy,to=f16",
    "pointwise:m=9,n=64,op=gelu,to=f32,dtype=f16,bias",
    "pointwise:b=2,m=3,n=31,op=add,rhs=row,to=bf16,dtype=f16",
    "pointwise:m=4,n=33,op=exp,to=f16,dtype=bf16,act=relu",
];

fn target(word: &str) -> Target {
    Target::detect(word, None).unwrap()
}

#[test]
fn random_programs_are_proven_and_agree_with_the_reference() {
    for word in ["cuda:sm_90", "opencl"] {
        let target = target(word);
        for_cases(or_long([12, 120]), |seed, choices| {
            let plain = if seed % 5 == 0 { random_pointwise(choices) } else { random_map_reduce(choices) };
            let is_half = target.supports(DType::F16) && choices.random_bool(0.2);
            let workload = plain.with_dtype(if is_half { DType::F16 } else { DType::F32 }).unwrap();
            check_drawn(&workload, &target, seed, 4, choices);
        });
    }
}

#[test]
fn cuda_agrees_with_the_reference() {
    assert_cuda_agrees(&WORKLOADS.map(|text| text.parse().unwrap()), or_long([1, 4]));
}

#[test]
fn casts_agree_with_the_reference_and_are_refused_where_the_type_is_not() {
    let casts: [Workload; 4] = CASTS.map(|text| text.parse().unwrap());
    for (seed, cast) in (0..).zip(&casts) {
        check(cast, &target("cuda:sm_90"), seed, 4);
    }
    assert_cuda_agrees(&casts, or_long([1, 4]));
    assert_opencl_agrees(&casts, or_long([1, 3]));

    let refused = |text: &str, word: &str| {
        let workload: Workload = text.parse().unwrap();
        let config = ScheduleSpace::new(&workload, &target("cuda:sm_90")).default_config();
        lower(&workload, &target(word), &config).unwrap_err().to_string()
    };
    assert!(refused(CASTS[2], "cuda:sm_70").starts_with("field 'to': no kernels with to=bf16 on"));
    assert!(refused("softmax:m=3,n=5,dtype=f16", "opencl").starts_with("field 'dtype': no kernels with dtype=f16 on"));
}

#[test]
fn opencl_agrees_with_the_reference() {
    assert_opencl_agrees(&WORKLOADS.map(|text| text.parse().unwrap()), or_long([1, 3]));
}

#[test]
fn cuda_compiles() {
    let nvrtc = match Nvrtc::find() {
        Ok(nvrtc) => nvrtc,
        Err(reason) => return missing("nvrtc", &reason),
    };
    let sm = if nvrtc.architectures.contains(&80) { 80 } else { nvrtc.architectures[0] };
    let target = target(&format!("cuda:sm_{sm}"));
    let with = |text: &str, dtype| text.parse::<Workload>().unwrap().with_dtype(dtype).unwrap();
    for (seed, text) in (0..).zip(WORKLOADS.into_iter().chain(CASTS)) {
        // In an ordinary run the types alternate.
        for (turn, dtype) in (0..).zip([DType::F32, DType::F16]) {
            if or_long([seed % 2 != turn, false]) {
                continue;
            }
            let workload = with(text, dtype);
            for (config, program) in programs(&workload, &target, 2, seed) {
                let source = codegen::gpu::generate(&program, GpuApi::Cuda { sm });
                let usage = nvrtc.compile(&source, sm).unwrap_or_else(|e| panic!("{config}\n{source}\n{e}"));
                assert!(usage.iter().all(|kernel| kernel.spill_bytes == 0), "{config}\n{source}\n{usage:?}");
            }
        }
    }
}

/// Defaults have access patterns that suit GPUs: adjacent threads read adjacent elements of a
/// softmax's rows, or one channel each of adjacent channels.
#[test]
fn the_default_reads_neighbours_by_neighbouring_threads() {
    for word in ["cuda:sm_90", "opencl"] {
        let target = target(word);
        for text in [
            "softmax:m=4096,n=1024",
            "softmax:m=8,n=21,k=4096",
            "reduce:m=4096,n=4096,op=sum",
            "pool2d:c=64,h=112,w=112,k=3,s=2,p=1,kind=max",
            "layer_norm:m=512,n=768",
            "pool2d:n=8,c=512,h=7,w=7,k=7,kind=avg",
        ] {
            let workload: Workload = text.parse().unwrap();
            let config = ScheduleSpace::new(&workload, &target).default_config();
            let program = lower(&workload, &target, &config).unwrap();
            let analysis = analyse(&program, &target);
            let kernels = analysis.kernels.as_ref().unwrap();
            let loads = kernels.main.global.loads[0];
            eprintln!("{word} {text}: {config}: {} cycles, coalescing {}", analysis.cycles(), loads.coalescing());
            let cycles = analysis.cycles();
            assert!(cycles.is_finite() && cycles > 0.0 && loads.coalescing() > 0.3, "{config}\n{program}\n{loads:?}");
            let launch = Launch::of(&program, &program.stages[0]).unwrap();
            assert!(launch.blocks >= 4, "{config}");
        }
    }
}

/// Defaults load and store at least four elements at once where rows are whole vectors, along any
/// contiguous axis.
#[test]
fn the_default_accesses_whole_vectors() {
    let target = target("cuda:sm_90");
    for (text, is_stored) in [
        ("softmax:m=4096,n=4096", true),
        ("softmax:m=8,n=21,k=4096", true),
        ("layer_norm:m=512,n=768", true),
        ("pointwise:m=4096,n=1024,op=gelu,bias", true),
        ("reduce:m=4096,n=4096,op=sum", false),
    ] {
        for dtype in [DType::F32, DType::F16] {
            let workload = text.parse::<Workload>().unwrap().with_dtype(dtype).unwrap();
            let config = ScheduleSpace::new(&workload, &target).default_config();
            let program = lower(&workload, &target, &config).unwrap();
            let memory = analyse(&program, &target).kernels.unwrap().main.global;
            let [loads, stores] = [memory.loads[0], memory.stores[2]];
            assert!(loads.mean_width() >= 4.0, "{workload}\n{config}\n{program}");
            assert!(!is_stored || stores.mean_width() >= 4.0, "{workload}\n{config}\n{program}");
            assert!(loads.coalescing() > 0.9, "{workload}\n{config}\n{loads:?}");
        }
    }
}

/// Transposes go through shared memory, so that adjacent threads read and write adjacent elements.
#[test]
fn the_default_of_transposes_reads_and_writes_neighbours() {
    for word in ["cuda:sm_90", "opencl"] {
        let target = target(word);
        for text in
            ["transpose:m=4096,n=4096", "transpose:b=8,m=200,n=300,bias", "transpose:shape=4x32x50x64,perm=2031"]
        {
            let workload: Workload = text.parse().unwrap();
            let config = ScheduleSpace::new(&workload, &target).default_config();
            let program = lower(&workload, &target, &config).unwrap();
            let main = analyse(&program, &target).kernels.unwrap().main;
            let (loads, stores) = (main.global.loads[0], main.global.stores[2]);
            let least = loads.coalescing().min(stores.coalescing());
            assert!(least > 0.6, "{text} on {word}\n{config}\n{program}\n{loads:?}\n{stores:?}");
        }
    }
}

/// A vector of narrow elements is loaded at once and stored as two vectors of wide elements.
#[test]
fn vectors_of_two_types_are_accessed_in_parts() {
    let (workload, target) = (CASTS[1].parse::<Workload>().unwrap(), target("cuda:sm_90"));
    let config = with_vector(&workload, &target, "8");
    let source = codegen::gpu::generate(&lower(&workload, &target, &config).unwrap(), GpuApi::Cuda { sm: 90 });
    let count = |text: &str| source.matches(text).count();
    assert_eq!((count("= *(const uint4 *)(input"), count("*(float4 *)(output")), (1, 2), "{source}");
}

/// Configs of versions without vectors keep their meaning.
#[test]
fn configs_without_vectors_are_of_single_elements() {
    let (workload, target) = ("softmax:m=6,n=64".parse::<Workload>().unwrap(), target("cuda:sm_90"));
    let single = with_vector(&workload, &target, "1");
    let mut old = single.clone();
    old.knobs.remove("vector");
    assert!(ScheduleSpace::new(&workload, &target).contains(&old));
    let [new, old] = [&single, &old].map(|config| lower(&workload, &target, config).unwrap());
    assert_eq!(new, old);
}

/// Returns a config with vectors of `lanes` elements.
fn with_vector(workload: &Workload, target: &Target, lanes: &str) -> Config {
    let space = ScheduleSpace::new(workload, target);
    let is_wanted = |config: &Config| config.knobs["vector"] == KnobValue::Choice(lanes.into());
    space.iter().map(|candidate| candidate.config().clone()).find(is_wanted).unwrap()
}

#[test]
fn every_choice_of_some_workloads_is_proven() {
    for (word, text) in [
        ("opencl", "softmax:m=3,n=70"),
        ("cuda:sm_80", "pool2d:c=2,h=6,w=5,k=3,p=1,kind=max"),
        ("opencl", "reduce:m=3,n=9,op=prod"),
        ("cuda:sm_80", "layer_norm:m=3,n=16"),
        ("cuda:sm_80", "transpose:b=2,m=37,n=70,bias,act=relu"),
        ("cuda:sm_80", "softmax:m=2,n=3,k=8,dtype=f16"),
    ] {
        let space = ScheduleSpace::new(&text.parse().unwrap(), &target(word));
        let all: Vec<Config> = space.iter().map(|candidate| candidate.config().clone()).collect();
        assert!(all.len() > 10, "{text}: {}", all.len());
        check_configs(&space, 7, all);
    }
}

/// Returns the program of a softmax with several threads per row.
fn softmax() -> (Program, Target) {
    let target = target("opencl");
    let (workload, text) =
        ("softmax:m=6,n=70".parse::<Workload>().unwrap(), "threads=64 threads.row=16 fan_in=4 unroll=2");
    let space = ScheduleSpace::new(&workload, &target);
    let wanted = |config: &Config| {
        text.split(' ').all(|one| config.to_string().split("; ").any(|known| known == one))
            && config.to_string().contains("keep=shared")
    };
    let config = space.iter().map(|candidate| candidate.config().clone()).find(wanted).unwrap();
    let program = lower(&workload, &target, &config).unwrap();
    assert_eq!(verify(&program, &target), Ok(()));
    (program, target)
}

fn for_each_list(nodes: &mut Vec<Node>, change: &mut impl FnMut(&mut Vec<Node>)) {
    change(nodes);
    nodes.iter_mut().filter_map(Node::body_mut).for_each(|body| for_each_list(body, change));
}

#[test]
fn a_barrier_that_is_left_out_is_missed() {
    let (program, target) = softmax();
    let mut barriers = 0;
    for_each_list(&mut program.stages[0].body.clone(), &mut |nodes| {
        barriers += nodes.iter().filter(|node| **node == Node::Barrier).count();
    });
    assert_eq!(barriers, 6);
    for left_out in 0..barriers {
        let (mut broken, mut number) = (program.clone(), 0);
        for_each_list(&mut broken.stages[0].body, &mut |nodes| {
            nodes.retain(|node| {
                number += usize::from(*node == Node::Barrier);
                *node != Node::Barrier || number != left_out + 1
            });
        });
        let problem = verify(&broken, &target).unwrap_err().to_string();
        assert!(problem.contains("without a barrier between"), "{problem}");
    }
}

#[test]
fn elements_that_no_thread_or_two_threads_have_are_found() {
    let (program, target) = softmax();
    type Break = fn(&mut Node);
    let cases: [Break; 3] = [
        |node| {
            if let Node::Loop(l) = node
                && l.extent == 3
            {
                l.extent = 2;
            }
        },
        |node| {
            if let Node::Unflatten { digits, .. } = node
                && digits[0].extent == 70
            {
                digits[0].extent = 60;
            }
        },
        |node| {
            if let Node::Unflatten { value, digits, .. } = node
                && digits[0].extent == 70
            {
                value.terms.iter_mut().for_each(|term| term.1 = term.1.min(8));
            }
        },
    ];

    for (case, change) in cases.into_iter().enumerate() {
        let mut broken = program.clone();
        for_each_list(&mut broken.stages[0].body, &mut |nodes| nodes.iter_mut().for_each(change));
        assert_ne!(broken, program, "case {case} changes nothing");
        assert!(verify(&broken, &target).is_err(), "case {case}\n{broken}");
    }
}

/// A store to the diagonal, under a condition on its only variable, does not cover the matrix.
#[test]
fn a_diagonal_is_not_the_whole_result() {
    let (workload, target) = ("softmax:m=32,n=32".parse::<Workload>().unwrap(), target("opencl"));
    let space = ScheduleSpace::new(&workload, &target);
    let wanted = |config: &Config| config.to_string().contains("threads=32; threads.row=1;");
    let config = space.iter().map(|candidate| candidate.config().clone()).find(wanted).unwrap();
    let mut program = lower(&workload, &target, &config).unwrap();
    assert_eq!(verify(&program, &target), Ok(()));

    let output = program.find(Role::Output).unwrap();
    let thread = GpuGrid::of(&program.stages[0]).unwrap().threads[0].var;
    let index = vec![Affine::var(thread), Affine::var(thread)];
    let dst = Access { buffer: output, index: index.into() };
    let store = Node::Store(Store { dst, mode: StoreMode::Assign, value: Expr::Const(0.0), iteration: None });
    let when = vec![InBounds { index: Affine::var(thread), extent: 32 }];
    let diagonal = Node::Guard { when, body: vec![store] };
    for_each_list(&mut program.stages[0].body, &mut |nodes| {
        let writes = |node: &Node| matches!(node, Node::Unflatten { .. }) && stores_to(node, output);
        if let Some(node) = nodes.iter_mut().find(|node| writes(node)) {
            *node = diagonal.clone();
        }
    });
    assert!(verify(&program, &target).unwrap_err().to_string().contains("to a different element"), "{program}");
}

fn stores_to(node: &Node, buffer: BufferId) -> bool {
    matches!(node, Node::Store(store) if store.dst.buffer == buffer)
        || node.body().iter().any(|node| stores_to(node, buffer))
}

/// Returns operands with infinities and NaN in the first rows, and a row with nothing but the least
/// value.
fn special_operands(workload: &Workload) -> Operands {
    let mut operands = Operands::random(workload.spec(), 5);
    let row = operands[0].len() / 6;
    let input = operands[0].as_slice_mut().unwrap();
    for (number, special) in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY].into_iter().enumerate() {
        input[number * row + 13 * number + 5] = special;
    }
    input[3 * row..4 * row].fill(f32::NEG_INFINITY);
    operands
}

#[test]
fn infinities_and_nan_are_those_of_the_definition() {
    let target = target("cuda:sm_90");
    let workloads =
        ["reduce:m=6,n=70,op=max", "softmax:m=6,n=70", "pool2d:n=6,c=1,h=7,w=10,k=3,p=1,kind=max", "rms_norm:m=6,n=70"]
            .map(|text| text.parse::<Workload>().unwrap());
    let assert_alike = |output: &ArrayD<f32>, expected: &ArrayD<f32>, context: &str| {
        let is_alike = |(found, wanted): (&f32, &f32)| {
            found == wanted || found.is_nan() && wanted.is_nan() || (found - wanted).abs() < 1e-4
        };
        let wrong = output.iter().zip(expected).position(|pair| !is_alike(pair));
        assert_eq!(wrong, None, "{context}\n{output}\n{expected}");
    };
    let mut all = Vec::new();
    for workload in &workloads {
        let operands = special_operands(workload);
        let expected = reference(workload, &operands);
        assert!(expected.iter().any(|x| x.is_nan()) && expected.iter().any(|x| x.is_finite()), "{workload}");
        for (config, program) in programs(workload, &target, 6, 1) {
            let context = format!("{workload}, {config}");
            assert_alike(&interpret(&program, &operands).unwrap(), &expected, &context);
            all.push((program, operands.clone(), expected.clone(), context));
        }
    }

    let built = match OnCpu::build(all.iter().map(|one| one.0.clone()).collect(), |_, text| text) {
        Ok(built) => built,
        Err(reason) => return missing("g++", &reason),
    };
    for (number, (_, operands, expected, context)) in all.iter().enumerate() {
        assert_alike(&built.run(number, operands, false).unwrap(), expected, &format!("as CUDA: {context}"));
    }
}
