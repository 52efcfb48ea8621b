//! Results, as Markdown for people and JSON for programs.

use std::fmt::Write;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use autotune_ir::Target;
use autotune_lab::median;
use autotune_measure::Ceilings;
use autotune_schedules::Config;
use autotune_workloads::Workload;
use serde::Serialize;

use crate::contender::Lane;
use crate::copying;
use crate::ours;
use crate::suites::Subject;

/// Remarks on a kernel that the tables show: a schedule that was not tuned here, and runs that were
/// launched one by one where others are replayed as a graph.
const NOTEWORTHY: [&str; 3] = ["untuned", "claimed", "without a graph"];

/// Results of one run of the program.
#[derive(Serialize)]
pub(crate) struct Run {
    device: String,
    unix_secs: u64,
    rounds: usize,
    turn_ms: u64,
    exact: bool,
    /// Contenders that were not measured at all.
    left_out: Vec<LeftOut>,
    tables: Vec<Table>,
}

/// Contender that was not measured, with the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct LeftOut {
    pub(crate) name: String,
    pub(crate) why: String,
}

impl LeftOut {
    /// Returns the first line of the reason, escaped for a table.
    fn reason(&self) -> String {
        let line: String = self.why.lines().next().unwrap_or_default().chars().take(200).collect();
        line.replace('|', "\\|")
    }
}

/// Results for one device and number of threads.
#[derive(Serialize)]
pub(crate) struct Table {
    target: String,
    threads: usize,
    comparisons: Vec<Comparison>,
}

/// Results for one workload.
#[derive(Serialize)]
pub(crate) struct Comparison {
    suite: String,
    name: String,
    workload: Workload,
    config: Config,
    /// Measured peak rate of multiply-adds of the workload's type, in GFLOP/s.
    peak_gflops: f64,
    /// Bytes of operands read and output written.
    bytes: f64,
    /// Contenders; the first is this library, if it was measured.
    contenders: Vec<Figures>,
    /// Copy of as many bytes, for operators that do not multiply tensors.
    copy: Option<Figures>,
    left_out: Vec<LeftOut>,
}

/// Results of one contender for one workload.
#[derive(Serialize)]
struct Figures {
    name: String,
    how: String,
    /// Seconds of a run, median over the rounds.
    run_secs: f64,
    gflops: f64,
    /// Time over this library's, median of the rounds' ratios; above 1, this library is faster.
    ratio: Option<f64>,
    max_rel_error: f64,
    round_secs: Vec<f64>,
}

impl Run {
    pub(crate) fn new(device: &str, rounds: usize, turn_ms: u64, exact: bool) -> Self {
        let unix_secs = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        Self { device: device.into(), unix_secs, rounds, turn_ms, exact, left_out: Vec::new(), tables: Vec::new() }
    }

    /// Begins a table. Contenders that earlier tables left out for the same reason are not
    /// repeated.
    pub(crate) fn begin(&mut self, table: Table, left_out: Vec<LeftOut>) {
        self.tables.push(table);
        for one in left_out {
            if !self.left_out.contains(&one) {
                self.left_out.push(one);
            }
        }
    }

    /// Adds a comparison to the last table.
    pub(crate) fn add(&mut self, comparison: Comparison) {
        if let Some(table) = self.tables.last_mut() {
            table.comparisons.push(comparison);
        }
    }

    /// Writes the files OUT.md and OUT.json.
    pub(crate) fn write(&self, out: &Path) -> Result<()> {
        let write = |extension: &str, text: String| {
            let file = format!("{}.{extension}", out.display());
            std::fs::write(&file, text).with_context(|| file.clone())
        };
        write("md", self.markdown())?;
        write("json", serde_json::to_string_pretty(self)? + "\n")
    }

    /// Formats one table for each number of threads and suite.
    pub(crate) fn markdown(&self) -> String {
        let mut text = format!(
            "{}, {}. {} rounds of {} ms turns, interleaved; medians. Ratio: the peer's time over ours, median of the \
             rounds' (above 1, ours is faster).{}\n",
            self.device,
            date(self.unix_secs),
            self.rounds,
            self.turn_ms,
            if self.exact { " No Winograd." } else { "" },
        );
        if self.tables.iter().flat_map(|table| &table.comparisons).any(|row| row.copy.is_some()) {
            text += "\"Of copy\" is our rate over that of a `memcpy` of as many bytes on as many threads, median of the rounds'.\n";
        }
        for table in &self.tables {
            table.markdown(&mut text);
        }
        for one in &self.left_out {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "\nNot measured: {}: {}", one.name, one.reason());
        }
        text
    }
}

