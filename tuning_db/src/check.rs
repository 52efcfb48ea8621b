//! Validation of records: values that no measurement can produce, and oversized or unsafe texts.

use autotune_measurement::{CandidateError, RunSecs};
use autotune_schedules::tolerance;

use crate::error::RecordError;
use crate::record::TuningRecord;

/// Most bytes of a target key.
pub(crate) const MAX_TARGET_BYTES: usize = 256;
/// Most bytes of a config's text.
pub(crate) const MAX_CONFIG_BYTES: usize = 16 << 10;
/// Most bytes of a failure message.
pub(crate) const MAX_MESSAGE_BYTES: usize = 16 << 10;
/// Most bytes of each text of a provenance.
pub(crate) const MAX_PROVENANCE_BYTES: usize = 2 << 10;

fn invalid(field: &'static str, reason: String) -> Result<(), RecordError> {
    Err(RecordError::Invalid { field, reason })
}

/// Checks the values that look-ups depend on: target, times and errors.
pub(crate) fn check_values(record: &TuningRecord) -> Result<(), RecordError> {
    if record.target.is_empty() || record.target.chars().any(char::is_control) {
        return invalid("target", format!("{:?} is empty or has control characters", record.target));
    }
    check_not_negative("build_secs", record.measurement.build_secs)?;
    check_not_negative("measure_secs", record.measurement.measure_secs)?;
    match &record.measurement.outcome {
        Ok(run) => check_run(record, run),
        Err(CandidateError::BuildTimeout { limit_secs } | CandidateError::Timeout { limit_secs }) => {
            check_not_negative("limit_secs", *limit_secs)
        }
        Err(CandidateError::WrongResult { max_rel_error, tolerance }) => {
            check_not_negative("tolerance", *tolerance)?;
            // The error is infinite if an output was not finite.
            if *max_rel_error < 0.0 { invalid("max_rel_error", format!("{max_rel_error} is negative")) } else { Ok(()) }
        }
        Err(_) => Ok(()),
    }
}

fn check_run(record: &TuningRecord, run: &RunSecs) -> Result<(), RecordError> {
    for (field, value) in [("run_secs", run.run_secs), ("median_secs", run.median_secs), ("slowdown", run.slowdown)] {
        if !(value.is_finite() && value > 0.0) {
            return invalid(field, format!("{value} is not a positive number"));
        }
    }
    check_not_negative("spread", run.spread)?;
    check_not_negative("kernel_secs", run.kernel_secs)?;
    check_not_negative("max_rel_error", run.max_rel_error)?;
    if run.repeats == 0 {
        return invalid("repeats", "nothing was timed".into());
    }

    let tolerance = tolerance(&record.workload, &record.config);
    if run.max_rel_error > tolerance {
        return invalid("max_rel_error", format!("{:e} exceeds the tolerance {tolerance:e}", run.max_rel_error));
    }
    Ok(())
}

fn check_not_negative(field: &'static str, value: f64) -> Result<(), RecordError> {
    if value.is_finite() && value >= 0.0 {
        Ok(())
    } else {
        invalid(field, format!("{value} is negative or not finite"))
    }
}

/// Checks the lengths of texts, and that they have no terminal control sequences.
pub(crate) fn check_texts(record: &TuningRecord) -> Result<(), RecordError> {
    check_text("target", &record.target, MAX_TARGET_BYTES)?;
    check_text("config", &record.config.to_string(), MAX_CONFIG_BYTES)?;
    let provenance = &record.provenance;
    for (field, text) in [
        ("device", &provenance.device),
        ("compiler", &provenance.compiler),
        ("flags", &provenance.flags),
        ("tuner_version", &provenance.tuner_version),
        ("harness", &provenance.harness),
    ] {
        check_text(field, text, MAX_PROVENANCE_BYTES)?;
    }
    match message(record) {
        Some(text) if text.len() > MAX_MESSAGE_BYTES => too_long("message", text, MAX_MESSAGE_BYTES),
        Some(text) if text.contains(is_command) => {
            invalid("message", "has control characters other than line ends and tabs".into())
        }
        _ => Ok(()),
    }
}

fn check_text(field: &'static str, text: &str, max_bytes: usize) -> Result<(), RecordError> {
    if text.len() > max_bytes {
        return too_long(field, text, max_bytes);
    }
    if text.contains(char::is_control) {
        return invalid(field, "has control characters".into());
    }
    Ok(())
}

fn too_long(field: &'static str, text: &str, max_bytes: usize) -> Result<(), RecordError> {
    invalid(field, format!("{} bytes long, at most {max_bytes} are allowed", text.len()))
}

/// Returns true for characters that a terminal may interpret as a command.
fn is_command(c: char) -> bool {
    c.is_control() && c != '\n' && c != '\t'
}

/// Returns the failure message of the lowering, compiler or worker; `None` if the failure has none.
fn message(record: &TuningRecord) -> Option<&String> {
    match record.measurement.outcome.as_ref().err()? {
        CandidateError::Lower { message }
        | CandidateError::Build { message }
        | CandidateError::Crash { message }
        | CandidateError::StrayWrite { message }
        | CandidateError::OutOfMemory { message } => Some(message),
        CandidateError::BuildTimeout { .. } | CandidateError::WrongResult { .. } | CandidateError::Timeout { .. } => {
            None
        }
    }
}

/// Replaces control characters and truncates long texts, so that the messages of compilers and
/// drivers pass [`check_texts`].
pub(crate) fn tidy(record: &mut TuningRecord) {
    let provenance = &mut record.provenance;
    for text in [&mut provenance.device, &mut provenance.compiler, &mut provenance.flags, &mut provenance.harness] {
        tidy_text(text, char::is_control, MAX_PROVENANCE_BYTES);
    }
    if let Err(
        CandidateError::Lower { message }
        | CandidateError::Build { message }
        | CandidateError::Crash { message }
        | CandidateError::StrayWrite { message }
        | CandidateError::OutOfMemory { message },
    ) = &mut record.measurement.outcome
    {
        tidy_text(message, is_command, MAX_MESSAGE_BYTES);
    }
}

fn tidy_text(text: &mut String, is_unfit: fn(char) -> bool, max_bytes: usize) {
    if text.contains(is_unfit) {
        *text = text.replace(is_unfit, "\u{fffd}");
    }
    text.truncate(text.floor_char_boundary(max_bytes));
}
