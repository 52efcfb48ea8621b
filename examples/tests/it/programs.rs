//! Runs every example as a user does, on small sizes and with its files in a temporary folder.
//!
//! The two programs of `compiled_network` need a compiled library; `network/tests/library` runs
//! them.

use std::env;
use std::path::Path;
use std::process::Command;

/// Runs an example in a folder and returns its output.
fn printed(example: &str, arguments: &[&str], folder: &Path) -> String {
    // Cargo puts examples in a folder next to that of this test.
    let profile = env::current_exe().unwrap().ancestors().nth(2).unwrap().to_path_buf();
    let program = profile.join("examples").join(example);
    let ended = Command::new(program).args(arguments).current_dir(folder).output().unwrap();
    assert!(ended.status.success(), "{example}: {ended:?}");
    String::from_utf8(ended.stdout).unwrap()
}

/// Runs an example that reads and writes no file, and returns its output.
fn printed_anywhere(example: &str, arguments: &[&str]) -> String {
    printed(example, arguments, tempfile::tempdir().unwrap().path())
}

#[test]
fn operators_from_outside_are_tuned_and_run() {
    let text = printed_anywhere("custom_operator", &["4"]);
    for workload in ["correlate:c=64,w=4100,o=64,k=5,bias,act=relu", "masked_log_sum_exp:m=512,n=1000"] {
        assert!(text.contains(&format!("{workload}: Some(")), "{text}");
    }
    assert_eq!(text.matches("largest relative error").count(), 2, "{text}");
}

#[test]
fn searchers_and_cost_models_from_outside_tune() {
    let text = printed_anywhere("custom_search", &["4"]);
    assert!(text.starts_with("best Some("), "{text}");
}

#[test]
fn a_convolution_is_tuned_and_looked_up() {
    let text = printed_anywhere("tune_conv2d", &["4"]);
    assert!(text.starts_with("best Some(") && text.lines().count() == 2, "{text}");
}

#[test]
fn operators_are_deployed_without_a_database() {
    for example in ["deploy", "query_database"] {
        let text = printed_anywhere(example, &[]);
        let error = text.lines().find_map(|line| line.strip_prefix("largest relative error: ")).unwrap();
        assert!(error.parse::<f64>().unwrap() < 1e-4, "{example}: {text}");
    }
}

#[test]
fn networks_are_exported() {
    let folder = tempfile::tempdir().unwrap();
    let text = printed("export_onnx", &["dqn", "dqn.onnx"], folder.path());
    let bytes = folder.path().join("dqn.onnx").metadata().unwrap().len();
    assert!(text.starts_with("dqn.onnx: ") && bytes > 1_000_000, "{bytes} bytes, {text}");
}
