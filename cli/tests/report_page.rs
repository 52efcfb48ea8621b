//! `autotune report`: the HTML page made from a database.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;
use std::sync::LazyLock;

use autotune::{PredictParams, predicted};
use autotune_db::{Phase, Provenance, TuningDb, TuningRecord};
use autotune_ir::Target;
use autotune_measure::Ceilings;
use autotune_measurement::{CandidateError, Measurement, RunSecs};
use autotune_schedules::{Config, LOWERING_VERSION, ScheduleSpace};
use autotune_workloads::Workload;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use roxmltree::{Document, Node, ParsingOptions};
use serde_json::Value;

use crate::sandbox::{Ended, Sandbox, TINY, finish};

const OTHER: &str = "matmul:m=32,n=16,k=24,bias";
const CONV: &str = "conv2d:n=1,c=8,h=10,w=10,o=16,k=3,s=1,p=1";
const HOSTILE: &str = "</td><script>alert(1)</script><img src=x onerror='alert(2)'> & \"x\"";

/// Cache folder of the ceilings of these tests.
const CEILINGS: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/steady-ceilings");

/// This machine with fixed rates, as predictions depend on them and must not change between
/// commands. The cached peak is ten times the measured one, so that no later measurement exceeds
/// it.
static STEADY: LazyLock<Target> = LazyLock::new(|| {
    let _ = fs::remove_dir_all(CEILINGS);
    finish(with_ceilings(Sandbox::new().command(&format!("{TINY} --trials 0")))).expect(0);

    let target = Target::detect("cpu", None).unwrap();
    let files = fs::read_dir(CEILINGS).unwrap().map(|entry| entry.unwrap().path());
    let kept = files.map(|file| (serde_json::from_slice::<Value>(&fs::read(&file).unwrap()).unwrap(), file));
    let (mut kept, file) = kept.into_iter().find(|(kept, _)| kept["target"] == target.key()).unwrap();
    let mut ceilings: Ceilings = serde_json::from_value(kept["ceilings"].clone()).unwrap();
    ceilings.core_flops_per_sec *= 10.0;
    kept["ceilings"] = serde_json::to_value(ceilings).unwrap();
    fs::write(file, kept.to_string()).unwrap();
    ceilings.rated(&target)
});

fn with_ceilings(mut command: Command) -> Command {
    command.env("AUTOTUNE_CACHE", CEILINGS);
    command
}

/// Runs a command with the fixed ceilings.
fn run(sandbox: &Sandbox, line: &str) -> Ended {
    LazyLock::force(&STEADY);
    finish(with_ceilings(sandbox.command(line)))
}

/// Returns the default and other distinct configs of a workload on this machine; the same in every
/// call.
fn configs(workload: &str, count: usize) -> Vec<Config> {
    let space = ScheduleSpace::new(&workload.parse().unwrap(), &STEADY);
    let mut rng = ChaCha8Rng::seed_from_u64(11);
    let mut configs = vec![predicted(&space, 1, PredictParams::default())[0].config().clone()];
    for _ in 0..100 * count {
        let config = space.sample(&mut rng).config().clone();
        if configs.len() < count && !configs.contains(&config) {
            configs.push(config);
        }
    }
    assert_eq!(configs.len(), count);
    configs
}

fn record(workload: &str, config: &Config, outcome: Result<f64, CandidateError>, seed: u64) -> TuningRecord {
    let run = |run_secs| RunSecs { max_rel_error: 1e-7, ..RunSecs::synthetic(run_secs) };
    TuningRecord {
        workload: workload.parse().unwrap(),
        target: STEADY.key(),
        config: config.clone(),
        measurement: Measurement { build_secs: 0.001, measure_secs: 0.02, ..Measurement::of(outcome.map(run)) },
        phase: Phase::Search,
        provenance: Provenance {
            device: HOSTILE.into(),
            backend: None,
            compiler: "an assembler".into(),
            flags: HOSTILE.into(),
            tuner_version: "0.1.0".into(),
            harness: "{\"repeats\":7}".into(),
            lowering: LOWERING_VERSION,
            seed,
            unix_secs: 1_780_000_000 + seed % 1000,
        },
        imported: false,
    }
}

/// Returns the records of a search: synthetic times derived from the trial's number, and every
/// eleventh trial failed.
fn search(workload: &str, trials: usize, seed: u64) -> Vec<TuningRecord> {
    let outcome = |i: usize| match i % 11 {
        10 => Err(CandidateError::Build { message: HOSTILE.into() }),
        _ => Ok(1e-3 / (1.0 + (i * 7 % 23) as f64 / 8.0) * (1.0 + seed as f64 / 10.0)),
    };
    configs(workload, trials).iter().enumerate().map(|(i, config)| record(workload, config, outcome(i), seed)).collect()
}

