//! Two contractions in one program: naive references, random schedules, and programs that the
//! verifier refuses.

use std::cell::RefCell;

use autotune_ir::program::{Access, BufferId, Expr, Loop, LoopKind, Node, Program, Role, Scope};
use autotune_ir::{Affine, CpuTarget, Isa, Target, verify};
use autotune_schedules::{Config, KnobValue, ScheduleSpace, fused, lower};
use autotune_workloads::{Between, Mlp, Operands, SeparableConv2d, Workload, max_rel_error, reference};
use ndarray::ArrayD;

use crate::common::cases::for_cases;
use crate::common::epilogues::activated;
use crate::common::nests::{for_each_loop, for_each_store};
use crate::common::or_long;
use crate::common::pairs::{odd_pair, random_pair};
use crate::common::random_programs::{check, check_configs, check_drawn};

fn target(isa: Isa, threads: usize) -> Target {
    Target::Cpu(CpuTarget { isa, ..CpuTarget::generic_avx2(threads) })
}

/// Applies the map between the contractions to a sum.
fn between(operands: &Operands, of: Between, sum: f64, channel: usize) -> f64 {
    let bias = operands.named("mid_bias").map(|bias| f64::from(bias[channel]));
    assert_eq!(bias.is_some(), of.bias);
    activated(of.activation, sum + bias.unwrap_or(0.0), f64::NAN)
}

/// Computes every tap and every channel separately.
fn separable(conv: &SeparableConv2d, operands: &Operands) -> ArrayD<f64> {
    let (input, depthwise, pointwise) =
        (&operands[0], operands.named("depthwise").unwrap(), operands.named("pointwise").unwrap());
    let [rows, columns] = conv.windows;
    let mid = ArrayD::from_shape_fn(vec![conv.n, conv.c, rows.outputs(), columns.outputs()], |i| {
        let mut sum = 0.0;
        for (kh, kw) in (0..rows.kernel).flat_map(|kh| (0..columns.kernel).map(move |kw| (kh, kw))) {
            let y = (i[2] * rows.stride + kh * rows.dilation).checked_sub(rows.pad).filter(|&y| y < rows.extent);
            let x = (i[3] * columns.stride + kw * columns.dilation).checked_sub(columns.pad);
            if let (Some(y), Some(x)) = (y, x.filter(|&x| x < columns.extent)) {
                sum += f64::from(input[[i[0], i[1], y, x]]) * f64::from(depthwise[[i[1], 0, kh, kw]]);
            }
        }
        between(operands, conv.between, sum, i[1])
    });
    ArrayD::from_shape_fn(vec![conv.n, conv.o, rows.outputs(), columns.outputs()], |i| {
        (0..conv.c).map(|c| mid[[i[0], c, i[2], i[3]]] * f64::from(pointwise[[i[1], c, 0, 0]])).sum()
    })
}

fn perceptron(mlp: &Mlp, operands: &Operands) -> ArrayD<f64> {
    let [first, second] = ["weight1", "weight2"].map(|name| operands.named(name).unwrap().mapv(f64::from));
    let mid = ArrayD::from_shape_fn(vec![mlp.m, mlp.h], |i| {
        let sum = (0..mlp.k).map(|k| f64::from(operands[0][[i[0], k]]) * first[[k, i[1]]]).sum();
        between(operands, mlp.between, sum, i[1])
    });
    ArrayD::from_shape_fn(vec![mlp.m, mlp.n], |i| (0..mlp.h).map(|h| mid[[i[0], h]] * second[[h, i[1]]]).sum())
}

/// Applies the epilogue to sums.
fn finished(workload: &Workload, operands: &Operands, sums: ArrayD<f64>) -> ArrayD<f32> {
    let of_channel = |name: &str, channel: usize| operands.named(name).map(|values| f64::from(values[channel]));
    ArrayD::from_shape_fn(sums.shape(), |i| {
        let scaled = sums[&i] * of_channel("output_scale", i[1]).unwrap_or(1.0);
        let residual = operands.named("residual").map_or(0.0, |residual| f64::from(residual[&i]));
        let value = scaled + of_channel("bias", i[1]).unwrap_or(0.0) + residual;
        let value = activated(workload.epilogue().activation, value, of_channel("slope", i[1]).unwrap_or(f64::NAN));
        let value = value * of_channel("post_scale", i[1]).unwrap_or(1.0);
        let added = operands.named("post_residual").map_or(0.0, |residual| f64::from(residual[&i]));
        let added = added * of_channel("residual_scale", i[1]).unwrap_or(0.0);
        (value + of_channel("post_bias", i[1]).unwrap_or(0.0) + added) as f32
    })
}

