//! Fuzz test of loading saved models with random damage: it must return an error or a model that
//! predicts, and must not panic. `AUTOTUNE_CASES` sets the number of damaged models.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use autotune_cost_model::{CostModel, Objective, Prior, XgbModel, XgbParams};
use ndarray::Array2;
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use serde_json::{Map, Value, json};

use crate::random_value::random_value;
use crate::synthetic;

const SEED: u64 = 11;
const CASES: usize = 400;

fn cases() -> usize {
    std::env::var("AUTOTUNE_CASES").map_or(CASES, |text| text.parse().expect("AUTOTUNE_CASES is a number"))
}

fn saved() -> Vec<u8> {
    let samples = synthetic::samples(&mut ChaCha8Rng::seed_from_u64(SEED), 60, 0);
    let prior = Some(Prior { column: 3, weight: 0.5 });
    let params = XgbParams { objective: Objective::RankPairwise, rounds: 3, prior, ..XgbParams::default() };
    let mut model = XgbModel::new(params);
    model.fit(&samples).unwrap();
    model.save().unwrap()
}

/// Changes, removes or inserts a few bytes, or truncates.
fn damage_bytes(bytes: &mut Vec<u8>, random: &mut impl Rng) {
    for _ in 0..random.random_range(1..5) {
        let at = random.random_range(0..bytes.len().max(1)).min(bytes.len().saturating_sub(1));
        match random.random_range(0..4) {
            0 => bytes.truncate(at),
            1 if !bytes.is_empty() => bytes[at] = random.random(),
            2 if !bytes.is_empty() => drop(bytes.remove(at)),
            _ => bytes.insert(at, *b"0123456789-.e[]{},:\"".get(random.random_range(0..20)).unwrap()),
        }
    }
}

/// Replaces one random value of a JSON text.
fn damage_value(value: &mut Value, random: &mut impl Rng) {
    let value = random_value(value, 10, random);
    *value = match random.random_range(0..12) {
        0 => Value::Null,
        1 => json!(-1),
        2 => json!(i64::MIN),
        3 => json!(u64::MAX),
        4 => json!(1e300),
        5 => json!("0"),
        6 => json!("18446744073709551615"),
        7 => json!("9"),
        8 => json!([]),
        9 => Value::Object(Map::new()),
        10 => json!(true),
        _ => json!(random.random_range(-3..200)),
    };
}

/// Returns the model with damaged bytes, or with damaged values in its header or its trees.
fn damaged(whole: &[u8], random: &mut impl Rng) -> Vec<u8> {
    let mut bytes = whole.to_vec();
    if random.random_range(0..3) == 0 {
        damage_bytes(&mut bytes, random);
        return bytes;
    }
    let line = bytes.iter().position(|&byte| byte == b'\n').unwrap();
    let (header, forest) = bytes.split_at(line);
    let mut parts: Vec<Value> = [header, forest].iter().map(|part| serde_json::from_slice(part).unwrap()).collect();
    for _ in 0..random.random_range(1..4) {
        let part = random.random_range(0..2);
        damage_value(&mut parts[part], random);
    }
    format!("{}\n{}", parts[0], parts[1]).into_bytes()
}

#[test]
fn damaged_models_are_errors_or_predict() {
    let whole = saved();
    let (mut random, mut loaded) = (ChaCha8Rng::seed_from_u64(SEED), 0);
    for case in 0..cases() {
        let bytes = damaged(&whole, &mut random);
        let checked = std::panic::catch_unwind(|| {
            let Ok(model) = XgbModel::from_bytes(&bytes) else { return 0 };
            let columns = model.feature_count().unwrap_or(synthetic::COLUMNS);
            assert!(columns <= 1 << 20, "a row of {columns} columns");
            for rows in [0, 1, 8, 11] {
                let features = Array2::from_shape_fn((rows, columns), |(row, column)| (row * 7 + column) as f32);
                assert_eq!(model.predict(features.view()).len(), rows);
            }
            1
        });
        loaded += checked.unwrap_or_else(|_| panic!("seed {SEED}, case {case}:\n{}", String::from_utf8_lossy(&bytes)));
    }
    assert!(loaded > 0, "no damage was small enough");
    println!("{} damaged models, {loaded} of them still models", cases());
}
