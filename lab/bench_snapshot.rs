//! Measures a snapshot of a million schedules: its size, the time to open it and to look up in it,
//! and look-ups by many processes while another one replaces the file.
//!
//! `cargo run --release -p autotune-lab --example bench_snapshot [SCHEDULES [FOLDER]]`
//!
//! The schedules are synthetic; every answer is compared with the written one. Prints a Markdown
//! table.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use autotune::Query;
use autotune_db::{KeyChain, Phase, Provenance, Snapshot, SnapshotWriter, TuningRecord};
use autotune_ir::Target;
use autotune_lab::test_bed;
use autotune_measurement::{Measurement, RunSecs};
use autotune_schedules::{Config, LOWERING_VERSION, ScheduleSpace};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// Number of machines that the schedules belong to; they differ in their number of threads.
const TARGETS: usize = 10;
const LOOK_UPS: usize = 1_000_000;
const FRESH_LOOK_UPS: usize = 100_000;
const FRESH_PROCESSES: usize = 5;
const READERS: usize = 64;
const REPLACED_SCHEDULES: usize = 2000;
const REPLACING: Duration = Duration::from_secs(10);
/// Pause of each reader between two passes: without it the readers leave no core to the writer.
const PAUSE: Duration = Duration::from_millis(50);

fn main() -> anyhow::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match &words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["fresh", path, schedules] => fresh(Path::new(path), schedules.parse()?),
        ["reader", path] => reader(Path::new(path)),
        words => {
            let schedules = words.first().map_or(Ok(1_000_000), |word| word.parse())?;
            let scratch = tempfile::tempdir()?;
            bench(schedules, words.get(1).map_or(scratch.path(), |folder| Path::new(folder)))
        }
    }
}

fn target(number: usize) -> String {
    format!("cpu:AuthenticAMD-25-17:avx512:avx512bf16+avx512vnni:32K+1M+32M:fma4+add3:threads={}", number % TARGETS + 1)
}

/// Times look-ups of the test bed's workloads that miss, each asked for once: finding neighbours,
/// transferring their schedules, ranking, and proving the pick.
fn predicted_misses(snapshot: &Snapshot, target: &Target) -> anyhow::Result<String> {
    let (mut times, mut waited) = (Vec::new(), 0);
    for (_, workload) in test_bed::workloads()?.into_iter().chain(test_bed::held_out()?) {
        let faults = major_faults()?;
        let (nanos, tuned) = nanos(|| Query::new(&workload, target).source(snapshot).best())?;
        if !tuned.is_tuned() {
            times.push(nanos);
            waited += usize::from(major_faults()? > faults);
        }
    }
    Ok(format!("{} workloads | {}; {waited} of them waited for the disk |", times.len(), quantiles(times, 1e-3, "µs")))
}

/// Returns the number of major page faults of this process so far: pages that were read from disk.
fn major_faults() -> anyhow::Result<u64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let behind_name = stat.rsplit(") ").next().context("no state of this process")?;
    Ok(behind_name.split(' ').nth(9).context("no count of faults")?.parse()?)
}

/// Returns the key of a machine of another vendor, which only shares the scope of the instruction
/// set.
fn other_machine(number: usize) -> String {
    format!("cpu:GenuineIntel-6-143:avx512:amx:48K+2M+105M:fma4+add4:threads={}", number % TARGETS + 1)
}

fn workload(number: usize) -> String {
    let task = number / TARGETS;
    format!("matmul:m={},n={},k={}", 1 + task % 100, 8 * (1 + task / 100 % 100), 16 * (1 + task / 10_000))
}

fn run_secs(number: usize, generation: u64) -> f64 {
    (number + 1) as f64 * 1e-9 + generation as f64
}

/// Returns a synthetic record with texts of realistic length.
fn record(number: usize, generation: u64, config: &Config) -> anyhow::Result<TuningRecord> {
    Ok(TuningRecord {
        workload: workload(number).parse()?,
        target: target(number),
        config: config.clone(),
        measurement: Measurement::of(Ok(RunSecs::synthetic(run_secs(number, generation)))),
        phase: Phase::Race { id: number as u64 },
        provenance: Provenance {
            device: "AMD EPYC 9V74 80-Core Processor".into(),
            backend: None,
            compiler: "autotune assembler 0.1.0".into(),
            flags: "avx512".into(),
            tuner_version: env!("CARGO_PKG_VERSION").into(),
            harness: "{\"warmup\":2,\"repeats\":10,\"min_repeat_secs\":0.0002,\"flush_cache\":false}".into(),
            lowering: LOWERING_VERSION,
            seed: number as u64,
            unix_secs: 1_760_000_000,
        },
        imported: false,
    })
}

