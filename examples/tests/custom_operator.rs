//! Operators from outside, from their registration to their kernels.
#![allow(clippy::unwrap_used)]

use std::env;
use std::process::Command;

#[test]
fn operators_from_outside_are_tuned_and_run() {
    // Cargo puts the example beside the folder of this test.
    let profile = env::current_exe().unwrap().ancestors().nth(2).unwrap().to_path_buf();
    let ended = Command::new(profile.join("examples/custom_operator")).arg("4").output().unwrap();
    let text = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success(), "{ended:?}");
    for workload in ["correlate:c=64,w=4100,o=64,k=5,bias,act=relu", "masked_log_sum_exp:m=512,n=1000"] {
        assert!(text.contains(&format!("{workload}: Some(")), "{text}");
    }
    assert_eq!(text.matches("largest relative error").count(), 2, "{text}");
}
