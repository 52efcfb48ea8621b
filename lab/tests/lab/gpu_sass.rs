//! Tests of the table of GPU machine code: that faults of default kernels are found, and that they
//! have none.
//!
//! If Python, NVRTC or nvdisasm is missing, the tests print that and pass;
//! `AUTOTUNE_REQUIRE=python3,nvrtc,nvdisasm` makes that a failure.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use autotune_measure::nvrtc;

use crate::long::or_long;

/// Kernels of an ordinary run: of each sketch with matrix instructions, and some without.
const SOME: [&str; 8] =
    ["f16 C2", "f16 C9", "f16 C11", "f16 3x3 batch 8", "f16 4096", "tf32 C6", "f32 C7", "f16 softmax"];

/// A loop of ten instructions with four multiplications, and one of three.
const LISTING: &str = "\t.section\t.text.autotune_compute,\"ax\",@progbits
.text.autotune_compute:
        /*0000*/                   IMAD.MOV.U32 R1, RZ, RZ, c[0x0][0x28] ;
.L_x_0:
        /*0010*/                   IADD3 R2, R2, 0x1, RZ ;
        /*0020*/               @P0 BRA `(.L_x_0) ;
.L_x_1:
        /*0030*/                   LDSM.16.M88.4 R4, [R2] ;
        /*0040*/                   HMMA.16816.F32 R8, R4, R6, R8 ;
        /*0050*/                   HMMA.16816.F32 R12, R4, R6, R12 ;
        /*0060*/                   HMMA.16816.F32 R16, R4, R6, R16 ;
        /*0070*/                   HMMA.16816.F32 R20, R4, R6, R20 ;
        /*0080*/              @!P1 LDGSTS.E.BYPASS.128 [R3], desc[UR4][R24.64] ;
        /*0090*/                   IADD3 R2, R2, 0x10, RZ ;
        /*00a0*/              @!PT LDS RZ, [RZ] ;
        /*00a8*/                   ISETP.GE.AND P0, PT, R2, R30, PT ;
        /*00b0*/                   BAR.SYNC 0x0 ;
        /*00c0*/               @P0 BRA `(.L_x_1) ;
        /*00d0*/                   EXIT ;
";

fn missing(tool: &str, reason: &str) {
    let required = env::var("AUTOTUNE_REQUIRE").unwrap_or_default();
    assert!(required.split(',').all(|name| name != tool), "{tool} is required: {reason}");
    eprintln!("skipped, {tool} is missing: {reason}");
}

fn script() -> Command {
    let mut command = Command::new("python3");
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/gpu/sass.py"));
    command
}

fn has_python() -> bool {
    let version = Command::new("python3").arg("--version").output();
    version.as_ref().err().into_iter().for_each(|error| missing("python3", &error.to_string()));
    version.is_ok()
}

/// Writes a program that prints a text.
fn printer(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, format!("#!/bin/sh\ncat <<'END'\n{text}\nEND\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// Runs the check on a kernel with the listing above.
fn checked(spill_bytes: usize, is_serialized: bool, micros: f64) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let row = serde_json::json!({
        "cubin": "none", "config": {"sketch": "mma"}, "symbols": ["autotune_compute"], "registers": 64,
        "spill_bytes": spill_bytes, "is_serialized": is_serialized, "threads": 128.0, "resident": 4.0,
        "flops": 1e9, "bytes": 1e6, "micros": micros, "least_micros": 2.0,
    });
    let program = printer(folder.path(), "kernels", &row.to_string());
    let nvdisasm = printer(folder.path(), "nvdisasm", LISTING);
    script().args(["--check", "f16 C2", "--program"]).arg(program).env("AUTOTUNE_NVDISASM", nvdisasm).output().unwrap()
}

#[test]
fn faults_of_default_kernels_are_found() {
    if !has_python() {
        return;
    }
    for (spill_bytes, is_serialized, micros, fault) in [
        (64, false, 3.0, None),
        (65, false, 3.0, Some("spills 65 bytes")),
        (0, true, 3.0, Some("serialised")),
        (0, false, 3.01, Some("another schedule at 2.0 us")),
    ] {
        let ended = checked(spill_bytes, is_serialized, micros);
        let (table, said) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
        assert_eq!(ended.status.code(), Some(i32::from(fault.is_some())), "{said}");
        assert!(fault.map_or(said.is_empty(), |fault| said.contains(fault)), "{said}");
        let row = format!("| f16 C2 | mma | 64 | {spill_bytes} | 16 | 10 | 40 | 20 | 0.25 | 1 | {micros:.1} |");
        assert!(table.contains(&row), "{table}");
    }
}

#[test]
fn default_kernels_have_no_faults() {
    if !has_python() {
        return;
    }
    if let Err(reason) = nvrtc::compiler_for(90) {
        return missing("nvrtc", &reason);
    }
    // Cargo stores examples in a folder next to that of this test.
    let program = env::current_exe().unwrap().ancestors().nth(2).unwrap().join("examples/gpu_kernels");
    let words = or_long([&SOME[..], &[]]);
    let ended = script().arg("--check").args(words).arg("--program").arg(program).output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    match said.contains("nvdisasm is missing") {
        true => missing("nvdisasm", &said),
        false => assert!(ended.status.success(), "{said}"),
    }
}
