//! An operator from outside, from its registration to its kernel.
#![allow(clippy::unwrap_used)]

use std::env;
use std::process::Command;

#[test]
fn an_operator_from_outside_is_tuned_and_runs() {
    // Cargo puts the example beside the folder of this test.
    let profile = env::current_exe().unwrap().ancestors().nth(2).unwrap().to_path_buf();
    let ended = Command::new(profile.join("examples/custom_operator")).arg("4").output().unwrap();
    let text = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success(), "{ended:?}");
    assert!(text.starts_with("correlate:c=64,w=4100,o=64,k=5,bias,act=relu: Some("), "{text}");
    assert!(text.contains("largest relative error"), "{text}");
}