#[test]
fn references_are_what_each_operator_says() {
    let kinds = RefCell::new([0; 2]);
    for_cases(or_long([150, 300]), |seed, choices| {
        let workload = random_pair(choices);
        let operands = Operands::random(workload.spec(), seed);
        let conv = workload.sizes::<SeparableConv2d>().map(|conv| separable(conv, &operands));
        kinds.borrow_mut()[usize::from(conv.is_some())] += 1;
        let mlp = workload.sizes::<Mlp>().map(|mlp| perceptron(mlp, &operands));
        let wanted = finished(&workload, &operands, conv.or(mlp).unwrap());
        let error = max_rel_error(&reference(&workload, &operands), &wanted);
        assert!(error < 1e-6, "{workload}: {error}");
    });
    assert!(kinds.borrow().iter().all(|&count| count > or_long([25, 50])), "{kinds:?}");
}

#[test]
fn random_programs_are_proven_and_agree_with_the_reference() {
    for isa in [Isa::Avx2, Isa::Avx512, Isa::Neon] {
        for_cases(or_long([25, 80]), |seed, choices| {
            check_drawn(&random_pair(choices), &target(isa, 1 + seed as usize % 2), seed, 5, choices);
        });
    }
}

#[test]
fn every_pair_has_a_default_and_no_other_sketch() {
    for isa in [Isa::Avx2, Isa::Avx512, Isa::Generic] {
        for_cases(or_long([100, 300]), |seed, choices| {
            let workload = if seed % 3 == 0 { odd_pair(choices) } else { random_pair(choices) };
            let target = target(isa, 1 + seed as usize % 3);
            let space = ScheduleSpace::new(&workload, &target);
            let names: Vec<&str> = space.sketches().iter().map(|sketch| sketch.name()).collect();
            assert_eq!(names, [fused::SKETCH], "{workload}");
            let sketch = &space.sketches()[0];
            let default = sketch.sketch.default(&workload, &target, sketch);
            assert!(default.is_some(), "{isa}: no rule for {workload}");
            assert!(space.contains(&space.default_config()), "{workload}\n{}", space.default_config());
        });
    }
}

/// Returns the space of a workload, and its default config with other values of some knobs.
fn changed(text: &str, target: &Target, changes: &[(&str, KnobValue)]) -> (ScheduleSpace, Config) {
    let space = ScheduleSpace::new(&text.parse().unwrap(), target);
    let mut config = space.default_config();
    for (knob, value) in changes {
        assert!(config.knobs.insert(knob.to_string(), value.clone()).is_some(), "no knob {knob}");
    }
    (space, config)
}

fn word(word: &str) -> KnobValue {
    KnobValue::Choice(word.into())
}

const CONV: &str = "separable_conv2d:n=2,c=32,h=9,w=11,o=24,k=3,p=1,mid=relu,mid_bias,bias,add,act=relu";
const MLP: &str = "mlp:m=19,n=24,k=40,h=64,mid=gelu,mid_bias,bias,add";

#[test]
fn intermediate_tensors_are_kept_in_chunks_or_written_out() {
    let target = target(Isa::Avx2, 2);
    for (text, chunk) in [(CONV, "tile.c"), (MLP, "tile.h")] {
        for (between, size) in [("tile", 16), ("tile", 64), ("whole", 16), ("whole", 64)] {
            let size = if text == CONV { size.min(32) } else { size };
            let changes = [("between", word(between)), (chunk, KnobValue::Tile(vec![size]))];
            let (space, config) = changed(text, &target, &changes);
            check_configs(&space, 3, [config.clone()]);
            let program = lower(space.workload(), &target, &config).unwrap();
            let mid = program.buffers.iter().find(|buffer| buffer.name == "mid").unwrap();
            assert_eq!(mid.scope == Scope::Local, between == "tile", "{config}");
            let stages = program.stages.iter().filter(|stage| stage.name.starts_with("compute")).count();
            assert_eq!(stages, if between == "tile" { 1 } else { 2 }, "{config}");
        }
    }
}

