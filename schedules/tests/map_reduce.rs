//! Maps and reductions: naive references, random schedules, and programs that the verifier refuses.

use std::cell::RefCell;
use std::collections::BTreeSet;

use autotune_ir::program::{BufferId, Expr, Layout, Node, Program, Role, Store, StoreMode};
use autotune_ir::{Affine, CpuTarget, DType, Isa, Target, interpret, verify};
use autotune_schedules::{KnobValue, ScheduleSpace, lower};
use autotune_workloads::{
    AttentionWorkload, GroupNormWorkload, LayerNormWorkload, LocalResponseNormWorkload, Mask, Operands, Pool2d,
    PoolKind, ReduceOp, ReduceWorkload, RmsNorm, SoftmaxWorkload, TransposeWorkload, Workload, max_rel_error,
    reference,
};
use ndarray::{ArrayD, Axis, s};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use crate::common::cases::for_cases;
use crate::common::epilogues::activated;
use crate::common::nests::for_each_store;
use crate::common::or_long;
use crate::common::random_programs::{check, check_configs, check_drawn};
use crate::common::spaces::random_blocked;
use crate::common::workloads::{random_attention, random_map_reduce};

/// Pools each window element by element.
fn pooled(pool: &Pool2d, input: &ArrayD<f32>) -> ArrayD<f64> {
    let [oh, ow] = pool.output_hw();
    ArrayD::from_shape_fn(vec![pool.n, pool.c, oh, ow], |i| {
        let (mut elements, mut with_padding) = (Vec::new(), 0);
        for (y, x) in (0..pool.kernel[0]).flat_map(|y| (0..pool.kernel[1]).map(move |x| (y, x))) {
            let at = [i[2] * pool.stride[0] + y * pool.dilation[0], i[3] * pool.stride[1] + x * pool.dilation[1]];
            let row = at[0].checked_sub(pool.pad[0]).filter(|&y| y < pool.h);
            let column = at[1].checked_sub(pool.pad[1]).filter(|&x| x < pool.w);
            with_padding += usize::from(at[0] < pool.h + 2 * pool.pad[0] && at[1] < pool.w + 2 * pool.pad[1]);
            elements.extend(row.zip(column).map(|(y, x)| f64::from(input[[i[0], i[1], y, x]])));
        }
        match pool.kind {
            PoolKind::Max => elements.into_iter().reduce(f64::max).unwrap(),
            PoolKind::InnerAverage => elements.iter().sum::<f64>() / elements.len() as f64,
            PoolKind::Average => elements.iter().sum::<f64>() / with_padding as f64,
        }
    })
}

fn reduced(reduce: &ReduceWorkload, input: &ArrayD<f32>) -> ArrayD<f64> {
    let (extents, left_out) = (reduce.extents(), reduce.extents().len() - input.ndim());
    let mut values = input.mapv(f64::from);
    for place in (0..extents.len()).rev().filter(|place| place % 2 == 1) {
        values = values.map_axis(Axis(place - left_out), |row| match reduce.op() {
            ReduceOp::Sum => row.sum(),
            ReduceOp::Mean => row.sum() / extents[place] as f64,
            ReduceOp::Prod => row.product(),
            ReduceOp::Max => row.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            ReduceOp::Min => row.iter().copied().fold(f64::INFINITY, f64::min),
        });
    }
    values
}

fn transposed(transpose: &TransposeWorkload, input: &ArrayD<f32>) -> ArrayD<f64> {
    assert_eq!(input.shape(), transpose.shape());
    input.view().permuted_axes(transpose.perm()).mapv(f64::from)
}

/// Computes attention query by query.
fn attended(attention: &AttentionWorkload, operands: &Operands) -> ArrayD<f64> {
    let AttentionWorkload { b, h, m, n, k, d, mask, causal } = *attention;
    let [query, key, value] = [(0, m, k), (1, n, k), (2, n, d)]
        .map(|(i, rows, columns)| operands[i].mapv(f64::from).into_shape_with_order([b, h, rows, columns]).unwrap());
    let added = |batch: usize, row: usize, j: usize| match mask {
        Mask::None => 0.0,
        Mask::Row => operands[3][[j]],
        Mask::Rows => operands[3][[batch, j]],
        Mask::Matrix => operands[3][[row, j]],
        Mask::Matrices => operands[3][[batch, row, j]],
    };
    let output = ndarray::Array4::from_shape_fn([b, h, m, d], |(batch, head, row, x)| {
        let is_seen = |j: &usize| !causal || *j <= row + n - m;
        let weights = (0..n).filter(is_seen).map(|j| {
            let product: f64 = (0..k).map(|k| query[[batch, head, row, k]] * key[[batch, head, j, k]]).sum();
            let weight = (product / (k as f64).sqrt() + f64::from(added(batch, row, j))).exp();
            (weight, weight * value[[batch, head, j, x]])
        });
        let (total, sum) = weights.fold((0.0, 0.0), |(total, sum), (weight, value)| (total + weight, sum + value));
        sum / total
    });
    let shape = if h == 1 { vec![b, m, d] } else { vec![b, h, m, d] };
    output.into_shape_with_order(shape).unwrap()
}

