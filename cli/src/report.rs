//! Reports for people: the table of tasks, and the lines below it.

use autotune::{Report, Stop, TaskReport};
use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{CellAlignment, Table};

/// The table of task reports, and the total over the network below it where there are several.
pub(crate) fn table(tasks: &[TaskReport]) -> String {
    let headers = ["task", "times", "default ms", "best ms", "speed-up", "rate", "of roofline", "trials", "failed"];
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN).set_header(headers);

    for task in tasks {
        let or_dash = |cell: Option<String>| cell.unwrap_or_else(|| "-".into());
        let ms = |secs: Option<f64>| or_dash(secs.map(|s| format!("{:.4}", s * 1e3)));
        table.add_row([
            task.name.clone(),
            task.count.to_string(),
            ms(task.default_secs),
            ms(task.best_secs),
            or_dash(task.speed_up().map(|x| format!("{x:.2}x"))),
            or_dash(task.best_secs.map(|secs| task.workload.rate(secs).to_string())),
            or_dash(of_roofline(task)),
            task.trials.to_string(),
            task.failed_trials.to_string(),
        ]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }

    // A task that the network lists but never runs adds nothing; one without a time leaves no total.
    let total = |secs: fn(&TaskReport) -> Option<f64>| {
        let counted = tasks.iter().filter(|task| task.count > 0);
        counted.map(|task| Some(secs(task)? * task.count as f64)).sum::<Option<f64>>()
    };
    match (tasks.len() > 1, total(|t| t.default_secs), total(|t| t.best_secs)) {
        (true, Some(default), Some(best)) => {
            let (default_ms, best_ms, speed_up) = (default * 1e3, best * 1e3, default / best);
            format!("{table}\nnetwork: default {default_ms:.3} ms, best {best_ms:.3} ms, speed-up {speed_up:.2}x")
        }
        _ => table.to_string(),
    }
}

/// The share of the roofline, and beside it what that were by the operations of the direct algorithm where another one runs.
fn of_roofline(task: &TaskReport) -> Option<String> {
    let percent = |fraction: f64| format!("{:.0} %", fraction * 100.0);
    let (own, direct) = (task.roofline_fraction?, task.direct_roofline_fraction?);
    Some(if own == direct { percent(own) } else { format!("{} ({} direct)", percent(own), percent(direct)) })
}

/// What is said below the table of a tuning run.
pub(crate) fn summary(report: &Report) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(ranking) = report.ranking {
        lines.push(format!(
            "model, on {} held-out samples: pairwise accuracy {:.3}, recall of the fastest fifth {:.3}",
            ranking.samples, ranking.pairwise_accuracy, ranking.top_recall,
        ));
    }
    lines.push(time_line(report));

    if let tasks @ 1.. = report.timed_alone() {
        lines.push(format!(
            "of {tasks} task(s) each run was launched alone, since CUDA captured no graph: times of a few microseconds are too high"
        ));
    }
    match report.stop {
        Stop::Trials | Stop::Cancelled => {}
        Stop::TimeBudget => lines.push("stopped: the time is used up".into()),
        Stop::Plateau => lines.push("stopped: no task gains any more".into()),
    }
    lines
}

/// Trials per second, and where the time went, in one line.
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
    use super::*;

    fn task(name: &str, count: usize, default_secs: Option<f64>) -> TaskReport {
        TaskReport {
            name: name.into(),
            workload: "matmul:m=8,n=8,k=8".parse().unwrap(),
            count,
            trials: 4,
            failed_trials: 1,
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
}
