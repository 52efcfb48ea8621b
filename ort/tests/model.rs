//! Models for the tests, and sessions of them.

use std::sync::OnceLock;

use ort::environment::Environment;
use ort::session::Session;
use ort::session::builder::SessionBuilder;
use rten_onnx::onnx::{DataType, Dimension, StringStringEntryProto};

use crate::build::{Model, f32s, i64s, info, int};

/// Returns the environment of all sessions, on this backend.
pub fn environment() -> &'static Environment {
    static ENVIRONMENT: OnceLock<Environment> = OnceLock::new();
    ENVIRONMENT.get_or_init(|| {
        ort::set_api(ort_autotune::api());
        ort::init().build().unwrap()
    })
}

/// Returns options for sessions of one thread that know no tuned schedule.
pub fn builder() -> SessionBuilder {
    // No test may depend on the user's database.
    static NONE: OnceLock<tempfile::TempDir> = OnceLock::new();
    let folder = NONE.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        autotune_db::TuningDb::open(folder.path().join("db")).unwrap();
        folder
    });
    let path = folder.path().join("db");
    let builder = Session::builder(environment()).unwrap().with_intra_threads(1).unwrap();
    builder.with_config_entry("autotune.db", path.to_str().unwrap()).unwrap()
}

pub fn session(model: &Model) -> Session {
    builder().commit_from_memory(&model.bytes()).unwrap()
}

fn open(name: &str) -> Dimension {
    Dimension { dim_value: None, dim_param: Some(name.into()) }
}

fn fixed(extent: i64) -> Dimension {
    Dimension { dim_value: Some(extent), dim_param: None }
}

/// y = relu(x w + b) for any number of rows, and the position of the largest element of each row.
pub fn layer() -> Model {
    let numbers = |count: usize, step: usize| -> Vec<f32> {
        (0..count).map(|number| ((number * step) % 17) as f32 / 8.0 - 1.0).collect()
    };
    let mut model = Model::new(17);
    model.graph().input.push(info("x", DataType::FLOAT, vec![open("rows"), fixed(32)]));
    let mut model = model
        .constant("w", &f32s(&[32, 24], &numbers(32 * 24, 7)))
        .constant("b", &f32s(&[24], &numbers(24, 5)))
        .node("MatMul", "x w", "product", vec![])
        .node("Add", "product b", "sum", vec![])
        .node("Relu", "sum", "y", vec![])
        .node("ArgMax", "sum", "largest", vec![int("axis", 1), int("keepdims", 0)]);
    model.graph().output.push(info("y", DataType::FLOAT, vec![open("rows"), fixed(24)]));
    model.graph().output.push(info("largest", DataType::INT64, vec![open("rows")]));
    model.0.producer_name = Some("tests".into());
    let property = |key: &str, value: &str| StringStringEntryProto { key: Some(key.into()), value: Some(value.into()) };
    model.0.metadata_props = vec![property("labels", "a,b"), property("empty", "")];
    model
}

/// Rows of a table by numbers, as f64 where a mask is true, and zeros elsewhere.
pub fn embedding(ids: DataType) -> Model {
    let mut model = Model::new(17);
    model.graph().input.push(info("ids", ids, vec![open("n")]));
    model.graph().input.push(info("mask", DataType::BOOL, vec![open("n")]));
    let table: Vec<f32> = (0..80).map(|number| number as f32).collect();
    let mut model = model
        .constant("table", &f32s(&[20, 4], &table))
        .constant("axes", &i64s(&[1]))
        .constant("zero", &f32s(&[], &[0.0]))
        .node("Gather", "table ids", "rows", vec![])
        .node("Unsqueeze", "mask axes", "column", vec![])
        .node("Where", "column rows zero", "kept", vec![])
        .node("Cast", "kept", "y", vec![int("to", 11)]);
    model.graph().output.push(info("y", DataType::DOUBLE, vec![open("n"), fixed(4)]));
    model
}