/// Normalises row by row, by the definitions of the papers.
fn normalised(workload: &Workload, operands: &Operands) -> Option<ArrayD<f64>> {
    let input = operands[0].mapv(f64::from);
    if let Some(softmax) = workload.sizes::<SoftmaxWorkload>() {
        let mut output = input;
        for mut row in output.lanes_mut(Axis(1)) {
            let total: f64 = row.iter().map(|x| x.exp()).sum();
            row.mapv_inplace(|x| if softmax.log { x - total.ln() } else { x.exp() / total });
        }
        return Some(output);
    }

    if let Some(norm) = workload.sizes::<GroupNormWorkload>() {
        let of_group = norm.c / norm.groups;
        return Some(ArrayD::from_shape_fn(input.shape(), |i| {
            let first = i[1] / of_group * of_group;
            let group = input.slice(s![i[0], first..first + of_group, ..]);
            let mean = group.mean().unwrap();
            let variance = group.mapv(|x| (x - mean).powi(2)).mean().unwrap();
            let normal = (input[&i] - mean) / (variance + f64::from(norm.eps)).sqrt();
            normal * f64::from(operands[1][i[1]]) + f64::from(operands[2][i[1]])
        }));
    }
    if let Some(norm) = workload.sizes::<LocalResponseNormWorkload>() {
        return Some(ArrayD::from_shape_fn(input.shape(), |i| {
            let low = i[1].saturating_sub((norm.size - 1) / 2);
            let high = (i[1] + norm.size / 2).min(norm.c - 1);
            let squares: f64 = (low..=high).map(|c| input[[i[0], c, i[2]]].powi(2)).sum();
            let mean = f64::from(norm.alpha) * squares / norm.size as f64;
            input[&i] / (f64::from(norm.shift) + mean).powf(f64::from(norm.beta))
        }));
    }

    if let Some(attention) = workload.sizes::<AttentionWorkload>() {
        return Some(attended(attention, operands));
    }

    let (norm, rms) = (workload.sizes::<LayerNormWorkload>(), workload.sizes::<RmsNorm>());
    let eps = f64::from(norm.map(|norm| norm.eps).or(rms.map(|rms| rms.eps))?);
    let mut output = input;
    for mut row in output.lanes_mut(Axis(1)) {
        let n = row.len() as f64;
        let mean = if norm.is_some() { row.sum() / n } else { 0.0 };
        let deviation = (row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n + eps).sqrt();
        for (i, x) in row.iter_mut().enumerate() {
            let shift = if norm.is_some() { f64::from(operands[2][i]) } else { 0.0 };
            *x = (*x - mean) / deviation * f64::from(operands[1][i]) + shift;
        }
    }
    Some(output)
}

fn by_hand(workload: &Workload, operands: &Operands) -> ArrayD<f32> {
    let function = workload.prologue().activation;
    let input = &operands[0].mapv(|x| activated(function, x.into(), 1.0) as f32);
    let pool = workload.sizes::<Pool2d>().map(|pool| pooled(pool, input));
    let reduce = workload.sizes::<ReduceWorkload>().map(|reduce| reduced(reduce, input));
    let transpose = workload.sizes::<TransposeWorkload>().map(|transpose| transposed(transpose, input));
    pool.or(reduce).or(transpose).or(normalised(workload, operands)).unwrap().mapv(|x| x as f32)
}

const KINDS: [&str; 11] = [
    "attention",
    "pool2d",
    "reduce",
    "transpose",
    "softmax",
    "log_softmax",
    "layer_norm",
    "rms_norm",
    "group_norm",
    "instance_norm",
    "local_response_norm",
];

