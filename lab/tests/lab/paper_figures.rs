//! Tests of `paper_figures` on a small synthetic test bed.

use std::env;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use autotune_schedules::LOWERING_VERSION;

use crate::long::or_long;
use crate::made_up;

/// Figures that an ordinary run makes twice; a long run makes all twice.
const AGAIN: &str = "searchers,ranking";

const WORKLOADS: [(&str, &str); 4] = [
    ("conv3x3", "conv2d:c=8,h=12,w=12,o=16,k=3,p=1"),
    ("conv3x3", "conv2d:c=16,h=10,w=10,o=16,k=3,p=1"),
    ("matmul", "matmul:m=32,n=48,k=64"),
    ("matmul", "matmul:m=64,n=32,k=32"),
];

fn figures(test_bed: &Path, arguments: &[&str]) -> Output {
    // Cargo stores examples in a folder next to that of this test.
    let profile = env::current_exe().unwrap().ancestors().nth(2).unwrap().to_path_buf();
    let mut command = Command::new(profile.join("examples/paper_figures"));
    command.arg("--test-bed").arg(test_bed).args(arguments).output().unwrap()
}

#[test]
fn every_figure_is_made_and_the_same_again() {
    let _cores = crate::all_cores();
    let folder = tempfile::tempdir().unwrap();
    let test_bed = folder.path().join("bed.jsonl");
    made_up::write(&test_bed, &WORKLOADS, 48);
    let again = or_long([&["--only", AGAIN][..], &[]]);
    let made: Vec<Vec<(String, String)>> = [("a", &[][..]), ("b", again)]
        .map(|(name, only)| {
            let out = folder.path().join(name);
            let small = ["--seeds", "2", "--trials", "20", "--per-family", "1", "--out", out.to_str().unwrap()];
            let ended = figures(&test_bed, &[&small[..], only].concat());
            assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
            let files = fs::read_dir(&out).unwrap().map(|entry| entry.unwrap());
            let read = |file: fs::DirEntry| {
                (file.file_name().into_string().unwrap(), fs::read_to_string(file.path()).unwrap())
            };
            let mut files: Vec<_> = files.map(read).collect();
            files.sort();
            files
        })
        .into();
    assert!(made[1].iter().all(|file| made[0].contains(file)));
    let twice: Vec<&str> = made[1].iter().map(|(name, _)| name.as_str()).collect();
    assert!(AGAIN.split(',').all(|figure| twice.contains(&format!("{figure}.csv").as_str())), "{twice:?}");

    let files: Vec<&str> = made[0].iter().map(|(name, _)| name.as_str()).collect();
    for figure in
        ["searchers", "objectives", "diversity", "uncertainty", "transfer", "features", "ranking", "published", "time"]
    {
        assert!(files.contains(&format!("{figure}.csv").as_str()), "{figure}: {files:?}");
    }
    for (name, text) in &made[0] {
        if name.ends_with(".svg") {
            assert!(text.ends_with("</svg>\n") && !text.contains("NaN") && !text.contains("inf"), "{name}: {text}");
        }
        if name.ends_with(".csv") {
            let columns = text.lines().next().unwrap().split(',').count();
            assert!(text.lines().count() > 1 && columns > 2, "{name}: {text}");
        }
    }
    let page = &made[0].iter().find(|(name, _)| name == "README.md").unwrap().1;
    for image in page.lines().filter_map(|line| line.strip_prefix("![")?.split('(').nth(1)) {
        assert!(files.contains(&image.trim_end_matches(')')), "{image}: {files:?}");
    }
    assert!(!page.contains("NaN"), "{page}");
}

#[test]
fn unusable_data_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bed.jsonl");
    let fails = |reason: &str| {
        let ended = figures(&path, &["--only", "time"]);
        let told = String::from_utf8_lossy(&ended.stderr).to_string();
        assert!(ended.status.code() == Some(1) && told.contains(reason), "{told}");
    };
    fails("bed.jsonl");
    made_up::write(&path, &WORKLOADS[..1], 4);
    let text = fs::read_to_string(&path).unwrap();
    let recorded = format!("\"lowering\":{LOWERING_VERSION}");
    fs::write(&path, text.replacen(&recorded, "\"lowering\":999", 1)).unwrap();
    fails("recorded with version 999 of the lowering");
    fs::write(&path, text.replacen("cpu:test", "gpu:test", 1)).unwrap();
    fails("is not the key of a target");
}
