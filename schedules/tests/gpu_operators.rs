//! The sketches for GPUs on operators that they do not know: convolutions of one and three
//! dimensions, and a product with two row axes. All schedules are verified and agree with the spec.

use std::fmt;

use autotune_ir::{Affine, DType, GpuTarget, Target, VarId, interpret, verify};
use autotune_schedules::{Config, ScheduleSpace, lower};
use autotune_workloads::{
    Fields, OperandTensor, Operands, OperatorFormula, OperatorKind, Workload, WorkloadError, WorkloadOperator,
    max_rel_error, reference,
};
use rand::SeedableRng;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;

static KIND: OperatorKind = OperatorKind { name: "other", fields: "", example: "other", parse };

fn parse(_: &Fields) -> Result<Box<dyn WorkloadOperator>, WorkloadError> {
    Err(WorkloadError::UnknownOperator { name: "other".into(), known: String::new() })
}

/// An operator defined by its formula.
#[derive(Debug)]
struct Other(&'static str, OperatorFormula);

impl WorkloadOperator for Other {
    fn kind(&self) -> &'static OperatorKind {
        &KIND
    }

    fn write_fields(&self, f: &mut dyn fmt::Write) -> fmt::Result {
        f.write_str(self.0)
    }

    fn check(&self) -> Result<(), WorkloadError> {
        Ok(())
    }

    fn formula(&self) -> OperatorFormula {
        self.1.clone()
    }
}

fn var(axis: usize) -> Affine {
    Affine::var(VarId(axis as u32))
}

fn operands(data: Vec<usize>, weight: Vec<usize>) -> [OperandTensor; 2] {
    let [data, weight] = [("input", data, false), ("weight", weight, true)]
        .map(|(name, shape, is_constant)| OperandTensor { name, shape, is_constant });
    [data, weight]
}

/// Returns a convolution of images `[n, c, ..]` with one dimension per extent, padding 1, and 3
/// taps along each.
fn convolution(name: &'static str, extents: &[usize], stride: usize) -> Workload {
    const NAMES: [[&str; 2]; 3] = [["y0", "k0"], ["y1", "k1"], ["y2", "k2"]];
    let (n, c, o, dims) = (2, 5, 6, extents.len());
    let out: Vec<usize> = extents.iter().map(|extent| (extent - 1) / stride + 1).collect();
    let spatial = out.iter().enumerate().map(|(dim, &extent)| (NAMES[dim][0], extent, false));
    let taps = (0..dims).map(|dim| (NAMES[dim][1], 3, true));
    let axes: Vec<_> =
        [("n", n, false), ("o", o, false)].into_iter().chain(spatial).chain([("c", c, true)]).chain(taps).collect();

    let (step, row, tap) = (2 + dims, 2, 3 + dims);
    let read = |dim| var(row + dim) * stride as i64 + var(tap + dim) + -1;
    let data: Vec<Affine> = [var(0), var(step)].into_iter().chain((0..dims).map(read)).collect();
    let weight: Vec<Affine> = [var(1), var(step)].into_iter().chain((0..dims).map(|dim| var(tap + dim))).collect();
    let output: Vec<Affine> = (0..2 + dims).map(var).collect();
    let [input, kernel] = operands([&[n, c], extents].concat(), [&[o, c][..], &vec![3; dims]].concat());
    let shape = [&[n, o], &out[..]].concat();
    let formula = OperatorFormula::product(&axes, [(input, data), (kernel, weight)], (shape, output), 1);
    Workload::new(Other(name, formula)).unwrap()
}

/// Returns the product `result[a, b, n] = Σ data[a, b, k] * weight[k, n]`.
fn product() -> Workload {
    let axes = [("a", 3, false), ("b", 7, false), ("n", 24, false), ("k", 40, true)];
    let [data, weight] = operands(vec![3, 7, 40], vec![40, 24]);
    let (left, right) = (vec![var(0), var(1), var(3)], vec![var(3), var(2)]);
    let formula = OperatorFormula::product(
        &axes,
        [(data, left), (weight, right)],
        (vec![3, 7, 24], vec![var(0), var(1), var(2)]),
        2,
    );
    Workload::new(Other("rows", formula)).unwrap()
}

/// Checks some configs of each sketch and returns the names of the sketches.
fn check(workload: &Workload, word: &str) -> Vec<&'static str> {
    let target = Target::Gpu(GpuTarget::stated(word).unwrap());
    let space = ScheduleSpace::new(workload, &target);
    let operands = Operands::random(workload.spec(), 3);
    let expected = reference(workload, &operands);

    let mut rng = ChaCha8Rng::seed_from_u64(1);
    for sketch in space.sketches() {
        let draw = |_| {
            let knobs =
                sketch.knobs.iter().map(|knob| (knob.name.clone(), knob.values.choose(&mut rng).unwrap().clone()));
            Config { sketch: sketch.name().into(), knobs: knobs.collect() }
        };
        let programs =
            (0..20_000).map(draw).filter_map(|config| Some((lower(workload, &target, &config).ok()?, config)));
        let mut checked = 0;
        for (program, config) in programs.take(6) {
            let context = format!("{workload} {word} {config}");
            verify(&program, &target).unwrap_or_else(|e| panic!("{context}\n{e}\n{program}"));
            let output = interpret(&program, &operands).unwrap_or_else(|e| panic!("{context}\n{e}\n{program}"));
            let limit = if workload.dtype() == DType::F32 { 1e-4 } else { 1e-2 };
            let error = max_rel_error(&output, &expected);
            assert!(error <= limit, "{context}: {error}\n{program}");
            checked += 1;
        }
        assert_eq!(checked, 6, "{workload} {word} {}", sketch.name());
    }
    space.sketches().iter().map(|sketch| sketch.name()).collect()
}