#[test]
fn references_are_what_each_operator_says() {
    let kinds = RefCell::new([0; KINDS.len()]);
    for_cases(1200, |seed, choices| {
        let workload = random_map_reduce(choices).with_epilogue(Default::default());
        let operands = Operands::random(workload.spec(), seed);
        let error = max_rel_error(&reference(&workload, &operands), &by_hand(&workload, &operands));
        assert!(error < 1e-6, "{workload}: {error}");
        let kind = workload.operator().kind().name;
        kinds.borrow_mut()[KINDS.iter().position(|known| *known == kind).unwrap()] += 1;
    });
    assert!(kinds.borrow().iter().all(|&count| count > 5), "{kinds:?}");
}

#[test]
fn random_programs_are_proven_and_agree_with_the_reference() {
    for isa in [Isa::Avx2, Isa::Avx512, Isa::Generic] {
        for_cases(or_long([10, 80]), |seed, choices| {
            let target = Target::Cpu(CpuTarget { isa, ..CpuTarget::generic_avx2(1 + seed as usize % 3) });
            check_drawn(&random_map_reduce(choices), &target, seed, 5, choices);
        });
    }
}

#[test]
fn random_attention_is_proven_and_agrees_with_the_reference() {
    let kinds = RefCell::new(BTreeSet::new());
    for_cases(90, |seed, choices| {
        let isa = [Isa::Avx2, Isa::Avx512, Isa::Generic][seed as usize % 3];
        let target = Target::Cpu(CpuTarget { isa, ..CpuTarget::generic_avx2(1 + seed as usize % 2) });
        let attention = random_attention(choices);
        kinds.borrow_mut().insert((attention.mask, attention.causal, attention.h));
        // In bf16, elements of queries are widened once.
        let dtype = if seed % 4 < 2 { DType::F32 } else { DType::Bf16 };
        let workload = Workload::new(attention).unwrap().with_dtype(dtype).unwrap();
        check_drawn(&workload, &target, seed, 3, choices);
    });
    assert!(kinds.borrow().len() > 12, "{kinds:?}");
}

/// Keys masked by minus infinity, and rows in which all keys but one are.
#[test]
fn masked_keys_have_no_weight() {
    let workload: Workload = "attention:b=2,m=3,n=5,k=4,mask=rows".parse().unwrap();
    let mut operands = Operands::random(workload.spec(), 0);
    operands[3].slice_mut(s![0, 2..]).fill(f32::NEG_INFINITY);
    operands[3].slice_mut(s![1, ..4]).fill(f32::NEG_INFINITY);
    let output = reference(&workload, &operands);
    assert!(max_rel_error(&output, &by_hand(&workload, &operands)) < 1e-6);
    for row in 0..3 {
        let last = operands[2].slice(s![1, 4, ..]);
        assert!(output.slice(s![1, row, ..]).iter().zip(&last).all(|(a, b)| (a - b).abs() < 1e-6));
    }
}

#[test]
fn random_images_in_blocks_of_channels_are_proven_and_agree_with_the_reference() {
    let layouts = RefCell::new(BTreeSet::new());
    for isa in [Isa::Avx2, Isa::Avx512, Isa::Generic] {
        for_cases(or_long([10, 80]), |seed, choices| {
            let target = Target::Cpu(CpuTarget { isa, ..CpuTarget::generic_avx2(1 + seed as usize % 3) });
            let (workload, config) = random_blocked(&target, choices);
            layouts.borrow_mut().insert(["layout.in", "layout.out"].map(|knob| config.knobs[knob].to_string()));
            check_configs(&ScheduleSpace::new(&workload, &target), seed, [config]);
        });
    }
    assert_eq!(layouts.borrow().len(), 3, "{layouts:?}");
}

