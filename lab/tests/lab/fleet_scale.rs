//! Test of the experiment with many fleet workers.

use std::env;
use std::process::Command;

#[test]
fn a_small_fleet_is_measured() {
    let test = env::current_exe().unwrap();
    // Cargo stores examples in a folder next to that of this test.
    let profile = test.ancestors().nth(2).unwrap();
    let plot = tempfile::NamedTempFile::new().unwrap();
    let mut command = Command::new(profile.join("examples/fleet_scale"));
    command.args([
        "--workers",
        "1,3",
        "--trial-ms",
        "4",
        "--reference-ms",
        "1",
        "--warm-up-secs",
        "0.2",
        "--secs",
        "0.5",
    ]);
    let output = command.arg("--plot").arg(plot.path()).output().unwrap();

    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    for line in ["| TCP, 1 |", "| TCP, 3 |"] {
        let line = text.lines().find_map(|found| found.strip_prefix(line));
        let cells: Vec<&str> = line.unwrap_or_else(|| panic!("a line is missing:\n{text}")).split('|').collect();
        assert!(cells[0].trim().parse::<f64>().unwrap() > 0.0, "no trials:\n{text}");
        let messages = cells[3].split(',').next().unwrap().trim().parse::<f64>().unwrap();
        assert!(messages >= 1.0, "fewer messages than trials:\n{text}");
    }
    assert!(std::fs::read_to_string(plot.path()).unwrap().starts_with("<svg"));
}
