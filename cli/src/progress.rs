//! Progress of tuning on standard error: bars on a terminal, plain lines otherwise.

use std::io::IsTerminal;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use autotune::{Event, Observer, Retired, Task};
use autotune_measure::MeasureError;
use autotune_workloads::Workload;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use crate::output::say;

mod kinds;

pub(crate) use kinds::KindDisplay;

/// Returns the display for standard error: bars on a terminal, else lines.
pub(crate) fn observer(time_budget: Option<Duration>) -> Box<dyn Observer> {
    let board = Board { tasks: Vec::new(), done: 0, trials: None, time_budget, start: Instant::now() };
    if std::io::stderr().is_terminal() {
        let group = MultiProgress::new();
        set_bars(Some(group.clone()));
        Box::new(ProgressBars { board, group, overall: ProgressBar::hidden(), bars: Vec::new() })
    } else {
        Box::new(ProgressLines { board })
    }
}

/// Bars that are on the terminal, if any.
static BARS: Mutex<Option<MultiProgress>> = Mutex::new(None);

/// Prints a line above the bars, from any thread.
pub(crate) fn notice(text: &str) {
    match &*BARS.lock().unwrap_or_else(PoisonError::into_inner) {
        Some(bars) => bars.suspend(|| say(text)),
        None => say(text),
    }
}

fn set_bars(bars: Option<MultiProgress>) {
    *BARS.lock().unwrap_or_else(PoisonError::into_inner) = bars;
}

/// State of one task in the display.
struct TaskRow {
    name: String,
    workload: Workload,
    trials: usize,
    best_secs: f64,
}

impl TaskRow {
    /// Formats the best rate and time: `85.3 GFLOP/s (2.71 ms)`.
    fn best(&self) -> String {
        if self.best_secs.is_finite() {
            format!("{} ({:.4} ms)", self.workload.rate(self.best_secs), self.best_secs * 1e3)
        } else {
            "no result yet".into()
        }
    }
}

/// State that both displays show.
struct Board {
    tasks: Vec<TaskRow>,
    /// Number of trials so far, including earlier runs.
    done: usize,
    trials: Option<usize>,
    time_budget: Option<Duration>,
    start: Instant,
}

impl Board {
    fn start(&mut self, tasks: &[Task], resumed: &[usize], trials: Option<usize>) {
        let row = |(task, &trials): (&Task, &usize)| TaskRow {
            name: task.name.clone(),
            workload: task.workload.clone(),
            trials,
            best_secs: f64::INFINITY,
        };
        self.tasks = tasks.iter().zip(resumed).map(row).collect();
        self.done = resumed.iter().sum();
        self.trials = trials;
    }

    /// Formats the number of trials: `12/256`, or `12` without a limit.
    fn counter(&self) -> String {
        self.trials.map_or(self.done.to_string(), |trials| format!("{}/{trials}", self.done))
    }

    /// Records a result and returns true if it is the task's best.
    fn measured(&mut self, task: usize, best_secs: f64) -> bool {
        self.done += 1;
        let Some(row) = self.tasks.get_mut(task) else {
            return false;
        };
        row.trials += 1;
        let better = best_secs < row.best_secs;
        row.best_secs = best_secs;
        better
    }

    fn time_left(&self) -> Option<String> {
        let left = self.time_budget?.saturating_sub(self.start.elapsed());
        Some(format!(", {} s left", left.as_secs()))
    }
}

fn retired(row: &TaskRow, why: &Retired) -> String {
    match why {
        Retired::Exhausted => format!("{}: every schedule of the space was measured", row.name),
        Retired::Failing(causes) => {
            let causes = causes.replace('\n', "\n  ");
            format!("{}: stopped, every candidate of the first batch failed:\n  {causes}", row.name)
        }
    }
}

fn race_failed(row: &TaskRow, why: &MeasureError) -> String {
    format!("{}: the race failed: {why}", row.name)
}

/// Display that prints a line whenever a task's best time improves.
struct ProgressLines {
    board: Board,
}

impl Observer for ProgressLines {
    fn event(&mut self, event: &Event<'_>) {
        let board = &mut self.board;
        match event {
            Event::Started { tasks, resumed, trials } => board.start(tasks, resumed, *trials),
            Event::Measured { task, best_secs, .. } => {
                if board.measured(*task, *best_secs) {
                    let row = &board.tasks[*task];
                    let left = board.time_left().unwrap_or_default();
                    let (counter, best) = (board.counter(), row.best());
                    say(format_args!("[{counter}] {}: {best}, {} trials{left}", row.name, row.trials));
                }
            }
            Event::Retired { task, why } => say(retired(&board.tasks[*task], why)),
            Event::Racing { task } => {
                if let Some(row) = board.tasks.get(*task) {
                    say(format_args!("racing the best of {} against its default", row.name));
                }
            }
            Event::RaceFailed { task, why } => {
                if let Some(row) = board.tasks.get(*task) {
                    say(race_failed(row, why));
                }
            }
        }
    }
}

/// Display with one bar for all trials and one per task. Dropping it removes the bars from the
/// terminal.
struct ProgressBars {
    board: Board,
    group: MultiProgress,
    overall: ProgressBar,
    bars: Vec<ProgressBar>,
}

impl ProgressBars {
    fn start(&mut self) {
        let style =
            |template: &str| ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        let template = match self.board.trials {
            Some(_) => "{bar:30} {pos}/{len} trials, {elapsed} elapsed, {eta} left",
            None => "{spinner} {pos} trials, {elapsed} elapsed{msg}",
        };
        let overall = match self.board.trials {
            Some(trials) => ProgressBar::new(trials as u64),
            None => ProgressBar::no_length(),
        };
        self.overall = self.group.add(overall.with_style(style(template)).with_position(self.board.done as u64));
        self.overall.reset_eta();

        self.bars.clear();
        for row in &self.board.tasks {
            let bar = ProgressBar::no_length().with_style(style("  {prefix:8} {pos:>4} trials  {msg}"));
            let bar = bar.with_prefix(row.name.clone()).with_position(row.trials as u64);
            self.bars.push(self.group.add(bar));
        }
        for bar in &self.bars {
            bar.tick();
        }
    }

    fn show(&self, task: usize, message: String) {
        if let Some(bar) = self.bars.get(task) {
            bar.set_message(message);
        }
    }
}

impl Drop for ProgressBars {
    fn drop(&mut self) {
        set_bars(None);
        // A closed terminal cannot be cleared, and there is nothing else to do about it.
        let _ = self.group.clear();
    }
}

impl Observer for ProgressBars {
    fn event(&mut self, event: &Event<'_>) {
        match event {
            Event::Started { tasks, resumed, trials } => {
                self.board.start(tasks, resumed, *trials);
                self.start();
            }

            Event::Measured { task, best_secs, .. } => {
                self.board.measured(*task, *best_secs);
                self.overall.inc(1);
                self.overall.set_message(self.board.time_left().unwrap_or_default());

                if let Some(bar) = self.bars.get(*task) {
                    bar.inc(1);
                }
                self.show(*task, self.board.tasks[*task].best());
            }

            // Suspending the bars prints the line above them.
            Event::Retired { task, why } => {
                let text = retired(&self.board.tasks[*task], why);
                self.overall.suspend(|| say(text));
            }
            Event::RaceFailed { task, why } => {
                if let Some(row) = self.board.tasks.get(*task) {
                    self.overall.suspend(|| say(race_failed(row, why)));
                }
            }

            Event::Racing { task } => {
                if let Some(row) = self.board.tasks.get(*task) {
                    self.show(*task, format!("{}, racing against the default", row.best()));
                }
            }
        }
    }
}