#[test]
fn images_of_whole_blocks_are_in_blocks_of_channels_by_default() {
    let target = Target::Cpu(CpuTarget { isa: Isa::Avx512, ..CpuTarget::generic_avx2(1) });
    let layouts = |text: &str| {
        let workload: Workload = text.parse().unwrap();
        let config = ScheduleSpace::new(&workload, &target).default_config();
        let program = lower(&workload, &target, &config).unwrap();
        let buffers = program.buffers.iter().filter(|buffer| matches!(buffer.role, Role::Operand(_) | Role::Output));
        buffers.map(|buffer| (buffer.name.clone(), buffer.layout)).collect::<Vec<_>>()
    };

    let (blocked, plain) = (Layout::ChannelBlocked(16), Layout::Plain);
    let named =
        |all: &[(&str, Layout)]| all.iter().map(|&(name, layout)| (name.to_string(), layout)).collect::<Vec<_>>();

    for kind in ["max", "avg", "avg,exclude_pad"] {
        let pool = |c: usize| layouts(&format!("pool2d:c={c},h=9,w=9,k=3,s=2,p=1,kind={kind},bias,add"));
        let with = |layout| named(&[("input", layout), ("bias", plain), ("residual", layout), ("output", layout)]);
        assert_eq!(pool(48), with(blocked));
        assert_eq!(pool(40), with(plain));
    }

    assert_eq!(layouts("resize:c=16,h=3,w=3,s=2,mode=nearest"), named(&[("input", blocked), ("output", blocked)]));
    let channels = layouts("pointwise:m=16,n=9,op=copy,channels=column,scale,add");
    let images = [("input", blocked), ("output_scale", plain), ("residual", blocked), ("output", blocked)];
    assert_eq!(channels, named(&images));

    // The sampled positions come from tables.
    let resampled = layouts("resize:c=16,h=3,w=3,oh=5,ow=5,mode=linear");
    assert_eq!(resampled, named(&[("input", plain), ("output", plain)]));
    assert_eq!(layouts("transpose:b=16,m=16,n=16"), named(&[("input", plain), ("output", plain)]));
}

/// Sketches of poolings, the default's first.
#[test]
fn overlapping_windows_of_plain_images_are_combined_down_and_then_across() {
    let target = Target::Cpu(CpuTarget { isa: Isa::Avx512, ..CpuTarget::generic_avx2(1) });
    for (fields, wanted) in [
        ("c=24,h=56,w=56,k=3,s=2,p=1,kind=max", &["separable"][..]),
        ("c=3,h=40,w=40,k=5,p=2,exclude_pad,kind=avg,bias,act=relu", &["separable"]),
        ("c=24,h=28,w=28,k=3,d=2,p=2,kind=avg", &["separable"]),
        // Windows of two rows or columns, or with long strides, may be as fast in one pass.
        ("c=24,h=56,w=56,k=2,s=1,kind=max", &["separable", "map_reduce"]),
        ("c=24,h=60,w=60,k=5,s=4,kind=max", &["separable", "map_reduce"]),
        // Channel-blocked images.
        ("c=64,h=56,w=56,k=3,s=2,p=1,kind=max", &["map_reduce", "separable"]),
        // Windows that do not overlap.
        ("c=24,h=56,w=56,k=2,s=2,kind=max", &["map_reduce"]),
        ("c=24,h=7,w=7,global,kind=avg", &["map_reduce"]),
        ("c=24,h=56,w=56,kh=1,kw=3,kind=max", &["map_reduce"]),
    ] {
        let space = ScheduleSpace::new(&format!("pool2d:{fields}").parse().unwrap(), &target);
        let mut rng = ChaCha8Rng::seed_from_u64(0);
        let sampled = (0..40).map(|_| space.sample(&mut rng).config().sketch.clone());
        let mut found: Vec<String> = [space.default_config().sketch.clone()].into_iter().chain(sampled).collect();
        let default = found[0].clone();
        found.sort_by_key(|name| (*name != default, name.clone()));
        found.dedup();
        assert_eq!(found, wanted, "{fields}");
    }
}

#[test]
fn vectors_run_along_rows_of_pairs() {
    for isa in [Isa::Avx2, Isa::Avx512, Isa::Generic] {
        let target = Target::Cpu(CpuTarget { isa, ..CpuTarget::generic_avx2(1) });
        for (seed, text) in (0..).zip(["softmax:m=37,n=2", "layer_norm:m=19,n=2,eps=1e-5", "reduce:m=50,n=2,op=max"]) {
            let workload: Workload = text.parse().unwrap();
            assert_eq!(ScheduleSpace::new(&workload, &target).default_config().knobs["vector"].to_string(), "m");
            check(&workload, &target, seed, 20);
        }
        let triples: Workload = "softmax:m=37,n=3".parse().unwrap();
        assert_eq!(ScheduleSpace::new(&triples, &target).default_config().knobs["vector"].to_string(), "n");
    }
}

