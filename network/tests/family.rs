//! Networks whose input shapes change from run to run.

use std::collections::HashSet;
use std::fs;
use std::sync::Arc;
use std::thread;

use autotune_db::EmptySource;
use autotune_ir::{CpuTarget, Target};
use autotune_network::onnx::{ImportOptions, Model as OnnxModel};
use autotune_network::{Family, FamilyError, FamilyOptions, Graph, NetworkDevice, Tensor};
use autotune_runtime::{Cpu, OpenClDevice};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rten_onnx::onnx::{DataType, Dimension};

use crate::build::{Model, difference, i64s, info, int};
use crate::on_devices;

pub(crate) const WIDTH: usize = 64;
const INNER: usize = 512;

pub(crate) fn random(shape: &[usize], seed: u64) -> Tensor {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let count = shape.iter().product();
    Tensor::f32(shape, (0..count).map(|_| rng.random_range(-0.2..0.2)).collect()).unwrap()
}

/// Returns a model of rows `x[batch, length, 64]` with open extents: two products with a common
/// length, and a softmax over the pairs of rows, whose shapes are computed by nodes.
pub(crate) fn model() -> Model {
    let open = |name: &str| Dimension { dim_value: None, dim_param: Some(name.into()) };
    let fixed = Dimension { dim_value: Some(WIDTH as i64), dim_param: None };
    let mut model = Model::new(17);
    model.graph().input.push(info("x", DataType::FLOAT, vec![open("batch"), open("length"), fixed]));
    model
        .constant("wide", &random(&[WIDTH, INNER], 1))
        .constant("bias", &random(&[INNER], 2))
        .constant("narrow", &random(&[INNER, WIDTH], 3))
        .constant("rows", &i64s(&[-1, WIDTH as i64]))
        .node("Shape", "x", "shape", vec![])
        .node("Reshape", "x rows", "flat", vec![])
        .node("MatMul", "flat wide", "product", vec![])
        .node("Add", "product bias", "sum", vec![])
        .node("Relu", "sum", "inner", vec![])
        .node("MatMul", "inner narrow", "outer", vec![])
        .node("Reshape", "outer shape", "y", vec![])
        .node("Transpose", "y", "turned", vec![crate::build::ints("perm", &[0, 2, 1])])
        .node("MatMul", "y turned", "pairs", vec![])
        .node("Softmax", "pairs", "shares", vec![int("axis", -1)])
        .output("y")
        .output("shares")
}

/// Returns the family of a model in a file; it keeps at most `most` networks.
fn family(most: usize, shapes: &str) -> Arc<Family> {
    family_on(&Target::detect("cpu", Some(1)).unwrap(), [most, 0], shapes)
}

fn family_on<D: NetworkDevice>(target: &Target, [most, spare]: [usize; 2], shapes: &str) -> Arc<Family<D>> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.onnx");
    fs::write(&path, model().bytes()).unwrap();
    let inputs = vec![("x".to_string(), shapes.parse().unwrap())];
    let limits = FamilyOptions::of_inputs(inputs);
    let options = FamilyOptions { most_networks: most, spare_constant_bytes: spare, ..limits };
    let (model, import) = (OnnxModel::open(&path).unwrap(), ImportOptions::default());
    Family::of_model(model, import, Ok, options, Arc::new(EmptySource), target).unwrap()
}

/// Networks of several shapes share constants on an OpenCL device, too.
#[test]
fn shapes_change_on_a_device() {
    let Some(target) = on_devices::target() else { return };
    let family = family_on::<OpenClDevice>(&target, [8, usize::MAX], "1..2x1..9x64");
    let mut workspace = family.workspace();
    for shape in [[1, 5, WIDTH], [2, 3, WIDTH], [1, 5, WIDTH], [1, 1, WIDTH]] {
        let x = random(&shape, shape[1] as u64);
        assert_right(&workspace.run_tensors(std::slice::from_ref(&x)).unwrap(), &x);
    }
    let networks = [[1, 5, WIDTH], [2, 3, WIDTH]].map(|shape| family.network(&[shape.to_vec()]).unwrap());
    let both = family.constant_bytes();
    assert!(both < networks.iter().map(|network| network.constant_bytes()).sum(), "{both}");
}

/// Returns the reference for one shape.
fn graph(shape: &[usize]) -> Graph {
    let shapes = [("x".to_string(), shape.to_vec())].into();
    let bytes = model().bytes();
    OnnxModel::of_bytes(&bytes).unwrap().graph(&ImportOptions { shapes, ..ImportOptions::default() }).unwrap()
}