fn fill(sandbox: &Sandbox, records: &[TuningRecord]) -> TuningDb {
    let db = TuningDb::open(sandbox.path("db")).unwrap();
    db.append_all(records).unwrap();
    db
}

/// Content of an older page.
const OLD: &str = "<!DOCTYPE html> old";

/// Parses a page as XML, and checks the rules for every page.
fn parse(page: &str) -> Document<'_> {
    let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
    let read = Document::parse_with_options(page, options).unwrap_or_else(|e| panic!("{e}:\n{page}"));
    assert!(page.starts_with("<!DOCTYPE html>\n"));
    for from_elsewhere in ["http://", "https://", "url(", "@import", "file:"] {
        assert!(!page.contains(from_elsewhere), "'{from_elsewhere}' is in the page");
    }

    for node in read.descendants().filter(Node::is_element) {
        let name = node.tag_name().name();
        assert!(!["script", "img", "link", "iframe", "object", "use"].contains(&name), "<{name}>");
        for attribute in node.attributes() {
            let (key, value) = (attribute.name(), attribute.value());
            assert!(!key.starts_with("on") && key != "src", "{name} {key}={value}");
            let is_number = !value.contains("NaN") && !value.contains("inf");
            assert!(is_number || ["aria-label", "content"].contains(&key), "{name} {key}={value}");
        }
        if let Some(target) = node.attribute("href").map(|to| to.strip_prefix('#').expect("a link within the page")) {
            assert!(read.descendants().any(|node| node.attribute("id") == Some(target)), "no {target}");
        }
    }
    read
}

fn text(node: Node<'_, '_>) -> String {
    node.descendants().filter_map(|node| node.text().filter(|_| node.is_text())).collect()
}

fn section<'d>(page: &'d Document<'d>, id: &str) -> Node<'d, 'd> {
    page.descendants().find(|node| node.attribute("id") == Some(id)).expect(id)
}

/// Returns the text of the cells of a section's table, by row.
fn rows(page: &Document<'_>, id: &str) -> Vec<Vec<String>> {
    let body = section(page, id).descendants().find(|node| node.has_tag_name("tbody")).unwrap();
    let cells = |row: Node<'_, '_>| row.children().filter(Node::is_element).map(text).collect();
    body.children().filter(|node| node.has_tag_name("tr")).map(cells).collect()
}

#[test]
fn the_page_shows_every_task_and_says_what_the_database_says() {
    let sandbox = Sandbox::new();
    let mut records = [search(TINY, 60, 0), search(OTHER, 40, 0), search(CONV, 80, 0)].concat();
    // A race in which the apparent winner of the search is slower than its single measurement.
    let (target, tiny) = (&*STEADY, configs(TINY, 60));
    let mut race: Vec<TuningRecord> =
        [0, 13, 3].iter().zip([9e-4, 5e-4, 4e-4]).map(|(i, secs)| record(TINY, &tiny[*i], Ok(secs), 0)).collect();
    race.iter_mut().for_each(|racer| racer.phase = Phase::Race { id: 5 });
    records.extend(race);
    let db = fill(&sandbox, &records);

    let ended = run(&sandbox, &format!("report {TINY} {OTHER} {CONV} -o page.html")).expect(0);
    assert_eq!(ended.stderr, "wrote page.html: 3 task(s), 183 record(s)\n");
    let page = fs::read_to_string(sandbox.path("page.html")).unwrap();
    let page = parse(&page);
    let rows = rows(&page, "tasks");
    for ((workload, row), name) in [TINY, OTHER, CONV].iter().zip(&rows).zip(["matmul", "matmul 2", "conv2d"]) {
        let workload: Workload = workload.parse().unwrap();
        let space = ScheduleSpace::new(&workload, target);
        let best = db.best(&workload, &target.key(), &|config| space.contains(config)).unwrap().unwrap();
        let best_secs = best.record.measurement.run_secs().unwrap();
        let trials: Vec<TuningRecord> = db.query(&workload, &target.key()).unwrap();
        let trials: Vec<_> = trials.into_iter().filter(|record| record.phase == Phase::Search).collect();
        let failed = trials.iter().filter(|trial| trial.measurement.outcome.is_err()).count();

        assert_eq!(row[0], name);
        let mark = if matches!(best.record.phase, Phase::Race { .. }) { "" } else { "≈ " };
        assert_eq!(row[3], format!("{mark}{:.4}", best_secs * 1e3), "{row:?}");
        assert_eq!(row[5], workload.rate(best_secs).to_string());
        assert_eq!((&row[7], &row[8]), (&trials.len().to_string(), &failed.to_string()));
        assert_eq!((row[10].as_str(), row[11].as_str()), (best.record.config.sketch.as_str(), workload.as_str()));
    }
    let words = |row: usize| [2, 3, 4, 9].map(|column| rows[row][column].as_str());
    assert_eq!(words(0), ["0.9000", "0.4000", "2.25x", "raced"], "the default is that of the same race");
    assert!(words(1)[2].starts_with("≈ ") && words(1)[3] == "searched", "{:?}", words(1));

    let failures = self::rows(&page, "failures");
    assert_eq!(failures.iter().map(|row| row[2].parse::<usize>().unwrap()).sum::<usize>(), 5 + 3 + 7);
    for id in ["search", "model", "knobs", "roofline", "regret"] {
        let drawn = section(&page, id).descendants().filter(|node| node.has_tag_name("figure")).count();
        assert!(drawn >= if id == "roofline" || id == "regret" { 1 } else { 3 }, "{id}: {drawn}");
    }
}