impl Table {
    pub(crate) fn new(target: &Target) -> Self {
        Self { target: target.key(), threads: target.threads(), comparisons: Vec::new() }
    }

    fn markdown(&self, text: &mut String) {
        for suite in distinct(self.comparisons.iter().map(|c| c.suite.as_str())) {
            let rows: Vec<&Comparison> = self.comparisons.iter().filter(|c| c.suite == suite).collect();
            let place = if self.is_cpu() { format!("{} thread(s)", self.threads) } else { self.target.clone() };
            // Writing to a string cannot fail.
            let _ = write!(text, "\n## {suite}, {place}");
            if rows.iter().all(|row| row.copy.is_none()) {
                let peak = rows.iter().map(|row| row.peak_gflops).fold(0.0, f64::max);
                let _ = write!(text, ", peak {peak:.0} GFLOP/s");
            }
            let _ = writeln!(text, "\n");
            self.suite(&rows, text);
        }
    }

    fn is_cpu(&self) -> bool {
        self.target.starts_with("cpu:")
    }

    fn suite(&self, rows: &[&Comparison], text: &mut String) {
        let peers = distinct(rows.iter().flat_map(|row| row.peers()).map(|peer| peer.name.as_str()));
        let columns: String = peers.iter().map(|peer| format!(" {peer} ms |")).collect();
        let is_copied = rows.iter().any(|row| row.copy.is_some());
        let measure = if is_copied { "GB/s | of copy" } else { "GFLOP/s | of peak" };
        let _ = writeln!(text, "| task | ours ms | {measure} |{columns} best peer | ratio |");
        let _ = writeln!(text, "|---|---|---|---|{}---|---|", "---|".repeat(peers.len()));
        for row in rows {
            let ours = match (row.ours(), row.left_out(ours::NAME)) {
                (Some(f), _) => format!("{} | {}", millis(f), row.measured(f, is_copied)),
                (None, Some(left_out)) => format!("left out: {} | – | –", left_out.reason()),
                (None, None) => "– | – | –".into(),
            };
            let ms = |peer: &&str| row.figures(peer).map_or("–".into(), millis);
            let columns: String = peers.iter().map(|peer| format!(" {} |", ms(peer))).collect();
            let best = row.best_peer().map_or("–", |best| &best.name);
            let ratio = row.best_peer().and_then(|best| best.ratio).map_or("–".into(), |ratio| format!("{ratio:.3}"));
            let _ = writeln!(text, "| {} | {ours} |{columns} {best} | {ratio} |", row.name);
        }

        let mean = |ratios: Vec<f64>| geomean(&ratios).map_or("–".into(), |mean| format!("{mean:.3}"));
        let of = |peer: &&str| mean(rows.iter().filter_map(|row| row.figures(peer)?.ratio).collect());
        let columns: String = peers.iter().map(|peer| format!(" {} |", of(peer))).collect();
        let best = mean(rows.iter().filter_map(|row| row.best_peer()?.ratio).collect());
        let shares: Vec<f64> = rows.iter().filter_map(|row| row.copy.as_ref()?.ratio).collect();
        let share = geomean(&shares).map_or(String::new(), |share| format!("{:.0} % ", 100.0 * share));
        let _ = writeln!(text, "| geometric mean of the ratios | | | {share}|{columns} | {best} |");

        for row in rows {
            row.notes(text);
        }
        for word in NOTEWORTHY {
            let those: Vec<String> = rows.iter().flat_map(|row| row.told(word)).collect();
            if !those.is_empty() {
                let _ = writeln!(text, "\n{word}: {}", those.join(", "));
            }
        }
    }
}