fn written(path: &Path, schedules: usize, generation: u64) -> anyhow::Result<u64> {
    let space = ScheduleSpace::new(&"matmul:m=197,n=768,k=768".parse()?, &Target::detect("cpu", Some(1))?);
    let config = space.default_config();
    let mut writer = SnapshotWriter::default();
    for number in 0..schedules {
        writer.add(&record(number, generation, &config)?)?;
    }
    Ok(writer.write(path)?.file_bytes)
}

fn bench(schedules: usize, folder: &Path) -> anyhow::Result<()> {
    let here = Target::detect("cpu", None)?;
    println!("{}, {} core(s)\n", autotune::device_name(&here).unwrap_or_default(), here.threads());
    let path = folder.join("bench.snapshot");
    let start = Instant::now();
    let file_bytes = written(&path, schedules, 0)?;
    let secs = start.elapsed().as_secs_f64();
    println!("| what | figure |\n|---|---|");
    println!("| schedules | {schedules} of {TARGETS} targets |");
    println!(
        "| file | {:.0} MB, {} bytes a schedule; made and written in {secs:.1} s |",
        file_bytes as f64 / 1e6,
        file_bytes / schedules as u64
    );

    // Reading the file brings back pages that have left the system's page cache since it was
    // written.
    io::copy(&mut File::open(&path)?, &mut io::sink())?;
    let opened = (0..101)
        .map(|_| nanos(|| Snapshot::open(&path)).map(|(nanos, _)| nanos))
        .collect::<anyhow::Result<Vec<_>>>()?;
    println!("| opening | {} |", quantiles(opened, 1e-3, "µs"));
    let snapshot = Snapshot::open(&path)?;
    // The first pass maps the file's pages into the process.
    for pass in ["first", "warm"] {
        for (what, ask) in [
            ("hits by a target's own key", &target as &dyn Fn(usize) -> String),
            ("hits by the key of an instruction set", &other_machine),
        ] {
            let times = look_ups(&snapshot, LOOK_UPS, schedules, ask, &|number| Some(run_secs(number, 0)))?;
            println!("| {what}, {pass} {LOOK_UPS} | {} |", quantiles(times, 1.0, "ns"));
        }
    }
    let absent =
        look_ups(&snapshot, LOOK_UPS, schedules, &|number| target(number).replace("avx512:", "avx2:"), &|_| None)?;
    println!("| misses, {LOOK_UPS} | {} |", quantiles(absent, 1.0, "ns"));
    println!("| predicted misses, {}", predicted_misses(&snapshot, &here)?);
    let clock =
        (0..LOOK_UPS).map(|_| nanos(|| anyhow::Ok(())).map(|(nanos, ())| nanos)).collect::<anyhow::Result<Vec<_>>>()?;
    println!("| of each look-up the clock takes | {} |", quantiles(clock, 1.0, "ns"));
    drop(snapshot);

    for _ in 0..FRESH_PROCESSES {
        print!("{}", said(start_self(&["fresh", path.to_str().context("an odd folder")?, &schedules.to_string()])?)?);
    }
    crowd(folder)
}

/// Runs an action and returns its nanoseconds and its result.
fn nanos<T, E>(action: impl FnOnce() -> Result<T, E>) -> anyhow::Result<(u64, T)>
where
    anyhow::Error: From<E>,
{
    let start = Instant::now();
    let done = action();
    let nanos = start.elapsed().as_nanos() as u64;
    Ok((nanos, done?))
}

/// Looks up schedules drawn at random and returns the nanoseconds of each. Formatting the
/// workload's text is not timed.
fn look_ups(
    snapshot: &Snapshot,
    count: usize,
    schedules: usize,
    target: &dyn Fn(usize) -> String,
    expected_secs: &dyn Fn(usize) -> Option<f64>,
) -> anyhow::Result<Vec<u64>> {
    let chains: Vec<KeyChain> = (0..TARGETS).map(|number| KeyChain::of(&target(number))).collect();
    let mut rng = ChaCha8Rng::seed_from_u64(count as u64);
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let number = rng.next_u64() as usize % schedules;
        let text = workload(number);
        let (nanos, found) = nanos(|| snapshot.get(&chains[number % TARGETS], &text))?;
        let found_secs = found.map(|entry| entry.run_secs());
        ensure!(found_secs == expected_secs(number), "{text}: {found_secs:?}");
        times.push(nanos);
    }
    Ok(times)
}

