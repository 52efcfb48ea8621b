//! Tests that run the `autotune` command as a user does.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs;
use std::io::Read;
use std::path::Path;

use autotune_db::{Phase, Provenance, TuningDb, TuningRecord};
use autotune_ir::Target;
use autotune_measurement::{Backend, Measurement, Resources, RunSecs};
use autotune_runtime::{cuda, opencl};
use autotune_schedules::{LOWERING_VERSION, ScheduleSpace};
use autotune_workloads::Workload;
use serde_json::Value;

use crate::sandbox::{Ended, Sandbox, TINY, finish, signal};

#[test]
fn help_shows_examples_and_every_subcommand_has_help() {
    let sandbox = Sandbox::new();
    let help = sandbox.run("--help").expect(0).stdout;
    for word in [
        "Examples:",
        "--time-budget",
        "Exit codes",
        "targets",
        "tasks",
        "best",
        "log",
        "bench",
        "show",
        "report",
        "snapshot",
        "fleet",
    ] {
        assert!(help.contains(word), "'{word}' is not in:\n{help}");
    }

    let is_worker = |line: &str| line.trim_start().starts_with("worker");
    assert!(!help.lines().any(is_worker), "the measuring worker is no business of the user:\n{help}");
    assert_fits_pipes("", &help);
    assert!(sandbox.run("targets --help").expect(0).stdout.contains("Usage:"));

    for subcommand in [
        "tasks",
        "best",
        "log export",
        "log import",
        "bench",
        "show",
        "run",
        "compile",
        "report",
        "snapshot write",
        "snapshot check",
        "fleet worker",
        "fleet up",
        "fleet status",
    ] {
        let help = sandbox.run(&format!("{subcommand} --help")).expect(0).stdout;
        assert!(help.contains("Usage:") && help.contains("Examples:"), "{help}");
        assert_fits_pipes(subcommand, &help);
    }
    assert!(sandbox.run("--version").expect(0).stdout.starts_with("autotune "));
}

/// Checks that help has no styles without a terminal, and that paragraphs are filled: every line
/// but the last is too long for the next word.
fn assert_fits_pipes(subcommand: &str, help: &str) {
    assert!(!help.contains('\u{1b}'), "{subcommand} --help has styles without a terminal");
    let lines: Vec<&str> = help.lines().collect();
    for pair in lines.windows(2) {
        let [line, next] = pair else { continue };
        assert!(line.chars().count() <= 100, "{subcommand} --help: {line}");
        let is_prose = |line: &str| line.starts_with(|first: char| first.is_alphanumeric());
        let word = next.split(' ').next().unwrap_or_default();
        let has_room = line.chars().count() + 1 + word.chars().count() <= 100;
        assert!(
            !(is_prose(line) && is_prose(next) && has_room) || line.ends_with(':'),
            "{subcommand} --help breaks early: {line}"
        );
    }
}