pub(crate) fn assert_right(found: &[Tensor], x: &Tensor) {
    let wanted = graph(x.shape()).evaluate(std::slice::from_ref(x)).unwrap();
    for (found, wanted) in found.iter().zip(&wanted) {
        assert_eq!(difference(found, wanted, 1e-4, 1e-4), None, "{:?}", x.shape());
    }
}

/// Results are those of the reference in any order of shapes, also where networks are dropped and
/// made again, and where memory grows.
#[test]
fn any_shape_is_computed() {
    let family = family(3, "1..3x1..40x64");
    let mut workspace = family.workspace();
    let mut rng = ChaCha8Rng::seed_from_u64(4);
    for run in 0..60 {
        let shape = [rng.random_range(1..=3), rng.random_range(1..=40), WIDTH];
        // Every third run repeats a shape, so that a network is used again.
        let x = random(if run % 3 == 2 { &[2, 7, WIDTH] } else { &shape }, run);
        assert_right(&workspace.run_tensors(std::slice::from_ref(&x)).unwrap(), &x);
        assert!((1..=3).contains(&family.len()), "{}", family.len());
    }
}

/// Returns a target whose schedules are the same on every machine.
fn same_everywhere() -> Target {
    Target::Cpu(CpuTarget::generic_avx2(1))
}

/// Shapes read the same packed weights, if their schedules can share them.
#[test]
fn weights_are_packed_once_for_all_shapes() {
    let family = family_on::<Cpu>(&same_everywhere(), [16, 0], "1x?x64");
    let one = family.network(&[vec![1, 24, WIDTH]]).unwrap().constant_bytes();
    let weights = size_of::<f32>() * 2 * WIDTH * INNER;
    assert!((weights..2 * weights).contains(&one), "{one}");
    for length in [16, 23, 25, 40, 64, 100, 130] {
        family.network(&[vec![1, length, WIDTH]]).unwrap();
    }
    assert_eq!(family.len(), 8);
    assert!(family.constant_bytes() < one + one / 8, "{} instead of {one}", family.constant_bytes());
}

/// Constants that no network uses any more are freed, however many shapes there were.
#[test]
fn memory_does_not_grow() {
    let family = family_on::<Cpu>(&same_everywhere(), [4, 0], "1x?x64");
    let mut workspace = family.workspace();
    let mut sizes = HashSet::new();
    for length in 1..80 {
        workspace.run_tensors(&[random(&[1, length, WIDTH], 5)]).unwrap();
        assert!(family.len() <= 4);
        sizes.insert(family.constant_bytes());
    }
    let (least, most) = (sizes.iter().min().unwrap(), sizes.iter().max().unwrap());
    assert!(*most < least + least / 4, "{least} to {most} bytes");
}

/// Networks that pack weights in other ways are kept if all constants need little memory.
#[test]
fn small_networks_are_kept() {
    let most = [0, 1 << 20].map(|spare| {
        let family = family_on::<Cpu>(&same_everywhere(), [80, spare], "1x?x64");
        for length in 1..80 {
            family.network(&[vec![1, length, WIDTH]]).unwrap();
        }
        (family.len(), family.constant_bytes())
    });
    assert!(most[0].0 < most[1].0 && most[1].0 == 79, "{most:?}");
    assert!(most[1].1 < most[0].1 + (1 << 20), "{most:?}");
}

#[test]
fn shapes_outside_are_refused() {
    let family = family(4, "1x8..12x64");
    let reason = |shapes: &[Vec<usize>]| family.network(shapes).map(drop).unwrap_err().to_string();
    assert_eq!(reason(&[vec![1, 13, WIDTH]]), "input 'x': extent 13 of axis 1 is not 8..12");
    assert_eq!(reason(&[vec![8, WIDTH]]), "input 'x': 2 axes, expected 3");
    assert_eq!(reason(&[]), "0 inputs, expected 1");
    assert!(matches!(family.workspace().run_tensors(&[random(&[2, 8, WIDTH], 1)]), Err(FamilyError::Outside { .. })));
    assert!(family.is_empty());
}

/// Threads with workspaces of their own may run different shapes of a family.
#[test]
fn threads_share_a_family() {
    let family = family(3, "?x?x64");
    thread::scope(|scope| {
        for number in 0..4 {
            let mut workspace = family.workspace();
            scope.spawn(move || {
                for run in 0..12 {
                    let x = random(&[1, 1 + (run * 5 + number * 3) % 17, WIDTH], number as u64);
                    assert_right(&workspace.run_tensors(std::slice::from_ref(&x)).unwrap(), &x);
                }
            });
        }
    });
}
