//! Text reports: the table of tasks, and the lines below it.

use autotune::{Disturbance, Report, Stop, TaskReport, Timing};
use autotune_measure::Load;
use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{CellAlignment, Table};

/// Formats the table of tasks and, for several tasks, the total of the network below it.
pub(crate) fn table(tasks: &[TaskReport]) -> String {
    let headers = ["task", "times", "default ms", "best ms", "speed-up", "rate", "of roofline", "trials", "failed"];
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN).set_header(headers);

    for task in tasks {
        let or_dash = |cell: Option<String>| cell.unwrap_or_else(|| "-".into());
        let ms = |secs: Option<f64>| or_dash(secs.map(|s| marked(format!("{:.4}", s * 1e3), task.timing)));
        table.add_row([
            task.name.clone(),
            task.count.to_string(),
            ms(task.default_secs),
            ms(task.best_secs),
            or_dash(task.speed_up().map(|x| marked(format!("{x:.2}x"), task.timing))),
            or_dash(task.best_secs.map(|secs| task.workload.rate(secs).to_string())),
            or_dash(of_roofline(task)),
            task.trials.to_string(),
            task.failed_trials.to_string(),
        ]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }

    // A task that the network never runs adds nothing. A task without a time makes the total
    // unknown.
    let counted = || tasks.iter().filter(|task| task.count > 0);
    let total = |secs: fn(&TaskReport) -> Option<f64>| {
        counted().map(|task| Some(secs(task)? * task.count as f64)).sum::<Option<f64>>()
    };
    let timing = counted().map(|task| task.timing).max().unwrap_or(Timing::Raced);
    match (tasks.len() > 1, total(|t| t.default_secs), total(|t| t.best_secs)) {
        (true, Some(default), Some(best)) => format!("{table}\nnetwork: {}", compared(default, best, timing)),
        _ => table.to_string(),
    }
}

/// Formats two times and the speed-up of the second.
pub(crate) fn compared(default_secs: f64, best_secs: f64, timing: Timing) -> String {
    let [default, best] = [default_secs, best_secs].map(|secs| marked(format!("{:.3} ms", secs * 1e3), timing));
    let speed_up = marked(format!("{:.2}x", default_secs / best_secs), timing);
    format!("default {default}, best {best}, speed-up {speed_up}")
}

/// Formats a network's time in f32 with the best known schedules, and the speed-up over it.
pub(crate) fn compared_with_f32(f32_secs: f64, secs: f64, timing: Timing) -> String {
    let [time, speed_up] = [format!("{:.3} ms", f32_secs * 1e3), format!("{:.2}x", f32_secs / secs)];
    let [time, speed_up] = [time, speed_up].map(|figure| marked(figure, timing));
    format!("in f32, with the schedules known for it: {time}, speed-up {speed_up}")
}

/// Marks a figure whose error may exceed a tenth.
pub(crate) fn marked(figure: String, timing: Timing) -> String {
    if timing.is_reliable() { figure } else { format!("≈ {figure}") }
}

/// Returns lines that explain the marks and the load by other programs, with a remedy each.
pub(crate) fn caveats(tasks: &[TaskReport], disturbance: &Disturbance) -> Vec<String> {
    let timed = |timing: Timing| tasks.iter().filter(|task| task.best_secs.is_some() && task.timing == timing).count();
    let mut lines = Vec::new();
    if disturbance.is_notable() {
        lines.push(disturbed(disturbance));
    } else if let raced @ 1.. = timed(Timing::Disturbed) {
        lines.push(format!(
            "≈: while {raced} task(s) raced, other programs used more than a tenth of the threads' time: measure them again with `autotune bench`"
        ));
    }
    if let once @ 1.. = timed(Timing::Once) {
        lines.push(format!(
            "≈: {once} task(s) were timed once and did not race: increase the time, or race them with `autotune bench`"
        ));
    }
    lines
}