#[test]
fn layouts_that_do_not_fit_are_refused_with_the_knob() {
    let target = Target::Cpu(CpuTarget::generic_avx2(1));
    let refused = |text: &str, changes: &[(&str, KnobValue)]| {
        let workload: Workload = text.parse().unwrap();
        let mut config = ScheduleSpace::new(&workload, &target).default_config();
        config.knobs.extend(changes.iter().map(|(name, value)| (name.to_string(), value.clone())));
        lower(&workload, &target, &config).unwrap_err().to_string()
    };

    let word = |word: &str| KnobValue::Choice(word.into());
    let (whole, odd) = ("pool2d:c=16,h=9,w=20,k=3,kind=max", "pool2d:c=12,h=9,w=20,kh=1,kw=3,kind=max");
    let no_blocks = "knob 'layout.in': the workload has no channels that the block size 8 divides";
    assert_eq!(refused(odd, &[("layout.in", word("blocked"))]), no_blocks);
    assert_eq!(refused("reduce:m=8,n=8,op=sum", &[("layout.in", word("blocked"))]), no_blocks);
    assert_eq!(refused(whole, &[("layout.out", word("tiled"))]), "knob 'layout.out': 'tiled' is not plain or blocked");
    assert_eq!(
        refused(whole, &[("vector", word("ow"))]),
        "knob 'vector': 'ow' is not the channel axis, along which blocked layouts are vectorised"
    );
    assert_eq!(
        refused(odd, &[("vector", word("c"))]),
        "knob 'vector': 'c' is contiguous only in channel-blocked layouts"
    );
    assert_eq!(
        refused(whole, &[("tile.c", KnobValue::Tile(vec![4]))]),
        "knob 'tile.c': 4 channels are not a multiple of the block size 8"
    );
}

#[test]
fn windows_that_end_beyond_the_image_count_where_that_is_asked_for() {
    let shape = |text: &str| text.parse::<Workload>().unwrap().output_shape().to_vec();
    assert_eq!(shape("pool2d:c=1,h=112,w=112,k=3,s=2,p=1,kind=max"), [1, 1, 56, 56]);
    assert_eq!(shape("pool2d:c=1,h=112,w=112,k=3,s=2"), [1, 1, 55, 55]);
    assert_eq!(shape("pool2d:c=1,h=112,w=112,k=3,s=2,ceil"), [1, 1, 56, 56]);
    assert_eq!(shape("pool2d:c=1,h=5,w=5,k=2,s=3,p=1,ceil"), [1, 1, 2, 2]);
}

/// Returns the program of the default schedule, and its target.
fn program(text: &str) -> (Program, Target) {
    let (workload, target) = (text.parse().unwrap(), Target::Cpu(CpuTarget::generic_avx2(1)));
    let config = ScheduleSpace::new(&workload, &target).default_config();
    (lower(&workload, &target, &config).unwrap(), target)
}

/// Asserts that the verifier refuses the program with changed statements, with a problem that
/// contains `wanted`.
fn assert_refused(text: &str, wanted: &str, change: impl Fn(&mut Store)) {
    let (mut program, target) = program(text);
    assert_eq!(verify(&program, &target), Ok(()));
    for_each_store(&mut program.stages[0].body, &mut |store| {
        if store.iteration.is_some() {
            change(store);
        }
    });
    let problem = verify(&program, &target).unwrap_err().to_string();
    assert!(problem.contains(wanted), "{text}: {problem}");
}

#[test]
fn statements_of_another_equation_are_refused() {
    let (max, sum) = ("pool2d:c=2,h=9,w=20,k=3,kind=max", "reduce:m=5,n=40,op=sum");
    let combined = |store: &Store, with: fn(Expr, Expr) -> Expr| {
        let mut loads = Vec::new();
        store.value.for_each_load(&mut |access| loads.push(Expr::Load(access.clone())));
        with(loads[0].clone(), loads[1].clone())
    };
    let another = "a statement does not compute its equation";
    assert_refused(max, another, |store| store.value = combined(store, Expr::sum));
    assert_refused(max, another, |store| store.value = Expr::Const(1.0));
    assert_refused(sum, another, |store| store.mode = StoreMode::Assign);
    assert_refused("transpose:m=5,n=7", "not read at the index", |store| {
        if let Expr::Load(access) = &mut store.value {
            access.index[2] = Affine::default();
        }
    });
}

#[test]
fn other_lanes_of_a_block_are_refused() {
    let blocked = "pool2d:c=16,h=9,w=9,k=3,s=2,p=1,kind=max";
    assert_refused(blocked, "not read at the index", |store| {
        store.value = store.value.replaced(&mut |access| {
            let mut access = access.clone();
            if let (BufferId(0), [.., lane]) = (access.buffer, &mut access.index[..]) {
                *lane = Affine::default();
            }
            Expr::Load(access)
        });
    });
}