#[test]
fn times_of_a_disturbed_race_are_marked() {
    let sandbox = Sandbox::new();
    let configs = configs(TINY, 2);
    let race = |taken: f64| {
        let racers = configs.iter().zip([9e-4, 4e-4]).map(|(config, secs)| record(TINY, config, Ok(secs), 0));
        let mut racers: Vec<TuningRecord> = racers.collect();
        for racer in &mut racers {
            (racer.phase, racer.measurement.taken) = (Phase::Race { id: (taken * 100.0) as u64 }, taken);
        }
        racers
    };
    for (taken, mark) in [(0.02, ""), (0.5, "≈ ")] {
        fill(&sandbox, &race(taken));
        let page = run(&sandbox, &format!("report {TINY} -o -")).expect(0).stdout;
        let page = parse(&page);
        let row = &rows(&page, "tasks")[0];
        assert_eq!(row[2..5], [format!("{mark}0.9000"), format!("{mark}0.4000"), format!("{mark}2.25x")], "{row:?}");
    }
}

#[test]
fn earlier_default_is_shown_if_the_current_one_was_not_measured() {
    let sandbox = Sandbox::new();
    fill(&sandbox, &search(TINY, 12, 0)[1..]);
    let page = run(&sandbox, &format!("report {TINY} -o -")).expect(0).stdout;
    let page = parse(&page);
    let first_ms = 1.0 / (1.0 + 7.0 / 8.0);
    assert_eq!(rows(&page, "tasks")[0][2], format!("† ≈ {first_ms:.4}"));
    assert!(text(section(&page, "regret")).contains("the current one was never measured"));
}

#[test]
fn foreign_text_is_escaped() {
    let sandbox = Sandbox::new();
    fill(&sandbox, &search(TINY, 30, 0));
    let page = run(&sandbox, &format!("report {TINY} -o -")).expect(0).stdout;
    let page = parse(&page);
    let facts = rows(&page, "provenance");
    assert!(facts.contains(&vec!["device".to_string(), HOSTILE.to_string()]), "{facts:?}");
    assert!(rows(&page, "failures")[0][4].contains(HOSTILE));
}

#[test]
fn several_seeds_are_runs_with_a_spread_and_those_that_go_on_are_not() {
    let sandbox = Sandbox::new();
    let begun_anew: Vec<TuningRecord> = (0..3).flat_map(|seed| search(TINY, 30, seed)).collect();
    let [first, second] = [search(OTHER, 60, 0), search(OTHER, 60, 1)];
    fill(&sandbox, &[begun_anew, first[..30].to_vec(), second[30..].to_vec()].concat());
    let page = run(&sandbox, &format!("report {TINY} {OTHER} -o -")).expect(0).stdout;
    let page = parse(&page);
    let told: Vec<String> = section(&page, "search")
        .descendants()
        .filter(|node| node.attribute("class") == Some("more"))
        .map(text)
        .collect();
    assert_eq!(told, ["90 trials, 3 runs", "60 trials", "90 trials, 3 runs", "60 trials"]);
    assert!(text(section(&page, "search")).contains("median of 3 runs"));
}

