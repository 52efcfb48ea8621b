//! Tests of the comparison with other libraries when kernels and peers fail.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::thread;

use serde_json::Value;

use crate::stub::Stub;

/// Script of a fake peer that speaks server.py's protocol. By the number of rows it lacks the
/// product (11), reports a wrong result (12), dies during its turns (13), prints garbage (14) or
/// reports its device as lost (15). A process that has handled 13, 14 or 15 must not be used again:
/// it exits on the next request.
const PEER: &str = r#"#!/bin/sh
echo '{"name": "Fake", "version": "1"}'
spoilt=no
while read -r line; do
    case "$line" in
    *'"m":11,'*) echo '{"absent": true}' ;;
    *'"m":12,'*) echo '{"error": "wrong | result"}' ;;
    *'"m":13,'*) rows=13; spoilt=yes; echo '{"how": "dies", "max_rel_error": 0}' ;;
    *'"m":14,'*) spoilt=yes; echo 'Segmentation fault' ;;
    *'"m":15,'*) spoilt=yes; echo '{"error": "no device", "lost": true}' ;;
    *prepare*) [ $spoilt = no ] || exit 1; rows=0; echo '{"how": "fast, without a graph", "max_rel_error": 0}' ;;
    *) [ "$rows" = 13 ] && kill -9 $$; echo '{"run_secs": [0.5, 0.5, 0.5]}' ;;
    esac
done
"#;

fn missing(tool: &str, reason: &str) {
    let required = env::var("AUTOTUNE_REQUIRE").unwrap_or_default();
    assert!(required.split(',').all(|name| name != tool), "{tool} is required: {reason}");
    eprintln!("skipped, {tool} is missing: {reason}");
}

/// Returns the command for a quick comparison.
fn comparison(out: &Path) -> Command {
    // Cargo stores examples in a folder next to that of this test.
    let profile = env::current_exe().unwrap().ancestors().nth(2).unwrap().to_path_buf();
    let mut command = Command::new(profile.join("examples/compare_peers"));
    command.args(["--trials", "0", "--rounds", "2", "--turn-ms", "1"]).arg("--out").arg(out);
    command
}

/// Runs a comparison and returns the rows of its only table.
fn rows(command: &mut Command, out: &Path) -> Vec<Value> {
    let ended = command.output().unwrap();
    assert!(ended.status.success(), "{ended:?}");
    let run: Value = serde_json::from_str(&fs::read_to_string(out.with_extension("json")).unwrap()).unwrap();
    run["tables"][0]["comparisons"].as_array().unwrap().clone()
}

