//! Progress of tuning for several kinds of devices at once: a line for each kind.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use autotune::{Event, Observer};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use super::{Board, notice, race_failed, retired, set_bars};

/// Lines of all kinds: bars on a terminal, else lines with the kind's name. Dropping it removes the
/// bars from the terminal.
pub(crate) struct KindDisplay {
    names: Vec<String>,
    group: Option<MultiProgress>,
}

impl KindDisplay {
    /// Starts the display for kinds with these target keys.
    pub(crate) fn start(keys: &[String]) -> Self {
        let group = std::io::stderr().is_terminal().then(MultiProgress::new);
        set_bars(group.clone());
        Self { names: short_names(keys), group }
    }

    /// Returns the receiver of the events of one kind.
    pub(crate) fn observer(&self, kind: usize, time_budget: Option<Duration>) -> KindProgress {
        let board = Board { tasks: Vec::new(), done: 0, trials: None, time_budget, start: Instant::now() };
        let name = self.names.get(kind).cloned().unwrap_or_default();
        KindProgress { name, board, group: self.group.clone(), bar: None }
    }
}

impl Drop for KindDisplay {
    fn drop(&mut self) {
        set_bars(None);
        if let Some(group) = &self.group {
            // A closed terminal cannot be cleared, and there is nothing else to do about it.
            let _ = group.clear();
        }
    }
}

/// Progress of one kind.
pub(crate) struct KindProgress {
    name: String,
    board: Board,
    group: Option<MultiProgress>,
    bar: Option<ProgressBar>,
}

impl KindProgress {
    fn start_bar(&mut self) {
        let Some(group) = &self.group else { return };
        let (template, bar) = match self.board.trials {
            Some(trials) => {
                ("{prefix} {bar:20} {pos}/{len} trials, {eta} left  {msg}", ProgressBar::new(trials as u64))
            }
            None => ("{prefix} {spinner} {pos} trials{msg}", ProgressBar::no_length()),
        };
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = bar.with_style(style).with_prefix(self.name.clone()).with_position(self.board.done as u64);
        let bar = group.add(bar);
        bar.tick();
        self.bar = Some(bar);
    }

    /// Shows a result; `is_best` if it is the best of its task.
    fn measured(&self, task: usize, is_best: bool) {
        let (row, left) = (&self.board.tasks[task], self.board.time_left().unwrap_or_default());
        let best = format!("{}: {}", row.name, row.best());
        match &self.bar {
            Some(bar) => {
                bar.inc(1);
                bar.set_message(format!("{left} {best}"));
            }
            None if is_best => {
                notice(&format!("[{}] {}: {best}, {} trials{left}", self.board.counter(), self.name, row.trials));
            }
            None => {}
        }
    }
}

impl Observer for KindProgress {
    fn event(&mut self, event: &Event<'_>) {
        let line = |text: String| notice(&format!("{}: {text}", self.name));
        match event {
            Event::Started { tasks, resumed, trials } => {
                self.board.start(tasks, resumed, *trials);
                self.start_bar();
            }
            Event::Measured { task, best_secs, .. } => {
                let is_best = self.board.measured(*task, *best_secs);
                self.measured(*task, is_best);
            }
            Event::Retired { task, why } => line(retired(&self.board.tasks[*task], why)),
            Event::Racing { task } => {
                if let Some((row, bar)) = self.board.tasks.get(*task).zip(self.bar.as_ref()) {
                    bar.set_message(format!(" {}: racing against the default", row.name));
                }
            }
            Event::RaceFailed { task, why } => {
                if let Some(row) = self.board.tasks.get(*task) {
                    line(race_failed(row, why));
                }
            }
        }
    }
}

/// Returns the first two words of each key, or of all keys the whole if those are not distinct.
fn short_names(keys: &[String]) -> Vec<String> {
    let short = |key: &String| key.split(':').take(2).collect::<Vec<_>>().join(":");
    let names: Vec<String> = keys.iter().map(short).collect();
    let mut distinct = names.clone();
    distinct.sort();
    distinct.dedup();
    if distinct.len() == keys.len() { names } else { keys.to_vec() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_kinds_are_short_and_distinct() {
        let names = |keys: &[&str]| short_names(&keys.iter().map(|key| key.to_string()).collect::<Vec<_>>());
        assert_eq!(names(&["cpu:A-1:avx2:threads=2", "cuda:sm_90:H100"]), ["cpu:A-1", "cuda:sm_90"]);
        let alike = ["cpu:A-1:avx2:threads=2", "cpu:A-1:avx2:threads=4"];
        assert_eq!(names(&alike), alike);
    }
}