/// Returns a line about the load by other programs during a measurement, if it was notable.
pub(crate) fn caveat(load: Option<Load>) -> Option<String> {
    let disturbance = Disturbance { load, slowdown: None };
    disturbance.is_notable().then(|| disturbed(&disturbance))
}

/// Describes the disturbance of the machine, and the remedy.
fn disturbed(disturbance: &Disturbance) -> String {
    let mut found = Vec::new();
    if let Some(load) = disturbance.load {
        found.push(format!("other programs kept {:.1} of {} cores busy", load.other_cores, load.cores));
        if load.stolen >= 0.01 {
            found.push(format!(
                "other virtual machines of its host used {:.0} % of the cores' time",
                load.stolen * 100.0
            ));
        }
    }
    if let Some(slowdown) = disturbance.slowdown.filter(|slowdown| *slowdown >= 1.05) {
        found.push(format!("one trial in ten ran {slowdown:.2} times slower"));
    }
    format!(
        "the machine was disturbed ({}): times may be off by more than a tenth, those marked ≈ for that reason; stop other programs or \
         use fewer --threads, and measure again",
        found.join(", ")
    )
}

/// Formats the share of the roofline. Where another algorithm than the direct one runs, the share
/// by the direct algorithm's operations follows.
fn of_roofline(task: &TaskReport) -> Option<String> {
    let percent = |fraction: f64| format!("{:.0} %", fraction * 100.0);
    let (own, direct) = (task.roofline_fraction?, task.direct_roofline_fraction?);
    Some(if own == direct { percent(own) } else { format!("{} ({} direct)", percent(own), percent(direct)) })
}

/// Returns the lines below the table of a tuning run.
pub(crate) fn summary(report: &Report) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(ranking) = report.ranking {
        lines.push(format!(
            "model, on {} held-out samples: pairwise accuracy {:.3}, recall of the fastest fifth {:.3}",
            ranking.samples, ranking.pairwise_accuracy, ranking.top_recall,
        ));
    }
    lines.push(time_line(report));
    lines.extend(caveats(&report.tasks, &report.disturbance));

    if let tasks @ 1.. = report.timed_alone() {
        lines.push(format!(
            "each run of {tasks} task(s) was launched separately, since CUDA captured no graph: times of a few microseconds are too high"
        ));
    }
    match report.stop {
        Stop::Trials | Stop::Cancelled => {}
        Stop::TimeBudget => lines.push("stopped: the time budget is used up".into()),
        Stop::Plateau => lines.push("stopped: no task improves any further".into()),
    }
    lines
}

/// Formats the trials per second and the shares of the tuning time.
fn time_line(report: &Report) -> String {
    let total = report.tuning_secs.max(f64::MIN_POSITIVE);
    let shares = &report.shares;
    let parts = [
        ("start", shares.start_secs),
        ("propose", shares.propose_secs),
        ("build", shares.build_secs),
        ("run", shares.run_secs),
        ("trial", shares.trial_secs),
        ("record", shares.record_secs),
        ("fit", shares.fit_secs),
        ("race", shares.race_secs),
    ];
    let parts = parts.map(|(name, secs)| format!("{name} {:.0} %", 100.0 * secs / total));

    let speed = report.trials_per_sec.map_or(String::new(), |speed| {
        let model_ms = 1e3 * (shares.propose_secs + shares.fit_secs) / report.new_trials.max(1) as f64;
        format!(
            "{} trials, {speed:.1} a second ({:.1} ms each, search and model {model_ms:.1} ms of it); ",
            report.new_trials,
            1e3 / speed,
        )
    });
    format!("{speed}{total:.1} s: {}", parts.join(", "))
}

#[cfg(test)]
mod tests {
    use autotune_measure::Load;

    use super::*;