#[test]
fn tasks_of_which_little_or_nothing_is_known_are_shown_as_what_they_are() {
    let sandbox = Sandbox::new();
    let one = record(TINY, &configs(TINY, 1)[0], Ok(1e-3), 0);
    let mut failed = search(OTHER, 20, 0);
    failed.iter_mut().for_each(|r| r.measurement.outcome = Err(CandidateError::Timeout { limit_secs: 15.0 }));
    fill(&sandbox, &[vec![one], failed].concat());
    let page = run(&sandbox, &format!("report {TINY} {OTHER} {CONV} -o -")).expect(0).stdout;
    let page = parse(&page);
    let rows = rows(&page, "tasks");
    let words = |row: usize| [2, 3, 4, 7, 8, 9].map(|column| rows[row][column].as_str());
    assert_eq!(words(0), ["≈ 1.0000", "≈ 1.0000", "≈ 1.00x", "1", "0", "searched"]);
    assert_eq!(words(1), ["–", "–", "–", "20", "20", "–"]);
    assert_eq!(words(2), ["–", "–", "–", "0", "0", "–"]);
    assert!(text(section(&page, "search")).contains("No run has a time for every task"));
    assert!(text(section(&page, "knobs")).contains("Too few trials"));
    assert_eq!(self::rows(&page, "failures")[0][..3], ["matmul 2", "timeout", "20"]);
}

#[test]
fn absurd_values_make_no_absurd_page() {
    let sandbox = Sandbox::new();
    let absurd = [5e-324, 1e-300, 1e300, f64::MAX, 1.0];
    let mut records = search(TINY, 40, u64::MAX);
    for (i, record) in records.iter_mut().enumerate() {
        if let Ok(run) = &mut record.measurement.outcome {
            (run.run_secs, run.median_secs) = (absurd[i % absurd.len()], 1.0);
        }
        (record.measurement.build_secs, record.measurement.measure_secs) = (0.0, [0.0, f64::MAX][i % 2]);
        record.provenance.unix_secs = [0, u64::MAX][i % 2];
    }
    fill(&sandbox, &[records, search(OTHER, 40, 0)].concat());
    let page = run(&sandbox, &format!("report {TINY} {OTHER} -o -")).expect(0).stdout;
    parse(&page);
}

#[test]
fn untrusted_records_alone_are_shown_as_untrusted() {
    let sandbox = Sandbox::new();
    let lines: Vec<String> = search(TINY, 30, 0).iter().map(|record| record.to_line().unwrap()).collect();
    fs::write(sandbox.path("log"), lines.join("\n") + "\n").unwrap();
    sandbox.run("log import log").expect(0);
    let page = run(&sandbox, &format!("report {TINY} -o -")).expect(0).stdout;
    let page = parse(&page);
    assert_eq!(rows(&page, "tasks")[0][9], "claimed");
    assert!(text(section(&page, "provenance")).contains("30 untrusted records never measured here"));

    // Measurements on this machine replace the untrusted records.
    fill(&sandbox, &search(TINY, 1, 7));
    let page = run(&sandbox, &format!("report {TINY} -o -")).expect(0).stdout;
    let page = parse(&page);
    assert_eq!([7, 9].map(|column| rows(&page, "tasks")[0][column].clone()), ["1", "searched"]);
    assert!(text(section(&page, "provenance")).contains("30 untrusted records left out"));
}

#[test]
fn failures_are_one_line_and_leave_files_unchanged() {
    let sandbox = Sandbox::new();
    fs::write(sandbox.path("old.html"), OLD).unwrap();
    let report = |rest: &str| run(&sandbox, &format!("report {TINY} {rest}"));
    report("-o old.html").expect_line(1, &format!("tune it first (autotune {TINY})"));
    drop(fill(&sandbox, &search(OTHER, 3, 0)));
    report("-o old.html").expect_line(1, "no records of matmul:m=8,n=16,k=8 on cpu:");
    report("-o old.html --target cuda:sm_90").expect_line(1, "on cuda:sm_90");
    report("-o old.html --db nowhere").expect_line(2, "no tuning database at nowhere");

    report("").expect_line(2, "--output");
    run(&sandbox, "report -o old.html").expect_line(2, "NETWORK|WORKLOAD");
    run(&sandbox, "report resnet19 -o old.html").expect_line(2, "unknown network 'resnet19'");
    report("-o db").expect_line(2, "-o db: is a folder");
    report("-o no/such/page.html").expect_line(2, "-o no/such/page.html: the folder does not exist");
    report("-o old.html --target tpu").expect_line(2, "unknown target 'tpu'");
    run(&sandbox, &format!("report {OTHER} -o /dev/full")).expect_line(1, "-o /dev/full: No space left on device");
    assert_eq!(fs::read_to_string(sandbox.path("old.html")).unwrap(), OLD);
    assert!(report("--help").expect(0).stdout.contains("autotune report resnet18 -o report.html"));
}