#[test]
fn convolutions_of_any_dimensions_are_tiled() {
    for workload in
        [convolution("line", &[19], 1), convolution("strided", &[20], 2), convolution("volume", &[3, 4, 5], 1)]
    {
        for word in ["opencl", "cuda:sm_80"] {
            assert_eq!(check(&workload, word), ["tiled", "implicit_gemm"], "{workload}");
        }
        assert_eq!(check(&workload.with_dtype(DType::Tf32).unwrap(), "cuda:sm_80"), ["mma"], "{workload}");
    }
}

/// Phases with equal numbers of taps, two groups, phases of which some read taps out of bounds, and
/// groups of one channel.
#[test]
fn transposed_convolutions_are_tiled_by_phases() {
    for text in [
        "conv_transpose2d:n=2,c=5,h=4,w=3,o=6,k=4,s=2,p=1,bias,act=relu",
        "conv_transpose2d:n=2,c=6,h=3,w=5,o=4,k=8,s=4,p=2,g=2,add",
        "conv_transpose2d:c=3,h=3,w=5,o=4,k=3,s=3,p=1,op=2",
    ] {
        let workload: Workload = text.parse().unwrap();
        for word in ["opencl", "cuda:sm_80"] {
            assert_eq!(check(&workload, word), ["tiled", "implicit_gemm"], "{workload}");
        }
    }
    let depthwise = "conv_transpose2d:c=8,h=3,w=4,o=8,k=4,s=2,p=1,g=8".parse().unwrap();
    assert_eq!(check(&depthwise, "opencl"), ["tiled"]);
    for (text, dtype) in [
        ("conv_transpose2d:n=2,c=16,h=4,w=5,o=24,k=4,s=2,p=1,bias", DType::F16),
        ("conv_transpose2d:c=24,h=3,w=5,o=16,k=8,s=4,p=2,g=2,add", DType::Bf16),
        ("conv_transpose2d:c=12,h=3,w=5,o=9,k=3,s=2,p=1,op=1", DType::Tf32),
    ] {
        assert_eq!(
            check(&text.parse::<Workload>().unwrap().with_dtype(dtype).unwrap(), "cuda:sm_80"),
            ["mma"],
            "{text}"
        );
    }
}

/// Returns `result[m, n] = Σ data[m, 9 - k] * weight[9 - k, n]`, with each operand read backwards
/// or not.
fn backwards(is_backwards: [bool; 2], is_constant: bool) -> Workload {
    let axes = [("m", 7, false), ("n", 12, false), ("k", 10, true)];
    let step = |is_backwards: bool| if is_backwards { var(2) * -1 + 9 } else { var(2) };
    let [data, weight] = operands(vec![7, 10], vec![10, 12]);
    let (left, right) = (vec![var(0), step(is_backwards[0])], vec![step(is_backwards[1]), var(1)]);
    let weight = OperandTensor { is_constant, ..weight };
    let formula =
        OperatorFormula::product(&axes, [(data, left), (weight, right)], (vec![7, 12], vec![var(0), var(1)]), 1);
    Workload::new(Other("backwards", formula)).unwrap()
}

#[test]
fn only_weights_are_read_backwards() {
    for is_constant in [true, false] {
        assert_eq!(check(&backwards([false, true], is_constant), "opencl"), ["tiled"]);
    }
    for is_backwards in [[true, false], [true, true]] {
        let workload = backwards(is_backwards, true);
        let space = ScheduleSpace::new(&workload, &Target::Gpu(GpuTarget::stated("opencl").unwrap()));
        assert!(space.refusal().unwrap().to_string().starts_with("no sketch applies to"), "{workload}");
    }
}

/// Constant weights of a batch are packed for the whole batch.
#[test]
fn constant_weights_of_a_batch_are_packed_for_tensor_cores() {
    let workload = "matmul:b=3,m=20,n=24,k=32,weights=constant,dtype=f16".parse().unwrap();
    assert_eq!(check(&workload, "cuda:sm_80"), ["mma"]);
}

#[test]
fn products_with_several_axes_of_rows_are_tiled() {
    assert_eq!(check(&product(), "cuda:sm_80"), ["tiled"]);
    assert_eq!(check(&product().with_dtype(DType::F16).unwrap(), "cuda:sm_80"), ["mma"]);
}
