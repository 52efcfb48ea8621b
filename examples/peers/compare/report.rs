//! Figures, as Markdown for people and JSON for programs.

use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use autotune_examples::median;
use autotune_measure::Ceilings;
use autotune_schedules::{Config, Target, Workload};
use serde::Serialize;

use crate::contender::Lane;
use crate::suites::Subject;

/// Everything that one command measured.
#[derive(Serialize)]
pub(crate) struct Run {
    device: String,
    unix_secs: u64,
    rounds: usize,
    turn_ms: u64,
    exact: bool,
    pub(crate) tables: Vec<Table>,
}

/// One number of threads.
#[derive(Serialize)]
pub(crate) struct Table {
    target: String,
    threads: usize,
    pub(crate) comparisons: Vec<Comparison>,
}

/// One workload.
#[derive(Serialize)]
pub(crate) struct Comparison {
    suite: String,
    name: String,
    workload: Workload,
    config: Config,
    /// Multiply-adds of the workload's type that the device was measured to reach, two FLOP each.
    peak_gflops: f64,
    /// Ours first.
    contenders: Vec<Figures>,
}

/// One contender on one workload.
#[derive(Serialize)]
struct Figures {
    name: String,
    how: String,
    /// Median over the rounds.
    run_secs: f64,
    gflops: f64,
    /// Its time over ours, median over the rounds of each round's: above 1, ours is faster.
    ratio: f64,
    max_rel_error: f64,
    round_secs: Vec<f64>,
}

impl Run {
    pub(crate) fn new(device: &str, rounds: usize, turn_ms: u64, exact: bool) -> Self {
        let unix_secs = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        Self { device: device.into(), unix_secs, rounds, turn_ms, exact, tables: Vec::new() }
    }

    /// One table for each number of threads and suite.
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
        for table in &self.tables {
            table.markdown(&mut text);
        }
        text
    }
}

impl Table {
    pub(crate) fn new(target: &Target) -> Self {
        Self { target: target.key(), threads: target.threads(), comparisons: Vec::new() }
    }

    fn markdown(&self, text: &mut String) {
        let mut suites: Vec<&str> = self.comparisons.iter().map(|c| c.suite.as_str()).collect();
        suites.dedup();
        for suite in suites {
            let rows: Vec<&Comparison> = self.comparisons.iter().filter(|c| c.suite == suite).collect();
            let peak = rows.iter().map(|row| row.peak_gflops).fold(0.0, f64::max);
            let place = if self.is_cpu() { format!("{} thread(s)", self.threads) } else { self.target.clone() };
            // Writing to a string cannot fail.
            let _ = writeln!(text, "\n## {suite}, {place}, peak {peak:.0} GFLOP/s\n");
            self.suite(&rows, text);
        }
    }

    fn is_cpu(&self) -> bool {
        self.target.starts_with("cpu:")
    }

    fn suite(&self, rows: &[&Comparison], text: &mut String) {
        let mut peers: Vec<&str> = Vec::new();
        for name in rows.iter().flat_map(|row| row.peers()).map(|peer| peer.name.as_str()) {
            if !peers.contains(&name) {
                peers.push(name);
            }
        }
        let columns: String = peers.iter().map(|peer| format!(" {peer} ms |")).collect();
        let _ = writeln!(text, "| task | ours ms | GFLOP/s | of peak |{columns} best peer | ratio |");
        let _ = writeln!(text, "|---|---|---|---|{}---|---|", "---|".repeat(peers.len()));
        for row in rows {
            let ours = &row.contenders[0];
            let ms = |peer: &str| row.figures(peer).map_or("–".into(), |f| format!("{:.4}", f.run_secs * 1e3));
            let columns: String = peers.iter().map(|peer| format!(" {} |", ms(peer))).collect();
            let (best, ratio) = row.best_peer().map_or(("–", "–".into()), |b| (&b.name, format!("{:.3}", b.ratio)));
            let _ = writeln!(
                text,
                "| {} | {:.4} | {:.1} | {:.0} % |{columns} {best} | {ratio} |",
                row.name,
                ours.run_secs * 1e3,
                ours.gflops,
                100.0 * ours.gflops / row.peak_gflops,
            );
        }
        let mean = |ratios: Vec<f64>| geomean(&ratios).map_or("–".into(), |mean| format!("{mean:.3}"));
        let of = |peer: &&str| mean(rows.iter().filter_map(|row| row.figures(peer)).map(|f| f.ratio).collect());
        let columns: String = peers.iter().map(|peer| format!(" {} |", of(peer))).collect();
        let best = mean(rows.iter().filter_map(|row| row.best_peer()).map(|f| f.ratio).collect());
        let _ = writeln!(text, "| geometric mean of the ratios | | | |{columns} | {best} |");
    }
}

impl Comparison {
    pub(crate) fn new(subject: &Subject, config: Config, ceilings: &Ceilings, lanes: Vec<Lane>) -> Self {
        let ours = lanes.first().map_or(Vec::new(), |lane| lane.round_secs.clone());
        let figures = |lane: Lane| {
            let run_secs = median(lane.round_secs.clone());
            Figures {
                run_secs,
                gflops: subject.workload.flops() / run_secs * 1e-9,
                ratio: median(lane.round_secs.iter().zip(&ours).map(|(theirs, ours)| theirs / ours).collect()),
                name: lane.name,
                how: lane.how,
                max_rel_error: lane.max_rel_error,
                round_secs: lane.round_secs,
            }
        };
        let contenders = lanes.into_iter().map(figures).collect();
        let Subject { suite, name, workload } = subject;
        let peak_gflops = ceilings.dtype_flops_per_sec(workload.dtype) * 1e-9;
        Self { suite: suite.clone(), name: name.clone(), workload: *workload, config, peak_gflops, contenders }
    }

    fn peers(&self) -> impl Iterator<Item = &Figures> {
        self.contenders.iter().skip(1)
    }

    fn figures(&self, name: &str) -> Option<&Figures> {
        self.peers().find(|peer| peer.name == name)
    }

    /// The peer with the least time.
    fn best_peer(&self) -> Option<&Figures> {
        self.peers().min_by(|a, b| a.run_secs.total_cmp(&b.run_secs))
    }

    /// One line on how it went.
    pub(crate) fn line(&self) -> String {
        let one = |f: &Figures| format!("{} {:.4} ms {:.1} GFLOP/s ({})", f.name, f.run_secs * 1e3, f.gflops, f.how);
        format!("{}: {}", self.name, self.contenders.iter().map(one).collect::<Vec<_>>().join("; "))
    }
}

/// The processor as Linux names it.
pub(crate) fn cpu_name() -> String {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    model.map_or("unknown processor", |(_, name)| name).to_string()
}

fn geomean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| (values.iter().map(|v| v.ln()).sum::<f64>() / values.len() as f64).exp())
}

/// Day of the proleptic Gregorian calendar, UTC, such as 2026-01-31.
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