    fn task(name: &str, count: usize, default_secs: Option<f64>) -> TaskReport {
        TaskReport {
            name: name.into(),
            workload: "matmul:m=8,n=8,k=8".parse().unwrap(),
            count,
            trials: 4,
            failed_trials: 1,
            timing: Timing::Raced,
            default_secs,
            best_secs: default_secs.map(|secs| secs / 2.0),
            gflops: None,
            roofline_fraction: None,
            direct_roofline_fraction: None,
            max_rel_error: None,
            graph_runs: None,
            config: None,
            retired: None,
        }
    }

    #[test]
    fn the_share_of_the_roofline_is_that_of_the_algorithm_that_runs() {
        let cell = |own: f64, direct: f64| {
            of_roofline(&TaskReport {
                roofline_fraction: Some(own),
                direct_roofline_fraction: Some(direct),
                ..task("C", 1, None)
            })
        };
        assert_eq!(cell(0.66, 2.64).as_deref(), Some("66 % (264 % direct)"));
        assert_eq!(cell(0.98, 0.98).as_deref(), Some("98 %"));
    }

    #[test]
    fn the_network_is_the_sum_of_what_it_runs() {
        let [twice, never] = [task("twice", 2, Some(3e-3)), task("never", 0, None)];
        let text = table(&[twice.clone(), never]);
        assert!(text.ends_with("network: default 6.000 ms, best 3.000 ms, speed-up 2.00x"), "{text}");
        assert!(!table(&[twice.clone(), task("once", 1, None)]).contains("network:"), "one has no time");
        assert!(!table(&[twice]).contains("network:"), "there is one task only");
    }

    #[test]
    fn disturbed_races_are_marked() {
        let timed = |name: &str, timing: Timing| TaskReport { timing, ..task(name, 1, Some(3e-3)) };
        let tasks = [timed("raced", Timing::Raced), timed("once", Timing::Once), timed("disturbed", Timing::Disturbed)];
        let text = table(&tasks);
        let row = |name: &str| text.lines().find(|line| line.contains(name)).unwrap();
        assert!(!row("raced").contains('≈'), "{text}");
        for name in ["once", "disturbed"] {
            assert!(["≈ 3.0000 ", "≈ 1.5000 ", "≈ 2.00x "].iter().all(|cell| row(name).contains(cell)), "{text}");
        }
        assert!(text.ends_with("network: default ≈ 9.000 ms, best ≈ 4.500 ms, speed-up ≈ 2.00x"), "{text}");
        assert!(table(&[tasks[0].clone(), tasks[0].clone()]).ends_with("speed-up 2.00x"));

        let lines = |tasks: &[TaskReport], disturbance| caveats(tasks, &disturbance);
        assert_eq!(lines(&tasks[..1], Disturbance::default()), [""; 0]);
        let quiet = lines(&tasks, Disturbance::default());
        assert!(
            quiet.len() == 2 && quiet[0].contains("1 task(s) raced") && quiet[1].contains("1 task(s) were timed once")
        );
    }

    #[test]
    fn a_disturbed_machine_is_told_in_a_line() {
        let load = |taken: f64| Load { cores: 2, other_cores: 2.0 * taken, stolen: 0.02, taken };
        let told = |load, slowdown| caveats(&[], &Disturbance { load, slowdown });
        assert_eq!(told(Some(load(0.05)), Some(1.1)), [""; 0]);
        let [line] = &told(Some(load(0.5)), Some(1.01))[..] else { panic!("one line") };
        assert!(
            line.contains("other programs kept 1.0 of 2 cores busy, other virtual machines of its host used 2 %"),
            "{line}"
        );
        assert!(line.contains("--threads") && !line.contains("one trial in ten"), "{line}");
        let [line] = &told(None, Some(1.5))[..] else { panic!("one line") };
        assert!(line.contains("(one trial in ten ran 1.50 times slower)"), "{line}");

        assert_eq!([caveat(None), caveat(Some(load(0.05)))], [None, None]);
        assert!(caveat(Some(load(0.5))).is_some_and(|line| line.contains("1.0 of 2 cores")));
    }
}
