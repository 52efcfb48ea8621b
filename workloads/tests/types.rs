//! Tests of element types: their text form, and exact integer arithmetic.

use std::sync::Arc;

use autotune_ir::affine::{Affine, VarId};
use autotune_ir::interp::interpret;
use autotune_ir::program::{
    Access, AxisInfo, Buffer, BufferId, Expr, Loop, LoopKind, Node, Program, Scope, Stage, Store, StoreMode, When,
};
use autotune_ir::spec::Equation;
use autotune_ir::{DType, Spec};
use autotune_workloads::{Operands, Types, Workload, reference};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

fn parsed(text: &str) -> Workload {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Returns the types of a workload's tensors, with their names.
fn dtypes(text: &str) -> Vec<(String, DType)> {
    let tensors = &parsed(text).spec().tensors.clone();
    tensors.iter().map(|tensor| (tensor.name.to_string(), tensor.dtype)).collect()
}

fn named(text: &str, name: &str) -> DType {
    dtypes(text).into_iter().find(|known| known.0 == name).unwrap().1
}

#[test]
fn texts_say_the_type_of_every_tensor() {
    use DType::{Bf16, F32, I8, I32, U8};
    let text = "conv2d:c=8,h=5,w=5,o=4,k=3,data=u8,weights=i8,out=u8,scale,bias,add";
    for (name, wanted) in [
        ("input", U8),
        ("weight", I8),
        ("output_scale", F32),
        ("bias", I32),
        ("residual", I32),
        ("sum", I32),
        ("output", U8),
    ] {
        assert_eq!(named(text, name), wanted, "{name}");
    }
    assert_eq!(named("matmul:m=2,n=3,k=4,data=u8,weights=i8", "output"), I32);
    assert_eq!(named("matmul:m=2,n=3,k=4,data=bf16,bias", "weight"), Bf16);
    assert_eq!(named("matmul:m=2,n=3,k=4,data=bf16,bias", "bias"), F32);
    assert_eq!(named("matmul:m=2,n=3,k=4,dtype=bf16,bias", "bias"), Bf16);
    assert_eq!(named("matmul:m=2,n=3,k=4,dtype=bf16,out=f32", "output"), F32);
    assert_eq!(named("matmul:m=2,n=3,k=4,dtype=i8,bias,scale", "bias"), I32);
    assert_eq!(named("matmul:m=2,n=3,k=4,data=u8,weights=i8,add=u8", "residual"), U8);
}

#[test]
fn texts_are_printed_so_that_they_mean_the_same() {
    for (text, printed) in [
        ("matmul:m=2,n=3,k=4,data=bf16,weights=bf16,out=bf16", "matmul:m=2,n=3,k=4,dtype=bf16"),
        ("matmul:m=2,n=3,k=4,dtype=bf16,out=f32", "matmul:m=2,n=3,k=4,data=bf16,weights=bf16,out=f32"),
        ("matmul:m=2,n=3,k=4,dtype=f32,bias=f32", "matmul:m=2,n=3,k=4,bias"),
        ("matmul:m=2,n=3,k=4,weights=data,dtype=f16", "matmul:m=2,n=3,k=4,weights=data,dtype=f16"),
        ("matmul:m=2,n=3,k=4,weights=data:i8,data=u8", "matmul:m=2,n=3,k=4,data=u8,weights=data:i8,out=i32"),
        ("matmul:m=2,n=3,k=4,weights=constant:i8", "matmul:m=2,n=3,k=4,data=i8,weights=i8,out=i32"),
        ("matmul:m=2,n=3,k=4,dtype=u8,bias,scale", "matmul:m=2,n=3,k=4,dtype=u8,scale,bias"),
        ("reduce:m=4,n=8,data=u8,out=f32,op=mean", "reduce:m=4,n=8,op=mean,data=u8,out=f32"),
    ] {
        let workload = parsed(text);
        assert_eq!(workload.to_string(), printed);
        assert_eq!(parsed(printed), workload);
        let types = workload.types();
        assert_eq!(parsed(printed).types(), types);
        assert_eq!(workload.with_types(types).unwrap(), workload);
        assert_eq!(workload.with_dtype(DType::F32).unwrap().types(), Types::default());
    }
}

#[test]
fn invalid_values_name_their_field() {
    let message = |text: &str| text.parse::<Workload>().unwrap_err().to_string();
    let long = message("matmul:m=1,n=1,k=70000,data=u8,weights=i8");
    assert!(long.contains("'data'") && long.contains("may overflow i32"), "{long}");
    let long = message("reduce:m=1,n=9000000,dtype=u8,op=sum");
    assert!(long.contains("'dtype'") && long.contains("may overflow i32"), "{long}");
    assert!("matmul:m=1,n=1,k=65000,data=u8,weights=i8".parse::<Workload>().is_ok());
    assert!(parsed("matmul:m=1,n=1,k=70000").with_dtype(DType::U8).is_err());

    for (text, field) in [
        ("matmul:m=1,n=1,k=1,out=i64", "'out'"),
        ("matmul:m=1,n=1,k=1,data=bool", "'data'"),
        ("matmul:m=1,n=1,k=1,weights=i4", "'weights'"),
        ("matmul:m=1,n=1,k=1,weights=i8:data", "'weights'"),
        ("matmul:m=1,n=1,k=1,bias=maybe", "'bias'"),
        ("pointwise:m=1,n=1,op=relu,to=f16,out=bf16", "'out'"),
    ] {
        assert!(message(text).contains(field), "{text}: {}", message(text));
    }
}

/// Returns a program that computes the equations in order, element by element, as the spec defines
/// them.
fn by_definition(spec: &Arc<Spec>) -> Program {
    let mut program = Program {
        spec: Arc::clone(spec),
        algorithm: Arc::clone(spec),
        axes: spec.main().axes.iter().enumerate().map(|(id, axis)| AxisInfo::whole(id, axis)).collect(),
        vars: Vec::new(),
        buffers: Vec::new(),
        stages: Vec::new(),
        cold: false,
    };

    for (id, tensor) in (0..).zip(&spec.tensors) {
        let (name, role) = (tensor.name.clone(), spec.role(BufferId(id)));
        program.buffers.push(Buffer::plain(name, role, Scope::Global, tensor.shape.clone(), tensor.dtype));
    }

    for (number, equation) in spec.equations.iter().enumerate() {
        let neutral = Expr::Const(equation.reduction.neutral());
        let clear = Store { dst: equation.output.clone(), mode: StoreMode::Assign, value: neutral, iteration: None };
        let combine = match equation.reduces() {
            true => equation.reduction.store(equation.output.clone(), equation.value.clone(), None),
            false => Store { value: equation.value.clone(), ..clear.clone() },
        };
        for (name, store, reduces) in [("clear", clear, false), ("combine", combine, true)] {
            let body = vec![looped(&mut program, equation, store, reduces)];
            program.stages.push(Stage { name: format!("{name}_{number}"), when: When::EveryRun, body });
        }
    }
    program
}

fn looped(program: &mut Program, equation: &Equation, mut store: Store, reduces: bool) -> Node {
    let first = program.vars.len() as u32;
    let moved = |access: &Access| {
        let var = |index: &Affine| {
            let terms = index.terms.iter().map(|&(axis, c)| Affine::var(VarId(first + axis.0)) * c);
            terms.fold(Affine::constant(index.constant), |sum, term| sum + term)
        };
        Access { buffer: access.buffer, index: access.index.iter().map(var).collect() }
    };
    store.dst = moved(&store.dst);
    store.value = store.value.replaced(&mut |access| Expr::Load(moved(access)));
    let mut node = Node::Store(store);
    for (var, axis) in (first..).zip(&equation.axes).collect::<Vec<_>>().into_iter().rev() {
        program.vars.push(format!("v{var}").into());
        if reduces || !axis.reduce {
            node = Node::Loop(Loop { var: VarId(var), extent: axis.extent, kind: LoopKind::Serial, body: vec![node] });
        }
    }
    node
}

#[test]
fn interpreter_and_reference_agree_on_integers_to_the_last_bit() {
    for (seed, text) in [
        "matmul:m=5,n=4,k=70,data=u8,weights=i8",
        "matmul:m=5,n=4,k=70,data=i8,weights=i8,bias,act=relu",
        "matmul:m=3,n=4,k=900,data=u8,weights=u8,out=i8",
        "conv2d:c=6,h=7,w=6,o=4,k=3,s=2,g=2,data=u8,weights=i8,bias,add=u8,out=u8",
        "pool2d:c=3,h=6,w=6,k=2,kind=max,dtype=i8",
        "reduce:m=4,n=90,data=i8,out=i32,op=sum",
        "reduce:m=4,n=90,data=u8,out=i32,op=max",
        "reduce:m=4,n=90,data=u8,out=f32,op=mean",
    ]
    .into_iter()
    .enumerate()
    {
        let workload = parsed(text);
        let operands = Operands::random(workload.spec(), seed as u64);
        let [found, wanted] =
            [interpret(&by_definition(workload.spec()), &operands).unwrap(), reference(&workload, &operands)];
        let allowed = if workload.result_dtype().is_integer() { 0.0 } else { 1e-4 };
        for (found, wanted) in found.iter().zip(&wanted) {
            assert!((found - wanted).abs() <= allowed, "{text}: {found}, not {wanted}");
        }
        assert!(wanted.iter().any(|&x| x.abs() > 1.0), "{text}");
    }
}

#[test]
fn sums_beyond_the_bits_of_f32_are_exact() {
    let (k, mut rng) = (60_000, ChaCha8Rng::seed_from_u64(3));
    let workload = parsed(&format!("matmul:m=1,n=1,k={k},data=u8,weights=i8,bias"));
    let mut operands = Operands::random(workload.spec(), 0);
    operands[0].mapv_inplace(|_| rng.random_range(200..=255) as f32);
    operands[1].mapv_inplace(|_| rng.random_range(100..=127) as f32);
    let terms = operands[0].iter().zip(&operands[1]).map(|(a, b)| *a as i64 * *b as i64);
    let sum: i64 = terms.sum();
    assert!(sum > 1 << 30 && sum % 64 != 0);

    // The bias, which f32 represents exactly, leaves a small rest of the sum.
    let bias = -((sum >> 10) << 10) as f32;
    operands[2].fill(bias);
    let wanted = (sum + bias as i64) as f32;
    assert_eq!(interpret(&by_definition(workload.spec()), &operands).unwrap()[[0, 0, 0]], wanted);
    assert_eq!(reference(&workload, &operands)[[0, 0, 0]], wanted);
}
