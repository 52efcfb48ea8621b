//! Figures of a worker in Prometheus' text format, version 0.0.4.

use std::fmt::{Display, Write};
use std::time::UNIX_EPOCH;

use crate::desk::WorkerFigures;
use crate::message::FleetBuild;

/// Returns the page of metrics.
pub(crate) fn exposition(name: &str, build: &FleetBuild, figures: &WorkerFigures) -> String {
    let WorkerFigures { state, devices, counts } = figures;
    let mut page = MetricsPage(String::new());
    let info = [
        ("worker", name),
        ("target", &state.target),
        ("version", &build.version),
        ("lowering", &build.lowering.to_string()),
        ("messages", &build.protocol.to_string()),
    ];
    page.family("info", "gauge", "Identity of the worker: name, key of its CPU, versions.");
    page.sample("info", &info, 1);
    page.single("uptime_seconds", "gauge", "Seconds since the start.", state.up_secs);
    page.single("tuners", "gauge", "Tuners that have a device open.", state.tuners);
    page.single("queued_wishes", "gauge", "Wishes that wait or are being measured.", state.queued);

    page.family("wishes_total", "counter", "Wishes by their end: measured, failed (the result is an error), returned.");
    let ends = [("measured", counts.measured), ("failed", counts.failed), ("returned", counts.returned)];
    ends.into_iter().for_each(|(end, count)| page.sample("wishes_total", &[("result", end)], count));
    page.single("races_total", "counter", "Races that were run.", counts.races);
    page.single("leases_total", "counter", "Leases that were taken.", counts.leases);
    if let Some(secs) = counts.last_lease.and_then(|at| at.duration_since(UNIX_EPOCH).ok()) {
        let secs = secs.as_secs_f64();
        page.single("last_lease_timestamp_seconds", "gauge", "Time of the last lease, in seconds since 1970.", secs);
    }

    let references: [(&str, &str, Vec<Option<f64>>); 2] = [
        (
            "reference_kernel_seconds",
            "Seconds per run of the reference kernel after the last batch.",
            devices.iter().map(|device| device.reference_secs).collect(),
        ),
        (
            "reference_kernel_first_seconds",
            "Seconds per run of the reference kernel when the device was opened.",
            devices.iter().map(|device| device.first_secs).collect(),
        ),
    ];
    for (metric, help, secs) in references {
        page.family(metric, "gauge", help);
        for (device, secs) in devices.iter().zip(secs) {
            let labels = [("target", &*device.key), ("backend", &device.backend.to_string())];
            secs.into_iter().for_each(|secs| page.sample(metric, &labels, secs));
        }
    }
    page.0
}

/// Text of the page so far.
struct MetricsPage(String);

impl MetricsPage {
    /// Starts a metric.
    fn family(&mut self, metric: &str, kind: &str, help: &str) {
        self.line(format_args!("# HELP autotune_worker_{metric} {help}"));
        self.line(format_args!("# TYPE autotune_worker_{metric} {kind}"));
    }

    /// Adds a value of the metric that was started last.
    fn sample(&mut self, metric: &str, labels: &[(&str, &str)], value: impl Display) {
        let labels: Vec<String> =
            labels.iter().map(|(label, value)| format!("{label}=\"{}\"", escaped(value))).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        self.line(format_args!("autotune_worker_{metric}{labels} {value}"));
    }

    fn single(&mut self, metric: &str, kind: &str, help: &str, value: impl Display) {
        self.family(metric, kind, help);
        self.sample(metric, &[], value);
    }

    fn line(&mut self, line: impl Display) {
        // Writing to memory does not fail.
        let _ = writeln!(self.0, "{line}");
    }
}

/// Escapes the value of a label.
fn escaped(value: &str) -> String {
    value.replace('\\', r"\\").replace('"', r#"\""#).replace('\n', r"\n")
}