#[test]
fn of_a_snapshot_which_has_no_trials_there_is_no_page_and_a_line_says_so() {
    let sandbox = Sandbox::new();
    drop(fill(&sandbox, &search(TINY, 3, 0)));
    sandbox.run("snapshot write tuned.snapshot").expect(0);
    fs::write(sandbox.path("old.html"), OLD).unwrap();
    for output in ["old.html", "new.html", "-"] {
        let refused = run(&sandbox, &format!("report {TINY} --db tuned.snapshot -o {output}"));
        assert_eq!(refused.stdout, "");
        let line = "tuned.snapshot is a snapshot, which has the best schedules but no trials: use the database from which it was written";
        refused.expect_line(2, line);
    }
    // A truncated snapshot, and a file that is neither snapshot nor database.
    let whole = fs::read(sandbox.path("tuned.snapshot")).unwrap();
    for (name, content) in [("cut.snapshot", &whole[..20]), ("text", &b"text"[..])] {
        fs::write(sandbox.path(name), content).unwrap();
        run(&sandbox, &format!("report {TINY} --db {name} -o old.html")).expect_line(2, name);
    }
    assert_eq!(fs::read_to_string(sandbox.path("old.html")).unwrap(), OLD);
    assert!(!sandbox.path("new.html").exists());
    run(&sandbox, &format!("report {TINY} -o new.html")).expect(0);
}

#[test]
fn a_file_is_replaced_as_a_whole_and_a_link_to_it_stays() {
    let sandbox = Sandbox::new();
    fill(&sandbox, &search(TINY, 3, 0));
    let mode = |name: &str| fs::metadata(sandbox.path(name)).unwrap().permissions().mode() & 0o777;
    fs::write(sandbox.path("like"), "").unwrap();
    fs::write(sandbox.path("private.html"), OLD).unwrap();
    fs::set_permissions(sandbox.path("private.html"), fs::Permissions::from_mode(0o600)).unwrap();
    symlink("private.html", sandbox.path("link.html")).unwrap();

    for (name, file) in [("new.html", "new.html"), ("link.html", "private.html")] {
        run(&sandbox, &format!("report {TINY} -o {name}")).expect(0);
        let page = fs::read_to_string(sandbox.path(file)).unwrap();
        parse(&page);
        assert!(page.ends_with("</html>\n"), "{page}");
    }
    assert!(fs::symlink_metadata(sandbox.path("link.html")).unwrap().is_symlink());
    assert_eq!((mode("new.html"), mode("private.html")), (mode("like"), 0o600));
    let names =
        fs::read_dir(sandbox.dir.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert!(names.into_iter().all(|name| !name.starts_with('.')), "something was left");
}

/// Removes the mark of a figure that other programs may have disturbed.
fn unmarked(figure: &str) -> &str {
    figure.trim_start_matches("≈ ")
}

#[test]
fn a_page_of_what_was_tuned_just_now() {
    let sandbox = Sandbox::new();
    run(&sandbox, &format!("{TINY} --trials 40")).expect(0);
    run(&sandbox, &format!("report {TINY} -o page.html")).expect(0);
    let page = fs::read_to_string(sandbox.path("page.html")).unwrap();
    let page = parse(&page);
    let row = rows(&page, "tasks").remove(0);
    assert_eq!((row[7].as_str(), row[9].as_str()), ("40", "raced"), "{row:?}");
    assert!(!row[2].starts_with('†'), "a run measures today's pick: {row:?}");
    let best = sandbox.run(&format!("best {TINY}")).expect(0).stdout;
    let best: Value = serde_json::from_str(&best).unwrap();
    let best_ms = best["measurement"]["outcome"]["Ok"]["run_secs"].as_f64().unwrap() * 1e3;
    let shown_ms: f64 = unmarked(&row[3]).parse().unwrap();
    assert!((shown_ms / best_ms - 1.0).abs() < 1e-3, "{row:?}, {best_ms}");
    assert!(row[6].ends_with('%') || row[6].ends_with(')'), "a share of the roofline: {row:?}");
    assert!(text(section(&page, "model")).contains("Mean pairwise accuracy"));
}

#[test]
fn a_page_of_what_was_only_timed() {
    let sandbox = Sandbox::new();
    run(&sandbox, &format!("{TINY} --trials 0")).expect(0);
    let page = run(&sandbox, &format!("report {TINY} -o -")).expect(0).stdout;
    let page = parse(&page);
    let row = rows(&page, "tasks").remove(0);
    assert_eq!([4, 7, 9].map(|column| unmarked(&row[column])), ["1.00x", "0", "raced"], "{row:?}");
    assert!(text(section(&page, "search")).contains("No trial of a search ran"));
}