#[test]
fn bad_usage_is_one_line_and_code_2() {
    let sandbox = Sandbox::new();
    fs::write(sandbox.path("file"), "text").unwrap();
    fs::create_dir(sandbox.path("full")).unwrap();
    fs::write(sandbox.path("full/letter.txt"), "dear").unwrap();

    for (line, words) in [
        ("", "NETWORK|WORKLOAD"),
        ("resnet19", "unknown network 'resnet19'"),
        ("resnet18 --target tpu", "unknown target 'tpu'"),
        ("resnet18 --tuner bayes", "unknown tuner 'bayes'"),
        ("resnet18 --trials -1", "-1"),
        ("resnet18 --threads 0", "--threads 0"),
        ("resnet18 --threads 4096", "--threads 4096"),
        ("resnet18 --time-budget soon", "'soon'"),
        ("resnet18 --seed x", "--seed"),
        ("resnet18 --frobnicate", "--frobnicate"),
        ("conv4d:c=1", "unknown operator 'conv4d'"),
        ("conv2d:c=3,h=8,w=8,k=3", "'o' is missing"),
        ("conv2d:c=three,h=8,w=8,o=4,k=3", "field 'c'"),
        ("conv2d:c=0,h=8,w=8,o=4,k=3", "field 'c'"),
        ("conv2d:c=3,h=99999999999,w=99999999999,o=4,k=3", "exceeds"),
        ("conv2d:c=3,h=8,w=8,o=4,k=3,p=9", "field 'ph'"),
        ("conv2d:c=3,h=8,w=8,o=4,k=3,s=0", "field 'sh'"),
        ("conv2d:c=3,h=8,w=8,o=4,k=3,g=2", "field 'g'"),
        ("conv2d:c=3,h=8,w=8,o=4,k=3,act=cosh", "conv2d: field 'act': 'cosh' is not an activation"),
        ("conv2d:c=3,h=8,w=8,o=4,k=3,act=clip:6:0", "conv2d: field 'act': 'clip:6:0' is not clip:LO:HI"),
        ("pad:c=3,h=5,w=6,p=5,mode=reflect", "pad: field 'pt'"),
        ("resize:c=2,h=3,w=4,oh=5", "resize: field 'ow'"),
        ("pool2d:c=3,h=8,w=8,k=2,global,kind=avg", "pool2d: field 'k': cannot be combined with 'global'"),
        ("pool2d:c=3,h=8,w=8,k=2,exclude_pad", "pool2d: field 'exclude_pad'"),
        ("gather:m=4,n=8,k=16777217", "gather: field 'k': row numbers are f32"),
        ("matmul:m=8,n=8,k=8,bias=2", "matmul: field 'bias': '2' is not a flag"),
        ("matmul:m=4294967296,n=4294967296,k=2", "exceeds"),
        ("matmul:m=8,n=16,k=8 --trials 1 --db file", "file"),
        ("matmul:m=8,n=16,k=8 --trials 1 --db file/below", "file/below"),
        ("matmul:m=8,n=16,k=8 --trials 1 --db full", "not a tuning database"),
        ("matmul:m=8,n=16,k=8 --trials 1 --json no/such/folder/x.json", "no/such/folder/x.json"),
        ("matmul:m=8,n=16,k=8 --trials 1 --target cuda --threads 2", "--threads"),
        ("matmul:m=8,n=16,k=8 --trials 1 --target cuda:sm_13", "cuda:sm_90"),
        ("show matmul:m=8,n=16,k=8 --target cuda:sm_13", "cuda:sm_90"),
        ("show matmul:m=8,n=16,k=8 --target opencl --threads 2", "--threads"),
        ("matmul:m=8,n=16,k=8,dtype=f16 --target opencl", "supports f32; f16 needs --target cuda, cuda:sm_70 or newer"),
        ("matmul:m=8,n=16,k=8,data=u8,weights=i8 --target opencl", "no kernels with data=u8 on opencl:"),
        (
            "matmul:m=8,n=16,k=8,dtype=bf16 --target cuda:sm_70",
            "supports f32, f16; bf16 needs --target cuda, cuda:sm_80 or newer",
        ),
        ("softmax:m=3,n=3,dtype=f16", "softmax: field 'dtype': no kernels with dtype=f16 on cpu:"),
        (
            "show attention:b=1,m=1,n=64,k=4096 --target cuda:sm_70",
            "attention:b=1,m=1,n=64,k=4096: field 'd': a row of 4096 values is too long for one block on cuda:sm_70",
        ),
        ("resnet18 --dtype tf32", "no kernels with dtype=tf32 on cpu:"),
        ("resnet18 --dtype f64", "--dtype 'f64' is not an element type"),
        ("matmul:m=8,n=8,k=8,cold --target cuda:sm_90", "cannot time cold runs on cuda:sm_90"),
        ("bench resnet18 --dtype f16 --target opencl", "no kernels with dtype=f16 on opencl:"),
        ("bench matmul:m=8,n=16,k=8,dtype=tf32", "no kernels with dtype=tf32 on cpu:"),
        ("best matmul:m=8,n=16,k=8,dtype=tf32 --target cuda:sm_75", "no kernels with dtype=tf32 on cuda:sm_75:"),
        ("show matmul:m=8,n=16,k=8,dtype=f16", "no kernels with dtype=f16 on cpu:"),
        ("show matmul:m=8,n=16,k=8,dtype=f16 --target opencl", "no kernels with dtype=f16 on opencl:"),
        ("tasks matmul:m=8,n=16,k=8,dtype=f16", "no kernels with dtype=f16 on cpu:"),
        ("best resnet18", "unknown operator 'resnet18'"),
        ("tasks vgg", "unknown network 'vgg'"),
        ("show matmul:m=8,n=16,k=8 --config {}", "--config"),
        (r#"show matmul:m=8,n=16,k=8 --config {"sketch":"none","knobs":{}}"#, "--config"),
        ("log export", "<FILE>"),
        ("log import no-such-file", "no-such-file"),
        ("log import file", "line 1"),
    ] {
        let ended = sandbox.run(line);
        assert_eq!(ended.code, Some(2), "{line}: {}", ended.stderr);
        ended.expect_line(2, words);
    }
}

#[test]
fn a_corrupt_database_is_refused_and_left_alone() {
    let sandbox = Sandbox::new();
    sandbox.run(&format!("{TINY} --trials 1")).expect(0);
    let format = sandbox.path("db").join("FORMAT");
    fs::write(&format, "not a number").unwrap();
    sandbox.run(&format!("{TINY} --trials 2")).expect_line(1, "db");
    assert_eq!(fs::read_to_string(&format).unwrap(), "not a number");
}

#[test]
fn without_a_compiler_it_assembles_or_says_so() {
    let sandbox = Sandbox::new();
    let target = Target::detect("cpu", None).unwrap();
    for (name, value) in [("CC", "/nonexistent/cc"), ("PATH", "")] {
        let run = |line: &str| {
            let mut command = sandbox.command(line);
            command.env_remove("CC").env(name, value);
            // Hides OpenCL devices, whose ceilings take long to measure, and no compiler.
            command.env("OCL_ICD_VENDORS", "/nonexistent/");
            finish(command)
        };
        match Backend::default_for(target.cpu().unwrap().isa) {
            Backend::Assembler => {
                run(&format!("{TINY} --trials 8 --db {name}")).expect(0);
                run(&format!("bench {TINY} --db {name}")).expect(0);
                run("targets").expect(0);
                let ended = run(&format!("{TINY} --trials 8 --backend c --db c")).expect(1);
                assert!(ended.stderr.contains("no C compiler found"), "{}", ended.stderr);
            }
            Backend::C => run(&format!("{TINY} --trials 8")).expect_line(1, "no C compiler found"),
        }
    }
}

#[test]
fn a_workload_is_tuned_looked_up_shown_benched_exported_and_imported() {
    let sandbox = Sandbox::new();
    let ended = sandbox.run(&format!("{TINY} --trials 8 --json out.json")).expect(0);
    for word in ["speed-up", "of roofline", "propose", "build", "run", "fit"] {
        assert!(ended.stdout.contains(word), "'{word}' is not in:\n{}", ended.stdout);
    }
    let report = sandbox.json("out.json");
    let task = &report["tasks"][0];
    assert_eq!((&task["workload"], &task["count"], &task["trials"]), (&TINY.into(), &1.into(), &8.into()));
    let secs = |key: &str| task[key].as_f64().unwrap();
    assert!(secs("best_secs") > 0.0 && secs("best_secs") <= secs("default_secs"));
    assert!(secs("gflops") > 0.0 && secs("roofline_fraction") > 0.0 && secs("max_rel_error") < 1e-3);
    assert!(report["tuning_secs"].as_f64().unwrap() > 0.0);
    assert_eq!(task["failed_trials"], 0, "every config of the space runs and is right");

    let best: Value = serde_json::from_str(&sandbox.run(&format!("best {TINY}")).expect(0).stdout).unwrap();
    assert_eq!(best["config"], task["config"]);
    assert_eq!(best["target"], report["target"]);
    assert!(!best["provenance"]["compiler"].as_str().unwrap().is_empty());
    sandbox.run("best matmul:m=9,n=9,k=9").expect_line(1, "no schedule is known for matmul:m=9,n=9,k=9");

    let shown = sandbox.run(&format!("show {TINY}")).expect(0).stdout;
    assert!(shown.contains("the best in the database"), "{shown}");
    let assembled = Backend::default_for(Target::detect("cpu", None).unwrap().cpu().unwrap().isa) == Backend::Assembler;
    assert_eq!(shown.contains("vfmadd231ps"), assembled, "{shown}");
    assert_eq!(best["provenance"]["backend"], if assembled { "assembler" } else { "c" });
    let source = sandbox.run(&format!("show {TINY} --backend c")).expect(0).stdout;
    assert!(source.contains("vector_size") && !source.contains("vfmadd231ps"), "{source}");
    sandbox.run(&format!("bench {TINY} --backend c --db compiled")).expect(0);
    let compiled = sandbox.run("log export - --db compiled").expect(0).stdout;
    assert!(compiled.contains("\"backend\":\"c\"") && !compiled.contains("assembler"), "{compiled}");
    let config = serde_json::to_string(&best["config"]).unwrap();
    let given = sandbox.run(&format!("show {TINY} --config {config}")).expect(0).stdout;
    assert!(given.contains("from --config"));
    let untuned = sandbox.run("show matmul:m=9,n=9,k=9").expect(0).stdout;
    assert!(["the default", "predicted, not measured"].iter().any(|words| untuned.contains(words)), "{untuned}");
    for (gpu, word) in [("cuda:sm_90", "__global__ void"), ("opencl", "__kernel ")] {
        assert!(sandbox.run(&format!("show {TINY} --target {gpu}")).expect(0).stdout.contains(word));
    }
    for dtype in ["f16", "bf16", "tf32"] {
        let shown = sandbox.run(&format!("show {TINY},dtype={dtype} --target cuda:sm_90")).expect(0).stdout;
        let tells = shown.contains(" registers per thread, ") || shown.contains("// resource use is unknown: ");
        assert!(tells, "{shown}");
        assert!(shown.contains(&format!("to_{dtype}(")) && shown.contains("__global__ void"), "{shown}");
    }

    sandbox.run(&format!("bench {TINY} --json bench.json")).expect(0);
    assert!(sandbox.json("bench.json")["tasks"][0]["best_secs"].as_f64().unwrap() > 0.0);

    sandbox.run(&format!("bench {TINY},dtype=f16 --dtype f32 --exact --json exact.json")).expect(0);
    assert_eq!(sandbox.json("exact.json")["tasks"][0]["workload"], format!("{TINY},exact"));

    fs::write(sandbox.path("model.json"), "{\"weights\":[]}").unwrap();
    sandbox.run("log export model.json").expect_line(2, "exists and is not a log of records");
    assert_eq!(fs::read_to_string(sandbox.path("model.json")).unwrap(), "{\"weights\":[]}");
    sandbox.run("log export all.jsonl").expect(0);
    // An existing log is replaced.
    let export = sandbox.run("log export all.jsonl").expect(0);
    let exported = fs::read_to_string(sandbox.path("all.jsonl")).unwrap();
    assert!(export.stderr.contains(&format!("exported {} record(s)", exported.lines().count())));
    assert!(sandbox.run("log import all.jsonl --db copy").expect(0).stderr.contains("0 already present"));
    assert!(sandbox.run("log import all.jsonl --db copy").expect(0).stderr.contains("imported 0 record(s)"));
    let copied = sandbox.run("log export - --db copy").expect(0).stdout;
    assert_eq!(
        copied.replace(",\"imported\":true", ""),
        exported,
        "a copy says of every record that it came from elsewhere"
    );
    let mut import = sandbox.command("log import - --db piped");
    import.stdin(fs::File::open(sandbox.path("all.jsonl")).unwrap());
    let words = format!("imported {} record(s)", exported.lines().count());
    assert!(finish(import).expect(0).stderr.contains(&words));
}

#[test]
fn without_trials_the_predicted_schedule_is_timed_and_nothing_else() {
    let sandbox = Sandbox::new();
    for line in ["--trials 0", "--trials 0 --no-transfer --db rule"] {
        sandbox.run(&format!("{TINY} {line} --json out.json")).expect(0);
        let task = &sandbox.json("out.json")["tasks"][0];
        assert_eq!(task["trials"], 0, "{task}");
        assert!(task["best_secs"].as_f64().unwrap() > 0.0);
        assert_eq!(task["best_secs"], task["default_secs"]);
    }
}

#[test]
fn a_rerun_goes_on_where_the_last_one_ended() {
    let sandbox = Sandbox::new();
    assert!(!sandbox.run(&format!("{TINY} --trials 8")).expect(0).stderr.contains("already measured"));
    let records = sandbox.records().len();
    let again = sandbox.run(&format!("{TINY} --trials 8 --json again.json")).expect(0);
    assert!(again.stderr.contains("nothing left to do: 8 of 8 trials already measured"), "{}", again.stderr);
    assert!(
        again.stdout.contains("speed-up") && sandbox.records().len() > records,
        "winner and default race for the table"
    );
    assert_eq!(sandbox.searched(), 8, "no trial was made");
    assert_eq!(sandbox.json("again.json")["tasks"][0]["trials"], 8);
    let more = sandbox.run(&format!("{TINY} --trials 12 --tuner random")).expect(0);
    assert!(more.stderr.contains("continuing: 8 of 12 trials already measured"), "{}", more.stderr);
    let searched: Vec<Value> = sandbox.records().into_iter().filter(|r| r["phase"] == "search").collect();
    assert_eq!(searched.len(), 12);
    let configs: std::collections::HashSet<String> = searched.iter().map(|r| r["config"].to_string()).collect();
    assert_eq!(configs.len(), 12, "no config was measured twice");
}

#[test]
fn measurements_of_a_killed_run_are_kept() {
    let sandbox = Sandbox::new();
    let mut child = sandbox.start(&format!("{TINY} --trials 500 --tuner random"));
    signal(&child, libc::SIGKILL);
    child.wait().unwrap();
    let kept = sandbox.searched();
    assert!(kept >= 1);
    let resumed = sandbox.run(&format!("{TINY} --trials {} --tuner random", kept + 2)).expect(0);
    let words = format!("continuing: {kept} of {} trials already measured", kept + 2);
    assert!(resumed.stderr.contains(&words), "{}", resumed.stderr);
    assert_eq!(sandbox.searched(), kept + 2);
}

#[test]
fn ctrl_c_ends_cleanly_with_everything_kept() {
    let sandbox = Sandbox::new();
    let mut child = sandbox.start(&format!("{TINY} --trials 500 --tuner random --json out.json"));
    signal(&child, libc::SIGINT);
    let mut stdout = String::new();
    child.stdout.take().unwrap().read_to_string(&mut stdout).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(stdout.contains("speed-up"), "the table of what there is:\n{stdout}");
    let trials = sandbox.json("out.json")["tasks"][0]["trials"].as_u64().unwrap() as usize;
    assert!((1..500).contains(&trials));
    assert_eq!(sandbox.searched(), trials);
}

#[test]
fn a_database_in_use_is_refused_with_its_holder() {
    let sandbox = Sandbox::new();
    let mut child = sandbox.start(&format!("{TINY} --trials 500 --tuner random"));
    let refused = sandbox.run(&format!("{TINY} --trials 4")).expect(1);
    assert!(refused.stderr.contains(&format!("in use by pid {}", child.id())), "{}", refused.stderr);
    signal(&child, libc::SIGKILL);
    child.wait().unwrap();
}

#[test]
fn networks_and_targets_are_listed() {
    let sandbox = Sandbox::new();
    let tasks = sandbox.run("tasks resnet18").expect(0).stdout;
    assert!(tasks.contains("layer4.0.conv2") && tasks.contains("bias,add,act=relu") && tasks.contains("fc"), "{tasks}");
    let total = tasks.lines().last().unwrap();
    assert!(total.starts_with("resnet18: 3.6") && total.contains("GFLOP in total"), "{total}");
    assert!(tasks.contains(",cold") && !tasks.contains("kind=max,cold"), "{tasks}");
    let on_gpu = sandbox.run("tasks resnet18 --target opencl").expect(0).stdout;
    assert!(!on_gpu.contains(",cold") && on_gpu.contains("GFLOP in total"), "{on_gpu}");
    let targets = sandbox.run("targets").expect(0).stdout;
    assert!(targets.contains("GFLOP/s") && targets.contains("GB/s") && targets.contains("threads="), "{targets}");
    for (word, key) in [("cuda: ", "cuda:sm_"), ("opencl: ", "opencl:")] {
        let mut lines = targets.lines().skip_while(|line| !line.starts_with(word));
        let line = lines.next().unwrap_or_else(|| panic!("no {word}in:\n{targets}"));
        let is_absent = line.contains(": none: ") && ["install", "finds no device"].iter().any(|w| line.contains(w));
        assert!(is_absent || lines.next().is_some_and(|line| line.contains(key)), "{targets}");
    }
}

#[test]
fn a_time_budget_ends_the_run() {
    let sandbox = Sandbox::new();
    let ended = sandbox.run(&format!("{TINY} --time-budget 1s --tuner random")).expect(0);
    assert!(ended.stdout.contains("stopped: the time budget is used up"), "{}", ended.stdout);
    assert!(Path::new(&sandbox.path("db")).is_dir());
}

/// Reports that a test is skipped for want of a tool; fails if `AUTOTUNE_REQUIRE` lists the tool.
fn missing(tool: &str, reason: &str) {
    let required = std::env::var("AUTOTUNE_REQUIRE").unwrap_or_default();
    assert!(required.split(',').all(|name| name != tool), "{tool} is required: {reason}");
    eprintln!("skipped, {tool} is missing: {reason}");
}

/// Returns a sandbox if there is an OpenCL device.
fn opencl_sandbox() -> Option<Sandbox> {
    opencl::devices().map_err(|reason| missing("opencl", &reason.to_string())).ok().map(|_| Sandbox::new())
}

/// Runs a command on an OpenCL device.
fn run_on_opencl(sandbox: &Sandbox, line: &str) -> Ended {
    let mut command = sandbox.command(line);
    // Tests share compiled kernels.
    command.env("POCL_CACHE_DIR", concat!(env!("CARGO_TARGET_TMPDIR"), "/pocl"));
    finish(command)
}

#[test]
fn a_workload_is_tuned_on_an_opencl_device() {
    let Some(sandbox) = opencl_sandbox() else { return };
    let run = |line: &str| run_on_opencl(&sandbox, line);
    let workload = "matmul:m=64,n=64,k=64";
    let tuned = run(&format!("{workload} --target opencl --trials 12 --tuner random --json out.json")).expect(0);
    assert!(tuned.stdout.contains("of roofline"), "{}", tuned.stdout);
    let report = sandbox.json("out.json");
    let task = &report["tasks"][0];
    assert_eq!((&task["trials"], &task["failed_trials"]), (&12.into(), &0.into()), "{task}");
    // The trials need two batches; the second is proposed before the first is measured completely.
    let searched: Vec<Value> = sandbox.records().into_iter().filter(|r| r["phase"] == "search").collect();
    let configs: std::collections::HashSet<String> = searched.iter().map(|r| r["config"].to_string()).collect();
    assert_eq!((searched.len(), configs.len()), (12, 12), "no config was measured twice");
    let shares: f64 = report["time"].as_object().unwrap().values().map(|secs| secs.as_f64().unwrap()).sum();
    let total = report["tuning_secs"].as_f64().unwrap();
    assert!(shares <= total, "what overlaps is counted once: {shares} s of {total} s");
    assert!(task["best_secs"].as_f64().unwrap() <= task["default_secs"].as_f64().unwrap());
    assert!(task["roofline_fraction"].as_f64().unwrap() > 0.0 && task["max_rel_error"].as_f64().unwrap() < 1e-4);
    let again = run(&format!("{workload} --target opencl --trials 12")).expect(0);
    assert!(again.stderr.contains("nothing left to do"), "{}", again.stderr);

    let best: Value = serde_json::from_str(&run(&format!("best {workload} --target opencl")).expect(0).stdout).unwrap();
    assert_eq!((&best["config"], &best["target"]), (&task["config"], &report["target"]));
    assert!(report["target"].as_str().unwrap().starts_with("opencl:"));
    assert!(!best["provenance"]["device"].as_str().unwrap().is_empty());
    let shown = run(&format!("show {workload} --target opencl")).expect(0).stdout;
    assert!(shown.contains("the best in the database") && shown.contains("__kernel"), "{shown}");
}

#[test]
fn a_network_runs_on_an_opencl_device() {
    let Some(sandbox) = opencl_sandbox() else { return };
    let run = |line: &str| run_on_opencl(&sandbox, line);
    let tuned = run("dqn --target opencl --trials 5 --json tuned.json").expect(0);
    assert!(tuned.stdout.contains("whole network, run: default "), "{}", tuned.stdout);
    assert!(sandbox.json("tuned.json")["network"]["best_secs"].as_f64().unwrap() > 0.0);

    let ran = run("run dqn --target opencl --check --repeat 2 --json run.json").expect(0);
    assert!(ran.stdout.contains(", on the device "), "{}", ran.stdout);
    assert!(ran.stderr.contains("5 steps and 0 conversions compared"), "{}", ran.stderr);
    let figures = sandbox.json("run.json");
    assert_eq!(figures["tuned_tasks"], 5, "{figures}");
    assert!(figures["device_secs"]["median"].as_f64().unwrap() > 0.0, "{figures}");

    let profile = run("bench dqn --profile --target opencl").expect(0).stdout;
    assert!(profile.lines().filter(|line| line.contains("dqn") || line.contains("fc")).count() >= 3, "{profile}");
}

#[test]
fn gpu_records_are_looked_up_without_a_gpu() {
    let sandbox = Sandbox::new();
    let workload: Workload = "matmul:m=64,n=64,k=64".parse().unwrap();
    let target = Target::detect("cuda:sm_90", None).unwrap();
    let mut config = ScheduleSpace::new(&workload, &target).default_config();
    let mut records = Vec::new();
    for (model, run_secs) in [("sm_90:NVIDIA_H100", 3e-6), ("sm_90:NVIDIA_H200", 2e-6), ("sm_80:NVIDIA_A100", 1e-6)] {
        let run = RunSecs { graph_runs: 20, ..RunSecs::synthetic(run_secs) };
        let resources = Some(Resources { registers: 128, shared_bytes: 16 << 10, ..Resources::default() });
        let provenance = Provenance {
            device: model.into(),
            backend: None,
            compiler: "NVRTC 13.0".into(),
            flags: String::new(),
            tuner_version: "0.1.0".into(),
            harness: String::new(),
            lowering: LOWERING_VERSION,
            seed: 0,
            unix_secs: 1,
        };
        records.push(TuningRecord {
            workload: workload.clone(),
            target: format!("cuda:{model}"),
            config: config.clone(),
            measurement: Measurement { resources, ..Measurement::of(Ok(run)) },
            phase: Phase::Search,
            imported: false,
            provenance,
        });
    }
    // The fastest record has a config outside the schedule space.
    config.knobs.insert("tile.k".into(), autotune_schedules::KnobValue::Tile(vec![1 << 20]));
    records.push(TuningRecord { config, target: "cuda:sm_90:NVIDIA_GH200".into(), ..records[2].clone() });
    let db = TuningDb::open(sandbox.path("db")).unwrap();
    db.append_all(&records).unwrap();
    drop(db);

    let best = sandbox.run(&format!("best {workload} --target cuda:sm_90")).expect(0).stdout;
    let best: Value = serde_json::from_str(&best).unwrap();
    assert_eq!(
        (&best["target"], &best["measurement"]["resources"]["registers"]),
        (&"cuda:sm_90:NVIDIA_H200".into(), &128.into())
    );
    let shown = sandbox.run(&format!("show {workload} --target cuda:sm_90")).expect(0).stdout;
    assert!(shown.contains("the best in the database (0.0020 ms)") && shown.contains("__global__ void"), "{shown}");
    sandbox.run(&format!("best {workload} --target cuda:sm_75")).expect_line(1, "no schedule is known");
}

#[test]
fn without_a_device_one_line_says_what_to_install() {
    let sandbox = Sandbox::new();
    for word in ["cuda", "cuda:sm_90", "opencl"] {
        let mut tune = sandbox.command(&format!("{TINY} --trials 1 --target {word}"));
        // An empty folder of vendors hides every OpenCL driver.
        tune.env("OCL_ICD_VENDORS", sandbox.path("nothing"));
        if word == "opencl" || cuda::devices().is_err() {
            finish(tune).expect_line(1, if word == "opencl" { "install" } else { "CUDA driver" });
        }
    }
    if cuda::devices().is_err() {
        sandbox.run(&format!("show {TINY} --target cuda")).expect_line(1, "CUDA driver");
    }
}