#[test]
fn the_equation_with_the_most_work_may_be_either() {
    for text in [
        "separable_conv2d:c=32,h=7,w=9,o=3,k=5,p=2,mid=relu",
        "separable_conv2d:c=16,h=8,w=8,o=8,k=3,p=1,bias",
        "mlp:m=9,n=3,k=50,h=16,mid=relu",
    ] {
        let workload: Workload = text.parse().unwrap();
        assert_eq!(workload.spec().main, 0, "{text}");
        check(&workload, &target(Isa::Avx2, 2), 1, 30);
    }
    assert_eq!(CONV.parse::<Workload>().unwrap().spec().main, 2);
}

#[test]
fn refusals_name_the_knob() {
    let target = target(Isa::Avx2, 1);
    let refused = |text: &str, knob: &str, value: KnobValue| {
        let (space, config) = changed(text, &target, &[(knob, value)]);
        let error = lower(space.workload(), &target, &config).unwrap_err().to_string();
        assert!(!space.contains(&config) && error.starts_with(&format!("knob '{knob}")), "{knob}: {error}");
    };
    refused(CONV, "between", word("half"));
    refused(CONV, "tile.c", KnobValue::Tile(vec![12]));
    refused(CONV, "tile.oh", KnobValue::Tile(vec![0]));
    refused(CONV, "order", KnobValue::Order(vec!["oh".into(), "oh".into()]));
    refused(CONV, "layout.between", word("plane"));
    refused(CONV, "first.vector", word("n"));
    refused(CONV, "second.unroll", word("none"));
    refused(CONV, "first.tile.ow", KnobValue::Tile(vec![1, 2]));
    refused(CONV, "second.order.inner", KnobValue::Order(vec!["o".into()]));
    refused(MLP, "first.weights", word("loose"));

    // The intermediate result exceeds the second-level cache.
    let wide = "mlp:m=512,n=16,k=8,h=8192";
    let (space, config) = changed(wide, &target, &[("tile.m", KnobValue::Tile(vec![96]))]);
    let error = lower(space.workload(), &target, &config).unwrap_err().to_string();
    assert!(error.starts_with("knob 'between': 3151872 bytes of intermediate values exceed"), "{error}");
}

/// Returns the problem that the verifier finds after `change`.
fn problem(text: &str, change: impl FnOnce(&mut Program)) -> String {
    let target = target(Isa::Avx2, 1);
    let (space, config) = changed(text, &target, &[]);
    let mut program = lower(space.workload(), &target, &config).unwrap();
    assert_eq!(verify(&program, &target), Ok(()));
    change(&mut program);
    verify(&program, &target).unwrap_err().problem.to_string()
}

fn compute(program: &mut Program) -> &mut Vec<Node> {
    &mut program.stages.iter_mut().find(|stage| stage.name == "compute").unwrap().body
}

#[test]
fn products_of_either_contraction_that_are_lost_or_done_twice_are_found() {
    for (text, axis) in [(CONV, "kh.r"), (CONV, "c.r"), (MLP, "k.r"), (MLP, "h.r")] {
        let with_loops = |change: &dyn Fn(&mut Loop)| {
            problem(text, |program| {
                let names = program.vars.clone();
                for_each_loop(compute(program), &mut |l| {
                    if names[l.var.0 as usize] == axis && l.extent > 1 && l.kind != LoopKind::Vectorized {
                        change(l);
                    }
                });
            })
        };
        let lost = with_loops(&|l| l.extent -= 1);
        assert!(lost.contains("iterations are executed"), "{text}, {axis}: {lost}");
        let twice = with_loops(&|l| l.body.extend(l.body.clone()));
        assert!(twice.contains("also executes"), "{text}, {axis}: {twice}");
    }
}