impl Comparison {
    pub(crate) fn new(
        subject: &Subject,
        config: Config,
        ceilings: &Ceilings,
        lanes: Vec<Lane>,
        left_out: Vec<LeftOut>,
    ) -> Self {
        let ours = lanes.iter().find(|lane| lane.name == ours::NAME).map(|lane| lane.round_secs.clone());
        let figures = |lane: Lane| {
            let run_secs = median(lane.round_secs.clone());
            let ratios =
                |ours: &Vec<f64>| lane.round_secs.iter().zip(ours).map(|(theirs, ours)| theirs / ours).collect();
            Figures {
                run_secs,
                gflops: subject.workload.flops() / run_secs * 1e-9,
                ratio: ours.as_ref().map(|ours| median(ratios(ours))),
                name: lane.name,
                how: lane.how,
                max_rel_error: lane.max_rel_error,
                round_secs: lane.round_secs,
            }
        };

        let (copies, contenders): (Vec<Figures>, _) =
            lanes.into_iter().map(figures).partition(|f| f.name == copying::NAME);
        let Subject { suite, name, workload } = subject;
        let peak_gflops = ceilings.dtype_flops_per_sec(workload.dtype()) * 1e-9;
        Self {
            suite: suite.clone(),
            name: name.clone(),
            workload: workload.clone(),
            config,
            peak_gflops,
            bytes: workload.work().bytes,
            contenders,
            copy: copies.into_iter().next(),
            left_out,
        }
    }

    /// Formats this library's GB/s and share of the copy's rate, or GFLOP/s and share of the peak.
    fn measured(&self, ours: &Figures, is_copied: bool) -> String {
        if is_copied {
            let share = self.copy.as_ref().and_then(|copy| copy.ratio);
            let share = share.map_or("–".into(), |share| format!("{:.0} %", 100.0 * share));
            return format!("{:.1} | {share}", self.bytes / ours.run_secs * 1e-9);
        }
        format!("{:.1} | {:.0} %", ours.gflops, 100.0 * ours.gflops / self.peak_gflops)
    }

    fn ours(&self) -> Option<&Figures> {
        self.contenders.iter().find(|f| f.name == ours::NAME)
    }

    fn peers(&self) -> impl Iterator<Item = &Figures> {
        self.contenders.iter().filter(|f| f.name != ours::NAME)
    }

    fn left_out(&self, name: &str) -> Option<&LeftOut> {
        self.left_out.iter().find(|one| one.name == name)
    }

    /// Appends the peers that failed.
    fn notes(&self, text: &mut String) {
        for one in self.left_out.iter().filter(|one| one.name != ours::NAME) {
            let _ = writeln!(text, "\n{}: {} is left out: {}", self.name, one.name, one.reason());
        }
    }

    /// Returns the contenders whose description contains a word.
    fn told<'a>(&'a self, word: &'a str) -> impl Iterator<Item = String> + 'a {
        let those = self.contenders.iter().filter(move |f| f.how.contains(word));
        those.map(|f| format!("{} {}", self.name, f.name))
    }

    fn figures(&self, name: &str) -> Option<&Figures> {
        self.peers().find(|peer| peer.name == name)
    }

    /// Returns the fastest peer.
    fn best_peer(&self) -> Option<&Figures> {
        self.peers().min_by(|a, b| a.run_secs.total_cmp(&b.run_secs))
    }

    /// Describes the results in one line.
    pub(crate) fn line(&self) -> String {
        let one = |f: &Figures| format!("{} {} ms {} ({})", f.name, millis(f), self.workload.rate(f.run_secs), f.how);
        let left_out = |one: &LeftOut| format!("{} is left out: {}", one.name, one.why);
        let all = self.contenders.iter().chain(&self.copy).map(one).chain(self.left_out.iter().map(left_out));
        format!("{}: {}", self.name, all.collect::<Vec<_>>().join("; "))
    }
}

/// Returns the distinct words in order of first occurrence.
fn distinct<'a>(words: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut found = Vec::new();
    for word in words {
        if !found.contains(&word) {
            found.push(word);
        }
    }
    found
}

fn millis(figures: &Figures) -> String {
    let millis = figures.run_secs * 1e3;
    if millis < 0.01 { format!("{millis:.6}") } else { format!("{millis:.4}") }
}

/// Returns the name of the processor from `/proc/cpuinfo`.
pub(crate) fn cpu_name() -> String {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    model.map_or("unknown processor", |(_, name)| name).to_string()
}

fn geomean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| (values.iter().map(|v| v.ln()).sum::<f64>() / values.len() as f64).exp())
}

/// Formats a day of the proleptic Gregorian calendar in UTC, such as 2026-01-31.
fn date(unix_secs: u64) -> String {
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let (mut days, mut year, mut month) = (unix_secs / 86_400, 1970, 0);
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let lens = [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    while days >= lens[month] {
        days -= lens[month];
        month += 1;
    }
    format!("{year}-{:02}-{:02}", month + 1, days + 1)
}