/// Formats the median and the 99th percentile.
fn quantiles(mut values: Vec<u64>, scale: f64, unit: &str) -> String {
    values.sort_unstable();
    let of =
        |share: f64| values.get((values.len() as f64 * share) as usize).map_or(f64::NAN, |&value| value as f64 * scale);
    format!("median {:.0} {unit}, p99 {:.0} {unit}", of(0.5), of(0.99))
}

/// Runs as a fresh process: opens the file and looks up at once, so that page mapping is part of
/// the times.
fn fresh(path: &Path, schedules: usize) -> anyhow::Result<()> {
    let (opening, snapshot) = nanos(|| Snapshot::open(path))?;
    let times = look_ups(&snapshot, FRESH_LOOK_UPS, schedules, &target, &|number| Some(run_secs(number, 0)))?;
    println!(
        "| a fresh process, first {FRESH_LOOK_UPS} hits | opened in {} µs; {} |",
        opening / 1000,
        quantiles(times, 1.0, "ns")
    );
    Ok(())
}

/// Starts many reader processes, and replaces the file again and again while they read.
fn crowd(folder: &Path) -> anyhow::Result<()> {
    let path: PathBuf = folder.join("replaced.snapshot");
    written(&path, REPLACED_SCHEDULES, 1)?;
    let path_text = path.to_str().context("an odd folder")?;
    let mut readers = (0..READERS).map(|_| start_self(&["reader", path_text])).collect::<anyhow::Result<Vec<_>>>()?;
    for reader in &mut readers {
        let mut line = String::new();
        BufReader::new(reader.stdout.as_mut().context("no output")?).read_line(&mut line)?;
        ensure!(line == "reading\n", "a reader did not begin");
    }

    let (start, mut generation) = (Instant::now(), 1);
    while start.elapsed() < REPLACING {
        generation += 1;
        written(&path, REPLACED_SCHEDULES, generation)?;
    }
    let (mut reads, mut seen) = (0, Vec::new());
    for mut reader in readers {
        drop(reader.stdin.take());
        let text = said(reader)?;
        let numbers = text.split_whitespace().map(str::parse).collect::<Result<Vec<u64>, _>>()?;
        let [own_reads, own_seen] = numbers[..] else { anyhow::bail!("a reader said '{text}'") };
        reads += own_reads;
        seen.push(own_seen);
    }
    seen.sort_unstable();
    println!(
        "| {READERS} processes read a snapshot of {REPLACED_SCHEDULES} schedules while it is replaced | {:.1} s, {} snapshots written, \
         {} to {} of them seen by a reader, {reads} look-ups, all of them right |",
        start.elapsed().as_secs_f64(),
        generation - 1,
        seen.first().unwrap_or(&0),
        seen.last().unwrap_or(&0),
    );
    Ok(())
}

/// Opens the file and reads all of it, again and again until standard input ends. Checks that all
/// schedules of a snapshot are of one generation, and that generations never go back.
fn reader(path: &Path) -> anyhow::Result<()> {
    let chains: Vec<KeyChain> = (0..TARGETS).map(|number| KeyChain::of(&target(number))).collect();
    println!("reading");
    let told = std::thread::spawn(|| io::stdin().lock().read_line(&mut String::new()));
    let (mut reads, mut seen, mut last) = (0, 0, 0);
    while !told.is_finished() {
        let snapshot = Snapshot::open(path)?;
        let mut generation = None;
        for number in 0..REPLACED_SCHEDULES {
            let found = snapshot.get(&chains[number % TARGETS], &workload(number))?.context("a miss")?;
            let own = found.run_secs().floor() as u64;
            ensure!(found.run_secs() == run_secs(number, own), "another schedule");
            ensure!(*generation.get_or_insert(own) == own && own >= last, "another generation");
            reads += 1;
        }
        let generation = generation.unwrap_or_default();
        seen += u64::from(generation > last);
        last = generation;
        std::thread::sleep(PAUSE);
    }
    println!("{reads} {seen}");
    Ok(())
}

fn start_self(words: &[&str]) -> anyhow::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    Ok(command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?)
}

/// Returns the output of a process; fails unless it succeeded.
fn said(child: Child) -> anyhow::Result<String> {
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "a process of this example failed");
    Ok(String::from_utf8(output.stdout)?)
}