/// Returns the names of the measured contenders.
fn names(row: &Value) -> Vec<&str> {
    row["contenders"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect()
}

#[test]
fn a_peer_that_fails_costs_its_figure_and_nothing_else() {
    let _cores = crate::quiet_cores();
    let folder = tempfile::tempdir().unwrap();
    let (peer, out) = (folder.path().join("peer"), folder.path().join("out"));
    fs::write(&peer, PEER).unwrap();
    fs::set_permissions(&peer, fs::Permissions::from_mode(0o755)).unwrap();
    let listed = serde_json::json!([{"peer": "fake", "python": peer}, {"peer": "other", "python": "/nowhere/python"}]);
    fs::write(folder.path().join("peers.json"), listed.to_string()).unwrap();

    // With several threads, this library's process must find all allowed cores.
    let threads = thread::available_parallelism().map_or(1, |cores| cores.get().min(2)).to_string();
    let mut command = comparison(&out);
    command.args(["--threads", &threads, "--suite"]).args((11..=16).map(|m| format!("matmul:m={m},n=8,k=8,bias")));
    let rows = rows(command.arg("--peers").arg(folder.path()), &out);
    assert_eq!(rows.len(), 6);
    for (row, why) in
        rows.iter().zip(["", "wrong | result", "(signal: 9 (SIGKILL))", "Segmentation fault", "no device"])
    {
        assert_eq!(names(row), ["autotune"], "{row:#}");
        let left_out = row["left_out"][0]["why"].as_str().unwrap_or_default();
        assert!(left_out.contains(why) && left_out.is_empty() == why.is_empty(), "{row:#}");
    }
    assert_eq!(names(&rows[5]), ["autotune", "Fake 1"]);
    assert!(rows[5]["contenders"][1]["ratio"].as_f64().unwrap() > 1.0);

    let text = fs::read_to_string(out.with_extension("md")).unwrap();
    for line in [
        "12x8x8: Fake 1 is left out: wrong \\| result",
        "without a graph: 16x8x8 Fake 1",
        "Not measured: other: \"/nowhere/python\": No such file",
    ] {
        assert!(text.contains(line), "'{line}' is not in:\n{text}");
    }
}

#[test]
fn operators_that_move_memory_are_compared_with_a_copy() {
    let _cores = crate::quiet_cores();
    let folder = tempfile::tempdir().unwrap();
    let (peer, out) = (folder.path().join("peer"), folder.path().join("out"));
    // The peer prepares only requests with the expected operand and output shapes.
    let script = PEER.replace("*prepare*)", r#"*'"operands":{"input":[40,16]},'*'"output_shape":[40,16]'*)"#);
    fs::write(&peer, script).unwrap();
    fs::set_permissions(&peer, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(folder.path().join("peers.json"), serde_json::json!([{"peer": "fake", "python": peer}]).to_string())
        .unwrap();
    let compare = |subjects: &[&str]| {
        let mut command = comparison(&out);
        command.arg("--suite").args(subjects).arg("--peers").arg(folder.path());
        command
    };

    let rows = rows(&mut compare(&["softmax:m=40,n=16", "matmul:m=11,n=8,k=8", "log_softmax:m=40,n=16"]), &out);
    for row in [&rows[0], &rows[2]] {
        assert_eq!(names(row), ["autotune", "Fake 1"], "{row:#}");
        assert_eq!(
            (row["bytes"].as_f64(), row["copy"]["name"].as_str()),
            (Some(2.0 * 40.0 * 16.0 * 4.0), Some("copy"))
        );
        assert!(row["copy"]["ratio"].as_f64().unwrap() > 0.0, "{row:#}");
    }
    assert!(rows[1]["copy"].is_null(), "{:#}", rows[1]);
    let text = fs::read_to_string(out.with_extension("md")).unwrap();
    assert!(text.contains("| softmax:m=40,n=16 | ") && text.contains("| GB/s | of copy | Fake 1 ms |"), "{text}");

    // Operators that no peer supports are reported before anything is tuned or measured.
    let ended = compare(&["softmax:m=40,n=16,act=relu"]).output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert!(!ended.status.success() && said.contains("without its epilogue only"), "{said}");
}

#[test]
fn a_kernel_that_breaks_its_device_costs_its_row_and_nothing_else() {
    let _cores = crate::quiet_cores();
    let stub = match Stub::find() {
        Ok(stub) => stub,
        Err(reason) => return missing("g++", &reason),
    };
    let folder = tempfile::tempdir().unwrap();
    let (out, broken) = (folder.path().join("out"), folder.path().join("broken"));
    let subjects = ["matmul:m=16,n=16,k=16", "matmul:m=32,n=16,k=16"];
    let compare = |fault: &str| {
        let mut command = comparison(&out);
        stub.set(&mut command).env("STUB_CUDA_FAULT", fault).env("AUTOTUNE_CACHE", folder.path().join("cache"));
        rows(command.args(["--target", "cuda", "--suite"]).args(subjects).arg("--peers").arg(folder.path()), &out)
    };
    // This run stores the ceilings, so that later runs start only this library's kernels.
    assert!(compare("").iter().all(|row| names(row) == ["autotune"]));
    let text = || fs::read_to_string(out.with_extension("md")).unwrap();
    assert!(!text().contains("without a graph"), "{}", text());
    compare("cuStreamBeginCapture_v2:1:900");
    assert!(text().contains("without a graph: 16x16x16 autotune, 32x16x16 autotune"), "{}", text());

    let rows = compare(&format!("cuLaunchKernel:2:700:sticky:once={}", broken.display()));
    assert!(broken.exists());
    assert_eq!((names(&rows[0]), names(&rows[1])), (vec![], vec!["autotune"]), "{rows:#?}");
    assert!(text().contains("| 16x16x16 | left out: ") && text().contains("ILLEGAL_ADDRESS"), "{}", text());
}