#[test]
fn inputs_and_iterations_that_do_not_fit_each_other_are_found() {
    for (text, equation) in [(CONV, 0), (MLP, 0), (CONV, 2), (MLP, 2)] {
        let moved = problem(text, |program| {
            for_each_store(compute(program), &mut |store| {
                if let Some(iteration) = store.iteration.as_mut().filter(|it| it.equation == equation) {
                    iteration.equation = 2 - equation;
                }
            });
        });
        assert!(!moved.is_empty());
    }

    let swapped = problem(MLP, |program| {
        let input = program.find(Role::Operand(0)).unwrap();
        for_each_store(compute(program), &mut |store| {
            let shift = |access: &Access| match access.buffer == input {
                true => {
                    Expr::Load(Access { index: [access.index[0].clone(), Affine::default()].into(), ..access.clone() })
                }
                false => Expr::Load(access.clone()),
            };
            store.value = store.value.replaced(&mut { shift });
        });
    });
    assert!(swapped.contains("not read at the index"), "{swapped}");

    let foreign = problem(CONV, |program| {
        let residual = program.buffers.iter().position(|buffer| buffer.name == "residual").unwrap();
        let output = program.find(Role::Output).unwrap();
        for_each_store(compute(program), &mut |store| {
            if store.dst.buffer == output {
                store.dst.buffer = BufferId(residual as u32);
            }
        });
    });
    assert!(foreign.contains("residual"), "{foreign}");
}

#[test]
fn the_text_forms_are_read_as_they_are_written() {
    for text in [
        "separable_conv2d:n=1,c=64,h=56,w=56,o=128,k=3,s=1,p=1,mid=relu",
        "separable_conv2d:n=2,c=3,h=9,w=8,o=5,kh=3,kw=2,s=1,p=0,d=2,mid=relu,mid_bias,bias,act=relu",
        "separable_conv2d:n=1,c=3,h=9,w=8,o=5,k=3,s=2,p=1",
        "mlp:m=197,n=768,k=768,h=3072,mid=gelu",
        "mlp:m=3,n=4,k=5,h=6,mid=clip:0:6,mid_bias,scale,bias,act=prelu",
        "mlp:m=1,n=2,k=3,h=4,mid_bias,bias,add",
    ] {
        assert_eq!(text.parse::<Workload>().unwrap().to_string(), text);
    }
}

#[test]
fn errors_name_the_operator_and_the_field() {
    for (text, wanted) in [
        ("separable_conv2d:c=3,h=8,w=8,k=3", "separable_conv2d: field 'o' is missing"),
        ("separable_conv2d:c=3,h=8,w=8,o=0,k=3", "separable_conv2d: field 'o': must be at least 1"),
        ("separable_conv2d:c=3,h=8,w=8,o=4,k=9", "separable_conv2d: field 'kh': the dilated kernel spans 9"),
        ("separable_conv2d:c=3,h=8,w=8,o=4,k=3,g=3", "separable_conv2d: unknown field 'g'"),
        ("separable_conv2d:c=3,h=8,w=8,o=4,k=3,mid=cosh", "separable_conv2d: field 'mid': 'cosh' is not an activation"),
        (
            "separable_conv2d:c=99999999,h=9999,w=9999,o=4,k=1",
            "separable_conv2d: field 'c': 99999999 is too large: input exceeds the supported size",
        ),
        ("mlp:m=4,n=4,k=4", "mlp: field 'h' is missing"),
        (
            "mlp:m=4,n=4,k=4,h=4,mid=prelu",
            "mlp: field 'mid': an activation with slopes or steps, such as prelu or round, is not supported here",
        ),
        ("mlp:m=4,n=4,k=4,h=0", "mlp: field 'h': must be at least 1"),
        ("mlp:m=4,n=4,k=4,h=4,mid_bias=2", "mlp: field 'mid_bias': '2' is not a flag"),
        ("mlp:m=99999999,n=4,k=4,h=99999999", "mlp: field 'm': 99999999 is too large: mid exceeds the supported size"),
    ] {
        let error = text.parse::<Workload>().unwrap_err().to_string();
        assert!(error.starts_with(wanted), "{text}: {error}");
    }
}
