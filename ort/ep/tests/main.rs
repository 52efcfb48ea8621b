//! Runs the tests in Python of this folder: the provider in a real ONNX Runtime.
//!
//! `AUTOTUNE_PYTHON` is a Python with NumPy, pytest, onnx and onnxruntime, and
//! `AUTOTUNE_PYTHON_OLDEST` one with the oldest onnxruntime that is supported. Without them, tests
//! print a notice and pass; `AUTOTUNE_REQUIRE=python` makes that a failure.

#![allow(clippy::unwrap_used)]

use std::env;
use std::path::Path;
use std::process::Command;
use std::ptr;

use autotune_db::{TuningDb, TuningRecord};
use autotune_ir::Target;
use autotune_network::cut::{Cut, StepWork};
use autotune_network::{Builder, Seeded, Tensor, rewrite};
use autotune_schedules::ScheduleSpace;
use ort_sys::stub::Error;
use ort_sys::{OrtApi, OrtApiBase};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

#[test]
fn the_provider_works_in_onnx_runtime() {
    run_with("AUTOTUNE_PYTHON");
}

#[test]
fn the_provider_works_in_the_oldest_onnx_runtime() {
    run_with("AUTOTUNE_PYTHON_OLDEST");
}

fn run_with(variable: &str) {
    let Some(python) = env::var_os(variable) else {
        let required = env::var("AUTOTUNE_REQUIRE").unwrap_or_default();
        assert!(!required.split(',').any(|word| word == "python"), "{variable} is not set");
        return eprintln!("skipped: {variable} does not name a Python with NumPy, pytest, onnx and onnxruntime");
    };
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let library = env::current_exe().unwrap().with_file_name("libautotune_ep.so");
    // Models are written by functions beside the tests of the Python package.
    let models = here.join("../../python/tests");
    let folder = tempfile::tempdir().unwrap();
    let (db, configs) = (folder.path().join("tests.db"), known_schedules(&folder.path().join("tests.db")));

    let mut tests = Command::new(python);
    tests.args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "--color=no"]).arg(here.join("tests"));
    tests.env("PYTHONPATH", models).env("PYTHONDONTWRITEBYTECODE", "1").current_dir(folder.path());
    tests.env("AUTOTUNE_EP_LIBRARY", library).env_remove("AUTOTUNE_DB").env("XDG_DATA_HOME", folder.path());
    tests.env("AUTOTUNE_TEST_DB", db).env("AUTOTUNE_TEST_CONFIGS", configs);
    let ended = tests.output().unwrap();
    let text = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success(), "{text}\n{}", String::from_utf8_lossy(&ended.stderr));
    println!("{text}");
}

/// Writes a database with schedules for the steps of the tests' model `layer`, with 4 rows and one
/// thread, and returns them as JSON.
fn known_schedules(path: &Path) -> String {
    let (db, target) = (TuningDb::open(path).unwrap(), Target::detect("cpu", Some(1)).unwrap());
    let net = Builder::new("layer", Seeded { seed: 1 });
    let weights = |name: &str, shape: [usize; 2]| {
        let numbers = (0..shape[0] * shape[1]).map(|number| number as f32);
        net.constant(name, Tensor::f32(&shape, numbers.collect()).unwrap())
    };
    let hidden = net.input("x", &[4, 32]).matmul(weights("a", [32, 24])).relu();
    net.output("y", hidden.matmul(weights("b", [24, 16])));
    let graph = rewrite(&net.finish().unwrap()).unwrap();

    let (mut rng, mut configs) = (ChaCha8Rng::seed_from_u64(3), Vec::new());
    for step in Cut::for_target(&graph, &target).steps {
        let StepWork::Kernel(workload) = step.work else { continue };
        let space = ScheduleSpace::new(&workload, &target);
        let mut drawn = (0..50).map(|_| space.sample(&mut rng).config().clone());
        let config = drawn.find(|config| *config != space.default_config() && space.proven(config).is_ok()).unwrap();
        db.append(&TuningRecord::synthetic(&workload, &target, config.clone(), 1e-6)).unwrap();
        configs.push(config);
    }
    serde_json::to_string(&configs).unwrap()
}

/// An ONNX Runtime that has no tables of later versions gets a reason.
#[test]
fn an_onnx_runtime_that_is_too_early_is_told() {
    static API: OrtApi = ort_sys::stub::api();
    unsafe extern "system" fn api(version: u32) -> *const OrtApi {
        if version <= 22 { &API } else { ptr::null() }
    }
    unsafe extern "system" fn version() -> *const std::ffi::c_char {
        c"1.22.0".as_ptr()
    }

    let base = OrtApiBase { GetApi: api, GetVersionString: version };
    let (mut factories, mut count) = ([ptr::null_mut(); 4], 0);
    // SAFETY: the table and the memory for results live during the call.
    let status = unsafe {
        autotune_ep::CreateEpFactories(ptr::null(), &base, ptr::null(), factories.as_mut_ptr(), 4, &mut count)
    };
    // SAFETY: the status was made by the function of the table.
    let error = unsafe { Error::consume_sys(status.0) };
    assert!(error.message().contains("1.23 or newer") && count == 0, "{}", error.message());
}