#[test]
fn every_pass_of_a_chain_is_proven() {
    let chain = "softmax:m=5,n=40";
    let of = |store: &Store| store.iteration.as_ref().unwrap().equation;
    assert_refused(chain, "iterations are executed", |store| {
        store.iteration = store.iteration.take().filter(|iteration| iteration.equation != 0);
    });
    assert_refused(chain, "a statement does not compute its equation", |store| {
        if of(store) == 2 {
            store.iteration.as_mut().unwrap().equation = 0;
        }
    });
    assert_refused(chain, "the equation of an iteration does not exist", |store| {
        store.iteration.as_mut().unwrap().equation += 10;
    });
    assert_refused(chain, "not read at the index", |store| {
        if let (0, Expr::Binary(_, of)) = (of(store), &mut store.value)
            && let Expr::Load(access) = &mut of[1]
        {
            access.index[0] = Affine::default();
        }
    });
}

#[test]
fn iterations_that_are_left_out_are_missed() {
    let (mut program, target) = program("pool2d:c=2,h=9,w=20,k=3,p=1,kind=max");
    fn shorten(nodes: &mut [Node]) {
        for node in nodes {
            match node {
                Node::Loop(l) if l.extent == 3 => l.extent = 2,
                node => node.body_mut().map(|body| shorten(body)).unwrap_or_default(),
            }
        }
    }
    shorten(&mut program.stages[0].body);
    assert!(verify(&program, &target).unwrap_err().to_string().contains("iterations are executed"));
}

/// Products with either operand transposed, and with epilogues.
#[test]
fn products_with_few_vectors_are_reductions_too() {
    let vectors = [
        ("m=23,n=1,k=70", ""),
        ("m=1,n=45,k=19", ""),
        ("m=1,n=1,k=300", ""),
        ("b=7,m=1,n=1,k=90", ""),
        ("m=1,n=45,k=19", ",ta"),
    ];
    // Products with several vectors reduce along the steps, in place or after a transpose.
    let several = [("m=23,n=3,k=70", ""), ("m=5,n=8,k=33", ""), ("m=4,n=31,k=40", ",tb"), ("m=7,n=19,k=65", ",ta,tb")];
    for (number, (sizes, lies)) in vectors.into_iter().chain(several).enumerate() {
        for rest in ["", ",bias,act=relu", ",weights=data,scale,add"] {
            for (isa, threads) in [(Isa::Avx2, 1), (Isa::Avx512, 2)] {
                let target = Target::Cpu(CpuTarget { isa, ..CpuTarget::generic_avx2(threads) });
                let workload: Workload = format!("matmul:{sizes}{lies}{rest}").parse().unwrap();
                check(&workload, &target, number as u64, 12);
            }
        }
    }
}

/// Adding 0.1 a million times to one f32 gives an error of one percent.
#[test]
fn long_sums_keep_their_precision() {
    for isa in [Isa::Avx2, Isa::Avx512] {
        let target = Target::Cpu(CpuTarget { isa, ..CpuTarget::generic_avx2(1) });
        for text in ["reduce:m=1,n=500000,k=3,op=sum", "reduce:m=2,n=300000,op=sum", "reduce:m=1,n=50000,k=40,op=mean"]
        {
            let workload: Workload = text.parse().unwrap();
            let mut operands = Operands::random(workload.spec(), 0);
            operands[0].fill(0.1);
            let wanted = reference(&workload, &operands);
            let space = ScheduleSpace::new(&workload, &target);
            let mut rng = ChaCha8Rng::seed_from_u64(1);
            for candidate in [space.default_candidate().clone(), space.sample(&mut rng)] {
                let output = interpret(&candidate.lower().unwrap(), &operands).unwrap();
                let error = max_rel_error(&output, &wanted);
                assert!(error < 5e-5, "{text}: {error}\n{}", candidate.config());
            }
        }
    }
}

#[test]
fn padding_that_would_become_too_much_code_has_no_schedule() {
    let target = Target::Cpu(CpuTarget::generic_avx2(1));
    let wide: Workload = "pool2d:c=1,h=300,w=300,k=201,p=100,kind=max".parse().unwrap();
    let space = ScheduleSpace::new(&wide, &target);
    assert!(space.refusal().unwrap().to_string().starts_with("no sketch applies to pool2d"));
    check(&"pool2d:c=1,h=9,w=40,k=31,p=15,kind=max".parse().unwrap(), &target, 0, 2);
}
